//! Frames that `etherparse` parses without error must have the same headers in both. Also for every capture below
//! `$LINERATE_CORPUS`, if that is set.

use crate::packets::packet;
use etherparse::{LinkExtSlice, NetSlice, SlicedPacket, TransportSlice};
use linerate_headers::{Layer, Layers, Link, Protocol, Role, dissect, registry};
use proptest::prelude::*;
use std::path::Path;

/// A header and its offset.
type Place = (Protocol, usize);

/// Headers found by etherparse: tags, IP header, transport header, and the length of a TCP or UDP payload. `None` for
/// an error, or a frame with a protocol that only one of the two supports.
fn theirs(link: Link, frame: &[u8]) -> Option<(Vec<Place>, Option<usize>)> {
    let packet = match link {
        Link::Ethernet => SlicedPacket::from_ethernet(frame),
        Link::RawIp => SlicedPacket::from_ip(frame),
        Link::Sll => SlicedPacket::from_linux_sll(frame),
        _ => return None,
    };
    let packet = packet.ok()?;
    let at = |part: &[u8]| part.as_ptr() as usize - frame.as_ptr() as usize;
    let mut places = Vec::new();
    for tag in &packet.link_exts {
        match tag {
            LinkExtSlice::Vlan(tag) => places.push((Protocol::Vlan, at(tag.slice()))),
            LinkExtSlice::Macsec(_) => return None,
        }
    }
    match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => places.push((Protocol::Ipv4, at(ip.header().slice()))),
        NetSlice::Ipv6(ip) => places.push((Protocol::Ipv6, at(ip.header().slice()))),
        NetSlice::Arp(arp) => places.push((Protocol::Arp, at(arp.slice()))),
    }
    let payload = match packet.transport.as_ref() {
        Some(TransportSlice::Tcp(tcp)) => {
            places.push((Protocol::Tcp, at(tcp.slice())));
            Some(tcp.payload().len())
        }
        Some(TransportSlice::Udp(udp)) => {
            places.push((Protocol::Udp, at(udp.slice())));
            Some(udp.payload().len())
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            places.push((Protocol::Icmp, at(icmp.slice())));
            None // its header lengths depend on the type
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            places.push((Protocol::Icmpv6, at(icmp.slice())));
            None
        }
        Some(TransportSlice::Igmp(igmp)) => {
            if matches!(packet.net, Some(NetSlice::Ipv6(_))) {
                return None; // they skip it at an invalid position, unless it is a fragment
            }
            places.push((Protocol::Igmp, at(igmp.slice())));
            None
        }
        None => None,
    };
    Some((places, payload))
}

/// Compares both; false if there was nothing to compare.
fn compare(link: Link, frame: &[u8]) -> Result<bool, String> {
    let Some((theirs, payload)) = theirs(link, frame) else { return Ok(false) };
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let fragment = is_fragment(frame, &layers);
    let ours: Vec<Place> = outermost_packet(&layers)
        .filter(|layer| layer.protocol.role() != Role::Extension)
        // The first fragment: we decode its payload, they do not.
        .filter(|layer| !(fragment && layer.protocol.role() == Role::Transport))
        .map(|layer| (layer.protocol, layer.offset as usize))
        .collect();
    if ours != theirs {
        return Err(format!("ours {ours:?}, stopped for {:?}; theirs {theirs:?}; frame {frame:02x?}", layers.stop()));
    }
    // The payload of a tunnel is not the payload that they return.
    let payload = payload.filter(|_| layers.as_slice().last().is_some_and(|last| Some(last) == layers.transport()));
    match payload {
        Some(payload) if payload != layers.payload(frame).len() => {
            Err(format!("payload of ours {}, of theirs {payload}: {frame:02x?}", layers.payload(frame).len()))
        }
        _ => Ok(true),
    }
}

/// Returns our layers that both support: after the link, up to the transport of the outermost packet.
fn outermost_packet(layers: &Layers) -> impl Iterator<Item = &Layer> {
    let link = [Protocol::Ethernet, Protocol::Llc, Protocol::Sll];
    let mut networks = 0;
    let v6 = layers.network().is_some_and(|layer| layer.protocol == Protocol::Ipv6);
    layers.as_slice().iter().skip_while(move |layer| link.contains(&layer.protocol)).take_while(move |layer| {
        networks += usize::from(layer.protocol.role() == Role::Network);
        let known = match layer.protocol {
            Protocol::Vlan | Protocol::Arp => true,
            Protocol::Tcp | Protocol::Udp | Protocol::Icmp | Protocol::Icmpv6 => true,
            Protocol::Igmp => !v6, // they skip it after IPv6, where it is invalid
            Protocol::Mobility | Protocol::Hip | Protocol::Shim6 => false,
            other => matches!(other.role(), Role::Network | Role::Extension),
        };
        known && networks < 2
    })
}

fn is_fragment(frame: &[u8], layers: &Layers) -> bool {
    layers.as_slice().iter().any(|layer| {
        let bytes = &frame[layer.offset as usize..];
        match layer.protocol {
            Protocol::Ipv4 => linerate_headers::ipv4::View::parse(bytes).is_ok_and(|ip| ip.is_fragment()),
            Protocol::Fragment => {
                linerate_headers::ipv6_fragment::View::parse(bytes).is_ok_and(|part| part.more_fragments())
            }
            _ => false,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_agree(packet in packet()) {
        let (frame, layers) = packet.build();
        let compared = compare(Link::Ethernet, &frame).map_err(TestCaseError::fail)?;
        // They accept extension headers only in the recommended order, none after IPv4, and need 8 bytes of ICMPv6.
        let plain = !layers.iter().any(|layer| layer.protocol.role() == Role::Extension);
        let short = matches!(packet.transport, crate::packets::Transport::Icmpv6) && packet.payload.len() < 4;
        prop_assert!(compared || !plain || short, "nothing compared for {:?}", packet);
    }

    #[test]
    fn damaged_packets_agree(
        packet in packet(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (mut frame, _) = packet.build();
        for (at, byte) in damage {
            // After the addresses, so that the change affects the walk.
            let at = at.index(frame.len() - 12) + 12;
            frame[at] = byte;
        }
        // They do not support IPv6 extension headers after IPv4, and we walk them.
        let behind_v4 = frame.get(12..14) == Some(&[8, 0]) && frame.get(23).is_some_and(|number| extension(*number));
        prop_assume!(!behind_v4);
        compare(Link::Ethernet, &frame).map_err(TestCaseError::fail)?;
    }
}

fn extension(number: u8) -> bool {
    [registry::HOP_BY_HOP, registry::ROUTING, registry::FRAGMENT, registry::DESTINATION_OPTIONS].contains(&number)
}

#[test]
fn captures_agree() {
    let Some(corpus) = std::env::var_os("LINERATE_CORPUS") else {
        println!("LINERATE_CORPUS is not set: no captures compared");
        return;
    };
    let (mut seen, mut compared, mut differing) = (0, 0, Vec::new());
    each_capture(Path::new(&corpus), &mut |path, file| {
        for_each_frame(file, |link, frame| {
            seen += 1;
            match compare(link, frame) {
                Ok(was) => compared += u64::from(was),
                Err(difference) => differing.push(format!("{}: {difference}", path.display())),
            }
        });
    });
    println!("{compared} of {seen} frames compared");
    assert!(differing.is_empty(), "{} differ, the first: {:.2000}", differing.len(), differing[0]);
    assert!(compared * 2 > seen, "only {compared} of {seen} frames could be compared");
}

fn each_capture(folder: &Path, visit: &mut impl FnMut(&Path, &[u8])) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            each_capture(&path, visit);
        } else if let Ok(file) = std::fs::read(&path) {
            visit(&path, &file);
        }
    }
}

/// Calls `visit` for the frames of a pcap file in either byte order; none for other files, and unsupported links.
fn for_each_frame(file: &[u8], mut visit: impl FnMut(Link, &[u8])) {
    let swapped = match file.first_chunk::<4>() {
        Some([0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1]) => false,
        Some([0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d]) => true,
        _ => return,
    };
    let word = |at: usize| {
        let bytes = file.get(at..at + 4)?.try_into().ok()?;
        Some(if swapped { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let Some(link) = word(20).and_then(|number| Link::from_linktype(number as u16)) else { return };
    let mut at = 24;
    while let Some(length) = word(at + 8) {
        let Some(frame) = file.get(at + 16..at + 16 + length as usize) else { return };
        visit(link, frame);
        at += 16 + length as usize;
    }
}
