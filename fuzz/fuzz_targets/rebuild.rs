//! Headers dissected from any bytes are built again into the same headers. A frame built once is rebuilt byte for byte,
//! even if the first frame was invalid.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_headers::build::{BuildError, Frame, Header, Problem};
use linerate_headers::{Layers, Link, Protocol, dissect, ipv4};

#[path = "../src/headers.rs"]
mod headers;

fuzz_target!(|frame: &[u8]| {
    let (mut layers, mut rebuilt) = (Layers::new(), Layers::new());
    for link in Link::ALL {
        dissect(link, frame, &mut layers);
        let Some(built) = build(frame, &layers) else { continue };
        dissect(link, &built, &mut rebuilt);
        // No field names what follows MPLS labels: lengths and checksums decide, and a build corrects these.
        if layers.as_slice().iter().any(|layer| layer.protocol == Protocol::Mpls)
            && protocols(&layers) != protocols(&rebuilt)
        {
            continue;
        }
        assert_eq!(protocols(&layers), protocols(&rebuilt), "{}, then {}", layers.stop(), rebuilt.stop());
        assert_eq!(layers.payload(frame), rebuilt.payload(&built));
        for layer in rebuilt.as_slice().iter().filter(|layer| layer.protocol == Protocol::Ipv4) {
            assert!(ipv4::View::parse(&built[layer.offset as usize..]).unwrap().is_checksum_right());
        }
        assert_eq!(build(&built, &rebuilt).as_ref(), Some(&built));
    }
});

/// Builds a frame with the same headers; `None` if one of them cannot be written, such as a length above the maximum of
/// its field.
fn build(frame: &[u8], layers: &Layers) -> Option<Vec<u8>> {
    let found = layers.as_slice().iter();
    let values: Option<Vec<Box<dyn Header + '_>>> =
        found.map(|layer| headers::read(layer.protocol, &frame[layer.offset as usize..])).collect();
    let values = values?;
    let headers: Vec<&dyn Header> = values.iter().map(Box::as_ref).collect();
    match Frame::new(&headers, layers.payload(frame)).to_vec() {
        Err(error @ BuildError::Header { problem: Problem::CannotCarry(_), .. }) => panic!("{error}"),
        built => built.ok(),
    }
}

fn protocols(layers: &Layers) -> Vec<Protocol> {
    layers.as_slice().iter().map(|layer| layer.protocol).collect()
}
