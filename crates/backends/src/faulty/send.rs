//! The sending side: frames leave as if they passed a bad wire.

use super::delay_line::{DelayLine, FaultCounts};
use super::plan::Plan;
use linerate_burst::{Block, Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{PortError, Sent, TxQueue};
use std::os::fd::BorrowedFd;

const STAGED_BYTES: usize = 512 << 10;
const STAGED_FRAMES: usize = 1024;

pub(super) struct FaultyTx {
    inner: Box<dyn TxQueue>,
    line: DelayLine,
    /// Frames sent since the last flush; the next flush sets their arrival time.
    staged: Block,
    /// Number of these frames that are in the line.
    entered: usize,
    taken: u64,
    full: u64,
}

impl FaultyTx {
    pub(super) fn new(inner: Box<dyn TxQueue>, plan: Plan) -> Self {
        let staged = Block::new(STAGED_BYTES, STAGED_FRAMES);
        FaultyTx { inner, line: DelayLine::new(plan), staged, entered: 0, taken: 0, full: 0 }
    }

    /// Moves frames into the line, as far as there is room.
    fn enter(&mut self, now: Nanos) {
        for (desc, frame) in self.staged.burst().slice(self.entered..self.staged.len()).iter() {
            if self.line.is_full() {
                return;
            }
            self.line.enter(now, now, desc, frame);
            self.entered += 1;
        }
        self.staged.clear();
        self.entered = 0;
    }

    /// Sends the frames that are due.
    fn leave(&mut self, now: Nanos) -> Result<(), PortError> {
        loop {
            let due = self.line.show(now, false);
            let sent = if due.is_empty() { 0 } else { self.inner.send(due)? };
            if sent == 0 {
                return Ok(());
            }
            self.line.consume(sent);
        }
    }

    /// Returns the number of frames taken and not handed to the queue.
    fn pending_frames(&self) -> usize {
        self.staged.len() - self.entered + self.line.len()
    }
}

impl TxQueue for FaultyTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        let taken = burst.iter().take_while(|(desc, frame)| self.staged.push(desc, frame)).count();
        self.taken += taken as u64;
        self.full += u64::from(taken < burst.len());
        Ok(taken)
    }

    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        self.enter(now);
        self.line.settle(now, now);
        self.leave(now)?;
        Ok(self.inner.flush(now)? && self.pending_frames() == 0)
    }

    fn sent(&self) -> Sent {
        self.inner.sent()
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        if self.pending_frames() > 0 { None } else { self.inner.wake() }
    }

    /// Adds the account of the wrapped queue, with the faults before it.
    fn counters(&self, ledger: &mut Ledger) {
        let mut inner = Ledger::new();
        self.inner.counters(&mut inner);
        for account in inner.accounts() {
            let own = ledger.account(account.stage, &self.line.subject(&account.subject));
            for (count, frames) in account.counts().filter(|(count, _)| *count != Count::SendReceived) {
                own.add(count, frames);
            }
            if account.stage == Stage::Send {
                let FaultCounts { dropped, queue, repeated, reordered, corrupted, truncated, padded, filled } =
                    self.line.counts;
                // A held frame is counted as repeated when it is released, but its copy is already in hand.
                let copies = repeated + self.line.held_copies();
                own.add(Count::SendReceived, self.taken + copies).add(Count::SendFull, self.full);
                own.add(Count::SendFaultDropped, dropped).add(Count::SendFaultQueue, queue);
                own.add(Count::SendFaultRepeated, copies).add(Count::SendFaultReordered, reordered);
                own.add(Count::SendFaultCorrupted, corrupted).add(Count::SendFaultTruncated, truncated);
                own.add(Count::SendFaultPadded, padded).add(Count::SendChecksumFilled, filled);
                if self.pending_frames() > 0 {
                    own.add(Count::SendUnsent, self.pending_frames() as u64);
                }
            }
        }
    }
}
