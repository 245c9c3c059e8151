//! Frames distributed over several meters give the records of one meter: both directions, fragments in any order,
//! tunnels, IPv6.

use crate::support::{accounted, metered_frames, sorted};
use linerate_burst::{Burst, Desc, Nanos, TAIL};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{
    Link, MacAddr, ethernet, gre, ipv4, ipv6, ipv6_fragment, mpls, registry, tcp, udp, vlan, vxlan,
};
use linerate_meter::{Config, Counts, Flow, FlowDistributor, Meter, Timeouts, Tunnels};
use proptest::prelude::*;

const START: u64 = 1_700_000_000_000_000_000;

/// A packet between two hosts, and its tunnel.
#[derive(Clone, Copy, Debug)]
struct TunneledPacket {
    hosts: (u8, u8),
    ports: (u16, u16),
    v6: bool,
    kind: Kind,
    tag: Tag,
    tunnel: Tunnel,
    /// Hosts of the outer packet, if there is one.
    outer: (u8, u8),
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Tcp,
    Udp,
    Icmp,
    /// Offset in units of 8 bytes, and its packet; true for the last one.
    Fragment(u16, u16, bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tag {
    None,
    One,
    Two,
    Mpls,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Tunnel {
    None,
    Vxlan,
    Gre,
    Ip,
    /// VXLAN, whose outer packet is a first fragment, or a later one without anything of the inner packet.
    InFragments(u16),
}

fn v4(hosts: (u8, u8)) -> ipv4::Header {
    let address = |host: u8| [10, 0, 0, host].into();
    ipv4::Header { source: address(hosts.0), destination: address(hosts.1), ..ipv4::Header::new(0) }
}

fn v6(hosts: (u8, u8)) -> ipv6::Header {
    let address = |host: u8| [0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()].into();
    ipv6::Header { source: address(hosts.0), destination: address(hosts.1), ..ipv6::Header::new(0) }
}

fn link() -> ethernet::Header {
    ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 }
}

impl TunneledPacket {
    fn frame(&self) -> Vec<u8> {
        let mut headers: Vec<Box<dyn Header>> = vec![Box::new(link())];
        for id in 0..[0, 1, 2, 0][self.tag as usize] {
            headers.push(Box::new(vlan::Header { id: 7 + id, priority: 0, drop_eligible: false, ether_type: 0 }));
        }
        if self.tag == Tag::Mpls {
            headers.push(Box::new(mpls::Entry { label: 77, traffic_class: 0, ttl: 9 }));
        }
        let outer_udp = || udp::Header { source_port: 5000, destination_port: vxlan::PORT };
        match self.tunnel {
            Tunnel::None => {}
            Tunnel::Vxlan => {
                headers.push(Box::new(v4(self.outer)));
                headers.push(Box::new(outer_udp()));
                headers.push(Box::new(vxlan::Header::new(5)));
                headers.push(Box::new(link()));
            }
            Tunnel::Gre => {
                headers.push(Box::new(v6(self.outer)));
                headers.push(Box::new(gre::Header::Routing(gre::Routing::default())));
            }
            Tunnel::Ip => headers.push(Box::new(v4(self.outer))),
            Tunnel::InFragments(offset) => {
                let identification = self.ports.0;
                let first = ipv4::Header { identification, more_fragments: true, ..v4(self.outer) };
                if offset > 0 {
                    let later = ipv4::Header { protocol: registry::UDP, fragment_offset: offset * 8, ..first };
                    headers.push(Box::new(later));
                    return built(&headers, 40);
                }
                headers.push(Box::new(first));
                headers.push(Box::new(outer_udp()));
                headers.push(Box::new(vxlan::Header::new(5)));
                headers.push(Box::new(link()));
            }
        }
        self.packet(&mut headers);
        built(&headers, 24)
    }

    /// The innermost packet.
    fn packet(&self, headers: &mut Vec<Box<dyn Header>>) {
        let (source_port, destination_port) = self.ports;
        let udp = udp::Header { source_port, destination_port };
        let (mut four, mut six) = (v4(self.hosts), v6(self.hosts));
        if let Kind::Fragment(offset, identification, is_last) = self.kind {
            four.protocol = registry::UDP;
            (four.fragment_offset, four.identification) = (offset * 8, identification);
            four.more_fragments = !is_last;
            six.next_header = registry::FRAGMENT;
        }
        let of_six = match self.kind {
            Kind::Fragment(offset, identification, is_last) => Some(ipv6_fragment::Header {
                next_header: registry::UDP,
                fragment_offset: offset * 8,
                more_fragments: !is_last,
                identification: identification.into(),
            }),
            _ => None,
        };
        if matches!(self.kind, Kind::Icmp) {
            (four.protocol, six.next_header) = (registry::ICMP, registry::ICMPV6);
        }
        if self.v6 {
            headers.push(Box::new(six));
            if let Some(fragment) = of_six {
                headers.push(Box::new(fragment));
            }
        } else {
            headers.push(Box::new(four));
        }
        match self.kind {
            Kind::Tcp => {
                headers.push(Box::new(tcp::Header { source_port, destination_port, ..tcp::Header::default() }))
            }
            Kind::Udp | Kind::Fragment(0, ..) => headers.push(Box::new(udp)),
            Kind::Icmp | Kind::Fragment(..) => {}
        }
    }
}

fn built(headers: &[Box<dyn Header>], payload: usize) -> Vec<u8> {
    let headers: Vec<&dyn Header> = headers.iter().map(|header| &**header).collect();
    Frame::new(&headers, &[8; 40][..payload]).to_vec().unwrap()
}

/// Few hosts and ports, so that flows meet, in both directions.
fn sent() -> impl Strategy<Value = TunneledPacket> {
    let hosts = || (1u8..6, 1u8..6);
    let kind = prop_oneof![
        4 => Just(Kind::Tcp),
        4 => Just(Kind::Udp),
        1 => Just(Kind::Icmp),
        6 => (0u16..4, 1u16..4, any::<bool>()).prop_map(|(offset, packet, last)| Kind::Fragment(offset, packet, last)),
    ];
    let tag = prop::sample::select(vec![Tag::None, Tag::None, Tag::One, Tag::Two, Tag::Mpls]);
    let tunnel = prop_oneof![
        4 => Just(Tunnel::None),
        1 => Just(Tunnel::Vxlan),
        1 => Just(Tunnel::Gre),
        1 => Just(Tunnel::Ip),
        1 => (0u16..3).prop_map(Tunnel::InFragments),
    ];
    let ports = (1u16..4, 1u16..4);
    (hosts(), ports, any::<bool>(), kind, tag, tunnel, hosts()).prop_map(
        |(hosts, ports, v6, kind, tag, tunnel, outer)| TunneledPacket { hosts, ports, v6, kind, tag, tunnel, outer },
    )
}

/// Returns the records of several meters, in bursts of these sizes, each followed by the current time for all of them.
fn spread_over(
    meters: usize,
    frames: &[(Desc, Vec<u8>)],
    config: &Config,
    bursts: &[usize],
) -> (Vec<Flow>, Counts, Vec<u64>) {
    let mut spread = FlowDistributor::new(config, meters);
    let mut all: Vec<Meter> = (0..meters).map(|_| Meter::new(config)).collect();
    let mut flows = Vec::new();
    let mut records = |flow: &Flow| flows.push(flow.clone());
    let (mut sizes, mut rest) = (bursts.iter().cycle(), frames);
    while !rest.is_empty() {
        let (burst, behind) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        for (index, meter) in all.iter_mut().enumerate() {
            let (mut memory, mut descs) = (Vec::new(), Vec::new());
            for (desc, frame) in burst {
                if spread.meter_of(Some(Link::Ethernet), frame) == index {
                    descs.push(Desc { offset: memory.len() as u32, captured: frame.len() as u32, ..*desc });
                    memory.extend_from_slice(frame);
                }
            }
            memory.resize(memory.len() + TAIL, 0);
            meter.take(Burst::over(&memory, &descs).unwrap(), &[Some(Link::Ethernet)], &mut records);
            meter.expire(burst.last().unwrap().0.time, &mut records);
        }
        rest = behind;
    }
    let last = all.iter().map(Meter::latest).max().unwrap();
    let (mut counts, mut loads) = (Counts::default(), Vec::new());
    for meter in &mut all {
        meter.finish(last, &mut records);
        counts = counts.plus(meter.counts());
        loads.push(meter.counts().frames);
    }
    (flows, counts, loads)
}

fn described(frames: Vec<Vec<u8>>, gap: u64) -> Vec<(Desc, Vec<u8>)> {
    let describe =
        |(index, frame): (usize, Vec<u8>)| (Desc::new(Nanos(START + index as u64 * gap), 0, frame.len() as u32), frame);
    frames.into_iter().enumerate().map(describe).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn several_meters_equal_one_meter(
        sent in prop::collection::vec(sent(), 1..120),
        gap in prop::sample::select(vec![1_000u64, 200_000_000, 900_000_000]),
        meters in 1usize..9,
        tunnels in prop::sample::select(vec![Tunnels::Outer, Tunnels::Inner, Tunnels::Both]),
        vlans in any::<bool>(),
        idle in prop::sample::select(vec![3u64, 25, 120]),
        seed in any::<[u64; 2]>(),
        bursts in prop::collection::vec(1usize..70, 1..5),
    ) {
        let timeouts = Timeouts { idle: Nanos(idle * 1_000_000_000), active: Nanos(4 * idle * 1_000_000_000) };
        let config = Config { tunnels, vlans, seed, max_flows: 256, timeouts: [timeouts; 4], ..Config::default() };
        let frames = described(sent.iter().map(TunneledPacket::frame).collect(), gap);
        let (one, counts) = metered_frames(&frames, Link::Ethernet, &config, &[32]);
        let (several, of_all, loads) = spread_over(meters, &frames, &config, &bursts);
        accounted(&several, &of_all, &frames, &config);
        prop_assert_eq!(loads.iter().sum::<u64>(), frames.len() as u64);
        let (several, one) = (sorted(several), sorted(one));
        let other = several.iter().zip(&one).find(|(one, other)| one != other);
        prop_assert!(other.is_none() && several.len() == one.len(), "{other:?}");
        prop_assert_eq!(Counts { most_flows: 0, ..of_all }, Counts { most_flows: 0, ..counts });
    }

    /// The fast path agrees with the walk through all headers, which is taken for another kind of tag.
    #[test]
    fn outer_headers_do_not_change_the_worker(sent in sent(), meters in 2usize..9, seed in any::<[u64; 2]>()) {
        for tunnels in [Tunnels::Both, Tunnels::Inner] {
            let mut spread = FlowDistributor::new(&Config { tunnels, seed, ..Config::default() }, meters);
            let tags = [Tag::None, Tag::One, Tag::Two, Tag::Mpls];
            let found = tags.map(|tag| spread.meter_of(Some(Link::Ethernet), &TunneledPacket { tag, ..sent }.frame()));
            prop_assert_eq!(found, [found[0]; 4]);
            let raw = spread.meter_of(Some(Link::RawIp), &TunneledPacket { tag: Tag::None, ..sent }.frame()[ethernet::LEN..]);
            prop_assert_eq!(raw, found[0]);
        }
    }

    /// A plain frame gives the same record when truncated to its headers.
    #[test]
    fn a_plain_frame_may_be_truncated_after_its_headers(sent in sent(), more in 0usize..1200) {
        let mut frame = sent.frame();
        frame.resize(frame.len() + FlowDistributor::HEADERS + more, 7);
        if FlowDistributor::is_plain(Some(Link::Ethernet), &frame) {
            let desc = Desc::new(Nanos(START), 0, frame.len() as u32);
            let whole = metered_frames(&[(desc, frame.clone())], Link::Ethernet, &Config::default(), &[1]).0;
            let cut = frame[..FlowDistributor::HEADERS].to_vec();
            prop_assert_eq!(metered_frames(&[(desc, cut)], Link::Ethernet, &Config::default(), &[1]).0, whole);
        } else {
            let is_simple = sent.tunnel == Tunnel::None && matches!(sent.kind, Kind::Tcp | Kind::Udp);
            prop_assert!(!is_simple || matches!(sent.tag, Tag::Two | Tag::Mpls));
        }
    }
}

/// Many pairs of hosts with consecutive addresses are distributed evenly.
#[test]
fn pairs_are_spread_evenly() {
    let pairs = (0..80_000u32).map(|index| {
        let header = ipv4::Header {
            source: (0x0a00_0000 + index).into(),
            destination: (0x0b00_0000 + index).into(),
            ..ipv4::Header::new(0)
        };
        let ports = udp::Header { source_port: 1, destination_port: 2 };
        Frame::new(&[&link(), &header, &ports], &[]).to_vec().unwrap()
    });
    let mut spread = FlowDistributor::new(&Config::default(), 8);
    let mut loads = [0u32; 8];
    pairs.for_each(|frame| loads[spread.meter_of(Some(Link::Ethernet), &frame)] += 1);
    assert!(loads.iter().all(|load| (9_400..10_600).contains(load)), "{loads:?}");
}

#[test]
fn non_ip_frames_go_to_the_first_worker() {
    let mut spread = FlowDistributor::new(&Config::default(), 8);
    let arp = [&[2; 12][..], &[8, 6], &[0; 46]].concat();
    assert_eq!(spread.meter_of(Some(Link::Ethernet), &arp), 0);
    assert_eq!(spread.meter_of(None, &[0x45; 60]), 0);
    for length in 0..80 {
        assert!(spread.meter_of(Some(Link::Ethernet), &TunneledPacket::SHORT.frame()[..length.min(42)]) < 8);
    }
}

impl TunneledPacket {
    const SHORT: TunneledPacket = TunneledPacket {
        hosts: (1, 2),
        ports: (1, 2),
        v6: false,
        kind: Kind::Udp,
        tag: Tag::None,
        tunnel: Tunnel::None,
        outer: (1, 2),
    };
}
