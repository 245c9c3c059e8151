//! What time it is, for what is noted on the disk.

use super::{now, up};
use std::time::Duration;

/// A clock that goes on by itself from the time that a run began at: nobody sets it meanwhile, and it goes on while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// ns since 1970, and since the machine started.
    began: u64,
    since: u64,
}

impl Clock {
    /// One that begins now.
    pub(super) fn new() -> Self {
        Clock::at(now())
    }

    /// One that begins at another time, in ns since 1970.
    pub(super) fn at(began: u64) -> Self {
        Clock { began, since: up() }
    }

    /// ns since 1970.
    pub(super) fn now(&self) -> u64 {
        self.began.saturating_add(up().saturating_sub(self.since))
    }

    /// How long ago a time was; `None`: nobody knows, as it has not come yet: somebody has set the clock back between two runs.
    pub(super) fn age(&self, at: u64) -> Option<Duration> {
        self.now().checked_sub(at).map(Duration::from_nanos)
    }

    /// Whether a time was less than so long ago, for all that is known.
    pub(super) fn is_within(&self, at: u64, span: Duration) -> bool {
        self.age(at).is_some_and(|age| age < span)
    }
}
