//! What the user says beforehand about frames whose verdict does not come.

use std::time::Duration;

/// What becomes of frames without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fail {
    /// They pass.
    Open,
    /// They are dropped.
    Closed,
}

/// Which frames wait behind one that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Those of its flow, and fragments between its two addresses, on the same way.
    ByFlow,
    /// All on the same way.
    ByArrival,
}

/// What happens when verdicts do not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// While no engine is there, and to frames under way when it goes.
    pub on_death: Fail,
    /// To frames that it is too slow for.
    pub on_overload: Fail,
    /// How long it may hold a frame that it has looked at.
    pub hold: Duration,
    /// How long a frame may wait to be looked at.
    pub budget: Duration,
    /// The order that is kept.
    pub release: Release,
    /// How many frames of its own the engine may have sent in a second, both ways together.
    pub inject_limit: u32,
}

impl Default for Policy {
    /// Fail closed both times; 1.1 s, 50 ms; by flow; 10,000 frames of its own a second.
    fn default() -> Self {
        Policy {
            on_death: Fail::Closed,
            on_overload: Fail::Closed,
            hold: Duration::from_millis(1100),
            budget: Duration::from_millis(50),
            release: Release::ByFlow,
            inject_limit: 10_000,
        }
    }
}
