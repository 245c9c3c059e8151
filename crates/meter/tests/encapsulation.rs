//! Headers in front of packets in records: MAC addresses, VLANs, MPLS labels, TEIDs.

use crate::support::{Sent, metered, metered_frames, sorted};
use linerate_burst::{Desc, Nanos};
use linerate_headers::build::{Frame, Header};
use linerate_headers::mpls::Entry;
use linerate_headers::{Link, MacAddr, ethernet, gre, gtp_u, icmp, ipv4, tcp, udp, vlan, vxlan};
use linerate_meter::{Config, Flow, Tunnels};
use std::net::Ipv4Addr;

const ONE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const INNER: MacAddr = MacAddr([4, 0, 0, 0, 0, 1]);
const INNER_OTHER: MacAddr = MacAddr([4, 0, 0, 0, 0, 2]);
/// Configures MAC addresses.
fn with_macs() -> Config {
    Config { macs: true, ..Config::default() }
}

fn link(source: MacAddr, destination: MacAddr) -> ethernet::Header {
    ethernet::Header { source, destination, ether_type: 0 }
}

fn tag(id: u16) -> vlan::Header {
    vlan::Header { id, priority: 5, drop_eligible: false, ether_type: 0 }
}

fn stack(labels: &[u32]) -> Vec<Entry> {
    labels.iter().map(|label| Entry { label: *label, traffic_class: 3, ttl: 9 }).collect()
}

fn ip(source: u8, destination: u8) -> ipv4::Header {
    let [source, destination] = [source, destination].map(|host| Ipv4Addr::new(10, 0, 0, host));
    ipv4::Header { source, destination, ..ipv4::Header::new(0) }
}

fn ports(source_port: u16, destination_port: u16) -> udp::Header {
    udp::Header { source_port, destination_port }
}

/// The records of these frames, in the order of their first packets.
fn records(frames: &[&[&dyn Header]], link: Link, config: &Config) -> Vec<Flow> {
    let describe = |(index, headers): (usize, &&[&dyn Header])| {
        let frame = Frame::new(headers, &[0; 30]).to_vec().unwrap();
        (Desc::new(Nanos(1_000_000 * (1 + index as u64)), 0, frame.len() as u32), frame)
    };
    let frames: Vec<(Desc, Vec<u8>)> = frames.iter().enumerate().map(describe).collect();
    let (flows, _) = metered_frames(&frames, link, config, &[7]);
    sorted(flows)
}

#[test]
fn mac_addresses_belong_to_originator_and_responder() {
    let (there, back) = (link(ONE, OTHER), link(OTHER, ONE));
    let syn =
        |flags| tcp::Header { source_port: 1, destination_port: 2, flags: tcp::Flags(flags), ..Default::default() };
    let answer = tcp::Header { source_port: 2, destination_port: 1, flags: tcp::Flags(18), ..Default::default() };
    for [source, destination] in [[1, 2], [2, 1]] {
        let question: &[&dyn Header] = &[&there, &ip(source, destination), &syn(2)];
        let answer: &[&dyn Header] = &[&back, &ip(destination, source), &answer];
        for frames in [&[question, answer][..], &[answer, question], &[answer]] {
            let flow = &records(frames, Link::Ethernet, &with_macs())[0];
            assert_eq!(flow.macs, Some([ONE, OTHER]), "{}", flow.direction.name());
            assert_eq!(records(frames, Link::Ethernet, &Config::default())[0].macs, None);
        }
    }
    let raw: &[&dyn Header] = &[&ip(1, 2), &ports(1, 2)];
    assert_eq!(records(&[raw], Link::RawIp, &with_macs())[0].macs, None, "no link");
}

/// A reused record has nothing of the previous flow.
#[test]
fn ended_flow_leaves_no_state() {
    let config = Config { max_flows: 1, aggregate: false, ..with_macs() };
    let labels = stack(&[7]);
    let with: &[&dyn Header] = &[&link(ONE, OTHER), &tag(1), &tag(2), &&labels[..], &ip(1, 2), &ports(1, 2)];
    let without: &[&dyn Header] = &[&link(OTHER, ONE), &ip(3, 4), &ports(1, 2)];
    let flows = records(&[with, without], Link::Ethernet, &config);
    assert_eq!((flows[0].mpls[0], flows[0].vlans), ([7, 0, 0, 0], [1, 2]));
    assert_eq!((flows[1].mpls, flows[1].vlans, flows[1].macs), ([[0; 4]; 2], [0, 0], Some([OTHER, ONE])));
    let inside: &[&dyn Header] = &[&link(ONE, OTHER), &ip(1, 2), &ip(3, 4), &ports(1, 2)];
    let flows = records(&[with, inside], Link::Ethernet, &Config { tunnels: Tunnels::Inner, ..config });
    assert_eq!((flows[0].macs, flows[1].macs), (Some([ONE, OTHER]), None), "IP in IP has none");
}

#[test]
fn records_are_otherwise_the_same_with_mac_addresses() {
    let sent: Vec<Sent> = (0..200)
        .map(|number| Sent { source: (number as u8 % 7, 1), vlan: number as u16 % 3, ..Sent::udp(number * 1000) })
        .collect();
    let with = metered(&sent, &with_macs(), &[32]);
    assert!(with.iter().all(|flow| flow.macs == Some([MacAddr([2; 6]), MacAddr([4; 6])])));
    let without: Vec<Flow> = with.into_iter().map(|flow| Flow { macs: None, ..flow }).collect();
    assert_eq!(without, metered(&sent, &Config::default(), &[32]));
}

#[test]
fn record_has_the_outer_two_tags_of_the_first_packet() {
    let (there, ip, ports) = (link(ONE, OTHER), ip(1, 2), ports(1, 2));
    let three: &[&dyn Header] = &[&there, &tag(10), &tag(20), &tag(30), &ip, &ports];
    let two: &[&dyn Header] = &[&there, &tag(10), &tag(21), &ip, &ports];
    let one: &[&dyn Header] = &[&there, &tag(11), &ip, &ports];
    for (frames, vlans) in [([three, two, one], [10, 20]), ([two, three, one], [10, 21]), ([one, two, three], [11, 0])]
    {
        let flows = records(&frames, Link::Ethernet, &Config::default());
        assert_eq!((flows.len(), flows[0].vlans), (1, vlans));
        let parted = records(&frames, Link::Ethernet, &Config { vlans: true, ..Config::default() });
        assert_eq!((parted.len(), parted[0].vlans), (3, vlans));
    }
}

#[test]
fn labels_are_from_the_first_packet_of_each_direction() {
    let (there, back, to, from) = (link(ONE, OTHER), link(OTHER, ONE), ip(2, 1), ip(1, 2));
    let (up, down) = (ports(1, 2), ports(2, 1));
    let [five, later, answer] = [&[1, 2, 3, 4, 5][..], &[9], &[16, 0, 17]].map(stack);
    let frames: [&[&dyn Header]; 3] =
        [&[&there, &&five[..], &to, &up], &[&there, &&later[..], &to, &up], &[&back, &&answer[..], &from, &down]];
    let flows = records(&frames, Link::Ethernet, &with_macs());
    assert_eq!((flows.len(), flows[0].mpls), (1, [[1, 2, 3, 4], [16, 17, 0, 0]]));
    let plain: &[&dyn Header] = &[&there, &to, &up];
    let flows = records(&[plain, frames[0], frames[2]], Link::Ethernet, &with_macs());
    assert_eq!(flows[0].mpls, [[0; 4], [16, 17, 0, 0]], "the first one has none");
}

/// The source port of VXLAN is derived from the inner packet and differs per direction: still one inner flow, with the
/// headers directly around it.
#[test]
fn both_vxlan_directions_are_one_inner_flow() {
    let (outside, inside, network) = (link(ONE, OTHER), link(INNER, INNER_OTHER), vxlan::Header::new(42));
    let (outside_back, inside_back) = (link(OTHER, ONE), link(INNER_OTHER, INNER));
    let frames: [&[&dyn Header]; 2] = [
        &[&outside, &tag(7), &ip(1, 2), &ports(50_001, 4789), &network, &inside, &tag(8), &ip(3, 4), &ports(5, 6)],
        &[
            &outside_back,
            &tag(7),
            &ip(2, 1),
            &ports(60_002, 4789),
            &network,
            &inside_back,
            &tag(8),
            &ip(4, 3),
            &ports(6, 5),
        ],
    ];
    for vlans in [false, true] {
        let flows = records(&frames, Link::Ethernet, &Config { vlans, ..with_macs() });
        let [outer, inner]: [Vec<&Flow>; 2] =
            [false, true].map(|inside| flows.iter().filter(|flow| flow.tunnel.is_some() == inside).collect());
        assert_eq!((outer.len(), inner.len()), (2, 1));
        assert_eq!((outer[0].macs, outer[0].vlans), (Some([ONE, OTHER]), [7, 0]));
        assert_eq!((inner[0].macs, inner[0].vlans), (Some([INNER, INNER_OTHER]), [8, 0]));
        assert_eq!(inner[0].sides.map(|side| side.packets), [1, 1]);
        assert_eq!(inner[0].tunnel.unwrap().parent, outer[0].id, "the outer flow of the first packet");
    }
}

#[test]
fn gtp_teids_are_recorded_per_direction() {
    let message = |teid| gtp_u::Header {
        message: gtp_u::USER_DATA,
        teid,
        sequence: None,
        n_pdu: None,
        first_extension: 0,
        extensions: &[],
    };
    let (there, back) = (link(ONE, OTHER), link(OTHER, ONE));
    let frames: [&[&dyn Header]; 3] = [
        &[&there, &ip(2, 1), &ports(3000, 2152), &message(0xaaaa_0001), &ip(9, 8), &ports(5, 6)],
        &[&back, &ip(1, 2), &ports(4000, 2152), &message(0), &ip(8, 9), &ports(6, 5)],
        &[&there, &ip(2, 1), &ports(3000, 2152), &message(77), &ip(9, 8), &ports(5, 6)],
    ];
    for tunnels in [Tunnels::Both, Tunnels::Inner] {
        let flows = records(&frames, Link::Ethernet, &Config { tunnels, ..with_macs() });
        let inner: Vec<&Flow> = flows.iter().filter(|flow| flow.tunnel.is_some()).collect();
        assert_eq!((inner.len(), inner[0].teids), (1, [Some(0xaaaa_0001), Some(0)]));
        assert_eq!(inner[0].macs, None, "no Ethernet inside");
        assert!(flows.iter().filter(|flow| flow.tunnel.is_none()).all(|flow| flow.teids == [None; 2]));
    }
}

#[test]
fn labels_inside_a_tunnel_belong_to_the_inner_flow() {
    let (inside, outside) = (stack(&[100]), stack(&[5]));
    let frame: &[&dyn Header] = &[
        &link(ONE, OTHER),
        &&outside[..],
        &ip(1, 2),
        &gre::Header::Routing(gre::Routing::default()),
        &&inside[..],
        &ip(3, 4),
        &ports(5, 6),
    ];
    let flows = records(&[frame], Link::Ethernet, &with_macs());
    let labels: Vec<_> = flows.iter().map(|flow| (flow.tunnel.is_some(), flow.mpls[0][0])).collect();
    assert!(labels.contains(&(false, 5)) && labels.contains(&(true, 100)), "{labels:?}");
}

#[test]
fn hosts_that_ping_each_other_have_two_flows() {
    let there = link(ONE, OTHER);
    let echo = |kind| icmp::Header { kind, code: 0, rest: [0; 4] };
    let frames: [&[&dyn Header]; 6] = [
        &[&there, &ip(1, 2), &echo(8)],
        &[&there, &ip(2, 1), &echo(0)],
        &[&there, &ip(2, 1), &echo(8)],
        &[&there, &ip(1, 2), &echo(0)],
        &[&there, &ip(1, 2), &echo(3)],
        &[&there, &ip(2, 1), &echo(3)],
    ];
    let flows = records(&frames, Link::Ethernet, &Config::default());
    let labels: Vec<_> = flows
        .iter()
        .map(|flow| (flow.ends.map(|end| (end.address.to_string(), end.port)), flow.sides.map(|side| side.packets)))
        .collect();
    let [one, two] = ["10.0.0.1", "10.0.0.2"].map(str::to_owned);
    let from = |a: &String, b: &String, kind, packets| ([(a.clone(), kind), (b.clone(), 0)], packets);
    assert_eq!(
        labels,
        [
            from(&one, &two, 8, [1, 1]),
            from(&two, &one, 8, [1, 1]),
            from(&one, &two, 3, [1, 0]),
            from(&two, &one, 3, [1, 0])
        ]
    );
    let ids: std::collections::BTreeSet<String> = flows.iter().map(|flow| flow.community_id(0)).collect();
    assert_eq!(ids.len(), 4);
}
