//! Requirements of RFC 9293 and its companions on a receiver, clause by clause: headers, connection setup and end.

use super::peer::*;
use linerate_burst::Count;
use linerate_headers::Link;
use linerate_headers::tcp::Flags;
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::{Checksum, Config, ReceiveOutcome};
use std::time::Duration;

const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags(0x11);

#[test]
fn connection_from_syn_to_fin() {
    for is_plain in [false, true] {
        let mut rig = Rig::new(config());
        let mut conn = rig.connect(77, is_plain);
        let replies = rig.send(&conn.data(0, b"hello"));
        assert_eq!((replies.len(), replies[0].ack), (1, conn.seq(5)));
        let replies = rig.send(&conn.seg(FIN, 5, b" world"));
        assert_eq!(replies.len(), 1);
        assert!(replies[0].is(FIN));
        assert_eq!((replies[0].seq, replies[0].ack), (conn.peer, conn.seq(12)));
        assert_eq!(rig.memory.one().ending, Some(Ending::Complete));
        assert_eq!(rig.memory.one().bytes, b"hello world");
        assert_eq!(rig.memory.one().ends.from, (v4(2), 40000).into());
        conn.peer += 1;
        assert_eq!(rig.send(&conn.data(12, &[])), []);
        assert!(rig.endpoint.is_idle() && rig.endpoint.deadline().is_none());
        assert_eq!(rig.count(Count::TcpComplete), 1);
    }
}

#[test]
fn options_are_parsed_anywhere_and_malformed_ones_ignored() {
    let strange: [&[u8]; 8] = [
        &[1, 1, 1, 1],
        &[253, 4, 1, 2],
        &[2, 4, 5, 180],
        &[8, 0, 0, 0],
        &[8, 1, 0, 0],
        &[3, 255, 7, 0],
        &[0, 8, 10, 0],
        &[5, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 8],
    ];
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    for (at, options) in strange.iter().enumerate() {
        let mut segment = conn.data(at as u64, b"x");
        segment.options = options.to_vec();
        assert_eq!(rig.send(&segment)[0].ack, conn.seq(at as u64 + 1), "{options:?}");
    }
    // Timestamps at an unusual position.
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let mut segment = conn.data(0, b"x");
    segment.options = [&[253, 3, 9, 1, 8, 10][..], &segment.options[4..], &[0, 0]].concat();
    assert_eq!(rig.send(&segment)[0].ack, conn.seq(1));
}

#[test]
fn contradictory_headers_are_rejected() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    let good = conn.data(0, b"payload").frame();
    let mut damaged = Vec::new();
    for (at, value) in [(46, 0x40), (46, 0xf0), (16, 0xff), (17, 30), (14, 0x44), (14, 0x4f)] {
        let mut frame = good.clone();
        frame[at] = value;
        damaged.push(frame);
    }
    damaged.extend((34..good.len()).map(|end| good[..end].to_vec()));
    for frame in damaged {
        for checksum in [Checksum::Trusted, Checksum::Verify] {
            assert_eq!(rig.receive_as(&frame, Link::Ethernet, checksum), ReceiveOutcome::Taken);
        }
    }
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!((rig.replies(), rig.memory.one().bytes.len()), (vec![], 0));
    assert!(rig.count(Count::TcpMalformed) > 0);
}

#[test]
fn invalid_checksum_is_never_accepted() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    let good = conn.data(0, b"payload").frame();
    for bit in 14 * 8..good.len() * 8 {
        let mut frame = good.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        rig.receive(&frame);
    }
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.replies(), []);
    assert!(rig.memory.one().bytes.is_empty() && rig.count(Count::TcpBadChecksum) > 100);
    assert_eq!(rig.send(&conn.data(0, b"payload"))[0].ack, conn.seq(7));
}

#[test]
fn partial_checksum_is_accepted_if_flagged_by_the_host() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, true);
    let mut frame = conn.data(0, b"payload").frame();
    frame[50] ^= 0xff;
    rig.receive_as(&frame, Link::Ethernet, Checksum::Verify);
    assert_eq!(rig.count(Count::TcpBadChecksum), 1);
    rig.receive_as(&frame, Link::Ethernet, Checksum::Trusted);
    assert_eq!(rig.memory.one().bytes, b"payload");
}

#[test]
fn our_syn_advertises_our_limits() {
    let answer = |mtu, is_v6: bool, offered: &[u8]| {
        let mut rig = Rig::new(Config { mtu, ..config() });
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        first.options = offered.to_vec();
        if is_v6 {
            (first.from.0, first.to.0) = (v6(2), v6(1));
        }
        rig.send(&first).remove(0)
    };
    let plain = answer(1500, false, &[]);
    assert_eq!((plain.mss, plain.scale, plain.sack_ok, plain.stamps), (Some(1460), None, false, None));
    assert_eq!((plain.window, plain.ack), (65535, 10));
    let full = answer(9000, true, &syn_options());
    assert_eq!((full.mss, full.scale, full.sack_ok), (Some(8940), Some(11), true));
    assert_eq!((full.stamps.unwrap().1, full.window), (1000, 65535), "never shifted in a SYN");
    assert_eq!(answer(65535, false, &[]).mss, Some(65495));
    let odd = answer(1500, false, &[3, 3, 200, 1]);
    assert_eq!((odd.scale, odd.mss), (Some(11), Some(1460)));
    // The rest is malformed, so none of it is negotiated.
    assert!(!answer(1500, false, &[3, 0, 4, 2]).sack_ok);

    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    let ack = rig.send(&conn.data(0, b"x")).remove(0);
    assert_eq!((ack.mss, ack.scale, ack.sack_ok), (None, None, false), "only in a SYN");
    assert!(ack.stamps.is_some(), "in every segment");
    assert_eq!(u64::from(ack.window) << conn.scale, (64 << 20) - 2048, "the window excludes bits lost by scaling");
}

#[test]
fn ecn_is_not_negotiated() {
    let mut rig = Rig::new(config());
    let first = Seg::new(Flags::SYN | Flags::ECE | Flags::CWR, 9, 0, &[]);
    assert!(rig.send(&first)[0].is(Flags::SYN | ACK));
}

#[test]
fn initial_sequence_numbers_differ_and_advance_with_time() {
    let number = |secret, port, seconds| {
        let mut rig = Rig::new(Config { secret, ..config() });
        rig.now = rig.now.after(Duration::from_secs(seconds));
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        first.from.1 = port;
        rig.send(&first)[0].seq
    };
    assert_eq!(number([1, 2], 1000, 0).wrapping_add(250_000), number([1, 2], 1000, 1), "4 microseconds");
    assert_ne!(number([1, 2], 1000, 0), number([1, 2], 1001, 0));
    assert_ne!(number([1, 2], 1000, 0), number([1, 3], 1000, 0));
}

#[test]
fn our_syn_is_retransmitted_then_abandoned() {
    let mut rig = Rig::new(config());
    assert_eq!(rig.send(&Seg::new(Flags::SYN, 9, 0, &[])).len(), 1);
    assert_eq!(rig.pass(Duration::from_millis(900)).len(), 0);
    assert_eq!(rig.pass(Duration::from_millis(200)).len(), 1);
    assert_eq!(rig.pass(Duration::from_secs(2)).len(), 1);
    assert_eq!(rig.pass(Duration::from_secs(120)).len(), 3);
    assert_eq!((rig.endpoint.connections(), rig.count(Count::TcpHalfOpen)), (0, 1));
    assert!(rig.memory.streams.is_empty());
}

#[test]
fn retransmitted_syn_is_answered_again() {
    let mut rig = Rig::new(config());
    let first = rig.send(&Seg::new(Flags::SYN, 9, 0, &[])).remove(0);
    assert_eq!(rig.send(&Seg::new(Flags::SYN, 9, 0, &[])), std::slice::from_ref(&first));
    let other = rig.send(&Seg::new(Flags::SYN, 5000, 0, &[])).remove(0);
    assert_eq!((other.ack, rig.endpoint.connections()), (5001, 1), "restarted");
}

#[test]
fn data_may_arrive_with_or_before_the_last_handshake_ack() {
    let mut rig = Rig::new(config());
    let answer = rig.send(&Seg::new(Flags::SYN, 9, 0, b"ignored")).remove(0);
    assert_eq!(answer.ack, 10);
    let later = Seg::new(ACK, 10 + 5, answer.seq + 1, b" world");
    assert_eq!(rig.send(&later)[0].ack, 10);
    let replies = rig.send(&Seg::new(FIN, 10, answer.seq + 1, b"hello"));
    assert_eq!(replies.last().unwrap().ack, 21);
    assert_eq!(rig.memory.one().bytes, b"hello world");
}

#[test]
fn fin_is_processed_in_order() {
    let mut rig = Rig::new(config());
    let mut conn = rig.connect(5, false);
    let replies = rig.send(&conn.seg(FIN, 5, b"world"));
    assert_eq!((replies[0].ack, replies[0].is(ACK)), (conn.seq(0), true));
    assert_eq!(rig.memory.one().ending, None);
    // Data after the end is dropped.
    rig.send(&conn.data(10, b"more"));
    assert_eq!(rig.count(Count::TcpAfterFin), 1);
    let end = rig.send(&conn.data(0, b"hello")).remove(0);
    assert_eq!((end.is(FIN), end.ack), (true, conn.seq(11)));
    assert_eq!(rig.memory.one().bytes, b"helloworld");
    // FIN again with data after it, and our FIN again until it is acknowledged.
    let again = rig.send(&conn.seg(FIN, 5, b"world")).remove(0);
    assert_eq!((again.ack, again.seq), (conn.seq(11), conn.peer.wrapping_add(1)));
    rig.send(&conn.data(11, b"more"));
    assert_eq!(rig.count(Count::TcpAfterFin), 2);
    assert_eq!(rig.pass(Duration::from_millis(1100)).iter().filter(|reply| reply.is(FIN)).count(), 1);
    conn.peer += 1;
    rig.send(&conn.data(11, &[]));
    assert_eq!(rig.endpoint.connections(), 0);
}

#[test]
fn fin_before_received_data_is_ignored() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    rig.send(&conn.data(10, b"behind"));
    rig.send(&conn.seg(FIN, 3, b"wrong"));
    assert_eq!(rig.send(&conn.data(0, &[b'.'; 10]))[0].ack, conn.seq(16));
    assert_eq!((rig.memory.one().ending, rig.memory.one().edge), (None, 16));
}

#[test]
fn our_fin_is_retransmitted_a_limited_number_of_times() {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5, false);
    assert!(!rig.endpoint.is_closing());
    rig.send(&conn.seg(FIN, 0, b"all"));
    assert!(rig.endpoint.is_closing());
    let fins = rig.pass(Duration::from_secs(300)).iter().filter(|reply| reply.is(FIN)).count();
    assert_eq!((fins, rig.endpoint.connections(), rig.memory.one().ending), (5, 0, Some(Ending::Complete)));
    assert!(!rig.endpoint.is_closing());
}

#[test]
fn segments_without_connection_are_reset_or_ignored() {
    let mut rig = Rig::new(config());
    let unknown = Seg::new(ACK, 100, 200, b"data");
    let reset = rig.send(&unknown).remove(0);
    assert_eq!((reset.flags, reset.seq), (Flags::RST, 200));
    let mut closed = Seg::new(Flags::SYN, 100, 0, &[]);
    closed.to.1 = PORT + 10;
    let reset = rig.send(&closed).remove(0);
    assert_eq!((reset.flags, reset.seq, reset.ack), (Flags::RST | ACK, 0, 101));
    assert_eq!(rig.send(&Seg::new(Flags::RST, 1, 2, &[])), [], "never for a reset");
    let mut silent = Rig::new(Config { reset_unknown: false, ..config() });
    assert_eq!((silent.send(&unknown), silent.send(&closed)), (vec![], vec![]));
    assert_eq!(silent.count(Count::TcpNoConnection), 2);
}

#[test]
fn idle_connection_is_closed() {
    let mut rig = Rig::new(Config { idle: Some(Duration::from_secs(60)), ..config() });
    let conn = rig.connect(5, false);
    rig.pass(Duration::from_secs(50));
    rig.send(&conn.data(0, b"x"));
    assert_eq!(rig.pass(Duration::from_secs(59)), []);
    // A keep-alive is a sign of life.
    rig.send(&conn.data(0, &[]));
    assert_eq!(rig.pass(Duration::from_secs(59)), []);
    let reset = rig.pass(Duration::from_secs(2)).remove(0);
    assert_eq!((reset.flags, reset.seq, reset.ack), (Flags::RST | ACK, conn.peer, conn.seq(1)));
    assert_eq!(rig.memory.one().ending, Some(Ending::Silent));
}

#[test]
fn number_of_connections_is_limited() {
    let mut rig = Rig::new(Config { connections: 3, ..config() });
    for port in 1..=4 {
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        first.from.1 = port;
        match rig.send(&first).first() {
            Some(answer) => {
                let ack = Seg { flags: ACK, seq: 10, ack: answer.seq.wrapping_add(1), ..first };
                rig.send(&ack);
            }
            None => assert_eq!(port, 4),
        }
    }
    assert_eq!((rig.endpoint.connections(), rig.count(Count::TcpFull)), (3, 1));
    assert!(rig.endpoint.stop(rig.now, &mut rig.memory));
    assert_eq!(rig.replies().iter().filter(|reply| reply.flags.contains(Flags::RST)).count(), 3);
    assert!(rig.memory.streams.values().all(|stream| stream.ending == Some(Ending::Stopped)));
    assert!(rig.endpoint.is_idle());
}

#[test]
fn connection_waits_for_a_stream_buffer() {
    let mut rig = Rig::new(config());
    rig.memory.is_full = true;
    let answer = rig.send(&Seg::new(Flags::SYN, 9, 0, &[])).remove(0);
    let confirms = Seg::new(ACK, 10, answer.seq.wrapping_add(1), &[]);
    assert_eq!(rig.send(&confirms), []);
    let data = Seg { payload: b"early".to_vec(), ..confirms };
    assert_eq!((rig.send(&data), rig.count(Count::TcpNoFrame)), (Vec::new(), 2));
    rig.memory.is_full = false;
    assert_eq!(rig.send(&data).remove(0).ack, 15);
    assert_eq!((rig.endpoint.connections(), &rig.memory.one().bytes[..]), (1, &b"early"[..]));
}

#[test]
fn replies_return_by_the_path_of_the_segments() {
    let mut rig = Rig::new(config());
    let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
    first.tags = vec![7, 100];
    (first.from, first.to) = ((v6(2), 9), (v6(1), PORT));
    let conn = rig.connect_as(&first);
    let reply = rig.send(&conn.data(0, b"x")).remove(0);
    let link = first.link();
    assert_eq!(reply.link, [&link[6..12], &link[..6], &link[12..]].concat());
    // Another router on the path: replies go to the router that segments come from.
    let mut moved = conn.data(1, b"y");
    moved.macs.0.0[5] = 9;
    assert_eq!((rig.send(&moved)[0].link[5], rig.count(Count::TcpAddressChanged)), (9, 1));
}

#[test]
fn packets_without_a_link_header() {
    for is_v6 in [false, true] {
        let mut rig = Rig::new(config());
        let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
        if is_v6 {
            (first.from.0, first.to.0) = (v6(2), v6(1));
        }
        assert_eq!(rig.receive_as(&first.packet(), Link::RawIp, Checksum::Verify), ReceiveOutcome::Taken);
        let length = if is_v6 { 64 } else { 44 };
        let frame = rig.endpoint.frames().frame(0).to_vec();
        assert_eq!(frame.len(), length);
        let answer = read_packet(&[], &frame);
        rig.endpoint.clear(0);
        let data = Seg { flags: ACK, seq: 10, ack: answer.seq.wrapping_add(1), payload: b"hi".to_vec(), ..first };
        rig.receive_as(&data.packet(), Link::RawIp, Checksum::Verify);
        assert_eq!(rig.memory.one().bytes, b"hi");
    }
}

#[test]
fn fragments_are_counted_and_dropped() {
    let mut rig = Rig::new(config());
    let mut frame = Seg::new(Flags::SYN, 9, 0, &[]).frame();
    frame[20] |= 0x20;
    frame[24] = frame[24].wrapping_sub(0x20);
    assert_eq!(rig.receive_as(&frame, Link::Ethernet, Checksum::Trusted), ReceiveOutcome::Taken);
    assert_eq!((rig.count(Count::TcpFragment), rig.replies()), (1, vec![]));
}

#[test]
fn traffic_for_others_is_ignored() {
    let mut rig = Rig::new(config());
    let mut other = Seg::new(Flags::SYN, 9, 0, &[]);
    other.to.0 = v4(9);
    let mut udp = Seg::new(Flags::SYN, 9, 0, &[]).frame();
    udp[23] = 17;
    let mut arp = udp.clone();
    arp[12..14].copy_from_slice(&[8, 6]);
    for frame in [other.frame(), udp, arp, vec![], vec![0; 5], vec![0xff; 60]] {
        assert_eq!(rig.receive(&frame), ReceiveOutcome::NotMine);
    }
    assert_eq!((rig.count(Count::TcpOtherAddress), rig.replies()), (6, vec![]));
}
