//! Capture files: pcap and pcapng, read and written.
//!
//! A file is a run of records; [`Reader`] shows them as bursts over its own buffer, [`Writer`] is a sink
//! that takes blocks. Nothing is mapped and nothing is kept but a bounded buffer, so files, pipes and
//! devices take one path, and no length that a file claims makes memory grow. In the order data takes:
//!
//! - `compression`: gzip and zstd around a file, as a stream;
//! - `input`: the bytes of a file or pipe, read in large pieces into one buffer;
//! - [`pcap`]: the classic format, all its magics;
//! - `pcapng`: blocks, options, sections, interfaces;
//! - [`reader`]: [`Reader`], which joins the three;
//! - `origin`: what a file says beyond frames, on its way to another file;
//! - [`error`]: why a file cannot be read, in classes;
//! - [`writer`]: [`Writer`], which accounts for every frame it is handed;
//! - [`file`](mod@file): what an output may do to the thing the user named;
//! - `statistics`: the ledger of a run as pcapng interface statistics.
#![forbid(unsafe_code)]

mod compression;
pub mod error;
pub mod file;
mod input;
mod origin;
pub mod pcap;
mod pcapng;
pub mod reader;
mod statistics;
pub mod writer;

pub use compression::Compression;
pub use error::ReadError;
pub use file::Output;
pub use reader::Reader;
pub use writer::{Format, Writer};
