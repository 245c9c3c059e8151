//! The pcapng format: sections of typed blocks, with interfaces and options.
//!
//! Source: draft-ietf-opsawg-pcapng ("PCAP Now Generic").

mod block;
mod budget;
mod encode;
mod option;
mod packet;
mod section;
mod statistics;
mod tables;
mod time;

pub(crate) use block::SECTION_HEADER;
pub(crate) use encode::Encoder;
pub(crate) use option::push;
pub(crate) use section::{IF_FCSLEN, Section};
