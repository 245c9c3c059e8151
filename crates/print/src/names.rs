//! Protocol names by number.

use linerate_headers::Number;

/// EtherTypes (IEEE 802 numbers, IANA).
const ETHER_TYPES: [(u16, &str); 30] = [
    (0x0800, "IPv4"),
    (0x0806, "ARP"),
    (0x0842, "Wake-on-LAN"),
    (0x8035, "RARP"),
    (0x809b, "AppleTalk"),
    (0x80f3, "AppleTalk ARP"),
    (0x8100, "802.1Q"),
    (0x8137, "IPX"),
    (0x86dd, "IPv6"),
    (0x8808, "MAC control"),
    (0x8809, "Slow Protocols"),
    (0x880b, "PPP"),
    (0x8847, "MPLS unicast"),
    (0x8848, "MPLS multicast"),
    (0x8863, "PPPoE D"),
    (0x8864, "PPPoE S"),
    (0x888e, "EAPOL"),
    (0x8892, "PROFINET"),
    (0x88a2, "AoE"),
    (0x88a4, "EtherCAT"),
    (0x88a8, "802.1Q-QinQ"),
    (0x88b8, "GOOSE"),
    (0x88cc, "LLDP"),
    (0x88e5, "MACsec"),
    (0x88f7, "PTP"),
    (0x8902, "CFM"),
    (0x8906, "FCoE"),
    (0x892f, "HSR"),
    (0x9000, "Loopback"),
    (0x9100, "802.1Q-9100"),
];

/// PPP protocols (IANA).
const PPP: [(u16, &str); 12] = [
    (0x0021, "IPv4"),
    (0x003d, "MLPPP"),
    (0x0057, "IPv6"),
    (0x00fd, "compressed"),
    (0x8021, "IPCP"),
    (0x8053, "ECP"),
    (0x8057, "IPV6CP"),
    (0x80fd, "CCP"),
    (0xc021, "LCP"),
    (0xc023, "PAP"),
    (0xc025, "LQR"),
    (0xc223, "CHAP"),
];

/// Protocols of organizations in SNAP.
const SNAP: [([u8; 3], u16, &str); 6] = [
    ([0x00, 0x00, 0x0c], 0x2000, "CDP"),
    ([0x00, 0x00, 0x0c], 0x2003, "VTP"),
    ([0x00, 0x00, 0x0c], 0x2004, "DTP"),
    ([0x00, 0x00, 0x0c], 0x010b, "PVST+"),
    ([0x00, 0x00, 0x0c], 0x0111, "UDLD"),
    ([0x08, 0x00, 0x07], 0x809b, "AppleTalk"),
];

/// IP protocols (IANA) without a header in `wire`.
const IP: [(u8, &str); 16] = [
    (3, "GGP"),
    (8, "EGP"),
    (9, "IGRP"),
    (27, "RDP"),
    (33, "DCCP"),
    (46, "RSVP"),
    (59, "no next header"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (97, "ETHERIP"),
    (103, "PIM"),
    (108, "IPComp"),
    (112, "VRRP"),
    (113, "PGM"),
    (115, "L2TPv3"),
    (124, "IS-IS"),
];

/// IP protocols with a header in `wire`, for the names of headers.
const HEADERS: [(u8, &str); 16] = [
    (0, "HBH"),
    (1, "ICMP"),
    (2, "IGMP"),
    (4, "IPIP"),
    (6, "TCP"),
    (17, "UDP"),
    (41, "IPv6"),
    (43, "Routing"),
    (44, "Fragment"),
    (47, "GRE"),
    (50, "ESP"),
    (51, "AH"),
    (58, "ICMPv6"),
    (60, "Options"),
    (132, "SCTP"),
    (136, "UDPLite"),
];

pub(crate) fn ether_type(number: u16) -> Option<&'static str> {
    find(&ETHER_TYPES, number)
}

/// Returns the name of an IP protocol without a header in `wire`.
pub(crate) fn ip_protocol(number: u8) -> Option<&'static str> {
    find(&IP, number)
}

/// Returns the name of an IP protocol.
pub(crate) fn any_ip_protocol(number: u8) -> Option<&'static str> {
    ip_protocol(number).or_else(|| find(&HEADERS, number))
}

/// Returns the name of the protocol that a header announces.
pub(crate) fn of(number: Number) -> Option<&'static str> {
    match number {
        Number::EtherType(number) => ether_type(number),
        Number::PppProtocol(number) => find(&PPP, number),
        Number::Snap(organization, protocol) => {
            SNAP.iter().find(|row| (row.0, row.1) == (organization, protocol)).map(|row| row.2)
        }
        Number::IpProtocol(number) => any_ip_protocol(number),
        _ => None,
    }
}

/// Looks up a name in a table sorted by number.
fn find<T: Ord + Copy>(table: &[(T, &'static str)], number: T) -> Option<&'static str> {
    table.binary_search_by_key(&number, |row| row.0).ok().map(|at| table[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_ascend() {
        assert!(ETHER_TYPES.is_sorted_by_key(|row| row.0) && PPP.is_sorted_by_key(|row| row.0));
        assert!(IP.is_sorted_by_key(|row| row.0) && HEADERS.is_sorted_by_key(|row| row.0));
        assert_eq!(of(Number::EtherType(0x88cc)), Some("LLDP"));
        assert_eq!(of(Number::Snap([0, 0, 0x0c], 0x2000)), Some("CDP"));
    }
}
