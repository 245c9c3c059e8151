//! System calls of the backends: with `burst.rs`, the only unsafe code of the packet path.

pub(crate) mod bpf;
pub(crate) mod ethtool;
pub(crate) mod packet_blocks;
pub(crate) mod packet_ring;
pub(crate) mod packet_socket;
