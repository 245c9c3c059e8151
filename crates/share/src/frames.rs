//! The frames of one block that a reader shows: descs copied out once, checked, kept in private memory.
//!
//! Unsafe because frames are handed out as they lie in memory that another process writes.
//!
//! - With a writer that keeps to the protocol this is sound: it does not touch a committed frame as long as its block was not
//!   given back. Nor when it has put this reader out: it then leaves the first block alone that has not come back, until the
//!   reader has hung up; frames are shown of that one block, and [`crate::reader`] looks whether it is out between
//!   giving one back and looking at the next.
//! - A hostile writer can change the bytes of frames while they are looked at, and nothing else: where they lie was checked
//!   in private memory, and the mapping can be neither cut nor punched. To the language a `&[u8]` that changes is undefined
//!   behaviour; what comes of it is that two looks at a byte may differ. Hence rings of other users have to be trusted
//!   in so many words (`trust`): whoever does not copies the frames out first, by atomic loads.
#![allow(unsafe_code)]

use crate::layout::Shape;
use crate::mapping::Mapping;
use linerate_burst::{Burst, Desc, Flags, Layout, MAX_FRAME, Nanos, RECORD_HEADER, TAIL};
use std::sync::Arc;

/// Frames of one block, shown and not consumed.
#[derive(Debug)]
pub(crate) struct Frames {
    mapping: Arc<Mapping>,
    shape: Shape,
    slot: u32,
    /// Checked: each lies inside the block.
    descs: Vec<Desc>,
    /// How many of them are consumed.
    consumed: usize,
    /// The greatest time of a frame that was not flagged late.
    newest: Nanos,
    /// Descs left out because they cannot be right.
    bad: u64,
}

impl Frames {
    /// None yet, of an arena of this shape.
    ///
    /// # Panics
    /// If the arena is smaller than its shape.
    pub(crate) fn new(mapping: Arc<Mapping>, shape: Shape) -> Self {
        assert!(shape.bytes() <= mapping.bytes());
        Frames { mapping, shape, slot: 0, descs: Vec::new(), consumed: 0, newest: Nanos::ZERO, bad: 0 }
    }

    /// The frames, as a burst.
    #[inline]
    pub(crate) fn burst(&self) -> Burst<'_> {
        let base = self.mapping.at(self.shape.slot(self.slot), self.shape.layout.bytes());
        // SAFETY: every desc was checked to lie inside this block, with the bytes behind it, and belongs to this block
        // alone; the mapping lives as long as `self`. The block is given back only through `&mut` of whoever owns this
        // value, which clears it then; until then the writer leaves it alone (see above), evicted or not.
        unsafe { Burst::from_raw(base, &self.descs[self.consumed..]) }
    }

    /// Number of frames.
    pub(crate) fn len(&self) -> usize {
        self.descs.len() - self.consumed
    }

    /// The greatest time seen so far.
    pub(crate) fn newest(&self) -> Nanos {
        self.newest
    }

    /// Descs left out so far.
    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    /// Goes on with another block; what was shown is gone.
    ///
    /// # Panics
    /// If there is no such block.
    pub(crate) fn turn_to(&mut self, slot: u32) {
        assert!(slot < self.shape.slots);
        self.descs.clear();
        self.consumed = 0;
        self.slot = slot;
    }

    /// Copies descs `first..end` of the block, and leaves out each that cannot be right, say because it names an
    /// interface of which the first `interfaces` are none.
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

    /// The first `frames` are not needed any more.
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

/// Whether the frame lies among the records of a block, with its tail, and names an interface.
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
    fn only_frames_among_the_records_are_sound() {
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
