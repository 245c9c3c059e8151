//! Fate of frames.

use super::super::policy::FailMode;

/// Position of a frame: its block, counted from the first of the run, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FramePosition {
    pub block: u64,
    pub frame: u32,
}

/// Reason why the policy was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyReason {
    /// No engine was attached, or it detached.
    Death,
    /// The engine did not inspect the frame in time, or was not shown it.
    Overload,
    /// The engine held the frame for too long, or too many.
    Held,
}

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Passed,
    Replaced,
    Blocked,
    Policy(FailMode, PolicyReason),
    /// The frame cannot be sent, whatever the verdict.
    Unfit,
}

impl Fate {
    pub(crate) fn is_sent(self) -> bool {
        matches!(self, Fate::Passed | Fate::Replaced | Fate::Policy(FailMode::Open, _))
    }
}
