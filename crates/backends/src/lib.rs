//! The backends: one file each, one row each in [`registry::BACKENDS`]; and what they share.
//!
//! - [`registry`]: one row a backend, and opening ports by it;
//! - [`packet`], [`xdp`], [`xdp_live`], [`pcap`], [`mem`], [`shm`], [`faulty`]: the backends; system calls stay in `sys/`;
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
pub mod packet;
pub mod pcap;
pub mod registry;
mod rtnl;
pub mod shm;
pub(crate) mod sys;
pub mod xdp;
pub mod xdp_live;

pub use registry::{open_rx, open_tx};
