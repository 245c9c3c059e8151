//! Flow records: exact accounting of every conversation.
//!
//! The input is bursts of frames, the output finished [`Flow`]s. The crate reads no clock and starts no thread: time is
//! that of the frames, so a file gives the same records as live capture did, in bursts of any size. One [`Meter`]
//! belongs to one thread; several share nothing.
//! share nothing.
//!
//! In data-flow order:
//!
//! - `facts`: properties of a frame, extracted once; `fragments` finds the ports of those that have none;
//! - [`key`]: the flow key; `hash`: its hash;
//! - `table`: from key to record; `record`: memory layout of a flow;
//! - [`meter`]: the entry point; `pipeline`: packets with outstanding memory loads; `account`: the slow path;
//!   `lifetime`: start and end of records; `expire`: timeouts, by `time`; `flood`: aggregation of one-packet flows when
//!   the table is full;
//! - `flow_names`: names found in flows, if configured (the parsers are the crate `names`); `passive_dns`: the DNS names
//!   by which clients resolved addresses;
//! - `pages`: storage of optional parts; `encapsulation`: headers in front of packets;
//! - [`flow`]: the finished record, passed to [`Records`]; `community`: its Community ID;
//! - `snapshot`: snapshots of open records;
//! - [`tcp`], [`stats`]: fields beyond counters;
//! - `distributor`: assignment of frames to meters;
//! - [`config`]: the configuration.
//!
//! Each field is defined in `docs/flows.md`.
//!
//! # Two cache lines per packet
//!
//! ```text
//!  bucket (64 bytes)                    record (64 bytes)         side data
//!  12 flows: 2 bytes of hash, a number ──> key, counters, times ──> 24 bytes for what is rare
//!                                                                   level tcp: 2 lines; level stats: a line each way
//! ```
//!
//! Rare cases (the first packet of a direction, another TTL, a SYN, a full counter) take the slow path, which may touch
//! the side data. Packets go through four stages (`pipeline`) in groups of 16, each stage its own loop: extract and
//! hash facts, look up the record in its bucket, prefetch its side data, count. All prefetches of a group are issued
//! close together, because a load has to walk the page tables first: one load among 400 other instructions waits on its
//! own, sixteen in a row overlap. They prefetch into the second-level cache (`prefetcht1`), which has room for more of
//! them: into the first level, groups of 16 were a quarter slower than groups of 8 at 1 M flows, since parsing had to
//! wait for the same few fill buffers. Measured in one run at 1 M flows: single packets 21, groups of 8, 16, 32 into
//! the first level 28, 24, 21, groups of 16 into the second 30 M packets/s. Facts of a packet are in one line, its wide
//! key and encapsulation elsewhere, and buckets are searched sixteen bytes at a time. One byte of hash per flow was not
//! enough: 1.4 % wrong guesses, each with several cache misses, cost a fifth at 1 M flows.
//!
//! # End of a flow
//!
//! A packet's own time decides, on arrival, if it belongs to a flow, which is exact and needs no timer. A sweep over
//! all records, about once per second of packet time, exports those that are over; it decides when a record is
//! exported, never its content. So results do not depend on bursts or workers, and no timer state is written while
//! packets are counted. The sweep skips stretches of 64 records without a flow, and examines at most 64 records per
//! frame, so its cost follows frames and not time.
//!
//! Packet time is the time that most frames of the last ticks agree on (`time`): one wrong timestamp changes nothing
//! (`far_frames`), 512 net frames that agree make it jump (`time_jumps`). The time that a port reports while no frame
//! arrives counts as far as time has passed since the last sixteen frames arrived. Times are compared in 48 bits; the
//! first one, complete, is in the side data.
//!
//! # Levels
//!
//! Level `stats` has one line of 64 bytes per direction: bins of two bytes, of which the first gap bin is not stored
//! but derived from the others, the sum of squares, minimum and maximum in 48 bits each, and a bit that records that
//! the timestamp option was seen, so that the usual segment touches nothing else. The list of first packets has a word
//! each with 40 bits of absolute time, so that a packet needs no other time to be listed; their number is a byte of the
//! record's own line.
//!
//! At level `tcp` a flow has two more lines: one that each packet touches (position of either side, acknowledged, timed
//! segment), one for sums of round trips. A packet that continues its side in sequence and acknowledges data that was
//! sent takes a fast path through both. Any other takes the slow path, and holes, duplicate acknowledgements and error
//! counters are in 272 bytes that are allocated when a flow needs them.
//!
//! # Hostile traffic
//!
//! The hash is keyed (NH with secret words, then one more product): a sender cannot construct addresses that collide.
//! When the table is full, flows are evicted by age, one-packet flows first, and those are aggregated in one record per
//! target. Optional parts (round trips, holes, histograms, wide keys) are in pages by record, so the maximum memory is
//! known, and reported, before the first packet. Record ids are SipHash-1-3 under a secret of the run, or of
//! `--id-seed`, by which several sensors agree.
#![forbid(unsafe_code)]

mod account;
mod community;
pub mod config;
mod counts;
mod distributor;
mod encapsulation;
mod expire;
mod facts;
mod flood;
pub mod flow;
mod flow_names;
mod fragments;
mod hash;
pub mod key;
mod lifetime;
pub mod meter;
mod pages;
mod passive_dns;
mod pipeline;
mod record;
mod snapshot;
pub mod stats;
mod table;
pub mod tcp;
mod time;

pub use config::{Config, Level, Timeouts, Tunnels};
pub use counts::Counts;
pub use distributor::FlowDistributor;
pub use flow::{Direction, EndReason, ExportedBy, Flow, MPLS_LABELS, Quality, Records, Side};
pub use key::{End, Tunnel, TunnelKind, icmp_pair};
pub use linerate_names::{self as names, Names, Protocol, Protocols};
pub use meter::Meter;
pub use passive_dns::DnsAnswer;
pub use snapshot::ActiveFlow;
pub use stats::{PacketBurst, PacketStats, Stats, StatsSide, SummaryStatistics};
pub use tcp::{ConnState, History, Retransmitted, Rtt, Tcp, TcpSide};
pub use time::{PacketTime, TimeChange};
