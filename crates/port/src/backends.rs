//! The backends: one file each, one row each in [`crate::registry::BACKENDS`].

pub mod faulty;
pub mod mem;
pub mod packet;
pub mod pcap;
pub mod shm;
pub(crate) mod sys;
pub mod xdp;
pub mod xdp_live;
