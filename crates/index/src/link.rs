//! The first headers of a frame by link type, as libpcap's programs see them: fixed positions.
//!
//! Both sides use this file: the writer of an index (`gather/fields.rs`), and the queries to it (`plan/state.rs`). A
//! position known to only one of them would make a search miss frames.

/// EtherTypes of VLAN tags, as `vlan` matches them.
pub(crate) const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Maximum number of stacked VLAN tags examined.
pub(crate) const MOST_TAGS: usize = 3;
/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
/// EtherTypes of ARP and RARP, whose addresses are at the same positions.
pub(crate) const ARP_TYPES: [u16; 2] = [0x0806, 0x8035];
/// Protocols whose header begins with ports, as `port` matches them: TCP, UDP, SCTP.
pub(crate) const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// The first header of a link type's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// An EtherType at this offset, followed by a VLAN tag or a packet.
    EtherType(usize),
    /// An IP packet, whose first four bits are its version.
    Ip,
}

impl Link {
    /// Returns the link of a `LINKTYPE_*` number; `None` if it is not supported.
    pub(crate) fn of(link: u16) -> Option<Link> {
        match link {
            // Ethernet.
            1 => Some(Link::EtherType(12)),
            // An IP packet.
            101 => Some(Link::Ip),
            // Linux cooked, version 1.
            113 => Some(Link::EtherType(14)),
            _ => None,
        }
    }
}
