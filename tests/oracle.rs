//! Comparison of the TCP endpoint with the kernel: for the same segments, both send the same answers, except for the
//! differences listed in `docs/tcp.md`.
//!
//! - `script`: segments of a peer, relative to what each receiver sent;
//! - `kernel`, `endpoint`: the two receivers, behind a tun interface and in simulated time;
//! - `replies`: normalised answers, without first sequence numbers and the like;
//! - `compare`: plays a script to both; `differences`: the permitted differences;
//! - `clauses`, `random`: the scripts.

mod clauses;
mod compare;
mod differences;
mod endpoint;
mod kernel;
#[allow(dead_code, reason = "shared with the tests of the endpoint, which use all of it")]
#[path = "../crates/transport/tests/tcp/memory.rs"]
mod memory;
#[allow(dead_code, reason = "shared with the tests of the endpoint, which use all of it")]
#[path = "../crates/transport/tests/tcp/peer.rs"]
mod peer;
mod random;
mod replies;
mod script;
