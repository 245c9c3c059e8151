//! Which bytes count where two segments bring different ones.

use std::ops::Range;

/// Which bytes count where two segments bring different ones for the same place, as long as neither was handed on: hosts differ in
/// this, and whoever knows that can show one stream to a host and another to who looks on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// Those that came first.
    #[default]
    First,
    /// Those that came last.
    Last,
    /// Those of the segment that begins earlier; of two that begin together, the first: BSD, macOS, and Windows before Vista.
    Bsd,
    /// As BSD, but of two that begin together the longer one, the first if they are alike.
    Linux,
}

impl Overlap {
    /// Each with its name.
    pub const NAMES: [(&'static str, Overlap); 4] =
        [("first", Overlap::First), ("last", Overlap::Last), ("bsd", Overlap::Bsd), ("linux", Overlap::Linux)];

    /// Whether bytes of a segment that comes now count rather than those of one that is there.
    pub(super) fn prefers_new(self, new: &Range<u64>, old: &Range<u64>) -> bool {
        match self {
            Overlap::First => false,
            Overlap::Last => true,
            Overlap::Bsd => new.start < old.start,
            Overlap::Linux => new.start < old.start || new.start == old.start && new.end > old.end,
        }
    }
}
