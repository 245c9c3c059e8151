//! Flow key: addresses, ports, protocol and, as configured, VLAN and tunnel; the same for both directions.
//!
//! The two ends are sorted, by address and then port, so that both directions have one key. ICMP has no ports: the
//! requester's is the type of the request and the responder's that of the reply, both with the code. So two hosts that
//! ping each other have two flows, and messages without a reply have one direction. The key of an IPv4 packet outside
//! of tunnels fits in two words; any other has a `Wide` part.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct End {
    /// Its address.
    pub address: IpAddr,
    /// Its port; for ICMP the originator's is the type and the responder's the code; 0 if absent.
    pub port: u16,
}

/// Tunnel that carried a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tunnel {
    /// Tunnel protocol: `vxlan`, `gre`, `ip`, ...
    pub kind: TunnelKind,
    /// VNI, key or label, depending on the protocol; 0 if it has none, or a different one per direction (GTP-U).
    pub id: u32,
    /// The [`Flow::id`](crate::Flow::id) of the outer flow of the first packet. VXLAN, Geneve and GTP-U have at least
    /// one outer flow per direction, because their source port does not identify the ends.
    pub parent: u64,
}

/// Tunnel protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum TunnelKind {
    /// IP in IP without a header in between.
    Ip = 1,
    /// GRE, NVGRE, ERSPAN.
    Gre = 2,
    /// VXLAN.
    Vxlan = 3,
    /// Geneve.
    Geneve = 4,
    /// GTP-U.
    GtpU = 5,
    /// Teredo.
    Teredo = 6,
    /// Anything else.
    Other = 7,
}

impl TunnelKind {
    /// All protocols.
    pub const ALL: [TunnelKind; 7] = {
        use TunnelKind::{Geneve, Gre, GtpU, Ip, Other, Teredo, Vxlan};
        [Ip, Gre, Vxlan, Geneve, GtpU, Teredo, Other]
    };

    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            TunnelKind::Ip => "ip",
            TunnelKind::Gre => "gre",
            TunnelKind::Vxlan => "vxlan",
            TunnelKind::Geneve => "geneve",
            TunnelKind::GtpU => "gtp-u",
            TunnelKind::Teredo => "teredo",
            TunnelKind::Other => "other",
        }
    }

    fn from_number(number: u8) -> Option<TunnelKind> {
        TunnelKind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A key that fits in two words, or the part of any key that does.
///
/// `rest`, from bit 0: port of the lower end, port of the higher end, protocol (8 bits), VLAN (12 bits), form (4 bits). The
/// uppermost byte is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// The lower IPv4 address, in the upper half, and the higher one; 0 for a wide key.
    pub ends: u64,
    pub rest: u64,
}

/// Positions in `Words::rest`.
pub(crate) const PROTOCOL: u32 = 32;
pub(crate) const VLAN: u32 = 40;
pub(crate) const FORM: u32 = 52;
/// Bits of `rest` that can be part of a key.
pub(crate) const KEY_BITS: u64 = (1 << 56) - 1;
/// The bits of the VLAN.
pub(crate) const VLAN_BITS: u64 = 0xfff << VLAN;
pub(crate) const NARROW: u64 = 1 << FORM;
pub(crate) const WIDE: u64 = 2 << FORM;

/// Part of a key that does not fit in two words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wide {
    /// The lower and the higher address; IPv4 as `::ffff:a.b.c.d`, which does not occur in IPv6 packets on a wire.
    pub ends: [u128; 2],
    /// For a packet in a tunnel: the id of the outer flow, if both directions have the same one.
    pub scope: u64,
    pub tunnel_id: u32,
    pub tunnel: u8,
    /// IP version, 4 or 6.
    pub version: u8,
    /// VLAN ID of the second tag, if VLANs are part of the key.
    pub inner_vlan: u16,
}

impl Wide {
    /// Returns all of it as input of the hash.
    pub(crate) fn words(&self) -> [u64; 6] {
        let [low, high] = self.ends;
        let rest = u64::from(self.tunnel_id)
            | u64::from(self.tunnel) << 32
            | u64::from(self.version) << 40
            | u64::from(self.inner_vlan) << 48;
        [low as u64, (low >> 64) as u64, high as u64, (high >> 64) as u64, self.scope, rest]
    }

    pub(crate) fn tunnel(&self, parent: u64) -> Option<Tunnel> {
        let kind = TunnelKind::from_number(self.tunnel)?;
        Some(Tunnel { kind, id: self.tunnel_id, parent })
    }
}

impl Words {
    /// Returns the key of an IPv4 packet from its addresses and ports as they are in the headers, those of the source
    /// in the upper halves, and the end of the source: 0 the lower, 1 the higher.
    #[inline(always)]
    pub(crate) fn of_ipv4(addresses: u64, ports: u32, protocol: u8, vlan: u16) -> (Words, u8) {
        let other_way = addresses.rotate_left(32);
        let is_higher = if addresses == other_way { ports > ports.rotate_left(16) } else { addresses > other_way };
        let ports = if is_higher { ports } else { ports.rotate_left(16) };
        let rest = u64::from(ports) | Words::rest(0, 0, protocol, vlan) | NARROW;
        (Words { ends: addresses.min(other_way), rest }, u8::from(is_higher))
    }

    #[inline(always)]
    pub(crate) fn rest(low: u16, high: u16, protocol: u8, vlan: u16) -> u64 {
        u64::from(low) | u64::from(high) << 16 | u64::from(protocol) << PROTOCOL | u64::from(vlan) << VLAN & VLAN_BITS
    }

    #[inline(always)]
    pub(crate) fn is_wide(self) -> bool {
        self.rest & WIDE != 0
    }

    pub(crate) fn protocol(self) -> u8 {
        (self.rest >> PROTOCOL) as u8
    }

    pub(crate) fn vlan(self) -> u16 {
        (self.rest >> VLAN) as u16 & 0xfff
    }

    /// Returns the lower and the higher end.
    pub(crate) fn both_ends(self, wide: &Wide) -> [End; 2] {
        let addresses: [IpAddr; 2] = if self.is_wide() {
            wide.ends.map(|address| match wide.version {
                4 => Ipv4Addr::from(address as u32).into(),
                _ => Ipv6Addr::from(address).into(),
            })
        } else {
            [Ipv4Addr::from((self.ends >> 32) as u32).into(), Ipv4Addr::from(self.ends as u32).into()]
        };
        [
            End { address: addresses[0], port: self.rest as u16 },
            End { address: addresses[1], port: (self.rest >> 16) as u16 },
        ]
    }
}

/// In place of a port: such messages have no reply.
const NO_ANSWER: u16 = u16::MAX;

/// Returns the values in place of ports of the sender of an ICMP message and of its receiver: type and code from the
/// sender's view.
pub(crate) fn icmp_ports(protocol: u8, kind: u8, code: u8) -> [u16; 2] {
    let port = |kind| u16::from_be_bytes([kind, code]);
    match icmp_pair(protocol, kind) {
        Some([request, reply]) => [port(kind), port(if kind == request { reply } else { request })],
        None => [port(kind), NO_ANSWER],
    }
}

/// Returns whether type and code take the place of ports.
pub(crate) fn is_icmp(protocol: u8) -> bool {
    use linerate_headers::registry;
    protocol == registry::ICMP || protocol == registry::ICMPV6
}

/// Returns request and reply, if a type of ICMP or ICMPv6 is one of them: those that Community ID v1 pairs.
pub fn icmp_pair(protocol: u8, kind: u8) -> Option<[u8; 2]> {
    const V4: [[u8; 2]; 5] = [[8, 0], [10, 9], [13, 14], [15, 16], [17, 18]];
    const V6: [[u8; 2]; 6] = [[128, 129], [130, 131], [133, 134], [135, 136], [139, 140], [144, 145]];
    let pairs: &[[u8; 2]] = if protocol == linerate_headers::registry::ICMP { &V4 } else { &V6 };
    pairs.iter().copied().find(|pair| pair.contains(&kind))
}
