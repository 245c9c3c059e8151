//! Parses captured frames: the TCP segment and its endpoints.

use linerate_burst::{Desc, Flags, Nanos};
use linerate_headers::{Layer, Layers, Link, Protocol, Pseudo, Role, Stop};
use linerate_headers::{
    dissect, ethernet, geneve, gre, gtp_u, ipv4, ipv6, ipv6_fragment, pppoe, registry, tcp, vlan, vxlan,
};
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Maximum payload assumed where only a capture file gives the length.
const LONGEST: usize = 1 << 20;

/// Connection key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Lower endpoint first.
    ends: [(u128, u16); 2],
    version: u8,
    tunnel: Tunnel,
}

/// Tunnel that carried a packet, equal for both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Tunnel {
    /// 0: no tunnel.
    kind: u8,
    /// VNI, or GRE key.
    id: u32,
    /// Addresses of its endpoints, lower first.
    ends: [u128; 2],
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let [(low, low_port), (high, high_port)] = self.ends;
        if self.version == 4 {
            state.write_u64((low as u64) << 32 | high as u64);
        } else {
            state.write_u128(low);
            state.write_u128(high);
        }
        state.write_u64(u64::from(low_port) << 24 | u64::from(high_port) << 8 | u64::from(self.version));
        if self.tunnel.kind != 0 {
            self.tunnel.hash(state);
        }
    }
}

impl Key {
    /// Returns one of the two endpoints.
    pub(super) fn end(&self, side: usize) -> SocketAddr {
        let (address, port) = self.ends[side];
        let address = match self.version {
            4 => IpAddr::V4(Ipv4Addr::from(address as u32)),
            _ => IpAddr::V6(Ipv6Addr::from(address)),
        };
        SocketAddr::new(address, port)
    }

    /// Returns whether it is inside a tunnel.
    pub(super) fn is_inner(&self) -> bool {
        self.tunnel.kind != 0
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub key: Key,
    /// Endpoint that sent it.
    pub side: usize,
    pub sequence: u32,
    /// `None` without the ACK flag.
    pub acknowledgement: Option<u32>,
    pub flags: tcp::Flags,
    pub payload: &'a [u8],
    /// Bytes after the payload that were sent and not captured.
    pub cut: usize,
    pub time: Nanos,
}

impl Segment<'_> {
    pub(super) fn has(&self, flag: tcp::Flags) -> bool {
        self.flags.contains(flag)
    }

    /// Returns the number of stream bytes that it carried on the wire.
    pub(super) fn len(&self) -> usize {
        self.payload.len() + self.cut
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ParseOutcome<'a> {
    Segment(Segment<'a>),
    NotTcp,
    Malformed,
    Fragment,
    BadChecksum,
}

/// Parses a frame.
pub(super) fn look<'a>(
    link: Link,
    desc: &Desc,
    frame: &'a [u8],
    checksums: bool,
    layers: &mut Layers,
) -> ParseOutcome<'a> {
    dissect(link, frame, layers);
    let all = layers.as_slice();
    let Some(network) = all.iter().rposition(|layer| layer.protocol.role() == Role::Network) else {
        return if is_broken(layers.stop()) { ParseOutcome::Malformed } else { ParseOutcome::NotTcp };
    };
    let Some(ip) = Ip::parse(frame, &all[network], &all[network + 1..]) else { return ParseOutcome::Malformed };
    let Some(last) = all.last().filter(|last| last.protocol == Protocol::Tcp) else {
        return match layers.stop() {
            Stop::Fragment if ip.protocol == registry::TCP => ParseOutcome::Fragment,
            stop if is_broken(stop) => ParseOutcome::Malformed,
            _ => ParseOutcome::NotTcp,
        };
    };
    if ip.is_fragment {
        return ParseOutcome::Fragment;
    }
    let Ok(view) = tcp::View::parse(frame.get(last.offset as usize..).unwrap_or_default()) else {
        return ParseOutcome::Malformed;
    };
    let payload = layers.payload(frame);
    // A frame that was captured completely lacks nothing, whatever its headers claim.
    let is_cut = frame.len() < desc.wire as usize;
    let cut = if is_cut { missing(desc.wire as usize, frame, all, payload.len()) } else { 0 };
    let is_known = desc.flags.contains(Flags::CHECKSUM_PARTIAL) || desc.flags.contains(Flags::CHECKSUM_VALID);
    if checksums && !is_known && cut == 0 && ip.is_wrong(frame, last, payload) {
        return ParseOutcome::BadChecksum;
    }
    let (from, to) = ((ip.source, view.source_port()), (ip.destination, view.destination_port()));
    let side = usize::from(from > to);
    let ends = if side == 0 { [from, to] } else { [to, from] };
    ParseOutcome::Segment(Segment {
        key: Key { ends, version: ip.version, tunnel: tunnel(frame, &all[..network]) },
        side,
        sequence: view.sequence(),
        acknowledgement: view.flags().contains(tcp::Flags::ACK).then(|| view.acknowledgement()),
        flags: view.flags(),
        payload,
        cut,
        time: desc.time,
    })
}

/// Returns the number of payload bytes sent and not captured, limited by the frame's length and all headers.
#[cold]
fn missing(wire: usize, frame: &[u8], layers: &[Layer], payload: usize) -> usize {
    let said = layers.iter().filter_map(|layer| declared_end(frame, layer));
    let end = said.fold(wire, usize::min);
    let start = layers.last().map_or(0, |last| last.end() as usize);
    end.saturating_sub(start).min(LONGEST).saturating_sub(payload)
}

/// Returns the end of the part covered by a header, from the start of the frame, if it has a length field.
fn declared_end(frame: &[u8], header: &Layer) -> Option<usize> {
    let word = |at: usize| {
        let bytes = frame.get(header.offset as usize + at..)?.first_chunk()?;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    };
    let is_length = |length: &usize| *length <= usize::from(ethernet::MAX_LENGTH);
    // 0: too long for the field, or filled in by the NIC later.
    let is_set = |length: &usize| *length > 0;
    let (length, from) = match header.protocol {
        Protocol::Ethernet => (word(ethernet::LEN - 2).filter(is_length)?, ethernet::LEN),
        Protocol::Vlan => (word(vlan::LEN - 2).filter(is_length)?, vlan::LEN),
        Protocol::Pppoe => (word(4)?, pppoe::LEN),
        Protocol::Ipv4 => (word(2).filter(is_set)?, 0),
        Protocol::Ipv6 => (word(4).filter(is_set)?, ipv6::LEN),
        Protocol::Udp => (word(4).filter(is_set)?, 0),
        Protocol::GtpU => (word(2)?, gtp_u::LEN),
        _ => return None,
    };
    Some(header.offset as usize + from + length)
}

/// Returns whether an IP or TCP header was announced and is missing or invalid.
fn is_broken(stop: Stop) -> bool {
    let (Stop::Truncated(protocol) | Stop::Malformed(protocol, _)) = stop else { return false };
    matches!(protocol.role(), Role::Network | Role::Extension) || protocol == Protocol::Tcp
}

/// Fields of an IP header.
struct Ip {
    version: u8,
    source: u128,
    destination: u128,
    /// Protocol after all IP headers.
    protocol: u8,
    is_fragment: bool,
    /// `None` if the final destination is in a routing header.
    pseudo: Option<Pseudo>,
}

impl Ip {
    fn parse(frame: &[u8], header: &Layer, behind: &[Layer]) -> Option<Ip> {
        let offset = header.offset as usize;
        let bytes = frame.get(offset..)?;
        if header.protocol == Protocol::Ipv4 {
            let view = ipv4::View::parse(bytes).ok()?;
            return Some(Ip {
                version: 4,
                source: u32::from(view.source()).into(),
                destination: u32::from(view.destination()).into(),
                protocol: view.protocol(),
                is_fragment: view.is_fragment(),
                pseudo: Some(view.pseudo()),
            });
        }
        let view = ipv6::View::parse(bytes).ok()?;
        let extensions = || behind.iter().take_while(|layer| layer.protocol.role() == Role::Extension);
        let last = extensions().last().and_then(|layer| frame.get(layer.offset as usize));
        let routed = extensions().any(|layer| layer.protocol == Protocol::Routing);
        Some(Ip {
            version: 6,
            source: view.source().into(),
            destination: view.destination().into(),
            protocol: last.copied().unwrap_or(view.next_header()),
            is_fragment: extensions().any(|layer| is_part(frame, layer)),
            pseudo: (!routed).then(|| view.pseudo()),
        })
    }

    /// Returns whether the checksum of a completely captured segment is wrong.
    fn is_wrong(&self, frame: &[u8], header: &Layer, payload: &[u8]) -> bool {
        let (start, end) = (header.offset as usize, header.end() as usize + payload.len());
        let segment = frame.get(start..end).and_then(|bytes| tcp::View::parse(bytes).ok());
        segment.zip(self.pseudo.as_ref()).is_some_and(|(segment, pseudo)| !segment.is_checksum_right(pseudo))
    }
}

/// Returns whether a fragment header belongs to an actual fragment.
fn is_part(frame: &[u8], layer: &Layer) -> bool {
    let header = frame.get(layer.offset as usize..).filter(|_| layer.protocol == Protocol::Fragment);
    let view = header.and_then(|header| ipv6_fragment::View::parse(header).ok());
    view.is_some_and(|view| view.more_fragments() || view.fragment_offset() > 0)
}

/// Returns the innermost tunnel of a packet, by the headers before its IP header.
fn tunnel(frame: &[u8], front: &[Layer]) -> Tunnel {
    let Some(outer) = front.iter().rposition(|layer| layer.protocol.role() == Role::Network) else {
        return Tunnel::default();
    };
    let Some(ip) = Ip::parse(frame, &front[outer], &front[outer + 1..]) else { return Tunnel::default() };
    let ends = [ip.source.min(ip.destination), ip.source.max(ip.destination)];
    let layer = front[outer..].iter().rfind(|layer| layer.protocol.role() == Role::Tunnel);
    let header = layer.and_then(|layer| frame.get(layer.offset as usize..)).unwrap_or_default();
    let (kind, id) = match layer.map(|layer| layer.protocol) {
        Some(Protocol::Gre | Protocol::Erspan) => (2, gre_key(header)),
        Some(Protocol::Vxlan) => (3, vxlan::View::parse(header).map_or(0, |view| view.vni())),
        Some(Protocol::Geneve) => (4, geneve::View::parse(header).map_or(0, |view| view.vni())),
        Some(_) => (5, 0),
        None => (1, 0),
    };
    Tunnel { kind, id, ends }
}

fn gre_key(header: &[u8]) -> u32 {
    match gre::View::parse(header).map(|view| view.header()) {
        Ok(gre::Header::Routing(routing)) => routing.key.unwrap_or(0),
        _ => 0,
    }
}
