//! Every header value that can be emitted is parsed back equal, needs all its bytes, and writes no others.

use linerate_headers::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fmt::Debug;

/// Size of the longest header of these tests.
const ROOM: usize = 4096;

/// Emits a header, parses it, and tries every shorter buffer.
fn round_trip<H: Debug + PartialEq>(
    header: &H,
    emit: impl Fn(&H, &mut [u8]) -> Result<usize, EmitError>,
    same: impl Fn(&[u8], &H) -> Result<bool, Malformed>,
) -> Result<(), TestCaseError> {
    let mut bytes = vec![0xdd; ROOM];
    let length = emit(header, &mut bytes)?;
    prop_assert!(bytes[length..].iter().all(|byte| *byte == 0xdd), "writes after its end");
    prop_assert!(same(&bytes, header)?, "not the same: {:?} as {:02x?}", header, &bytes[..length]);
    prop_assert!(same(&bytes[..length], header)?);
    for shorter in [0, length / 2, length.saturating_sub(1)].into_iter().filter(|shorter| *shorter < length) {
        prop_assert!(emit(header, &mut bytes.clone()[..shorter]).is_err());
        prop_assert!(same(&bytes[..shorter], header).is_err(), "read from {} of {}", shorter, length);
    }
    Ok(())
}

fn units(unit: usize, less: usize, most: usize) -> impl Strategy<Value = Vec<u8>> {
    (1..=most).prop_flat_map(move |count| vec(any::<u8>(), count * unit - less))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn llc(sap: u8, other: u8, control: [u8; 2], organization: [u8; 3], protocol: u16, form in 0..2) {
        let control = if control[0] & 3 == 3 { llc::Control::Unnumbered(control[0]) } else { llc::Control::Numbered(control) };
        let header = match form {
            0 => llc::Header::Snap(llc::Snap { organization, protocol }),
            _ => llc::Header::Plain(llc::Plain { destination_sap: sap, source_sap: other & 0xf, control }),
        };
        round_trip(&header, llc::Header::emit, |bytes, header| Ok(llc::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn mpls(entries in vec((0..=mpls::MAX_LABEL, 0u8..8, any::<u8>()), 1..20)) {
        let stack: Vec<_> = entries
            .into_iter()
            .map(|(label, traffic_class, ttl)| mpls::Entry { label, traffic_class, ttl })
            .collect();
        round_trip(&stack, |stack, out| mpls::emit(stack, out), |bytes, stack| {
            Ok(mpls::View::parse(bytes)?.entries().eq(stack.iter().copied()))
        })?;
    }

    #[test]
    fn pseudowire(data: bool, flags in 0u16..0x1000, last: u16) {
        let header = if data {
            pseudowire::Header::Data { flags, sequence: last }
        } else {
            pseudowire::Header::Channel { version: (flags & 0xf) as u8, channel: last }
        };
        round_trip(&header, pseudowire::Header::emit, |bytes, header| {
            Ok(pseudowire::View::parse(bytes)?.header() == *header)
        })?;
    }

    #[test]
    fn pppoe(code: u8, session: u16, payload: u16) {
        let header = pppoe::Header { code, session };
        round_trip(&header, |header, out| header.emit(payload.into(), out), |bytes, header| {
            Ok(pppoe::View::parse(bytes)?.header() == *header)
        })?;
    }

    #[test]
    fn ppp(framed: bool, compressed: bool, protocol: u16) {
        let protocol = if compressed { protocol & 0xff | 1 } else { protocol & 0xfeff | 1 };
        let header = ppp::Header { framed, compressed, protocol };
        // Never sent, to avoid confusion with an address.
        prop_assume!(!(compressed && protocol == 0xff));
        round_trip(&header, ppp::Header::emit, |bytes, header| Ok(ppp::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn loopback_and_serial(family in 0u32..0x1_0000, big_endian: bool, address: u8, ether_type: u16) {
        // A family of 0 is the same in both orders.
        let header = null::Header { family, big_endian: big_endian || family == 0 };
        round_trip(&header, null::Header::emit, |bytes, header| Ok(null::View::parse(bytes)?.header() == *header))?;
        let header = chdlc::Header { address, ether_type };
        round_trip(&header, chdlc::Header::emit, |bytes, header| Ok(chdlc::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn cooked(packet_type: u8, hardware_type: u16, address_len: u8, address: [u8; 8], protocol: u16, interface: u32) {
        let first = sll::Header {
            packet_type: packet_type.into(), hardware_type, address_len: address_len.into(), address, protocol,
        };
        round_trip(&first, sll::Header::emit, |bytes, header| Ok(sll::View::parse(bytes)?.header() == *header))?;
        let second = sll2::Header { protocol, interface, hardware_type, packet_type, address_len, address };
        round_trip(&second, sll2::Header::emit, |bytes, header| Ok(sll2::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn security(next_header: u8, spi: u32, sequence: u32, check in units(4, 4, 20)) {
        let header = ah::Header { next_header, spi, sequence, check: &check };
        round_trip(&header, ah::Header::emit, |bytes, header| Ok(ah::View::parse(bytes)?.header() == *header))?;
        let header = esp::Header { spi, sequence };
        round_trip(&header, esp::Header::emit, |bytes, header| Ok(esp::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn mobile(next_header: u8, kind: u8, tag in 0..=shim6::MAX_TAG, hosts: [u128; 2], message in units(8, 6, 30)) {
        let header = mobility::Header { next_header, kind, message: &message };
        round_trip(&header, mobility::Header::emit, |bytes, header| {
            Ok(mobility::View::parse(bytes)?.header() == *header)
        })?;
        let header = shim6::Header::Data { next_header, tag };
        round_trip(&header, shim6::Header::emit, |bytes, header| Ok(shim6::View::parse(bytes)?.header() == *header))?;
        let control = [&[kind & 0x7f, 0, 0, 0][..], &message].concat();
        let header = shim6::Header::Control { next_header, message: &control };
        round_trip(&header, shim6::Header::emit, |bytes, header| Ok(shim6::View::parse(bytes)?.header() == *header))?;
        let header = hip::Header {
            next_header,
            kind: kind & 0x7f,
            version: kind >> 4,
            controls: u16::from(kind) * 3,
            sender: hosts[0].into(),
            receiver: hosts[1].into(),
            parameters: &message[2..],
        };
        round_trip(&header, hip::Header::emit, |bytes, header| Ok(hip::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn transports(ports: [u16; 2], tag: u32, coverage: u16, kind: u8, rest: [u8; 4]) {
        let [source_port, destination_port] = ports;
        let header = sctp::Header { source_port, destination_port, tag };
        round_trip(&header, sctp::Header::emit, |bytes, header| Ok(sctp::View::parse(bytes)?.header() == *header))?;
        let coverage = if coverage < 8 { 0 } else { coverage };
        let header = udp_lite::Header { source_port, destination_port, coverage };
        round_trip(&header, udp_lite::Header::emit, |bytes, header| {
            Ok(udp_lite::View::parse(bytes)?.header() == *header)
        })?;
        let header = igmp::Header { kind, max_response: rest[0], rest };
        round_trip(&header, igmp::Header::emit, |bytes, header| Ok(igmp::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn checksums(payload in vec(any::<u8>(), 0..100), flip in any::<prop::sample::Index>(), bit in 0..8, hosts: [u32; 2]) {
        let pseudo = Pseudo::V4 { source: hosts[0].into(), destination: hosts[1].into() };
        let mut packet = [&[0; 12][..], &payload].concat();
        sctp::Header::default().emit(&mut packet)?;
        sctp::fill_checksum(&mut packet)?;
        prop_assert!(sctp::View::parse(&packet)?.is_checksum_right());
        let at = flip.index(packet.len());
        packet[at] ^= 1u8 << bit;
        prop_assert!(!sctp::View::parse(&packet)?.is_checksum_right());

        let mut datagram = [&[0; 8][..], &payload].concat();
        udp_lite::fill_checksum(&mut datagram, &pseudo)?;
        prop_assert!(udp_lite::View::parse(&datagram)?.is_checksum_right(&pseudo));
        let mut message = [&[0x11, 0, 0, 0, 0, 0, 0, 0][..], &payload].concat();
        igmp::fill_checksum(&mut message)?;
        prop_assert!(igmp::View::parse(&message)?.is_checksum_right());
    }

    #[test]
    fn gre(
        protocol: u16, checksum: bool, key: Option<u32>, sequence: Option<u32>, acknowledgement: Option<u32>,
        routes in vec((1u16.., any::<u8>(), vec(any::<u8>(), 0..9)), 0..3), payload: u16,
    ) {
        let mut list: Vec<u8> = routes
            .iter()
            .flat_map(|(family, offset, data)| {
                [&family.to_be_bytes()[..], &[*offset, data.len() as u8], data].concat()
            })
            .collect();
        if !list.is_empty() {
            list.extend([0; 4]);
        }
        let offset = if checksum || !list.is_empty() { payload } else { 0 };
        let header = gre::Header::Routing(gre::Routing { protocol, checksum, key, sequence, offset, routes: &list });
        let read = |bytes: &[u8], header: &gre::Header| Ok(gre::View::parse(bytes)?.header() == *header);
        round_trip(&header, |header, out| header.emit(0, out), read)?;
        let header = gre::Header::Pptp(gre::Pptp { call: protocol, sequence, acknowledgement });
        round_trip(&header, |header, out| header.emit(payload.into(), out), read)?;
    }

    #[test]
    fn erspan(
        vlan in 0..=vlan::MAX_ID, class in 0u8..8, encapsulation in 0u8..4, truncated: bool,
        number in 0..=erspan::MAX_SESSION, words: [u32; 2], platform: Option<[u8; 8]>,
    ) {
        let session = erspan::Session { vlan, class, encapsulation, truncated, number };
        let [timestamp, other] = words;
        for header in [
            erspan::Header::Type2 { session, index: other & erspan::MAX_INDEX },
            erspan::Header::Type3 { session, timestamp, group: other as u16, flags: (other >> 16) as u16 & !1, platform },
        ] {
            round_trip(&header, erspan::Header::emit, |bytes, header| {
                Ok(erspan::View::parse(bytes)?.header() == *header)
            })?;
        }
    }

    #[test]
    fn overlays(vni in 0..=vxlan::MAX_VNI, flags: u8, extension: [u8; 3], protocol: u16, options in units(4, 4, 60)) {
        let header = vxlan::Header { flags: flags | vxlan::FLAG_VNI, vni, extension };
        round_trip(&header, vxlan::Header::emit, |bytes, header| Ok(vxlan::View::parse(bytes)?.header() == *header))?;
        let (control, critical) = (flags & 1 != 0, flags & 2 != 0);
        let header = geneve::Header { control, critical, protocol, vni, options: &options };
        round_trip(&header, geneve::Header::emit, |bytes, header| Ok(geneve::View::parse(bytes)?.header() == *header))?;
    }

    #[test]
    fn gtp_u(
        message: u8, teid: u32, sequence: Option<u16>, n_pdu: Option<u8>,
        extensions in vec((1u8.., units(4, 2, 4)), 0..4), payload in 0u16..60_000,
    ) {
        let mut bytes = Vec::new();
        for (index, (_, content)) in extensions.iter().enumerate() {
            let next = extensions.get(index + 1).map_or(0, |(kind, _)| *kind);
            bytes.push((content.len() / 4 + 1) as u8);
            bytes.extend(content);
            bytes.push(next);
        }
        let first_extension = extensions.first().map_or(0, |(kind, _)| *kind);
        let header = gtp_u::Header { message, teid, sequence, n_pdu, first_extension, extensions: &bytes };
        round_trip(&header, |header, out| header.emit(payload.into(), out), |bytes, header| {
            let view = gtp_u::View::parse(bytes)?;
            let same = view.extensions().eq(extensions.iter().map(|(kind, content)| (*kind, &content[..])));
            Ok(view.header() == *header && same)
        })?;
    }

    #[test]
    fn teredo(
        vouched: bool, client in vec(any::<u8>(), 0..20), value in vec(any::<u8>(), 0..20), nonce: [u8; 8],
        confirmation: u8, origin: Option<(u16, u32)>,
    ) {
        let authentication =
            vouched.then_some(teredo::Authentication { client: &client, value: &value, nonce, confirmation });
        let origin = origin.map(|(port, address)| teredo::Origin { port, address: address.into() });
        let header = teredo::Header { authentication, origin };
        // An IPv6 header follows it.
        let emit = |header: &teredo::Header<'_>, out: &mut [u8]| {
            let length = header.emit(out)?;
            Ok(length + ipv6::Header::new(59).emit(0, &mut out[length..])?)
        };
        round_trip(&header, emit, |bytes, header| Ok(teredo::View::parse(bytes)?.header() == *header))?;
    }
}
