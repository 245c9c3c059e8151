//! The walk through a frame, from the outermost header inwards.

use crate::registry::{self, Next, Number, Protocol, Role};
use crate::{Flaw, Malformed, ethernet, ipv4, ipv6, tcp, udp, vlan};
use std::fmt;

/// The most layers one frame is dissected into: enough for two tags, a tunnel and what is in it.
pub const MAX_LAYERS: usize = 16;

/// What the first byte of a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header, as its version says.
    RawIp,
}

impl Link {
    /// From a number of the tcpdump.org link-layer header type registry (`LINKTYPE_*`).
    pub fn from_linktype(number: u16) -> Option<Link> {
        match number {
            1 => Some(Link::Ethernet),
            101 | 228 | 229 => Some(Link::RawIp),
            _ => None,
        }
    }
}

/// One header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Where its first byte lies, from the start of the frame.
    pub offset: u32,
    /// Bytes of the header, options included.
    pub length: u16,
    /// What it is.
    pub protocol: Protocol,
}

impl Layer {
    const NONE: Layer = Layer { offset: 0, length: 0, protocol: Protocol::Ethernet };

    #[inline(always)]
    fn new(offset: usize, length: usize, protocol: Protocol) -> Self {
        Layer { offset: offset as u32, length: length as u16, protocol }
    }

    /// Offset of the first byte behind the header.
    #[inline]
    pub fn end(&self) -> u32 {
        self.offset + u32::from(self.length)
    }
}

/// Why a dissection stopped. The headers before that are whole and in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Everything was understood, up to the payload (which may be empty).
    End,
    /// What follows is of no protocol that is known.
    Unknown(Number),
    /// The frame ends inside this header: it was cut when captured, or sent too short.
    Truncated(Protocol),
    /// This header contradicts itself, or does not fit into the length that the headers before it give.
    Malformed(Protocol, Flaw),
    /// What follows is a later fragment of a payload that began in another packet.
    Fragment,
    /// There are more than [`MAX_LAYERS`] headers.
    TooDeep,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stop::End => f.write_str("understood to the payload"),
            Stop::Unknown(Number::EtherType(number)) => write!(f, "ethertype {number:#06x} unknown, stopped here"),
            Stop::Unknown(Number::IpProtocol(number)) => write!(f, "ip protocol {number} unknown, stopped here"),
            Stop::Unknown(Number::IpVersion(number)) => write!(f, "ip version {number} unknown, stopped here"),
            Stop::Unknown(Number::Sap(number)) => write!(f, "llc access point {number:#04x} unknown, stopped here"),
            Stop::Truncated(protocol) => write!(f, "truncated inside the {} header", protocol.name()),
            Stop::Malformed(protocol, flaw) => write!(f, "malformed, {}", Malformed { protocol, flaw }),
            Stop::Fragment => f.write_str("not the first fragment, stopped here"),
            Stop::TooDeep => write!(f, "more than {MAX_LAYERS} headers, stopped here"),
        }
    }
}

/// The headers of one frame, outermost first, and why there are no more. Made once, filled for frame
/// after frame.
#[derive(Clone, Debug)]
pub struct Layers {
    layers: [Layer; MAX_LAYERS],
    count: usize,
    payload_end: u32,
    l3: u8,
    l4: u8,
    stop: Stop,
}

impl Layers {
    /// Of no frame yet.
    pub const fn new() -> Self {
        Layers {
            layers: [Layer::NONE; MAX_LAYERS],
            count: 0,
            payload_end: 0,
            l3: u8::MAX,
            l4: u8::MAX,
            stop: Stop::End,
        }
    }

    /// The headers, outermost first: back to back, from offset 0.
    #[inline]
    pub fn as_slice(&self) -> &[Layer] {
        self.layers.get(..self.count).unwrap_or(&self.layers)
    }

    /// Why there are no more.
    #[inline]
    pub fn stop(&self) -> Stop {
        self.stop
    }

    /// The outermost header of `protocol`.
    #[inline]
    pub fn find(&self, protocol: Protocol) -> Option<&Layer> {
        self.as_slice().iter().find(|layer| layer.protocol == protocol)
    }

    /// The outermost IP header.
    #[inline]
    pub fn network(&self) -> Option<&Layer> {
        self.as_slice().iter().find(|layer| layer.protocol.role() == Role::Network)
    }

    /// The transport header of the outermost IP packet: nothing but extension headers between the two.
    #[inline]
    pub fn transport(&self) -> Option<&Layer> {
        let mut inner = self.as_slice().iter().skip_while(|layer| layer.protocol.role() != Role::Network).skip(1);
        let first = inner.find(|layer| layer.protocol.role() != Role::Extension)?;
        (first.protocol.role() == Role::Transport).then_some(first)
    }

    /// Offset of [`Layers::network`] as descriptors hold it: 255 where there is none, or it is beyond 254.
    #[inline]
    pub fn l3(&self) -> u8 {
        self.l3
    }

    /// Offset of [`Layers::transport`] as descriptors hold it: 255 where there is none, or it is beyond 254.
    #[inline]
    pub fn l4(&self) -> u8 {
        self.l4
    }

    /// What is behind the innermost header: the part of `frame` (the frame that was dissected) up to
    /// where the innermost length field says, or the frame ends.
    #[inline]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let start = self.as_slice().last().map_or(0, Layer::end);
        frame.get(start as usize..self.payload_end as usize).unwrap_or_default()
    }
}

impl Default for Layers {
    fn default() -> Self {
        Layers::new()
    }
}

#[inline]
fn short_offset(layer: Option<&Layer>) -> u8 {
    layer.and_then(|layer| u8::try_from(layer.offset).ok()).unwrap_or(u8::MAX)
}

/// Finds the headers of a frame, of which the first 4 GiB count, and puts them into `layers` in place
/// of what was there.
///
/// ```
/// use linerate_wire::{Layers, Link, Number, Protocol, Stop, dissect};
///
/// let mut layers = Layers::new();
/// dissect(Link::Ethernet, &[0xff; 60], &mut layers);
/// assert_eq!(layers.as_slice()[0].protocol, Protocol::Ethernet);
/// assert_eq!(layers.stop(), Stop::Unknown(Number::EtherType(0xffff)));
/// dissect(Link::RawIp, &[0x45; 10], &mut layers);
/// assert_eq!(layers.stop(), Stop::Truncated(Protocol::Ipv4));
/// ```
#[inline]
pub fn dissect(link: Link, frame: &[u8], layers: &mut Layers) {
    let frame = frame.get(..u32::MAX as usize).unwrap_or(frame);
    if link == Link::Ethernet && common(frame, layers).is_some() {
        return;
    }
    walk(link, frame, layers);
}

/// Ethernet, customer tags, IP, TCP or UDP: most frames are just that, so their walk is spelled out. `None`
/// for any other frame; what was put into `layers` then does not count.
#[inline(always)]
fn common(frame: &[u8], layers: &mut Layers) -> Option<()> {
    let mut link = ethernet::step(frame).ok()?;
    layers.layers[0] = Layer::new(0, link.header, Protocol::Ethernet);
    let (mut l3, mut count) = (link.header, 1);
    while link.next == Next::Number(Number::EtherType(vlan::CUSTOMER)) {
        link = vlan::step(frame.get(l3..l3 + link.payload)?).ok()?;
        *layers.layers.get_mut(count)? = Layer::new(l3, link.header, Protocol::Vlan);
        l3 += link.header;
        count += 1;
    }
    let packet = frame.get(l3..l3 + link.payload)?;
    let (network, ip) = match link.next {
        Next::Number(Number::EtherType(ethernet::IPV4)) => (Protocol::Ipv4, ipv4::step(packet).ok()?),
        Next::Number(Number::EtherType(ethernet::IPV6)) => (Protocol::Ipv6, ipv6::step(packet).ok()?),
        _ => return None,
    };
    let message = packet.get(ip.header..ip.header + ip.payload)?;
    let (transport, inner) = match ip.next {
        Next::Number(Number::IpProtocol(registry::TCP)) => (Protocol::Tcp, tcp::step(message).ok()?),
        Next::Number(Number::IpProtocol(registry::UDP)) => (Protocol::Udp, udp::step(message).ok()?),
        _ => return None,
    };
    if inner.next != Next::End {
        return None;
    }
    let l4 = l3 + ip.header;
    let [network_layer, transport_layer] = layers.layers.get_mut(count..)?.first_chunk_mut()?;
    *network_layer = Layer::new(l3, ip.header, network);
    *transport_layer = Layer::new(l4, inner.header, transport);
    layers.count = count + 2;
    layers.payload_end = (l4 + inner.header + inner.payload) as u32;
    // At most 13 tags and 60 bytes of IPv4 header: both fit.
    (layers.l3, layers.l4) = (l3 as u8, l4 as u8);
    layers.stop = Stop::End;
    Some(())
}

/// The walk of any frame, header by header.
fn walk(link: Link, frame: &[u8], layers: &mut Layers) {
    let mut next = first(link, frame);
    let (mut start, mut end) = (0, frame.len());
    let mut count = 0;
    layers.stop = loop {
        let protocol = match next {
            Next::Protocol(protocol) => protocol,
            Next::Number(number) => match registry::lookup(number) {
                Some(protocol) => protocol,
                None => break Stop::Unknown(number),
            },
            Next::End => break Stop::End,
            Next::Fragment => break Stop::Fragment,
        };
        let Some(layer) = layers.layers.get_mut(count) else { break Stop::TooDeep };
        let step = match (protocol.row().step)(frame.get(start..end).unwrap_or_default()) {
            Ok(step) => step,
            Err(Malformed { flaw: Flaw::Short, .. }) if end == frame.len() => break Stop::Truncated(protocol),
            Err(Malformed { flaw, .. }) => break Stop::Malformed(protocol, flaw),
        };
        *layer = Layer::new(start, step.header, protocol);
        count += 1;
        start += step.header;
        end = start + step.payload;
        next = step.next;
    };
    layers.count = count;
    layers.payload_end = end as u32;
    layers.l3 = short_offset(layers.network());
    layers.l4 = short_offset(layers.transport());
}

/// What a frame begins with. An empty raw IP frame counts as IPv4.
#[inline(always)]
fn first(link: Link, frame: &[u8]) -> Next {
    match link {
        Link::Ethernet => Next::Protocol(Protocol::Ethernet),
        Link::RawIp => Next::Number(Number::IpVersion(frame.first().map_or(4, |byte| byte >> 4))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_without_end_are_too_deep() {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0x00, 0x00, 0x01].repeat(40));
        let mut layers = Layers::new();
        dissect(Link::Ethernet, &frame, &mut layers);
        assert_eq!((layers.as_slice().len(), layers.stop()), (MAX_LAYERS, Stop::TooDeep));
        assert_eq!(layers.payload(&frame).len(), frame.len() - 14 - 15 * 4);
    }

    #[test]
    fn exactly_the_most_layers_are_not_too_deep() {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0x00, 0x00, 0x01].repeat(MAX_LAYERS - 1));
        frame.extend([0x99, 0x99, 1]);
        let mut layers = Layers::new();
        dissect(Link::Ethernet, &frame, &mut layers);
        assert_eq!((layers.as_slice().len(), layers.stop()), (16, Stop::Unknown(Number::EtherType(0x9999))));
        assert_eq!(layers.payload(&frame), [1]);
    }

    #[test]
    fn offsets_beyond_a_descriptor_are_none() {
        let layer = |offset| Layer { offset, ..Layer::NONE };
        assert_eq!(short_offset(Some(&layer(254))), 254);
        assert_eq!(short_offset(Some(&layer(255))), 255);
        assert_eq!(short_offset(Some(&layer(256))), 255);
    }

    #[test]
    fn the_transport_belongs_to_the_outermost_ip_header() {
        use Protocol::*;
        let of = |protocols: &[Protocol]| {
            let mut layers = Layers { count: protocols.len(), ..Layers::new() };
            for (index, protocol) in protocols.iter().enumerate() {
                layers.layers[index] = Layer { offset: index as u32, length: 1, protocol: *protocol };
            }
            (short_offset(layers.network()), short_offset(layers.transport()))
        };
        assert_eq!(of(&[Ethernet, Vlan, Ipv6, HopByHop, Fragment, Udp, Ethernet, Ipv4, Tcp]), (2, 5));
        assert_eq!(of(&[Ethernet, Ipv4, Ipv6, Tcp]), (1, 255), "a tunnel has no transport of its own");
        assert_eq!(of(&[Ethernet, Arp]), (255, 255));
        assert_eq!(of(&[Ipv6]), (0, 255));
    }

    #[test]
    fn link_types_are_those_of_the_registry() {
        assert_eq!(
            [1, 101, 228, 229, 0].map(Link::from_linktype),
            [Some(Link::Ethernet), Some(Link::RawIp), Some(Link::RawIp), Some(Link::RawIp), None]
        );
    }

    /// Bytes that have a fair chance to be headers, with lengths around that of the frame.
    fn likely_frame() -> impl Strategy<Value = Vec<u8>> {
        let begin = prop_oneof![
            3 => Just((0x0800u16, 0x45u8)),
            3 => Just((0x86dd, 0x60)),
            1 => Just((0x0800, 0x46)),
            1 => (prop::sample::select(vec![0x88a8, 0x8100, 0x0806, 0x0020, 0x0800]), any::<u8>()),
        ];
        let number = prop::sample::select(vec![6u8, 6, 17, 17, 0, 1, 43, 44, 58, 59, 60, 51]);
        let tags = prop_oneof![4 => Just(0), 2 => 1..3usize, 1 => 12..17usize];
        let small = prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..160);
        (begin, number, small, 0u8..170, tags).prop_map(|((ether_type, first), number, mut bytes, length, tags)| {
            let [high, low] = ether_type.to_be_bytes();
            let ip = [(12, high), (13, low), (14, first), (16, 0), (17, length), (18, 0), (19, length)];
            // The protocol and the data offset of TCP, or the length of UDP, behind IPv4 and behind IPv6.
            let inner = [
                (20, number),
                (23, number),
                (38, 0),
                (39, length / 2),
                (46, 0x50),
                (58, 0),
                (59, length / 2),
                (66, 0x60),
            ];
            for (at, byte) in ip.into_iter().chain(inner) {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if bytes.len() > 12 {
                bytes.splice(12..12, [0x81, 0x00, 0x00, 0x01].repeat(tags));
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_spelled_out_walk_agrees_with_the_general_one(
            frame in prop_oneof![likely_frame(), prop::collection::vec(any::<u8>(), 0..200)],
            from in prop::sample::select(vec![0usize, 14]),
        ) {
            let frame = frame.get(from..).unwrap_or_default();
            let link = if from == 0 { Link::Ethernet } else { Link::RawIp };
            let mut layers = Layers::new();
            dissect(link, frame, &mut layers);
            let mut slow = Layers::new();
            walk(link, frame, &mut slow);
            prop_assert_eq!(layers.as_slice(), slow.as_slice());
            prop_assert_eq!((layers.stop(), layers.payload_end), (slow.stop(), slow.payload_end));
            prop_assert_eq!((layers.l3(), layers.l4()), (slow.l3(), slow.l4()));
        }
    }
}
