//! Consumers that free memory late, and a sender that sends whatever the window allows, however little.

use super::model::byte;
use super::peer::*;
use linerate_burst::Count;
use linerate_headers::tcp::Flags;
use linerate_transport::stream_memory::Ending;
use std::time::Duration;

const ROOM: u64 = 20_000;
const MSS: u64 = 1448;
const SEED: u64 = 11;

/// A peer without congestion or silly-window avoidance: it waits neither for more data nor for more room.
struct Sender {
    conn: Conn,
    next: u64,
    right: u64,
    segments: u64,
}

impl Sender {
    fn new(rig: &mut Rig) -> Self {
        let conn = rig.connect(5, false);
        Sender { conn, next: 0, right: ROOM, segments: 0 }
    }

    fn receive(&mut self, replies: &[Reply]) {
        for reply in replies {
            self.next = u64::from(reply.ack.wrapping_sub(self.conn.seq(0)));
            self.right = self.next + (u64::from(reply.window) << self.conn.scale);
        }
    }

    /// Sends one segment, as long as the window allows.
    fn send(&mut self, rig: &mut Rig) {
        let size = MSS.min(self.right - self.next);
        let payload: Vec<u8> = (self.next..self.next + size).map(|at| byte(SEED, at)).collect();
        self.segments += 1;
        let replies = rig.send(&self.conn.data(self.next, &payload));
        self.next += size;
        self.receive(&replies);
    }

    fn wait(&mut self, rig: &mut Rig, time: Duration) -> usize {
        let replies = rig.pass(time);
        self.receive(&replies);
        replies.len()
    }

    fn fill(&mut self, rig: &mut Rig) {
        while self.right > self.next {
            self.send(rig);
        }
    }
}

fn is_right(rig: &Rig) -> bool {
    let stream = rig.memory.one();
    stream.bytes.iter().enumerate().all(|(at, got)| *got == byte(SEED, at as u64))
}

#[test]
fn consumer_freeing_single_bytes_gets_whole_segments() {
    let mut rig = Rig::new(config());
    rig.memory.room = ROOM;
    let mut sender = Sender::new(&mut rig);
    sender.fill(&mut rig);
    while rig.memory.one().edge < 10 * ROOM {
        rig.memory.one_mut().room += 1;
        sender.wait(&mut rig, Duration::from_micros(10));
        sender.fill(&mut rig);
    }
    // At most one partial segment at the end of each window.
    let least = 10 * ROOM / MSS;
    assert!(sender.segments <= 3 * least, "{} segments instead of {least}", sender.segments);
    assert!(is_right(&rig));
}

#[test]
fn consumer_stalled_for_a_minute_loses_no_data_or_peer() {
    for is_update_lost in [false, true] {
        let mut rig = Rig::new(config());
        rig.memory.room = ROOM;
        let mut sender = Sender::new(&mut rig);
        sender.fill(&mut rig);
        assert_eq!((rig.memory.one().edge, sender.right), (ROOM, ROOM), "closed");
        let (mut waited, mut wait) = (Duration::ZERO, Duration::from_millis(200));
        while waited < Duration::from_secs(60) {
            assert_eq!(sender.wait(&mut rig, wait), 0, "no probe was sent");
            let probe = sender.conn.data(ROOM, &[byte(SEED, ROOM)]);
            let replies = rig.send(&probe);
            assert_eq!(replies.len(), 1);
            assert_eq!((replies[0].window, replies[0].ack), (0, sender.conn.seq(ROOM)));
            (waited, wait) = (waited + wait, wait * 2);
        }
        assert_eq!((rig.memory.one().edge, rig.count(Count::TcpZeroWindows) > 8), (ROOM, true));
        rig.memory.one_mut().room += ROOM;
        if is_update_lost {
            assert_eq!(rig.pass(Duration::from_secs(5)).len(), 1, "sent once, unsolicited");
        } else {
            assert_eq!(sender.wait(&mut rig, Duration::from_millis(10)), 1);
            assert!(sender.right > ROOM + ROOM / 2);
        }
        // The next probe carries a byte, and is acknowledged.
        sender.right = sender.right.max(ROOM + 1);
        sender.fill(&mut rig);
        let end = rig.memory.one().edge;
        assert!(end >= 2 * ROOM - 2048 && is_right(&rig), "{end}");
        assert!(rig.send(&sender.conn.seg(Flags(0x11), end, &[]))[0].is(Flags(0x11)));
    }
}

/// A window of less than its unit is announced as one unit. The excess is in flight at the sender: it would retransmit
/// it only after minutes, if it has tried for as long.
#[test]
fn data_beyond_the_window_is_acknowledged_when_space_is_freed() {
    let mut rig = Rig::new(config());
    rig.memory.room = ROOM;
    let mut sender = Sender::new(&mut rig);
    let (unit, mut at) = (1 << sender.conn.scale, 0);
    assert!(unit > 1 && !ROOM.is_multiple_of(unit), "{unit}");
    let send = |rig: &mut Rig, from: u64, to: u64| {
        let payload: Vec<u8> = (from..to).map(|at| byte(SEED, at)).collect();
        rig.send(&sender.conn.data(from, &payload))
    };
    while at + unit <= ROOM {
        send(&mut rig, at, at + unit);
        at += unit;
    }
    let end = at + unit;
    for _ in 0..3 {
        let replies = send(&mut rig, at, end);
        assert_eq!((replies[0].ack, replies[0].window), (sender.conn.seq(ROOM), 0), "limited by the free space");
        assert!(rig.pass(Duration::from_secs(20)).is_empty());
    }
    rig.memory.one_mut().room += ROOM;
    let replies = rig.pass(Duration::from_millis(10));
    assert_eq!((replies.len(), replies[0].ack), (1, sender.conn.seq(end)), "all of it, unsolicited");
    assert_eq!((rig.memory.one().edge, is_right(&rig)), (end, true));
    sender.receive(&replies);
    sender.fill(&mut rig);
    assert!(rig.memory.one().edge > 2 * ROOM - unit && is_right(&rig));
}

#[test]
fn early_fin_ends_the_stream_after_the_last_bytes() {
    for (is_separate, is_plain) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut rig = Rig::new(config());
        let conn = rig.connect(5, is_plain);
        rig.send(&conn.data(0, &[1; 10]));
        let (at, payload) = if is_separate { (110, 0) } else { (60, 50) };
        assert!(rig.send(&conn.seg(Flags(0x11), at, &vec![1; payload]))[0].is(Flags::ACK));
        let replies = rig.send(&conn.data(10, &vec![1; at as usize - 10]));
        assert!(replies[0].is(Flags(0x11)) && replies[0].ack == conn.seq(111), "{replies:?}");
        assert_eq!((rig.memory.one().ending, rig.memory.one().bytes.len()), (Some(Ending::Complete), 110));
    }
}

#[test]
fn multiple_duplicate_ranges_report_the_first() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let mut first_block = |at: u64, len: usize| rig.send(&conn.data(at, &vec![0; len])).remove(0).blocks[0];
    assert_eq!(first_block(100, 50), (conn.seq(100), conn.seq(150)));
    assert_eq!(first_block(200, 50), (conn.seq(200), conn.seq(250)));
    assert_eq!(first_block(50, 220), (conn.seq(100), conn.seq(150)), "the first of two");
    assert_eq!(first_block(0, 60), (conn.seq(50), conn.seq(60)), "including the gap before it");
    assert_eq!(first_block(260, 100), (conn.seq(260), conn.seq(270)), "in order");
}

#[test]
fn syn_window_does_not_exceed_free_space() {
    for (room, window) in [(1, 1), (4096, 4096), (1 << 20, 65535)] {
        let mut rig = Rig::new(config());
        rig.memory.room = room;
        assert_eq!(rig.send(&Seg::new(Flags::SYN, 5, 0, &[]))[0].window, window);
    }
}
