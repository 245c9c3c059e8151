//! What a peer sends and a consumer does, relative to what a receiver has said.

use crate::oracle::peer::{PORT, Seg, stamps, syn_options, v4, v6};
use linerate_wire::tcp::Flags;

pub(super) const FIN: u16 = 1;
pub(super) const SYN: u16 = 2;
pub(super) const RST: u16 = 4;
pub(super) const PSH: u16 = 8;
pub(super) const ACK: u16 = 16;
pub(super) const URG: u16 = 32;

/// Where a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// At this byte of the stream; its SYN is at -1.
    Stream(i64),
    /// So far from the right edge of the window.
    Window(i64),
}

/// The timestamp of a segment, where these were agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    /// One more than the last.
    Fresh,
    /// So much less.
    Ago(u32),
    /// None, against what was agreed on.
    Missing,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub at: At,
    pub len: usize,
    pub flags: u16,
    /// What it acknowledges, from the first number after their SYN on.
    pub ack: i64,
    pub stamp: Stamp,
    /// Its bytes are not those that the stream has there.
    pub is_other: bool,
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A segment comes.
    Send(Segment),
    /// Segments come until the window is closed; what is said of places from there on counts from its edge.
    Fill,
    /// The consumer reads no more.
    Stop,
    /// It reads on.
    Go,
}

/// What a SYN offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// What everybody offers: MSS, SACK, timestamps, window scale.
    All,
    /// MSS and SACK.
    Sack,
    /// Nothing.
    Nothing,
}

/// What happens to a connection.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub name: String,
    pub isn: u32,
    pub offer: Offer,
    pub is_v6: bool,
    pub steps: Vec<Step>,
}

/// Bytes of the stream.
pub(super) fn data(at: i64, len: usize) -> Segment {
    Segment { at: At::Stream(at), len, flags: ACK, ack: 0, stamp: Stamp::Fresh, is_other: false }
}

/// A segment without bytes.
pub(super) fn bare(at: i64, flags: u16) -> Segment {
    data(at, 0).with(flags)
}

/// The first segment.
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

    /// As far from the window's right edge as it was from the beginning of the stream.
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
    /// Segments alone, one after the other, on a connection that was begun.
    pub(super) fn of(name: &str, segments: impl IntoIterator<Item = Segment>) -> Script {
        Script::steps(name, segments.into_iter().map(Step::Send))
    }

    /// Steps on a connection that was begun.
    pub(super) fn steps(name: &str, steps: impl IntoIterator<Item = Step>) -> Script {
        let begin = [syn().into(), bare(0, ACK).into()];
        Script::anew(name, begin.into_iter().chain(steps))
    }

    /// Steps without a beginning.
    pub(super) fn anew(name: &str, steps: impl IntoIterator<Item = Step>) -> Script {
        let steps = steps.into_iter().collect();
        Script { name: name.to_owned(), isn: 1_000_000, offer: Offer::All, is_v6: false, steps }
    }
}

/// A connection as the peer of one receiver knows it.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub isn: u32,
    /// Their first number after their SYN.
    pub peer: u32,
    pub scale: u8,
    pub has_stamps: bool,
    /// Their last timestamp.
    pub echo: u32,
    /// The first byte of the stream that was not acknowledged, a FIN counted.
    pub next: i64,
    /// The first beyond the window.
    pub edge: i64,
    /// Our own clock.
    pub clock: u32,
    /// Where offsets count from.
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

    /// The stream's byte that a number stands for.
    pub(super) fn offset(&self, sequence: u32) -> i64 {
        let from = self.next.max(0);
        from + i64::from(sequence.wrapping_sub(self.sequence(from)) as i32)
    }

    fn sequence(&self, offset: i64) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// A segment for this receiver.
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

/// The byte of the stream at an offset.
pub(super) fn byte(offset: i64) -> u8 {
    ((offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
