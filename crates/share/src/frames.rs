//! The frames of one block that a reader presents: descs copied out once, checked, kept in private memory.
//!
//! Unsafe because frames are borrowed from memory that another process writes.
//!
//! - With a writer that follows the protocol this is sound: it does not touch a committed frame as long as its block
//!   was not returned. Nor does it after evicting this reader: it then leaves the first block that was not returned
//!   untouched until the reader has closed its socket; only frames of that block are presented, and [`crate::reader`]
//!   checks for eviction between returning a block and looking at the next.
//! - A hostile writer can change the bytes of frames while they are read, and nothing else: their positions were
//!   checked in private memory, and the mapping can be neither truncated nor punched. In the language a `&[u8]` that
//!   changes is undefined behaviour; in effect two reads of a byte may differ. Hence rings of other users must be
//!   trusted explicitly (`trust`): a reader without trust would have to copy the frames out first, by atomic loads.
#![allow(unsafe_code)]

use crate::layout::Shape;
use crate::mapping::Mapping;
use linerate_burst::{Burst, Desc, Flags, Layout, MAX_FRAME, Nanos, RECORD_HEADER, TAIL};
use std::sync::Arc;

/// Frames of one block, presented and not yet consumed.
#[derive(Debug)]
pub(crate) struct Frames {
    mapping: Arc<Mapping>,
    shape: Shape,
    slot: u32,
    /// Checked: each lies inside the block.
    descs: Vec<Desc>,
    /// Number of consumed descs.
    consumed: usize,
    /// Greatest time of a frame that was not flagged late.
    newest: Nanos,
    /// Descs omitted because they are invalid.
    bad: u64,
}

impl Frames {
    /// Returns an empty set of frames, for an arena of this shape.
    ///
    /// # Panics
    /// If the arena is smaller than its shape.
    pub(crate) fn new(mapping: Arc<Mapping>, shape: Shape) -> Self {
        assert!(shape.bytes() <= mapping.bytes());
        Frames { mapping, shape, slot: 0, descs: Vec::new(), consumed: 0, newest: Nanos::ZERO, bad: 0 }
    }

    /// Returns the frames as a burst.
    #[inline]
    pub(crate) fn burst(&self) -> Burst<'_> {
        let base = self.mapping.at(self.shape.slot(self.slot), self.shape.layout.bytes());
        // SAFETY: every desc was checked to lie inside this block, with the bytes after it, and belongs only to this
        // block; the mapping lives as long as `self`. The block is returned only through `&mut` of the owner of this
        // value, which clears it then; until then the writer leaves it untouched (see above), evicted or not.
        unsafe { Burst::from_raw(base, &self.descs[self.consumed..]) }
    }

    pub(crate) fn len(&self) -> usize {
        self.descs.len() - self.consumed
    }

    /// Returns the greatest time seen so far.
    pub(crate) fn newest(&self) -> Nanos {
        self.newest
    }

    /// Returns the number of descs omitted so far.
    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    /// Continues with another block; the frames presented before are discarded.
    ///
    /// # Panics
    /// If the block does not exist.
    pub(crate) fn turn_to(&mut self, slot: u32) {
        assert!(slot < self.shape.slots);
        self.descs.clear();
        self.consumed = 0;
        self.slot = slot;
    }

    /// Copies descs `first..end` of the block, and omits invalid ones, for example with an interface that is not among
    /// the first `interfaces`.
    ///
    /// # Panics
    /// If the block has fewer.
    pub(crate) fn copy(&mut self, first: u32, end: u32, interfaces: usize) {
        let layout = &self.shape.layout;
        assert!(first <= end && end as usize <= layout.frames());
        if self.consumed > self.descs.len() / 2 {
            self.descs.drain(..self.consumed);
            self.consumed = 0;
        }
        let offset = self.shape.slot(self.slot) + Layout::DESCS + first as usize * size_of::<Desc>();
        let count = (end - first) as usize;
        self.descs.reserve(count);
        for desc in self.mapping.load_descs(offset, count) {
            if is_sound(&desc, layout, interfaces) {
                if !desc.flags.contains(Flags::LATE) {
                    self.newest = self.newest.max(desc.time);
                }
                self.descs.push(desc);
            } else {
                self.bad += 1;
            }
        }
    }

    /// Marks the first `frames` as consumed.
    ///
    /// # Panics
    /// If there are fewer.
    pub(crate) fn consume(&mut self, frames: usize) {
        assert!(frames <= self.len(), "{frames} frames consumed, {} shown", self.len());
        self.consumed += frames;
        if self.consumed == self.descs.len() {
            self.descs.clear();
            self.consumed = 0;
        }
    }
}

/// Returns whether the frame lies among the records of a block, with its tail, and has a known interface.
#[inline]
fn is_sound(desc: &Desc, layout: &Layout, interfaces: usize) -> bool {
    let (offset, stored) = (desc.offset as usize, desc.stored() as usize);
    stored <= MAX_FRAME
        && offset >= layout.body() + RECORD_HEADER
        && offset + stored + TAIL <= layout.bytes()
        && usize::from(desc.interface) < interfaces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_within_the_records_are_valid() {
        let layout = Layout::slot(1 << 20).unwrap();
        let first = (layout.body() + RECORD_HEADER) as u32;
        let last = (layout.bytes() - TAIL) as u32;
        let sound = |offset, captured, interface| {
            is_sound(&Desc { interface, ..Desc::new(Nanos(1), offset, captured) }, &layout, 2)
        };
        assert!(sound(first, 60, 0) && sound(first, MAX_FRAME as u32, 1) && sound(last, 0, 0));
        assert!(sound(last - 60, 60, 1));
        assert!(!sound(first - 1, 60, 0) && !sound(0, 0, 0) && !sound(first, 60, 2));
        assert!(!sound(first, MAX_FRAME as u32 + 1, 0) && !sound(last - 60, 61, 0) && !sound(last + 1, 0, 0));
        assert!(!sound(u32::MAX, u32::MAX, 0) && !sound(first, u32::MAX, 0));
    }
}
