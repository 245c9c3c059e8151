//! Memory layout of the TCP state of a flow: one cache line that each packet touches, and one that most
//! acknowledgements touch.
//!
//! Sides are the lower and the higher end. Times are in units of 1,024 ns, the lower 32 bits.

use super::segment::Options;
use super::slow_path::{MUCH, crosses};
use crate::facts::Facts;
use crate::flow::Quality;
use crate::record::{ACK, FIN, RST, SYN};

/// TCP state of one flow.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Record {
    pub hot: Hot,
    pub cold: Cold,
}

/// Line that each packet touches; all fields by side.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// Highest end of a segment so far.
    pub next: [u32; 2],
    /// Highest acknowledgement number sent by the other side.
    pub acked: [u32; 2],
    /// End of the segment that is timed, and its time.
    pub timed_end: [u32; 2],
    pub timed_at: [u32; 2],
    /// Last window, as in the header, of packets other than SYN and RST.
    pub window: [u16; 2],
    /// See [`Hot::note_identification`].
    pub identification: [u16; 2],
    /// See [`mark`].
    pub marks: [u16; 2],
    /// Number of the `Trouble` (24 bits), and above it marks of the flow.
    pub trouble: u32,
    /// Time from SYN to SYN with ACK, and from there to ACK; [`NO_TIME`] where not measured.
    pub handshake: [u32; 2],
    pub history: u64,
}

/// Line that few packets touch except those that end a round trip.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Cold {
    pub sides: [ColdSide; 2],
}

/// Round trips, fields of the SYN, windows.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ColdSide {
    pub squares: u64,
    pub least: u32,
    pub most: u32,
    pub sum: u32,
    /// Sequence number of the SYN; before one was seen, the number that it must have.
    pub isn: u32,
    pub count: u16,
    /// 0 if none was announced.
    pub mss: u16,
    /// Smallest and largest window, as in headers.
    pub windows: [u16; 2],
}

const _: () = assert!(size_of::<Record>() == 128);

/// Bits of `Hot::marks`; the uppermost four bits are the window scale.
pub(crate) mod mark {
    /// `next` is known.
    pub(crate) const NEXT: u16 = 1;
    /// `acked` is known.
    pub(crate) const ACKED: u16 = 1 << 1;
    /// A segment is timed.
    pub(crate) const TIMING: u16 = 1 << 2;
    /// The timed segment is a SYN.
    pub(crate) const TIMED_SYN: u16 = 1 << 3;
    /// The last window was 0.
    pub(crate) const ZERO: u16 = 1 << 4;
    /// The byte at `next` was sent, as a window probe.
    pub(crate) const PROBED: u16 = 1 << 5;
    /// A pure ACK, payload were sent.
    pub(crate) const ACK: u16 = 1 << 6;
    pub(crate) const DATA: u16 = 1 << 7;
    /// SYN, SYN with ACK, FIN, RST were sent.
    pub(crate) const SYN: u16 = 1 << 8;
    pub(crate) const SYN_ACK: u16 = 1 << 9;
    pub(crate) const FIN: u16 = 1 << 10;
    pub(crate) const RST: u16 = 1 << 11;
    /// Anything was sent.
    pub(crate) const ALL_SENT: u16 = NEXT | ACK | DATA | SYN | SYN_ACK | FIN | RST;
    /// Position of the scale.
    pub(crate) const SCALE: u32 = 12;
}

/// Bits of the upper byte of `Hot::trouble`, the first two shifted by the side.
pub(crate) const SACK: u32 = 1 << 24;
pub(crate) const TIMESTAMPS: u32 = 1 << 26;
/// Shifted by the side: it opened the connection in an earlier record, and its SYN was never seen.
pub(crate) const UNSEEN_SYN: u32 = 1 << 29;
/// Number of a `Trouble`; all ones if absent.
pub(crate) const TROUBLE: u32 = (1 << 24) - 1;

/// Bounds of the distance of a FIN or RST from its side's next sequence number. And the window shift assumed where no
/// handshake announced it.
const LEAST_REACH: u32 = 1 << 16;
const MOST_REACH: u32 = (1 << 30) - 1;
const UNKNOWN_SCALE: u8 = 8;

/// Not measured.
pub(crate) const NO_TIME: u32 = u32::MAX;

/// Returns a time in units of 1,024 ns.
#[inline(always)]
pub(crate) fn units(time: u64) -> u32 {
    (time >> 10) as u32
}

/// Returns the distance of one number after another, modulo 2^32; negative if it is before.
#[inline(always)]
pub(crate) fn beyond(number: u32, other: u32) -> i32 {
    number.wrapping_sub(other) as i32
}

impl Record {
    pub(crate) const NEW: Record = Record {
        hot: Hot {
            next: [0; 2],
            acked: [0; 2],
            timed_end: [0; 2],
            timed_at: [0; 2],
            window: [0; 2],
            identification: [0; 2],
            marks: [(Options::NO_SCALE as u16) << mark::SCALE; 2],
            trouble: TROUBLE,
            handshake: [NO_TIME; 2],
            history: 0,
        },
        cold: Cold { sides: [ColdSide::NEW; 2] },
    };

    /// Returns whether a FIN or RST begins near the next sequence number of its side, or, if it is the first packet of
    /// its side, acknowledges about the next one of the other side: within a window's distance.
    pub(crate) fn accepts_end(&self, facts: &Facts) -> bool {
        let hot = &self.hot;
        let ([side, other], segment) = (facts.sides(), &facts.segment);
        let reach = self.reach(other);
        let is_near = |number: u32, next: u32| beyond(number, next).unsigned_abs() <= reach;
        if facts.quality & Quality::BAD_CHECKSUM.0 != 0 {
            false
        } else if hot.marks[side] & mark::NEXT != 0 {
            is_near(segment.sequence, hot.next[side])
        } else if hot.marks[other] & mark::NEXT != 0 && facts.flags & ACK != 0 {
            is_near(segment.acknowledgement, hot.next[other])
        } else {
            true
        }
    }

    /// Returns how far above the acknowledged number the other end of `side` may send, according to the windows.
    fn reach(&self, side: usize) -> u32 {
        let hot = &self.hot;
        let shift = match [0, 1].map(|side| hot.scale(side)) {
            [Some(_), Some(_)] => hot.scale(side).unwrap_or(0),
            _ if hot.has_seen_syn(0) && hot.has_seen_syn(1) => 0,
            _ => UNKNOWN_SCALE,
        };
        (u32::from(self.cold.sides[side].windows[1]) << shift).clamp(LEAST_REACH, MOST_REACH)
    }

    /// Returns whether this is a SYN of a side whose SYN was not seen yet, captured after the segments that follow it:
    /// its number is the one that the SYN with ACK acknowledged, or the one before the first segment of its side.
    pub(crate) fn is_late_syn(&self, facts: &Facts) -> bool {
        self.hot.is_late_syn(&self.cold, facts)
    }

    /// Takes a packet on the fast path: its side sent such packets before with the same window, it begins at the next
    /// sequence number and acknowledges data that was sent, not less than before. Otherwise changes nothing and returns
    /// false.
    #[inline(always)]
    pub(crate) fn take_fast(&mut self, facts: &Facts) -> bool {
        let hot = &mut self.hot;
        let [side, other] = facts.sides();
        let segment = &facts.segment;
        let has_payload = facts.payload != 0;
        let sender = mark::NEXT | if has_payload { mark::DATA } else { mark::ACK };
        let receiver = mark::NEXT | mark::ACKED;
        let outstanding = hot.next[other].wrapping_sub(segment.acknowledgement);
        let news = segment.acknowledgement.wrapping_sub(hot.acked[other]);
        let is_usual = (facts.flags & (SYN | FIN | RST | ACK) == ACK)
            & (segment.window == hot.window[side])
            & (segment.window != 0)
            & (segment.sequence == hot.next[side])
            & (hot.marks[side] & (sender | mark::PROBED) == sender)
            & (hot.marks[other] & (receiver | mark::TIMED_SYN | mark::ZERO) == receiver)
            & ((outstanding | news) >> 31 == 0)
            & (has_payload | (news != 0) | (outstanding == 0))
            & (facts.payload < MUCH)
            & !crosses(segment.sequence, segment.sequence.wrapping_add(facts.payload));
        if !is_usual {
            return false;
        }
        let now = units(facts.time);
        if hot.marks[other] & mark::TIMING != 0 && beyond(segment.acknowledgement, hot.timed_end[other]) >= 0 {
            let time = now.wrapping_sub(hot.timed_at[other]);
            if !self.cold.sides[other].add(time) {
                return false;
            }
            hot.marks[other] &= !mark::TIMING;
        }
        hot.acked[other] = segment.acknowledgement;
        if has_payload {
            hot.next[side] = segment.sequence.wrapping_add(facts.payload);
            hot.note_identification(side, segment.identification);
            hot.time(side, now);
        }
        true
    }
}

/// Bits of an identification that are kept, and the bit above them: it occurred in two different segments.
const IDENTIFICATION: u16 = 0x7fff;
const IS_CONSTANT: u16 = 0x8000;

impl Hot {
    /// Records the IPv4 identification of a segment, and whether the previous segment, a different one, had the same:
    /// then it is not evidence of a copy (RFC 6864 section 4.1 allows any value in a packet that is not fragmented).
    #[inline(always)]
    pub(crate) fn note_identification(&mut self, side: usize, identification: u16) {
        let is_same = (identification ^ self.identification[side]) & IDENTIFICATION == 0;
        self.identification[side] = (identification & IDENTIFICATION) | (u16::from(is_same) * IS_CONSTANT);
    }

    /// Returns whether a segment has the identification of the previous one.
    pub(crate) fn has_same_identification(&self, side: usize, identification: u16) -> bool {
        (identification ^ self.identification[side]) & IDENTIFICATION == 0
    }

    /// Returns whether two different segments had that identification.
    pub(crate) fn is_constant_identification(&self, side: usize) -> bool {
        self.identification[side] & IS_CONSTANT != 0
    }

    /// Times the segment that ends at `next`, unless one is timed.
    #[inline(always)]
    pub(crate) fn time(&mut self, side: usize, now: u32) {
        if self.marks[side] & mark::TIMING == 0 {
            self.marks[side] |= mark::TIMING;
            self.timed_end[side] = self.next[side];
            self.timed_at[side] = now;
        }
    }

    /// Returns the state for the next record of this connection: sequence numbers and handshake, not counters.
    pub(crate) fn carried(&self) -> Hot {
        let marks = self.marks.map(|marks| marks & !(mark::ACK | mark::DATA));
        Hot { marks, trouble: self.trouble | TROUBLE, history: 0, ..*self }
    }

    /// Marks the handshake as finished, independent of the SYN seen.
    pub(crate) fn note_established(&mut self, originator: usize) {
        for (side, mark) in [(originator, mark::SYN), (originator ^ 1, mark::SYN_ACK)] {
            if !self.has_seen_syn(side) {
                self.trouble |= UNSEEN_SYN << side;
            }
            self.marks[side] |= mark;
        }
    }

    /// Returns whether a SYN of this side was seen, so that its number is known.
    pub(crate) fn has_seen_syn(&self, side: usize) -> bool {
        self.marks[side] & (mark::SYN | mark::SYN_ACK) != 0 && self.trouble & UNSEEN_SYN << side == 0
    }

    /// See [`Record::is_late_syn`]; a SYN may carry payload, which is acknowledged with it (RFC 7413).
    pub(crate) fn is_late_syn(&self, cold: &Cold, facts: &Facts) -> bool {
        let ([side, _], sequence) = (facts.sides(), facts.segment.sequence);
        let is_expected = [0, facts.payload].contains(&cold.sides[side].isn.wrapping_sub(sequence));
        let is_first = self.marks[side] & mark::NEXT != 0 && !self.has_seen_syn(side);
        facts.flags & SYN != 0 && is_first && is_expected && beyond(sequence, self.next[side]) < 0
    }

    pub(crate) fn scale(&self, side: usize) -> Option<u8> {
        let scale = (self.marks[side] >> mark::SCALE) as u8;
        (scale != Options::NO_SCALE).then_some(scale)
    }
}

impl ColdSide {
    const NEW: ColdSide =
        ColdSide { squares: 0, least: u32::MAX, most: 0, sum: 0, isn: 0, count: 0, mss: 0, windows: [u16::MAX, 0] };

    /// Adds a round trip; false, and nothing is added, if it is invalid or does not fit.
    #[inline(always)]
    pub(crate) fn add(&mut self, time: u32) -> bool {
        let (count, many) = self.count.overflowing_add(1);
        let (sum, much) = self.sum.overflowing_add(time);
        let (squares, more) = self.squares.overflowing_add(u64::from(time) * u64::from(time));
        let fits = !(many | much | more) & (time as i32 >= 0);
        if fits {
            (self.count, self.sum, self.squares) = (count, sum, squares);
            self.least = self.least.min(time);
            self.most = self.most.max(time);
        }
        fits
    }

    /// Returns the state for the next record of this connection.
    pub(crate) fn carried(&self) -> ColdSide {
        ColdSide { isn: self.isn, mss: self.mss, ..ColdSide::NEW }
    }
}
