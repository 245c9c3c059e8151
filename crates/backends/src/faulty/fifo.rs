//! Frames in transit, in the order in which they leave.

use linerate_burst::{Block, Burst, Desc, Nanos};
use std::collections::VecDeque;
use std::time::Duration;

const BLOCK_BYTES: usize = 512 << 10;
const BLOCK_FRAMES: usize = 2048;
/// 64 MiB per queue.
const MOST_BLOCKS: usize = 128;

/// Copies of frames, each with its departure time.
pub(super) struct Fifo {
    blocks: VecDeque<Block>,
    free: Vec<Block>,
    dues: VecDeque<Nanos>,
    /// Frames of the first block that were consumed, and the following ones that are shown.
    consumed: usize,
    shown: usize,
}

impl Fifo {
    pub(super) fn new() -> Self {
        Fifo { blocks: VecDeque::new(), free: Vec::new(), dues: VecDeque::new(), consumed: 0, shown: 0 }
    }

    /// Appends a frame.
    pub(super) fn push(&mut self, desc: &Desc, frame: &[u8], due: Nanos) {
        if !self.blocks.back_mut().is_some_and(|block| block.push(desc, frame)) {
            let mut block = self.free.pop().unwrap_or_else(|| Block::new(BLOCK_BYTES, BLOCK_FRAMES));
            let taken = block.push(desc, frame);
            assert!(taken, "an empty block has room for any frame");
            self.blocks.push_back(block);
        }
        self.dues.push_back(due);
    }

    /// Moves departure times back after the clock was set back.
    pub(super) fn set_back(&mut self, span: Duration) {
        self.dues.iter_mut().for_each(|due| *due = due.before(span));
    }

    /// Shows the frames that are due at `now`, or `all`; no more than the first block holds.
    pub(super) fn show(&mut self, now: Nanos, all: bool) -> Burst<'_> {
        let Some(first) = self.blocks.front() else { return Burst::EMPTY };
        let there = first.len() - self.consumed;
        while self.shown < there && (all || self.dues[self.shown] <= now) {
            self.shown += 1;
        }
        first.burst().slice(self.consumed..self.consumed + self.shown)
    }

    /// Removes the first frames shown.
    pub(super) fn consume(&mut self, frames: usize) {
        assert!(frames <= self.shown, "{frames} frames consumed, {} shown", self.shown);
        self.shown -= frames;
        self.consumed += frames;
        self.dues.drain(..frames);
        let Some(first) = self.blocks.front_mut().filter(|block| block.len() == self.consumed) else { return };
        self.consumed = 0;
        first.clear();
        if self.blocks.len() > 1 {
            self.free.extend(self.blocks.pop_front());
        }
    }

    /// Returns the number of frames that have not left.
    pub(super) fn len(&self) -> usize {
        self.dues.len()
    }

    pub(super) fn has_hidden(&self) -> bool {
        self.dues.len() > self.shown
    }

    /// Returns the times of the frames that are not shown.
    pub(super) fn hidden(&self) -> impl Iterator<Item = Nanos> + '_ {
        let skipped = self.consumed + self.shown;
        self.blocks.iter().flat_map(Block::descs).skip(skipped).map(|desc| desc.time)
    }

    /// Returns whether frames must wait outside: when a block is full, or [`MOST_BLOCKS`] if `waits` is set since
    /// frames stay for a while.
    pub(super) fn is_full(&self, waits: bool) -> bool {
        self.blocks.len() > if waits { MOST_BLOCKS } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_leave_in_order_when_they_are_due() {
        let mut fifo = Fifo::new();
        let mut out = Vec::new();
        for number in 0..10_000u64 {
            fifo.push(&Desc::new(Nanos(number), 0, 0), &number.to_ne_bytes(), Nanos(number * 10));
            let due = number.saturating_sub(3000) * 10;
            let shown: Vec<u64> = fifo.show(Nanos(due), false).descs().iter().map(|desc| desc.time.0).collect();
            assert!(shown.iter().all(|time| time * 10 <= due) && shown.len() <= BLOCK_FRAMES);
            let some = shown.len() / 2;
            out.extend_from_slice(&shown[..some]);
            fifo.consume(some);
            assert_eq!(fifo.hidden().next().is_some(), fifo.has_hidden());
        }
        while fifo.len() > 0 {
            let burst = fifo.show(Nanos::ZERO, true);
            let frames = burst.len();
            for (desc, frame) in burst.iter() {
                assert_eq!(frame, desc.time.0.to_ne_bytes());
                out.push(desc.time.0);
            }
            fifo.consume(frames);
        }
        assert_eq!(out, (0..10_000).collect::<Vec<u64>>());
        assert_eq!((fifo.blocks.len(), fifo.is_full(false)), (1, false));
    }
}
