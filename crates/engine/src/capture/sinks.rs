//! Sinks of a capture, one after the other.
//!
//! In a separate thread a slow disk or compression does not block the lanes, and reading overlaps with writing.

use crate::control::ReopenRequest;
use crate::error::ReceiveError;
use crate::thread_panic::survive;
use crate::worker::{Work, Worker};
use linerate_burst::{Block, Count, Interface, Kind, Ledger, Nanos, Sink, SinkError, Stage};
use std::sync::Arc;

/// Thread name.
const NAME: &str = "linerate-sinks";
/// Number of blocks that may be queued for the sinks: 64 MiB.
const BLOCKS: usize = 64;

/// Data passed with a block.
pub(super) struct BlockContext {
    /// Interfaces of its frames.
    pub interfaces: Arc<[Interface]>,
    /// True if sinks must flush.
    pub flush: bool,
    /// Starts new outputs after the block: the ledger up to here.
    pub reopen: Option<(Ledger, ReopenRequest)>,
    /// State of the run: the ledger up to here, and the horizon after the block.
    pub look: Option<(Ledger, Nanos)>,
}

/// Passes blocks to all sinks.
#[derive(Default)]
pub(super) struct Sinks {
    all: Vec<GuardedSink>,
    /// First failure; later blocks are still passed on, so that every frame is accounted for.
    pub failure: Option<ReceiveError>,
}

struct GuardedSink {
    sink: Box<dyn Sink>,
    /// True if it panicked: it is not called again, and all its frames are lost.
    is_dead: bool,
    /// Number of frames passed to it.
    shown: u64,
}

impl Sinks {
    pub(super) fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let all = sinks.into_iter().map(|sink| GuardedSink { sink, is_dead: false, shown: 0 }).collect();
        Sinks { all, failure: None }
    }

    /// Returns whether any sink needs the state of the run.
    pub(super) fn follow(&self) -> bool {
        self.all.iter().any(|sink| !sink.is_dead && sink.sink.follows())
    }

    /// Passes the state of the run to those sinks.
    pub(super) fn look(&mut self, run: &Ledger, complete: Nanos) {
        for sink in &mut self.all {
            let result = sink.ask(|sink| if sink.follows() { sink.look(run, complete) } else { Ok(()) });
            if let Err(error) = result {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Passes the frames from `first` on; with `flush`, the sinks flush.
    pub(super) fn accept(&mut self, block: &Block, first: usize, interfaces: &[Interface], flush: bool) {
        for sink in &mut self.all {
            sink.shown += (block.len() - first) as u64;
            let result = sink.ask(|sink| {
                sink.accept(block.view(first, interfaces))?;
                if flush { sink.flush() } else { Ok(()) }
            });
            if let Err(error) = result {
                self.failure.get_or_insert(error);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        for sink in &mut self.all {
            if let Err(error) = sink.ask(|sink| sink.flush()) {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Starts new outputs; if that fails, the old ones continue.
    pub(super) fn reopen(&mut self, run: &Ledger, reopen: &ReopenRequest) {
        for sink in &mut self.all {
            let mut became = None;
            let result = sink.ask(|sink| {
                became = sink.reopen(run).transpose();
                Ok(())
            });
            if let Err(died) = result {
                self.failure.get_or_insert(died);
            }
            if let Some(became) = became {
                reopen.report_outcome(became);
            }
        }
    }

    /// Ends the sinks with the ledger of all stages before them, and adds their counters; `missing` expected frames did
    /// not arrive. Files stay unchanged if the run failed and `is_unused` is true. Noteworthy events are added to
    /// `events`. Returns the failure, if any.
    pub(super) fn finish(
        mut self,
        (missing, is_unused): (u64, bool),
        ledger: &mut Ledger,
        events: &mut Vec<String>,
    ) -> Option<ReceiveError> {
        for sink in &mut self.all {
            sink.shown += missing;
            let finish = |sink: &mut dyn Sink| match is_unused {
                true => sink.finish_unused(ledger),
                false => sink.finish(ledger),
            };
            if let Err(error) = sink.ask(finish) {
                self.failure.get_or_insert(error);
            }
        }
        for sink in &mut self.all {
            sink.counters(missing > 0, ledger);
            // A sink that panicked has no notes.
            let _ = sink.ask(|sink| {
                events.extend(sink.notes());
                Ok(())
            });
        }
        self.failure
    }
}

impl GuardedSink {
    /// Calls the sink, unless it is dead.
    fn ask(&mut self, work: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), ReceiveError> {
        if self.is_dead {
            return Ok(());
        }
        match survive(|| work(&mut *self.sink)) {
            Ok(result) => Ok(result?),
            Err(died) => {
                self.is_dead = true;
                Err(died.into())
            }
        }
    }

    /// Adds the accounts of its frames.
    fn counters(&mut self, are_missing: bool, ledger: &mut Ledger) {
        let mut own = Ledger::new();
        let was_told = survive(|| self.sink.counters(&mut own)).is_ok();
        if self.is_dead || are_missing || !was_told {
            let name = own.accounts().iter().find(|account| account.stage == Stage::Write);
            let name = name.map_or_else(|| "an output".to_owned(), |account| account.subject.clone());
            let account = own.account(Stage::Write, &name);
            let known = account.sum(Kind::Delivered) + account.sum(Kind::Refused) + account.sum(Kind::Lost);
            let unseen = self.shown.saturating_sub(account.sum(Kind::Received));
            account.add(Count::WriteReceived, unseen).add(Count::OutputDied, self.shown.saturating_sub(known));
        }
        ledger.add_all(&own);
    }
}

impl Work for Sinks {
    type With = BlockContext;
    type Last = ();

    fn take(&mut self, block: &Block, BlockContext { interfaces, flush, reopen, look }: BlockContext) {
        self.accept(block, 0, &interfaces, flush);
        if let Some((run, reopen)) = reopen {
            self.reopen(&run, &reopen);
        }
        if let Some((run, complete)) = look {
            self.look(&run, complete);
        }
    }

    fn end(&mut self, _: ()) {}

    fn has_failed(&self) -> bool {
        self.failure.is_some()
    }
}

/// Runs sinks in a separate thread, if there are sinks and a processor to run it.
pub(super) fn worker(sinks: Sinks) -> Worker<Sinks> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if sinks.all.is_empty() || processors < 2 {
        return Worker::here(sinks);
    }
    Worker::apart(NAME, sinks, BLOCKS).unwrap_or_else(|(sinks, _)| Worker::here(sinks))
}
