//! Verdicts: one byte per frame in memory that the engine writes, and two counts per block that make them valid.
//!
//! `looked` is the number of frames of the block that the engine has examined, from the first one on: their bytes are
//! its verdicts, and those that are still [`UNDECIDED`] it holds. `later` counts the verdicts on held frames. Each
//! count is stored with release ordering after the bytes that it covers; the writer loads it, then copies each byte out
//! once and checks it. [`SETTLED`] is set by the writer: it no longer needs a verdict on that frame.
//!
//! `scripts/loom` compiles this file with loom's atomics.

use crate::atomics::{AtomicU8, AtomicU32, Ordering::*};

/// No verdict yet.
pub const UNDECIDED: u8 = 0xff;
/// No verdict is needed: set by the writer.
pub const SETTLED: u8 = 0xfe;

/// The memory of the verdicts on a block.
pub(crate) trait Area {
    /// Returns the count of examined frames.
    fn looked(&self) -> &AtomicU32;
    /// Returns the count of later verdicts.
    fn later(&self) -> &AtomicU32;
    /// Returns the verdict on a frame.
    fn byte(&self, frame: u32) -> &AtomicU8;
}

/// Stores the engine's verdict on a frame, visible with the next [`publish`] or [`publish_later`]. Answers stored
/// before it are visible to a side that sees it.
#[inline]
pub(crate) fn set_verdict(area: &impl Area, frame: u32, verdict: u8) {
    area.byte(frame).store(verdict, Release);
}

/// Publishes the number of examined frames of the block.
#[inline]
pub(crate) fn publish(area: &impl Area, looked: u32) {
    area.looked().store(looked, Release);
}

/// Publishes one more verdict on a held frame. The writer resets the count for each block.
#[inline]
pub(crate) fn publish_later(area: &impl Area) {
    let later = area.later().load(Relaxed).wrapping_add(1);
    area.later().store(later, Release);
}

/// Loads, for the writer, the numbers of examined frames and of later verdicts. The bytes that they cover are visible
/// to later loads.
#[inline]
pub(crate) fn progress(area: &impl Area) -> (u32, u32) {
    (area.looked().load(Acquire), area.later().load(Acquire))
}

/// Loads the verdict on a frame.
#[inline]
pub(crate) fn said(area: &impl Area, frame: u32) -> u8 {
    area.byte(frame).load(Acquire)
}
