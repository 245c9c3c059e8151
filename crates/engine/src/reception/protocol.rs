//! What streams come by, and the frames of memory that they fill.

use crate::consumer::End;
use linerate_burst::{Count, Flags, Ledger, Nanos, Stage};
use linerate_receive::datagrams::Datagrams;
use linerate_receive::frames::{Frame, Frames};
use linerate_receive::place::Ends;
use linerate_receive::tcp::{Arrival, Checksum, Endpoint, Heard, Local};
use linerate_wire::Link;

/// What streams come by. Each has frames of its own: what is promised to a TCP sender nobody else may take.
pub enum Protocol {
    /// Segments, which are acknowledged.
    Tcp {
        /// Who acknowledges.
        endpoint: Box<Endpoint>,
        /// What they fill.
        frames: Box<Frames>,
    },
    /// Datagrams that say where they belong.
    Udp {
        /// What they fill.
        datagrams: Box<Datagrams>,
        /// Where they are to go to.
        listen: Vec<Local>,
    },
}

impl Protocol {
    /// Whether a connection waits for the acknowledgement of its FIN.
    pub(super) fn is_closing(&self) -> bool {
        matches!(self, Protocol::Tcp { endpoint, .. } if endpoint.is_closing())
    }

    /// Takes a frame that lies in one piece; whether it was for this.
    pub(super) fn hear(&mut self, link: Link, frame: &[u8], flags: Flags, now: Nanos) -> bool {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                let is_sound = flags.contains(Flags::CHECKSUM_PARTIAL) || flags.contains(Flags::CHECKSUM_VALID);
                let checksum = if is_sound { Checksum::Trusted } else { Checksum::Verify };
                let arrival = Arrival { headers: frame, rest: 0, link, checksum, now };
                endpoint.receive(&arrival, &mut **frames) != Heard::NotMine
            }
            Protocol::Udp { datagrams, listen } => {
                let wanted = |ends: &Ends| {
                    listen.iter().any(|local| local.ip == ends.to.ip() && local.ports.contains(&ends.to.port()))
                };
                datagrams.receive_frame(link, frame, flags, wanted, now)
            }
        }
    }

    /// What is due at the end of a burst, and by time.
    pub(super) fn settle(&mut self, is_dry: bool, now: Nanos) {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                endpoint.burst_end(is_dry, now, &mut **frames);
                endpoint.tick(now, &mut **frames);
            }
            Protocol::Udp { datagrams, .. } => datagrams.tick(now),
        }
    }

    /// No more will come: all that is there goes out. False if it is to be called again once what there is to send has gone.
    pub(super) fn stop(&mut self, now: Nanos) -> bool {
        match self {
            Protocol::Tcp { endpoint, frames } => endpoint.stop(now, &mut **frames),
            Protocol::Udp { datagrams, .. } => {
                datagrams.finish();
                true
            }
        }
    }

    /// Has bytes on their way that finished frames wait for, where frames are elsewhere.
    pub(super) fn flush(&mut self) {
        match self {
            Protocol::Tcp { frames, .. } => frames.flush(),
            Protocol::Udp { datagrams, .. } => datagrams.flush(),
        }
    }

    /// Whether a stream may wait for frames to come back.
    pub(super) fn lacks_frames(&self) -> bool {
        match self {
            Protocol::Tcp { frames, .. } => frames.state().0 == 0,
            Protocol::Udp { .. } => false,
        }
    }

    /// The next finished frame.
    pub(super) fn full(&mut self) -> Option<Frame> {
        match self {
            Protocol::Tcp { frames, .. } => frames.full(),
            Protocol::Udp { datagrams, .. } => datagrams.full(),
        }
    }

    /// A frame that is needed no more; a window may open.
    pub(super) fn give_back(&mut self, frame: Frame) {
        match self {
            Protocol::Tcp { frames, .. } => frames.give_back(frame),
            Protocol::Udp { datagrams, .. } => datagrams.give_back(frame),
        }
    }

    /// Streams there are and were, and bytes of them.
    pub(super) fn streams(&self) -> (u64, u64, Option<u64>) {
        match self {
            Protocol::Tcp { endpoint, frames } => {
                (endpoint.connections() as u64, endpoint.streams(), Some(frames.counts().bytes))
            }
            Protocol::Udp { datagrams, .. } => {
                let (open, begun) = datagrams.streams();
                (open as u64, begun, None)
            }
        }
    }

    /// Frames that were finished and went nowhere, as newer ones took their place: their datagrams count as placed.
    pub(super) fn tell_what_gave_way(&self, end: &mut End<'_>) {
        let Protocol::Udp { datagrams, .. } = self else { return };
        let counts = datagrams.counts();
        if counts.reclaimed > 0 {
            let account = end.ledger.account(Stage::Store, "");
            account.add(Count::StoreReceived, counts.reclaimed).add(Count::StoreGaveWay, counts.reclaimed);
            end.events.push(format!(
                "{} finished frames with {} bytes gave way to newer ones: whoever takes frames was too slow",
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
