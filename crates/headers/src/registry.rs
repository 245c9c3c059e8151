//! The protocols that [`dissect`](crate::dissect()) knows: one row each.
//!
//! To add one: write its file with a `step` function that returns the length of the header and the next protocol, name
//! it in [`Protocol`], and give it a row in the registry. Nothing else changes; the numbers that select it are in the
//! row.

use crate::{
    Malformed, Number, ah, arp, chdlc, erspan, esp, ethernet, geneve, gre, gtp_u, hip, icmp, icmpv6, igmp, ipv4, ipv6,
    ipv6_extension, ipv6_fragment, llc, mobility, mpls, null, ppp, pppoe, pseudowire, sctp, shim6, sll, sll2, tcp,
    teredo, udp, udp_lite, vlan, vxlan,
};

/// IP protocol number of IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of IGMP.
pub const IGMP: u8 = 2;
/// IP protocol number of IPv4 in IP (RFC 2003).
pub const IPV4: u8 = 4;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of IPv6 in IP (RFC 4213, RFC 2473).
pub const IPV6: u8 = 41;
/// IP protocol number of the IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IP protocol number of the IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// IP protocol number of GRE.
pub const GRE: u8 = 47;
/// IP protocol number of the encapsulating security payload.
pub const ESP: u8 = 50;
/// IP protocol number of the authentication header.
pub const AH: u8 = 51;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Next header of an IPv6 packet without payload.
pub const NO_NEXT_HEADER: u8 = 59;
/// IP protocol number of IPv6 destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// IP protocol number of SCTP.
pub const SCTP: u8 = 132;
/// IP protocol number of the mobility header.
pub const MOBILITY: u8 = 135;
/// IP protocol number of UDP-Lite.
pub const UDP_LITE: u8 = 136;
/// IP protocol number of MPLS in IP (RFC 4023).
pub const MPLS: u8 = 137;
/// IP protocol number of the host identity protocol.
pub const HIP: u8 = 139;
/// IP protocol number of shim6.
pub const SHIM6: u8 = 140;
/// IP protocol number of Ethernet in IPv6 (RFC 8986).
pub const ETHERNET: u8 = 143;

/// Returns whether a UDP datagram with these ports may carry another packet.
#[inline(always)]
pub fn may_be_tunnel(destination: u16, source: u16) -> bool {
    crate::lookup::has_port(destination, source)
}

/// A kind of header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Ethernet II and 802.3.
    Ethernet,
    /// LLC with SNAP, after an 802.3 length.
    Llc,
    /// A VLAN tag, customer or service.
    Vlan,
    /// An MPLS label stack, of any number of labels.
    Mpls,
    /// The control word of a pseudowire, or its associated channel header.
    Pseudowire,
    /// PPPoE, discovery and session.
    Pppoe,
    /// PPP.
    Ppp,
    /// The address family of a loopback interface.
    Null,
    /// The Linux cooked header.
    Sll,
    /// The Linux cooked header, version 2.
    Sll2,
    /// Cisco HDLC.
    Chdlc,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6, without extension headers.
    Ipv6,
    /// IPv6 hop-by-hop options.
    HopByHop,
    /// IPv6 routing header.
    Routing,
    /// IPv6 fragment header.
    Fragment,
    /// IPv6 destination options.
    DestinationOptions,
    /// IPv6 mobility header.
    Mobility,
    /// Host identity protocol.
    Hip,
    /// Shim6.
    Shim6,
    /// IP authentication header.
    Ah,
    /// IP encapsulating security payload.
    Esp,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// UDP-Lite.
    UdpLite,
    /// SCTP, without its chunks.
    Sctp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
    /// IGMP.
    Igmp,
    /// GRE.
    Gre,
    /// ERSPAN, types II and III.
    Erspan,
    /// VXLAN.
    Vxlan,
    /// Geneve.
    Geneve,
    /// GTP-U, with its extension headers.
    GtpU,
    /// Teredo indications, which may be empty.
    Teredo,
}

impl Protocol {
    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns its role in a frame.
    #[inline]
    pub fn role(self) -> Role {
        self.row().role
    }

    /// Returns whether its header begins with the ports of source and destination, 16 bits each.
    #[inline]
    pub fn has_ports(self) -> bool {
        self.row().has_ports
    }

    #[inline]
    pub(crate) fn row(self) -> &'static Row {
        &REGISTRY[self as usize]
    }
}

/// Role of a header in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Transports frames over a link, and selects their payload; also protocols next to IP, such as ARP.
    Link,
    /// Begins an IP packet: the `l3` of a descriptor.
    Network,
    /// Is between an IP header and the transport.
    Extension,
    /// Begins the payload of an IP packet: the `l4` of a descriptor.
    Transport,
    /// Carries another packet or frame: the contents are within a tunnel.
    Tunnel,
}

/// Result of decoding one header: all lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Length of the header.
    pub header: usize,
    /// Captured length of its payload.
    pub payload: usize,
    /// Next protocol.
    pub next: Next,
}

impl Step {
    #[inline(always)]
    pub(crate) fn new(header: usize, payload: usize, next: Next) -> Self {
        Step { header, payload, next }
    }
}

/// Selector of the next header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Payload, or nothing.
    End,
    /// Always this protocol.
    Protocol(Protocol),
    /// The protocol registered for the number.
    Number(Number),
    /// Possibly this protocol: if the bytes are not a complete header of it, they are payload.
    Guess(Protocol),
    /// A later part of a payload that began in another packet.
    Fragment,
}

/// Properties of one protocol.
pub(crate) struct Row {
    pub protocol: Protocol,
    name: &'static str,
    role: Role,
    has_ports: bool,
    /// The numbers that select it.
    pub numbers: &'static [Number],
    /// Reads one header of it.
    pub step: fn(&[u8]) -> Result<Step, Malformed>,
}

const fn row(
    protocol: Protocol,
    name: &'static str,
    role: Role,
    numbers: &'static [Number],
    step: fn(&[u8]) -> Result<Step, Malformed>,
) -> Row {
    Row { protocol, name, role, has_ports: false, numbers, step }
}

impl Row {
    /// Marks a protocol whose header begins with the ports of source and destination, 16 bits each.
    const fn with_ports(self) -> Row {
        Row { has_ports: true, ..self }
    }
}

use Number::{AddressFamily, EtherType, IpProtocol, IpVersion, PppProtocol, Sap, UdpPort};
use Protocol as P;
use Role::{Extension, Link, Network, Transport, Tunnel};

const ETHERNET_NUMBERS: &[Number] = &[EtherType(gre::ETHERNET), IpProtocol(ETHERNET)];
const VLAN_NUMBERS: &[Number] = &[EtherType(vlan::CUSTOMER), EtherType(vlan::SERVICE), EtherType(vlan::OLD_SERVICE)];
const MPLS_NUMBERS: &[Number] = &[
    EtherType(mpls::UNICAST),
    EtherType(mpls::MULTICAST),
    PppProtocol(ppp::MPLS),
    PppProtocol(ppp::MPLS_MULTICAST),
    IpProtocol(MPLS),
];
const IPV4_NUMBERS: &[Number] = &[
    EtherType(ethernet::IPV4),
    IpVersion(4),
    IpProtocol(IPV4),
    PppProtocol(ppp::IPV4),
    AddressFamily(null::IPV4),
    Sap(llc::IPV4_SAP),
];
const IPV6_NUMBERS: &[Number] = &[
    EtherType(ethernet::IPV6),
    IpVersion(6),
    IpProtocol(IPV6),
    PppProtocol(ppp::IPV6),
    AddressFamily(null::IPV6),
    AddressFamily(null::IPV6_FREEBSD),
    AddressFamily(null::IPV6_MACOS),
    AddressFamily(null::IPV6_LINUX),
    AddressFamily(null::IPV6_WINDOWS),
];
const VXLAN_NUMBERS: &[Number] = &[UdpPort(vxlan::PORT), UdpPort(vxlan::OLD_PORT), UdpPort(vxlan::GPE_PORT)];

/// Every protocol, in the order of [`Protocol`].
#[rustfmt::skip]
pub(crate) const ROWS: [Row; 36] = [
    row(P::Ethernet, "ethernet", Link, ETHERNET_NUMBERS, ethernet::step),
    row(P::Llc, "llc", Link, &[], llc::step),
    row(P::Vlan, "vlan", Link, VLAN_NUMBERS, vlan::step),
    row(P::Mpls, "mpls", Link, MPLS_NUMBERS, mpls::step),
    row(P::Pseudowire, "pseudowire", Link, &[], pseudowire::step),
    row(P::Pppoe, "pppoe", Link, &[EtherType(pppoe::DISCOVERY), EtherType(pppoe::SESSION)], pppoe::step),
    row(P::Ppp, "ppp", Link, &[EtherType(gre::PPP)], ppp::step),
    row(P::Null, "null", Link, &[], null::step),
    row(P::Sll, "sll", Link, &[], sll::step),
    row(P::Sll2, "sll2", Link, &[], sll2::step),
    row(P::Chdlc, "chdlc", Link, &[], chdlc::step),
    row(P::Arp, "arp", Link, &[EtherType(ethernet::ARP)], arp::step),
    row(P::Ipv4, "ipv4", Network, IPV4_NUMBERS, ipv4::step),
    row(P::Ipv6, "ipv6", Network, IPV6_NUMBERS, ipv6::step),
    row(P::HopByHop, "hop_by_hop", Extension, &[IpProtocol(HOP_BY_HOP)], ipv6_extension::step_hop_by_hop),
    row(P::Routing, "routing", Extension, &[IpProtocol(ROUTING)], ipv6_extension::step_routing),
    row(P::Fragment, "fragment", Extension, &[IpProtocol(FRAGMENT)], ipv6_fragment::step),
    row(P::DestinationOptions, "destination_options", Extension, &[IpProtocol(DESTINATION_OPTIONS)], ipv6_extension::step_destination),
    row(P::Mobility, "mobility", Extension, &[IpProtocol(MOBILITY)], mobility::step),
    row(P::Hip, "hip", Extension, &[IpProtocol(HIP)], hip::step),
    row(P::Shim6, "shim6", Extension, &[IpProtocol(SHIM6)], shim6::step),
    row(P::Ah, "ah", Extension, &[IpProtocol(AH)], ah::step),
    row(P::Esp, "esp", Transport, &[IpProtocol(ESP)], esp::step),
    row(P::Tcp, "tcp", Transport, &[IpProtocol(TCP)], tcp::step).with_ports(),
    row(P::Udp, "udp", Transport, &[IpProtocol(UDP)], udp::step).with_ports(),
    row(P::UdpLite, "udp_lite", Transport, &[IpProtocol(UDP_LITE)], udp_lite::step).with_ports(),
    row(P::Sctp, "sctp", Transport, &[IpProtocol(SCTP)], sctp::step).with_ports(),
    row(P::Icmp, "icmp", Transport, &[IpProtocol(ICMP)], icmp::step),
    row(P::Icmpv6, "icmpv6", Transport, &[IpProtocol(ICMPV6)], icmpv6::step),
    row(P::Igmp, "igmp", Transport, &[IpProtocol(IGMP)], igmp::step),
    row(P::Gre, "gre", Tunnel, &[IpProtocol(GRE)], gre::step),
    row(P::Erspan, "erspan", Tunnel, &[EtherType(erspan::TYPE_2), EtherType(erspan::TYPE_3)], erspan::step),
    row(P::Vxlan, "vxlan", Tunnel, VXLAN_NUMBERS, vxlan::step),
    row(P::Geneve, "geneve", Tunnel, &[UdpPort(geneve::PORT)], geneve::step),
    row(P::GtpU, "gtp_u", Tunnel, &[UdpPort(gtp_u::PORT)], gtp_u::step),
    row(P::Teredo, "teredo", Tunnel, &[UdpPort(teredo::PORT)], teredo::step),
];

static REGISTRY: [Row; ROWS.len()] = ROWS;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_protocol_order() {
        for (index, row) in REGISTRY.iter().enumerate() {
            assert_eq!(row.protocol as usize, index, "{}", row.name);
            assert_eq!(row.protocol.name(), row.name);
        }
    }

    #[test]
    fn numbers_and_names_are_used_once() {
        for (index, row) in REGISTRY.iter().enumerate() {
            for other in &REGISTRY[..index] {
                assert_ne!(row.name, other.name);
                assert!(!row.numbers.iter().any(|number| other.numbers.contains(number)), "{}", row.name);
            }
        }
    }
}
