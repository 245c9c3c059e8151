//! Finds the end of a frame's payload, and so its trailer.
//!
//! Ethernet pads short frames and some devices append trailers of their own, so the end of the frame is not the end of
//! the payload: the outermost IP packet has a length field, and the end of the innermost packet is also that of the
//! packets around it.

use super::LEN;
use linerate_headers::{Layers, Link, Protocol, ethernet, ipv4, ipv6, vlan};

/// Position of the outermost IP packet in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// Offset of the packet; `None` without IP.
    pub packet: Option<usize>,
    /// End by its length field, which may be beyond the frame; without IP, or with a length of 0 (left so by
    /// segmentation offload, and in jumbograms), the end of the frame.
    pub end: usize,
}

impl Tail {
    /// Locates the packet in a frame with link type `link`; `layers` is scratch memory for frames with more than
    /// Ethernet, tags and IP.
    #[inline(always)]
    pub fn of(link: Link, frame: &[u8], layers: &mut Layers) -> Tail {
        match common(frame) {
            Some(tail) if link == Link::Ethernet => tail,
            _ => dissected(link, frame, layers),
        }
    }

    /// Returns the 16 bytes before the end, if all of them are in the frame.
    #[inline(always)]
    pub fn bytes<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8; LEN]> {
        frame.get(..self.end)?.last_chunk()
    }
}

/// Parses Ethernet, customer and service tags, then IP.
#[inline(always)]
fn common(frame: &[u8]) -> Option<Tail> {
    let mut packet = ethernet::LEN;
    loop {
        let ether_type: &[u8; 2] = frame.get(packet - 2..)?.first_chunk()?;
        match u16::from_be_bytes(*ether_type) {
            ethernet::IPV4 => return packet_at(frame, packet, Protocol::Ipv4),
            ethernet::IPV6 => return packet_at(frame, packet, Protocol::Ipv6),
            vlan::CUSTOMER | vlan::SERVICE if packet < MOST_TAGS => packet += vlan::LEN,
            _ => return None,
        }
    }
}

/// Frames with more tags than this are dissected like any other.
const MOST_TAGS: usize = ethernet::LEN + 4 * vlan::LEN;

#[inline(never)]
fn dissected(link: Link, frame: &[u8], layers: &mut Layers) -> Tail {
    linerate_headers::dissect(link, frame, layers);
    let packet = layers.network().and_then(|layer| packet_at(frame, layer.offset as usize, layer.protocol));
    packet.unwrap_or(Tail { packet: None, end: frame.len() })
}

/// Returns the extent of an IP packet.
#[inline(always)]
fn packet_at(frame: &[u8], packet: usize, protocol: Protocol) -> Option<Tail> {
    let bytes = frame.get(packet..)?;
    let length = if protocol == Protocol::Ipv4 {
        usize::from(ipv4::View::parse(bytes).ok()?.total_len())
    } else {
        match ipv6::View::parse(bytes).ok()?.payload_len() {
            0 => 0,
            payload => ipv6::LEN + usize::from(payload),
        }
    };
    let end = if length == 0 { frame.len() } else { packet + length };
    Some(Tail { packet: Some(packet), end })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packet_length_counts_and_not_frame_length() {
        let mut ipv4 = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        ipv4.resize(50, 0xee);
        let mut ipv6 = vec![0x60, 0, 0, 0, 0, 12, 17, 64];
        ipv6.resize(80, 0);
        let frame = |types: &[u8], packet: &[u8]| [&[2; 12], types, packet].concat();
        let mpls = [0x88, 0x47, 0, 0, 0x10, 64, 0, 0, 0x21, 64];
        for (types, packet, begin, length) in [
            (&[0x08, 0][..], &ipv4, 14, 30),
            (&[0x86, 0xdd], &ipv6, 14, 52),
            (&[0x81, 0, 0, 1, 0x08, 0], &ipv4, 18, 30),
            (&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd], &ipv6, 22, 52),
            (&mpls, &ipv4, 22, 30),
        ] {
            let frame = frame(types, packet);
            let tail = Tail::of(Link::Ethernet, &frame, &mut Layers::new());
            assert_eq!(tail, Tail { packet: Some(begin), end: begin + length }, "{types:02x?}");
        }
        let arp = frame(&[0x08, 0x06], &[0; 46]);
        assert_eq!(Tail::of(Link::Ethernet, &arp, &mut Layers::new()), Tail { packet: None, end: 60 });
        ipv4[2..4].fill(0);
        assert_eq!(Tail::of(Link::RawIp, &ipv4, &mut Layers::new()), Tail { packet: Some(0), end: 50 });
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2048, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_path_agrees_with_the_dissector(
            types in prop::sample::select(vec![
                vec![0x08, 0x00], vec![0x86, 0xdd], vec![0x81, 0, 0, 1, 0x08, 0], vec![0x88, 0xa8, 0, 1, 0x86, 0xdd],
                vec![0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x08, 0], vec![0x90, 0],
            ]),
            first in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
            length in 0u8..90,
            rest in prop::collection::vec(any::<u8>(), 0..90),
            link in prop::sample::select(vec![Link::Ethernet, Link::RawIp]),
        ) {
            let mut frame = [&[2; 12][..], &types, &[first, 0, 0, length, 0, length], &rest].concat();
            if link == Link::RawIp {
                frame.drain(..12 + types.len());
            }
            let tail = Tail::of(link, &frame, &mut Layers::new());
            prop_assert_eq!(tail, dissected(link, &frame, &mut Layers::new()));
        }
    }
}
