//! Attacks, and mistakes of lightning-kit, each by name.

use super::model::Chance;
use super::peer::*;
use linerate_burst::Count;
use linerate_headers::tcp::Flags;
use linerate_headers::{Link, MacAddr};
use linerate_transport::stream_memory::Ending;
use linerate_transport::tcp::{Checksum, Config, ReceiveOutcome};
use std::net::IpAddr;
use std::time::Duration;

const ACK: Flags = Flags::ACK;

/// A connection that has received 100 bytes.
fn victim() -> (Rig, Conn) {
    let mut rig = Rig::new(config());
    let conn = rig.connect(5000, false);
    rig.send(&conn.data(0, &[1; 100]));
    (rig, conn)
}

#[test]
fn reset_is_valid_only_at_the_next_sequence_number() {
    for (offset, challenged) in [(101, 1), (60_000, 1), (99, 0), (1_000_000_000, 0), (3_000_000_000, 0)] {
        let (mut rig, conn) = victim();
        let mut reset = conn.seg(Flags::RST, offset, &[]);
        reset.options.clear();
        let replies = rig.send(&reset);
        assert_eq!((replies.len(), rig.endpoint.connections()), (challenged, 1), "{offset}");
        assert!(replies.iter().all(|reply| reply.is(ACK) && reply.ack == conn.seq(100)));
        assert_eq!(rig.count(Count::TcpBadReset), 1);
    }
    let (mut rig, conn) = victim();
    assert_eq!(rig.send(&conn.seg(Flags::RST, 100, &[])), []);
    assert_eq!((rig.endpoint.connections(), rig.memory.one().ending), (0, Some(Ending::Reset)));
    // Also with a closed window.
    let mut rig = Rig::new(config());
    rig.memory.room = 100;
    let conn = rig.connect(5000, false);
    rig.send(&conn.data(0, &[1; 100]));
    rig.send(&conn.seg(Flags::RST, 100, &[]));
    assert_eq!(rig.memory.one().ending, Some(Ending::Reset));
}

#[test]
fn a_syn_never_ends_a_connection() {
    for flags in [Flags::SYN, Flags::SYN | ACK, Flags::SYN | Flags::FIN, Flags(0x3f & !4)] {
        for offset in [0, 100, 101, 2_000_000_000] {
            let (mut rig, conn) = victim();
            let replies = rig.send(&conn.seg(flags, offset, b"data"));
            assert_eq!((replies.len(), replies[0].ack), (1, conn.seq(100)), "challenged");
            assert_eq!((rig.endpoint.connections(), rig.memory.one().edge), (1, 100));
        }
    }
}

#[test]
fn restarted_peer_gets_a_new_connection() {
    let (mut rig, conn) = victim();
    let again = Seg { options: syn_options(), ..conn.seg(Flags::SYN, 77_777, &[]) };
    let challenge = rig.send(&again).remove(0);
    // The peer does not know the connection.
    rig.send(&Seg { seq: challenge.ack, options: vec![], ..conn.seg(Flags::RST, 0, &[]) });
    assert_eq!(rig.memory.one().ending, Some(Ending::Reset));
    rig.connect_as(&again);
    assert_eq!((rig.memory.streams.len(), rig.endpoint.connections()), (2, 1));
}

#[test]
fn data_with_an_invalid_acknowledgement_is_rejected() {
    for wrong in [1, 2, 1000, u32::MAX, 0x8000_0000] {
        let (mut rig, conn) = victim();
        let mut blind = conn.data(100, b"forged");
        blind.ack = blind.ack.wrapping_add(wrong);
        assert!(rig.send(&blind).iter().all(|reply| reply.ack == conn.seq(100)));
        blind.flags = Flags(0);
        rig.send(&blind);
        assert_eq!((rig.count(Count::TcpBadAck), rig.memory.one().edge), (2, 100));
    }
}

#[test]
fn other_addresses_and_ports_are_other_connections() {
    let (mut rig, conn) = victim();
    let good = conn.data(100, b"forged");
    let mut changed = [good.clone(), good.clone(), good.clone(), good];
    changed[0].from.0 = v4(3);
    changed[1].from.1 += 1;
    changed[2].to.1 += 1;
    (changed[3].from.0, changed[3].to.0) = (v6(2), v6(1));
    for segment in &changed {
        assert!(rig.send(segment)[0].is(Flags::RST));
    }
    assert_eq!((rig.memory.one().edge, rig.count(Count::TcpNoConnection)), (100, 4));
}

#[test]
fn invalid_source_addresses_are_not_answered() {
    let mut rig = Rig::new(config());
    let v4s = [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255, 255, 255, 255], [10, 0, 0, 1]];
    let v6s = ["::", "::1", "ff02::1", "::ffff:10.0.0.2", "fd00::1"];
    for from in v4s.map(IpAddr::from).into_iter().chain(v6s.map(|text| text.parse().unwrap())) {
        let to = if from.is_ipv4() { v4(1) } else { v6(1) };
        let mut first = Seg::new(Flags::SYN, 1, 0, &[]);
        (first.from, first.to) = ((from, PORT), (to, PORT));
        assert_eq!(rig.send(&first), [], "{from}");
    }
    let mut first = Seg::new(Flags::SYN, 1, 0, &[]);
    first.macs.1 = MacAddr::BROADCAST;
    assert_eq!(rig.send(&first), []);
    first = Seg::new(Flags::SYN, 1, 0, &[]);
    first.from.1 = 0;
    assert_eq!(rig.send(&first), []);
    assert_eq!((rig.count(Count::TcpMartian), rig.endpoint.connections()), (12, 0));
}

#[test]
fn frames_for_other_stations_are_ignored() {
    let mut rig = Rig::new(Config { stations: vec![OWN_MAC], ..config() });
    let mut first = Seg::new(Flags::SYN, 1, 0, &[]);
    first.macs.1 = PEER_MAC;
    assert_eq!(rig.receive(&first.frame()), ReceiveOutcome::NotMine);
    first.macs.1 = OWN_MAC;
    assert_eq!(rig.receive(&first.frame()), ReceiveOutcome::Taken);
}

#[test]
fn invalid_flags_start_nothing() {
    let mut rig = Rig::new(config());
    for flags in 0..64 {
        let begins = flags & 0x17 == 2;
        let mut segment = Seg::new(Flags(flags), 1, 0, &[]);
        segment.from.1 = 1000 + flags;
        let replies = rig.send(&segment);
        assert_eq!(replies.iter().any(|reply| reply.is(Flags::SYN | ACK)), begins, "{flags:#x}");
    }
}

#[test]
fn challenge_acks_are_limited_per_connection() {
    let mut rig = Rig::new(config());
    let first = rig.connect(5000, false);
    let mut other = Seg::new(Flags::SYN, 1, 0, &[]);
    other.from.1 = 999;
    let other = rig.connect_as(&other);
    let flood = |rig: &mut Rig, conn: &Conn| -> usize {
        (0..1000).map(|_| rig.send(&conn.seg(Flags::SYN, 7, &[])).len()).sum()
    };
    let most = flood(&mut rig, &first);
    assert!((5..=10).contains(&most), "{most}");
    assert!((5..=10).contains(&flood(&mut rig, &other)), "other connections have their own limit");
    assert_eq!(flood(&mut rig, &first), 0);
    rig.pass(Duration::from_millis(1200));
    assert!((5..=10).contains(&flood(&mut rig, &first)));
    // ACKs of data are not limited by it.
    assert_eq!(rig.send(&first.data(0, b"x")).len(), 1);
}

#[test]
fn syn_flood_takes_no_memory_and_real_clients_connect() {
    let mut rig = Rig::new(Config { backlog: 64, ..config() });
    let good = rig.connect(5000, false);
    let (mut chance, mut at) = (Chance(1), 0);
    for round in 0..1200u64 {
        for _ in 0..10 {
            let mut syn = Seg::new(Flags::SYN, chance.next() as u32, 0, &[]);
            syn.from =
                (IpAddr::from((chance.next() as u32 >> 1 | 0x0a00_0000).to_be_bytes()), chance.next() as u16 | 1);
            rig.receive(&syn.frame());
        }
        assert!(rig.endpoint.connections() <= 65);
        let response = rig.send(&good.data(at, &[1; 1000]));
        at += 1000;
        assert!(response.iter().any(|reply| reply.to.1 == 40000 && reply.ack == good.seq(at)), "round {round}");
        rig.now = rig.now.after(Duration::from_micros(100));
    }
    assert!(rig.count(Count::TcpCookies) > 10_000);
    // A genuine client.
    for is_plain in [false, true] {
        let mut first = Seg::new(Flags::SYN, 123, 0, &[]);
        first.from.1 = 555 + u16::from(is_plain);
        first.options = if is_plain { vec![] } else { syn_options() };
        let before = rig.endpoint.connections();
        let conn = rig.connect_as(&first);
        assert_eq!(rig.endpoint.connections(), before + 1);
        let response = rig.send(&conn.data(0, b"through")).remove(0);
        assert_eq!((response.ack, response.stamps.is_some()), (conn.seq(7), !is_plain));
        assert_eq!(u64::from(response.window) << conn.scale > 65_535, !is_plain);
    }
    assert_eq!(rig.count(Count::TcpCookiesTaken), 2);
    // Guesses, and expired cookies.
    let before = rig.endpoint.connections();
    for _ in 0..10_000 {
        let mut guess = Seg::new(ACK, chance.next() as u32, chance.next() as u32, &[]);
        guess.from.1 = 777;
        rig.receive(&guess.frame());
        assert_eq!(rig.replies(), [], "no reset: it may have been answered by a cookie");
    }
    let mut late = Seg::new(Flags::SYN, 9, 0, &[]);
    late.from.1 = 888;
    rig.receive(&late.frame());
    let cookie = rig.replies().remove(0).seq;
    // Half-open connections, retransmitted for a minute, leave no room for others, which get cookies too.
    rig.now = rig.now.after(Duration::from_secs(129));
    let mut other = Seg::new(Flags::SYN, 9, 0, &[]);
    other.from.1 = 889;
    rig.receive(&other.frame());
    let young = rig.replies().remove(0).seq;
    rig.receive(&Seg { flags: ACK, seq: 10, ack: cookie.wrapping_add(1), ..late }.frame());
    assert_eq!(rig.count(Count::TcpCookiesTaken), 2, "too old");
    rig.receive(&Seg { flags: ACK, seq: 10, ack: young.wrapping_add(1), ..other }.frame());
    assert_eq!(rig.count(Count::TcpCookiesTaken), 3);
    assert!(rig.endpoint.connections() <= before + 1);
}

#[test]
fn replies_without_buffer_are_sent_later() {
    let (mut rig, conn) = victim();
    let others: Vec<Conn> = (0..1200)
        .map(|port| {
            let mut first = Seg::new(Flags::SYN, 9, 0, &[]);
            first.from.1 = 1000 + port;
            rig.connect_as(&first)
        })
        .collect();
    others.iter().for_each(|other| assert_eq!(rig.receive(&other.data(0, b"x").frame()), ReceiveOutcome::Taken));
    rig.receive(&conn.data(100, b"x").frame());
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.replies().len(), 1024);
    rig.endpoint.burst_end(true, rig.now, &mut rig.memory);
    assert_eq!(rig.replies().len(), 177);
}

#[test]
fn replies_are_limited() {
    let mut rig = Rig::new(config());
    for number in 0..50_000u32 {
        let mut unknown = Seg::new(ACK, number, 1, &[]);
        unknown.from.1 = number as u16 | 1;
        rig.receive(&unknown.frame());
    }
    assert_eq!(rig.endpoint.frames().len(), 512, "half of the reply queue");
    assert_eq!(rig.count(Count::TcpUnsent), 50_000 - 512);
}

/// Packets that are almost valid, of a connection and of none: no panic, none with a wrong checksum counts, all are
/// counted.
#[test]
fn hostile_bytes_are_ignored() {
    let (mut rig, conn) = victim();
    let mut chance = Chance(77);
    for round in 0..60_000u64 {
        let flags = Flags(chance.next() as u16 & 0x1ff);
        let mut segment = conn.seg(flags, chance.below(400), &[0xaa; 50]);
        if chance.hits(300) {
            segment.from.1 = chance.next() as u16;
        }
        let mut frame = segment.frame();
        for _ in 0..chance.below(4) {
            let at = chance.below(frame.len() as u64) as usize;
            frame[at] = chance.next() as u8;
        }
        if chance.hits(200) {
            frame.truncate(chance.below(frame.len() as u64) as usize);
        }
        let link = chance.one(&[Link::Ethernet, Link::Ethernet, Link::RawIp, Link::Sll]);
        let frame = if link == Link::RawIp && frame.len() > 14 { &frame[14..] } else { &frame };
        rig.receive_as(frame, link, chance.one(&[Checksum::Verify, Checksum::Trusted]));
        if round % 16 == 0 {
            rig.endpoint.burst_end(chance.hits(500), rig.now, &mut rig.memory);
            rig.endpoint.clear(0);
            rig.now = rig.now.after(Duration::from_millis(chance.below(50)));
            rig.endpoint.tick(rig.now, &mut rig.memory);
            rig.endpoint.clear(chance.below(3) as usize);
        }
        assert!(rig.endpoint.connections() <= 4096 + 1024);
    }
    assert!(rig.endpoint.stop(rig.now, &mut rig.memory));
    assert!(rig.memory.streams.values().all(|stream| stream.ending.is_some()));
    rig.count(Count::TcpReceived);
}
