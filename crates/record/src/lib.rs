//! Capture files: pcap and pcapng, read and written.
//!
//! A file is a run of records; [`Reader`] shows them as bursts over its own buffer, [`Writer`] is a sink
//! that takes blocks. Nothing is mapped and nothing is kept but a bounded buffer, so files, pipes and
//! devices take one path, and no length that a file claims makes memory grow. In the order data takes:
//!
//! - `compression`: gzip, zstd and LZ4 around a file, as a stream;
//! - `input`: the bytes of a file or pipe, read in large pieces into one buffer;
//! - [`pcap`]: the classic format, all its magics;
//! - `pcapng`: blocks, options, sections, interfaces;
//! - [`reader`]: [`Reader`], which joins the three;
//! - `origin`: what a file says beyond frames, on its way to another file;
//! - [`error`]: why a file cannot be read, in classes;
//! - [`writer`]: [`Writer`], which accounts for every frame it is handed;
//! - [`recording`]: files one after the other, of which the oldest go;
//! - [`file`](mod@file): what an output may do to the thing the user named;
//! - `statistics`: the ledger of a run as pcapng interface statistics.
//!
//! # Bounds
//!
//! What is kept of a file is charged with what it takes in memory, 16 MiB in all (`budget`). A file has at most 8,192 interfaces,
//! which is half of that; what finds no room is counted (`file_left_out`). A pcap file is given what programs open: link types that
//! are registered, times up to 2106. The end of a capture is not forced to disk: waiting takes as long as writing. A disk that is
//! full cuts the file back to its last whole record. An output that is not a regular file is only ever written to.
//!
//! # Compression
//!
//! It is known by the first bytes when reading and by the name when writing. Reading is a stream with bounded memory: zstd windows
//! up to 128 MiB (what `zstd -d` takes), one block at a time, so that all frames before damage are handed out; a bomb costs time
//! alone. Real traffic is read at 0.30 GB/s from gzip (`gzip -dc`: 0.18) and 1.3 GB/s from zstd (`zstd -dc`: 1.1).
//!
//! Writing flushes the stream behind each piece (a block of the capture: at every pause, or 1 MiB), so that a killed run leaves all
//! but its last piece readable. The bytes that end the stream there are known at any time (an empty last block, for gzip with
//! checksum and length). When writing fails the torn piece is taken back and the file ended behind the one before. That is why
//! zstd frames carry no checksum: theirs could not be taken back. Levels are the fastest that pay: on real traffic, with a flush
//! every 256 KiB, zstd -1 makes 0.81 GB/s (level 1: 0.58, for 1 % less), gzip 1 makes 0.16 GB/s (level 2: 0.09, for 6 % less).
//!
//! # Recordings
//!
//! [`recording`] opens all its files by one function (`Open`), which gets a `PartialFile`: its output, and others beside it that come and go
//! with it. Sizes are looked at a block at a time; only the block that fills a file is gone through frame by frame. Files are known
//! by number and the time they were made at: a number alone belongs to another file as soon as one was removed. Statistics in
//! a file are of the ledger as of the last look (a tenth of a second) before it; those of cards are in the last file.
//!
//! `--direct` writes blocks of 1 MiB by `pwrite` with `O_DIRECT`, from the thread of the sinks. There is no io_uring: it has more than
//! one write on its way, which `linerate-bench disk` shows as `direct x4`, by threads. On the disk tried that was no faster than
//! `direct` (1.72 and 2.07 GB/s, 1 GiB in one run), so it would bring nothing. Room is asked for (`fallocate`) in front of a block, so a full disk says so
//! before frames are taken. LZ4 is `lz4_flex` (blocks) with frames of our own
//! around them, so that a file can be ended behind any piece; `twox-hash` is what it and Parquet sum with.
//!
//! # What a pcapng file says beyond frames
//!
//! It travels as `Interface::origin`, which only this crate looks into: options of its section and interfaces, statistics, names and
//! secrets, all ready to be written in native byte order. Comments of frames lie beside them in a list shared with the writer; a
//! frame's desc has the number of its own (`note`, 16 bits, going round; the time of the frame tells rounds apart). So merge, filter
//! and memory know nothing of comments, and a frame left out takes its comments along.
//!
//! Kept of frames: `epb_flags`, comments, hash, drop count, packet number, queue, verdict, process. Direction, an FCS and a wrong
//! checksum are flags of the desc, the rest are notes. Of interfaces: all options but those that say how times are read, which are
//! nanoseconds here. One section is written: its header is that of the first section of the
//! file; with several files it has their comments. Custom blocks that may be copied, and systemd journals, are kept
//! as they are. Interface statistics of a file
//! are notes in the ledger (`file_seen`, `file_dropped`) and stand again in the file written.
#![forbid(unsafe_code)]

mod aligned;
mod compression;
mod date;
pub mod error;
pub mod file;
mod input;
mod origin;
pub mod pcap;
mod pcapng;
pub mod reader;
pub mod recording;
mod statistics;
pub mod when;
pub mod writer;

pub use aligned::{ALIGNMENT, Aligned};
pub use compression::{Compressed, Compression, plain};
pub use date::date;
pub use error::ReadError;
pub use file::{Output, numbered};
pub use reader::Reader;
pub use recording::{Limits, OnTrouble, Recording, Sync};
pub use writer::{Format, Place, Writer};
