//! Sending what a state machine has made ready: answers, acknowledgements.

use crate::clock;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{PortError, TxPort};
use std::time::{Duration, Instant};

/// How long frames may take to leave at the end of a run; the rest counts as unsent.
const LEAVE_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks whether they have left.
const LOOK_NAP: Duration = Duration::from_micros(50);

/// A port for frames that are of use only now: whoever waits for them will ask again.
pub(crate) struct Outlet {
    to: TxPort,
    failure: Option<PortError>,
}

/// How many of the frames of one who makes them are sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Done(usize);

impl Done {
    /// Gives up the rest of these; how many there were.
    pub(crate) fn give_up(&mut self, frames: Burst<'_>) -> usize {
        frames.len() - std::mem::take(&mut self.0)
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing waits any more; so many of them could not be sent.
    Done {
        /// How many.
        unsent: usize,
        /// Whether all that was taken has left.
        flushed: bool,
    },
    /// Some wait: come again with the same frames, and perhaps more behind them.
    Waits,
}

impl Outlet {
    /// Through the first queue of a port.
    pub(crate) fn new(to: TxPort) -> Self {
        Outlet { to, failure: None }
    }

    /// Hands on what is not sent yet of these.
    pub(crate) fn send(&mut self, done: &mut Done, frames: Burst<'_>, now: Nanos) -> Sent {
        let Done(sent) = done;
        let queue = &mut self.to.queues[0];
        let result = queue.send(frames.slice(*sent..frames.len())).and_then(|more| {
            *sent += more;
            queue.flush(now)
        });
        let left = frames.len() - *sent;
        match result {
            Ok(flushed) if left == 0 => {
                *sent = 0;
                Sent::Done { unsent: 0, flushed }
            }
            Ok(_) | Err(PortError::Again { .. }) => Sent::Waits,
            Err(error) => {
                *sent = 0;
                if !matches!(error, PortError::Down { .. }) {
                    self.failure.get_or_insert(error);
                }
                Sent::Done { unsent: left, flushed: true }
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.to.name
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn take_failure(&mut self) -> Option<PortError> {
        self.failure.take()
    }

    /// Waits until what the port has taken has left, and adds the counters of its queues: what a driver still has in hand after
    /// that is unsent.
    pub(crate) fn finish(&mut self, ledger: &mut Ledger) {
        let began = Instant::now();
        let mut flush = || self.to.queues[0].flush(clock::now());
        while matches!(flush(), Ok(false)) && began.elapsed() < LEAVE_LIMIT {
            std::thread::sleep(LOOK_NAP);
        }
        let is_in_hand = matches!(flush(), Ok(false));
        let mut own = Ledger::new();
        self.counters(&mut own);
        let taken: Vec<(String, u64)> = own
            .accounts()
            .iter()
            .filter(|account| is_in_hand && account.stage == Stage::Send)
            .map(|account| (account.subject.clone(), account.unaccounted().clamp(0, u64::MAX.into()) as u64))
            .collect();
        for (subject, frames) in taken.into_iter().filter(|(_, frames)| *frames > 0) {
            own.account(Stage::Send, &subject).add(Count::SendUnsent, frames);
        }
        ledger.add_all(&own);
    }

    /// Counters of its queues.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{Block, Desc};
    use linerate_port::TxQueue;

    /// A driver that reports frames as sent when it is asked again often enough, all but the last `keeps`.
    struct Lazy {
        taken: u64,
        sent: u64,
        keeps: u64,
    }

    impl TxQueue for Lazy {
        fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
            self.taken += burst.len() as u64;
            Ok(burst.len())
        }

        fn flush(&mut self, _: Nanos) -> Result<bool, PortError> {
            self.sent = (self.sent + 1).min(self.taken - self.keeps.min(self.taken));
            Ok(self.sent == self.taken)
        }

        fn sent(&self) -> linerate_port::Sent {
            linerate_port::Sent { frames: self.sent, bytes: 60 * self.sent }
        }

        fn counters(&self, ledger: &mut Ledger) {
            ledger.account(Stage::Send, "lazy@0").add(Count::SendReceived, self.taken).add(Count::Sent, self.sent);
        }
    }

    #[test]
    fn what_a_driver_has_not_sent_at_the_end_is_unsent() {
        for (keeps, sent) in [(0, 20), (1, 19)] {
            let queue = Lazy { taken: 0, sent: 0, keeps };
            let mut outlet = Outlet::new(TxPort { name: "lazy".into(), queues: vec![Box::new(queue)], monitor: None });
            let mut block = Block::new(1 << 16, 20);
            (0..20).for_each(|number| assert!(block.push(&Desc::new(Nanos(number), 0, 60), &[0; 60])));
            outlet.send(&mut Done::default(), block.burst(), Nanos(1));
            let mut ledger = Ledger::new();
            outlet.finish(&mut ledger);
            assert_eq!((ledger.total(Count::Sent), ledger.total(Count::SendUnsent)), (sent, keeps));
            assert_eq!(ledger.imbalances(), []);
        }
    }
}
