//! One entry of an order: which frame of which lane comes next.

/// Names one frame among those that lanes show: the output of a merge, the input of a copy.
///
/// Four bytes, because a pick is written and read once a frame on the hottest path: the lane in bits 24 to
/// 30, the index of the frame in what the lane shows in the low 24 bits, and in bit 31 whether it is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Pick(u32);

impl Pick {
    /// Most lanes an order can name.
    pub const MAX_LANES: usize = 1 << 7;
    /// Most frames of one lane an order can name.
    pub const MAX_FRAMES: usize = 1 << INDEX_BITS;

    /// Frame `index` of `lane`; both below their limits.
    #[inline]
    pub fn new(lane: usize, index: usize) -> Self {
        debug_assert!(lane < Pick::MAX_LANES && index < Pick::MAX_FRAMES, "lane {lane}, frame {index}");
        Pick((lane as u32) << INDEX_BITS | index as u32)
    }

    /// The same frame, older than what was emitted before it.
    #[inline]
    pub fn late(self) -> Self {
        Pick(self.0 | LATE)
    }

    /// Which lane.
    #[inline]
    pub fn lane(self) -> usize {
        ((self.0 & !LATE) >> INDEX_BITS) as usize
    }

    /// Which of the frames that the lane shows.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & (Pick::MAX_FRAMES as u32 - 1)) as usize
    }

    /// Whether the frame is older than what was emitted before it.
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
    fn all_three_parts_come_back() {
        for lane in [0, 1, Pick::MAX_LANES - 1] {
            for index in [0, 1, Pick::MAX_FRAMES - 1] {
                let pick = Pick::new(lane, index);
                assert_eq!((pick.lane(), pick.index(), pick.is_late()), (lane, index, false));
                assert_eq!((pick.late().lane(), pick.late().index(), pick.late().is_late()), (lane, index, true));
            }
        }
    }
}
