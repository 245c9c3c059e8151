//! The sinks of a run: in the thread that calls, or in one of their own.
//!
//! A thread of their own lets a slow moment of a disk, or compression, pass by without holding up the lanes, and
//! overlaps reading with writing. Blocks travel to it and come back empty; there are a bounded number of them.

use crate::capture::CaptureError;
use crate::died::{Died, survive};
use linerate_burst::{Block, Count, Interface, Kind, Ledger, Sink, SinkError, Stage};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// The thread.
const NAME: &str = "linerate-sinks";
/// Blocks that may be on their way to the sinks: 64 MiB.
const BLOCKS: usize = 64;

/// Takes blocks for sinks.
pub(crate) enum Outlet {
    /// Sinks in the thread that calls.
    Here(Taker),
    /// Sinks in a thread of their own.
    Apart(Apart),
}

/// Hands blocks to sinks one after the other.
#[derive(Default)]
pub(crate) struct Taker {
    seats: Vec<Seat>,
    /// The first failure; later blocks are handed over all the same, so that every frame is accounted for.
    pub failure: Option<CaptureError>,
}

/// A sink.
struct Seat {
    sink: Box<dyn Sink>,
    /// It panicked: it is left as it is, and every frame for it is lost.
    is_dead: bool,
    /// Frames for it.
    shown: u64,
}

impl Taker {
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let seats = sinks.into_iter().map(|sink| Seat { sink, is_dead: false, shown: 0 }).collect();
        Taker { seats, failure: None }
    }

    /// Shows the frames from `first` on; with `flush`, the sinks pass on what they hold.
    pub fn take(&mut self, block: &Block, first: usize, interfaces: &[Interface], flush: bool) {
        for seat in &mut self.seats {
            seat.shown += (block.len() - first) as u64;
            let result = seat.ask(|sink| {
                sink.accept(block.view(first, interfaces))?;
                if flush { sink.flush() } else { Ok(()) }
            });
            if let Err(error) = result {
                self.failure.get_or_insert(error);
            }
        }
    }

    /// Ends the sinks with the ledger of all before them, and adds their counters; `missing` frames that were to come never
    /// did. What went wrong, if anything.
    pub fn finish(mut self, missing: u64, ledger: &mut Ledger) -> Option<CaptureError> {
        for seat in &mut self.seats {
            seat.shown += missing;
            if let Err(error) = seat.ask(|sink| sink.finish(ledger)) {
                self.failure.get_or_insert(error);
            }
        }
        for seat in &mut self.seats {
            seat.counters(missing > 0, ledger);
        }
        self.failure
    }
}

impl Seat {
    /// Does something with the sink, unless it is dead.
    fn ask(&mut self, work: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), CaptureError> {
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

    /// What became of the frames for it.
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

/// The other end of a thread with sinks.
pub(crate) struct Apart {
    jobs: Sender<Job>,
    empty: Receiver<Block>,
    thread: JoinHandle<Taker>,
    /// Blocks made so far.
    made: usize,
    failed: Arc<AtomicBool>,
    /// The interfaces that the thread was told of last.
    interfaces: Arc<[Interface]>,
}

struct Job {
    block: Block,
    interfaces: Arc<[Interface]>,
    flush: bool,
}

impl Outlet {
    /// Sinks that get a thread of their own where there are sinks, and a processor to run it.
    pub fn new(sinks: Vec<Box<dyn Sink>>) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let taker = Taker::new(sinks);
        if taker.seats.is_empty() || processors < 2 {
            return Outlet::Here(taker);
        }
        Apart::start(taker).map_or_else(Outlet::Here, Outlet::Apart)
    }

    /// Whether a sink has failed.
    pub fn has_failed(&self) -> bool {
        match self {
            Outlet::Here(taker) => taker.failure.is_some(),
            Outlet::Apart(apart) => apart.failed.load(Ordering::Relaxed),
        }
    }

    /// Shows all frames of a block to the sinks and puts an empty one in its place, made by `make` or used before.
    pub fn exchange(&mut self, block: &mut Block, interfaces: &[Interface], flush: bool, make: impl FnOnce() -> Block) {
        match self {
            Outlet::Here(taker) => {
                taker.take(block, 0, interfaces, flush);
                block.clear();
            }
            Outlet::Apart(apart) => apart.exchange(block, interfaces, flush, make),
        }
    }

    /// Waits for all that was handed over, and gives the sinks back.
    pub fn into_taker(self) -> Taker {
        match self {
            Outlet::Here(taker) => taker,
            Outlet::Apart(apart) => apart.join(),
        }
    }
}

impl Apart {
    fn start(taker: Taker) -> Result<Apart, Taker> {
        let (jobs, taken) = channel::<Job>();
        let (back, empty) = channel::<Block>();
        let failed = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::clone(&failed);
        // Where no thread can be had the sinks must not go down with the closure.
        let place = Arc::new(Mutex::new(Some(taker)));
        let own = Arc::clone(&place);
        let run = move || {
            let mut taker = own.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
            for Job { mut block, interfaces, flush } in taken {
                taker.take(&block, 0, &interfaces, flush);
                has_failed.fetch_or(taker.failure.is_some(), Ordering::Relaxed);
                block.clear();
                // At the end nobody wants it back.
                let _ = back.send(block);
            }
            taker
        };
        match std::thread::Builder::new().name(NAME.into()).spawn(run) {
            Ok(thread) => Ok(Apart { jobs, empty, thread, made: 1, failed, interfaces: Arc::new([]) }),
            Err(_) => Err(place.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()),
        }
    }

    fn exchange(&mut self, block: &mut Block, interfaces: &[Interface], flush: bool, make: impl FnOnce() -> Block) {
        if self.interfaces.len() != interfaces.len() {
            self.interfaces = interfaces.into();
        }
        let empty = match self.empty.try_recv() {
            Ok(block) => Some(block),
            Err(_) if self.made < BLOCKS => {
                self.made += 1;
                Some(make())
            }
            // All are on their way: the sinks are slower than the lanes, which wait and count what they lose.
            Err(_) => self.empty.recv().ok(),
        };
        // The thread ends after this value alone, unless it died; `join` tells then.
        let Some(empty) = empty else {
            self.failed.store(true, Ordering::Relaxed);
            return block.clear();
        };
        let full = std::mem::replace(block, empty);
        let _ = self.jobs.send(Job { block: full, interfaces: Arc::clone(&self.interfaces), flush });
    }

    fn join(self) -> Taker {
        drop(self.jobs);
        drop(self.empty);
        match self.thread.join() {
            Ok(taker) => taker,
            Err(panic) => Taker { seats: Vec::new(), failure: Some(Died::of(NAME, &*panic).into()) },
        }
    }
}
