//! Transport of streams, and the frames in memory that they fill.

use crate::consumer::RunEnd;
use linerate_burst::{Count, Flags, Ledger, Nanos, Stage};
use linerate_headers::Link;
use linerate_transport::datagrams::Datagrams;
use linerate_transport::frames::{Frame, Frames};
use linerate_transport::stream_memory::Ends;
use linerate_transport::tcp::{Arrival, Checksum, Endpoint, Local, ReceiveOutcome};

/// Transport of streams. Each has frames of its own: memory promised to a TCP sender must not be used otherwise.
pub enum Protocol {
    /// TCP segments, which are acknowledged.
    Tcp {
        /// Endpoint that acknowledges.
        endpoint: Box<Endpoint>,
        /// Frames to fill.
        frames: Box<Frames>,
    },
    /// UDP datagrams with their position.
    Udp {
        /// Frames to fill.
        datagrams: Box<Datagrams>,
        /// Local addresses.
        listen: Vec<Local>,
    },
}

impl Protocol {
    /// Returns whether a connection waits for the acknowledgement of its FIN.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Protocol::Tcp { endpoint, .. } if endpoint.is_closing())
    }

    /// Processes a contiguous frame; returns whether it belongs to this protocol.
    pub(super) fn receive_frame(&mut self, link: Link, frame: &[u8], flags: Flags, now: Nanos) -> bool {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                let is_sound = flags.contains(Flags::CHECKSUM_PARTIAL) || flags.contains(Flags::CHECKSUM_VALID);
                let checksum = if is_sound { Checksum::Trusted } else { Checksum::Verify };
                let arrival = Arrival { headers: frame, rest: 0, link, checksum, now };
                endpoint.receive(&arrival, &mut **frames) != ReceiveOutcome::NotMine
            }
            Protocol::Udp { datagrams, listen } => {
                let wanted = |ends: &Ends| {
                    listen.iter().any(|local| local.ip == ends.to.ip() && local.ports.contains(&ends.to.port()))
                };
                datagrams.receive_frame(link, frame, flags, wanted, now)
            }
        }
    }

    /// Does the work that is due at the end of a burst, and by time.
    pub(super) fn settle(&mut self, is_dry: bool, now: Nanos) {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                endpoint.burst_end(is_dry, now, &mut **frames);
                endpoint.tick(now, &mut **frames);
            }
            Protocol::Udp { datagrams, .. } => datagrams.tick(now),
        }
    }

    /// Ends reception: all received data is finished. Returns false if it must be called again after queued segments
    /// have left.
    pub(super) fn stop(&mut self, now: Nanos) -> bool {
        match self {
            Protocol::Tcp { endpoint, frames } => endpoint.stop(now, &mut **frames),
            Protocol::Udp { datagrams, .. } => {
                datagrams.finish();
                true
            }
        }
    }

    /// Flushes data that finished frames wait for, if frames are stored elsewhere.
    pub(super) fn flush(&mut self) {
        match self {
            Protocol::Tcp { frames, .. } => frames.flush(),
            Protocol::Udp { datagrams, .. } => datagrams.flush(),
        }
    }

    /// Returns whether a stream may wait for frames to return.
    pub(super) fn lacks_frames(&self) -> bool {
        match self {
            Protocol::Tcp { frames, .. } => frames.state().0 == 0,
            Protocol::Udp { .. } => false,
        }
    }

    /// Returns the next finished frame.
    pub(super) fn full(&mut self) -> Option<Frame> {
        match self {
            Protocol::Tcp { frames, .. } => frames.full(),
            Protocol::Udp { datagrams, .. } => datagrams.full(),
        }
    }

    /// Returns a frame to the pool; a window may open.
    pub(super) fn return_frame(&mut self, frame: Frame) {
        match self {
            Protocol::Tcp { frames, .. } => frames.return_frame(frame),
            Protocol::Udp { datagrams, .. } => datagrams.return_frame(frame),
        }
    }

    /// Returns the number of open and of all streams, and their bytes.
    pub(super) fn streams(&self) -> (u64, u64, u64) {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                (endpoint.connections() as u64, endpoint.streams(), frames.counts().bytes)
            }
            Protocol::Udp { datagrams, .. } => {
                let ((open, begun), counts) = (datagrams.streams(), datagrams.counts());
                (open as u64, begun, counts.bytes.saturating_sub(counts.reclaimed_bytes))
            }
        }
    }

    /// Reports finished frames that were replaced by newer ones: their datagrams count as placed.
    pub(super) fn report_dropped_oldest(&self, end: &mut RunEnd<'_>) {
        let Protocol::Udp { datagrams, .. } = self else { return };
        let counts = datagrams.counts();
        if counts.reclaimed > 0 {
            let account = end.ledger.account(Stage::Store, "");
            account.add(Count::StoreReceived, counts.reclaimed).add(Count::StoreDroppedOldest, counts.reclaimed);
            end.events.push(format!(
                "{} finished frames with {} bytes were replaced by newer ones: their reader was too slow",
                counts.reclaimed, counts.reclaimed_bytes
            ));
        }
    }

    pub(super) fn counters(&self, ledger: &mut Ledger) {
        match self {
            Protocol::Tcp { endpoint, .. } => endpoint.counters(ledger.account(Stage::Tcp, "")),
            Protocol::Udp { datagrams, .. } => datagrams.counts().add_to(ledger.account(Stage::Datagrams, "")),
        }
    }
}
