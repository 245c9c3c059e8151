//! Verdicts: a byte a frame in memory that the deciding reader writes, and two counts a block that say what is valid of it.
//!
//! `looked` is how many frames of the block the reader has looked at, from the first one on: their bytes are its verdicts, and those
//! that still say [`UNDECIDED`] it holds. `later` counts the verdicts on such frames. Each is stored with release behind the bytes
//! it speaks of; the writer loads it, then copies each byte out once and checks it. [`SETTLED`] is the writer's: nobody waits for
//! a verdict on that frame any more.
//!
//! `scripts/loom` has this very file made of loom's atomics.

use crate::atomics::{AtomicU8, AtomicU32, Ordering::*};

/// No verdict yet.
pub const UNDECIDED: u8 = 0xff;
/// No verdict is wanted, says the writer.
pub const SETTLED: u8 = 0xfe;

/// Where the verdicts on a block lie.
pub(crate) trait Area {
    /// Frames that were looked at.
    fn looked(&self) -> &AtomicU32;
    /// Verdicts given later.
    fn later(&self) -> &AtomicU32;
    /// The verdict on a frame.
    fn byte(&self, frame: u32) -> &AtomicU8;
}

/// The reader: what it says of a frame, to be seen with the next [`publish`] or [`publish_later`]. Answers in front of it are seen by
/// who sees this.
#[inline]
pub(crate) fn say(area: &impl Area, frame: u32, verdict: u8) {
    area.byte(frame).store(verdict, Release);
}

/// The reader has looked at so many frames of the block.
#[inline]
pub(crate) fn publish(area: &impl Area, looked: u32) {
    area.looked().store(looked, Release);
}

/// The reader has said what becomes of a frame that it held. The writer begins to count with each block.
#[inline]
pub(crate) fn publish_later(area: &impl Area) {
    let later = area.later().load(Relaxed).wrapping_add(1);
    area.later().store(later, Release);
}

/// The writer: how many frames were looked at, and how many verdicts came later. What they speak of is seen by loads behind this.
#[inline]
pub(crate) fn progress(area: &impl Area) -> (u32, u32) {
    (area.looked().load(Acquire), area.later().load(Acquire))
}

/// What stands there of a frame.
#[inline]
pub(crate) fn said(area: &impl Area, frame: u32) -> u8 {
    area.byte(frame).load(Acquire)
}
