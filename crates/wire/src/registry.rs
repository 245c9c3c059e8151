//! The protocols that [`dissect`](crate::dissect()) knows: one row each.
//!
//! To add one: write its file with a `step` function that says how long the header is and what comes
//! next, name it in [`Protocol`], and give it a row in the registry. Nothing else changes; what announces it
//! to the headers in front is in the row.

use crate::{Malformed, arp, ethernet, icmp, icmpv6, ipv4, ipv6, ipv6_extension, ipv6_fragment, llc, tcp, udp, vlan};

/// IP protocol number of IPv6 hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// IP protocol number of ICMP.
pub const ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// IP protocol number of UDP.
pub const UDP: u8 = 17;
/// IP protocol number of the IPv6 routing header.
pub const ROUTING: u8 = 43;
/// IP protocol number of the IPv6 fragment header.
pub const FRAGMENT: u8 = 44;
/// IP protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Next header of an IPv6 packet that carries nothing more.
pub const NO_NEXT_HEADER: u8 = 59;
/// IP protocol number of IPv6 destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

/// A kind of header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Ethernet II and 802.3.
    Ethernet,
    /// LLC with SNAP, behind an 802.3 length.
    Llc,
    /// A VLAN tag, customer or service.
    Vlan,
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
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// ICMP.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

impl Protocol {
    /// The name used in text and JSON.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What part it plays in a frame.
    #[inline]
    pub fn role(self) -> Role {
        self.row().role
    }

    #[inline]
    pub(crate) fn row(self) -> &'static Row {
        &REGISTRY[self as usize]
    }
}

/// What part a header plays in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Brings frames over a link, and says what they carry; also what is carried beside IP, as ARP.
    Link,
    /// Begins an IP packet: the `l3` of a descriptor.
    Network,
    /// Stands between an IP header and the transport.
    Extension,
    /// Begins the payload of an IP packet: the `l4` of a descriptor.
    Transport,
}

/// How a header names what it carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// By EtherType (IEEE 802 numbers), 0x05dd and above.
    EtherType(u16),
    /// By IP protocol number (IANA), also the next header of IPv6.
    IpProtocol(u8),
    /// By the version in its own first byte, where a raw IP frame begins.
    IpVersion(u8),
    /// By 802.2 service access point; 0xaa also stands for SNAP organizations with numbers of their own.
    Sap(u8),
}

/// What one header says: all lengths in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Length of the header.
    pub header: usize,
    /// Length of what it carries, as far as it is there.
    pub payload: usize,
    /// What it carries.
    pub next: Next,
}

impl Step {
    #[inline(always)]
    pub(crate) fn new(header: usize, payload: usize, next: Next) -> Self {
        Step { header, payload, next }
    }
}

/// What comes behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Payload, or nothing.
    End,
    /// Always this protocol.
    Protocol(Protocol),
    /// Whoever has registered the number.
    Number(Number),
    /// A later part of a payload that began in another packet.
    Fragment,
}

/// What there is to know about one protocol.
pub(crate) struct Row {
    protocol: Protocol,
    name: &'static str,
    role: Role,
    /// The numbers that announce it.
    numbers: &'static [Number],
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
    Row { protocol, name, role, numbers, step }
}

use Number::{EtherType, IpProtocol, IpVersion};

const VLAN_TYPES: &[Number] = &[EtherType(vlan::CUSTOMER), EtherType(vlan::SERVICE), EtherType(vlan::OLD_SERVICE)];

/// Every protocol, in the order of [`Protocol`].
#[rustfmt::skip]
static REGISTRY: [Row; 14] = [
    row(Protocol::Ethernet, "ethernet", Role::Link, &[], ethernet::step),
    row(Protocol::Llc, "llc", Role::Link, &[], llc::step),
    row(Protocol::Vlan, "vlan", Role::Link, VLAN_TYPES, vlan::step),
    row(Protocol::Arp, "arp", Role::Link, &[EtherType(ethernet::ARP)], arp::step),
    row(Protocol::Ipv4, "ipv4", Role::Network, &[EtherType(ethernet::IPV4), IpVersion(4)], ipv4::step),
    row(Protocol::Ipv6, "ipv6", Role::Network, &[EtherType(ethernet::IPV6), IpVersion(6)], ipv6::step),
    row(Protocol::HopByHop, "hop_by_hop", Role::Extension, &[IpProtocol(HOP_BY_HOP)], ipv6_extension::step_hop_by_hop),
    row(Protocol::Routing, "routing", Role::Extension, &[IpProtocol(ROUTING)], ipv6_extension::step_routing),
    row(Protocol::Fragment, "fragment", Role::Extension, &[IpProtocol(FRAGMENT)], ipv6_fragment::step),
    row(Protocol::DestinationOptions, "destination_options", Role::Extension, &[IpProtocol(DESTINATION_OPTIONS)], ipv6_extension::step_destination),
    row(Protocol::Tcp, "tcp", Role::Transport, &[IpProtocol(TCP)], tcp::step),
    row(Protocol::Udp, "udp", Role::Transport, &[IpProtocol(UDP)], udp::step),
    row(Protocol::Icmp, "icmp", Role::Transport, &[IpProtocol(ICMP)], icmp::step),
    row(Protocol::Icmpv6, "icmpv6", Role::Transport, &[IpProtocol(ICMPV6)], icmpv6::step),
];

/// The numbers that announce a protocol, the usual one first.
pub(crate) fn numbers(protocol: Protocol) -> &'static [Number] {
    protocol.row().numbers
}

/// Who is announced by a number. An IP protocol number means the same behind IPv4 and IPv6: extension
/// headers behind IPv4, which nobody should send, are walked all the same.
pub(crate) fn lookup(number: Number) -> Option<Protocol> {
    REGISTRY.iter().find(|row| row.numbers.contains(&number)).map(|row| row.protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_protocols() {
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
