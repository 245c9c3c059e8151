//! Sending what a state machine has made ready: answers, acknowledgements.

use linerate_burst::{Burst, Ledger, Nanos};
use linerate_port::{PortError, TxPort};

/// A port for frames that are of use only now: whoever waits for them will ask again.
pub(crate) struct Outlet {
    to: TxPort,
    /// How many of the frames are sent.
    sent: usize,
    failure: Option<PortError>,
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
    pub fn new(to: TxPort) -> Self {
        Outlet { to, sent: 0, failure: None }
    }

    /// Hands on what is not sent yet of these.
    pub fn send(&mut self, frames: Burst<'_>, now: Nanos) -> Sent {
        let queue = &mut self.to.queues[0];
        let result = queue.send(frames.slice(self.sent..frames.len())).and_then(|done| {
            self.sent += done;
            queue.flush(now)
        });
        let left = frames.len() - self.sent;
        match result {
            Ok(flushed) if left == 0 => {
                self.sent = 0;
                Sent::Done { unsent: 0, flushed }
            }
            Ok(_) | Err(PortError::Again { .. }) => Sent::Waits,
            Err(error) => {
                self.sent = 0;
                if !matches!(error, PortError::Down { .. }) {
                    self.failure.get_or_insert(error);
                }
                Sent::Done { unsent: left, flushed: true }
            }
        }
    }

    /// Gives up the rest of these; how many there were.
    pub fn give_up(&mut self, frames: Burst<'_>) -> usize {
        frames.len() - std::mem::take(&mut self.sent)
    }

    pub fn name(&self) -> &str {
        &self.to.name
    }

    pub fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub fn take_failure(&mut self) -> Option<PortError> {
        self.failure.take()
    }

    /// Counters of its queues.
    pub fn counters(&self, ledger: &mut Ledger) {
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }
}
