//! What becomes of frames.

use super::super::policy::Fail;

/// A frame: its block, counted from the first of the run, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub block: u64,
    pub frame: u32,
}

/// Why the policy was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// No engine was there, or it went.
    Death,
    /// It has not looked at the frame in time, or was not even shown it.
    Overload,
    /// It held the frame for too long, or too many.
    Held,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Passed,
    Replaced,
    Blocked,
    Policy(Fail, Why),
    /// It cannot be sent on whatever is said of it.
    Unfit,
}

impl Fate {
    /// Whether it is sent.
    pub(crate) fn is_sent(self) -> bool {
        matches!(self, Fate::Passed | Fate::Replaced | Fate::Policy(Fail::Open, _))
    }
}
