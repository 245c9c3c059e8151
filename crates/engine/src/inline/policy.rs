//! Policy for frames without a verdict.

use std::time::Duration;

/// Action on frames without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Pass them (fail-open).
    Open,
    /// Drop them (fail-closed).
    Closed,
}

/// Frames that wait for a held one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOrder {
    /// Those of its flow, and fragments between its two addresses, in the same direction.
    ByFlow,
    /// All in the same direction.
    ByArrival,
}

/// Policy for missing verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Action without an engine, and on pending frames when it detaches.
    pub on_death: FailMode,
    /// Action on frames for which the engine is too slow.
    pub on_overload: FailMode,
    /// Longest time for which the engine may hold an inspected frame.
    pub hold: Duration,
    /// Longest time for which a frame may wait for inspection.
    pub budget: Duration,
    /// Order that is preserved.
    pub release: ReleaseOrder,
    /// Maximum number of frames per second that the engine may inject, in both directions together.
    pub inject_limit: u32,
}

impl Default for Policy {
    /// Returns fail-closed for both; 1.1 s, 50 ms; by flow; 10,000 injected frames per second.
    fn default() -> Self {
        Policy {
            on_death: FailMode::Closed,
            on_overload: FailMode::Closed,
            hold: Duration::from_millis(1100),
            budget: Duration::from_millis(50),
            release: ReleaseOrder::ByFlow,
            inject_limit: 10_000,
        }
    }
}
