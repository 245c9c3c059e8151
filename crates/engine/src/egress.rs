//! The way out of a run that forwards: the first queue of a port, its errors, its part of the accounting, and what it
//! adds to the progress.

use crate::control::Progress;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{HeldFrame, PortError, Sent, TxPort, TxQueue};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest time at the end for which a port may take nothing, or an engine return no verdict; the rest is dropped and
/// counted.
pub(crate) const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A port that frames leave by.
pub(crate) struct Egress {
    to: TxPort,
    counts: EgressCounts,
    /// Totals of the port.
    sent: Sent,
    /// True from a link that is down until frames are sent again.
    is_down: bool,
    events: Vec<String>,
    failure: Option<PortError>,
}

/// Frames for a port, apart from those that its owner drops for reasons of its own.
#[derive(Clone, Copy, Default)]
struct EgressCounts {
    received: u64,
    handed: u64,
    down: u64,
    unsent: u64,
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

    /// Counts frames that are to leave here.
    #[inline]
    pub(crate) fn receive(&mut self, frames: usize) {
        self.counts.received += frames as u64;
    }

    /// Counts frames that are dropped because the run ends or the port failed.
    pub(crate) fn drop_rest(&mut self, frames: usize) {
        self.counts.unsent += frames as u64;
    }

    /// Offers frames; returns how many are done with: taken by the port, or dropped like by an unplugged cable. If 0,
    /// offer them again, unless the port [failed](Egress::has_failed).
    #[inline]
    pub(crate) fn offer(&mut self, burst: Burst<'_>) -> usize {
        if self.has_failed() {
            return 0;
        }
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

    /// Returns whether the port failed: it takes no more frames.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Returns the number of frames that were to leave here.
    pub(crate) fn received(&self) -> u64 {
        self.counts.received
    }

    /// Returns the number of frames dropped because the link was down.
    pub(crate) fn down(&self) -> u64 {
        self.counts.down
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

    /// Counts all of `received` frames that are not accounted for as unsent; the owner dropped `dropped` itself.
    pub(crate) fn settle(&mut self, received: u64, dropped: u64) {
        self.counts.received = received;
        let EgressCounts { handed, down, .. } = self.counts;
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

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{Block, Desc};

    /// A port that answers each call with the next of these results; then it takes everything.
    struct Scripted(VecDeque<Result<usize, PortError>>, Sent);

    impl TxQueue for Scripted {
        fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
            let frames = self.0.pop_front().unwrap_or(Ok(burst.len()))?;
            self.1 = Sent { frames: self.1.frames + frames as u64, bytes: self.1.bytes + 60 * frames as u64 };
            Ok(frames)
        }

        fn flush(&mut self, _: Nanos) -> Result<bool, PortError> {
            Ok(true)
        }

        fn sent(&self) -> Sent {
            self.1
        }

        fn counters(&self, _: &mut Ledger) {}
    }

    #[test]
    fn every_frame_is_taken_dropped_or_unsent_and_an_outage_is_one_event() {
        let down = || Err(PortError::Down { port: "far".into() });
        let again = Err(PortError::Again { port: "far".into(), reason: "full".into() });
        let script = [Ok(3), again, down(), down(), Ok(4), down(), Err(PortError::broken("far", "gone"))];
        let queue = Box::new(Scripted(script.into(), Sent::default()));
        let mut to = Egress::new(TxPort { name: "far".into(), queues: vec![queue], monitor: None });
        let (mut block, progress) = (Block::new(1 << 16, 10), Progress::new());
        (0..10).for_each(|number| assert!(block.push(&Desc::new(Nanos(number), 0, 60), &[0; 60])));
        let mut offered = Vec::new();
        for _ in 0..9 {
            to.receive(10);
            let done = to.offer(block.burst());
            to.drop_rest(10 - done);
            to.update_progress(&progress);
            offered.push(done);
        }
        assert_eq!(offered, [3, 0, 10, 10, 4, 10, 0, 0, 0]);
        let (mut ledger, mut events) = (Ledger::new(), Vec::new());
        assert!(to.has_failed() && to.finish(&mut ledger, &mut events).is_some());
        to.counters("near -> far", &mut ledger);
        let [handed, down] = [Count::Forwarded, Count::ForwardDown].map(|count| ledger.total(count));
        assert_eq!((handed, down, ledger.total(Count::ForwardUnsent)), (7, 30, 53));
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(ledger.accounts().iter().all(|account| account.unaccounted() == 0));
        // After a panic the rest is unsent.
        to.settle(100, 5);
        let mut ledger = Ledger::new();
        to.counters("near -> far", &mut ledger);
        assert_eq!(ledger.total(Count::ForwardUnsent), 100 - 7 - 30 - 5);
    }
}
