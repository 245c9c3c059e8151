//! A sender and a seeded link with all kinds of faults: the delivered data equals the sent data.

use super::peer::*;
use linerate_burst::{Count, Nanos};
use linerate_headers::tcp::Flags;
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::{AckPolicy, Config};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Random numbers from a seed (SplitMix64).
pub(super) struct Chance(pub u64);

impl Chance {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Returns true this many times in a thousand.
    pub(super) fn hits(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Returns the byte at an offset.
pub(super) fn byte(seed: u64, offset: u64) -> u8 {
    (((offset >> 3) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (8 * (offset & 7))) as u8
}

/// Faults of a wire, per thousand frames each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub drop: u64,
    pub burst: u64,
    pub repeat: u64,
    pub corrupt: u64,
    pub truncate: u64,
    pub pad: u64,
    pub reorder: u64,
    /// Maximum delay of a late frame in microseconds.
    pub late: u64,
    pub lost_acks: u64,
    /// Retransmissions start with bytes sent before, changed.
    pub overlap: u64,
    /// Room becomes free in pieces of this many bytes; 0: unlimited.
    pub room: u64,
}

const LATENCY: u64 = 50_000;
const RTO: Duration = Duration::from_millis(200);

/// Time of arrival, number, whether it is for the endpoint, and its bytes.
type InFlightFrame = (Nanos, u64, bool, Vec<u8>);

struct World {
    rig: Rig,
    conn: Conn,
    chance: Chance,
    seed: u64,
    faults: Faults,
    total: u64,
    sizes: &'static [u64],
    /// Frames on the wire.
    wire: BinaryHeap<Reverse<InFlightFrame>>,
    number: u64,
    losing: u64,
    una: u64,
    next: u64,
    right: u64,
    retry_at: Nanos,
    stamp: u32,
    is_closed: bool,
    promised: u64,
}

/// Runs a connection of `total` bytes to its end.
pub(super) fn run(seed: u64, total: u64, faults: Faults, config: Config, sizes: &'static [u64]) -> Rig {
    let mut chance = Chance(seed);
    let mut rig = Rig::new(config);
    if faults.room > 0 {
        rig.memory.room = faults.room;
    }
    let mut first = Seg::new(Flags::SYN, chance.one(&[0, 1, 0xffff_fff0, 0x7fff_ffff, 0xffff_0000, 99]), 0, &[]);
    if chance.hits(300) {
        (first.from, first.to) = ((v6(2), 40001), (v6(1), PORT));
    }
    if chance.hits(200) {
        first.tags = vec![7];
    }
    if !chance.hits(250) {
        first.options = syn_options();
    }
    let conn = rig.connect_as(&first);
    let mut world = World {
        conn,
        seed,
        faults,
        total,
        sizes,
        wire: BinaryHeap::new(),
        number: 0,
        losing: 0,
        una: 0,
        next: 0,
        right: 65535.min(rig.memory.room),
        retry_at: rig.now,
        stamp: 1001,
        is_closed: false,
        promised: 0,
        rig,
        chance,
    };
    let mut steps = 0u64;
    while !(world.is_closed && world.rig.endpoint.connections() == 0) {
        steps += u64::from(world.step());
        assert!(steps < 40 * total + 200_000, "seed {seed}: no end: {} of {total} {faults:?}", world.una);
    }
    let stream = world.rig.memory.one();
    assert_eq!(stream.ending, Some(Ending::Complete), "seed {seed}");
    assert_eq!(stream.bytes.len() as u64, total, "seed {seed}");
    for (offset, got) in stream.bytes.iter().enumerate() {
        assert_eq!(*got, byte(seed, offset as u64), "seed {seed}, byte {offset}, {faults:?}");
    }
    assert_eq!(world.rig.count(Count::TcpBytes), total);
    world.rig
}

impl World {
    /// Runs the next event; false if it is a timer of the endpoint.
    fn step(&mut self) -> bool {
        let due = self.rig.endpoint.deadline().unwrap_or(Nanos::MAX).min(self.retry_at);
        let arrives = self.wire.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
        let next = due.min(arrives);
        assert!(next != Nanos::MAX, "seed {}: deadlock, no event is pending", self.seed);
        if next > self.rig.now {
            // No more events at this time: the queue is dry.
            self.rig.endpoint.burst_end(true, self.rig.now, &mut self.rig.memory);
            self.collect();
        }
        self.rig.now = self.rig.now.max(next);
        if arrives <= due {
            let Reverse((_, _, is_in, frame)) = self.wire.pop().unwrap();
            if is_in { self.arrive(&frame) } else { self.receive(&frame) }
        } else if self.retry_at <= self.rig.now {
            self.retry();
        } else {
            self.rig.endpoint.tick(self.rig.now, &mut self.rig.memory);
        }
        self.consume();
        self.collect();
        arrives <= due || self.retry_at == due
    }

    fn arrive(&mut self, frame: &[u8]) {
        self.rig.receive(frame);
        if self.chance.hits(200) {
            let is_dry = self.chance.hits(300);
            self.rig.endpoint.burst_end(is_dry, self.rig.now, &mut self.rig.memory);
        }
    }

    /// The consumer frees some memory now and then.
    fn consume(&mut self) {
        if self.faults.room > 0 && self.chance.hits(100) {
            let piece = self.chance.below(self.faults.room) + 1;
            let stream = self.rig.memory.one_mut();
            stream.room = (stream.room + piece).min(stream.edge + self.faults.room).max(stream.room);
        }
    }

    fn collect(&mut self) {
        let frames: Vec<Vec<u8>> = self.rig.endpoint.frames().iter().map(|(_, frame)| frame.to_vec()).collect();
        let unsent = if frames.len() > 1 && self.chance.hits(20) { 1 } else { 0 };
        self.rig.endpoint.clear(unsent);
        for frame in &frames[..frames.len() - unsent] {
            if read(frame).flags.contains(Flags::RST) {
                // A segment that arrived after everything had ended.
                assert_eq!(self.rig.endpoint.connections(), 0, "seed {}: reset", self.seed);
                // Its own FIN may have been lost each time.
                self.is_closed |= self.una > self.total;
                continue;
            }
            self.check(frame);
            if !self.chance.hits(self.faults.lost_acks) {
                let late = if self.chance.hits(self.faults.reorder) { self.chance.below(2_000_000) } else { 0 };
                self.put(LATENCY + late, false, frame.clone());
            }
        }
    }

    fn put(&mut self, after: u64, is_in: bool, frame: Vec<u8>) {
        self.number += 1;
        self.wire.push(Reverse((self.rig.now.after(Duration::from_nanos(after)), self.number, is_in, frame)));
    }

    /// Checks that everything sent is true.
    fn check(&mut self, frame: &[u8]) {
        let reply = read(frame);
        let stream = self.rig.memory.one();
        let edge = stream.edge;
        let ack = edge as i64 + i64::from(reply.ack.wrapping_sub(self.conn.seq(edge)) as i32);
        let fin = i64::from(stream.ending.is_some());
        assert!(ack >= 0 && ack <= edge as i64 + fin, "seed {}: acknowledged {ack}, received {edge}", self.seed);
        let right = ack as u64 + (u64::from(reply.window) << self.conn.scale);
        let grain = 1 << self.conn.scale;
        // If the room is less than the unit of a window, one unit is announced.
        let most = if reply.window == 1 { grain - 1 } else { 0 };
        assert!(right <= stream.room + fin as u64 + most, "seed {}: {right} promised", self.seed);
        assert!(
            right + grain > self.promised || fin > 0,
            "seed {}: window edge {right} after {}",
            self.seed,
            self.promised
        );
        self.promised = self.promised.max(right);
        for (start, end) in reply.blocks {
            let offset = |seq: u32| (edge as i64 + i64::from(seq.wrapping_sub(self.conn.seq(edge)) as i32)) as usize;
            let (start, end) = (offset(start), offset(end));
            assert!(start < end && stream.is_there[start..end].iter().all(|there| *there), "{start}..{end}");
        }
    }

    /// Processes a segment at the sender.
    fn receive(&mut self, frame: &[u8]) {
        let reply = read(frame);
        assert!(!reply.flags.contains(Flags::RST), "seed {}: reset", self.seed);
        let ack = self.una as i64 + i64::from(reply.ack.wrapping_sub(self.conn.seq(self.una)) as i32);
        if ack < self.una as i64 {
            return;
        }
        let has_moved = ack as u64 > self.una;
        self.una = ack as u64;
        self.next = self.next.max(self.una);
        self.right = self.right.max(self.una + (u64::from(reply.window) << self.conn.scale));
        if reply.flags.contains(Flags::FIN) && self.una > self.total {
            self.is_closed = true;
            self.conn.peer = reply.seq.wrapping_add(1);
            let last = self.segment(self.total + 1, 0);
            self.transmit(last);
            self.retry_at = self.rig.now.after(RTO);
            return;
        }
        if has_moved {
            self.retry_at = self.rig.now.after(RTO);
        }
        if reply.blocks.len() > 1 && self.chance.hits(300) {
            let size = self.chance.one(self.sizes);
            let again = self.segment(self.una, size);
            self.transmit(again);
        }
        self.send_more();
    }

    fn send_more(&mut self) {
        for _ in 0..self.chance.below(40) + 1 {
            let room = self.right.min(self.total).saturating_sub(self.next);
            let is_last = self.next >= self.total;
            if (room == 0 && !is_last) || self.next > self.total {
                return;
            }
            let size = self.chance.one(self.sizes).min(room);
            let segment = self.segment(self.next, size);
            self.next += segment.payload.len() as u64 + u64::from(segment.flags.contains(Flags::FIN));
            self.transmit(segment);
        }
    }

    fn retry(&mut self) {
        self.retry_at = self.rig.now.after(RTO);
        if self.is_closed {
            let last = self.segment(self.total + 1, 0);
            return self.transmit(last);
        }
        if self.next == 0 {
            return self.send_more();
        }
        if self.una >= self.right && self.una < self.total {
            // A probe, of either kind.
            let probe =
                if self.chance.hits(500) { self.segment(self.una, 1) } else { self.segment(self.una.max(1) - 1, 0) };
            return self.transmit(probe);
        }
        let size = self.chance.one(self.sizes).min(self.right.min(self.total).saturating_sub(self.una));
        let mut segment = self.segment(self.una, size);
        if self.chance.hits(self.faults.overlap) && self.una > 0 {
            let before = self.chance.below(self.una.min(3000)) + 1;
            let garbage: Vec<u8> = (0..before).map(|_| self.chance.next() as u8).collect();
            segment.seq = segment.seq.wrapping_sub(before as u32);
            segment.payload.splice(0..0, garbage);
        }
        self.transmit(segment);
        self.send_more();
    }

    fn segment(&mut self, offset: u64, size: u64) -> Seg {
        let size = size.min(self.total.saturating_sub(offset)).min(60_000);
        let payload: Vec<u8> = (offset..offset + size).map(|at| byte(self.seed, at)).collect();
        let is_last = offset + size == self.total;
        let flags = Flags::ACK
            | if is_last { Flags::FIN } else { Flags(0) }
            | if self.chance.hits(100) { Flags::PSH } else { Flags(0) };
        if self.chance.hits(300) {
            self.stamp += 1;
        }
        self.conn.stamp = self.conn.stamp.map(|(_, echo)| (self.stamp, echo));
        self.conn.seg(flags, offset, &payload)
    }

    fn transmit(&mut self, segment: Seg) {
        if self.losing > 0 {
            self.losing -= 1;
            return;
        }
        if self.chance.hits(self.faults.burst) {
            self.losing = self.chance.below(90) + 10;
        }
        if self.chance.hits(self.faults.drop) {
            return;
        }
        let mut frame = segment.frame();
        let network = frame.len() - segment.packet().len();
        if self.chance.hits(self.faults.corrupt) {
            let at = network as u64 + self.chance.below((frame.len() - network) as u64);
            frame[at as usize] ^= 1 << self.chance.below(8);
        }
        if self.chance.hits(self.faults.truncate) {
            frame.truncate(self.chance.below(frame.len() as u64) as usize + 1);
        }
        if self.chance.hits(self.faults.pad) {
            let more = self.chance.below(20) as usize;
            let pad = self.chance.next() as u8;
            frame.extend(std::iter::repeat_n(pad, more));
        }
        let late = if self.chance.hits(self.faults.reorder) { 1000 * self.chance.below(self.faults.late) } else { 0 };
        if self.chance.hits(self.faults.repeat) {
            let later = self.chance.below(3_000_000);
            self.put(LATENCY + later, true, frame.clone());
        }
        self.put(LATENCY + late, true, frame);
    }
}

const MIXED: &[u64] = &[1, 536, 1460, 1460, 1460, 8000, 60_000];
const USUAL: &[u64] = &[1460];

fn any_faults(chance: &mut Chance) -> Faults {
    Faults {
        drop: chance.one(&[0, 0, 1, 10, 50]),
        burst: chance.one(&[0, 0, 0, 2]),
        repeat: chance.one(&[0, 0, 10, 200]),
        corrupt: chance.one(&[0, 0, 10]),
        truncate: chance.one(&[0, 0, 10]),
        pad: chance.one(&[0, 500]),
        reorder: chance.one(&[0, 0, 10, 200, 1000]),
        late: chance.one(&[10, 500, 5000]),
        lost_acks: chance.one(&[0, 0, 10, 500]),
        overlap: chance.one(&[0, 500]),
        room: chance.one(&[0, 0, 3000, 65_536, 300_000]),
    }
}

/// Each seed is another connection over another wire.
fn seeds(range: std::ops::Range<u64>) {
    for seed in range {
        let mut chance = Chance(seed ^ 0x5eed);
        let faults = any_faults(&mut chance);
        let acks = chance.one(&[
            AckPolicy::Adaptive,
            AckPolicy::Adaptive,
            AckPolicy::Burst,
            AckPolicy::Bytes(50_000),
            AckPolicy::Segments(2),
        ]);
        let window = chance.one(&[1 << 14, 65_535, 1 << 20, 64 << 20]);
        let sizes = chance.one(&[MIXED, USUAL, USUAL, &[1][..]]);
        let total = if sizes.len() == 1 && sizes[0] == 1 { 300 } else { chance.one(&[0, 1, 5000, 100_000, 700_000]) };
        let config = Config { acks, window, max_gaps: chance.one(&[1, 4, 64]), ..config() };
        run(seed, total, faults, config, sizes);
    }
}

#[test]
fn delivered_data_equals_sent_data() {
    let seeds_there = std::env::var("LINERATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    seeds(0..seeds_there);
}
