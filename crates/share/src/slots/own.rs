//! Blocks that the writer needs itself after it has filled them, and the reader that decides about their frames.

use super::{Slots, bit};

/// Blocks that a reader which decides may hold: lossy readers together have their half, and an eighth is left to go on with.
fn engine_quota(slots: u32) -> u32 {
    (slots - slots / 2).saturating_sub(slots / 8 + 1).max(1)
}

impl Slots {
    /// From now on each block is the writer's own too, until it releases it.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// The writer needs a block no more.
    pub(crate) fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if std::mem::take(&mut state.own) && state.holders == 0 && self.open != Some(slot) {
            self.free.push_back(slot);
        }
    }

    /// A reader comes that decides: it holds so many blocks and no more, whatever others hold.
    pub(crate) fn join_engine(&mut self, number: u32) {
        self.join(number, true, engine_quota(self.slots.len() as u32));
        self.engine |= bit(number);
    }

    /// The first frame of a block that a reader was shown, if it holds the block.
    pub(crate) fn from(&self, number: u32, slot: u32) -> Option<u32> {
        let holds = self.slots[slot as usize].holders & bit(number) != 0;
        self.readers[number as usize].as_ref().filter(|_| holds).map(|reader| reader.from[slot as usize])
    }
}
