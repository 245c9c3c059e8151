//! What a reader that decides needs to know of the frames that it shows, and blocks that it keeps for verdicts to come.

use super::{End, Reader};
use crate::control::Control;
use crate::slots::Place;

impl Reader {
    /// Which block the shown frames are of, and which of its frames the first of them is; none where none is shown.
    pub(crate) fn place(&self) -> Option<Place> {
        let Place { slot, from } = *self.held.front()?;
        let shown = self.frames.len() as u32;
        (shown > 0).then(|| Place { slot, from: from - shown })
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// What is said of a frame of this block comes later.
    pub(crate) fn hold(&mut self, slot: u32) {
        self.unsaid[slot as usize] += 1;
    }

    /// Whether something is still to be said of a block.
    pub(crate) fn is_held(&self, slot: u32) -> bool {
        self.unsaid[slot as usize] > 0
    }

    /// It was said of one of them.
    pub(crate) fn said(&mut self, slot: u32) {
        self.unsaid[slot as usize] -= 1;
        if self.unsaid[slot as usize] == 0
            && std::mem::take(&mut self.put_aside[slot as usize])
            && let Err(end) = self.give_back(slot)
        {
            self.stop(end);
        }
    }

    /// What cannot be right was found by whoever uses this.
    pub(crate) fn break_off(&mut self, reason: &'static str) {
        self.stop(End::Broken(reason));
    }
}
