//! `memif:` against peers that break every rule, peers with the faults that real ones have, and DPDK's own.
//!
//! - `peer`: a peer of the tests' own, which says and writes whatever it is told;
//! - `making`: what is wrong with a connection while it is made, in both roles;
//! - `hostile`: what a peer can do to the memory;
//! - `faulty`: the faults of DPDK, played one by one;
//! - `ids`: several interfaces behind one socket;
//! - `ends`: peers that go and come, a thousand times;
//! - `program`: the program at both ends;
//! - `dpdk`: `dpdk-testpmd` at the other end; `ovs`: Open vSwitch with DPDK between two of ours.

mod dpdk;
mod ends;
mod faulty;
mod hostile;
mod ids;
mod making;
mod ovs;
mod peer;
mod program;

/// Whoever needs a processor for itself has this alone; what is judged by how fast a peer is has it together with others.
static PROCESSOR: std::sync::RwLock<()> = std::sync::RwLock::new(());
