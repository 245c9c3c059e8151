//! For any actions of a peer, attackers and links, a TCP endpoint accepts only bytes sent by the peer, each once and
//! none above the window; it acknowledges only received bytes, and counts everything.
#![no_main]
#![allow(dead_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/transport/tests/tcp/memory.rs"]
mod memory;
#[path = "../../crates/transport/tests/tcp/peer.rs"]
mod peer;
#[path = "../../crates/transport/tests/tcp/script.rs"]
mod script;

fuzz_target!(|bytes: &[u8]| script::run(bytes));
