//! All queues of all ports as one list, indexed by each frame.

use linerate_burst::{Burst, Ledger, Nanos};
use linerate_port::{PortError, Sent, TxPort, TxQueue};

/// Queues of a run that sends.
pub(crate) struct TxQueues {
    ports: Vec<TxPort>,
    /// Port and queue of each entry.
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

    pub(crate) fn queue(&mut self, index: usize) -> &mut dyn TxQueue {
        let (port, queue) = self.places[index];
        &mut *self.ports[port].queues[queue]
    }

    /// Flushes all queues; returns false while some frames are still queued.
    pub(crate) fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let mut all = true;
        for queue in self.ports.iter_mut().flat_map(|port| &mut port.queues) {
            all &= queue.flush(now)?;
        }
        Ok(all)
    }

    /// Returns the totals of all queues.
    pub(crate) fn sent(&self) -> Sent {
        let mut all = Sent::default();
        for (_, sent) in self.by_port() {
            (all.frames, all.bytes) = (all.frames + sent.frames, all.bytes + sent.bytes);
        }
        all
    }

    /// Returns the totals of each port.
    pub(crate) fn by_port(&self) -> impl Iterator<Item = (&str, Sent)> {
        self.ports.iter().map(|port| {
            let mut all = Sent::default();
            for sent in port.queues.iter().map(|queue| queue.sent()) {
                (all.frames, all.bytes) = (all.frames + sent.frames, all.bytes + sent.bytes);
            }
            (port.name.as_str(), all)
        })
    }

    /// Returns the name of the port of a queue.
    pub(crate) fn name(&self, index: usize) -> &str {
        &self.ports[self.places[index].0].name
    }

    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        for port in &self.ports {
            port.monitor.iter().for_each(|monitor| monitor.counters(ledger));
        }
        self.queue_counters(ledger);
    }

    /// Adds only the counters of the queues: reading a network card can take milliseconds.
    pub(crate) fn queue_counters(&self, ledger: &mut Ledger) {
        for queue in self.ports.iter().flat_map(|port| &port.queues) {
            queue.counters(ledger);
        }
    }
}
