//! Policies for overlapping segments.

use std::ops::Range;

/// Policy for overlapping segments that differ, as long as neither was output. Hosts differ in this, so a sender can
/// present one stream to the host and another to the observer (an evasion technique).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// The first ones received.
    #[default]
    First,
    /// The last ones received.
    Last,
    /// Those of the segment that starts earlier; with equal starts, the first: BSD, macOS, and Windows before Vista.
    Bsd,
    /// As BSD, but with equal starts those of the longer segment; the first if lengths are equal.
    Linux,
}

impl Overlap {
    /// All policies by name.
    pub const NAMES: [(&'static str, Overlap); 4] =
        [("first", Overlap::First), ("last", Overlap::Last), ("bsd", Overlap::Bsd), ("linux", Overlap::Linux)];

    /// Returns whether bytes of a new segment replace those of a stored one.
    pub(super) fn prefers_new(self, new: &Range<u64>, old: &Range<u64>) -> bool {
        match self {
            Overlap::First => false,
            Overlap::Last => true,
            Overlap::Bsd => new.start < old.start,
            Overlap::Linux => new.start < old.start || new.start == old.start && new.end > old.end,
        }
    }
}
