//! Memory layout of a flow: one cache line that every packet touches, and a rarely used part.
//!
//! Counters are narrow; overflow is carried to [`Spills`], once in 4 GiB or so. Times are the lower 48 bits of
//! nanoseconds, 78 hours: a flow lasts at most for two timeouts of twelve hours.

mod state;

pub(crate) use state::{CONTINUED, state_of};

use self::state::STATE;
use crate::facts::Facts;
use crate::flow::{Quality, Side};
use crate::key::{KEY_BITS, Words};
use crate::pages::{self, Pages};
use linerate_burst::Nanos;

/// Bytes of a record.
pub(crate) const BYTES: usize = size_of::<Hot>() + size_of::<Cold>();
/// Additional bytes of a record with a wide key.
pub(crate) const WIDE_BYTES: usize = size_of::<WideRecord>();

const _: () = assert!(size_of::<Hot>() == 64 && BYTES + 8 <= 96 && WIDE_BYTES == 64);

/// The wide part of a key, and data that only such packets have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WideRecord {
    pub key: crate::key::Wide,
    /// Id of the outer flow of the first packet.
    pub parent: u64,
    pub extensions: u8,
}

/// Line that every packet touches.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    pub ends: u64,
    /// The key, and in the uppermost byte the state.
    rest: u64,
    pub ways: [DirectionCounters; 2],
}

/// Counters of packets from the lower end, or from the higher one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct DirectionCounters {
    packets: u32,
    packet_bytes: u32,
    payload_bytes: u32,
    /// Bytes of the frames beyond those of the packets and of an Ethernet header each.
    excess: i16,
    pub flags: u8,
    /// In the lower end's `DirectionCounters`: start of the record, coarsely. In the higher end's: number of first packets listed.
    coarse: u8,
    /// Time of the latest packet (48 bits), then time to live and type of service of the last one.
    pub seen: u64,
}

/// Part that few packets touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cold {
    /// Time of the earliest packet of each direction.
    first: [u64; 2],
    ttl_least: [u8; 2],
    ttl_most: [u8; 2],
    tos: [u8; 2],
    marks: u16,
}

/// In `Cold::marks`: qualities that have another bit here; shifted by the direction, bits that are not qualities.
const DOUBTFUL_END: u16 = 1 << 7;
const TOO_DEEP: u16 = 1 << 8;
const DSCP_CHANGED: u16 = 1 << 10;
const ECT: u16 = 1 << 12;
const CE: u16 = 1 << 14;
/// Qualities that marks can hold.
const QUALITIES: u16 = 0x7f;
/// Besides qualities of a packet: it was held until a later one arrived, so its order does not indicate its time.
pub(crate) const HELD: u16 = 1 << 15;

/// The lowest bits of `seen`: TTL and TOS of the last packet.
const LOOK: u64 = 0xffff;
/// Length of an Ethernet header.
const LINK: i64 = 14;

impl Hot {
    /// Returns a free record that links to `next`.
    pub(crate) fn free(next: u32) -> Hot {
        Hot { ends: next.into(), rest: 0, ways: [DirectionCounters::NONE; 2] }
    }

    /// Returns the record of a flow's first packet.
    pub(crate) fn new(facts: &Facts, state: u8, coarse: u8) -> Hot {
        let seen = facts.time << 16;
        let way = DirectionCounters { seen, ..DirectionCounters::NONE };
        let rest = facts.words.rest | u64::from(state) << STATE;
        Hot { ends: facts.words.ends, rest, ways: [DirectionCounters { coarse, ..way }, way] }
    }

    #[inline(always)]
    pub(crate) fn is_free(&self) -> bool {
        self.rest == 0
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> Words {
        Words { ends: self.ends, rest: self.rest & KEY_BITS }
    }

    /// Returns whether the two words of a key are these, in the bits of `mask`.
    #[inline(always)]
    pub(crate) fn has(&self, words: Words, mask: u64) -> bool {
        (self.ends ^ words.ends) | ((self.rest ^ words.rest) & mask) == 0
    }

    /// Returns whether no packet of this direction was counted.
    #[inline(always)]
    pub(crate) fn is_first(&self, side: usize) -> bool {
        self.ways[side & 1].packets == 0
    }

    /// Returns the number of first packets listed.
    #[inline(always)]
    pub(crate) fn listed(&self) -> u8 {
        self.ways[1].coarse
    }

    #[inline(always)]
    pub(crate) fn set_listed(&mut self, listed: u8) {
        self.ways[1].coarse = listed;
    }

    /// Returns whether one packet of this direction was counted.
    pub(crate) fn is_one_packet_of(&self, side: usize) -> bool {
        self.ways[side & 1].packets == 1
    }

    pub(crate) fn is_one_packet(&self) -> bool {
        u64::from(self.ways[0].packets) + u64::from(self.ways[1].packets) == 1
    }

    /// Counts a packet on the fast path: the newest of its direction, with known flags, TTL and TOS, neither idle for
    /// longer than `idle` nor possibly older than `active` in coarse units. Otherwise changes nothing and returns
    /// false.
    #[inline(always)]
    pub(crate) fn count(&mut self, facts: &Facts, idle: u64, coarse: u8, active: u8) -> bool {
        let ended = self.has_ended();
        let age = coarse.wrapping_sub(self.ways[0].coarse);
        let [side, _] = facts.sides();
        let other = self.ways[side ^ 1].seen;
        let way = &mut self.ways[side];
        let now = facts.time << 16;
        let since = now.wrapping_sub(way.seen & !LOOK);
        let gap = since.min(now.wrapping_sub(other & !LOOK));
        let look = facts.look();
        let (packets, much) = way.packets.overflowing_add(1);
        let (packet_bytes, more) = way.packet_bytes.overflowing_add(facts.packet);
        let (payload_bytes, most) = way.payload_bytes.overflowing_add(facts.payload);
        let excess = i64::from(way.excess) + facts.excess();
        let is_usual = facts.is_usual
            & !ended
            & (age < active)
            & (gap <= idle)
            & (since as i64 >= 0)
            & (way.seen & LOOK == look)
            & (packets > 1)
            & !(much | more | most)
            & (excess == i64::from(excess as i16));
        if is_usual {
            way.packets = packets;
            way.packet_bytes = packet_bytes;
            way.payload_bytes = payload_bytes;
            way.excess = excess as i16;
            way.flags |= facts.flags;
            way.seen = now | look;
        }
        is_usual
    }
}

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const ACK: u8 = 16;

impl DirectionCounters {
    const NONE: DirectionCounters =
        DirectionCounters { packets: 0, packet_bytes: 0, payload_bytes: 0, excess: 0, flags: 0, coarse: 0, seen: 0 };
}

/// Overflow of counters, by record and direction: packets, packet bytes, payload bytes, excess.
#[derive(Default)]
pub(crate) struct Spills(Pages<[[i64; 4]; 2]>);

/// Maximum number of bytes of spills per record.
pub(crate) const SPILL_BYTES: usize = pages::bytes::<[[i64; 4]; 2]>();

impl Cold {
    pub(crate) const NONE: Cold =
        Cold { first: [u64::MAX; 2], ttl_least: [u8::MAX; 2], ttl_most: [0; 2], tos: [0; 2], marks: 0 };

    /// Returns the time of the earliest packet.
    pub(crate) fn began(&self) -> u64 {
        self.first[0].min(self.first[1])
    }

    /// Returns the time of the latest packet.
    pub(crate) fn ended(&self, hot: &Hot) -> u64 {
        self.last(hot, 0).max(self.last(hot, 1))
    }

    /// Returns the time of the latest packet of a direction; 0 if there was none.
    fn last(&self, hot: &Hot, side: usize) -> u64 {
        let first = self.first[side];
        if first == u64::MAX {
            return 0;
        }
        first.wrapping_add((hot.ways[side].seen & !LOOK).wrapping_sub(first << 16) >> 16)
    }

    /// Returns the ns by which a packet is later than all earlier ones of its direction, or older; `None` for the first
    /// one.
    pub(crate) fn gap(&self, hot: &Hot, facts: &Facts) -> Option<u64> {
        let [side, _] = facts.sides();
        let first = self.first[side];
        let later = facts.time.saturating_sub(self.last(hot, side));
        (first != u64::MAX).then(|| later + first.saturating_sub(facts.time))
    }

    pub(crate) fn qualities(&self) -> u16 {
        let others = [(DOUBTFUL_END, Quality::DOUBTFUL_END), (TOO_DEEP, Quality::TOO_DEEP)];
        let set = others.iter().filter(|(mark, _)| self.marks & mark != 0);
        set.fold(self.marks & QUALITIES, |all, (_, quality)| all | quality.0)
    }

    /// Records a FIN or RST that ends nothing.
    pub(crate) fn note_doubtful_end(&mut self) {
        self.marks |= DOUBTFUL_END;
    }

    /// Counts any packet of the flow; `coarse` is the start in coarse units.
    pub(crate) fn count(
        &mut self,
        hot: &mut Hot,
        facts: &Facts,
        (spills, record): (&mut Spills, u32),
        coarse: impl Fn(u64) -> u8,
    ) {
        let [side, _] = facts.sides();
        let is_first = self.first[side] == u64::MAX;
        let last = self.last(hot, side);
        if facts.time < self.began() {
            hot.ways[0].coarse = coarse(facts.time);
        }
        self.first[side] = self.first[side].min(facts.time);
        self.ttl_least[side] = self.ttl_least[side].min(facts.ttl);
        self.ttl_most[side] = self.ttl_most[side].max(facts.ttl);
        self.marks |= facts.quality & QUALITIES;
        if facts.quality & Quality::TOO_DEEP.0 != 0 {
            self.marks |= TOO_DEEP;
        }
        if is_first {
            self.tos[side] = facts.tos;
        } else if (self.tos[side] ^ facts.tos) >> 2 != 0 {
            self.marks |= DSCP_CHANGED << side;
        }
        match facts.tos & 3 {
            0 => {}
            3 => self.marks |= CE << side,
            _ => self.marks |= ECT << side,
        }
        if !is_first && facts.time < last && facts.quality & HELD == 0 {
            self.marks |= Quality::OUT_OF_TIME.0;
        }
        let way = &mut hot.ways[side];
        way.seen = facts.time.max(last) << 16 | facts.look();
        way.flags |= facts.flags;
        let sums = [
            i64::from(way.packets) + 1,
            i64::from(way.packet_bytes) + i64::from(facts.packet),
            i64::from(way.payload_bytes) + i64::from(facts.payload),
            i64::from(way.excess) + facts.excess(),
        ];
        let fits = sums[..3].iter().all(|sum| u32::try_from(*sum).is_ok()) && i16::try_from(sums[3]).is_ok();
        let kept = if fits { sums } else { spills.carry(record, side, sums) };
        way.packets = kept[0] as u32;
        way.packet_bytes = kept[1] as u32;
        way.payload_bytes = kept[2] as u32;
        way.excess = kept[3] as i16;
    }

    /// Returns the record of a direction.
    pub(crate) fn side(&self, hot: &Hot, side: usize, spills: &Spills, record: u32) -> Side {
        let way = &hot.ways[side];
        let spilt = spills.of(record, side);
        let packets = i64::from(way.packets) + spilt[0];
        if packets == 0 {
            return Side::default();
        }
        let packet_bytes = i64::from(way.packet_bytes) + spilt[1];
        let has = |mark: u16| self.marks & mark << side != 0;
        Side {
            packets: packets as u64,
            frame_bytes: (packet_bytes + packets * LINK + i64::from(way.excess) + spilt[3]) as u64,
            packet_bytes: packet_bytes as u64,
            payload_bytes: (i64::from(way.payload_bytes) + spilt[2]) as u64,
            first: Nanos(self.first[side]),
            last: Nanos(self.last(hot, side)),
            tcp_flags: way.flags,
            ttl: [self.ttl_least[side], self.ttl_most[side]],
            tos: self.tos[side],
            dscp_changed: has(DSCP_CHANGED),
            ect: has(ECT),
            ce: has(CE),
        }
    }
}

impl Hot {
    /// Returns the packets of both directions.
    pub(crate) fn packets(&self, spills: &Spills, record: u32) -> u64 {
        [0, 1].map(|side| i64::from(self.ways[side].packets) + spills.of(record, side)[0]).iter().sum::<i64>() as u64
    }
}

impl Spills {
    /// Carries all but at most two packets: the rest shows that there were some, or more than one.
    fn carry(&mut self, record: u32, side: usize, sums: [i64; 4]) -> [i64; 4] {
        let kept = [sums[0].min(2), 0, 0, 0];
        let spilt = &mut self.0.at(record)[side & 1];
        spilt.iter_mut().zip(sums).zip(kept).for_each(|((spilt, sum), kept)| *spilt += sum - kept);
        kept
    }

    fn of(&self, record: u32, side: usize) -> [i64; 4] {
        self.0.get(record).map_or([0; 4], |spilt| spilt[side & 1])
    }

    /// Clears the spills of a record that has ended.
    pub(crate) fn forget(&mut self, record: u32) {
        self.0.take(record);
    }
}

impl Facts {
    /// Returns the bytes of the frame beyond its packet and an Ethernet header.
    #[inline(always)]
    pub(crate) fn excess(&self) -> i64 {
        i64::from(self.frame) - i64::from(self.packet) - LINK
    }

    /// Returns the fields of which the last value is kept: time to live and type of service.
    #[inline(always)]
    pub(crate) fn look(&self) -> u64 {
        u64::from(self.ttl) << 8 | u64::from(self.tos)
    }
}

/// Returns the age of a time of 48 bits in units of 2^-16 ns; negative if it is in the future.
#[inline(always)]
pub(crate) fn age(now: u64, seen: u64) -> i64 {
    (now << 16).wrapping_sub(seen & !LOOK) as i64
}
