//! Queue of records to the thread of an exporter.
//!
//! Its memory is bounded: the metering thread waits while the exporter is slower. Packets that a live port cannot
//! buffer in the time are counted there.

use crate::export::{Demand, Ending, Exporter};
use linerate_burst::thread_panic::survive;
use linerate_burst::{Count, Kind, Ledger, Nanos, Stage};
use linerate_meter::{Flow, Records};
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Limits of queued records and of records per write: memory in bytes, and number of flows. The latter is a Parquet row
/// group: more flows would start another group and not be faster. Exporters that demand less get that limit, but at
/// least `LEAST`. The memory is used twice, by queued records and by those being written.
const MOST: usize = 256 << 20;
const MOST_FLOWS: usize = 1 << 17;
const LEAST: usize = 48 << 20;

/// Passes records to another thread, which exports them.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: JoinHandle<(Box<dyn Exporter>, std::result::Result<(), Failure>)>,
    demand: Demand,
    /// Called when no more records follow.
    ending: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Reason why an exporter stopped.
struct Failure {
    error: Error,
    /// Counter for the records that it did not write.
    count: Count,
}

#[derive(Default)]
struct Shared {
    /// Name of the exporter in the ledger.
    name: String,
    waiting: Mutex<QueueState>,
    /// Latest counters of the exporter.
    said: Mutex<Ledger>,
    /// Signals the exporter.
    work: Condvar,
    /// Signals free space.
    room: Condvar,
}

#[derive(Default)]
struct QueueState {
    flows: Vec<Flow>,
    bytes: usize,
    /// Number of records received.
    taken: u64,
    /// Arrival of the oldest queued record.
    since: Option<Instant>,
    /// True when no more records follow.
    ended: bool,
    /// True when the exporter thread has ended.
    gone: bool,
    /// Counter for records that are not exported, after a failure.
    failed: Option<Count>,
    /// Requests a new output for the following records.
    reopen: Option<OnReopen>,
}

/// Called with a message about a completed output.
pub(crate) type OnReopen = Arc<dyn Fn(String) + Send + Sync>;

impl QueueState {
    fn is_full(&self, demand: Demand) -> bool {
        let most = demand.bytes.clamp(LEAST, MOST);
        self.bytes >= most || self.flows.len() >= MOST_FLOWS
    }

    fn is_enough(&self, demand: Demand) -> bool {
        self.bytes >= demand.bytes || self.is_full(demand)
    }
}

/// Marks the exporter thread as ended on drop, also after a panic.
struct EndGuard<'a>(&'a Shared);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.room.notify_all();
    }
}

impl Queue {
    /// Starts the thread, which calls `on_failure` when the exporter stops.
    pub(crate) fn start(mut exporter: Box<dyn Exporter>, on_failure: Arc<dyn Fn() + Send + Sync>) -> Result<Self> {
        let shared = Arc::new(Shared { name: exporter.name().to_owned(), ..Shared::default() });
        let (demand, ending) = (exporter.demand(), exporter.ending());
        let theirs = Arc::clone(&shared);
        let export = move || {
            let gone = EndGuard(&theirs);
            let result = match survive(|| gone.0.export(&mut *exporter, demand)) {
                Ok(result) => result.map_err(Failure::of),
                Err(died) => Err(Failure { error: Error::other(died), count: Count::ExportDied }),
            };
            if let Err(failure) = &result {
                theirs.lock().failed = Some(failure.count);
                on_failure();
            }
            drop(gone);
            (exporter, result)
        };
        let thread = std::thread::Builder::new().name("linerate-records".into()).spawn(export)?;
        Ok(Queue { shared, thread, demand, ending })
    }

    /// Returns a function that adds the counters so far, in their final form, for another thread.
    pub(crate) fn live(&self) -> impl Fn(&mut Ledger) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |ledger| shared.count(ledger)
    }

    /// Makes the exporter complete its output and continue in a new one; its thread calls `notify`.
    pub(crate) fn reopen(&self, notify: OnReopen) {
        self.shared.lock().reopen = Some(notify);
        self.shared.work.notify_one();
    }

    /// Waits for the exporter and adds its account; a reader that closed its end is not a failure. If the run failed
    /// before the first record, earlier files are kept.
    pub(crate) fn finish(self, has_failed: bool, ledger: &mut Ledger) -> Result<()> {
        let taken = {
            let mut waiting = self.shared.lock();
            waiting.ended = true;
            waiting.taken
        };
        self.shared.work.notify_one();
        if let Some(ending) = &self.ending {
            ending();
        }
        let (mut exporter, result) = match self.thread.join() {
            Ok(end) => end,
            // The thread catches all panics of the exporter.
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let ending = match result {
            _ if has_failed && taken == 0 => Ending::Abandoned,
            Ok(()) => Ending::Complete,
            Err(_) => Ending::Failed,
        };
        let ended = exporter.finish(ending).map_err(Failure::of);
        let count = [&result, &ended].into_iter().find_map(|result| result.as_ref().err()).map(|failure| failure.count);
        let account = ledger.account(Stage::Export, exporter.name());
        account.add(Count::ExportReceived, taken);
        exporter.counters(account);
        let (written, files) = (account.get(Count::Exported), account.get(Count::ExportFiles));
        // Excludes losses that the exporter counted itself.
        let lost = taken.saturating_sub(written).saturating_sub(account.sum(Kind::Lost));
        account.add(count.unwrap_or(Count::ExportFailed), lost);
        let lost = account.sum(Kind::Lost);
        exporter.accounts(ledger);
        match result.and(ended) {
            Err(Failure { count: Count::ExportUnread, .. }) | Ok(()) => Ok(()),
            // The error, with the records that it costs.
            Err(Failure { error, .. }) => Err(Error::new(
                error.kind(),
                format!("{error}; {lost} records lost, {written} written, {files} files complete"),
            )),
        }
    }
}

impl Records for Queue {
    /// Queues a record; waits while the queue is full.
    fn take(&mut self, flow: &Flow) {
        let mut waiting = self.shared.lock();
        waiting.taken += 1;
        while waiting.is_full(self.demand) && !waiting.gone {
            waiting = self.shared.room.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.gone {
            return;
        }
        let is_first = waiting.flows.is_empty();
        if is_first {
            waiting.since = Some(Instant::now());
        }
        let was_enough = waiting.is_enough(self.demand);
        waiting.flows.push(flow.clone());
        waiting.bytes += weight(flow);
        let is_enough = waiting.is_enough(self.demand);
        drop(waiting);
        // A wakeup is a system call.
        if is_first || is_enough && !was_enough {
            self.shared.work.notify_one();
        }
    }
}

impl Failure {
    fn of(error: Error) -> Self {
        let is_unread = error.kind() == ErrorKind::BrokenPipe;
        Failure { error, count: if is_unread { Count::ExportUnread } else { Count::ExportFailed } }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn export(&self, exporter: &mut dyn Exporter, demand: Demand) -> Result<()> {
        let next = || demand.tick.and_then(|tick| Instant::now().checked_add(tick));
        let (mut flows, mut due) = (Vec::new(), next());
        self.publish_counters(exporter);
        while let Some(reopen) = self.exchange(&mut flows, demand, due) {
            if !flows.is_empty() {
                exporter.write(&flows, now())?;
            }
            if let Some(notify) = reopen {
                exporter.reopen()?.map(&*notify);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                exporter.tick(now())?;
                due = next();
            }
            self.publish_counters(exporter);
        }
        Ok(())
    }

    /// Publishes the counters of the exporter.
    fn publish_counters(&self, exporter: &dyn Exporter) {
        let mut ledger = Ledger::new();
        exporter.counters(ledger.account(Stage::Export, &self.name));
        exporter.accounts(&mut ledger);
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = ledger;
    }

    /// Adds the published counters and the number of received records.
    fn count(&self, ledger: &mut Ledger) {
        let mut own = self.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (taken, failed) = {
            let waiting = self.lock();
            (waiting.taken, waiting.failed)
        };
        let account = own.account(Stage::Export, &self.name);
        account.add(Count::ExportReceived, taken);
        if let Some(count) = failed {
            account.add(count, taken.saturating_sub(account.get(Count::Exported) + account.sum(Kind::Lost)));
        }
        ledger.add_all(&own);
    }

    /// Swaps `flows` with the queued records. It stays empty if only a tick is `due`, or if no records precede a new
    /// output. Returns the request for a new output, if any, or `None` when no more records follow.
    fn exchange(&self, flows: &mut Vec<Flow>, demand: Demand, due: Option<Instant>) -> Option<Option<OnReopen>> {
        flows.clear();
        let mut waiting = self.lock();
        while !waiting.ended && !waiting.is_enough(demand) && waiting.reopen.is_none() {
            let left = waiting.since.map_or(Duration::MAX, |since| demand.age.saturating_sub(since.elapsed()));
            if left.is_zero() {
                break;
            }
            let due = due.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
            if due.is_zero() {
                return Some(None);
            }
            // Limits the wait: a time near the end of the clock overflows.
            let left = left.min(due).min(Duration::from_secs(3600));
            waiting = self.work.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut waiting.flows, flows);
        waiting.bytes = 0;
        waiting.since = None;
        self.room.notify_all();
        // At the end the output is completed anyway: no new one is needed.
        let reopen = waiting.reopen.take().filter(|_| !waiting.ended);
        (!flows.is_empty() || reopen.is_some()).then_some(reopen)
    }
}

fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Memory in bytes that a flow occupies.
fn weight(flow: &Flow) -> usize {
    let packets = flow.stats.as_ref().map_or(0, |stats| size_of_val(stats.packets.as_slice()));
    let history = flow.tcp.as_ref().map_or(0, |tcp| tcp.history.0.len());
    let names = flow.names.as_ref().map_or(0, |names| names.memory());
    size_of::<Flow>() + packets + history + names
}
