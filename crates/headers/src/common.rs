//! Fast path for most frames: Ethernet, customer tags, IP, TCP or UDP.

use crate::layers::{Layer, Layers, Stop};
use crate::{Protocol, ethernet, ipv4, ipv6, lookup, registry, tcp, udp, vlan};

/// Dissects a frame that has only these headers, with the result of the general walk. `None` for any other frame; the
/// contents of `layers` are undefined then.
#[inline(always)]
pub(crate) fn dissect(frame: &[u8], layers: &mut Layers) -> Option<()> {
    let link = ethernet::View::parse(frame).ok()?;
    layers.layers[0] = Layer::new(0, ethernet::LEN, Protocol::Ethernet);
    let (mut ether_type, mut packet) = (link.ether_type(), link.payload());
    let (mut l3, mut count) = (ethernet::LEN, 1);
    while ether_type == vlan::CUSTOMER {
        let tag = vlan::View::parse(packet).ok()?;
        *layers.layers.get_mut(count)? = Layer::new(l3, vlan::LEN, Protocol::Vlan);
        (ether_type, packet) = (tag.ether_type(), tag.payload());
        l3 += vlan::LEN;
        count += 1;
    }
    let (network, header, number, message) = match ether_type {
        ethernet::IPV4 => {
            let ip = ipv4::View::parse(packet).ok().filter(|ip| ip.fragment_offset() == 0)?;
            (Protocol::Ipv4, ip.header_len(), ip.protocol(), ip.payload())
        }
        ethernet::IPV6 => {
            let ip = ipv6::View::parse(packet).ok()?;
            (Protocol::Ipv6, ipv6::LEN, ip.next_header(), ip.payload())
        }
        _ => return None,
    };
    let l4 = l3 + header;
    let (transport, header, payload) = match number {
        registry::TCP => {
            let segment = tcp::View::parse(message).ok()?;
            (Protocol::Tcp, segment.header_len(), segment.payload())
        }
        registry::UDP => {
            let datagram = udp::View::parse(message).ok()?;
            if lookup::has_port(datagram.destination_port(), datagram.source_port()) {
                return None;
            }
            (Protocol::Udp, udp::LEN, datagram.payload())
        }
        _ => return None,
    };
    let [network_layer, transport_layer] = layers.layers.get_mut(count..)?.first_chunk_mut()?;
    *network_layer = Layer::new(l3, l4 - l3, network);
    *transport_layer = Layer::new(l4, header, transport);
    layers.count = count + 2;
    layers.payload_end = (l4 + header + payload.len()) as u32;
    // At most 13 tags and 60 bytes of IPv4 header: both fit.
    (layers.l3, layers.l4) = (l3 as u8, l4 as u8);
    layers.stop = Stop::End;
    Some(())
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::dissect::{dissect, walk};
    use crate::{Layers, Link};
    use proptest::prelude::*;

    /// Bytes that are likely to be headers, with lengths around that of the frame.
    pub(crate) fn likely_frame() -> impl Strategy<Value = Vec<u8>> {
        let begin = prop_oneof![
            3 => Just((0x0800u16, 0x45u8)),
            3 => Just((0x86dd, 0x60)),
            1 => Just((0x0800, 0x46)),
            1 => (prop::sample::select(vec![0x88a8, 0x8100, 0x0806, 0x0020, 0x0800, 0x8847, 0x8864]), any::<u8>()),
        ];
        let number = prop::sample::select(vec![6u8, 6, 17, 17, 0, 1, 4, 41, 43, 44, 47, 58, 59, 60, 51, 50, 132]);
        let port = prop_oneof![2 => any::<u16>(), 1 => prop::sample::select(vec![4789u16, 2152, 6081, 3544, 4500])];
        let tags = prop_oneof![4 => Just(0), 2 => 1..3usize, 1 => 12..17usize];
        let small = prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 0..160);
        (begin, number, small, 0u8..170, tags, port).prop_map(
            |((ether_type, first), number, mut bytes, length, tags, port)| {
                let [high, low] = ether_type.to_be_bytes();
                let ip = [(12, high), (13, low), (14, first), (16, 0), (17, length), (18, 0), (19, length)];
                let ([port_high, port_low], [v4, v6]) = (port.to_be_bytes(), [34, 54]);
                // The protocol, and the data offset of TCP or port and length of UDP, after IPv4 and after IPv6.
                let inner = [
                    (20, number),
                    (23, number),
                    (v4 + 2, port_high),
                    (v4 + 3, port_low),
                    (v4 + 4, 0),
                    (v4 + 5, length / 2),
                    (v4 + 12, 0x50),
                    (v6 + 2, port_high),
                    (v6 + 3, port_low),
                    (v6 + 4, 0),
                    (v6 + 5, length / 2),
                    (v6 + 12, 0x60),
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
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn fast_walk_agrees_with_the_general_walk(
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
