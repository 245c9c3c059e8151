//! Any bytes are dissected without a panic, into adjacent layers inside the frame, and parsed as any header. The
//! payload of the Ethernet header is dissected the same on its own, which is another code path.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_headers::{Layer, Layers, Link, Protocol, Role, Stop, dissect};

#[path = "../../crates/headers/tests/views/mod.rs"]
mod views;

fuzz_target!(|frame: &[u8]| {
    let mut layers = Layers::new();
    for link in Link::ALL {
        dissect(link, frame, &mut layers);
        check(frame, &layers);
        if link == Link::Ethernet {
            compare_without_link(frame, &layers);
            layers.as_slice().iter().for_each(|layer| views::view_all(&frame[layer.offset as usize..]));
        }
    }
    views::view_all(frame);
});

fn check(frame: &[u8], layers: &Layers) {
    let mut end = 0;
    for layer in layers.as_slice() {
        assert_eq!(layer.offset, end);
        assert!(layer.length > 0 || layer.protocol == Protocol::Teredo);
        end = layer.end();
    }
    assert!(end as usize + layers.payload(frame).len() <= frame.len());
    // The outermost IP header, and the header after it and its extensions, if that is a transport.
    let network = layers.as_slice().iter().position(|layer| layer.protocol.role() == Role::Network);
    let mut following = layers.as_slice().iter().skip(network.map_or(usize::MAX, |index| index + 1));
    let transport = following.find(|layer| layer.protocol.role() != Role::Extension);
    let transport = transport.filter(|layer| layer.protocol.role() == Role::Transport);
    assert_eq!(layers.network(), network.map(|index| &layers.as_slice()[index]));
    assert_eq!(layers.transport(), transport);
    let short = |layer: Option<&Layer>| layer.map_or(u8::MAX, |layer| layer.offset.min(255) as u8);
    assert_eq!((layers.l3(), layers.l4()), (short(layers.network()), short(transport)));
    assert!(!layers.stop().to_string().is_empty());
}

/// Compares an IP packet after Ethernet and tags with the same packet without them.
fn compare_without_link(frame: &[u8], layers: &Layers) {
    let found = layers.as_slice();
    let link_layers =
        found.iter().take_while(|layer| matches!(layer.protocol, Protocol::Ethernet | Protocol::Vlan)).count();
    let Some(first) = found.get(link_layers).filter(|first| matches!(first.protocol, Protocol::Ipv4 | Protocol::Ipv6))
    else {
        return;
    };
    let packet = &frame[first.offset as usize..];
    let mut without_link = Layers::new();
    dissect(Link::RawIp, packet, &mut without_link);
    let inner = found[link_layers..].iter().map(|layer| Layer { offset: layer.offset - first.offset, ..*layer });
    if layers.stop() == Stop::TooDeep {
        assert!(inner.eq(without_link.as_slice()[..found.len() - link_layers].iter().copied()));
    } else {
        assert!(inner.eq(without_link.as_slice().iter().copied()));
        assert_eq!((layers.stop(), layers.payload(frame)), (without_link.stop(), without_link.payload(packet)));
    }
}
