//! Stopping a run, and watching it, from another thread.

use linerate_burst::SinkError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A request to stop, shared between a run and its controllers (a signal handler, a timer, a test).
#[derive(Clone, Debug, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    hurried: Arc<AtomicBool>,
}

impl Stop {
    /// Creates a request that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests the run to stop: it drains what has arrived, then ends.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Requests the run to stop without waiting for frames that are still to arrive or slow readers. Work in progress,
    /// such as files, is still finished.
    pub fn force(&self) {
        self.hurried.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Returns whether stopping was requested.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Returns whether the run must stop without waiting.
    pub fn is_forced(&self) -> bool {
        self.hurried.load(Ordering::Relaxed)
    }

    /// Returns the flag of the request, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }
}

/// A request to close output files and continue in new ones, shared between a run and its controllers.
#[derive(Clone)]
pub struct ReopenRequest {
    requested: Arc<AtomicBool>,
    report: Arc<dyn Fn(Result<String, SinkError>) + Send + Sync>,
}

impl ReopenRequest {
    /// Creates a request that is not set. The thread that writes an output calls `report` with
    /// its outcome.
    pub fn new(report: impl Fn(Result<String, SinkError>) + Send + Sync + 'static) -> Self {
        ReopenRequest { requested: Arc::default(), report: Arc::new(report) }
    }

    /// Requests new files, within about a tenth of a second.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Returns whether it was requested since the last call.
    pub(crate) fn take(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn report_outcome(&self, outcome: Result<String, SinkError>) {
        (self.report)(outcome);
    }
}

/// Progress of a run. The run updates it periodically and never waits for a reader, so that a slow screen cannot slow
/// the data path.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames passed to the outputs, or sent.
    pub frames: AtomicU64,
    /// Captured bytes of those frames.
    pub bytes: AtomicU64,
    /// Bytes of those frames on the wire, without FCS.
    pub wire_bytes: AtomicU64,
    /// Frames emitted late.
    pub late: AtomicU64,
    /// Frames lost, over all stages; updated about ten times a second.
    pub lost: AtomicU64,
}

impl Progress {
    /// Creates the progress of a run before its start.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn add(&self, frames: u64, bytes: u64, wire_bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wire_bytes.fetch_add(wire_bytes, Ordering::Relaxed);
    }
}

/// Locks shared state for an update, unless a reader holds it: a run never waits for readers. A reader that panics has
/// changed nothing.
pub(crate) fn unwatched<T>(shown: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match shown.try_lock() {
        Ok(shown) => Some(shown),
        Err(TryLockError::Poisoned(shown)) => Some(shown.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_state_never_blocks_and_survives_a_reader_panic() {
        let shown = Mutex::new(1);
        let looking = shown.lock().unwrap();
        assert!(unwatched(&shown).is_none());
        drop(looking);
        let died = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _looking = shown.lock();
                    panic!("reader");
                })
                .join()
        });
        assert!(died.is_err() && shown.is_poisoned());
        *unwatched(&shown).expect("no reader holds it") = 2;
        assert_eq!(unwatched(&shown).as_deref(), Some(&2));
    }
}
