//! Records of connections, fragments, tunnels and floods, for frames in any order.

use crate::support::{self, Sent, accounted, metered, metered_frames, sorted};
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::build::Frame;
use linerate_headers::{Link, MacAddr, ethernet, flow, gre, ipv4, udp, vxlan};
use linerate_meter::{Config, Direction, EndReason, Flow, Meter, Quality, TunnelKind, Tunnels};
use std::net::Ipv4Addr;

const SECOND: u64 = 1_000_000_000;
const START: u64 = 1_700_000_000 * SECOND;
const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const ACK: u8 = 16;
const FIN_ACK: u8 = 17;

/// Packets of one TCP flow a millisecond apart: flags, and true for the client.
fn connection(packets: &[(u8, bool)]) -> Vec<Sent> {
    let one = |(index, (flags, from_client)): (usize, &(u8, bool))| {
        let sent = Sent::tcp(START + index as u64 * 1_000_000, *flags);
        if *from_client { sent } else { sent.turned() }
    };
    packets.iter().enumerate().map(one).collect()
}

#[test]
fn a_new_syn_after_the_end_is_a_new_flow() {
    let open = [(SYN, true), (SYN_ACK, false), (ACK, true)];
    let close = [(FIN_ACK, true), (FIN_ACK, false), (ACK, true)];
    let flows =
        metered(&connection(&[&open[..], &close, &open, &[(4, false)], &open].concat()), &Config::default(), &[3]);
    let found: Vec<_> = sorted(flows).iter().map(|flow| (flow.packets(), flow.end, flow.direction)).collect();
    let syn = Direction::Syn;
    assert_eq!(found, [(6, EndReason::End, syn), (4, EndReason::End, syn), (3, EndReason::Forced, syn)]);
}

#[test]
fn originator_is_the_sender_of_the_syn() {
    for (packets, from_client, direction) in [
        (vec![(SYN, true), (ACK, false)], true, Direction::Syn),
        (vec![(SYN_ACK, false), (ACK, true)], true, Direction::SynAck),
        (vec![(ACK, false), (ACK, true)], false, Direction::FirstPacket),
        (vec![(ACK, false), (SYN, true)], true, Direction::Syn),
    ] {
        let sent = connection(&packets);
        let flows = metered(&sent, &Config::default(), &[32]);
        let client = if packets[0].1 { sent[0].ends()[0] } else { sent[0].ends()[1] };
        assert_eq!((flows[0].ends[0] == client, flows[0].direction), (from_client, direction), "{packets:?}");
        assert_eq!(flows[0].quality.contains(Quality::MIDSTREAM), !packets.iter().any(|one| one.0 & SYN != 0));
    }
}

#[test]
fn frames_of_unknown_links_are_not_classified() {
    let frame = Sent::udp(START).frame();
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    let mut memory = [&frame[..], &arp, &frame, &frame].concat();
    let at = |interface, offset: usize, length: usize| Desc {
        interface,
        ..Desc::new(Nanos(START), offset as u32, length as u32)
    };
    // The third interface has no known link type.
    let (ip, other) = (frame.len(), arp.len());
    let descs = [at(0, 0, ip), at(0, ip, other), at(1, ip + other, ip), at(2, 2 * ip + other, ip)];
    memory.resize(memory.len() + TAIL, 0);
    let mut meter = Meter::new(&Config::default());
    let links = [Some(Link::Ethernet), None];
    meter.take(Burst::over(&memory, &descs).unwrap(), &links, &mut |_: &Flow| {});
    let counts = meter.counts();
    assert_eq!((counts.unknown_link, counts.unknown_link_bytes), (2, 2 * ip as u64));
    assert_eq!((counts.not_ip, counts.not_ip_bytes, counts.begun), (1, other as u64, 1));
    assert_eq!(counts.in_no_record(), (3, (2 * ip + other) as u64));
    assert_eq!(counts.plus(counts).in_no_record(), (6, 2 * (2 * ip + other) as u64));
}

#[test]
fn overflowing_counters_lose_nothing() {
    // Padding beyond an Ethernet header's share overflows the narrow counter repeatedly.
    let sent: Vec<Sent> = (0..20_000).map(|number| Sent { padding: 18, ..Sent::udp(START + number * 1000) }).collect();
    let flows = metered(&sent, &Config::default(), &[64]);
    assert_eq!((flows.len(), flows[0].sides[0].packets), (1, 20_000));
    assert_eq!(flows[0].sides[0].frame_bytes, 20_000 * (14 + 20 + 8 + 10 + 18));
}

/// A flow that starts while the table is full of others evicts one with a single packet.
#[test]
fn a_flood_leaves_established_flows_exact() {
    let config = Config { max_flows: 256, ..Config::default() };
    let mut sent = Vec::new();
    for round in 0..200u64 {
        // Less active than the flood, which fills the table many times in between.
        for host in (0..4u8).filter(|_| round % 100 < 2) {
            let time = START + round * 10_000_000;
            sent.push(Sent { source: (host, 1000), destination: (200, 80), ..Sent::tcp(time, ACK) });
        }
        for number in 0..50u64 {
            let (time, any) = (START + round * 10_000_000 + number, (round * 50 + number) as u16);
            sent.push(Sent { source: (100 + (any % 90) as u8, any), destination: (201, 443), ..Sent::tcp(time, SYN) });
        }
    }
    let flows = metered(&sent, &config, &[32]);
    let established: Vec<&Flow> = flows.iter().filter(|flow| flow.ends[1].port == 80).collect();
    assert_eq!(established.len(), 4);
    assert!(established.iter().all(|flow| flow.packets() == 4 && flow.end == EndReason::Forced));
    let together: Vec<&Flow> = flows.iter().filter(|flow| flow.flows > 1).collect();
    assert_eq!(together.len(), 1, "one record for the target of the flood");
    assert_eq!((together[0].ends[1].port, together[0].end), (443, EndReason::Evicted));
    assert_eq!(together[0].flows, together[0].packets());
    let single = flows.iter().filter(|flow| flow.ends[1].port == 443 && flow.flows == 1).count() as u64;
    assert_eq!(together[0].flows + single, 200 * 50);
}

/// The records are the same for any number of workers.
#[test]
fn workers_give_the_same_records() {
    let mut state = 1u64;
    let mut any = |most: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % most
    };
    let sent: Vec<Sent> = (0..4000)
        .map(|number| Sent {
            source: (any(4) as u8, any(4) as u16),
            destination: (any(4) as u8, any(4) as u16),
            flags: [SYN, SYN_ACK, FIN_ACK, 4].get(any(60) as usize).copied().unwrap_or(ACK),
            protocol: 6,
            ..Sent::udp(START + number * 50_000_000)
        })
        .collect();
    let config = Config::default().with_timeouts(Nanos(9 * SECOND), Nanos(40 * SECOND));
    let whole = sorted(metered(&sent, &config, &[100]));
    assert!(
        whole.iter().any(|flow| flow.end == EndReason::Active) && whole.iter().any(|flow| flow.end == EndReason::Idle)
    );
    for workers in 2..=8 {
        let mut parts = vec![Vec::new(); workers];
        for one in &sent {
            let hash = flow::locate(Link::Ethernet, &one.frame()).hash;
            parts[flow::shard(hash, workers as u32) as usize].push(one.clone());
        }
        let now = Nanos(sent.last().unwrap().time);
        let flows = parts.iter().flat_map(|part| support::metered_until(part, &config, now)).collect();
        assert_eq!(sorted(flows), whole, "{workers} workers");
    }
}

fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

fn link() -> ethernet::Header {
    ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 }
}

fn ip(source: u8, destination: u8) -> ipv4::Header {
    ipv4::Header { source: address(source), destination: address(destination), ..ipv4::Header::new(0) }
}

fn described(frames: Vec<Vec<u8>>) -> Vec<(Desc, Vec<u8>)> {
    let described =
        |(index, frame): (usize, Vec<u8>)| (Desc::new(Nanos(START + index as u64), 0, frame.len() as u32), frame);
    frames.into_iter().enumerate().map(described).collect()
}

#[test]
fn fragments_join_the_flow_of_their_first() {
    let ports = udp::Header { source_port: 4000, destination_port: 53 };
    let fragment = |identification, fragment_offset, more_fragments| {
        let header = ipv4::Header { identification, fragment_offset, more_fragments, protocol: 17, ..ip(1, 2) };
        if fragment_offset == 0 {
            Frame::new(&[&link(), &header, &ports], &[0; 24]).to_vec().unwrap()
        } else {
            Frame::new(&[&link(), &header], &[0; 16]).to_vec().unwrap()
        }
    };
    let back = udp::Header { source_port: 53, destination_port: 4000 };
    let whole = Frame::new(&[&link(), &ip(2, 1), &back], &[0; 9]).to_vec().unwrap();
    // In order, the later one first, without the first; and a complete packet in reverse.
    let frames = described(vec![
        fragment(1, 0, true),
        fragment(1, 32, false),
        fragment(2, 32, true),
        fragment(2, 48, false),
        fragment(2, 0, true),
        fragment(3, 32, false),
        whole,
    ]);
    for bursts in [[1], [7]] {
        let (flows, counts) = metered_frames(&frames, Link::Ethernet, &Config::default(), &bursts);
        accounted(&flows, &counts, &frames, &Config::default());
        let mut flows = flows;
        flows.sort_by_key(|flow| flow.ends[0].port);
        let found: Vec<_> = flows
            .iter()
            .map(|flow| (flow.ends[0].port, flow.ends[1].port, flow.sides.map(|side| side.packets)))
            .collect();
        assert_eq!(found, [(0, 0, [1, 0]), (4000, 53, [5, 1])]);
        assert!(flows[0].quality.contains(Quality::ORPHAN_FRAGMENTS) && flows[1].quality.contains(Quality::FRAGMENTS));
        assert_eq!((counts.fragments_joined, counts.fragments_held, counts.fragments_orphaned), (3, 3, 1));
        assert_eq!(flows[1].sides[0].payload_bytes, 24 + 16 + 16 + 16 + 24);
    }
}

#[test]
fn a_packet_in_a_tunnel_has_a_flow_that_names_its_parent() {
    let tunnel_ports = udp::Header { source_port: 9, destination_port: 4789 };
    let key = gre::Header::Routing(gre::Routing { key: Some(77), ..gre::Routing::default() });
    let (ports, inner) = (udp::Header { source_port: 1, destination_port: 2 }, ip(3, 4));
    let vxlan = vxlan::Header::new(42);
    let frames = described(vec![
        Frame::new(&[&link(), &ip(1, 2), &tunnel_ports, &vxlan, &link(), &inner, &ports], &[0; 5]).to_vec().unwrap(),
        Frame::new(&[&link(), &ip(1, 2), &key, &inner, &ports], &[0; 5]).to_vec().unwrap(),
        Frame::new(&[&link(), &inner, &ports], &[0; 5]).to_vec().unwrap(),
    ]);
    for (tunnels, records, in_tunnels) in [(Tunnels::Outer, 3, 0), (Tunnels::Inner, 3, 2), (Tunnels::Both, 5, 2)] {
        let config = Config { tunnels, ..Config::default() };
        let (flows, counts) = metered_frames(&frames, Link::Ethernet, &config, &[32]);
        accounted(&flows, &counts, &frames, &config);
        let inside: Vec<_> = flows.iter().filter_map(|flow| Some((flow.tunnel?, flow))).collect();
        assert_eq!((flows.len(), inside.len()), (records, in_tunnels), "{tunnels:?}");
        for (tunnel, flow) in inside {
            assert_eq!((flow.ends[0].address, flow.ends[1].port), (address(3).into(), 2));
            assert!(matches!((tunnel.kind, tunnel.id), (TunnelKind::Vxlan, 42) | (TunnelKind::Gre, 77)));
            let parents = flows.iter().filter(|outer| outer.id == tunnel.parent && outer.tunnel.is_none()).count();
            assert_eq!(parents, usize::from(tunnels == Tunnels::Both));
        }
    }
}
