//! The words everything shares: time, descriptors, bursts, blocks, sinks and the ledger.
//!
//! Packets lie back to back in blocks of memory, each with a small descriptor ([`Desc`]); a run of
//! them is a [`Burst`]. Every other crate is a source or a sink of bursts. In the order data takes:
//!
//! - [`time`]: UTC nanoseconds ([`Nanos`]) and how far an input is complete ([`Horizon`]);
//! - [`interface`]: where a frame was seen, and what its first byte means ([`LinkType`]);
//! - [`desc`]: the fixed-size record about one frame;
//! - [`burst`]: frames with their descs in one memory;
//! - [`pick`]: one entry of an order: which frame of which lane comes next;
//! - [`block`]: memory that frames are copied into, back to back, as a nanosecond pcap body; [`slot`] is how it
//!   lies in memory, private or shared, [`memory`] and `copy` are what writes there;
//! - [`helper`]: a second thread to copy with;
//! - [`sink`]: what takes bursts;
//! - [`counters`]: every counter and drop reason, declared once;
//! - [`ledger`]: what every stage has counted, and the identity that must hold;
//! - [`text`]: which characters of a text are not what they seem.
#![deny(unsafe_code)]

pub mod block;
pub mod burst;
mod copy;
pub mod counters;
mod cpu;
pub mod desc;
pub mod helper;
pub mod interface;
pub mod ledger;
pub mod memory;
pub mod pick;
pub mod sink;
pub mod slot;
pub mod text;
pub mod time;

pub use block::{Block, Committed, RECORD_HEADER};
pub use burst::{Burst, Misplaced};
pub use copy::Finish;
pub use counters::{Count, Kind, Stage, Unit};
pub use cpu::{places_of, prefetch, prefetch_many};
pub use desc::{Desc, Flags};
pub use helper::Helper;
pub use interface::{Interface, LinkType, StampSource};
pub use ledger::{Account, Ledger};
pub use memory::{Memory, prefer_huge_pages, resident};
pub use pick::Pick;
pub use sink::{Sink, SinkError};
pub use slot::Layout;
pub use time::{Horizon, Nanos};

/// Bytes behind each frame of any burst that are mapped. They are not to be read: they belong to others, who may be writing
/// there. Blocks keep as many behind their end, which are written, so that copy kernels may store whole vectors.
pub const TAIL: usize = 64;

/// The longest frame any part of linerate handles, in bytes: libpcap's `MAXIMUM_SNAPLEN`
/// (pcap-int.h), above the 65,549 bytes of the longest classic GSO frame.
pub const MAX_FRAME: usize = 262_144;
