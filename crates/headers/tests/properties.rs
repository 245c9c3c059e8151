//! No bytes cause a panic; emitted values are parsed back; layers are contiguous inside the frame.

use crate::packets::{Network, Transport, packet};
use crate::views::view_all;
use linerate_headers::*;
use proptest::prelude::*;

/// Dissects, and checks the invariants for any bytes.
fn dissect_any(link: Link, frame: &[u8]) -> Layers {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let mut end = 0;
    for layer in layers.as_slice() {
        assert_eq!(layer.offset, end, "layers are contiguous");
        assert!(layer.length > 0 || layer.protocol == Protocol::Teredo);
        end = layer.end();
        view_all(&frame[layer.offset as usize..]);
    }
    assert!(end as usize + layers.payload(frame).len() <= frame.len());
    assert!(!layers.stop().to_string().is_empty());
    layers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_dissected_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        view_all(&bytes);
        for link in Link::ALL {
            dissect_any(link, &bytes);
        }
    }

    #[test]
    fn damaged_packets_do_not_panic(
        packet in packet(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        length in any::<prop::sample::Index>(),
    ) {
        let (mut frame, _) = packet.build();
        for (at, byte) in damage {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(length.index(frame.len() + 1));
        dissect_any(Link::Ethernet, &frame);
        if let Some(packet) = frame.get(ethernet::LEN..) {
            dissect_any(Link::RawIp, packet);
        }
    }

    #[test]
    fn emitted_headers_are_dissected(packet in packet()) {
        let (frame, expected) = packet.build();
        let layers = dissect_any(Link::Ethernet, &frame);
        prop_assert_eq!(layers.as_slice(), &expected[..]);
        let later_fragment = matches!(packet.network, Network::V4 { fragment: 1.., .. });
        let stop = match packet.transport {
            _ if later_fragment => Stop::Fragment,
            Transport::Unknown => Stop::Unknown(Number::IpProtocol(crate::packets::UNKNOWN)),
            _ => Stop::End,
        };
        prop_assert_eq!(layers.stop(), stop);
        if !later_fragment {
            prop_assert_eq!(layers.payload(&frame), &packet.payload[..], "padding does not count");
        }
        let l3 = ethernet::LEN + packet.tags.len() * vlan::LEN;
        prop_assert_eq!(usize::from(layers.l3()), l3);
        // The same without the link.
        let raw = dissect_any(Link::RawIp, &frame[l3..]);
        let inner: Vec<_> = raw.as_slice().iter().map(|layer| (layer.protocol, layer.offset as usize + l3)).collect();
        let outer = expected[1 + packet.tags.len()..].iter().map(|layer| (layer.protocol, layer.offset as usize));
        prop_assert!(outer.eq(inner));
    }

    #[test]
    fn truncated_frame_keeps_its_complete_headers(packet in packet(), length in any::<prop::sample::Index>()) {
        let (frame, expected) = packet.build();
        let cut = &frame[..length.index(frame.len() - packet.padding + 1)];
        let layers = dissect_any(Link::Ethernet, cut);
        let whole = expected.iter().filter(|layer| layer.end() as usize <= cut.len()).count();
        prop_assert_eq!(layers.as_slice(), &expected[..whole]);
        if whole < expected.len() {
            prop_assert_eq!(layers.stop(), Stop::Truncated(expected[whole].protocol));
        }
    }

    #[test]
    fn values_round_trip_and_checksums_are_valid(packet in packet()) {
        let (frame, layers) = packet.build();
        let pseudo = packet.pseudo();
        for layer in layers {
            let bytes = &frame[layer.offset as usize..frame.len() - packet.padding];
            let mut out = bytes.to_vec();
            out[..layer.length.into()].fill(0x99);
            match layer.protocol {
                Protocol::Ethernet => { ethernet::View::parse(bytes)?.header().emit(&mut out)?; }
                Protocol::Vlan => { vlan::View::parse(bytes)?.header().emit(&mut out)?; }
                Protocol::Ipv4 => {
                    let view = ipv4::View::parse(bytes)?;
                    prop_assert!(view.is_checksum_right());
                    prop_assert_eq!(view.pseudo(), pseudo);
                    view.header().emit(view.payload().len(), &mut out)?;
                }
                Protocol::Ipv6 => {
                    let view = ipv6::View::parse(bytes)?;
                    prop_assert_eq!(view.pseudo(), pseudo);
                    view.header().emit(view.payload().len(), &mut out)?;
                }
                Protocol::Fragment => { ipv6_fragment::View::parse(bytes)?.header().emit(&mut out)?; }
                Protocol::HopByHop | Protocol::Routing | Protocol::DestinationOptions => {
                    ipv6_extension::View::parse(layer.protocol, bytes)?.header().emit(&mut out)?;
                }
                Protocol::Tcp => {
                    let view = tcp::View::parse(bytes)?;
                    prop_assert!(view.is_checksum_right(&pseudo));
                    view.header().emit(&mut out)?;
                    tcp::fill_checksum(&mut out, &pseudo)?;
                }
                Protocol::Udp => {
                    let view = udp::View::parse(bytes)?;
                    prop_assert!(view.is_checksum_right(&pseudo));
                    view.header().emit(view.payload().len(), &mut out)?;
                    udp::fill_checksum(&mut out, &pseudo)?;
                }
                Protocol::Icmp => {
                    let view = icmp::View::parse(bytes)?;
                    prop_assert!(view.is_checksum_right());
                    view.header().emit(&mut out)?;
                    icmp::fill_checksum(&mut out)?;
                }
                Protocol::Icmpv6 => {
                    let view = icmpv6::View::parse(bytes)?;
                    prop_assert!(view.is_checksum_right(&pseudo));
                    view.header().emit(&mut out)?;
                    icmpv6::fill_checksum(&mut out, &pseudo)?;
                }
                other => unreachable!("{other:?} is not in these packets"),
            }
            prop_assert_eq!(&out[..], bytes);
        }
    }
}

#[test]
fn llc_and_snap_are_walked_within_their_length() {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&[0, 28]); // 802.3: 28 bytes, then padding
    frame[14..22].copy_from_slice(&[0xaa, 0xaa, 3, 0, 0, 0, 0x08, 0x00]);
    ipv4::Header::new(registry::TCP).emit(100, &mut frame[22..]).unwrap();
    let layers = dissect_any(Link::Ethernet, &frame);
    let protocols: Vec<_> = layers.as_slice().iter().map(|layer| layer.protocol).collect();
    assert_eq!(protocols, [Protocol::Ethernet, Protocol::Llc, Protocol::Ipv4]);
    assert_eq!(layers.stop(), Stop::Malformed(Protocol::Tcp, Flaw::Short), "padding does not count as a TCP header");
    assert_eq!((layers.l3(), layers.l4()), (22, 255));
    frame[14..17].copy_from_slice(&[0x42, 0x42, 3]);
    assert_eq!(dissect_any(Link::Ethernet, &frame).stop(), Stop::Unknown(Number::Sap(0x42)));
}

#[test]
fn contradictory_lengths_stop_the_walk() {
    let mut frame = vec![0u8; 60];
    frame[12..14].copy_from_slice(&ethernet::IPV4.to_be_bytes());
    ipv4::Header::new(registry::UDP).emit(26, &mut frame[14..]).unwrap();
    frame[39] = 7;
    assert_eq!(dissect_any(Link::Ethernet, &frame).stop(), Stop::Malformed(Protocol::Udp, Flaw::TotalLength));
    frame[14] = 0x44;
    assert_eq!(dissect_any(Link::Ethernet, &frame).stop(), Stop::Malformed(Protocol::Ipv4, Flaw::HeaderLength));
    frame[14] = 0x65;
    assert_eq!(dissect_any(Link::Ethernet, &frame).stop(), Stop::Malformed(Protocol::Ipv4, Flaw::Version));
    assert_eq!(dissect_any(Link::RawIp, &[0x55; 60]).stop(), Stop::Unknown(Number::IpVersion(5)));
    assert_eq!(dissect_any(Link::RawIp, &[]).stop(), Stop::Truncated(Protocol::Ipv4));
    assert_eq!(dissect_any(Link::Ethernet, &[0; 13]).stop(), Stop::Truncated(Protocol::Ethernet));
}
