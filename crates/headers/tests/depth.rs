//! Frames that try to exhaust a dissector: nested headers, long chains, excessive lengths.

use linerate_headers::*;
use std::time::{Duration, Instant};

fn dissected(link: Link, frame: &[u8]) -> Layers {
    let mut layers = Layers::new();
    dissect(link, frame, &mut layers);
    for pair in layers.as_slice().windows(2) {
        assert_eq!(pair[0].end(), pair[1].offset);
    }
    assert!(layers.as_slice().last().is_none_or(|last| last.end() as usize <= frame.len()));
    layers
}

fn emitted(emit: impl Fn(&mut [u8]) -> Result<usize, EmitError>) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let length = emit(&mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}

/// A frame whose headers repeat `depth` times: each wraps its payload.
fn nested(depth: usize, innermost: &[u8], wrap: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    (0..depth).fold(innermost.to_vec(), |carried, _| [wrap(&carried), carried].concat())
}

fn ethernet(ether_type: u16) -> Vec<u8> {
    let header = ethernet::Header { destination: MacAddr([2; 6]), source: MacAddr([4; 6]), ether_type };
    emitted(|out| header.emit(out))
}

fn ipv4(protocol: u8, payload: usize) -> Vec<u8> {
    emitted(|out| ipv4::Header::new(protocol).emit(payload, out))
}

/// Checks that forty headers end in [`Stop::TooDeep`] after the maximum number of layers, and that the maximum does
/// not.
fn check_bomb(link: Link, frame: &[u8]) {
    let layers = dissected(link, frame);
    assert_eq!((layers.as_slice().len(), layers.stop()), (MAX_LAYERS, Stop::TooDeep));
    assert_eq!(layers.stop().to_string(), "more than 16 headers, stopped here");
}

#[test]
fn forty_nested_headers_are_too_deep() {
    let tag = vlan::Header { id: 1, priority: 0, drop_eligible: false, ether_type: vlan::SERVICE };
    let tags = nested(40, &[0; 9], |_| emitted(|out| tag.emit(out)));
    check_bomb(Link::Ethernet, &[ethernet(vlan::CUSTOMER), tags].concat());

    check_bomb(Link::RawIp, &nested(40, &[0; 9], |inner| ipv4(registry::IPV4, inner.len())));
    check_bomb(
        Link::RawIp,
        &nested(40, &[0; 9], |inner| emitted(|out| ipv6::Header::new(registry::IPV6).emit(inner.len(), out))),
    );
    let gre = gre::Header::Routing(gre::Routing { protocol: ethernet::IPV4, ..gre::Routing::default() });
    check_bomb(
        Link::RawIp,
        &nested(40, &[0; 9], |inner| [ipv4(registry::GRE, inner.len() + 4), emitted(|out| gre.emit(0, out))].concat()),
    );
    check_bomb(
        Link::Ethernet,
        &nested(40, &[0; 9], |inner| {
            let datagram = udp::Header { source_port: 1, destination_port: vxlan::PORT };
            [
                ethernet(ethernet::IPV4),
                ipv4(registry::UDP, inner.len() + 16),
                emitted(|out| datagram.emit(inner.len() + 8, out)),
                emitted(|out| vxlan::Header::new(1).emit(out)),
            ]
            .concat()
        }),
    );
    let extension = ipv6_extension::Header { next_header: registry::DESTINATION_OPTIONS, data: &[0; 6] };
    let chain = nested(40, &[], |_| emitted(|out| extension.emit(out)));
    let packet = emitted(|out| ipv6::Header::new(registry::DESTINATION_OPTIONS).emit(chain.len(), out));
    check_bomb(Link::RawIp, &[packet, chain].concat());
}

#[test]
fn maximum_number_of_layers_is_accepted() {
    let tag = vlan::Header { id: 1, priority: 0, drop_eligible: false, ether_type: vlan::CUSTOMER };
    let mut frame = [ethernet(vlan::CUSTOMER), nested(MAX_LAYERS - 1, &[1], |_| emitted(|out| tag.emit(out)))].concat();
    let last_type = frame.len() - 3;
    frame[last_type..last_type + 2].copy_from_slice(&[0x99, 0x99]);
    let layers = dissected(Link::Ethernet, &frame);
    assert_eq!((layers.as_slice().len(), layers.stop()), (MAX_LAYERS, Stop::Unknown(Number::EtherType(0x9999))));
    assert_eq!(layers.payload(&frame), [1]);
}

#[test]
fn label_stack_of_any_height_is_one_layer() {
    for labels in [1, 1000, 16_383] {
        let entry = mpls::Entry { label: 20, traffic_class: 0, ttl: 9 };
        let mut stack = vec![0; 4 * labels];
        mpls::emit(&vec![entry; labels], &mut stack).unwrap();
        let frame = [ethernet(mpls::UNICAST), stack, ipv4(registry::TCP, 0)].concat();
        let layers = dissected(Link::Ethernet, &frame);
        let found: Vec<_> = layers.as_slice().iter().map(|layer| (layer.protocol, layer.length)).collect();
        let expected = [(Protocol::Ethernet, 14), (Protocol::Mpls, 4 * labels as u16), (Protocol::Ipv4, 20)];
        assert_eq!(found, expected);
        assert_eq!(layers.stop(), Stop::Truncated(Protocol::Tcp));
        assert_eq!(layers.l3() == u8::MAX, labels > 60);
    }
}

#[test]
fn a_stack_without_a_bottom_or_too_high_for_a_layer_ends_the_walk() {
    let endless = [ethernet(mpls::UNICAST), vec![0; 4000]].concat();
    assert_eq!(dissected(Link::Ethernet, &endless).stop(), Stop::Truncated(Protocol::Mpls));
    let mut stack = vec![0; 4 * 16_384];
    mpls::emit(&vec![mpls::Entry { label: 20, traffic_class: 0, ttl: 9 }; 16_384], &mut stack).unwrap();
    let layers = dissected(Link::Ethernet, &[ethernet(mpls::UNICAST), stack].concat());
    assert_eq!((layers.as_slice().len(), layers.stop()), (1, Stop::Malformed(Protocol::Mpls, Flaw::TooLong)));
}

/// User data after a chain of GTP extension headers.
fn gtp_chain(extensions: usize) -> Vec<u8> {
    let mut chain = [1, 0, 0, 1].repeat(extensions);
    *chain.last_mut().unwrap() = 0;
    let message =
        gtp_u::Header { message: gtp_u::USER_DATA, first_extension: 1, extensions: &chain, ..gtp_u::Header::default() };
    let inner = ipv4(registry::ICMP, 0);
    let mut header = vec![0; chain.len() + 12];
    message.emit(inner.len(), &mut header).unwrap();
    let message = [header, inner].concat();
    let datagram =
        emitted(|out| udp::Header { source_port: 1, destination_port: gtp_u::PORT }.emit(message.len(), out));
    [ipv4(registry::UDP, datagram.len() + message.len()), datagram, message].concat()
}

#[test]
fn a_chain_of_gtp_extension_headers_is_one_layer() {
    for extensions in [1, 1000, 16_000] {
        let layers = dissected(Link::RawIp, &gtp_chain(extensions));
        let found: Vec<_> = layers.as_slice().iter().map(|layer| (layer.protocol, layer.length)).collect();
        let gtp = (Protocol::GtpU, 12 + 4 * extensions as u16);
        assert_eq!(found, [(Protocol::Ipv4, 20), (Protocol::Udp, 8), gtp, (Protocol::Ipv4, 20)]);
        assert_eq!(layers.inner_network().unwrap().offset, 40 + 4 * extensions as u32);
    }
}

#[test]
fn time_is_proportional_to_frame_length() {
    let stack = [ethernet(mpls::UNICAST), vec![0; 65_000]].concat();
    let route = [&[0x40, 0, 8, 0, 0, 0, 0, 0][..], &[0, 1, 0, 0].repeat(16_000), &[0; 4]].concat();
    let frames = [
        (Link::Ethernet, stack),
        (Link::RawIp, gtp_chain(16_000)),
        (Link::RawIp, [ipv4(registry::GRE, route.len()), route].concat()),
    ];
    let mut layers = Layers::new();
    let start = Instant::now();
    for _ in 0..200 {
        for (link, frame) in &frames {
            dissect(*link, frame, &mut layers);
        }
    }
    // 600 frames of 16,000 entries: 0.1 s if each is visited once, minutes if each visit includes the others.
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
