//! IPv6 extension headers: truncated ones, and checksums after them.

use crate::support::metered_frames;
use linerate_burst::{Desc, Nanos};
use linerate_headers::build::{Extension, Frame, Header};
use linerate_headers::{Link, MacAddr, ethernet, icmpv6, ipv6, ipv6_extension, ipv6_fragment, tcp, udp};
use linerate_meter::{Config, Flow, Quality};
use std::net::Ipv6Addr;

/// Start of the IP header and of its payload.
const IP: usize = ethernet::LEN;
const BEHIND: usize = IP + ipv6::LEN;

fn address(host: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host)
}

/// Frame with these extension headers between IP and the transport header.
fn frame(extensions: &[&dyn Header], transport: &dyn Header) -> Vec<u8> {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let ip = ipv6::Header { source: address(1), destination: address(2), ..ipv6::Header::new(0) };
    let mut headers: Vec<&dyn Header> = vec![&link, &ip];
    headers.extend_from_slice(extensions);
    headers.push(transport);
    Frame::new(&headers, b"some payload").to_vec().unwrap()
}

fn record(frame: &[u8], captured: usize) -> Flow {
    let desc = Desc { wire: frame.len() as u32, ..Desc::new(Nanos(1), 0, captured as u32) };
    let config = Config { checksums: true, ..Config::default() };
    let (flows, _) = metered_frames(&[(desc, frame[..captured].to_vec())], Link::Ethernet, &config, &[1]);
    assert_eq!(flows.len(), 1);
    flows.into_iter().next().unwrap()
}

/// Routing header: type, segments left, and the addresses of these hosts.
fn routing(kind: u8, left: u8, hosts: &[u16]) -> Vec<u8> {
    let addresses = hosts.iter().flat_map(|host| address(*host).octets());
    [kind, left, 0, 0, 0, 0].into_iter().chain(addresses).collect()
}

fn header(data: &[u8]) -> ipv6_extension::Header<'_> {
    ipv6_extension::Header { next_header: 0, data }
}

/// Returns whether the checksum is considered wrong, unchanged and with a bit of the payload changed.
fn judged(frame: &[u8]) -> [bool; 2] {
    let mut changed = frame.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    [frame, &changed].map(|frame| record(frame, frame.len()).quality.contains(Quality::BAD_CHECKSUM))
}

#[test]
fn checksums_after_extension_headers_are_verified() {
    let ports = udp::Header { source_port: 1, destination_port: 2 };
    let segment = tcp::Header { source_port: 1, destination_port: 2, ..Default::default() };
    let echo = icmpv6::Header { kind: 128, code: 0 };
    let transports: [&dyn Header; 3] = [&ports, &segment, &echo];
    let padding = [1, 4, 0, 0, 0, 0];
    for transport in transports {
        assert_eq!(judged(&frame(&[], transport)), [false, true]);
        assert_eq!(judged(&frame(&[&Extension::HopByHop(header(&padding))], transport)), [false, true]);
        for (kind, left, hosts) in [(0, 2, &[3, 4][..]), (0, 0, &[3, 4]), (2, 1, &[3]), (4, 0, &[3, 4])] {
            let data = routing(kind, left, hosts);
            let found = judged(&frame(&[&Extension::Routing(header(&data))], transport));
            assert_eq!(found, [false, true], "type {kind}, {left} left");
        }
        // The final destination is not known: not verified.
        for kind in [3, 4, 77] {
            let data = routing(kind, 1, &[3]);
            assert_eq!(judged(&frame(&[&Extension::Routing(header(&data))], transport)), [false, false], "{kind}");
        }
        // The sender's home address replaces its source address.
        let data = [&[1, 2, 0, 0, 0xc9, 16][..], &address(9).octets()].concat();
        let mut moved = frame(&[&Extension::Destination(header(&data))], transport);
        let option = BEHIND + 8;
        moved[option..option + 16].copy_from_slice(&address(1).octets());
        assert_eq!(moved[IP + 8..IP + 24], address(1).octets());
        moved[IP + 8..IP + 24].copy_from_slice(&address(9).octets());
        assert_eq!(judged(&moved), [false, true]);
    }
}

#[test]
fn truncated_extension_header_is_marked() {
    let ports = udp::Header { source_port: 1, destination_port: 2 };
    let data = routing(0, 1, &[3]);
    let first = ipv6_fragment::Header { next_header: 0, fragment_offset: 0, more_fragments: true, identification: 7 };
    let routed =
        frame(&[&Extension::HopByHop(header(&[1, 4, 0, 0, 0, 0])), &Extension::Routing(header(&data))], &ports);
    let fragment = frame(&[&first], &ports);
    for (frame, captured, protocol, extensions) in [
        // Within the routing header, directly before it, within the previous header.
        (&routed, BEHIND + 8 + 20, 43, 3),
        (&routed, BEHIND + 8, 43, 3),
        (&routed, BEHIND + 3, 0, 1),
        (&fragment, BEHIND + 7, 44, 4),
    ] {
        let flow = record(frame, captured);
        let found = (flow.protocol, flow.extensions, flow.quality.contains(Quality::TRUNCATED));
        assert_eq!(found, (protocol, extensions, true), "{captured} bytes");
    }
    let whole = record(&routed, routed.len());
    assert_eq!((whole.protocol, whole.extensions, whole.quality.contains(Quality::TRUNCATED)), (17, 3, false));
    // Longer than its packet, although the frame continues.
    let mut long = routed.clone();
    long[BEHIND + 8 + 1] = 200;
    long.resize(3000, 0);
    let flow = record(&long, long.len());
    assert_eq!((flow.protocol, flow.extensions, flow.quality.contains(Quality::TRUNCATED)), (43, 3, true));
}

/// If there are more headers than are decoded, the record of the last one reached is marked.
#[test]
fn headers_beyond_the_decoded_ones_are_marked() {
    let data = [1, 4, 0, 0, 0, 0];
    let options = Extension::Destination(header(&data));
    let ports = udp::Header { source_port: 1, destination_port: 2 };
    for (count, is_deep) in [(1, false), (13, false), (14, false), (15, true), (30, true)] {
        let extensions: Vec<&dyn Header> = vec![&options; count];
        let frame = frame(&extensions, &ports);
        let found = record(&frame, frame.len());
        assert_eq!(found.quality.contains(Quality::TOO_DEEP), is_deep, "{count}");
        let expected = if is_deep { (60, [0, 0]) } else { (17, [1, 2]) };
        assert_eq!((found.protocol, found.ends.map(|end| end.port)), expected, "{count}");
    }
}

/// Nested tunnels: the outer record is unaffected, that of the innermost packet reached is marked.
#[test]
fn tunnels_beyond_the_decoded_ones_are_marked() {
    let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
    let ip = ipv6::Header { source: address(1), destination: address(2), ..ipv6::Header::new(0) };
    let ports = udp::Header { source_port: 9, destination_port: 4789 };
    let segment = tcp::Header { source_port: 1, destination_port: 2, ..Default::default() };
    let vxlan = linerate_headers::vxlan::Header::new(7);
    for (count, deep) in [(1, vec![]), (3, vec![]), (4, vec![1]), (6, vec![1])] {
        let mut headers: Vec<&dyn Header> = Vec::new();
        (0..count).for_each(|_| headers.extend([&link as &dyn Header, &ip, &ports, &vxlan]));
        headers.extend([&link as &dyn Header, &ip, &segment]);
        let frame = Frame::new(&headers, b"x").to_vec().unwrap();
        let desc = Desc::new(Nanos(1), 0, frame.len() as u32);
        let (mut flows, _) = metered_frames(&[(desc, frame)], Link::Ethernet, &Config::default(), &[1]);
        flows.sort_by_key(|flow| flow.tunnel.is_some());
        let marked: Vec<usize> = (0..flows.len()).filter(|at| flows[*at].quality.contains(Quality::TOO_DEEP)).collect();
        assert_eq!((flows.len(), &marked), (2, &deep), "{count}");
    }
}
