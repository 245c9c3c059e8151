//! A header of each kind, and all valid stacks of two.

use linerate_headers::build::{Extension, Frame, Header};
use linerate_headers::{
    Link, MacAddr, Protocol, Role, ah, arp, chdlc, erspan, esp, ethernet, geneve, gre, gtp_u, hip, icmp, icmpv6, igmp,
    ipv4, ipv6, ipv6_extension, ipv6_fragment, llc, mobility, mpls, null, options::Options, ppp, pppoe, pseudowire,
    registry::NO_NEXT_HEADER, sctp, shim6, sll, sll2, tcp, teredo, udp, udp_lite, vlan, vxlan,
};
use std::net::{Ipv4Addr, Ipv6Addr};

/// An unassigned IP protocol number, and unassigned EtherTypes, SAPs, ports.
const UNKNOWN_PROTOCOL: u8 = 253;
const UNKNOWN_TYPE: u16 = 0x88b5;

const SOURCE_4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const DESTINATION_4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// A Teredo address (RFC 4380 section 4), as required after Teredo: server, no flags, port and address inverted.
const SOURCE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0, 0xc000, 0x201, 0, 0xefff, 0x3fff, 0xfdfe);
const DESTINATION_6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// PadN over four bytes.
const PADDING: [u8; 6] = [1, 4, 0, 0, 0, 0];
/// One segment left: after the destination of the header follows `2001:db8::3`.
const ROUTE: [u8; 22] = [0, 1, 0, 0, 0, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3];
/// A segment list of two, reversed, with one left.
const SEGMENTS: [u8; 38] = {
    let mut data = [0; 38];
    (data[0], data[1], data[2]) = (4, 1, 1);
    (data[6], data[7], data[21]) = (0x20, 1, 9);
    (data[22], data[23], data[37]) = (0x20, 1, 2);
    data
};
/// A binding refresh request without options: two reserved bytes.
const REFRESH: [u8; 2] = [0; 2];
/// A probe of shim6 would be long; this is a keep-alive: type 66, checksum, reserved, context tag.
const KEEP_ALIVE: [u8; 14] = [66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
/// A GTP-U extension: a PDU session container (TS 38.415) of one unit, then none.
const SESSION: [u8; 4] = [1, 0x10, 9, 0];
/// A Geneve option of class 0x0102 with four bytes of data.
const OPTION: [u8; 8] = [1, 2, 0x42, 1, 0xaa, 0xbb, 0xcc, 0xdd];
/// A source route (RFC 1701) of one unknown entry, and the empty one.
const LABELS: &[mpls::Entry] =
    &[mpls::Entry { label: 1000, traffic_class: 0, ttl: 64 }, mpls::Entry { label: 1001, traffic_class: 5, ttl: 63 }];

/// A header, and the link whose frames can begin with it.
pub(super) type Sample = (Box<dyn Header>, Option<Link>);

/// All of them.
pub(super) fn samples() -> Vec<Sample> {
    let mut samples = links();
    samples.extend(networks().into_iter().map(|header| {
        let begins = header.protocol().role() == Role::Network;
        (header, begins.then_some(Link::RawIp))
    }));
    samples.extend(transports().into_iter().map(|header| (header, None)));
    samples.extend(tunnels().into_iter().map(|header| (header, None)));
    samples
}

fn links() -> Vec<Sample> {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    // After labels, an address whose first four bits are 0, 1, 4 or 6 would look like another protocol.
    let link = ethernet::Header { destination: MacAddr([0x22, 0, 0, 0, 0, 2]), source: mac, ether_type: UNKNOWN_TYPE };
    let tag = vlan::Header { id: 7, priority: 3, drop_eligible: false, ether_type: UNKNOWN_TYPE };
    let control = llc::Control::Unnumbered(3);
    let plain = llc::Plain { destination_sap: 0xfc, source_sap: 0xfc, control };
    let address = [2, 0, 0, 0, 0, 1, 0, 0];
    let cooked = sll::Header { packet_type: 0, hardware_type: 1, address_len: 6, address, protocol: UNKNOWN_TYPE };
    let cooked_2 = sll2::Header {
        protocol: UNKNOWN_TYPE,
        interface: 3,
        hardware_type: 1,
        packet_type: 4,
        address_len: 6,
        address,
    };
    let who_has = arp::Packet {
        operation: arp::REQUEST,
        sender_mac: mac,
        sender_ip: SOURCE_4,
        target_mac: MacAddr([0; 6]),
        target_ip: DESTINATION_4,
    };
    vec![
        (Box::new(link), Some(Link::Ethernet)),
        (Box::new(tag), None),
        (Box::new(vlan::Header { id: 4095, ..tag }), None),
        (Box::new(llc::Header::Plain(plain)), None),
        (Box::new(llc::Header::Snap(llc::Snap { organization: [0; 3], protocol: UNKNOWN_TYPE })), None),
        (Box::new(LABELS), None),
        (Box::new(pseudowire::Header::Data { flags: 0, sequence: 9 }), None),
        (Box::new(pseudowire::Header::Channel { version: 0, channel: 0x7fff }), None),
        (Box::new(pppoe::Header { code: pppoe::SESSION_DATA, session: 5 }), Some(Link::Pppoe)),
        (Box::new(pppoe::Header { code: pppoe::INITIATION, session: 0 }), Some(Link::Pppoe)),
        (Box::new(ppp::Header { framed: true, compressed: false, protocol: 0x80fd }), Some(Link::Ppp)),
        (Box::new(ppp::Header { framed: false, compressed: false, protocol: 0x80fd }), None),
        (Box::new(null::Header { family: 7, big_endian: false }), Some(Link::Null)),
        (Box::new(cooked), Some(Link::Sll)),
        (Box::new(cooked_2), Some(Link::Sll2)),
        (Box::new(chdlc::Header { address: chdlc::UNICAST, ether_type: UNKNOWN_TYPE }), Some(Link::Chdlc)),
        (Box::new(who_has), None),
    ]
}

fn networks() -> Vec<Box<dyn Header>> {
    let v4 = ipv4::Header { source: SOURCE_4, destination: DESTINATION_4, ..ipv4::Header::new(UNKNOWN_PROTOCOL) };
    let v6 = ipv6::Header { source: SOURCE_6, destination: DESTINATION_6, ..ipv6::Header::new(NO_NEXT_HEADER) };
    let options = Options::new(&[148, 4, 0, 0]).unwrap_or_default();
    let next_header = NO_NEXT_HEADER;
    let extension = |data| ipv6_extension::Header { next_header, data };
    vec![
        Box::new(v4),
        Box::new(ipv4::Header { options, dont_fragment: true, identification: 77, ..v4 }),
        Box::new(v6),
        Box::new(ipv6::Header { flow_label: 0xabcde, traffic_class: 0xb8, ..v6 }),
        Box::new(Extension::HopByHop(extension(&PADDING))),
        Box::new(Extension::Routing(extension(&ROUTE))),
        Box::new(Extension::Routing(extension(&SEGMENTS))),
        Box::new(ipv6_fragment::Header { next_header, fragment_offset: 0, more_fragments: false, identification: 7 }),
        Box::new(Extension::Destination(extension(&PADDING))),
        Box::new(mobility::Header { next_header, kind: 0, message: &REFRESH }),
        Box::new(hip::Header {
            next_header,
            kind: 1,
            version: hip::VERSION,
            controls: 0,
            sender: SOURCE_6,
            receiver: DESTINATION_6,
            parameters: &[],
        }),
        Box::new(shim6::Header::Data { next_header, tag: 0x1234 }),
        Box::new(shim6::Header::Control { next_header, message: &KEEP_ALIVE }),
        Box::new(ah::Header { next_header, spi: 256, sequence: 1, check: &[0xab; 12] }),
    ]
}

fn transports() -> Vec<Box<dyn Header>> {
    let (source_port, destination_port) = (40_000, 9);
    let echo = icmp::Echo { identifier: 1, sequence: 2 };
    let segment = tcp::Header { source_port, destination_port, sequence: 1, window: 1000, ..tcp::Header::default() };
    vec![
        Box::new(tcp::Header { flags: tcp::Flags::ACK, ..segment }),
        Box::new(tcp::Header {
            flags: tcp::Flags::SYN,
            options: Options::new(&[2, 4, 5, 0xb4]).unwrap_or_default(),
            ..segment
        }),
        Box::new(udp::Header { source_port, destination_port: 0 }),
        Box::new(udp_lite::Header { source_port, destination_port, coverage: 0 }),
        Box::new(udp_lite::Header { source_port, destination_port, coverage: 8 }),
        Box::new(sctp::Header { source_port, destination_port, tag: 0xdead_beef }),
        Box::new(icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: echo.into() }),
        Box::new(icmpv6::Header { kind: 128, code: 0 }),
        Box::new(igmp::Header { kind: igmp::REPORT_2, max_response: 0, rest: [239, 1, 2, 3] }),
        Box::new(esp::Header { spi: 0x1000, sequence: 1 }),
    ]
}

fn tunnels() -> Vec<Box<dyn Header>> {
    let routing = gre::Routing { protocol: UNKNOWN_TYPE, ..gre::Routing::default() };
    let session = erspan::Session { vlan: 7, class: 0, encapsulation: 0, truncated: false, number: 12 };
    let mirrored = |flags| erspan::Header::Type3 { session, timestamp: 9, group: 0, flags, platform: None };
    let authentication = teredo::Authentication { client: &[], value: &[], nonce: [1; 8], confirmation: 0 };
    let origin = teredo::Origin { port: 4096, address: SOURCE_4 };
    let user_data = gtp_u::Header {
        message: gtp_u::USER_DATA,
        teid: 0x0102_0304,
        sequence: None,
        n_pdu: None,
        first_extension: 0,
        extensions: &[],
    };
    let network = geneve::Header { control: false, critical: false, protocol: UNKNOWN_TYPE, vni: 42, options: &[] };
    let extended = vxlan::Header { flags: vxlan::FLAG_VNI | vxlan::FLAG_PROTOCOL, ..vxlan::Header::new(7) };
    vec![
        Box::new(gre::Header::Routing(routing)),
        Box::new(gre::Header::Routing(gre::Routing { checksum: true, key: Some(7), sequence: Some(1), ..routing })),
        Box::new(gre::Header::Pptp(gre::Pptp { call: 3, sequence: Some(4), acknowledgement: Some(5) })),
        Box::new(erspan::Header::Type2 { session, index: 3 }),
        Box::new(mirrored(0x8000)),
        Box::new(mirrored(u16::from(erspan::IP) << 10)),
        Box::new(vxlan::Header::new(42)),
        Box::new(extended),
        Box::new(network),
        Box::new(geneve::Header { options: &OPTION, ..network }),
        Box::new(user_data),
        Box::new(gtp_u::Header { sequence: Some(7), first_extension: 0x85, extensions: &SESSION, ..user_data }),
        Box::new(teredo::Header::default()),
        Box::new(teredo::Header { authentication: Some(authentication), origin: Some(origin) }),
    ]
}

/// Returns whether `outer` can precede `inner`.
pub(super) fn can_carry(outer: &dyn Header, inner: &dyn Header) -> bool {
    Frame::new(&[outer, inner], &[]).length().is_ok()
}

/// Returns a well-formed payload for `last`: empty if it would begin with another header.
pub(super) fn payload(last: Protocol) -> &'static [u8] {
    match (last, last.role()) {
        // A data chunk: length, transmission sequence number, stream, its sequence number, protocol; six bytes, padded.
        (Protocol::Sctp, _) => &[0, 3, 0, 22, 0, 0, 0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0],
        // Identifier, sequence number, data: after Teredo, eight unique bytes.
        (Protocol::Icmpv6, _) => &[0, 1, 0, 2, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 1, 2, 3],
        (Protocol::Igmp, _) | (_, Role::Link | Role::Extension | Role::Tunnel) => &[],
        _ => &[0x99, 0x98, 0x97, 0x96, 0x95, 0x94, 0x93, 0x92, 0x91, 0x90, 0x9f, 0x9e, 0x9d],
    }
}
