//! The headers that any bytes are dissected into are built again: into the same headers. What was built once is built
//! again to the byte, whatever was wrong with the first frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_wire::build::{Frame, Header, Problem, Unbuilt};
use linerate_wire::{Layers, Link, Protocol, dissect, ipv4};

#[path = "../src/headers.rs"]
mod headers;

fuzz_target!(|frame: &[u8]| {
    let (mut layers, mut again) = (Layers::new(), Layers::new());
    for link in Link::ALL {
        dissect(link, frame, &mut layers);
        let Some(built) = build(frame, &layers) else { continue };
        dissect(link, &built, &mut again);
        // Nothing names what follows MPLS labels: it is told by lengths and checksums, which a build puts right.
        if layers.as_slice().iter().any(|layer| layer.protocol == Protocol::Mpls)
            && protocols(&layers) != protocols(&again)
        {
            continue;
        }
        assert_eq!(protocols(&layers), protocols(&again), "{}, then {}", layers.stop(), again.stop());
        assert_eq!(layers.payload(frame), again.payload(&built));
        for layer in again.as_slice().iter().filter(|layer| layer.protocol == Protocol::Ipv4) {
            assert!(ipv4::View::parse(&built[layer.offset as usize..]).unwrap().is_checksum_right());
        }
        assert_eq!(build(&built, &again).as_ref(), Some(&built));
    }
});

/// A frame of the same headers; `None` where the value of one of them cannot be written, as one whose length does not
/// fit its field.
fn build(frame: &[u8], layers: &Layers) -> Option<Vec<u8>> {
    let found = layers.as_slice().iter();
    let values: Option<Vec<Box<dyn Header + '_>>> =
        found.map(|layer| headers::read(layer.protocol, &frame[layer.offset as usize..])).collect();
    let values = values?;
    let headers: Vec<&dyn Header> = values.iter().map(Box::as_ref).collect();
    match Frame::new(&headers, layers.payload(frame)).to_vec() {
        Err(error @ Unbuilt::Header { problem: Problem::CannotCarry(_), .. }) => panic!("{error}"),
        built => built.ok(),
    }
}

fn protocols(layers: &Layers) -> Vec<Protocol> {
    layers.as_slice().iter().map(|layer| layer.protocol).collect()
}
