//! Support for an engine: the positions of presented frames, and blocks held until their verdicts are given.

use super::{End, Reader};
use crate::control::Control;
use crate::slots::BlockPosition;

impl Reader {
    /// Returns the block of the presented frames, and the index of the first one; `None` if no frame is presented.
    pub(crate) fn place(&self) -> Option<BlockPosition> {
        let BlockPosition { slot, from } = *self.held.front()?;
        let shown = self.frames.len() as u32;
        (shown > 0).then(|| BlockPosition { slot, from: from - shown })
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// Holds a frame of this block: its verdict follows later.
    pub(crate) fn hold(&mut self, slot: u32) {
        self.undecided[slot as usize] += 1;
    }

    /// Returns whether a frame of the block is held.
    pub(crate) fn is_held(&self, slot: u32) -> bool {
        self.undecided[slot as usize] > 0
    }

    /// Releases a held frame of the block, whose verdict was given.
    pub(crate) fn said(&mut self, slot: u32) {
        self.undecided[slot as usize] -= 1;
        if self.undecided[slot as usize] == 0
            && std::mem::take(&mut self.consumed_blocks[slot as usize])
            && let Err(end) = self.return_slot(slot)
        {
            self.stop(end);
        }
    }

    /// Ends the stream because of invalid data that the caller found.
    pub(crate) fn break_off(&mut self, reason: &'static str) {
        self.stop(End::Broken(reason));
    }
}
