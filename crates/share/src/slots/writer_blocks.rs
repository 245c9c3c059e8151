//! Blocks that the writer keeps for itself after filling them, and the engine.

use super::{Slots, bit};

/// Returns the maximum number of blocks of an engine: lossy readers have their half, and an eighth is left to continue
/// with.
fn engine_quota(slots: u32) -> u32 {
    (slots - slots / 2).saturating_sub(slots / 8 + 1).max(1)
}

impl Slots {
    /// Makes the writer a holder of each block from now on, until it releases it.
    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }

    /// Releases the writer's hold on a block.
    pub(crate) fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        if std::mem::take(&mut state.own) && state.holders == 0 && self.open != Some(slot) {
            self.free.push_back(slot);
        }
    }

    /// Attaches an engine: its own quota applies, whatever other readers hold.
    pub(crate) fn join_engine(&mut self, number: u32) {
        self.join(number, true, engine_quota(self.slots.len() as u32));
        self.engine |= bit(number);
    }

    /// Returns the first frame of a block that a reader was shown, if it holds the block.
    pub(crate) fn from(&self, number: u32, slot: u32) -> Option<u32> {
        let holds = self.slots[slot as usize].holders & bit(number) != 0;
        self.readers[number as usize].as_ref().filter(|_| holds).map(|reader| reader.from[slot as usize])
    }
}
