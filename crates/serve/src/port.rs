//! A port of the tester.

use crate::listen::Listener;
use crate::rates::Rates;
use linerate_engine::transmit::Transmitter;
use linerate_otg::answer::Figures;
use linerate_port::{RxPort, TxPort};

/// FCS of a frame.
pub(crate) const FCS: u64 = 4;

/// A port as the server was started with it.
pub struct Opened {
    /// What clients call it as a location.
    pub name: String,
    /// Its specification: they may call it that as well.
    pub spec: String,
    /// To send by.
    pub tx: TxPort,
    /// To receive by.
    pub rx: RxPort,
    /// To answer by, or why there can be no devices.
    pub answers: Result<TxPort, String>,
    /// Bits per second of its line, where that is known.
    pub line: Option<f64>,
    /// The longest frame that it sends, without FCS.
    pub longest: usize,
    /// Whether its link is up.
    pub is_up: Box<dyn Fn() -> bool + Send>,
}

/// A port that is in use.
pub(crate) struct Port {
    pub name: String,
    pub spec: String,
    pub line: Option<f64>,
    pub longest: usize,
    pub is_up: Box<dyn Fn() -> bool + Send>,
    pub transmitter: Transmitter,
    pub listener: Listener,
    /// What was counted before the configuration: frames and bytes sent, frames and bytes received.
    pub before: [u64; 4],
    pub rates: Rates,
}

impl Port {
    /// Takes it into use.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(crate) fn start(opened: Opened) -> std::io::Result<Self> {
        let Opened { name, spec, tx, rx, answers, line, longest, is_up } = opened;
        let (transmitter, listener) = (Transmitter::start(tx)?, Listener::start(rx, answers)?);
        let (before, rates) = ([0; 4], Rates::default());
        Ok(Port { name, spec, line, longest, is_up, transmitter, listener, before, rates })
    }

    /// Whether it was asked for frames so often, or is not asked any more.
    pub(crate) fn has_looked(&self, times: u64) -> bool {
        self.listener.looked() >= times || self.listener.failure().is_some()
    }

    /// Sent and received since the configuration, and whether frames are captured.
    pub(crate) fn counted(&self) -> ([Figures; 2], bool) {
        let heard = self.listener.heard();
        let (received, is_on) = ((heard.frames, heard.bytes), heard.captured.is_on());
        drop(heard);
        let count = |(frames, bytes): (u64, u64), before: &[u64]| {
            let (frames, bytes) = (frames - before[0].min(frames), bytes - before[1].min(bytes));
            Figures { frames, bytes: bytes + FCS * frames, ..Figures::default() }
        };
        ([count(self.transmitter.sent(), &self.before[..2]), count(received, &self.before[2..])], is_on)
    }
}
