//! Whatever a peer, strangers and wires do to a TCP endpoint: no byte is taken that the peer did not send there, none twice, none past a
//! promise; nothing is acknowledged that is not there; everything is counted.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/receive/tests/tcp/memory.rs"]
mod memory;
#[path = "../../crates/receive/tests/tcp/peer.rs"]
mod peer;
#[path = "../../crates/receive/tests/tcp/script.rs"]
mod script;

fuzz_target!(|bytes: &[u8]| script::run(bytes));
