//! Records on their way to a thread of their own, which takes them to one exporter.
//!
//! There is no room without bound: who meters waits while the exporter is slower, and what a live port then cannot hold is
//! counted there.

use crate::export::{Demand, Ending, Exporter};
use linerate_burst::died::survive;
use linerate_burst::{Count, Kind, Ledger, Nanos, Stage};
use linerate_meter::{Flow, Records};
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The most that waits, and the most that is written at a time: in bytes of memory, and in flows. So many are a row group
/// of Parquet: more would be a group of their own, and no faster to write. Who is content with less has room for that, or for
/// so much at least: it is occupied twice, by what waits and by what is written meanwhile.
const MOST: usize = 256 << 20;
const MOST_FLOWS: usize = 1 << 17;
const LEAST: usize = 48 << 20;

/// Takes records; another thread exports them.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    thread: JoinHandle<(Box<dyn Exporter>, std::result::Result<(), Failure>)>,
    demand: Demand,
    /// Is to know when no more come.
    ending: Option<Box<dyn Fn() + Send + Sync>>,
}

/// Why an exporter takes no more.
struct Failure {
    error: Error,
    /// What the records it did not take count as.
    count: Count,
}

#[derive(Default)]
struct Shared {
    /// What the exporter is called in the ledger.
    name: String,
    waiting: Mutex<Waiting>,
    /// What became of records so far, as the exporter has said last.
    said: Mutex<Ledger>,
    /// There is something to export.
    work: Condvar,
    /// There is room again.
    room: Condvar,
}

#[derive(Default)]
struct Waiting {
    flows: Vec<Flow>,
    bytes: usize,
    /// Records that came, all of them.
    taken: u64,
    /// When the first of them came.
    since: Option<Instant>,
    /// No more will come.
    ended: bool,
    /// Nobody exports any more.
    gone: bool,
    /// What records that are not exported count as then.
    failed: Option<Count>,
    /// What follows is to go to something new.
    reopen: Option<Told>,
}

/// Is called with what became of an output.
pub(crate) type Told = Arc<dyn Fn(String) + Send + Sync>;

impl Waiting {
    fn is_full(&self, demand: Demand) -> bool {
        let most = demand.bytes.clamp(LEAST, MOST);
        self.bytes >= most || self.flows.len() >= MOST_FLOWS
    }

    fn is_enough(&self, demand: Demand) -> bool {
        self.bytes >= demand.bytes || self.is_full(demand)
    }
}

/// Says that nobody exports any more, also where a panic ends the thread.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.room.notify_all();
    }
}

impl Queue {
    /// Starts the thread, which calls `on_failure` when the exporter takes no more.
    pub(crate) fn start(mut exporter: Box<dyn Exporter>, on_failure: Arc<dyn Fn() + Send + Sync>) -> Result<Self> {
        let shared = Arc::new(Shared { name: exporter.name().to_owned(), ..Shared::default() });
        let (demand, ending) = (exporter.demand(), exporter.ending());
        let theirs = Arc::clone(&shared);
        let export = move || {
            let gone = Gone(&theirs);
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

    /// Adds what became of records so far, as the account in the end will, for another thread.
    pub(crate) fn live(&self) -> impl Fn(&mut Ledger) + Send + Sync + use<> {
        let shared = Arc::clone(&self.shared);
        move |ledger| shared.count(ledger)
    }

    /// Has the exporter complete what was taken so far, and go on in something new; `told` is called by its thread.
    pub(crate) fn reopen(&self, told: Told) {
        self.shared.lock().reopen = Some(told);
        self.shared.work.notify_one();
    }

    /// Waits until all is exported, and accounts for it; a reader that has gone is no failure. If the run failed before there
    /// was any record, what was there before stays.
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
            // What can panic there is caught there.
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
        // What the exporter has named itself.
        let lost = taken.saturating_sub(written).saturating_sub(account.sum(Kind::Lost));
        account.add(count.unwrap_or(Count::ExportFailed), lost);
        exporter.accounts(ledger);
        match result.and(ended) {
            Err(Failure { count: Count::ExportUnread, .. }) | Ok(()) => Ok(()),
            // The error, and what it costs.
            Err(Failure { error, .. }) => Err(Error::new(
                error.kind(),
                format!("{error}; {lost} records are lost, {written} are written, {files} files are complete"),
            )),
        }
    }
}

impl Records for Queue {
    /// Takes one, and waits for room if there is none.
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
        // Waking is a system call.
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
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn export(&self, exporter: &mut dyn Exporter, demand: Demand) -> Result<()> {
        let next = || demand.tick.and_then(|tick| Instant::now().checked_add(tick));
        let (mut flows, mut due) = (Vec::new(), next());
        self.say(exporter);
        while let Some(reopen) = self.exchange(&mut flows, demand, due) {
            if !flows.is_empty() {
                exporter.write(&flows, now())?;
            }
            if let Some(told) = reopen {
                exporter.reopen()?.map(&*told);
            }
            if due.is_some_and(|due| Instant::now() >= due) {
                exporter.tick(now())?;
                due = next();
            }
            self.say(exporter);
        }
        Ok(())
    }

    /// Notes what became of records so far.
    fn say(&self, exporter: &dyn Exporter) {
        let mut ledger = Ledger::new();
        exporter.counters(ledger.account(Stage::Export, &self.name));
        exporter.accounts(&mut ledger);
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = ledger;
    }

    /// Adds that, and what has come.
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

    /// Puts an empty list in the place of that which is to be written, or leaves it empty where only the time is `due`, or there is
    /// nothing before what is to go to something new; says whether something is. `None` once there is nothing more.
    fn exchange(&self, flows: &mut Vec<Flow>, demand: Demand, due: Option<Instant>) -> Option<Option<Told>> {
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
            // Times near the end of the clock cannot be waited for.
            let left = left.min(due).min(Duration::from_secs(3600));
            waiting = self.work.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut waiting.flows, flows);
        waiting.bytes = 0;
        waiting.since = None;
        self.room.notify_all();
        // What is complete in the end needs nothing behind it.
        let reopen = waiting.reopen.take().filter(|_| !waiting.ended);
        (!flows.is_empty() || reopen.is_some()).then_some(reopen)
    }
}

fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Bytes that a flow occupies.
fn weight(flow: &Flow) -> usize {
    let packets = flow.stats.as_ref().map_or(0, |stats| size_of_val(stats.packets.as_slice()));
    let history = flow.tcp.as_ref().map_or(0, |tcp| tcp.history.0.len());
    let names = flow.names.as_ref().map_or(0, |names| names.memory());
    size_of::<Flow>() + packets + history + names
}
