//! Export of flow records: fields, encodings, destinations and queues.
//!
//! ```text
//!  Meter -> Flow -+-> queue -> exporter -> encoding -> destination    a.jsonl, standard output, a pipe
//!    (Exports     |   (thread) (stream)    (json, zeek, parquet)
//!     takes it)   +-> queue -> exporter -> encoding -> place          flows/date=.../hour=.../
//!                     (thread) (folder)        ^
//!                                              |
//!                                     fields: values of a Flow, one row per field
//! ```
//!
//! - [`fields`](mod@fields): all fields, each declared once, with its names in other tools;
//! - [`decode`](mod@decode): the reverse, from values to a flow;
//! - [`encode`](mod@encode): file formats, one row each ([`Format`]);
//! - [`export`]: destinations, one row each ([`PLACES`]), and the exporters that write to them ([`Exporter`]): a
//!   `stream` (a file gets its name when it is complete: `part`) or a directory per hour (`directory`: directories are
//!   synced before their files);
//! - `queue`: one thread per exporter, so that metering does not wait for a disk; [`Exports`]: all of them, with one
//!   account each in the ledger.
//!
//! Exporters and encodings do not read the clock; their queue does. `docs/flows.md` defines each field.
//!
//! Writes the flows of a capture to a file and checks their accounting:
//!
//! ```
//! use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos};
//! use linerate_meter::{Config, Meter};
//! use linerate_export::{Exports, Options, open};
//! use linerate_headers::Link;
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
//! // For each burst of packets.
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
//! # Design
//!
//! Each exporter has its own thread, so that metering does not wait for a disk until the queue is full. Formats and
//! destinations are rows of two tables.
//!
//! Records for Kafka and ClickHouse pass through a spool on disk (`export/ship.rs`), which delivers each batch exactly
//! once. Brokers identify batches by sequence numbers that must survive a killed process, and no existing client stores
//! them. The client is therefore our own: four requests of the Kafka protocol and an HTTP POST, with no crate for
//! either.
//!
//! In a directory no file stays open. Records are collected in bounded memory, sorted by the time of their first packet
//! (queries filter by start time, and the hour of a record is then exact) and written as complete files. A crash loses
//! only the collected records. Columns are flat and named like the JSON paths, because every database can query them.
//! Timestamps have no time zone, because DuckDB has hardly any functions for nanoseconds with one. All levels have the
//! same columns: a directory of several runs is one table.
//!
//! arrow and parquet dominate the build: 31 packages, 106 s on two cores once, 5.7 MB of program. They are therefore an
//! optional feature, `parquet`: a default of the program, because a directory that any database reads is the main purpose
//! of records, and none of the library.
#![forbid(unsafe_code)]

pub mod decode;
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
    use crate::decode::nothing;
    use linerate_burst::Nanos;
    use linerate_meter::{End, Flow, Side};
    use std::net::IpAddr;
    use std::path::PathBuf;

    /// UDP flow with one packet in each direction.
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

    /// Empty directory for one test.
    pub(crate) fn scratch(name: &str) -> PathBuf {
        let root = std::env::temp_dir().join(format!("linerate-records-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        root
    }
}
