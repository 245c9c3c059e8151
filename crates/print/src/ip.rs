//! IPv4 and IPv6, with the headers between them and the transport.

use crate::names;
use crate::read::u16_at;
use crate::text::{Text, put};
use crate::walk::{LinePrinter, Packet};
use linerate_headers::{Layer, Number, Protocol, Stop, ah, ipv4, ipv6, ipv6_extension, ipv6_fragment};

/// DCCP starts with ports too.
const DCCP: u8 = 33;

pub(crate) fn v4(walk: &mut LinePrinter<'_, '_>, index: usize, layer: &Layer) {
    let Ok(view) = ipv4::View::parse(walk.from(layer)) else { return };
    let offset = layer.offset as usize;
    name(walk, "IP ");
    let end = match view.total_len() {
        0 => walk.end,
        length => offset + usize::from(length),
    };
    missing(walk, "truncated-ip - ", end);
    if walk.options.verbose {
        head_v4(walk, &view);
    }
    walk.end = end;
    let packet = Packet {
        is_v6: false,
        source: embedded(view.source().octets()),
        destination: embedded(view.destination().octets()),
        last_destination: embedded(view.destination().octets()),
        is_fragment: view.is_fragment(),
        has_ports: false,
    };
    let ports = if view.fragment_offset() == 0 { ports(walk, index, layer) } else { None };
    addresses(&mut walk.text, ports, |text, is_source| {
        let address = if is_source { view.source() } else { view.destination() };
        text.ipv4(address.octets());
    });
    walk.packet = Some(Packet { has_ports: ports.is_some(), ..packet });
}

pub(crate) fn v6(walk: &mut LinePrinter<'_, '_>, index: usize, layer: &Layer) {
    let Ok(view) = ipv6::View::parse(walk.from(layer)) else { return };
    let offset = layer.offset as usize;
    name(walk, "IP6 ");
    let end = match view.payload_len() {
        0 => walk.end,
        length => offset + ipv6::LEN + usize::from(length),
    };
    missing(walk, "truncated-ip6 - ", end);
    if walk.options.verbose {
        let text = &mut walk.text;
        text.str("(");
        if view.traffic_class() > 0 {
            put!(text, "class {:#04x}, ", view.traffic_class());
        }
        if view.flow_label() > 0 {
            put!(text, "flowlabel {:#07x}, ", view.flow_label());
        }
        put!(text, "hlim {}, next-header ", view.hop_limit());
        protocol(text, view.next_header());
        put!(text, ", payload length {}) ", view.payload_len());
    }
    walk.end = end;
    let (source, destination) = (view.source().octets(), view.destination().octets());
    let ports = ports(walk, index, layer);
    addresses(&mut walk.text, ports, |text, is_source| text.ipv6(if is_source { source } else { destination }));
    walk.packet = Some(Packet {
        is_v6: true,
        source,
        destination,
        last_destination: destination,
        is_fragment: false,
        has_ports: ports.is_some(),
    });
}

/// Writes the name, unless the link header has named the protocol.
fn name(walk: &mut LinePrinter<'_, '_>, name: &str) {
    let is_said = walk.options.link && walk.packet.is_none() && walk.layers.find(Protocol::Ethernet).is_some();
    if !is_said {
        walk.text.str(name);
    }
}

/// Reports a length field that exceeds the frame on the wire.
fn missing(walk: &mut LinePrinter<'_, '_>, what: &str, end: usize) {
    if end > walk.end {
        walk.text.str(what);
        walk.text.dec((end - walk.end) as u64);
        walk.text.str(" bytes missing! ");
    }
}

fn head_v4(walk: &mut LinePrinter<'_, '_>, view: &ipv4::View<'_>) {
    let verifies = walk.options.verifies();
    let text = &mut walk.text;
    let flags = match (view.dont_fragment(), view.more_fragments()) {
        (true, true) => "+, DF",
        (true, false) => "DF",
        (false, true) => "+",
        (false, false) => "none",
    };
    put!(text, "(tos {:#x}, ttl {}, ", view.traffic_class(), view.ttl());
    put!(text, "id {}, offset {}, ", view.identification(), view.fragment_offset());
    put!(text, "flags [{flags}], proto ");
    protocol(text, view.protocol());
    put!(text, ", length {}", view.total_len());
    if view.header_len() > ipv4::LEN {
        put!(text, ", options {} bytes", view.header_len() - ipv4::LEN);
    }
    if verifies && !view.is_checksum_right() {
        put!(text, ", bad cksum {:x} (->{:x})!", view.checksum(), view.correct_checksum());
    }
    text.str(") ");
}

fn protocol(text: &mut Text<'_>, number: u8) {
    match names::any_ip_protocol(number) {
        Some(name) => put!(text, "{name} ({number})"),
        None => put!(text, "unknown ({number})"),
    }
}

/// Returns the ports of the transport header directly after this one, even if it is truncated after them.
fn ports(walk: &LinePrinter<'_, '_>, index: usize, layer: &Layer) -> Option<(u16, u16)> {
    let transport = match (walk.layers.as_slice().get(index + 1), walk.layers.stop()) {
        (Some(next), _) => next.protocol,
        (None, Stop::Truncated(protocol) | Stop::Malformed(protocol, _)) => protocol,
        (None, Stop::Unknown(Number::IpProtocol(DCCP))) => Protocol::Udp,
        _ => return None,
    };
    let bytes = walk.behind(layer);
    if transport.has_ports() { Some((u16_at(bytes, 0)?, u16_at(bytes, 2)?)) } else { None }
}

#[inline(always)]
fn addresses(text: &mut Text<'_>, ports: Option<(u16, u16)>, address: impl Fn(&mut Text<'_>, bool)) {
    address(text, true);
    if let Some((source, _)) = ports {
        text.str(".");
        text.dec(source);
    }
    text.str(" > ");
    address(text, false);
    if let Some((_, destination)) = ports {
        text.str(".");
        text.dec(destination);
    }
    text.gap(": ");
}

pub(crate) fn embedded([a, b, c, d]: [u8; 4]) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d]
}

/// Writes a header between IP and the transport.
pub(crate) fn extension(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let bytes = walk.from(layer);
    match layer.protocol {
        Protocol::HopByHop => walk.text.str("HBH"),
        Protocol::DestinationOptions => walk.text.str("DSTOPT"),
        Protocol::Routing => {
            let Ok(view) = ipv6_extension::View::parse(Protocol::Routing, bytes) else { return };
            put!(walk.text, "srcrt (type={}, segleft={})", view.routing_type(), view.segments_left());
            let own = layer.end() as usize - layer.offset as usize;
            let mut addresses = bytes.get(8..own).unwrap_or_default().as_chunks::<16>().0.iter();
            let last = match view.routing_type() {
                0 | 2 => addresses.last(),
                // Segment routing lists its segments in reverse order (RFC 8754, section 2).
                4 => addresses.next(),
                _ => None,
            };
            // Checksums are those of the last destination (RFC 8200, section 8.1).
            if let (1.., Some(packet), Some(last)) = (view.segments_left(), &mut walk.packet, last) {
                packet.last_destination = *last;
            }
        }
        Protocol::Fragment => {
            let Ok(view) = ipv6_fragment::View::parse(bytes) else { return };
            let length = walk.length_after(layer);
            put!(walk.text, "frag ({}|{length})", view.fragment_offset());
            if let Some(packet) = &mut walk.packet {
                packet.is_fragment |= view.more_fragments() || view.fragment_offset() > 0;
            }
        }
        Protocol::Ah => {
            let Ok(view) = ah::View::parse(bytes) else { return };
            put!(walk.text, "AH(spi={:#010x},seq={:#x},icv=0x", view.spi(), view.sequence());
            walk.text.hex(&view.check()[..view.check().len().min(64)]);
            walk.text.str(")");
            walk.text.gap(": ");
            return;
        }
        other => walk.text.str(other.name()),
    }
    walk.text.gap(" ");
}

/// Writes a fragment whose transport header is in another packet.
pub(crate) fn later_fragment(walk: &mut LinePrinter<'_, '_>) {
    let last = walk.layers.as_slice().last();
    let Some(last) = last.filter(|last| last.protocol == Protocol::Ipv4) else { return };
    let Ok(view) = ipv4::View::parse(walk.from(last)) else { return };
    put!(walk.text, "ip-proto-{}", view.protocol());
    if walk.options.verbose {
        put!(walk.text, ", length {}", walk.length());
    }
}

/// Writes ports that are not written next to the addresses.
pub(crate) fn late_ports(walk: &mut LinePrinter<'_, '_>, source: u16, destination: u16) {
    if !walk.packet.is_some_and(|packet| packet.has_ports) {
        walk.text.dec(source);
        walk.text.str(" > ");
        walk.text.dec(destination);
        walk.text.gap(": ");
    }
    // Packets in a tunnel have their own.
    if let Some(packet) = &mut walk.packet {
        packet.has_ports = false;
    }
}
