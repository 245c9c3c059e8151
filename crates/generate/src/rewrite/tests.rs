//! Rewritten frames against frames that were built with the other values from the start.

mod quotes;

use super::*;
use linerate_headers::build::{Extension, Frame, Header};
use linerate_headers::{ethernet, icmp, icmpv6, ipv4, ipv6, ipv6_extension, sctp, tcp, udp, udp_lite, vlan, vxlan};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Values of one packet that rules change.
#[derive(Clone, Copy, Debug)]
struct Values {
    macs: [MacAddr; 2],
    v4: [Ipv4Addr; 2],
    v6: [Ipv6Addr; 2],
    ports: [u16; 2],
    ttl: u8,
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    is_v6: bool,
    transport: u8,
    tagged: bool,
    in_tunnel: bool,
}

const OUTER: Values = Values {
    macs: [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])],
    v4: [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)],
    v6: [Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST],
    ports: [50_000, 4789],
    ttl: 9,
};

fn headers(values: &Values, shape: Shape) -> Vec<Box<dyn Header>> {
    let [source, destination] = values.macs;
    let mut headers: Vec<Box<dyn Header>> = vec![Box::new(ethernet::Header { source, destination, ether_type: 0 })];
    if shape.tagged {
        headers.push(Box::new(vlan::Header { id: 5, priority: 3, drop_eligible: true, ether_type: 0 }));
    }
    if shape.is_v6 {
        let [source, destination] = values.v6;
        headers.push(Box::new(ipv6::Header { source, destination, hop_limit: values.ttl, ..ipv6::Header::new(0) }));
    } else {
        let [source, destination] = values.v4;
        headers.push(Box::new(ipv4::Header { source, destination, ttl: values.ttl, ..ipv4::Header::new(0) }));
    }
    let [source_port, destination_port] = values.ports;
    headers.push(match shape.transport {
        0 => Box::new(tcp::Header { source_port, destination_port, ..tcp::Header::default() }),
        1 => Box::new(udp::Header { source_port, destination_port }),
        2 => Box::new(udp_lite::Header { source_port, destination_port, coverage: 8 }),
        3 => Box::new(sctp::Header { source_port, destination_port, tag: 77 }),
        _ if shape.is_v6 => Box::new(icmpv6::Header { kind: 128, code: 0 }),
        _ => Box::new(icmp::Header { kind: 8, code: 0, rest: [1, 2, 3, 4] }),
    });
    headers
}

fn build(values: &Values, shape: Shape, payload: &[u8]) -> Vec<u8> {
    let plain = Shape { is_v6: false, transport: 1, tagged: true, in_tunnel: false };
    let mut all = if shape.in_tunnel { headers(&OUTER, plain) } else { Vec::new() };
    if shape.in_tunnel {
        all.push(Box::new(vxlan::Header::new(42)));
    }
    all.extend(headers(values, shape));
    let all: Vec<&dyn Header> = all.iter().map(|header| &**header).collect();
    Frame::new(&all, payload).to_vec().unwrap()
}

fn rewriter(rules: &[&str]) -> Rewriter {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    Rewriter::new(Rewriting { rules, ..Rewriting::default() })
}

fn rewritten(rewriter: &mut Rewriter, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    rewriter.rewrite(&mut frame, 0, false);
    frame
}

fn shape() -> impl Strategy<Value = Shape> {
    (any::<bool>(), 0u8..5, any::<bool>(), any::<bool>()).prop_map(|(is_v6, transport, tagged, in_tunnel)| Shape {
        is_v6,
        transport,
        tagged,
        in_tunnel,
    })
}

/// Generates ports that announce no protocol, so that the payload is not dissected.
fn port() -> impl Strategy<Value = u16> {
    20_000u16..30_000
}

fn values() -> impl Strategy<Value = Values> {
    let ends = (any::<[u8; 2]>(), any::<[u32; 2]>(), any::<[u128; 2]>(), (port(), port()), any::<u8>());
    ends.prop_map(|(macs, v4, v6, ports, ttl)| Values {
        macs: macs.map(|last| MacAddr([2, 0, 0, 0, 1, last])),
        v4: v4.map(|bits| Ipv4Addr::from(10 << 24 | bits & 0xff_ffff)),
        v6: v6.map(|bits| Ipv6Addr::from(0x2001 << 112 | bits & (u128::MAX >> 16))),
        ports: ports.into(),
        ttl,
    })
}

/// One rule of each kind; `moved` computes their results separately.
const RULES: [&str; 8] = [
    "src-mac=02:00:00:00:09:01",
    "dst-mac=02:00:00:00:09:02",
    "src-ip=10.0.0.0/8:172.0.0.0/8",
    "dst-ip=10.0.0.0/8:203.0.0.0/16",
    "ip=2001::/16:fd00:1::/32",
    "src-port=20000-29999:40000-49999",
    "dst-port=20000-29999:31000",
    "ttl=-3",
];

fn moved(values: &Values) -> Values {
    let [source, destination] = values.v4.map(u32::from);
    Values {
        macs: [MacAddr([2, 0, 0, 0, 9, 1]), MacAddr([2, 0, 0, 0, 9, 2])],
        v4: [Ipv4Addr::from(172 << 24 | source & 0xff_ffff), Ipv4Addr::from(203 << 24 | destination & 0xffff)],
        v6: values.v6.map(|address| Ipv6Addr::from(0xfd00_0001 << 96 | u128::from(address) & (u128::MAX >> 32))),
        ports: [values.ports[0] + 20_000, 31_000],
        ttl: if values.ttl > 3 { values.ttl - 3 } else { values.ttl.min(1) },
    }
}

/// Returns the rewriter with all rules; `inner` applies them to packets in tunnels too.
fn all(inner: bool) -> Rewriter {
    let mut all = rewriter(&RULES);
    all.rewriting.inner = inner;
    all
}

/// Applies the rules to the outer headers.
fn outer_moved(frame: &[u8]) -> Vec<u8> {
    rewritten(&mut rewriter(&[RULES[0], RULES[1], "ttl=-3"]), frame)
}

proptest! {
    #[test]
    fn rewriting_equals_building_with_other_values(
        values in values(), shape in shape(), payload in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let frame = build(&values, shape, &payload);
        let wanted = build(&moved(&values), shape, &payload);
        if shape.in_tunnel {
            prop_assert_eq!(rewritten(&mut all(false), &frame), outer_moved(&frame), "the packet in the tunnel stays");
            prop_assert_eq!(rewritten(&mut all(true), &frame), outer_moved(&wanted));
        } else {
            prop_assert_eq!(rewritten(&mut all(false), &frame), wanted);
        }
    }

    /// Rewriting a cut frame equals cutting a rewritten one.
    #[test]
    fn cutting_and_rewriting_commute(values in values(), shape in shape(), payload: [u8; 32], keep in 0usize..32) {
        prop_assume!(shape.transport != 3, "the checksum of SCTP needs all of the packet");
        let frame = build(&values, shape, &payload);
        let length = frame.len() - keep;
        let mut cut = frame[..length].to_vec();
        all(true).rewrite(&mut cut, 0, true);
        prop_assert_eq!(&cut[..], &rewritten(&mut all(true), &frame)[..length]);
    }

    #[test]
    fn invalid_checksums_are_fixed_only_on_request(
        values in values(), shape in shape(), payload: [u8; 9], at in 0usize..9, flip in 1u8..=255,
    ) {
        let (shape, mut other) = (Shape { in_tunnel: false, ..shape }, payload);
        other[at] ^= flip;
        let mut damaged = build(&values, shape, &payload);
        let place = damaged.len() - payload.len() + at;
        damaged[place] ^= flip;
        if shape.transport != 3 {
            let mut wanted = build(&moved(&values), shape, &payload);
            wanted[place] ^= flip;
            prop_assert_eq!(rewritten(&mut all(false), &damaged), wanted, "they are updated, not recomputed");
        }
        let mut fixing = all(false);
        fixing.rewriting.fix_checksums = true;
        prop_assert_eq!(rewritten(&mut fixing, &damaged), build(&moved(&values), shape, &other));
    }

    #[test]
    fn any_bytes_are_rewritten_safely(
        begin in prop::sample::select(vec![vec![0x08, 0, 0x45], vec![0x86, 0xdd, 0x60], vec![0x81, 0], vec![8, 6, 0, 1]]),
        mut frame in proptest::collection::vec(any::<u8>(), 0..140), protocol in prop::sample::select(vec![0u8, 1, 4, 6, 17, 41, 43, 44, 47, 58, 132, 135, 136]),
        is_cut: bool, turn: u64,
    ) {
        if frame.len() > 30 {
            frame[12..12 + begin.len()].copy_from_slice(&begin);
            frame[if begin[0] == 8 { 23 } else { 20 }] = protocol;
        }
        let mut rewriter = all(true);
        rewriter.rewriting.fix_checksums = true;
        rewriter.rewriting.shift = Some("77".parse().unwrap());
        rewriter.rewriting.rules.push("vlan=pop".parse().unwrap());
        rewriter.rewriting.rules.push("vlan=push:7".parse().unwrap());
        rewriter.rewrite(&mut frame, turn, is_cut);
    }
}

#[test]
fn arp_and_neighbour_discovery_follow() {
    let arp = arp::Packet {
        operation: arp::REQUEST,
        sender_mac: OUTER.macs[0],
        sender_ip: [10, 1, 2, 3].into(),
        target_mac: MacAddr([0; 6]),
        target_ip: [10, 9, 9, 9].into(),
    };
    let link = ethernet::Header { source: OUTER.macs[0], destination: MacAddr::BROADCAST, ether_type: 0 };
    let frame = Frame::new(&[&link, &arp], &[0; 18]).to_vec().unwrap();
    let new = MacAddr([2, 0, 0, 0, 7, 7]);
    let moved = arp::Packet { sender_mac: new, sender_ip: [172, 1, 2, 3].into(), ..arp };
    let link = ethernet::Header { source: new, ..link };
    let wanted = Frame::new(&[&link, &moved], &[0; 18]).to_vec().unwrap();
    let rules = ["src-mac=02:00:00:00:07:07", "dst-mac=02:00:00:00:07:08", "src-ip=10.0.0.0/8:172.0.0.0/8"];
    assert_eq!(rewritten(&mut rewriter(&rules), &frame), wanted, "a broadcast stays one");
    let mut group_sender = frame.clone();
    group_sender[6] = 0xc1;
    assert_eq!(rewritten(&mut rewriter(&rules), &group_sender)[6..12], new.0, "no group sends");

    let solicit = |source: &str, target: &str| {
        let network = ipv6::Header { source: source.parse().unwrap(), ..ipv6::Header::new(0) };
        let target: Ipv6Addr = target.parse().unwrap();
        let body = [&[0; 4][..], &target.octets()].concat();
        Frame::new(&[&link, &network, &icmpv6::Header { kind: 135, code: 0 }], &body).to_vec().unwrap()
    };
    let moved = rewritten(&mut rewriter(&["ip=2001:db8::/32:fd00::/32"]), &solicit("2001:db8::1", "2001:db8::2"));
    assert_eq!(moved, solicit("fd00::1", "fd00::2"));
}

#[test]
fn the_checksum_after_a_source_route_uses_its_final_destination() {
    let route = [0, 1, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
    let frame = |destination: &str| {
        let link = ethernet::Header { source: OUTER.macs[0], destination: OUTER.macs[1], ether_type: 0 };
        let network = ipv6::Header { destination: destination.parse().unwrap(), ..ipv6::Header::new(0) };
        let routing = Extension::Routing(ipv6_extension::Header { next_header: 0, data: &route });
        let datagram = udp::Header { source_port: 20_000, destination_port: 20_001 };
        Frame::new(&[&link, &network, &routing, &datagram], b"hello").to_vec().unwrap()
    };
    assert_eq!(rewritten(&mut rewriter(&["ip=2001::1=fd00::1"]), &frame("2001::1")), frame("fd00::1"));
}

#[test]
fn absent_udp_checksum_stays_absent() {
    let shape = Shape { is_v6: false, transport: 1, tagged: false, in_tunnel: false };
    let mut frame = build(&OUTER, shape, b"hello");
    frame[40..42].fill(0);
    let moved = rewritten(&mut rewriter(&["src-port=50000:1"]), &frame);
    assert_eq!(moved[34..42], [0, 1, 0x12, 0xb5, 0, 13, 0, 0]);
}

#[test]
fn zero_udp_checksum_is_written_as_ffff() {
    let shape = Shape { is_v6: false, transport: 1, tagged: false, in_tunnel: false };
    let with = |port: u16| build(&Values { ports: [port, 4789], ..OUTER }, shape, b"hello");
    let port = (0..=u16::MAX).find(|port| with(*port)[40..42] == [0xff; 2]).unwrap();
    assert_eq!(rewritten(&mut rewriter(&[&format!("src-port=50000:{port}")]), &with(50_000)), with(port));
}

#[test]
fn inner_packets_change_only_on_request() {
    let network = |last: u8| ipv4::Header { source: [10, 0, 0, last].into(), ..ipv4::Header::new(0) };
    let link = ethernet::Header { source: OUTER.macs[0], destination: OUTER.macs[1], ether_type: 0 };
    let frame = |outer, inner| Frame::new(&[&link, &network(outer), &network(inner)], b"x").to_vec().unwrap();
    let mut rewriter = rewriter(&["ip=10.0.0.1:10.0.0.9"]);
    assert_eq!(rewritten(&mut rewriter, &frame(1, 1)), frame(9, 1));
    rewriter.rewriting.inner = true;
    assert_eq!(rewritten(&mut rewriter, &frame(1, 1)), frame(9, 9));
}

#[test]
fn later_fragments_and_truncated_headers_are_partly_changed() {
    let shape = Shape { is_v6: false, transport: 0, tagged: false, in_tunnel: false };
    let values = Values { v4: [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()], ports: [20_000, 20_001], ..OUTER };
    let whole = build(&values, shape, b"hello");
    let mut cut = whole[..40].to_vec();
    all(false).rewrite(&mut cut, 0, true);
    let wanted = rewritten(&mut all(false), &whole);
    assert_eq!((&cut[..34], &cut[34..]), (&wanted[..34], &whole[34..40]), "ports without their checksum stay");
    let mut fragment = whole.clone();
    fragment[21] = 1;
    assert_eq!(rewritten(&mut all(false), &fragment)[34..], whole[34..]);
    let mut first = whole.clone();
    first[20] = 0x20;
    let mut fixing = all(false);
    fixing.rewriting.fix_checksums = true;
    assert_eq!(rewritten(&mut fixing, &first)[34..], wanted[34..], "a first fragment has a checksum of all");
}

#[test]
fn each_loop_has_its_own_addresses_and_valid_checksums() {
    let shape = Shape { is_v6: false, transport: 0, tagged: false, in_tunnel: false };
    let of = |add: u8| Values { v4: [[10, 0, 0, 1 + add].into(), [10, 0, 0, 200 + add].into()], ..OUTER };
    let mut shifting = Rewriter::new(Rewriting { shift: Some("5".parse().unwrap()), ..Rewriting::default() });
    for turn in 0..9 {
        let mut frame = build(&of(0), shape, b"hello");
        shifting.rewrite(&mut frame, u64::from(turn), false);
        assert_eq!(frame, build(&of(5 * turn), shape, b"hello"));
    }
}
