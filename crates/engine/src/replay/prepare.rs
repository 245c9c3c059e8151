//! Recorded frames made ready: passed over, padded, rewritten, each with the queue it leaves by.

use super::Edits;
use linerate_burst::{Block, Burst, Desc, Flags, MAX_FRAME, block::RECORD_HEADER};
use linerate_generate::{Rewriter, Side, Sides, Split};
use linerate_wire::{Link, flow};

/// Bytes of frames that are handed on together.
const BATCH_BYTES: usize = 4 << 20;
/// The least a frame takes there: one of Ethernet's least size.
const LEAST: usize = RECORD_HEADER + 60;

/// Frames that are ready to be sent.
pub(super) struct Batch {
    pub block: Block,
    /// By which queue each leaves; empty where there is one queue.
    pub queues: Vec<u16>,
    /// The last one of a pass over the recording.
    pub ends_pass: bool,
    pub tally: Tally,
}

/// What became of frames that are not sent as they were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Left out because bytes of them are missing.
    pub truncated: u64,
    /// Padded with zeros because bytes of them were missing.
    pub padded: u64,
}

impl Batch {
    pub(super) fn new() -> Self {
        let block = Block::new(BATCH_BYTES, BATCH_BYTES / LEAST);
        Batch { block, queues: Vec::new(), ends_pass: false, tally: Tally::default() }
    }

    pub(super) fn clear(&mut self) {
        self.block.clear();
        self.queues.clear();
        (self.ends_pass, self.tally) = (false, Tally::default());
    }

    /// Whether there is nothing in it to tell of.
    pub(super) fn is_empty(&self) -> bool {
        self.block.is_empty() && !self.ends_pass && self.tally == Tally::default()
    }

    /// Bytes of memory that its frames take.
    pub(super) fn bytes(&self) -> u64 {
        let frames = self.block.burst();
        frames.bytes() + (frames.len() * (RECORD_HEADER + size_of::<Desc>())) as u64
    }

    pub(super) fn queue(&self, index: usize) -> usize {
        self.queues.get(index).copied().unwrap_or(0).into()
    }
}

/// Makes frames ready.
pub(super) struct Prepare {
    /// Frames are kept as they were recorded, to be made ready later.
    keep: bool,
    split: Split,
    pad: bool,
    rewriter: Option<Rewriter>,
    sides: Option<Sides>,
    /// How many queues each port has; queues count through all of them.
    queues: Vec<u16>,
    /// The frame at hand.
    frame: Vec<u8>,
}

impl Prepare {
    pub(super) fn new(edits: &Edits, queues: Vec<u16>) -> Self {
        let rewriting = &edits.rewriting;
        Prepare {
            keep: false,
            split: edits.split,
            pad: edits.pad,
            rewriter: (!rewriting.is_nothing()).then(|| Rewriter::new(rewriting.clone())),
            sides: edits.split_by.clone().filter(|_| queues.len() > 1).map(Sides::new),
            queues,
            frame: Vec::with_capacity(MAX_FRAME),
        }
    }

    /// Keeps frames as they were recorded.
    pub(super) fn keeping() -> Self {
        Prepare { keep: true, ..Prepare::new(&Edits::default(), Vec::new()) }
    }

    /// A pass over the recording begins: what it says of flows is the same each time.
    pub(super) fn begin_pass(&mut self) {
        if let Some(sides) = &mut self.sides {
            sides.clear();
        }
    }

    /// Puts frames of pass `turn` into a batch; returns how many are done with, fewer if the batch is full.
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
        let mut frame = recorded;
        if padded || self.rewriter.is_some() {
            self.frame.clear();
            self.frame.extend_from_slice(recorded);
            self.frame.resize(recorded.len().max(desc.wire as usize * usize::from(padded)), 0);
            if let Some(rewriter) = &mut self.rewriter {
                rewriter.rewrite(&mut self.frame, turn, false);
            }
            // A tag more may be one too many.
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
        if self.queues.iter().sum::<u16>() > 1 {
            batch.queues.push(self.queue(recorded));
        }
        true
    }

    /// The port by the side that sent the frame, the queue of the port by its flow, so that each stays in order.
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
