//! The way out of a run that forwards: the first queue of a port, its errors, its part of the accounting, and what it
//! adds to the progress.

use crate::control::Progress;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{HeldFrame, PortError, Sent, TxPort, TxQueue};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time at the end for which a port may take nothing; the rest is dropped and counted.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A port that frames leave by.
pub(crate) struct Egress {
    to: TxPort,
    pub counts: EgressCounts,
    /// Totals of the port, as last added to the progress.
    sent: Sent,
    /// True from a link that is down until frames are sent again.
    is_down: bool,
    events: Vec<String>,
    failure: Option<PortError>,
}

/// Frames for a port, apart from those that its owner drops for reasons of its own.
#[derive(Clone, Copy, Default)]
pub(crate) struct EgressCounts {
    pub received: u64,
    pub handed: u64,
    pub down: u64,
    pub unsent: u64,
}

impl Egress {
    pub(crate) fn new(to: TxPort) -> Self {
        let (counts, sent) = Default::default();
        Egress { to, counts, sent, is_down: false, events: Vec::new(), failure: None }
    }

    pub(crate) fn name(&self) -> &str {
        &self.to.name
    }

    pub(crate) fn queue(&mut self) -> &mut dyn TxQueue {
        self.to.queues[0].as_mut()
    }

    /// Offers frames; returns how many are done with: taken by the port, or dropped like by an unplugged cable. If 0,
    /// offer them again.
    #[inline]
    pub(crate) fn offer(&mut self, burst: Burst<'_>) -> usize {
        match self.to.queues[0].send(burst) {
            Ok(frames) => {
                self.counts.handed += frames as u64;
                frames
            }
            Err(error) => self.dropped(error, burst.len()),
        }
    }

    /// Submits held frames to be sent in place, as far as the port takes them; dropped ones become `done`.
    pub(crate) fn submit(&mut self, pending: &mut VecDeque<HeldFrame>, done: &mut Vec<HeldFrame>) {
        while let Some(queue) = self.to.queues[0].submitting().filter(|_| !pending.is_empty()) {
            match queue.submit(pending) {
                Ok(0) => return,
                Ok(frames) => self.counts.handed += frames as u64,
                Err(error) => {
                    let dropped = self.dropped(error, pending.len());
                    done.extend(pending.drain(..dropped));
                    return;
                }
            }
        }
    }

    /// Records an error of sending; returns how many of the frames are dropped.
    #[cold]
    fn dropped(&mut self, error: PortError, frames: usize) -> usize {
        match error {
            PortError::Again { .. } => 0,
            PortError::Down { .. } => {
                if !std::mem::replace(&mut self.is_down, true) {
                    self.events.push(error.to_string());
                }
                self.counts.down += frames as u64;
                frames
            }
            error => {
                self.failure.get_or_insert(error);
                0
            }
        }
    }

    /// Flushes the port; returns whether it has frames queued, unless it does not take them.
    pub(crate) fn flush(&mut self, now: Nanos) -> bool {
        match self.to.queues[0].flush(now) {
            Ok(flushed) => !flushed,
            Err(PortError::Again { .. } | PortError::Down { .. }) => false,
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        }
    }

    /// Adds to the progress what was sent since the last call.
    pub(crate) fn update_progress(&mut self, progress: &Progress) {
        let sent = self.to.queues[0].sent();
        self.is_down &= sent == self.sent;
        let (frames, bytes) = (sent.frames - self.sent.frames, sent.bytes - self.sent.bytes);
        if frames > 0 {
            progress.add(frames, bytes, bytes);
        }
        self.sent = sent;
    }

    /// Returns whether the port failed: no frame is to be offered any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the totals sent.
    pub(crate) fn sent(&self) -> Sent {
        self.sent
    }

    /// Adds the counters to the account of this name, and those of the port's queues.
    pub(crate) fn counters(&self, name: &str, ledger: &mut Ledger) {
        let EgressCounts { received, handed, down, unsent } = self.counts;
        let account = ledger.account(Stage::Forward, name);
        account.add(Count::ForwardReceived, received).add(Count::Forwarded, handed);
        account.add(Count::ForwardDown, down).add(Count::ForwardUnsent, unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }

    /// Counts the frames that the port did not take as unsent, except those that the owner dropped.
    pub(crate) fn give_up(&mut self, dropped: u64) {
        let EgressCounts { received, handed, down, .. } = self.counts;
        self.counts.unsent = received.saturating_sub(handed + down + dropped);
    }

    /// Ends the output; adds the counters of the card.
    pub(crate) fn finish(&mut self, ledger: &mut Ledger, events: &mut Vec<String>) -> Option<PortError> {
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(ledger);
        }
        self.sent = self.to.queues[0].sent();
        events.append(&mut self.events);
        self.failure.take()
    }
}
