//! Conformance suite: the contract of a port, checked against every backend.
//!
//! - `frames`: frames that carry their sender, number and time;
//! - `wire`: a connected sender and receiver, and a receiver that checks the contract of its queues;
//! - `backends`: opening of each backend, and its capabilities;
//! - `checks`: the checks that run against all of them;
//! - `faulty`: any backend behind a wire with planned faults, and `model`: an independent model of the same plan;
//! - `held_frames`: frames that are held, changed and forwarded in place;
//! - `memory`: specific to `mem:`; `vlan`, `offloads`, `rings`: specific to AF_PACKET;
//! - `links`: interfaces with link down, link up and removal;
//! - `xdp`: the suite over AF_XDP, and tests specific to it;
//! - `shm`: the suite over shared memory, and tests specific to it;
//! - `memif`: the suite over memif, the shared memory of DPDK and VPP;
//! - `tun`: the suite over an interface created by the test, and tests specific to it;
//! - `tunnels`: `tun:` with interfaces created by other programs, or removed while in use;
//! - `dpdk`: the suite over DPDK devices, and tests specific to them;
//! - `errors`: error messages for the user.

mod backends;
mod checks;
mod dpdk;
mod errors;
mod faulty;
mod frames;
mod held_frames;
mod links;
mod memif;
mod memory;
mod model;
mod offloads;
mod rings;
mod shm;
mod tun;
mod tunnels;
mod vlan;
mod wire;
mod xdp;
mod xdp_counting;

use backends::{Fifo, FileWire, Harness, MemWire, Veth};
use checks::run;

#[test]
fn memory_with_kept_timestamps() {
    run(&MemWire::new("?stamp=keep"));
}

#[test]
fn memory_with_new_timestamps() {
    run(&MemWire::new("?stamp=now"));
}

#[test]
fn memory_with_four_queues_and_kept_timestamps() {
    run(&MemWire::new("@0-3?stamp=keep"));
}

#[test]
fn memory_with_four_queues_and_new_timestamps() {
    run(&MemWire::new("@0-3?stamp=now"));
}

#[test]
fn memory_in_chunks() {
    run(&MemWire::new("?chunk=66000"));
}

#[test]
fn pcap_file() {
    run(&FileWire::new("pcap"));
}

#[test]
fn pcapng_file() {
    run(&FileWire::new("pcapng"));
}

#[test]
fn pcap_pipe() {
    run(&Fifo::new("pcap"));
}

#[test]
fn pcapng_pipe() {
    run(&Fifo::new("pcapng"));
}

#[test]
fn packet_with_one_lane() {
    run_on_veth(1, Some(1));
}

#[test]
fn packet_with_one_lane_per_cpu() {
    run_on_veth(4, None);
}

#[test]
fn packet_with_more_lanes_than_cpus() {
    run_on_veth(4, Some(4));
}

#[test]
fn packet_with_two_lanes_on_one_queue() {
    run_on_veth(1, Some(2));
}

#[test]
fn packet_for_forwarding_with_one_lane() {
    run_for_forwarding(Some(1));
}

#[test]
fn packet_for_forwarding_with_one_lane_per_cpu() {
    run_for_forwarding(None);
}

#[test]
fn live_frames_to_packet_with_one_lane() {
    run_live(1, Some(1), "packet", "");
}

#[test]
fn live_frames_to_packet_with_four_queues() {
    run_live(4, None, "packet", "");
}

#[test]
fn live_frames_to_xdp_with_one_queue() {
    run_live(1, None, "xdp", "&mode=native");
}

#[test]
fn live_frames_to_xdp_with_four_queues() {
    run_live(4, None, "xdp", "&mode=native");
}

fn run_live(queues: u32, lanes: Option<usize>, receiver: &'static str, options: &'static str) {
    if let Some(veth) = Veth::up(queues, lanes) {
        run(&veth.using("xdp-live", receiver, options) as &dyn Harness);
    }
}

/// The frames of an MTU of 9,000 bytes fit the slots of a ring; those of 65,535 come in blocks.
fn run_for_forwarding(lanes: Option<usize>) {
    if let Some(veth) = Veth::with("left:eth0,right:eth0,mtu=9000", lanes) {
        run(&veth.prompt() as &dyn Harness);
    }
}

fn run_on_veth(queues: u32, lanes: Option<usize>) {
    if let Some(veth) = Veth::up(queues, lanes) {
        run(&veth as &dyn Harness);
    }
}
