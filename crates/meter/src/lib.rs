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
//! - `flow_names`: what flows say of themselves, if that is asked for (the parsers are the crate `names`); `resolved`: the names by
//!   which clients came to know addresses;
//! - `pages`: what few records have; `encapsulation`: what few records say of the headers in front of their packets;
//! - [`flow`]: the finished record, for whoever takes it ([`Records`]); `community`: its Community ID;
//! - `glance`: records that go on, for whoever looks meanwhile;
//! - [`tcp`], [`stats`]: what a record says beyond counters;
//! - `spread`: which of several meters a frame belongs to;
//! - [`config`]: what can be chosen.
//!
//! What each field means is told in `docs/flows.md`.
//!
//! # Two cache lines a packet
//!
//! ```text
//!  bucket (64 bytes)                    record (64 bytes)         beside it
//!  12 flows: 2 bytes of hash, a number ──> key, counters, times ──> 24 bytes for what is rare
//!                                                                   level tcp: 2 lines; level stats: a line each way
//! ```
//!
//! Whatever is rare (the first packet of a direction, another TTL, a SYN, a counter that is full) goes another way, which may touch
//! the second part. Packets go through four stages (`pipeline`) in groups of 16, each stage a loop of its own: facts found and
//! hashed, the record looked up in its bucket, what lies beside it asked for, counted. All that a group asks for stands close
//! together, because a request for memory waits for the page tables first: one request among 400 other instructions waits alone,
//! sixteen in a row overlap. They ask for the second-level cache (`prefetcht1`), which has room for more of them: into the first
//! level, groups of 16 were a quarter slower than groups of 8 at 1 M flows, since parsing had to wait for the same few places.
//! Measured in one run at 1 M flows: rounds of one packet 21, groups of 8, 16, 32 into the first level 28, 24, 21, groups of 16 into
//! the second 30 M packets/s. Facts of a packet lie in one line of their own, its wide key and encapsulation elsewhere, and buckets
//! are searched sixteen bytes at a time. One byte of hash a flow was not enough: 1.4 % wrong guesses, each with several cache misses,
//! cost a fifth at 1 M flows.
//!
//! # When a flow ends
//!
//! Whether a packet belongs to a flow is decided by its own time when it comes, which is exact and needs no timer. A sweep over all
//! records, about once a second of packet time, exports what is over; it decides when a record is handed out, never what it says. So
//! results do not depend on bursts or workers, and nothing is written for timers while packets are counted. The sweep passes over
//! stretches of 64 records without a flow, and looks at no more than 64 records for each frame, so cost follows frames and not time.
//!
//! What time it is goes by what most frames of the last ticks agree on (`time`): one wrong stamp moves nothing (`far_frames`), 512 net
//! frames that agree make it jump (`time_jumps`). What a port says while no frame comes counts as far as time has passed since the
//! last sixteen frames came. The time compared is 48 bits; the first one, whole, is in the second part.
//!
//! # Levels
//!
//! Level `stats` has one line of 64 bytes for each direction: bins of two bytes, of which the first of the gaps is not stored but
//! follows from the others, the sum of squares, least and greatest in 48 bits each, and a bit that says that timestamps are known as
//! an option, so that the usual segment looks at nothing else. The list of first packets has a word each with 40 bits of absolute
//! time, so that a packet needs no other time to be listed; how many there are is a byte of the record's own line.
//!
//! At level `tcp` a flow has two more lines: one that each packet touches (where either side is, what is acknowledged, what is timed),
//! one for sums of round trips. A packet that goes on where its side was and acknowledges what was sent takes a straight path through
//! both. Any other goes another way, and holes, repeated acknowledgements and counters of what went wrong lie in 272 bytes that a
//! flow gets when it needs them.
//!
//! # Hostile traffic
//!
//! The hash is keyed (NH with secret words, then one more product): whoever chooses addresses cannot make them meet. What the table
//! cannot hold gives way by age, one-packet flows first, and those become one record for each target. What few flows have (round
//! trips, holes, histograms, wide keys) lies in pages by record, so the most memory is known, and said, before the first packet. Ids
//! of records are SipHash-1-3 under a secret of the run, or of `--id-seed`, by which several sensors agree.
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
mod flow_names;
mod fragments;
mod glance;
mod hash;
pub mod key;
mod lifetime;
pub mod meter;
mod pages;
mod pipeline;
mod record;
mod resolved;
mod spread;
pub mod stats;
mod table;
pub mod tcp;
mod time;

pub use config::{Config, Level, Timeouts, Tunnels};
pub use counts::Counts;
pub use flow::{Direction, EndReason, ExportedBy, Flow, MPLS_LABELS, Quality, Records, Side};
pub use glance::Glance;
pub use key::{End, Tunnel, TunnelKind};
pub use linerate_names::{self as names, Names, Protocol, Protocols};
pub use meter::Meter;
pub use resolved::Heard;
pub use spread::Spread;
pub use stats::{PacketBurst, PacketStats, Stats, StatsSide, Summary};
pub use tcp::{ConnState, History, Retransmitted, Rtt, Tcp, TcpSide};
pub use time::{Moved, PacketTime};
