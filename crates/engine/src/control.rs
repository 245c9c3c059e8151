//! Stopping a run, and watching it, from another thread.

use linerate_burst::SinkError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// A request to stop, shared between a run and whoever may end it (a signal handler, a timer, a test).
#[derive(Clone, Debug, Default)]
pub struct Stop {
    requested: Arc<AtomicBool>,
    hurried: Arc<AtomicBool>,
}

impl Stop {
    /// Not requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to stop: it drains what has arrived, then ends.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Asks it to stop, and to wait for nobody on the way: frames that are still to come, readers that are slow. What was
    /// begun, files among it, is finished all the same.
    pub fn hurry(&self) {
        self.hurried.store(true, Ordering::Relaxed);
        self.request();
    }

    /// Whether stopping was asked for.
    #[inline]
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::Relaxed)
    }

    /// Whether it is to wait for nobody any more.
    pub fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed)
    }

    /// The flag of the request, for a signal handler to set.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.requested)
    }
}

/// A request to end what is written and to go on in new files, shared between a run and whoever asks for it.
#[derive(Clone)]
pub struct Reopen {
    requested: Arc<AtomicBool>,
    told: Arc<dyn Fn(Result<String, SinkError>) + Send + Sync>,
}

impl Reopen {
    /// Not requested yet. `told` is called with what became of each output, by the thread that writes it.
    pub fn new(told: impl Fn(Result<String, SinkError>) + Send + Sync + 'static) -> Self {
        Reopen { requested: Arc::default(), told: Arc::new(told) }
    }

    /// Asks for it: within about a tenth of a second.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked for since the last time.
    pub(crate) fn take(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && self.requested.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, became: Result<String, SinkError>) {
        (self.told)(became);
    }
}

/// What a run has done so far. The run writes it now and then and never waits for a reader, so that a slow
/// screen cannot slow the data path.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames handed to the outputs, or sent.
    pub frames: AtomicU64,
    /// Captured bytes of those frames.
    pub bytes: AtomicU64,
    /// Bytes those frames had on the wire, without FCS.
    pub wire_bytes: AtomicU64,
    /// Frames emitted late.
    pub late: AtomicU64,
    /// Frames lost, over all stages; looked up about ten times a second.
    pub lost: AtomicU64,
}

impl Progress {
    /// Nothing done yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn add(&self, frames: u64, bytes: u64, wire_bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.wire_bytes.fetch_add(wire_bytes, Ordering::Relaxed);
    }
}

/// What a run shows to others, to be changed, unless somebody looks at it right now: a run waits for nobody. Whoever died over
/// it has changed nothing.
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
    fn what_is_shown_waits_for_nobody_and_outlives_whoever_looked() {
        let shown = Mutex::new(1);
        let looking = shown.lock().unwrap();
        assert!(unwatched(&shown).is_none());
        drop(looking);
        let died = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let _looking = shown.lock();
                    panic!("over what is shown");
                })
                .join()
        });
        assert!(died.is_err() && shown.is_poisoned());
        *unwatched(&shown).expect("nobody looks any more") = 2;
        assert_eq!(unwatched(&shown).as_deref(), Some(&2));
    }
}
