//! Defects of lightning-kit found by reading it, each by name (docs/tcp.md), as far as they apply to an endpoint.

use super::model::byte;
use super::peer::*;
use linerate_receive::place::Ending;
use linerate_receive::tcp::Checksum;
use linerate_wire::Link;
use linerate_wire::tcp::Flags;
use std::time::Duration;

const ACK: Flags = Flags::ACK;

#[test]
fn a_anybody_who_hits_the_port_injects_data() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let mut forged = conn.data(0, b"forged");
    forged.from.0 = v4(66);
    rig.send(&forged);
    let mut blind = conn.data(0, b"forged");
    blind.ack = blind.ack.wrapping_add(1);
    rig.send(&blind);
    let mut broken = conn.data(0, b"forged").frame();
    *broken.last_mut().unwrap() ^= 1;
    rig.hear(&broken);
    assert!(rig.memory.one().bytes.is_empty());
}

#[test]
fn b_options_are_no_payload() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    rig.send(&conn.data(0, b"payload"));
    assert_eq!(rig.memory.one().bytes, b"payload");
}

#[test]
fn c_padding_of_ethernet_is_no_payload() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    let frame = [&conn.data(0, b"x").frame()[..], &[0; 5]].concat();
    rig.hear(&frame);
    assert_eq!((frame.len(), rig.memory.one().bytes.len()), (60, 1));
}

/// The endpoint does not know frames; it passes pieces with their offset, across any boundary.
#[test]
fn d_e_pieces_belong_where_their_offset_says() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    for (at, size) in [(0, 3), (3, 1), (4, 1460), (1464, 31), (1495, 1), (1496, 4000)] {
        let payload: Vec<u8> = (at..at + size).map(|at| byte(9, at)).collect();
        rig.send(&conn.data(at, &payload));
    }
    let stream = rig.memory.one();
    assert!(stream.edge == 5496 && stream.bytes.iter().enumerate().all(|(at, got)| *got == byte(9, at as u64)));
}

/// The place is advanced before the ACK is sent, so a fence takes effect in time.
#[test]
fn f_bytes_are_there_before_anybody_is_told() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    for at in 0..100 {
        for reply in rig.send(&conn.data(at, b"x")) {
            assert_eq!(reply.ack, conn.seq(rig.memory.one().edge));
        }
    }
}

#[test]
fn g_an_end_leaves_nothing_behind_that_is_used() {
    let mut rig = Rig::new(config());
    for round in 0..100 {
        let mut conn = rig.connect(round, false);
        assert!(rig.send(&conn.seg(Flags(0x11), 0, b"all"))[0].is(Flags(0x11)));
        conn.peer = conn.peer.wrapping_add(1);
        rig.send(&conn.data(4, &[]));
        assert_eq!((rig.endpoint.connections(), rig.endpoint.expected()), (0, None));
        assert!(rig.send(&conn.data(4, b"late"))[0].is(Flags::RST));
    }
    assert_eq!(rig.memory.streams.len(), 100);
}

#[test]
fn h_beginnings_that_come_to_nothing_take_no_memory() {
    let mut rig = Rig::new(config());
    for port in 1..1000 {
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        first.from.1 = port;
        rig.send(&first);
    }
    rig.pass(Duration::from_secs(200));
    assert!(rig.endpoint.is_idle() && rig.endpoint.deadline().is_none());
}

#[test]
fn i_each_acknowledgement_has_bytes_of_its_own() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    for at in 0..10 {
        rig.hear(&conn.data(10 + at * 10, b"x").frame());
    }
    let frames: Vec<Reply> = rig.endpoint.frames().iter().map(|(_, frame)| read(frame)).collect();
    assert_eq!(frames.len(), 10, "one for each segment behind a gap, all of them still to be sent");
    assert!(frames.iter().all(|reply| reply.ack == conn.seq(0)));
}

#[test]
fn j_an_acknowledgement_that_was_not_sent_is_sent_later() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    rig.hear(&conn.data(0, b"the last").frame());
    for _ in 0..3 {
        rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
        assert_eq!(rig.endpoint.frames().len(), 1);
        rig.endpoint.clear(1);
    }
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.replies()[0].ack, conn.seq(8));
    // And one that was sent and lost, when the sender retransmits.
    assert_eq!(rig.send(&conn.data(0, b"the last"))[0].ack, conn.seq(8));
}

#[test]
fn k_what_comes_again_is_never_written_elsewhere() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(0xffff_fff0, false);
    rig.send(&conn.data(0, &[1; 5000]));
    for offset in [0, 1, 4999] {
        rig.hear_as(&conn.data(offset, &[2; 1]).frame(), Link::Ethernet, Checksum::Trusted);
    }
    let mut before = conn.data(0, &[2; 100]);
    before.seq = before.seq.wrapping_sub(1_000_000);
    rig.send(&before);
    assert_eq!(rig.memory.one().bytes, [1; 5000]);
}

#[test]
fn l_windows_are_scaled() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let response = rig.send(&conn.data(0, b"x")).remove(0);
    assert!(u64::from(response.window) << conn.scale > 60 << 20);
}

#[test]
fn n_connections_come_one_after_the_other_and_an_end_is_answered_by_an_end() {
    let mut rig = Rig::new(config());
    for round in 0..3u16 {
        let mut first = Seg::new(Flags::SYN, 5, 0, &[]);
        first.from.1 = 1000 + round;
        let conn = rig.connect_as(&first);
        let end = rig.send(&conn.seg(Flags::FIN | ACK, 0, b"all")).remove(0);
        assert!(end.is(Flags::FIN | ACK) && end.ack == conn.seq(4));
    }
    assert!(rig.memory.streams.values().all(|stream| stream.ending == Some(Ending::Complete)));
}
