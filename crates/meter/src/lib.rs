//! Flow records: what every conversation was, exactly.
//!
//! Bursts go in, finished [`Flow`]s come out. Nothing here reads a clock or starts a thread: time is that of the frames, so
//! that a file gives the same records as the wire did, in bursts of any size. One [`Meter`] belongs to one thread; several
//! share nothing.
//!
//! In the order data takes:
//!
//! - `facts`: what counts of a frame, found once; `fragments` finds the ports of those that have none;
//! - [`key`]: what makes a flow; `hash`: where it lies;
//! - `table`: from key to record; `record`: what a flow occupies in memory;
//! - [`meter`]: the whole; `pipeline`: packets whose memory is on its way; `account`: packets that are not like most; `lifetime`: how records begin and end; `expire`: which flows have ended, by `time`; `flood`: what becomes of one-packet flows when there is no room;
//! - `pages`: what few records have; `encapsulation`: what few records say of the headers in front of their packets;
//! - [`flow`]: the finished record, for whoever takes it ([`Records`]); `community`: its Community ID;
//! - [`tcp`], [`stats`]: what a record says beyond counters;
//! - `spread`: which of several meters a frame belongs to;
//! - [`config`]: what can be chosen.
//!
//! What each field means is told in `docs/flows.md`.
#![forbid(unsafe_code)]

mod account;
mod community;
pub mod config;
mod counts;
mod encapsulation;
mod expire;
mod facts;
mod flood;
pub mod flow;
mod fragments;
mod hash;
pub mod key;
mod lifetime;
pub mod meter;
mod pages;
mod pipeline;
mod record;
mod spread;
pub mod stats;
mod table;
pub mod tcp;
mod time;

pub use config::{Config, Level, Timeouts, Tunnels};
pub use counts::Counts;
pub use flow::{Direction, EndReason, Flow, MPLS_LABELS, Quality, Records, Side};
pub use key::{End, Tunnel, TunnelKind};
pub use meter::Meter;
pub use spread::Spread;
pub use stats::{PacketBurst, PacketStats, Stats, StatsSide, Summary};
pub use tcp::{ConnState, History, Retransmitted, Rtt, Tcp, TcpSide};
pub use time::{Moved, PacketTime};
