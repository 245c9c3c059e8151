//! Link types: the first header of a frame.

use crate::registry::Next;
use crate::{Number, Protocol, chdlc};

/// Link type: the first header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header, depending on its version.
    RawIp,
    /// An address family before a packet, as on BSD loopback interfaces.
    Null,
    /// A Linux cooked header.
    Sll,
    /// A Linux cooked header, version 2.
    Sll2,
    /// A PPP header, with or without HDLC framing, or the Cisco HDLC header that may take its place.
    Ppp,
    /// A PPPoE header.
    Pppoe,
    /// A Cisco HDLC header.
    Chdlc,
}

impl Link {
    /// All link types.
    pub const ALL: [Link; 8] =
        [Link::Ethernet, Link::RawIp, Link::Null, Link::Sll, Link::Sll2, Link::Ppp, Link::Pppoe, Link::Chdlc];

    /// Converts a number of the tcpdump.org link-layer header type registry (`LINKTYPE_*`). Some systems wrote 12 and
    /// 14 for raw IP.
    pub fn from_linktype(number: u16) -> Option<Link> {
        match number {
            0 | 108 => Some(Link::Null),
            1 => Some(Link::Ethernet),
            9 | 50 => Some(Link::Ppp),
            12 | 14 | 101 | 228 | 229 => Some(Link::RawIp),
            51 => Some(Link::Pppoe),
            104 => Some(Link::Chdlc),
            113 => Some(Link::Sll),
            276 => Some(Link::Sll2),
            _ => None,
        }
    }

    /// Returns its number in that registry, of several the current one.
    pub fn linktype(self) -> u16 {
        match self {
            Link::Null => 0,
            Link::Ethernet => 1,
            Link::Ppp => 9,
            Link::Pppoe => 51,
            Link::RawIp => 101,
            Link::Chdlc => 104,
            Link::Sll => 113,
            Link::Sll2 => 276,
        }
    }

    /// Returns the link type whose frames begin with this header, if any.
    pub fn starting_with(protocol: Protocol) -> Option<Link> {
        Link::ALL.into_iter().find(|link| link.first(&[]) == Next::Protocol(protocol))
    }

    /// Returns the first protocol of `frame`.
    pub(crate) fn first(self, frame: &[u8]) -> Next {
        match self {
            Link::Ethernet => Next::Protocol(Protocol::Ethernet),
            Link::RawIp => Next::Number(Number::version_of(frame)),
            Link::Null => Next::Protocol(Protocol::Null),
            Link::Sll => Next::Protocol(Protocol::Sll),
            Link::Sll2 => Next::Protocol(Protocol::Sll2),
            Link::Ppp => match frame.first() {
                Some(&(chdlc::UNICAST | chdlc::BROADCAST)) => Next::Protocol(Protocol::Chdlc),
                _ => Next::Protocol(Protocol::Ppp),
            },
            Link::Pppoe => Next::Protocol(Protocol::Pppoe),
            Link::Chdlc => Next::Protocol(Protocol::Chdlc),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_types_match_the_registry() {
        for (link, numbers) in [
            (Link::Null, &[0, 108][..]),
            (Link::Ethernet, &[1]),
            (Link::Ppp, &[9, 50]),
            (Link::RawIp, &[12, 14, 101, 228, 229]),
            (Link::Pppoe, &[51]),
            (Link::Chdlc, &[104]),
            (Link::Sll, &[113]),
            (Link::Sll2, &[276]),
        ] {
            for number in numbers {
                assert_eq!(Link::from_linktype(*number), Some(link));
            }
        }
        assert_eq!([2, 105, 127].map(Link::from_linktype), [None; 3]);
        assert_eq!(Link::ALL.map(|link| Link::from_linktype(link.linktype())), Link::ALL.map(Some));
    }

    #[test]
    fn first_header_determines_the_link() {
        assert_eq!(Link::starting_with(Protocol::Sll), Some(Link::Sll));
        assert_eq!(Link::starting_with(Protocol::Vlan), None);
    }

    #[test]
    fn serial_links_distinguish_ppp_and_cisco_hdlc() {
        assert_eq!(Link::Ppp.first(&[0x0f, 0]), Next::Protocol(Protocol::Chdlc));
        assert_eq!(Link::Ppp.first(&[0xff, 3]), Next::Protocol(Protocol::Ppp));
        assert_eq!(Link::Ppp.first(&[]), Next::Protocol(Protocol::Ppp));
    }
}
