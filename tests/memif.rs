//! Tests of `memif:` against peers that break every rule, peers with known faults of real ones, and DPDK itself.
//!
//! - `peer`: a scripted peer that sends and writes arbitrary messages and memory;
//! - `invalid_setup`: invalid connection setup, in both roles;
//! - `hostile`: arbitrary writes of a peer to the shared memory;
//! - `faulty`: known faults of DPDK, reproduced one by one;
//! - `ids`: several interfaces on one socket;
//! - `leaks`: a thousand peers that connect and disconnect;
//! - `program`: `linerate` at both ends;
//! - `dpdk`: `dpdk-testpmd` at the other end; `ovs`: Open vSwitch with DPDK between two linerate ports.

mod dpdk;
mod faulty;
mod hostile;
mod ids;
mod invalid_setup;
mod leaks;
mod ovs;
mod peer;
mod program;

/// Lock for processor time: exclusive for tests that need a processor, shared for tests that depend on a peer's speed.
static PROCESSOR: std::sync::RwLock<()> = std::sync::RwLock::new(());
