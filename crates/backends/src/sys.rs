//! System calls of the backends: with `burst.rs`, the only unsafe code of the packet path.

pub(crate) mod area;
pub(crate) mod bpf;
pub(crate) mod bpf_live;
pub(crate) mod bpf_ringbuf;
pub(crate) mod clock;
pub(crate) mod dpdk_device;
pub(crate) mod dpdk_plugin;
pub(crate) mod ethtool;
pub(crate) mod inet_socket;
pub(crate) mod memif_memory;
pub(crate) mod multi_buffer;
pub(crate) mod packet_blocks;
pub(crate) mod packet_ring;
pub(crate) mod packet_socket;
pub(crate) mod peer;
pub(crate) mod thread;
pub(crate) mod tun_device;
pub(crate) mod xsk_frames;
pub(crate) mod xsk_memory;
pub(crate) mod xsk_ring;
pub(crate) mod xsk_sender;
pub(crate) mod xsk_socket;
