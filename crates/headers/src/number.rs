//! Numbers by which a header selects the protocol of its payload.

use std::fmt;

/// Number by which a header selects the protocol of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Number {
    /// By EtherType (IEEE 802 numbers), 0x05dd and above; also the protocol type of GRE, whose additional numbers are
    /// EtherTypes in all but name.
    EtherType(u16),
    /// By IP protocol number (IANA), also the next header of IPv6.
    IpProtocol(u8),
    /// By the version in its own first byte, for an IP packet without a selector.
    IpVersion(u8),
    /// By 802.2 service access point.
    Sap(u8),
    /// By a number of the organization that SNAP names (IEEE 802).
    Snap([u8; 3], u16),
    /// By PPP protocol number (IANA).
    PppProtocol(u16),
    /// By address family of the capturing host.
    AddressFamily(u32),
    /// By the kind of link of a cooked frame (Linux `ARPHRD_*`), if it is decisive.
    HardwareType(u16),
    /// By UDP port, at either end.
    UdpPort(u16),
}

impl Number {
    /// Returns the version of the IP packet in `bytes`. No bytes count as IPv4.
    #[inline(always)]
    pub(crate) fn version_of(bytes: &[u8]) -> Number {
        Number::IpVersion(bytes.first().map_or(4, |byte| byte >> 4))
    }

    /// Returns a distinct integer for each number, as a lookup key.
    pub(crate) const fn key(self) -> u64 {
        let (kind, value) = match self {
            Number::EtherType(number) => (0, number as u64),
            Number::IpProtocol(number) => (1, number as u64),
            Number::IpVersion(number) => (2, number as u64),
            Number::Sap(number) => (3, number as u64),
            Number::Snap([a, b, c], number) => (4, u32::from_be_bytes([0, a, b, c]) as u64 * 0x1_0000 + number as u64),
            Number::PppProtocol(number) => (5, number as u64),
            Number::AddressFamily(number) => (6, number as u64),
            Number::HardwareType(number) => (7, number as u64),
            Number::UdpPort(number) => (8, number as u64),
        };
        kind << 48 | value
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::EtherType(number) => write!(f, "ethertype {number:#06x}"),
            Number::IpProtocol(number) => write!(f, "ip protocol {number}"),
            Number::IpVersion(number) => write!(f, "ip version {number}"),
            Number::Sap(number) => write!(f, "llc access point {number:#04x}"),
            Number::Snap([a, b, c], number) => write!(f, "snap protocol {a:02x}:{b:02x}:{c:02x} {number:#06x}"),
            Number::PppProtocol(number) => write!(f, "ppp protocol {number:#06x}"),
            Number::AddressFamily(number) => write!(f, "address family {number}"),
            Number::HardwareType(number) => write!(f, "hardware type {number}"),
            Number::UdpPort(number) => write!(f, "udp port {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_different_kinds_have_different_keys() {
        let keys = [
            Number::EtherType(4),
            Number::IpProtocol(4),
            Number::IpVersion(4),
            Number::Sap(4),
            Number::Snap([0, 0, 0], 4),
            Number::Snap([0, 0, 4], 0),
            Number::PppProtocol(4),
            Number::AddressFamily(4),
            Number::HardwareType(4),
            Number::UdpPort(4),
        ]
        .map(Number::key);
        let distinct: std::collections::BTreeSet<u64> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn numbers_are_formatted_as_in_their_registries() {
        assert_eq!(Number::EtherType(0x800).to_string(), "ethertype 0x0800");
        assert_eq!(Number::Snap([0, 0, 0x0c], 0x2000).to_string(), "snap protocol 00:00:0c 0x2000");
    }
}
