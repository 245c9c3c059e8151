//! One suite for every backend: what a port promises, checked against each of them.
//!
//! - `frames`: frames that say who sent them and when;
//! - `wire`: a sender and a receiver joined, and a receiver that watches what the queues promise;
//! - `backends`: how each backend is opened, and what it can do;
//! - `checks`: the list of checks that runs against all of them;
//! - `faulty`: any of them behind a wire that breaks by plan, and `model`: the same plan told a second time;
//! - `held`: frames that are held, changed, and sent on where they lie;
//! - `memory`: what only memory has; `vlan`, `offloads`, `rings`: what only AF_PACKET has;
//! - `links`: interfaces that go down, come back and are removed;
//! - `xdp`: the suite over AF_XDP, and what only it has;
//! - `shm`: the suite over shared memory, and what only it has;
//! - `memif`: the suite over memory shared as DPDK and VPP do;
//! - `tun`: the suite over an interface that is made here, and what only that has;
//! - `tunnels`: `tun:` with interfaces that others have made, or that go;
//! - `dpdk`: the suite over devices of DPDK, and what only those have;
//! - `errors`: what a user is told.

mod backends;
mod checks;
mod counted;
mod dpdk;
mod errors;
mod faulty;
mod frames;
mod held;
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

use backends::{Fifo, FileWire, Harness, MemWire, Veth};
use checks::run;

#[test]
fn memory_keeping_times() {
    run(&MemWire::new("?stamp=keep"));
}

#[test]
fn memory_giving_times() {
    run(&MemWire::new("?stamp=now"));
}

#[test]
fn memory_of_four_queues_keeping_times() {
    run(&MemWire::new("@0-3?stamp=keep"));
}

#[test]
fn memory_of_four_queues_giving_times() {
    run(&MemWire::new("@0-3?stamp=now"));
}

#[test]
fn memory_in_chunks() {
    run(&MemWire::new("?chunk=66000"));
}

#[test]
fn a_pcap_file() {
    run(&FileWire::new("pcap"));
}

#[test]
fn a_pcapng_file() {
    run(&FileWire::new("pcapng"));
}

#[test]
fn a_pcap_pipe() {
    run(&Fifo::new("pcap"));
}

#[test]
fn a_pcapng_pipe() {
    run(&Fifo::new("pcapng"));
}

#[test]
fn packet_with_one_lane() {
    run_on_veth(1, Some(1));
}

#[test]
fn packet_with_a_lane_for_each_cpu() {
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

fn run_on_veth(queues: u32, lanes: Option<usize>) {
    if let Some(veth) = Veth::up(queues, lanes) {
        run(&veth as &dyn Harness);
    }
}
