//! Flow hashes: equal for both directions and all fragments, optionally in tunnels, and evenly distributed over shards.

use crate::packets::{Network, Packet, Transport, packet};
use linerate_headers::build::{Frame, Header};
use linerate_headers::flow::{HeaderOffsets, locate, locate_inner, shard};
use linerate_headers::*;
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([6, 0, 0, 0, 0, 9])];

/// Two endpoints: addresses of one family, and ports.
type Flow = [(IpAddr, u16); 2];

fn link() -> ethernet::Header {
    ethernet::Header { source: MACS[0], destination: MACS[1], ether_type: 0 }
}

fn network([(source, _), (destination, _)]: Flow) -> Box<dyn Header> {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Box::new(ipv4::Header { source, destination, ..ipv4::Header::new(0) })
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Box::new(ipv6::Header { source, destination, ..ipv6::Header::new(0) })
        }
        _ => unreachable!("one family"),
    }
}

fn ports([(_, source_port), (_, destination_port)]: Flow) -> udp::Header {
    udp::Header { source_port, destination_port }
}

fn built(headers: &[&dyn Header], payload: &[u8]) -> Vec<u8> {
    Frame::new(headers, payload).to_vec().unwrap()
}

/// A UDP frame of the flow, long enough for any path.
fn udp_frame(flow: Flow) -> Vec<u8> {
    built(&[&link(), &*network(flow), &ports(flow)], &[0; 30])
}

/// Number of kinds of [`tunnelled`].
const TUNNELS: usize = 13;
/// The kind that carries only its own addresses.
const TEREDO: usize = 8;
/// Converts an address to one of Teredo (RFC 4380 section 4) with the same last bytes.
fn of_teredo((address, port): (IpAddr, u16)) -> (IpAddr, u16) {
    let bits = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address) << 32 >> 32,
    };
    (IpAddr::V6((0x2001_0000 << 96 | bits).into()), port)
}

/// A UDP packet of the flow `inner` in a tunnel of this kind. The tunnel has a different source port in each direction.
fn tunnelled(kind: usize, outer: Flow, source_port: u16, inner: Flow) -> Vec<u8> {
    let session = erspan::Session::default();
    let udp = |destination_port| Box::new(udp::Header { source_port, destination_port }) as Box<dyn Header>;
    let gre = || Box::new(gre::Header::Routing(gre::Routing::default())) as Box<dyn Header>;
    let labels: &'static [mpls::Entry] = &[mpls::Entry { label: 1000, traffic_class: 0, ttl: 64 }];
    let (message, teid) = (gtp_u::USER_DATA, source_port.into());
    let user_data = gtp_u::Header { message, teid, sequence: None, n_pdu: None, first_extension: 0, extensions: &[] };
    let geneve = geneve::Header { control: false, critical: false, protocol: 0, vni: 42, options: &[] };
    let ethernet = || Box::new(link()) as Box<dyn Header>;
    let tunnel: Vec<Box<dyn Header>> = match kind {
        0 => vec![udp(vxlan::PORT), Box::new(vxlan::Header::new(42)), ethernet()],
        1 => vec![udp(vxlan::OLD_PORT), Box::new(vxlan::Header::new(42)), ethernet()],
        2 => vec![udp(geneve::PORT), Box::new(geneve), ethernet()],
        3 => vec![udp(geneve::PORT), Box::new(geneve)],
        4 => vec![udp(gtp_u::PORT), Box::new(user_data)],
        5 => vec![gre()],
        6 => vec![gre(), ethernet()],
        // ERSPAN type I has no sequence number, and no header.
        7 => vec![
            Box::new(gre::Header::Routing(gre::Routing { sequence: Some(1), ..gre::Routing::default() })),
            Box::new(erspan::Header::Type2 { session, index: 3 }),
            ethernet(),
        ],
        TEREDO => vec![udp(teredo::PORT), Box::new(teredo::Header::default())],
        9 => vec![],
        10 => vec![Box::new(labels)],
        11 => vec![gre(), Box::new(labels)],
        _ => vec![gre(), udp(vxlan::PORT), Box::new(vxlan::Header::new(7)), ethernet()],
    };
    let (ethernet, outside, inside, ports) = (link(), network(outer), network(inner), ports(inner));
    let mut headers: Vec<&dyn Header> = vec![&ethernet, &*outside];
    // A tunnel in a tunnel: both use the innermost packet.
    let between = network(outer);
    tunnel.iter().for_each(|header| {
        headers.push(&**header);
        if kind == 12 && headers.len() == 3 {
            headers.push(&*between);
        }
    });
    headers.extend([&*inside, &ports as &dyn Header]);
    built(&headers, &[0; 30])
}

fn located(frame: &[u8]) -> HeaderOffsets {
    locate(Link::Ethernet, frame)
}

fn turned(flow: Flow) -> Flow {
    [flow[1], flow[0]]
}

fn flow() -> impl Strategy<Value = Flow> {
    let v4 = any::<[(u32, u16); 2]>().prop_map(|ends| ends.map(|(address, port)| (IpAddr::V4(address.into()), port)));
    let v6 = any::<[(u128, u16); 2]>().prop_map(|ends| ends.map(|(address, port)| (IpAddr::V6(address.into()), port)));
    prop_oneof![v4, v6]
}

/// The same packet in reverse direction.
fn reversed_packet(packet: &Packet) -> Packet {
    let mut back = packet.clone();
    match &mut back.network {
        Network::V4 { addresses, .. } => addresses.reverse(),
        Network::V6 { addresses, .. } => addresses.reverse(),
    }
    match &mut back.transport {
        Transport::Tcp { ports, .. } | Transport::Udp { ports } => ports.reverse(),
        _ => {}
    }
    back
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_directions_share_a_hash_at_any_truncation(packet in packet(), cut in any::<prop::sample::Index>()) {
        let (there, layers) = packet.build();
        let (back, _) = reversed_packet(&packet).build();
        let cut = cut.index(there.len() + 1);
        prop_assert_eq!(located(&there[..cut]).hash, located(&back[..cut]).hash);
        prop_assert_eq!(located(&there[..cut]).hash == 0, cut < ethernet::LEN);
        // Tags and other headers before the packet are not hashed, nor is anything after the ports.
        let bare = Packet { tags: Vec::new(), ..packet.clone() };
        prop_assert_eq!(located(&bare.build().0).hash, located(&there).hash);
        prop_assert_eq!(locate(Link::RawIp, &there[ethernet::LEN + packet.tags.len() * vlan::LEN..]).hash, located(&there).hash);
        let fragmented = matches!(packet.network, Network::V4 { fragment: 1.., .. });
        if let (Some(last), Transport::Tcp { .. } | Transport::Udp { .. }, false) = (layers.last(), &packet.transport, fragmented) {
            let ports_end = last.offset as usize + 4;
            let whole = located(&there).hash;
            prop_assert_eq!(located(&there[..ports_end]).hash, whole, "with ports");
            prop_assert_eq!(located(&there[..ports_end - 1]).l4, u8::MAX, "without ports");
        }
    }

    #[test]
    fn hashes_differ_between_flows(one in flow(), other in flow()) {
        let same = one == other || one == turned(other);
        prop_assert_eq!(located(&udp_frame(one)).hash == located(&udp_frame(other)).hash, same);
    }

    #[test]
    fn fragments_have_the_hash_of_their_addresses(flow in flow(), offset in 1..100u16, others in any::<[u16; 2]>()) {
        let fragment = |fragment_offset, more_fragments, flow: Flow| {
            let ip = network(flow);
            match flow[0].0 {
                IpAddr::V4(source) => {
                    let IpAddr::V4(destination) = flow[1].0 else { unreachable!("one family") };
                    let header = ipv4::Header { source, destination, fragment_offset, more_fragments, ..ipv4::Header::new(0) };
                    built(&[&link(), &header, &ports(flow)], &[0; 30])
                }
                IpAddr::V6(_) => {
                    let header = ipv6_fragment::Header { next_header: 0, fragment_offset, more_fragments, identification: 7 };
                    built(&[&link(), &*ip, &header, &ports(flow)], &[0; 30])
                }
            }
        };
        let ported = [(flow[0].0, others[0]), (flow[1].0, others[1])];
        let first = located(&fragment(0, true, flow));
        prop_assert!(first.l4 != u8::MAX, "the first fragment has the transport header");
        for other in [fragment(offset * 8, true, ported), fragment(offset * 8, false, turned(ported)), fragment(0, true, ported)] {
            prop_assert_eq!(located(&other).hash, first.hash);
        }
        // A fragment that is the whole packet is not a fragment.
        prop_assert_eq!(located(&fragment(0, false, flow)).hash, located(&udp_frame(flow)).hash);
    }

    #[test]
    fn tunnelled_flows_have_the_hash_of_the_inner_flow(
        outer in flow(),
        source_ports in any::<[u16; 2]>(),
        inner in flow(),
        kind in 0..TUNNELS,
    ) {
        let inner = if kind == TEREDO { inner.map(of_teredo) } else { inner };
        let hash = located(&udp_frame(inner)).hash;
        for (outer, source_port, inner) in [(outer, source_ports[0], inner), (turned(outer), source_ports[1], turned(inner))] {
            let frame = tunnelled(kind, outer, source_port, inner);
            let found = locate_inner(Link::Ethernet, &frame);
            prop_assert_eq!(found.hash, hash, "tunnel {}", kind);
            prop_assert_eq!(found, HeaderOffsets { hash, ..located(&frame) });
            // The tunnel's packet in fragments: only the first one has the inner flow.
            let gre = gre::Header::Routing(gre::Routing::default());
            let fragment = |more_fragments, fragment_offset| {
                let part = ipv4::Header { more_fragments, fragment_offset, ..ipv4::Header::new(0) };
                locate_inner(Link::Ethernet, &built(&[&link(), &part, &gre, &*network(inner), &ports(inner)], &[0; 30])).hash
            };
            prop_assert_eq!(fragment(true, 0), fragment(false, 800));
            prop_assert_ne!(fragment(true, 0), fragment(false, 0));
        }
        // Without a tunnel both are the same.
        let plain = udp_frame(inner);
        prop_assert_eq!(locate_inner(Link::Ethernet, &plain), located(&plain));
    }

    #[test]
    fn any_bytes_are_hashed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for link in Link::ALL {
            locate(link, &bytes);
            locate_inner(link, &bytes);
        }
        prop_assert_eq!(located(&bytes).hash != 0, bytes.len() >= ethernet::LEN);
    }
}

#[test]
fn frames_without_ip_are_hashed_by_mac_addresses_and_type() {
    let frame = |macs: [MacAddr; 2], tags: usize, ether_type: u16, payload: usize| {
        let link = ethernet::Header { source: macs[0], destination: macs[1], ether_type };
        let tag = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type };
        let mut headers: Vec<&dyn Header> = vec![&link];
        headers.extend(vec![&tag as &dyn Header; tags]);
        located(&built(&headers, &vec![0; payload])).hash
    };
    let [one, other] = MACS;
    let known = frame([one, other], 0, ethernet::ARP, 28);
    assert_eq!(known, frame([other, one], 2, ethernet::ARP, 46));
    assert_ne!(known, frame([one, one], 0, ethernet::ARP, 28));
    assert_ne!(known, frame([one, other], 0, 0x88cc, 28));
    assert_eq!(frame([one, other], 0, 40, 40), frame([other, one], 1, 60, 60), "a length is not a type");
    assert_eq!(located(&[0; 13]), HeaderOffsets { l3: 255, l4: 255, hash: 0 });
    assert_eq!(locate(Link::Null, &[2, 0, 0, 0, 0x45]).hash, 0, "no addresses, no flow");
}

/// Sixteen thousand flows.
const FLOWS: usize = 128 * 128;

/// SplitMix64 (Steele, Lea, Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

fn address(v6: bool, number: u32) -> IpAddr {
    if v6 { IpAddr::V6((0x2001_0db8 << 96 | u128::from(number)).into()) } else { IpAddr::V4(number.into()) }
}

/// Returns the next of `hosts`, if the host of rank r is 1/r as popular as the first.
fn popular(state: &mut u64, hosts: usize) -> u32 {
    // The inverse of the distribution of 1/x: ranks fall together up to rounding.
    let uniform = (random(state) >> 11) as f64 / (1u64 << 53) as f64;
    ((hosts as f64 + 1.0).powf(uniform) - 1.0) as u32
}

/// Address patterns that defeat weak hashes, each flow once.
fn patterns(v6: bool) -> [(&'static str, Vec<Flow>); 4] {
    let flow =
        |source, source_port, destination, port| [(address(v6, source), source_port), (address(v6, destination), port)];
    let (left, right) = (0x0a00_0000, 0x0a01_0000);
    let numbers = || 0..FLOWS as u32;
    let mut state = 1;
    let mut any = || random(&mut state) as u32;
    let random_flows = numbers().map(|_| flow(any(), any() as u16, any(), any() as u16)).collect();
    let (mut state, mut seen) = (2, HashSet::new());
    while seen.len() < FLOWS {
        let (client, server) = (popular(&mut state, 20_000), popular(&mut state, 2000));
        seen.insert((left + client, 1024 + (random(&mut state) % 64_000) as u16, right + server));
    }
    let mut zipf: Vec<_> = seen.into_iter().collect();
    zipf.sort_unstable();
    [
        ("mesh", numbers().map(|number| flow(left + number / 128, 5000, right + number % 128, 80)).collect()),
        ("lock-step", numbers().map(|number| flow(left + number, 1024 + number as u16, right + number, 80)).collect()),
        ("random", random_flows),
        ("zipf", zipf.into_iter().map(|(client, port, server)| flow(client, port, server, 443)).collect()),
    ]
}

/// Returns the load of the fullest of `shards` shards relative to their mean.
fn imbalance(loads: impl Iterator<Item = (u32, f64)>, shards: u32) -> f64 {
    let mut sums = vec![0.0; shards as usize];
    loads.for_each(|(hash, load)| sums[shard(hash, shards) as usize] += load);
    sums.iter().copied().fold(0.0, f64::max) * f64::from(shards) / sums.iter().sum::<f64>()
}

#[test]
fn shards_are_even_for_any_address_pattern() {
    for (v6, (name, flows)) in [false, true].into_iter().flat_map(|v6| patterns(v6).map(|pattern| (v6, pattern))) {
        let frames: Vec<[Vec<u8>; 2]> = flows.iter().map(|flow| [udp_frame(*flow), udp_frame(turned(*flow))]).collect();
        let hashes: Vec<u32> = frames.iter().map(|[there, _]| located(there).hash).collect();
        assert!(frames.iter().zip(&hashes).all(|([_, back], hash)| located(back).hash == *hash), "{name}");
        for shards in [2, 3, 7, 8, 12, 16] {
            let worst = imbalance(hashes.iter().map(|hash| (*hash, 1.0)), shards);
            println!("{name}, IPv6 {v6}, {shards} shards: {worst:.3}");
            assert!(worst <= 1.10, "{name}, IPv6 {v6}: the fullest of {shards} shards has {worst:.3} of the mean");
        }
    }
}

/// With a few heavy flows no hash is even, as it cannot divide a flow: ours is as even as a random one.
#[test]
fn heavy_flows_are_spread_as_evenly_as_random() {
    let load = |rank: usize| 1.0 / (rank + 17) as f64; // without the 16 heaviest
    for (v6, shards) in [(false, 2), (true, 2), (false, 7), (true, 7), (false, 16), (true, 16)] {
        for (name, flows) in patterns(v6) {
            let hashes = flows.iter().map(|flow| located(&udp_frame(*flow)).hash);
            let ours = imbalance(hashes.enumerate().map(|(rank, hash)| (hash, load(rank))), shards);
            let mut state = 3;
            let mut chances: Vec<f64> = (0..200)
                .map(|_| imbalance((0..FLOWS).map(|rank| (random(&mut state) as u32, load(rank))), shards))
                .collect();
            chances.sort_by(f64::total_cmp);
            let (median, most) = (chances[100], chances[199]);
            println!("{name}, IPv6 {v6}, {shards} shards by Zipf: {ours:.3}, by chance {median:.3} to {most:.3}");
            assert!(ours <= most, "{name}, {shards} shards: {ours:.3}, by chance {median:.3} to {most:.3}");
        }
    }
}

#[test]
fn hash_collisions_are_rare() {
    for (v6, (name, flows)) in [false, true].into_iter().flat_map(|v6| patterns(v6).map(|pattern| (v6, pattern))) {
        let mut seen: HashMap<u32, usize> = HashMap::new();
        flows.iter().for_each(|flow| *seen.entry(located(&udp_frame(*flow)).hash).or_default() += 1);
        // By chance 0.03 pairs of 16,384 among 2^32.
        assert!(seen.len() + 2 >= FLOWS, "{name}, IPv6 {v6}: {} hashes of {FLOWS} flows", seen.len());
    }
}
