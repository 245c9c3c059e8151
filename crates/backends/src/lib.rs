//! The backends: one file each, with a row for [`BACKENDS`]; and what they share.
//!
//! - [`packet`], [`xdp`], [`xdp_live`], [`pcap`], [`mem`], [`null`], [`shm`], [`faulty`]: the backends; system calls stay in `sys/`;
//! - [`inventory`]: what interfaces there are and what they can do;
//! - [`netns`]: opening things inside a network namespace;
//! - [`ebpf`]: instructions for programs that run in the kernel;
//! - [`counting`]: a receiver that only counts.
#![deny(unsafe_code)]

pub mod counting;
pub mod ebpf;
pub mod faulty;
pub mod inventory;
pub mod mem;
pub mod netns;
mod nic;
pub mod null;
pub mod packet;
pub mod pcap;
mod rtnl;
pub mod shm;
pub(crate) mod sys;
pub mod xdp;
pub mod xdp_live;

use linerate_port::{Backend, PortError, Registry, RxOptions, RxPort, Spec, TxOptions, TxPort};

/// Every backend that the program has.
pub const BACKENDS: &[Backend] = &[
    packet::BACKEND,
    xdp::BACKEND,
    xdp_live::BACKEND,
    pcap::BACKEND,
    mem::BACKEND,
    null::BACKEND,
    shm::BACKEND,
    faulty::BACKEND,
];

/// They as a registry; with others beside them by [`Registry::with`].
pub static REGISTRY: Registry = Registry::of(BACKENDS);

/// Opens a port of the program's own backends to receive from.
pub fn open_rx(spec: &Spec, options: &RxOptions) -> Result<RxPort, PortError> {
    REGISTRY.open_rx(spec, options)
}

/// Opens a port of the program's own backends to send to.
pub fn open_tx(spec: &Spec, options: &TxOptions) -> Result<TxPort, PortError> {
    REGISTRY.open_tx(spec, options)
}
