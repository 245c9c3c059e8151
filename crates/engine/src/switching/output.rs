//! Output port of a switch: runs of frames in place, and blocks of copied ones.

use super::PortCounts;
use crate::control::Progress;
use crate::egress::Egress;
use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_port::{PortError, Sent, TxPort};
use std::collections::VecDeque;
use std::ops::Range;

/// Size of a block of copies, and the number of blocks at which the port is full.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_FRAMES: usize = 2048;
const MOST_BLOCKS: usize = 2;

/// Minimum number of adjacent frames for which sending in place is cheaper than copying.
const LEAST_RUN: usize = 8;

pub(super) struct SwitchOutput {
    to: Egress,
    /// Adjacent frames of the current burst that leave unchanged.
    run: Range<usize>,
    /// Copies that are queued, oldest first; the last block is being filled.
    blocks: VecDeque<Block>,
    /// Number of frames of the first block that were sent.
    gone: usize,
    spare: Vec<Block>,
    /// Frames dropped because the blocks were full.
    full: u64,
}

impl SwitchOutput {
    pub(super) fn new(to: TxPort) -> Self {
        let (blocks, spare) = (VecDeque::new(), Vec::new());
        SwitchOutput { to: Egress::new(to), run: 0..0, blocks, gone: 0, spare, full: 0 }
    }

    /// Queues frame `index` of the burst unchanged.
    #[inline]
    pub(super) fn extend(&mut self, index: usize, burst: Burst<'_>, waits: bool) {
        self.to.receive(1);
        if index != self.run.end || self.run.is_empty() {
            self.end_run(burst, waits);
            self.run = index..index;
        }
        self.run.end = index + 1;
    }

    /// Queues other bytes in place of frame `index`.
    pub(super) fn copy(&mut self, burst: Burst<'_>, index: usize, bytes: &[u8], waits: bool) {
        self.to.receive(1);
        self.end_run(burst, waits);
        let length = bytes.len() as u32;
        let desc = Desc { captured: length, wire: length, ..burst.descs()[index] };
        self.push(&desc, bytes, waits);
    }

    /// Ends the burst, whose frames become unavailable.
    pub(super) fn end_burst(&mut self, burst: Burst<'_>, waits: bool) {
        self.end_run(burst, waits);
    }

    fn end_run(&mut self, burst: Burst<'_>, waits: bool) {
        let mut run = std::mem::replace(&mut self.run, 0..0);
        if run.len() >= LEAST_RUN {
            self.drain();
            while self.blocks.is_empty() && !run.is_empty() {
                match self.hand_over(None, burst.slice(run.clone())) {
                    0 => break,
                    frames => run.start += frames,
                }
            }
        }
        for index in run {
            self.push(&burst.descs()[index], burst.frame(index), waits);
        }
    }

    /// Copies a frame after those already queued.
    fn push(&mut self, desc: &Desc, bytes: &[u8], waits: bool) {
        if self.blocks.back_mut().is_some_and(|block| block.push(desc, bytes)) {
            return;
        }
        if self.blocks.len() >= MOST_BLOCKS && !waits {
            self.drain();
            if self.blocks.len() >= MOST_BLOCKS {
                self.full += 1;
                return;
            }
        }
        let mut block = self.spare.pop().unwrap_or_else(|| Block::new(BLOCK_BYTES, BLOCK_FRAMES));
        if block.push(desc, bytes) { self.blocks.push_back(block) } else { self.full += 1 }
    }

    /// Returns whether a new frame would have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.blocks.len() >= MOST_BLOCKS
    }

    /// Passes frames to the port, these or those of the first block from `gone` on; returns how many are done with.
    fn hand_over(&mut self, block: Option<&Block>, burst: Burst<'_>) -> usize {
        let burst = block.map_or(burst, |block| block.burst().slice(self.gone..block.len()));
        self.to.offer(burst)
    }

    /// Sends the copies, as far as the port takes them.
    fn drain(&mut self) {
        while let Some(mut block) = self.blocks.pop_front() {
            let frames = if self.has_failed() { 0 } else { self.hand_over(Some(&block), Burst::EMPTY) };
            self.gone += frames;
            if self.gone < block.len() {
                self.blocks.push_front(block);
                if frames == 0 {
                    return;
                }
                continue;
            }
            self.gone = 0;
            block.clear();
            self.spare.push(block);
            self.spare.truncate(MOST_BLOCKS);
        }
    }

    /// Sends and flushes; returns whether some frames are left.
    pub(super) fn go_on(&mut self, now: Nanos, give_up: bool) -> bool {
        self.drain();
        if give_up || self.has_failed() {
            let left: usize = self.blocks.iter().map(Block::len).sum();
            self.to.drop_rest(left - self.gone);
            self.gone = 0;
            self.blocks.clear();
        }
        self.to.flush(now) || !self.blocks.is_empty()
    }

    /// Adds to the progress what was sent since the last call.
    pub(super) fn update_progress(&mut self, progress: &Progress) {
        self.to.update_progress(progress);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.to.has_failed()
    }

    pub(super) fn counts(&self, received: Sent) -> PortCounts {
        let (name, down) = (self.to.name().to_owned(), self.to.down());
        PortCounts { name, received, sent: self.to.sent(), full: self.full, down }
    }

    /// Adds the counters of this output and of the port's queues.
    pub(super) fn add_counters(&self, ledger: &mut Ledger) {
        ledger.account(Stage::Forward, self.to.name()).add(Count::ForwardFull, self.full);
        self.to.counters(self.to.name(), ledger);
    }

    /// Ends the output: remaining frames are not sent. Counters are added by [`SwitchOutput::add_counters`].
    pub(super) fn finish(&mut self, ledger: &mut Ledger, events: &mut Vec<String>) -> Option<PortError> {
        self.to.settle(self.to.received(), self.full);
        self.to.finish(ledger, events)
    }
}
