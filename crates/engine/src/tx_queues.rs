//! All queues of all ports as one list, in which each frame names its place.

use linerate_burst::{Burst, Ledger, Nanos};
use linerate_port::{PortError, Sent, TxPort, TxQueue};

/// The queues that a run sends into.
pub(crate) struct TxQueues {
    ports: Vec<TxPort>,
    /// Port and queue of each.
    places: Vec<(usize, usize)>,
}

impl TxQueues {
    pub(crate) fn new(ports: Vec<TxPort>) -> Self {
        let queues = |(port, of): (usize, &TxPort)| (0..of.queues.len()).map(move |queue| (port, queue));
        let places = ports.iter().enumerate().flat_map(queues).collect();
        TxQueues { ports, places }
    }

    pub(crate) fn send(&mut self, index: usize, burst: Burst<'_>) -> Result<usize, PortError> {
        self.queue(index).send(burst)
    }

    /// A queue.
    pub(crate) fn queue(&mut self, index: usize) -> &mut dyn TxQueue {
        let (port, queue) = self.places[index];
        &mut *self.ports[port].queues[queue]
    }

    /// Gets what was taken on its way; false while some of it still is not.
    pub(crate) fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let mut all = true;
        for queue in self.ports.iter_mut().flat_map(|port| &mut port.queues) {
            all &= queue.flush(now)?;
        }
        Ok(all)
    }

    /// What all of them have sent.
    pub(crate) fn sent(&self) -> Sent {
        let mut all = Sent::default();
        for (_, sent) in self.by_port() {
            (all.frames, all.bytes) = (all.frames + sent.frames, all.bytes + sent.bytes);
        }
        all
    }

    /// What each port has sent.
    pub(crate) fn by_port(&self) -> impl Iterator<Item = (&str, Sent)> {
        self.ports.iter().map(|port| {
            let mut all = Sent::default();
            for sent in port.queues.iter().map(|queue| queue.sent()) {
                (all.frames, all.bytes) = (all.frames + sent.frames, all.bytes + sent.bytes);
            }
            (port.name.as_str(), all)
        })
    }

    /// The name of the port of a queue.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.ports[self.places[index].0].name
    }

    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        for port in &self.ports {
            port.monitor.iter().for_each(|monitor| monitor.counters(ledger));
        }
        self.queue_counters(ledger);
    }

    /// Counters of the queues alone: asking a network card can take milliseconds.
    pub(crate) fn queue_counters(&self, ledger: &mut Ledger) {
        for queue in self.ports.iter().flat_map(|port| &port.queues) {
            queue.counters(ledger);
        }
    }
}
