//! What a frame of a link type begins with, as libpcap's programs see it: fixed places behind fixed places.
//!
//! Both sides go by this file: what is put into an index (`gather/fields.rs`), and what is asked of it
//! (`plan/state.rs`). A place that only one of them knew would make a search miss frames.

/// EtherTypes of VLAN tags, as `vlan` takes them.
pub(crate) const VLAN_TYPES: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// VLAN tags behind one another that are looked behind.
pub(crate) const MOST_TAGS: usize = 3;
/// EtherType of IPv4.
pub(crate) const IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub(crate) const IPV6: u16 = 0x86dd;
/// EtherTypes of ARP and RARP, whose addresses lie in the same places.
pub(crate) const ARP_TYPES: [u16; 2] = [0x0806, 0x8035];
/// Protocols whose header begins with ports, as `port` takes them: TCP, UDP, SCTP.
pub(crate) const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// How a link type's frames begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    /// An EtherType there, a VLAN tag or a packet behind it.
    EtherType(usize),
    /// An IP packet, whose first four bits say which.
    Ip,
}

impl Link {
    /// Of a `LINKTYPE_*` number; `None` of those that are not looked into.
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
