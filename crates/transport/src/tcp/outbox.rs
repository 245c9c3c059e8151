//! Bounded queue of frames to send.

use super::template::{MOST_FRAME, SegmentFields, Template};
use linerate_burst::{Block, Burst, Desc, Nanos};

pub(super) const MOST_FRAMES: usize = 1024;
const MOST_BYTES: usize = 512 << 10;
/// Maximum share of answers to unknown peers, so that a flood leaves room for connections.
const FOR_UNKNOWN: usize = MOST_FRAMES / 2;

#[derive(Debug)]
pub(super) struct Outbox {
    block: Block,
    frame: [u8; MOST_FRAME],
    /// Connection of each frame.
    owners: Vec<Option<u32>>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let owners = Vec::with_capacity(MOST_FRAMES);
        Outbox { block: Block::new(MOST_BYTES, MOST_FRAMES), frame: [0; MOST_FRAME], owners }
    }

    /// Adds a frame of a connection, or of an unknown peer (`None`). Returns false if the queue is full.
    pub(super) fn put(&mut self, template: &Template, said: &SegmentFields, owner: Option<u32>, now: Nanos) -> bool {
        if owner.is_none() && self.block.len() >= FOR_UNKNOWN {
            return false;
        }
        let length = template.write(said, &mut self.frame);
        let desc = Desc::new(now, 0, length as u32);
        let is_in = self.block.push(&desc, &self.frame[..length]);
        if is_in {
            self.owners.push(owner);
        }
        is_in
    }

    pub(super) fn is_full(&self) -> bool {
        self.block.len() >= MOST_FRAMES
    }

    pub(super) fn frames(&self) -> Burst<'_> {
        self.block.burst()
    }

    /// Empties the queue; returns the owners of the last `unsent` frames.
    pub(super) fn clear(&mut self, unsent: usize) -> impl Iterator<Item = Option<u32>> + '_ {
        self.block.clear();
        let first = self.owners.len().saturating_sub(unsent);
        self.owners.drain(..).skip(first)
    }
}
