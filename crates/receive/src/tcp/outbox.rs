//! Frames on their way out, bounded in number.

use super::template::{MOST_FRAME, Said, Template};
use linerate_burst::{Block, Burst, Desc, Nanos};

/// The most frames that wait.
pub(super) const MOST_FRAMES: usize = 1024;
const MOST_BYTES: usize = 512 << 10;
/// Of these, what answers to strangers may take: a flood of them leaves room for those who are known.
const FOR_STRANGERS: usize = MOST_FRAMES / 2;

/// Frames for the port.
#[derive(Debug)]
pub(super) struct Outbox {
    block: Block,
    frame: [u8; MOST_FRAME],
    /// Whose each frame is: the number of a connection.
    owners: Vec<Option<u32>>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let owners = Vec::with_capacity(MOST_FRAMES);
        Outbox { block: Block::new(MOST_BYTES, MOST_FRAMES), frame: [0; MOST_FRAME], owners }
    }

    /// Puts a frame of a connection in, or of a stranger (`None`); false where there is no room.
    pub(super) fn put(&mut self, template: &Template, said: &Said, owner: Option<u32>, now: Nanos) -> bool {
        if owner.is_none() && self.block.len() >= FOR_STRANGERS {
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

    /// Whether there is no room for one more.
    pub(super) fn is_full(&self) -> bool {
        self.block.len() >= MOST_FRAMES
    }

    /// All that waits.
    pub(super) fn frames(&self) -> Burst<'_> {
        self.block.burst()
    }

    /// Nothing waits any more; whose the last `unsent` frames were.
    pub(super) fn clear(&mut self, unsent: usize) -> impl Iterator<Item = Option<u32>> + '_ {
        self.block.clear();
        let first = self.owners.len().saturating_sub(unsent);
        self.owners.drain(..).skip(first)
    }
}
