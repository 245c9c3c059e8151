//! Which flow a frame belongs to: a symmetric hash, the same for both directions.
//!
//! An endpoint is an address and a port. The two are sorted, then hashed together with the IP protocol: a hash that
//! is symmetric by adding or xoring them would put flows whose addresses count up in step into one shard. What is
//! in front of the IP packet (tags, labels, PPPoE) and the IPv6 flow label play no part.
//!
//! | frame | hashed |
//! |---|---|
//! | TCP, UDP, UDP-Lite, SCTP | addresses, ports, protocol |
//! | fragments, the first one too | addresses, protocol (44 in IPv6) |
//! | other IP packets (ICMP, ESP, GRE, ...), ports cut off | addresses, protocol |
//! | no IP packet, or its header cut off, on Ethernet | MAC addresses, EtherType |
//! | anything else | nothing: the hash is 0 |
//!
//! So all fragments of a packet have one hash, which is not that of the packets of their flow that are whole: ports are
//! in the first fragment alone. The fragments of a flow fall together with one another.
//!
//! The hash is no secret: whoever chooses addresses can choose a shard. It is the same on every machine; it may
//! change with the version of this crate.

use crate::{Layer, Layers, Link, MacAddr, Protocol, Role, dissect, ethernet, ipv4, ipv6, ipv6_fragment, registry};
use crate::{tcp, udp, vlan};

/// Where the headers of an IP packet lie in a frame, and which flow it belongs to: as descriptors hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Offset of the IP header; 255 where there is none, or it is beyond 254.
    pub l3: u8,
    /// Offset of the transport header, likewise; only where the header is whole.
    pub l4: u8,
    /// Symmetric flow hash; 0 where the frame belongs to no flow, and never 0 where it does.
    pub hash: u32,
}

/// Of the outermost IP packet. Spelled out for what most frames are, which takes a few nanoseconds.
///
/// ```
/// use linerate_wire::flow::{Located, locate};
/// use linerate_wire::{Link, MacAddr, build::Frame, ethernet, ipv4, udp};
///
/// let macs = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
/// let link = ethernet::Header { source: macs.0, destination: macs.1, ether_type: 0 };
/// let (client, server) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
/// let there = ipv4::Header { source: client, destination: server, ..ipv4::Header::new(0) };
/// let back = ipv4::Header { source: server, destination: client, ..there };
/// let query = Frame::new(&[&link, &there, &udp::Header { source_port: 4000, destination_port: 53 }], b"?").to_vec()?;
/// let answer = Frame::new(&[&link, &back, &udp::Header { source_port: 53, destination_port: 4000 }], b"!").to_vec()?;
/// let found = locate(Link::Ethernet, &query);
/// assert_eq!((found.l3, found.l4), (14, 34));
/// assert_eq!(found, locate(Link::Ethernet, &answer));
/// # Ok::<(), linerate_wire::build::Unbuilt>(())
/// ```
#[inline(always)]
pub fn locate(link: Link, frame: &[u8]) -> Located {
    match usual(link, frame) {
        Some(located) => located,
        None => unusual(link, frame),
    }
}

/// Of the innermost IP packet: of a frame without tunnels the same as [`locate`].
pub fn locate_inner(link: Link, frame: &[u8]) -> Located {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    find(frame, &layers, layers.as_slice().iter().rposition(is_network))
}

/// Which of `shards` equal parts a hash falls into, from 0: by its upper bits, without a division.
#[inline(always)]
pub fn shard(hash: u32, shards: u32) -> u32 {
    ((u64::from(hash) * u64::from(shards)) >> 32) as u32
}

/// Offset of the transport header behind Ethernet and IPv4 without options.
const BEHIND_IPV4: usize = ethernet::LEN + ipv4::LEN;
/// Offset of the transport header behind Ethernet and IPv6.
const BEHIND_IPV6: usize = ethernet::LEN + ipv6::LEN;
/// Upper bits beside the number that says what follows, so that equal numbers of different families differ.
const IPV4: u64 = 4 << 16;
const IPV6: u64 = 6 << 16;
const LINK: u64 = 1 << 16;

/// Digits of pi and of the golden ratio: constants without a pattern. The first is above any IPv4 endpoint or MAC
/// address, the third in no prefix of IPv6 that is in use, so that no factor is 0.
const KEYS: [u64; 5] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89, 0x9e37_79b9_7f4a_7c15];

/// TCP or UDP in one packet, behind Ethernet and IP without options. `None` for anything else, and for what may be
/// malformed.
#[inline(always)]
fn usual(link: Link, frame: &[u8]) -> Option<Located> {
    let head: &[u8; BEHIND_IPV6] = frame.first_chunk()?;
    match [head[12], head[13], head[14]] {
        [0x08, 0x00, 0x45] if link == Link::Ethernet => usual_ipv4(head, frame.len()),
        [0x86, 0xdd, 0x60..=0x6f] if link == Link::Ethernet => usual_ipv6(frame.first_chunk()?, frame),
        _ => None,
    }
}

#[inline(always)]
fn usual_ipv4(head: &[u8; BEHIND_IPV6], length: usize) -> Option<Located> {
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let (number, room) = (head[23], usize::from(half(16)).min(length - ethernet::LEN));
    let is_fragment = half(20) & 0x3fff != 0;
    if is_fragment || !is_whole(number, head[46], half(38), room, ipv4::LEN) {
        return None;
    }
    let ports = word(BEHIND_IPV4);
    let endpoints = [word(26) << 16 | ports >> 16, word(30) << 16 | ports & 0xffff];
    Some(Located { l3: ethernet::LEN as u8, l4: BEHIND_IPV4 as u8, hash: hash(endpoints, IPV4 | u64::from(number)) })
}

#[inline(always)]
fn usual_ipv6(head: &[u8; BEHIND_IPV6 + udp::LEN], frame: &[u8]) -> Option<Located> {
    let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let double = |at: usize| head[at..at + 8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (number, room) = (head[20], usize::from(half(18)).min(frame.len() - BEHIND_IPV6));
    if !is_whole(number, *frame.get(66)?, half(58), room, 0) {
        return None;
    }
    let endpoints = [
        ipv6_endpoint(double(22), double(30), half(BEHIND_IPV6)),
        ipv6_endpoint(double(38), double(46), half(BEHIND_IPV6 + 2)),
    ];
    Some(Located { l3: ethernet::LEN as u8, l4: BEHIND_IPV6 as u8, hash: hash(endpoints, IPV6 | u64::from(number)) })
}

/// Whether a TCP or UDP header is whole and sound within an IP packet of `room` bytes, `before` of which lie in front
/// of it. `offset` is the byte that holds the data offset of TCP, `length` the length of UDP.
#[inline(always)]
fn is_whole(number: u8, offset: u8, length: u16, room: usize, before: usize) -> bool {
    let header = match number {
        registry::TCP => usize::from(offset >> 4) * 4,
        registry::UDP => usize::from(length).min(udp::LEN),
        _ => return false,
    };
    let shortest = if number == registry::TCP { tcp::LEN } else { udp::LEN };
    header >= shortest && before + header <= room
}

/// Any frame, header by header.
#[cold]
#[inline(never)]
fn unusual(link: Link, frame: &[u8]) -> Located {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    find(frame, &layers, layers.as_slice().iter().position(is_network))
}

fn is_network(layer: &Layer) -> bool {
    layer.protocol.role() == Role::Network
}

/// Of the packet whose IP header is the layer `network`, or of the frame as such.
fn find(frame: &[u8], layers: &Layers, network: Option<usize>) -> Located {
    let (header, behind) = match network.and_then(|index| layers.as_slice().get(index..)?.split_first()) {
        Some((header, behind)) => (Some(header), behind),
        None => (None, &[][..]),
    };
    let extensions = behind.iter().take_while(|layer| layer.protocol.role() == Role::Extension).count();
    let (extensions, behind) = behind.split_at(extensions);
    let transport = behind.first().filter(|layer| layer.protocol.role() == Role::Transport);
    let hash = match header {
        Some(header) => hash_packet(frame, layers, header, extensions),
        None => hash_link(frame, layers),
    };
    let short = |layer: Option<&Layer>| layer.map_or(u8::MAX, |layer| layer.offset.min(u8::MAX.into()) as u8);
    Located { l3: short(header), l4: short(transport), hash: hash.unwrap_or(0) }
}

/// What is hashed of an IP packet.
fn hash_packet(frame: &[u8], layers: &Layers, header: &Layer, extensions: &[Layer]) -> Option<u32> {
    let packet = frame.get(header.offset as usize..)?;
    let end = extensions.last().unwrap_or(header).end();
    // Each extension header begins with the number of what follows.
    let last = extensions.last().and_then(|layer| frame.get(layer.offset as usize)).copied();
    let ports = |number| ports(frame, layers, end, number).unwrap_or([0; 2]);
    match header.protocol {
        Protocol::Ipv4 => {
            let view = ipv4::View::parse(packet).ok()?;
            let number = last.unwrap_or(view.protocol());
            let [source, destination] = if view.is_fragment() { [0; 2] } else { ports(number) };
            let number = if view.is_fragment() { view.protocol() } else { number };
            let endpoint = |address, port| u64::from(u32::from(address)) << 16 | u64::from(port);
            let endpoints = [endpoint(view.source(), source), endpoint(view.destination(), destination)];
            Some(hash(endpoints, IPV4 | u64::from(number)))
        }
        _ => {
            let view = ipv6::View::parse(packet).ok()?;
            let is_fragment = extensions.iter().any(|layer| is_fragment(frame, layer));
            // Fragments of a packet may name different headers (RFC 8200 section 4.5).
            let number = if is_fragment { registry::FRAGMENT } else { last.unwrap_or(view.next_header()) };
            let [source, destination] = ports(number);
            let endpoint = |address, port| {
                let bits = u128::from(address);
                ipv6_endpoint((bits >> 64) as u64, bits as u64, port)
            };
            let endpoints = [endpoint(view.source(), source), endpoint(view.destination(), destination)];
            Some(hash(endpoints, IPV6 | u64::from(number)))
        }
    }
}

/// Whether this is a fragment header of a packet that has other fragments (RFC 6946 allows one that has none).
fn is_fragment(frame: &[u8], layer: &Layer) -> bool {
    let header = frame.get(layer.offset as usize..).unwrap_or_default();
    layer.protocol == Protocol::Fragment
        && ipv6_fragment::View::parse(header).is_ok_and(|view| view.more_fragments() || view.fragment_offset() != 0)
}

/// Source and destination port of a transport that begins at `start`, as far as it is there.
fn ports(frame: &[u8], layers: &Layers, start: u32, number: u8) -> Option<[u16; 2]> {
    if !matches!(number, registry::TCP | registry::UDP | registry::UDP_LITE | registry::SCTP) {
        return None;
    }
    let is_last = layers.as_slice().last().is_some_and(|layer| layer.end() == start);
    // A header that was found is longer than its ports.
    let message = if is_last { layers.payload(frame) } else { frame.get(start as usize..)? };
    let [a, b, c, d] = *message.first_chunk()?;
    Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
}

/// What is hashed of an Ethernet frame without an IP packet.
fn hash_link(frame: &[u8], layers: &Layers) -> Option<u32> {
    let (_, tags) = layers.as_slice().split_first().filter(|(link, _)| link.protocol == Protocol::Ethernet)?;
    let view = ethernet::View::parse(frame).ok()?;
    let last = match tags.iter().take_while(|layer| layer.protocol == Protocol::Vlan).last() {
        Some(tag) => vlan::View::parse(frame.get(tag.offset as usize..)?).ok()?.ether_type(),
        None => view.ether_type(),
    };
    // A length says nothing of what follows.
    let ether_type = if last <= ethernet::MAX_LENGTH { 0 } else { last };
    let endpoint = |MacAddr(octets): MacAddr| octets.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some(hash([endpoint(view.source()), endpoint(view.destination())], LINK | u64::from(ether_type)))
}

/// 64 bits of an IPv6 address and a port.
#[inline(always)]
fn ipv6_endpoint(prefix: u64, interface: u64, port: u16) -> u64 {
    fold(prefix ^ KEYS[2], interface ^ KEYS[3]) ^ u64::from(port)
}

/// The hash of two endpoints in either order. Not 0.
#[inline(always)]
fn hash([one, other]: [u64; 2], protocol: u64) -> u32 {
    let pair = fold(one.min(other) ^ KEYS[0], one.max(other) ^ KEYS[1]);
    let hash = fold(pair ^ protocol, KEYS[4]);
    ((hash >> 32) as u32).max(1)
}

/// Both halves of the product, so that every bit of each factor reaches the upper bits of the result.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::tests::likely_frame;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8192, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_spelled_out_way_agrees_with_the_general_one(frame in likely_frame(), fragment in 0..40u8, padding in 0..70usize) {
            let mut frame = frame;
            frame.resize(frame.len() + padding, 7);
            if let Some(place) = frame.get_mut(20) {
                *place = [0, 0x40, 0x20, 0x80, 1].get(usize::from(fragment)).copied().unwrap_or(*place);
            }
            if let Some(usual) = usual(Link::Ethernet, &frame) {
                prop_assert_eq!(usual, unusual(Link::Ethernet, &frame));
            }
            for link in Link::ALL {
                let mut layers = Layers::new();
                dissect(link, &frame, &mut layers);
                let located = locate(link, &frame);
                prop_assert_eq!((located.l3, located.l4), (layers.l3(), layers.l4()));
            }
        }
    }

    /// That most frames go the short way, and that the property above sees it.
    #[test]
    fn plain_frames_go_the_short_way() {
        let mut frame = [0; 90];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        (frame[17], frame[20], frame[23], frame[46]) = (40, 0x40, registry::TCP, 0x50);
        assert!(usual(Link::Ethernet, &frame[..54]).is_some());
        assert!(usual(Link::RawIp, &frame).is_none() && usual(Link::Ethernet, &frame[..53]).is_none());
        (frame[17], frame[23], frame[39]) = (28, registry::UDP, 8);
        assert!(usual(Link::Ethernet, &frame[..60]).is_some());
        (frame[12], frame[13], frame[14], frame[19], frame[20]) = (0x86, 0xdd, 0x60, 20, registry::TCP);
        frame[66] = 0x50;
        assert!(usual(Link::Ethernet, &frame[..74]).is_some() && usual(Link::Ethernet, &frame[..73]).is_none());
        (frame[20], frame[59]) = (registry::UDP, 20);
        assert!(usual(Link::Ethernet, &frame[..74]).is_some());
    }

    #[test]
    fn no_factor_is_0_whatever_the_endpoints_are() {
        assert!(KEYS[0] >> 48 != 0 && KEYS[1] >> 48 != 0, "an IPv4 endpoint or a MAC address could be the key");
        assert!(KEYS[2] >> 61 != 1, "a global address could begin with the key");
        assert_ne!(hash([0, 0], 0), 0);
    }
}
