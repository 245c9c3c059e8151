//! The TCP endpoint and that of the kernel are given the same segments, and say the same, but for what `docs/tcp.md` lists by name.
//!
//! - `script`: what a peer sends, said so that it means the same to both;
//! - `kernel`, `ours`: the two, behind a tun interface and in time that is made up;
//! - `said`: answers without what may differ, such as first sequence numbers;
//! - `compare`: a script played to both; `differences`: those that there may be;
//! - `clauses`, `random`: the scripts.

mod clauses;
mod compare;
mod differences;
mod kernel;
#[allow(dead_code, reason = "it is that of the tests of the endpoint, which use all of it")]
#[path = "../crates/receive/tests/tcp/memory.rs"]
mod memory;
mod ours;
#[allow(dead_code, reason = "it is that of the tests of the endpoint, which use all of it")]
#[path = "../crates/receive/tests/tcp/peer.rs"]
mod peer;
mod random;
mod said;
mod script;
