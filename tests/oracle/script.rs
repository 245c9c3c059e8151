//! Actions of a peer and a consumer, relative to what a receiver has sent.

use crate::oracle::peer::{PORT, Seg, stamps, syn_options, v4, v6};
use linerate_headers::tcp::Flags;

pub(super) const FIN: u16 = 1;
pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const PSH: u16 = 8;
pub(super) const ACK: u16 = 16;
pub(super) const URG: u16 = 32;

/// Start of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Offset in the stream; the SYN is at -1.
    Stream(i64),
    /// Offset from the right edge of the window.
    Window(i64),
}

/// Timestamp of a segment, if negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// One more than the previous.
    Fresh,
    /// This much below the current one.
    Ago(u32),
    /// None, although negotiated.
    Missing,
}

/// Segment of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub at: At,
    pub len: usize,
    pub flags: u16,
    /// Acknowledged offset, counted from the first sequence number after the receiver's SYN.
    pub ack: i64,
    pub stamp: Stamp,
    /// Its bytes differ from those of the stream.
    pub is_other: bool,
}

/// Step of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A segment is sent.
    Send(Segment),
    /// Segments are sent until the window is closed; later offsets count from its edge.
    Fill,
    /// The consumer stops reading.
    Stop,
    /// The consumer resumes reading.
    Go,
}

/// Options of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// MSS, SACK, timestamps, window scale.
    All,
    /// MSS and SACK.
    Sack,
    /// No options.
    Nothing,
}

/// Steps of a connection.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub name: String,
    pub isn: u32,
    pub offer: Offer,
    pub is_v6: bool,
    pub steps: Vec<Step>,
}

/// Returns a segment with bytes of the stream.
pub(super) fn data(at: i64, len: usize) -> Segment {
    Segment { at: At::Stream(at), len, flags: ACK, ack: 0, stamp: Stamp::Fresh, is_other: false }
}

/// Returns a segment without bytes.
pub(super) fn bare(at: i64, flags: u16) -> Segment {
    data(at, 0).with(flags)
}

/// Returns the SYN.
pub(super) fn syn() -> Segment {
    bare(-1, SYN)
}

impl Segment {
    pub(super) fn with(self, flags: u16) -> Segment {
        Segment { flags, ..self }
    }

    pub(super) fn acks(self, ack: i64) -> Segment {
        Segment { ack, ..self }
    }

    pub(super) fn stamped(self, stamp: Stamp) -> Segment {
        Segment { stamp, ..self }
    }

    pub(super) fn other(self) -> Segment {
        Segment { is_other: true, ..self }
    }

    /// Counts its offset from the right edge of the window instead of the start of the stream.
    pub(super) fn at_edge(self) -> Segment {
        match self.at {
            At::Stream(at) => Segment { at: At::Window(at), ..self },
            At::Window(_) => self,
        }
    }
}

impl From<Segment> for Step {
    fn from(segment: Segment) -> Step {
        Step::Send(segment)
    }
}

impl Script {
    /// Returns a script that sends only segments, on an open connection.
    pub(super) fn of(name: &str, segments: impl IntoIterator<Item = Segment>) -> Script {
        Script::steps(name, segments.into_iter().map(Step::Send))
    }

    /// Returns a script of steps on an open connection.
    pub(super) fn steps(name: &str, steps: impl IntoIterator<Item = Step>) -> Script {
        let handshake = [syn().into(), bare(0, ACK).into()];
        Script::from_start(name, handshake.into_iter().chain(steps))
    }

    /// Returns a script of steps without a handshake.
    pub(super) fn from_start(name: &str, steps: impl IntoIterator<Item = Step>) -> Script {
        let steps = steps.into_iter().collect();
        Script { name: name.to_owned(), isn: 1_000_000, offer: Offer::All, is_v6: false, steps }
    }
}

/// Connection as the peer of one receiver sees it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub isn: u32,
    /// First sequence number after the receiver's SYN.
    pub peer: u32,
    pub scale: u8,
    pub has_stamps: bool,
    /// Last timestamp of the receiver.
    pub echo: u32,
    /// First byte that is not acknowledged, including a FIN.
    pub next: i64,
    /// First byte above the window.
    pub edge: i64,
    /// Timestamp clock of the peer.
    pub clock: u32,
    /// Origin of offsets.
    pub base: i64,
    port: u16,
    offer: Offer,
    is_v6: bool,
}

impl View {
    pub(super) fn new(script: &Script, port: u16) -> View {
        View {
            isn: script.isn,
            peer: 0,
            scale: 0,
            has_stamps: false,
            echo: 0,
            next: 0,
            edge: 0,
            clock: 1000,
            base: 0,
            port,
            offer: script.offer,
            is_v6: script.is_v6,
        }
    }

    /// Returns the offset in the stream of a sequence number.
    pub(super) fn offset(&self, sequence: u32) -> i64 {
        let from = self.next.max(0);
        from + i64::from(sequence.wrapping_sub(self.sequence(from)) as i32)
    }

    fn sequence(&self, offset: i64) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Builds a segment for this receiver.
    pub(super) fn build(&mut self, segment: &Segment) -> Seg {
        let at = match segment.at {
            At::Stream(at) => self.base + at,
            At::Window(at) => self.edge + at,
        };
        let payload: Vec<u8> = (at..at + segment.len as i64).map(|at| byte(at) ^ u8::from(segment.is_other)).collect();
        let ack = if segment.flags & ACK != 0 { self.peer.wrapping_add(segment.ack as u32) } else { 0 };
        let (seq, flags) = (self.sequence(at), Flags(segment.flags));
        let options = self.options(segment);
        let (from, to) = if self.is_v6 { (v6(2), v6(1)) } else { (v4(2), v4(1)) };
        let ends = ((from, self.port), (to, PORT));
        Seg { from: ends.0, to: ends.1, options, ..Seg::new(flags, seq, ack, &payload) }
    }

    fn options(&mut self, segment: &Segment) -> Vec<u8> {
        if segment.flags & SYN != 0 {
            return match self.offer {
                Offer::All => syn_options(),
                Offer::Sack => vec![2, 4, 5, 180, 1, 1, 4, 2],
                Offer::Nothing => Vec::new(),
            };
        }
        match segment.stamp {
            _ if !self.has_stamps => Vec::new(),
            Stamp::Missing => Vec::new(),
            Stamp::Ago(ago) => stamps(self.clock.wrapping_sub(ago), self.echo),
            Stamp::Fresh => {
                self.clock += 1;
                stamps(self.clock, self.echo)
            }
        }
    }
}

/// Returns the byte of the stream at an offset.
pub(super) fn byte(offset: i64) -> u8 {
    ((offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
