//! Clock for timestamps in the journal.

use super::{now, up};
use std::time::Duration;

/// Clock that advances monotonically from the start of the run: clock changes do not affect it, and it includes
/// suspend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Start in ns since 1970, and in ns since boot.
    began: u64,
    since: u64,
}

impl Clock {
    /// Returns a clock that starts at the current time.
    pub(super) fn new() -> Self {
        Clock::at(now())
    }

    /// Returns a clock that starts at another time, in ns since 1970.
    pub(super) fn at(began: u64) -> Self {
        Clock { began, since: up() }
    }

    /// Returns ns since 1970.
    pub(super) fn now(&self) -> u64 {
        self.began.saturating_add(up().saturating_sub(self.since))
    }

    /// Returns the age of a time; `None` for a future time: the clock was set back between two runs.
    pub(super) fn age(&self, at: u64) -> Option<Duration> {
        self.now().checked_sub(at).map(Duration::from_nanos)
    }

    /// Returns whether a time is known to be more recent than `span` ago.
    pub(super) fn is_within(&self, at: u64, span: Duration) -> bool {
        self.age(at).is_some_and(|age| age < span)
    }
}
