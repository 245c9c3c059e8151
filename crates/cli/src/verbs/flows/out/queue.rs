//! Flows on their way to a thread of their own.
//!
//! There is no room without bound: who meters waits while the disk is slower, and what a live port then cannot hold is
//! counted there.

use super::place::Place;
use linerate_engine::{Stop, survive};
use linerate_meter::Flow;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most that waits, and the most that is written at a time: in bytes of memory, and in flows. So many are a row group
/// of Parquet: more would be a group of their own, and no faster to write.
pub(super) const MOST: usize = 256 << 20;
pub(super) const MOST_FLOWS: usize = 1 << 17;

/// When flows are written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// As soon as they occupy so many bytes.
    pub bytes: usize,
    /// As soon as the first of them has waited so long.
    pub age: Duration,
}

/// What became of all flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records in files that are complete, or handed to a stream.
    pub records: u64,
    /// Complete files.
    pub files: u64,
    /// Records in no file, as writing failed.
    pub lost: u64,
}

/// Takes flows; another thread writes them.
pub(in super::super) struct Queue {
    shared: Arc<Shared>,
    thread: JoinHandle<(Place, io::Result<()>)>,
    taken: u64,
    demand: Demand,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something to write.
    work: Condvar,
    /// There is room again.
    room: Condvar,
}

#[derive(Default)]
struct Waiting {
    flows: Vec<Flow>,
    bytes: usize,
    /// When the first of them came.
    since: Option<Instant>,
    /// No more will come.
    ended: bool,
    /// Nobody writes any more.
    gone: bool,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.bytes >= MOST || self.flows.len() >= MOST_FLOWS
    }

    fn is_enough(&self, demand: Demand) -> bool {
        self.bytes >= demand.bytes || self.is_full()
    }
}

/// Says that nobody writes any more, also where a panic ends the thread.
struct Gone<'a>(&'a Shared);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.lock().gone = true;
        self.0.room.notify_all();
    }
}

impl Queue {
    /// Starts the thread, which asks for a stop when it cannot write.
    ///
    /// # Errors
    /// No thread is to be had, or the place cannot be written to.
    pub fn start(mut place: Place, stop: Stop) -> io::Result<Self> {
        if let Err(error) = place.check() {
            place.abandon();
            return Err(error);
        }
        let shared = Arc::new(Shared::default());
        let demand = place.demand();
        let theirs = Arc::clone(&shared);
        let write = move || {
            let gone = Gone(&theirs);
            let writing = || gone.0.write_all(&mut place, demand);
            let result = survive(writing).unwrap_or_else(|died| Err(io::Error::other(died)));
            if result.is_err() {
                stop.request();
            }
            drop(gone);
            (place, result)
        };
        let thread = std::thread::Builder::new().name("linerate-records".into()).spawn(write)?;
        Ok(Queue { shared, thread, taken: 0, demand })
    }

    /// Takes one, and waits for room if there is none.
    pub fn take(&mut self, flow: &Flow) {
        self.taken += 1;
        let mut waiting = self.shared.lock();
        while waiting.is_full() && !waiting.gone {
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

    /// Waits until all is written; a reader that has gone is no failure. If the run failed before there was any record,
    /// what was there before stays.
    pub fn finish(self, has_failed: bool) -> (Written, io::Result<()>) {
        self.shared.lock().ended = true;
        self.shared.work.notify_one();
        let (place, result) = match self.thread.join() {
            Ok(end) => end,
            // What can panic there is survived there.
            Err(panic) => std::panic::resume_unwind(panic),
        };
        if has_failed && self.taken == 0 {
            place.abandon();
            return (Written { records: 0, files: 0, lost: 0 }, result);
        }
        let (mut written, ended) = place.finish(result.is_ok());
        written.lost = self.taken - written.records;
        match result.and(ended) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => (written, Ok(())),
            result => (written, result.map_err(|error| told(&error, &written))),
        }
    }
}

/// The error, and what it costs.
fn told(error: &io::Error, written: &Written) -> io::Error {
    let Written { records, files, lost } = written;
    io::Error::new(
        error.kind(),
        format!("{error}; {lost} records are lost, {records} are written, {files} files are complete"),
    )
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self, place: &mut Place, demand: Demand) -> io::Result<()> {
        let mut flows = Vec::new();
        while self.exchange(&mut flows, demand) {
            place.write(&flows)?;
        }
        Ok(())
    }

    /// Puts an empty list in the place of that which is to be written; false once there is nothing more.
    fn exchange(&self, flows: &mut Vec<Flow>, demand: Demand) -> bool {
        flows.clear();
        let mut waiting = self.lock();
        while !waiting.ended && !waiting.is_enough(demand) {
            let left = waiting.since.map_or(Duration::MAX, |since| demand.age.saturating_sub(since.elapsed()));
            if left.is_zero() {
                break;
            }
            // Times near the end of the clock cannot be waited for.
            let left = left.min(Duration::from_secs(3600));
            waiting = self.work.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut waiting.flows, flows);
        waiting.bytes = 0;
        waiting.since = None;
        self.room.notify_all();
        !flows.is_empty()
    }
}

/// Bytes that a flow occupies.
fn weight(flow: &Flow) -> usize {
    let packets = flow.stats.as_ref().map_or(0, |stats| size_of_val(stats.packets.as_slice()));
    let history = flow.tcp.as_ref().map_or(0, |tcp| tcp.history.0.len());
    size_of::<Flow>() + packets + history
}
