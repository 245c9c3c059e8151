//! No bytes panic; what is emitted is read back; layers lie back to back inside the frame.

mod packets;

use linerate_wire::*;
use packets::{Network, Transport, packet};
use proptest::prelude::*;
use std::hint::black_box;

/// Every view over the same bytes, every getter that could go wrong.
fn view_all(bytes: &[u8]) {
    let pseudo = Pseudo::V6 { source: 1.into(), destination: 2.into() };
    view_links(bytes);
    view_networks(bytes, &pseudo);
    view_transports(bytes, &pseudo);
    view_tunnels(bytes);
}

fn view_links(bytes: &[u8]) {
    let _ = black_box(ethernet::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(llc::View::parse(bytes).map(|view| (view.header(), view.header_len(), view.payload())));
    let _ = black_box(vlan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(arp::View::parse(bytes).map(|view| (view.packet(), view.header_len())));
    let _ = black_box(mpls::View::parse(bytes).map(|view| (view.entries().count(), view.payload())));
    let _ = black_box(pseudowire::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(pppoe::View::parse(bytes).map(|view| (view.header(), view.tags().count(), view.payload())));
    let _ = black_box(ppp::View::parse(bytes).map(|view| (view.header(), view.header_len(), view.payload())));
    let _ = black_box(null::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(sll::View::parse(bytes).map(|view| (view.header(), view.address(), view.payload())));
    let _ = black_box(sll2::View::parse(bytes).map(|view| (view.header(), view.address(), view.payload())));
    let _ = black_box(chdlc::View::parse(bytes).map(|view| (view.header(), view.payload())));
}

fn view_networks(bytes: &[u8], pseudo: &Pseudo) {
    if let Ok(view) = ipv4::View::parse(bytes) {
        black_box((view.header(), view.is_checksum_right(), view.options().count()));
    }
    let _ = black_box(ipv6::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(ipv6_fragment::View::parse(bytes).map(|view| (view.header(), view.payload())));
    if let Ok(view) = ipv6_extension::View::parse(Protocol::Routing, bytes) {
        black_box((view.header(), view.segments_left(), view.routing_type()));
    }
    let _ = black_box(mobility::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(hip::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(shim6::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(ah::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(esp::View::parse(bytes).map(|view| (view.header(), view.payload())));
}

fn view_transports(bytes: &[u8], pseudo: &Pseudo) {
    if let Ok(view) = tcp::View::parse(bytes) {
        black_box((view.header(), view.is_checksum_right(pseudo)));
        for option in view.options() {
            if let Ok(tcp_option::TcpOption::Sack(blocks)) = option {
                black_box(blocks.iter().count());
            }
        }
    }
    let _ = black_box(udp::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(udp_lite::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    let _ = black_box(sctp::View::parse(bytes).map(|view| (view.is_checksum_right(), view.chunks().count())));
    let _ = black_box(icmp::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right())));
    let _ = black_box(icmpv6::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(pseudo))));
    if let Ok(view) = igmp::View::parse(bytes) {
        black_box((view.is_checksum_right(), view.sources().count(), view.records().count()));
    }
}

fn view_tunnels(bytes: &[u8]) {
    let _ = black_box(gre::View::parse(bytes).map(|view| (view.header(), view.is_checksum_right(), view.payload())));
    let _ = black_box(erspan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(vxlan::View::parse(bytes).map(|view| (view.header(), view.payload())));
    let _ = black_box(geneve::View::parse(bytes).map(|view| (view.header(), view.options().count())));
    let _ = black_box(gtp_u::View::parse(bytes).map(|view| (view.header(), view.extensions().count())));
    let _ = black_box(teredo::View::parse(bytes).map(|view| (view.header(), view.payload())));
}

/// Dissects, and checks what must hold for any bytes.
fn dissect_any(link: Link, frame: &[u8]) -> Layers {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    let mut end = 0;
    for layer in layers.as_slice() {
        assert_eq!(layer.offset, end, "layers lie back to back");
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
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
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
    fn what_is_emitted_is_dissected(packet in packet()) {
        let (frame, expected) = packet.build();
        let layers = dissect_any(Link::Ethernet, &frame);
        prop_assert_eq!(layers.as_slice(), &expected[..]);
        let later_fragment = matches!(packet.network, Network::V4 { fragment: 1.., .. });
        let stop = match packet.transport {
            _ if later_fragment => Stop::Fragment,
            Transport::Unknown => Stop::Unknown(Number::IpProtocol(packets::UNKNOWN)),
            _ => Stop::End,
        };
        prop_assert_eq!(layers.stop(), stop);
        if !later_fragment {
            prop_assert_eq!(layers.payload(&frame), &packet.payload[..], "padding is no payload");
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
    fn a_cut_frame_keeps_its_whole_headers(packet in packet(), length in any::<prop::sample::Index>()) {
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
    fn values_round_trip_and_checksums_are_right(packet in packet()) {
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
    assert_eq!(layers.stop(), Stop::Malformed(Protocol::Tcp, Flaw::Short), "padding is no TCP header");
    assert_eq!((layers.l3(), layers.l4()), (22, 255));
    frame[14..17].copy_from_slice(&[0x42, 0x42, 3]);
    assert_eq!(dissect_any(Link::Ethernet, &frame).stop(), Stop::Unknown(Number::Sap(0x42)));
}

#[test]
fn lengths_that_contradict_stop_the_walk() {
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
