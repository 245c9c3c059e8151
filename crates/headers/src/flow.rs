//! Symmetric flow hash of a frame, the same for both directions.
//!
//! An endpoint is an address and a port. The two are sorted, then hashed together with the IP protocol: a hash that is
//! symmetric by adding or xoring them would put flows with consecutive addresses into one shard. Headers before the IP
//! packet (tags, labels, PPPoE) and the IPv6 flow label are not included.
//!
//! | frame | hashed |
//! |---|---|
//! | TCP, UDP, UDP-Lite, SCTP | addresses, ports, protocol |
//! | fragments, the first one too | addresses, protocol (44 in IPv6) |
//! | other IP packets (ICMP, ESP, GRE, ...), ports truncated | addresses, protocol |
//! | no IP packet, or its header truncated, on Ethernet | MAC addresses, EtherType |
//! | anything else | nothing: the hash is 0 |
//!
//! So all fragments of a packet have one hash, which differs from that of the unfragmented packets of their flow: only
//! the first fragment has ports. All fragments of a flow have the same hash.
//!
//! The hash is not keyed: a sender who chooses addresses can choose a shard. It is the same on every machine; it may
//! change with the version of this crate.

use crate::vlan;
use crate::{Layer, Layers, Link, MacAddr, Protocol, Role, dissect, ethernet, ipv4, ipv6, ipv6_fragment, registry};

/// Positions of the headers of an IP packet in a frame, and its flow hash, as in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderOffsets {
    /// Offset of the IP header; 255 if absent, or beyond 254.
    pub l3: u8,
    /// Offset of the transport header, likewise. Its ports were captured, if it has any; the rest may be truncated or
    /// malformed.
    pub l4: u8,
    /// Symmetric flow hash; 0 if the frame belongs to no flow, and never 0 otherwise.
    pub hash: u32,
}

/// Returns the offsets and hash of the outermost IP packet. A fast path for most frames takes a few nanoseconds.
///
/// ```
/// use linerate_headers::flow::{HeaderOffsets, locate};
/// use linerate_headers::{Link, MacAddr, build::Frame, ethernet, ipv4, udp};
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
/// # Ok::<(), linerate_headers::build::BuildError>(())
/// ```
#[inline(always)]
pub fn locate(link: Link, frame: &[u8]) -> HeaderOffsets {
    match usual(link, frame) {
        Some(located) => located,
        None => unusual(link, frame),
    }
}

/// Returns the offsets of [`locate`] with the hash of the innermost IP packet, so that both directions of a flow in a
/// tunnel have one hash, independent of the addresses and ports of the tunnel.
///
/// A fragment has the hash of its own addresses: only the first fragment has the inner headers. Without a tunnel the
/// result is that of [`locate`].
#[inline(always)]
pub fn locate_inner(link: Link, frame: &[u8]) -> HeaderOffsets {
    match usual(link, frame) {
        Some(located) if !may_be_tunnel(frame, located.l4) => located,
        _ => unusual_inner(link, frame),
    }
}

/// Returns the index of the equal part, from 0 to `shards`, that contains a hash: by its upper bits, without a
/// division.
#[inline(always)]
pub fn shard(hash: u32, shards: u32) -> u32 {
    ((u64::from(hash) * u64::from(shards)) >> 32) as u32
}

/// Offset of the transport header after Ethernet and IPv4 without options.
const BEHIND_IPV4: usize = ethernet::LEN + ipv4::LEN;
/// Offset of the transport header after Ethernet and IPv6.
const BEHIND_IPV6: usize = ethernet::LEN + ipv6::LEN;
/// Source and destination port, the first bytes of a transport that has ports.
const PORTS: usize = 4;
const TCP: u32 = registry::TCP as u32;
const UDP: u32 = registry::UDP as u32;
/// Upper bits combined with the number of the next protocol, so that equal numbers of different families differ.
const IPV4: u64 = 4 << 16;
const IPV6: u64 = 6 << 16;
const LINK: u64 = 1 << 16;

/// Digits of pi and of the golden ratio: constants without a pattern. The first is greater than any IPv4 endpoint or
/// MAC address, the third in no IPv6 prefix that is in use, so that no factor is 0.
const KEYS: [u64; 5] =
    [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7345, 0xa409_3822_299f_31d1, 0x082e_fa98_ec4e_6c89, 0x9e37_79b9_7f4a_7c15];

/// Handles TCP or UDP in one packet, over Ethernet and IP without options: `None` for anything else.
#[inline(always)]
fn usual(link: Link, frame: &[u8]) -> Option<HeaderOffsets> {
    let head: &[u8; BEHIND_IPV6] = frame.first_chunk()?;
    let ether_type_and_version = u32::from_le_bytes(part(head, 12));
    if link != Link::Ethernet {
        None
    } else if ether_type_and_version & 0x00ff_ffff == 0x0045_0008 {
        usual_ipv4(head)
    } else if ether_type_and_version & 0x00f0_ffff == 0x0060_dd86 {
        usual_ipv6(frame.first_chunk()?)
    } else {
        None
    }
}

#[inline(always)]
fn usual_ipv4(head: &[u8; BEHIND_IPV6]) -> Option<HeaderOffsets> {
    // Fragmentation and the protocol; without time to live and the don't fragment flag.
    let number = u32::from_le_bytes(part(head, 20)) & 0xff00_ff3f;
    let is_short = usize::from(u16::from_be_bytes(part(head, 16))) < ipv4::LEN + PORTS;
    if is_short || (number != TCP << 24 && number != UDP << 24) {
        return None;
    }
    let endpoints = [
        ipv4_endpoint(part(head, 26), part(head, BEHIND_IPV4)),
        ipv4_endpoint(part(head, 30), part(head, BEHIND_IPV4 + 2)),
    ];
    let hash = hash(endpoints, IPV4 | u64::from(number >> 24));
    Some(HeaderOffsets { l3: ethernet::LEN as u8, l4: BEHIND_IPV4 as u8, hash })
}

#[inline(always)]
fn usual_ipv6(head: &[u8; BEHIND_IPV6 + PORTS]) -> Option<HeaderOffsets> {
    let number = u32::from(head[20]);
    let is_short = usize::from(u16::from_be_bytes(part(head, 18))) < PORTS;
    if is_short || (number != TCP && number != UDP) {
        return None;
    }
    let endpoints = [
        ipv6_endpoint(part(head, 22), part(head, BEHIND_IPV6)),
        ipv6_endpoint(part(head, 38), part(head, BEHIND_IPV6 + 2)),
    ];
    let hash = hash(endpoints, IPV6 | u64::from(number));
    Some(HeaderOffsets { l3: ethernet::LEN as u8, l4: BEHIND_IPV6 as u8, hash })
}

/// Returns bytes in the middle of others: where offsets are constants, one load.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

/// Returns whether the ports at this offset are those of a tunnel. False for TCP, which has no such tunnels.
#[inline(always)]
fn may_be_tunnel(frame: &[u8], l4: u8) -> bool {
    let ports: Option<&[u8; PORTS]> = frame.get(usize::from(l4)..).and_then(|transport| transport.first_chunk());
    ports
        .is_some_and(|[a, b, c, d]| registry::may_be_tunnel(u16::from_be_bytes([*c, *d]), u16::from_be_bytes([*a, *b])))
}

/// Handles any frame, header by header.
#[cold]
#[inline(never)]
fn unusual(link: Link, frame: &[u8]) -> HeaderOffsets {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    find(frame, &layers, layers.as_slice().iter().position(is_network))
}

/// Handles any frame with the hash of the innermost packet.
#[cold]
#[inline(never)]
fn unusual_inner(link: Link, frame: &[u8]) -> HeaderOffsets {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let headers = layers.as_slice();
    let fragment = headers.iter().position(|layer| is_fragment(frame, layer));
    let whole = &headers[..fragment.map_or(headers.len(), |index| index + 1)];
    let outer = find(frame, &layers, headers.iter().position(is_network));
    HeaderOffsets { hash: find(frame, &layers, whole.iter().rposition(is_network)).hash, ..outer }
}

fn is_network(layer: &Layer) -> bool {
    layer.protocol.role() == Role::Network
}

/// Handles the packet whose IP header is the layer `network`, or a frame without one.
fn find(frame: &[u8], layers: &Layers, network: Option<usize>) -> HeaderOffsets {
    let packet = network.and_then(|index| find_packet(frame, layers, layers.as_slice().get(index..)?));
    let link = || HeaderOffsets { l3: u8::MAX, l4: u8::MAX, hash: hash_link(frame, layers).unwrap_or(0) };
    packet.unwrap_or_else(link)
}

/// Handles the packet with these headers, of which the first is IP.
fn find_packet(frame: &[u8], layers: &Layers, headers: &[Layer]) -> Option<HeaderOffsets> {
    let (network, behind) = headers.split_first()?;
    let extensions = behind.iter().take_while(|layer| layer.protocol.role() == Role::Extension).count();
    let (extensions, behind) = behind.split_at(extensions);
    let start = extensions.last().unwrap_or(network).end();
    let is_transport = behind.first().is_some_and(|layer| layer.protocol.role() == Role::Transport);
    // Without a complete next header, the rest of the packet may have the ports.
    let message = if behind.is_empty() { layers.payload(frame) } else { frame.get(start as usize..)? };

    let packet = frame.get(network.offset as usize..)?;
    // Each extension header begins with the number of the next one.
    let last = extensions.last().and_then(|layer| frame.get(layer.offset as usize)).copied();
    let (hash, has_ports) = if network.protocol == Protocol::Ipv4 {
        let view = ipv4::View::parse(packet).ok()?;
        let number = last.filter(|_| !view.is_fragment()).unwrap_or(view.protocol());
        let ports = ports(number, message).filter(|_| !view.is_fragment());
        let [source, destination] = ports.unwrap_or_default();
        let ends = [(view.source(), source), (view.destination(), destination)];
        let endpoints = ends.map(|(address, port)| ipv4_endpoint(address.octets(), port));
        (hash(endpoints, IPV4 | u64::from(number)), ports.is_some())
    } else {
        let view = ipv6::View::parse(packet).ok()?;
        let is_fragment = extensions.iter().any(|layer| is_fragment(frame, layer));
        // Fragments of one packet may name different headers (RFC 8200 section 4.5).
        let number = if is_fragment { registry::FRAGMENT } else { last.unwrap_or(view.next_header()) };
        let ports = ports(number, message);
        let [source, destination] = ports.unwrap_or_default();
        let ends = [(view.source(), source), (view.destination(), destination)];
        let endpoints = ends.map(|(address, port)| ipv6_endpoint(address.octets(), port));
        (hash(endpoints, IPV6 | u64::from(number)), ports.is_some())
    };
    let l4 = if is_transport || has_ports { short(start) } else { u8::MAX };
    Some(HeaderOffsets { l3: short(network.offset), l4, hash })
}

/// Returns source and destination port, if this protocol has ports and they were captured.
fn ports(number: u8, message: &[u8]) -> Option<[[u8; 2]; 2]> {
    let [a, b, c, d] = *message.first_chunk::<PORTS>()?;
    let has_ports = matches!(number, registry::TCP | registry::UDP | registry::UDP_LITE | registry::SCTP);
    has_ports.then_some([[a, b], [c, d]])
}

/// Returns whether this header shows that the packet has other fragments: IPv4, or a fragment header (by RFC 6946 a
/// packet with one may have none).
fn is_fragment(frame: &[u8], layer: &Layer) -> bool {
    let header = frame.get(layer.offset as usize..).unwrap_or_default();
    match layer.protocol {
        Protocol::Ipv4 => ipv4::View::parse(header).is_ok_and(|view| view.is_fragment()),
        Protocol::Fragment => {
            ipv6_fragment::View::parse(header).is_ok_and(|view| view.more_fragments() || view.fragment_offset() != 0)
        }
        _ => false,
    }
}

/// Returns an offset as in descriptors.
fn short(offset: u32) -> u8 {
    offset.min(u8::MAX.into()) as u8
}

/// Returns the hash of an Ethernet frame without an IP packet.
fn hash_link(frame: &[u8], layers: &Layers) -> Option<u32> {
    let (_, tags) = layers.as_slice().split_first().filter(|(link, _)| link.protocol == Protocol::Ethernet)?;
    let view = ethernet::View::parse(frame).ok()?;
    let last = match tags.iter().take_while(|layer| layer.protocol == Protocol::Vlan).last() {
        Some(tag) => vlan::View::parse(frame.get(tag.offset as usize..)?).ok()?.ether_type(),
        None => view.ether_type(),
    };
    // A length does not identify a protocol.
    let ether_type = if last <= ethernet::MAX_LENGTH { 0 } else { last };
    let endpoint = |MacAddr([a, b, c, d, e, f]): MacAddr| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    Some(hash([endpoint(view.source()), endpoint(view.destination())], LINK | u64::from(ether_type)))
}

/// Returns an address with its port; below 2^48. Bytes are in the order in which most processors load them.
#[inline(always)]
fn ipv4_endpoint(address: [u8; 4], port: [u8; 2]) -> u64 {
    u64::from(u32::from_le_bytes(address)) | u64::from(u16::from_le_bytes(port)) << 32
}

/// Returns 64 bits of an address with its port.
#[inline(always)]
fn ipv6_endpoint(address: [u8; 16], port: [u8; 2]) -> u64 {
    let address = u128::from_le_bytes(address);
    let (prefix, interface) = (address as u64, (address >> 64) as u64);
    fold(prefix ^ KEYS[2], interface ^ KEYS[3]) ^ u64::from(u16::from_le_bytes(port))
}

/// Returns the hash of two endpoints in either order. Not 0.
#[inline(always)]
fn hash([one, other]: [u64; 2], protocol: u64) -> u32 {
    let pair = fold(one.min(other) ^ KEYS[0], one.max(other) ^ KEYS[1]);
    let hash = ((pair ^ protocol).wrapping_mul(KEYS[4]) >> 32) as u32;
    hash + u32::from(hash == 0)
}

/// Combines both halves of the product, so that every bit of each factor affects the upper bits of the result.
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
        fn fast_path_agrees_with_the_general_path(
            frame in likely_frame(),
            flags in prop::sample::select(vec![0, 0, 0x40, 0x20, 0x80, 1]),
            padding in 0..70usize,
        ) {
            let mut frame = frame;
            frame.resize(frame.len() + padding, 7);
            if frame.len() > 23 && frame[23] != 0 {
                frame[20] = flags;
            }
            if let Some(usual) = usual(Link::Ethernet, &frame) {
                prop_assert_eq!(usual, unusual(Link::Ethernet, &frame));
            }
            for link in Link::ALL {
                let mut layers = Layers::new();
                dissect(link, &frame, &mut layers);
                let located = locate(link, &frame);
                prop_assert_eq!(located.l3, layers.l3());
                prop_assert!(located.l4 == layers.l4() || layers.l4() == u8::MAX);
            }
        }
    }

    /// Well-formed frames take the fast path, from the minimum length on.
    #[test]
    fn plain_frames_take_the_fast_path() {
        for number in [registry::TCP, registry::UDP] {
            let mut frame = [0; 60];
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            (frame[17], frame[20], frame[23]) = (24, 0x40, number);
            assert!(usual(Link::Ethernet, &frame[..54]).is_some() && usual(Link::Ethernet, &frame[..53]).is_none());
            assert!(usual(Link::RawIp, &frame).is_none());
            for (at, byte) in [(14, 0x46), (17, 23), (20, 0x20), (21, 1), (23, registry::ICMP)] {
                let mut other = frame;
                other[at] = byte;
                assert_eq!(usual(Link::Ethernet, &other), None, "{byte} at {at}");
            }
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x6f]);
            (frame[19], frame[20]) = (4, number);
            assert!(usual(Link::Ethernet, &frame[..58]).is_some() && usual(Link::Ethernet, &frame[..57]).is_none());
            for (at, byte) in [(14, 0x4f), (19, 3), (20, registry::FRAGMENT)] {
                let mut other = frame;
                other[at] = byte;
                assert_eq!(usual(Link::Ethernet, &other), None, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn no_factor_is_0_for_any_endpoints() {
        assert!(KEYS[0] >> 48 != 0 && KEYS[1] >> 48 != 0, "an IPv4 endpoint or a MAC address could be the key");
        assert!(KEYS[2].to_le_bytes()[0] >> 5 != 1, "a global address could begin with the key");
        assert_ne!(hash([0, 0], 0), 0);
    }
}
