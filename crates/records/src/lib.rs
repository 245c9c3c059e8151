//! Flow records on their way out of the meter.
//!
//! ```text
//!  Meter -> Flow -+-> queue -> exporter -> encoding -> place          a.jsonl, standard output, a pipe
//!    (Exports     |   (thread) (stream)    (json, zeek, parquet)
//!     takes it)   +-> queue -> exporter -> encoding -> place          flows/date=.../hour=.../
//!                     (thread) (folder)        ^
//!                                              |
//!                                     fields: what a Flow has, a row each
//! ```
//!
//! - [`fields`](mod@fields): every field, declared once, with its names elsewhere;
//! - [`back`](mod@back): the same the other way round, from values to a flow;
//! - [`encode`](mod@encode): what records are written as where bytes are written, a row each ([`Format`]);
//! - [`export`]: where they go, a row each ([`PLACES`]), and who takes them there ([`Exporter`]): to a `stream` (a file has its
//!   name once it is complete: `part`) or a folder of `hours` (`directory`: folders are on the disk before what is in them);
//! - `queue`: a thread for each exporter, so that metering does not wait for a disk; [`Exports`]: all of them, and an account
//!   of each in the ledger.
//!
//! Exporters and encodings read no clock; their queue does. What each field means is told in `docs/flows.md`.
//!
//! The flows of a capture to a file, and what became of them:
//!
//! ```
//! use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos};
//! use linerate_meter::{Config, Meter};
//! use linerate_records::{Exports, Options, open};
//! use linerate_wire::Link;
//!
//! # let folder = std::env::temp_dir().join(format!("linerate-records-{}", std::process::id()));
//! # std::fs::create_dir_all(&folder).unwrap();
//! # let file = folder.join("flows.jsonl").to_str().unwrap().to_owned();
//! # let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
//! # packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 0, 8, 0, 0]);
//! # let mut block = Block::new(4096, 16);
//! # block.push(&Desc::new(Nanos(1_700_000_000_000_000_000), 0, packet.len() as u32), &packet);
//! # let burst: Burst<'_> = block.burst();
//! let mut exports = Exports::start(open(&[&file], &Options::default())?, || ())?;
//! let mut meter = Meter::new(&Config::default());
//! // As often as there are frames.
//! meter.take(burst, &[Some(Link::Ethernet)], &mut exports);
//! let latest = meter.latest();
//! meter.finish(latest, &mut exports);
//!
//! let mut ledger = Ledger::new();
//! exports.finish(false, &mut ledger)?;
//! assert_eq!((ledger.total(Count::Exported), ledger.imbalances()), (1, vec![]));
//! assert!(std::fs::read_to_string(&file)?.starts_with("{\"schema\":\"linerate/flow/1\""));
//! # std::fs::remove_dir_all(folder).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Why it is so
//!
//! Records leave by a thread of their own for each exporter, so that metering waits for no disk until its queue is full. What records are
//! written as (a format) and where they go (a place) are rows of two tables.
//!
//! To Kafka and ClickHouse they go by way of a spool on the disk (`export/ship.rs`), each batch once: a broker tells batches apart by numbers that
//! have to be known again by a process that was killed, and no client there is keeps them. So the client is our own: four requests of Kafka's
//! protocol, a POST of HTTP, and no crate for either.
//!
//! In a folder no file stays open. Records gather in memory, bounded, are sorted by their first packet (as users ask by when something began,
//! and a folder is then never a guess), and become complete files at once; so a crash costs what had gathered and nothing else. Columns are
//! flat and named as the paths in JSON, because every database can ask for them; times have no zone, because DuckDB has hardly a function for
//! nanoseconds with one. All levels have the same columns: a folder of several runs is one table.
//!
//! arrow and parquet are most of what there is to build: 50 crates, 106 s of two cores once, 5.7 MB of program, more than all the rest. So they
//! are behind the feature `parquet`. It is on, since a folder that any database reads is what records are for; `--no-default-features`
//! builds without.
#![forbid(unsafe_code)]

pub mod back;
pub mod encode;
pub mod export;
mod exports;
pub mod fields;
pub mod ipfix;
mod queue;

pub use encode::{Encoder, FORMATS, Format, encode};
pub use export::{Demand, Ending, Exporter, Options, PLACES, open};
pub use exports::Exports;
pub use fields::{Field, fields};

#[cfg(test)]
pub(crate) mod tests {
    use crate::back::nothing;
    use linerate_burst::Nanos;
    use linerate_meter::{End, Flow, Side};
    use std::net::IpAddr;
    use std::path::PathBuf;

    /// A flow of UDP, one packet each way.
    pub(crate) fn flow() -> Flow {
        let time = Nanos(1_700_000_000_000_000_000);
        let side = Side { packets: 1, first: time, last: time, ..Side::default() };
        Flow {
            id: 1,
            ends: [1, 2].map(|port| End { address: IpAddr::from([192, 0, 2, port as u8]), port }),
            protocol: 17,
            sides: [side; 2],
            ..nothing()
        }
    }

    /// An empty folder of a test.
    pub(crate) fn scratch(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("linerate-records-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        root
    }
}
