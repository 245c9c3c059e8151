//! UDP, and payload identified by its ports.

use crate::tcp::pseudo;
use crate::text::put;
use crate::walk::LinePrinter;
use crate::{dhcp, dns, ip, ntp, quic, tunnel};
use linerate_headers::{Layer, Protocol, udp, udp_lite};

const DNS: u16 = 53;
const MDNS: u16 = 5353;
const LLMNR: u16 = 5355;
const DHCP: [u16; 2] = [67, 68];
const NTP: u16 = 123;
const ISAKMP: u16 = 500;
const ISAKMP_NAT: u16 = 4500;

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, index: usize, layer: &Layer) {
    if layer.protocol == Protocol::UdpLite {
        return lite(walk, layer);
    }
    let Ok(view) = udp::View::parse(walk.from(layer)) else { return };
    let (source, destination) = (view.source_port(), view.destination_port());
    ip::late_ports(walk, source, destination);
    let there = walk.length_after(layer);
    let said = match usize::from(view.length()) {
        0 => there,
        length => length - udp::LEN,
    };
    if walk.options.verifies()
        && walk.is_whole(layer.offset as usize)
        && !view.is_cut()
        && let Some(packet) = walk.packet
    {
        let pseudo = pseudo(&packet);
        match (view.checksum(), view.is_checksum_right(&pseudo)) {
            (0, true) => walk.text.str("[no cksum] "),
            (_, true) => walk.text.str("[udp sum ok] "),
            (sum, false) => {
                put!(walk.text, "[bad udp cksum {sum:#06x} -> {:#06x}!] ", view.correct_checksum(&pseudo))
            }
        }
    }
    let is_fragment = walk.packet.is_some_and(|packet| packet.is_fragment);
    walk.end = walk.end.min((layer.end() as usize).saturating_add(said));
    // A tunnel header follows.
    if walk.layers.as_slice().len() > index + 1 {
        return;
    }
    if !walk.options.brief && carried(walk, (source, destination), said.min(there), view.payload()) {
        return;
    }
    walk.text.str("UDP, ");
    if said > there && !is_fragment {
        walk.text.str("bad length ");
        walk.text.dec(said as u64);
        walk.text.str(" > ");
        walk.text.dec(there as u64);
        return;
    }
    walk.text.str("length ");
    walk.text.dec(said as u64);
    if !walk.options.brief && !walk.is_quoted {
        quic::write(&mut walk.text, view.payload());
    }
}

/// Writes the payload if ports and bytes identify a known protocol; the packet has `length` bytes of it, of which
/// `payload` was captured.
fn carried(walk: &mut LinePrinter<'_, '_>, ports: (u16, u16), length: usize, payload: &[u8]) -> bool {
    let is = |port: u16| ports.0 == port || ports.1 == port;
    let is_multicast = is(MDNS);
    match () {
        () if length < dns::HEADER && (is(DNS) || is_multicast) => {
            put!(walk.text, "domain [length {length} < {}] (invalid)", dns::HEADER);
            true
        }
        () if is(DNS) || is_multicast || is(LLMNR) => dns::write(&mut walk.text, payload, length, is_multicast),
        () if DHCP.contains(&ports.0) && DHCP.contains(&ports.1) => dhcp::write(&mut walk.text, payload, length),
        () if is(NTP) => ntp::write(&mut walk.text, payload, length),
        () if is(ISAKMP) => tunnel::isakmp(&mut walk.text, payload, length),
        () if is(ISAKMP_NAT) => tunnel::esp_in_udp(&mut walk.text, payload, length),
        () => false,
    }
}

fn lite(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = udp_lite::View::parse(walk.from(layer)) else { return };
    ip::late_ports(walk, view.source_port(), view.destination_port());
    put!(walk.text, "UDPLite, coverage {}, length {}", view.coverage(), walk.length_after(layer));
}

#[cfg(test)]
mod tests {
    use crate::{Frame, Options, Printer};

    /// Matches tcpdump: the length of this packet, not of the whole datagram.
    #[test]
    fn the_first_fragment_of_an_answer_has_its_own_length() {
        let packet = [
            &[0x45, 0, 0, 44, 0, 1, 0x20, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2][..],
            &[0, 53, 1, 0, 6, 0xb5, 0, 0],
            &[0x12, 0x34, 0x81, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        let mut out = Vec::new();
        let frame = Frame { time: 0, interface: "", link: 101, bytes: &packet, wire: 44 };
        Printer::new(Options { time: crate::Time::None, ..Options::default() }).line(&frame, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "IP 10.0.0.1.53 > 10.0.0.2.256: 4660 [0q] 0/0/0 (16)\n");
    }

    /// Lines of tcpdump 4.99.
    #[test]
    fn dns_messages_without_a_header_are_invalid() {
        for port in [53, 5353] {
            let ports = [port, 0x100].map(u16::to_be_bytes).concat();
            let ip = [0x45, 0, 0, 33, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            let packet = [&ip[..], &ports, &[0, 13, 0, 0, 1, 2, 3, 4, 5]].concat();
            let mut out = Vec::new();
            let frame = Frame { time: 0, interface: "", link: 101, bytes: &packet, wire: 33 };
            Printer::new(Options { time: crate::Time::None, ..Options::default() }).line(&frame, &mut out);
            let expected = format!("IP 10.0.0.1.{port} > 10.0.0.2.256: domain [length 5 < 12] (invalid)\n");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
