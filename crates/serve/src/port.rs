//! Port of the tester.

use crate::rates::Rates;
use crate::reception::Listener;
use linerate_engine::transmit::Transmitter;
use linerate_otg::metrics::TrafficMetrics;
use linerate_port::{RxPort, TxPort};

/// Bytes of the FCS.
pub(crate) const FCS: u64 = 4;

/// An opened port.
pub struct OpenPort {
    /// Name, which clients use as a location.
    pub name: String,
    /// Specification, accepted as a location too.
    pub spec: String,
    /// Sending side.
    pub tx: TxPort,
    /// Receiving side.
    pub rx: RxPort,
    /// Port for replies of devices, or the reason why devices are not possible.
    pub answers: Result<TxPort, String>,
    /// Line rate in bits per second, if known.
    pub line: Option<f64>,
    /// Longest frame that it sends, without FCS.
    pub longest: usize,
    /// Returns whether the link is up.
    pub is_up: Box<dyn Fn() -> bool + Send>,
}

/// Running port.
pub(crate) struct Port {
    pub name: String,
    pub spec: String,
    pub line: Option<f64>,
    pub longest: usize,
    pub is_up: Box<dyn Fn() -> bool + Send>,
    pub transmitter: Transmitter,
    pub listener: Listener,
    /// Counters at the last configuration: frames and bytes sent, frames and bytes received.
    pub before: [u64; 4],
    pub rates: Rates,
}

impl Port {
    /// Starts its threads.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(crate) fn start(opened: OpenPort) -> std::io::Result<Self> {
        let OpenPort { name, spec, tx, rx, answers, line, longest, is_up } = opened;
        let (transmitter, listener) = (Transmitter::start(tx)?, Listener::start(rx, answers)?);
        let (before, rates) = ([0; 4], Rates::default());
        Ok(Port { name, spec, line, longest, is_up, transmitter, listener, before, rates })
    }

    /// Returns whether it was polled this number of times, or has stopped.
    pub(crate) fn was_polled(&self, times: u64) -> bool {
        self.listener.looked() >= times || self.listener.failure().is_some()
    }

    /// Returns the counters sent and received since the configuration, and whether frames are captured.
    pub(crate) fn counted(&self) -> ([TrafficMetrics; 2], bool) {
        let reception = self.listener.reception();
        let (received, is_on) = ((reception.frames, reception.bytes), reception.captured.is_on());
        drop(reception);
        let count = |(frames, bytes): (u64, u64), before: &[u64]| {
            let (frames, bytes) = (frames - before[0].min(frames), bytes - before[1].min(bytes));
            TrafficMetrics { frames, bytes: bytes + FCS * frames, ..TrafficMetrics::default() }
        };
        ([count(self.transmitter.sent(), &self.before[..2]), count(received, &self.before[2..])], is_on)
    }
}
