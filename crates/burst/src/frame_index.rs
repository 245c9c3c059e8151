//! A pick: one entry of an order of frames.

/// The name of one frame among the bursts that lanes present: the output of a merge, the input of a copy.
///
/// Four bytes, because a pick is written and read once per frame on the hottest path: the lane in bits 24 to 30, the
/// index of the frame in the lane's burst in the low 24 bits, and the late flag in bit 31.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct FrameIndex(u32);

impl FrameIndex {
    /// Maximum number of lanes.
    pub const MAX_LANES: usize = 1 << 7;
    /// Maximum number of frames of one lane's burst.
    pub const MAX_FRAMES: usize = 1 << INDEX_BITS;

    /// Returns the pick of frame `index` of `lane`; both below their limits.
    #[inline]
    pub fn new(lane: usize, index: usize) -> Self {
        debug_assert!(lane < FrameIndex::MAX_LANES && index < FrameIndex::MAX_FRAMES, "lane {lane}, frame {index}");
        FrameIndex((lane as u32) << INDEX_BITS | index as u32)
    }

    /// Returns the same pick, flagged late: older than a frame emitted before it.
    #[inline]
    pub fn late(self) -> Self {
        FrameIndex(self.0 | LATE)
    }

    /// Returns the lane.
    #[inline]
    pub fn lane(self) -> usize {
        ((self.0 & !LATE) >> INDEX_BITS) as usize
    }

    /// Returns the index of the frame in the lane's burst.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & (FrameIndex::MAX_FRAMES as u32 - 1)) as usize
    }

    /// Returns whether the frame is older than one emitted before it.
    #[inline]
    pub fn is_late(self) -> bool {
        self.0 & LATE != 0
    }
}

const INDEX_BITS: u32 = 24;
const LATE: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lane_index_and_late_round_trip() {
        for lane in [0, 1, FrameIndex::MAX_LANES - 1] {
            for index in [0, 1, FrameIndex::MAX_FRAMES - 1] {
                let pick = FrameIndex::new(lane, index);
                assert_eq!((pick.lane(), pick.index(), pick.is_late()), (lane, index, false));
                assert_eq!((pick.late().lane(), pick.late().index(), pick.late().is_late()), (lane, index, true));
            }
        }
    }
}
