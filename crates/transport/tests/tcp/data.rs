//! Requirements of RFC 9293 and its companions on a receiver, clause by clause: data, ACKs, windows.

use super::model::{Chance, byte};
use super::peer::*;
use linerate_burst::Count;
use linerate_headers::tcp::Flags;
use linerate_headers::{Link, Sum};
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::{AckPolicy, Arrival, Checksum, Config, NextSegment, ReceiveOutcome};
use std::time::Duration;

const ACK: Flags = Flags::ACK;

/// A connection past its start, which no longer acknowledges every second segment.
fn grown(config: Config, is_plain: bool) -> (Rig, Conn, u64) {
    let mut rig = Rig::new(config);
    let conn = rig.connect(5, is_plain);
    for at in 0..40 {
        rig.send(&conn.seg(ACK | Flags::PSH, at, b"x"));
    }
    (rig, conn, 40)
}

#[test]
fn gap_and_its_end_are_acknowledged_at_once() {
    for is_plain in [true, false] {
        let (mut rig, conn, at) = grown(config(), is_plain);
        assert_eq!(rig.at_once(&conn.data(at, b"x")), [], "what is in order waits for the end of the burst");
        for step in 1..4 {
            let acks = rig.at_once(&conn.data(at + 10 * step, b"0123"));
            assert_eq!((acks.len(), acks[0].ack), (1, conn.seq(at + 1)), "never past a gap");
        }
        let acks = rig.at_once(&conn.data(at + 1, &[0; 9]));
        assert_eq!((acks.len(), acks[0].ack), (1, conn.seq(at + 14)));
        assert_eq!(rig.at_once(&conn.data(at + 14, &[0; 6]))[0].ack, conn.seq(at + 24));
        assert_eq!(rig.at_once(&conn.data(at + 24, &[0; 6]))[0].ack, conn.seq(at + 34));
        assert_eq!(rig.memory.one().edge, at + 34);
    }
}

#[test]
fn sack_blocks_list_the_latest_first() {
    let (mut rig, conn, _) = grown(config(), false);
    let block = |start: u64, end: u64| (conn.seq(start), conn.seq(end));
    let mut send = |offset: u64| rig.send(&conn.data(offset, &[0; 10])).remove(0).blocks;
    assert_eq!(send(100), [block(100, 110)]);
    assert_eq!(send(300), [block(300, 310), block(100, 110)]);
    assert_eq!(send(200), [block(200, 210), block(300, 310), block(100, 110)]);
    assert_eq!(send(400), [block(400, 410), block(200, 210), block(300, 310)], "three with timestamps");
    assert_eq!(send(110), [block(100, 120), block(400, 410), block(200, 210)], "the range that grew");
    // The duplicate comes first, then the range it is a part of (RFC 2883).
    assert_eq!(send(300), [block(300, 310), block(300, 310), block(100, 120)]);
    assert_eq!(send(110), [block(110, 120), block(100, 120), block(400, 410)]);
    assert_eq!(send(10), [block(10, 20), block(100, 120), block(400, 410)], "below the edge");
    assert_eq!(send(500), [block(500, 510), block(100, 120), block(400, 410)], "reported once");
}

#[test]
fn gaps_above_the_limit_are_dropped_and_counted() {
    let (mut rig, conn, at) = grown(Config { max_gaps: 3, ..config() }, false);
    for step in 1..10 {
        rig.send(&conn.data(at + 10 * step, b"01234"));
    }
    assert_eq!((rig.count(Count::TcpTooManyGaps), rig.count(Count::TcpOutOfOrder)), (6, 3));
    // Missing data is still accepted.
    assert_eq!(rig.send(&conn.data(at, &[0; 100]))[0].ack, conn.seq(at + 100));
}

#[test]
fn first_received_data_is_kept() {
    let (mut rig, conn, at) = grown(config(), false);
    rig.send(&conn.data(at + 5, b"first"));
    rig.send(&conn.data(at, b"SECOND SECOND"));
    rig.send(&conn.data(at + 3, b"thirdthirdthird"));
    assert_eq!(&rig.memory.one().bytes[at as usize..], b"SECONfirstONDthird");
    assert_eq!(rig.count(Count::TcpDuplicateBytes), 5 + 10);
}

#[test]
fn timestamps_are_echoed_and_old_ones_rejected() {
    let (mut rig, mut conn, at) = grown(config(), false);
    let stamp = conn.stamp.unwrap();
    conn.stamp = Some((stamp.0 + 100, stamp.1));
    rig.receive(&conn.data(at, b"a").frame());
    conn.stamp = Some((stamp.0 + 200, stamp.1));
    rig.receive(&conn.data(at + 1, b"b").frame());
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    let echo = |replies: Vec<Reply>| replies[0].stamps.unwrap().1;
    assert_eq!(echo(rig.replies()), stamp.0 + 100, "of the segment that the ACK waited for (RFC 7323 section 4.3)");
    conn.stamp = Some((stamp.0 + 300, stamp.1));
    assert_eq!(echo(rig.send(&conn.data(at + 9, b"gap"))), stamp.0 + 100, "not of one after a gap");
    let mut old = conn.clone();
    old.stamp = Some((stamp.0 + 50, stamp.1));
    rig.send(&old.data(at + 2, b"c"));
    assert_eq!((rig.count(Count::TcpStale), rig.memory.one().edge), (1, at + 2));
    conn.stamp = None;
    assert_eq!(rig.send(&conn.data(at + 2, b"c")), []);
    assert_eq!(rig.count(Count::TcpNoTimestamp), 1);
    // Not for a RST, and not after 24 days.
    rig.pass(Duration::from_secs(100));
    let mut rig = Rig::new(Config { idle: None, ..config() });
    let mut conn = rig.connect(5, false);
    rig.pass(Duration::from_secs(25 * 24 * 3600));
    conn.stamp = Some((1, 0));
    assert_eq!(rig.send(&conn.data(0, b"x"))[0].ack, conn.seq(1));
    conn.stamp = Some((u32::MAX - 5, 0));
    rig.send(&conn.data(1, b"y"));
    assert_eq!(rig.count(Count::TcpStale), 1, "older, though the number is greater");
}

#[test]
fn acks_are_sent_every_second_segment_then_once_per_burst() {
    let burst = |rig: &mut Rig, conn: &Conn, from: u64, is_dry: bool| {
        for at in 0..64 {
            rig.receive(&conn.data(from + at * 1460, &[0; 1460]).frame());
        }
        rig.endpoint.burst_end(is_dry, rig.now, &mut rig.memory);
        rig.replies().len()
    };
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let size = 64 * 1460;
    assert_eq!(burst(&mut rig, &conn, 0, true), 16 + 1);
    assert_eq!(burst(&mut rig, &conn, size, true), 1);
    assert_eq!(burst(&mut rig, &conn, 2 * size, false), 0, "more is about to arrive");
    assert_eq!(rig.memory.one().edge, 3 * size, "its place knows");
    assert_eq!(rig.pass(Duration::from_millis(1)).len(), 1);
    for (acks, expected) in [
        (AckPolicy::Burst, 1),
        (AckPolicy::Segments(2), 32),
        (AckPolicy::Bytes(20_000), 4),
        (AckPolicy::Segments(1000), 0),
    ] {
        let (mut rig, conn, at) = grown(Config { acks, ..config() }, false);
        assert_eq!(burst(&mut rig, &conn, at, true), expected, "{acks:?}");
        let waits = usize::from(matches!(acks, AckPolicy::Bytes(_) | AckPolicy::Segments(1000)));
        assert_eq!(rig.pass(Duration::from_millis(50)).len(), waits, "at last");
        rig.receive(&conn.seg(ACK | Flags::PSH, at + size, b"end").frame());
        rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
        assert_eq!(rig.replies().len(), 1, "PSH, and nothing after it: {acks:?}");
    }
}

#[test]
fn windows_never_shrink_and_avoid_silly_windows() {
    let mut rig = Rig::new(config());
    rig.memory.room = 100_000;
    let conn = rig.connect(5, false);
    let (mut at, mut promised, mut chance) = (0, 0, Chance(3));
    for _ in 0..400 {
        let size = chance.below(1461).min(rig.memory.one().room - at);
        for reply in rig.send(&conn.data(at, &vec![0; size as usize])) {
            let right = at + size + (u64::from(reply.window) << conn.scale);
            // If the room is less than the unit of a window, one unit is announced.
            let most = if reply.window == 1 { (1 << conn.scale) - 1 } else { 0 };
            assert!(right + (1 << conn.scale) > promised && right <= rig.memory.one().room + most);
            promised = promised.max(right);
        }
        at += size;
        // The consumer frees a byte occasionally: no window update.
        rig.memory.one_mut().room += 1;
    }
    assert!(at >= 100_000);
    rig.send(&conn.data(at - 1, b"?"));
    rig.pass(Duration::from_secs(10));
    let before = rig.count(Count::TcpWindowUpdates);
    for _ in 0..700 {
        rig.memory.one_mut().room += 1;
        rig.pass(Duration::from_millis(1));
    }
    assert_eq!(rig.count(Count::TcpWindowUpdates), before);
    rig.memory.one_mut().room += 50_000;
    assert_eq!(rig.pass(Duration::from_millis(10)).len(), 1);
}

#[test]
fn single_freed_byte_sends_no_window_update() {
    let mut rig = Rig::new(config());
    rig.memory.room = 10_000;
    let conn = rig.connect(5, true);
    assert_eq!(rig.send(&conn.data(0, &[7; 10_000]))[0].window, 0);
    for freed in 1..1460 {
        rig.memory.one_mut().room += 1;
        assert_eq!(rig.pass(Duration::from_millis(2)), [], "{freed}");
        if freed % 100 == 0 {
            assert_eq!(rig.send(&conn.data(10_000, b"?"))[0].window, 0, "{freed}");
        }
    }
    rig.memory.one_mut().room += 1;
    assert_eq!(rig.pass(Duration::from_millis(2))[0].window, 1460);
}

#[test]
fn zero_window_is_probed_and_reopens() {
    let mut rig = Rig::new(config());
    rig.memory.room = 3000;
    let conn = rig.connect(5, false);
    let full = rig.send(&conn.data(0, &[7; 3000])).remove(0);
    assert_eq!((full.window, full.ack), (0, conn.seq(3000)));
    for _ in 0..5 {
        rig.pass(Duration::from_secs(12));
        let answer = rig.send(&conn.data(3000, b"?")).remove(0);
        assert_eq!((answer.window, answer.ack), (0, conn.seq(3000)));
        assert_eq!(rig.send(&conn.data(2999, &[]))[0].ack, conn.seq(3000));
    }
    assert_eq!(rig.count(Count::TcpBeyond), 5);
    rig.memory.one_mut().room = 200_000;
    let update = rig.pass(Duration::from_millis(5));
    assert_eq!((update.len(), u64::from(update[0].window) << conn.scale > 100_000), (1, true));
    assert_eq!(rig.send(&conn.data(3000, &[8; 1000]))[0].ack, conn.seq(4000));
    // A FIN needs no room.
    let mut rig = Rig::new(config());
    rig.memory.room = 100;
    let conn = rig.connect(5, false);
    rig.send(&conn.data(0, &[7; 100]));
    assert!(rig.send(&conn.seg(Flags(0x11), 100, &[]))[0].is(Flags(0x11)));
}

#[test]
fn data_beyond_the_window_is_rejected() {
    let mut rig = Rig::new(config());
    rig.memory.room = 3000;
    let conn = rig.connect(5, true);
    rig.send(&conn.data(2990, &[1; 100]));
    rig.send(&conn.data(3000, b"x"));
    rig.send(&conn.data(2_000_000_000, b"x"));
    assert_eq!((rig.memory.one().bytes.len(), rig.count(Count::TcpBeyond)), (3000, 2));
    let mut ended = conn.seg(Flags(0x11), 2000, &[1; 1001]);
    rig.send(&ended);
    ended = conn.data(0, &[1; 2000]);
    rig.send(&ended);
    assert_eq!(rig.memory.one().ending, None, "an end beyond the window is not taken either");
}

#[test]
fn keep_alives_are_answered() {
    let (mut rig, conn, at) = grown(config(), false);
    for payload in [&[][..], b"?"] {
        let answer = rig.send(&conn.data(at - 1, payload)).remove(0);
        assert_eq!((answer.ack, answer.is(ACK)), (conn.seq(at), true));
    }
    assert_eq!(rig.count(Count::TcpOld), 2);
}

#[test]
fn urgent_data_is_data() {
    let (mut rig, conn, at) = grown(config(), false);
    rig.send(&conn.seg(ACK | Flags::URG, at, b"now"));
    assert_eq!((&rig.memory.one().bytes[at as usize..], rig.count(Count::TcpUrgent)), (&b"now"[..], 1));
}

#[test]
fn sequence_numbers_wrap_around() {
    for isn in [0xffff_fff0_u32, 0xffff_ffff, 0x7fff_fff0, 0] {
        let mut rig = Rig::new(config());
        let conn = rig.connect(isn, false);
        rig.send(&conn.data(20, b"after the wrap"));
        assert_eq!(rig.send(&conn.data(0, &[b'.'; 20]))[0].ack, isn.wrapping_add(1 + 34));
        assert_eq!(rig.memory.one().bytes, b"....................after the wrap");
    }
}

/// A place that keeps no old data, like real ones.
#[test]
fn streams_of_more_than_4_gib_have_64_bit_offsets() {
    use linerate_burst::Nanos;
    use linerate_transport::stream_memory::{Ends, Payload, Place, StreamId};
    struct Far(u64);
    impl Place for Far {
        fn begin(&mut self, _: StreamId, _: &Ends, _: Nanos) -> bool {
            true
        }
        fn room(&self, _: StreamId) -> u64 {
            u64::MAX
        }
        fn place(&mut self, _: StreamId, offset: u64, payload: Payload<'_>, _: Nanos) {
            assert_eq!(offset, self.0);
            self.0 += payload.len() as u64;
        }
        fn advance(&mut self, _: StreamId, edge: u64, _: Nanos) {
            assert_eq!(edge, self.0);
        }
        fn end(&mut self, _: StreamId, ending: Ending, _: Nanos) {
            assert_eq!((ending, self.0 > 9 << 30), (Ending::Complete, true));
        }
    }
    let (mut rig, mut far) = (Rig::new(config()), Far(0));
    let first = Seg::new(Flags::SYN, 0xffff_0000, 0, &[]);
    let receive = |rig: &mut Rig, far: &mut Far, frame: &[u8]| {
        let arrival =
            Arrival { headers: frame, rest: 0, link: Link::Ethernet, checksum: Checksum::Trusted, now: rig.now };
        rig.endpoint.receive(&arrival, far);
        rig.endpoint.burst_end(true, rig.now, far);
        rig.replies()
    };
    let answer = receive(&mut rig, &mut far, &first.frame()).remove(0);
    let mut data = Seg { flags: ACK, seq: 0xffff_0001, ack: answer.seq.wrapping_add(1), ..first };
    data.payload = vec![0; 65_400];
    let mut frame = data.frame();
    while far.0 < 9 << 30 {
        let acks = receive(&mut rig, &mut far, &frame);
        data.seq = data.seq.wrapping_add(65_400);
        assert_eq!(acks[0].ack, data.seq);
        frame[38..42].copy_from_slice(&data.seq.to_be_bytes());
    }
    data.flags = Flags(0x11);
    assert!(receive(&mut rig, &mut far, &data.frame())[0].is(Flags(0x11)));
}

#[test]
fn payload_may_be_placed_by_the_port() {
    let (mut rig, conn, at) = grown(config(), false);
    assert_eq!(
        rig.endpoint.expected(),
        Some(NextSegment { stream: linerate_transport::stream_memory::StreamId(0), next: at, gap: None, headers: 66 })
    );
    let frame = conn.data(at, b"read elsewhere").frame();
    let receive = |rig: &mut Rig, frame: &[u8], headers: usize, checksum: Checksum| {
        rig.memory.read = frame[headers..].to_vec();
        let (rest, now) = (frame.len() - headers, rig.now);
        let arrival = Arrival { headers: &frame[..headers], rest, link: Link::Ethernet, checksum, now };
        rig.endpoint.receive(&arrival, &mut rig.memory)
    };
    for headers in [0, 5, 20, 40, 54, 65, 67, 70] {
        assert_eq!(receive(&mut rig, &frame, headers, Checksum::Trusted), ReceiveOutcome::Gather, "{headers}");
    }
    assert_eq!(receive(&mut rig, &frame, 66, Checksum::Verify), ReceiveOutcome::Gather);
    assert_eq!(rig.count(Count::TcpGathered), 9);
    let sum = Sum::of(&frame[66..]).folded();
    assert_eq!(receive(&mut rig, &frame, 66, Checksum::Rest(sum ^ 1)), ReceiveOutcome::Taken);
    assert_eq!((rig.count(Count::TcpBadChecksum), rig.memory.one().edge), (1, at));
    assert_eq!(receive(&mut rig, &frame, 66, Checksum::Rest(sum)), ReceiveOutcome::Taken);
    let gap = conn.data(at + 30, b"a gap").frame();
    assert_eq!(receive(&mut rig, &gap, 66, Checksum::Trusted), ReceiveOutcome::Taken);
    let expected = rig.endpoint.expected().unwrap();
    assert_eq!((expected.next, expected.gap), (at + 14, Some(at + 30)));
    let padded = [conn.data(at + 14, b"x").frame(), vec![9; 20]].concat();
    assert_eq!(receive(&mut rig, &padded, 66, Checksum::Rest(7)), ReceiveOutcome::Gather, "padding is in the sum");
    assert_eq!(receive(&mut rig, &padded, 66, Checksum::Trusted), ReceiveOutcome::Taken);
    assert_eq!(&rig.memory.one().bytes[at as usize..at as usize + 15], b"read elsewherex");
    let mut arp = frame;
    arp[12..14].copy_from_slice(&[8, 6]);
    assert_eq!(receive(&mut rig, &arp, 66, Checksum::Trusted), ReceiveOutcome::NotMine);
}

#[test]
fn super_frames_of_any_length() {
    for is_v6 in [false, true] {
        let mut rig = Rig::new(config());
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        if is_v6 {
            (first.from.0, first.to.0) = (v6(2), v6(1));
        }
        first.options = syn_options();
        let conn = rig.connect_as(&first);
        let mut at = 0;
        for size in [65_483 - 20 * u64::from(is_v6), 100_000, 200_000] {
            let payload: Vec<u8> = (at..at + size).map(|at| byte(1, at)).collect();
            let replies = rig.send(&conn.data(at, &payload));
            at += size;
            assert_eq!(replies[0].ack, conn.seq(at));
        }
        // Length 0 in a packet that is not too long for the field.
        let mut frame = conn.data(at, b"short").frame();
        let length = if is_v6 { 18..20 } else { 16..18 };
        frame[length].fill(0);
        if !is_v6 {
            frame[24..26].fill(0);
            let sum = Sum::of(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        rig.receive(&frame);
        assert_eq!((rig.count(Count::TcpMalformed), rig.memory.one().bytes.len() as u64), (1, at));
    }
}

#[test]
fn padding_is_not_payload() {
    let (mut rig, conn, at) = grown(config(), true);
    let mut frame = conn.data(at, b"x").frame();
    frame.extend([0xee; 20]);
    rig.receive(&frame);
    rig.receive(&[&conn.data(at + 1, &[]).frame()[..], &[0xee; 6]].concat());
    assert_eq!(rig.memory.one().bytes.len() as u64, at + 1);
    assert_eq!(rig.memory.one().bytes[at as usize], b'x');
}

#[test]
fn replies_rejected_by_the_port_are_sent_again() {
    let (mut rig, conn, at) = grown(config(), false);
    rig.receive(&conn.data(at, b"x").frame());
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.endpoint.frames().len(), 1);
    rig.endpoint.clear(1);
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.replies()[0].ack, conn.seq(at + 1));
    assert_eq!(rig.count(Count::TcpUnsent), 1);
}

#[test]
fn thousand_connections_stay_separate() {
    let mut rig = Rig::new(config());
    let mut chance = Chance(9);
    let conns: Vec<Conn> = (0..1000u16)
        .map(|number| {
            let mut first = Seg::new(Flags::SYN, chance.next() as u32, 0, &[]);
            first.from.1 = 1000 + number;
            rig.connect_as(&first)
        })
        .collect();
    let mut order: Vec<(usize, u64)> = (0..1000).flat_map(|conn| (0..5).map(move |at| (conn, at * 7))).collect();
    order.sort_by_cached_key(|_| chance.next());
    for (conn, at) in order {
        let payload: Vec<u8> = (at..at + 7).map(|at| byte(conn as u64, at)).collect();
        rig.receive(&conns[conn].data(at, &payload).frame());
    }
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    for (number, stream) in rig.memory.streams.values().enumerate() {
        assert_eq!((stream.edge, stream.ends.from.port()), (35, 1000 + number as u16));
        assert!(stream.bytes.iter().enumerate().all(|(at, got)| *got == byte(number as u64, at as u64)));
    }
}
