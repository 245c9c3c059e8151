//! Any bytes are dissected without a panic, into layers that follow each other inside the frame, and viewed as any header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_wire::{Layers, Link, dissect};

#[path = "../../crates/wire/tests/views/mod.rs"]
mod views;

fuzz_target!(|frame: &[u8]| {
    let mut layers = Layers::new();
    for link in Link::ALL {
        dissect(link, frame, &mut layers);
        let mut end = 0;
        for layer in layers.as_slice() {
            assert!(layer.offset >= end && layer.end() as usize <= frame.len());
            end = layer.end();
        }
        assert!(layers.payload(frame).len() <= frame.len());
    }
    views::view_all(frame);
});
