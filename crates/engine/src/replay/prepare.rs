//! Preparation of recorded frames: selected, padded, rewritten, each with its transmit queue.

use super::Edits;
use linerate_burst::{Block, Burst, Desc, Flags, MAX_FRAME, block::RECORD_HEADER};
use linerate_generate::{Rewriter, Side, Sides, Split};
use linerate_headers::{Link, flow};

/// Bytes of frames in a batch.
const BATCH_BYTES: usize = 4 << 20;
/// Least size of a frame in it: one of Ethernet's minimum size.
const LEAST: usize = RECORD_HEADER + 60;

/// Frames that are ready to be sent.
pub(super) struct Batch {
    pub block: Block,
    /// Transmit queue of each; empty if there is only one.
    pub queues: Vec<u16>,
    /// True for the last one of a pass over the recording.
    pub ends_pass: bool,
    pub tally: EditCounts,
}

/// Counts of frames that are not sent as recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EditCounts {
    /// Dropped because they were truncated.
    pub truncated: u64,
    /// Padded with zeros because they were truncated.
    pub padded: u64,
    /// Changed by rewriting.
    pub rewritten: u64,
}

impl Batch {
    pub(super) fn new() -> Self {
        let block = Block::new(BATCH_BYTES, BATCH_BYTES / LEAST);
        Batch { block, queues: Vec::new(), ends_pass: false, tally: EditCounts::default() }
    }

    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.queues.clear();
        (self.ends_pass, self.tally) = (false, EditCounts::default());
    }

    /// Returns whether it contains neither frames nor the end of a pass.
    pub(super) fn is_empty(&self) -> bool {
        self.block.is_empty() && !self.ends_pass && self.tally == EditCounts::default()
    }

    /// Returns the memory that its frames take, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let frames = self.block.burst();
        frames.bytes() + (frames.len() * (RECORD_HEADER + size_of::<Desc>())) as u64
    }

    pub(super) fn queue(&self, index: usize) -> usize {
        self.queues.get(index).copied().unwrap_or(0).into()
    }
}

/// Prepares frames.
pub(super) struct FramePreparer {
    /// True if frames are kept as recorded, to be prepared later.
    keep: bool,
    split: Split,
    pad: bool,
    rewriter: Option<Rewriter>,
    sides: Option<Sides>,
    /// Number of queues of each port; indices count through all of them.
    queues: Vec<u16>,
    /// Buffer for the current frame.
    frame: Vec<u8>,
}

impl FramePreparer {
    pub(super) fn new(edits: &Edits, queues: Vec<u16>) -> Self {
        let rewriting = &edits.rewriting;
        FramePreparer {
            keep: false,
            split: edits.split,
            pad: edits.pad,
            rewriter: (!rewriting.is_identity()).then(|| Rewriter::new(rewriting.clone())),
            sides: edits.split_by.clone().filter(|_| queues.len() > 1).map(Sides::new),
            queues,
            frame: Vec::with_capacity(MAX_FRAME),
        }
    }

    /// Creates one that keeps frames as recorded.
    pub(super) fn keeping() -> Self {
        FramePreparer { keep: true, ..FramePreparer::new(&Edits::default(), Vec::new()) }
    }

    /// Starts a pass over the recording: decisions about flows are the same in each.
    pub(super) fn start_pass(&mut self) {
        if let Some(sides) = &mut self.sides {
            sides.clear();
        }
    }

    /// Adds frames of pass `turn` to a batch; returns the number done with, fewer if the batch is full.
    pub(super) fn put(&mut self, burst: Burst<'_>, turn: u64, batch: &mut Batch) -> usize {
        let full = burst.iter().position(|(desc, frame)| !self.put_one(desc, frame, turn, batch));
        full.unwrap_or(burst.len())
    }

    fn put_one(&mut self, desc: &Desc, recorded: &[u8], turn: u64, batch: &mut Batch) -> bool {
        if self.keep {
            return batch.block.push(desc, recorded);
        }
        if self.split != Split::WHOLE && !self.split.holds(recorded) {
            return true;
        }
        let padded = desc.is_truncated();
        if padded && (!self.pad || desc.wire as usize > MAX_FRAME) {
            batch.tally.truncated += 1;
            return true;
        }
        let (mut frame, mut is_rewritten) = (recorded, false);
        if padded || self.rewriter.is_some() {
            self.frame.clear();
            self.frame.extend_from_slice(recorded);
            let length = recorded.len().max(desc.wire as usize * usize::from(padded));
            self.frame.resize(length, 0);
            if let Some(rewriter) = &mut self.rewriter {
                rewriter.rewrite(&mut self.frame, turn, false);
                is_rewritten = self.frame.len() != length || !self.frame.starts_with(recorded);
            }
            // An added tag may exceed the maximum size.
            self.frame.truncate(MAX_FRAME);
            frame = &self.frame;
        }
        let length = frame.len() as u32;
        if !batch
            .block
            .push(&Desc { captured: length, wire: length, flags: desc.flags.without(Flags::FCS), ..*desc }, frame)
        {
            return false;
        }
        batch.tally.padded += u64::from(padded);
        batch.tally.rewritten += u64::from(is_rewritten);
        if self.queues.iter().sum::<u16>() > 1 {
            batch.queues.push(self.queue(recorded));
        }
        true
    }

    /// Returns the port by the side that sent the frame, and the queue by its flow, so that each flow stays in order.
    fn queue(&mut self, recorded: &[u8]) -> u16 {
        let side = self.sides.as_mut().map_or(Side::Client, |sides| sides.side(recorded));
        let (first, queues) = match (side, &self.queues[..]) {
            (Side::Server, [clients, servers]) => (*clients, *servers),
            (_, queues) => (0, queues.first().copied().unwrap_or(1)),
        };
        let hash = flow::locate(Link::Ethernet, recorded).hash;
        first + flow::shard(hash, queues.into()) as u16
    }
}
