//! Defects of lightning-kit found by review, by their letters in docs/tcp.md, as far as they apply to an endpoint.

use super::model::byte;
use super::peer::*;
use linerate_headers::Link;
use linerate_headers::tcp::Flags;
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::Checksum;
use std::time::Duration;

const ACK: Flags = Flags::ACK;

#[test]
fn a_off_path_sender_cannot_inject_data() {
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
    rig.receive(&broken);
    assert!(rig.memory.one().bytes.is_empty());
}

#[test]
fn b_options_are_not_payload() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    rig.send(&conn.data(0, b"payload"));
    assert_eq!(rig.memory.one().bytes, b"payload");
}

#[test]
fn c_ethernet_padding_is_not_payload() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    let frame = [&conn.data(0, b"x").frame()[..], &[0; 5]].concat();
    rig.receive(&frame);
    assert_eq!((frame.len(), rig.memory.one().bytes.len()), (60, 1));
}

/// The endpoint does not know frames; it passes pieces with their offset, across any boundary.
#[test]
fn d_e_data_is_written_at_its_offset() {
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
fn f_data_is_written_before_it_is_reported() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    for at in 0..100 {
        for reply in rig.send(&conn.data(at, b"x")) {
            assert_eq!(reply.ack, conn.seq(rig.memory.one().edge));
        }
    }
}

#[test]
fn g_closed_connection_leaves_no_used_state() {
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
fn h_incomplete_handshakes_take_no_memory() {
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
fn i_each_ack_has_its_own_buffer() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    for at in 0..10 {
        rig.receive(&conn.data(10 + at * 10, b"x").frame());
    }
    let frames: Vec<Reply> = rig.endpoint.frames().iter().map(|(_, frame)| read(frame)).collect();
    assert_eq!(frames.len(), 10, "one per segment after a gap, all still unsent");
    assert!(frames.iter().all(|reply| reply.ack == conn.seq(0)));
}

#[test]
fn j_unsent_ack_is_sent_later() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    rig.receive(&conn.data(0, b"the last").frame());
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
fn k_retransmission_is_never_written_elsewhere() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(0xffff_fff0, false);
    rig.send(&conn.data(0, &[1; 5000]));
    for offset in [0, 1, 4999] {
        rig.receive_as(&conn.data(offset, &[2; 1]).frame(), Link::Ethernet, Checksum::Trusted);
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
fn n_consecutive_connections_and_fin_is_answered_by_fin() {
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
