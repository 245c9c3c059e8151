//! Capture files: pcap and pcapng, read and written.
//!
//! A file is a sequence of records; [`Reader`] returns them as bursts over its own buffer, [`Writer`] is a sink for
//! blocks. Nothing is mapped and only a bounded buffer is kept, so files, pipes and devices are handled alike, and no
//! length in a file makes memory grow. In the order of the data path:
//!
//! - `compression`: gzip, zstd and LZ4 around a file, as a stream;
//! - `input`: the bytes of a file or pipe, read in large pieces into one buffer;
//! - [`pcap`]: the classic format, all its magics;
//! - `pcapng`: blocks, options, sections, interfaces;
//! - [`reader`]: [`Reader`], which combines these;
//! - `origin`: metadata of a file beyond frames, carried to another file;
//! - [`error`]: errors of reading, in classes;
//! - [`writer`]: [`Writer`], which accounts for every frame it receives;
//! - [`recording`]: a sequence of files, the oldest of which are deleted;
//! - [`file`](mod@file): output files, and what may be done to existing ones;
//! - `statistics`: the ledger of a run as pcapng interface statistics.
//!
//! # Bounds
//!
//! Metadata kept of a file is charged with its size in memory, 16 MiB in total (`budget`). A file has at most 8,192
//! interfaces, half of that budget; anything beyond it is counted (`not_copied`). pcap files get only what programs
//! can open: registered link types, times up to 2106. The end of a capture is not forced to disk: that takes as long
//! as writing. On a full disk the file is cut back to its last complete record. An output that is not a regular file
//! is only written to.
//!
//! # Compression
//!
//! It is recognised by the first bytes when reading and by the name when writing. Reading is a stream with bounded
//! memory: zstd windows up to 128 MiB (the default of `zstd -d`), one block at a time, so that all frames before
//! damage are returned; a decompression bomb only costs time. Real traffic is read at 0.30 GB/s from gzip (`gzip -dc`:
//! 0.18) and 1.3 GB/s from zstd (`zstd -dc`: 1.1).
//!
//! Writing flushes the stream after each piece (a block of the capture: at every pause, or 1 MiB), so that a killed
//! run loses only its last piece. The tail that ends the stream there is known at any time (an empty last block, for
//! gzip with checksum and length). If writing fails the torn piece is removed and the file ended after the one before.
//! That is why zstd frames have no checksum: it could not be undone. Levels are the fastest that pay off: on real
//! traffic, with a flush every 256 KiB, zstd -1 makes 0.81 GB/s (level 1: 0.58, for 1 % less), gzip 1 makes 0.16 GB/s
//! (level 2: 0.09, for 6 % less).
//!
//! # Recordings
//!
//! [`recording`] opens all its files by one function (`Open`), which gets a `PartialFile`: its output, and companion
//! files that are completed and deleted with it. Sizes are checked per block; only the block that fills a file is
//! examined frame by frame. Files are identified by inode number and birth time: a number is reused as soon as a file
//! is removed. Statistics in a file are those of the ledger at the last check (a tenth of a second) before it; NIC
//! statistics are in the last file.
//!
//! `--direct` writes blocks of 1 MiB by `pwrite` with `O_DIRECT`, from the sink thread. io_uring is not used: its
//! advantage is several writes in flight, which `linerate-bench disk` measures as `direct x4`, by threads. On the
//! tested disk that was no faster than `direct` (1.72 and 2.07 GB/s, 1 GiB in one run). Space is allocated
//! (`fallocate`) before a block, so a full disk is reported before frames are accepted. LZ4 is `lz4_flex` (blocks)
//! with our own frames, so that a file can be ended after any piece; `twox-hash` computes checksums for it and
//! Parquet.
//!
//! # Metadata of pcapng files
//!
//! It is carried in `Interface::origin`, which only this crate interprets: options of section and interfaces,
//! statistics, names and secrets, encoded in native byte order. Frame comments are in a list shared with the writer;
//! the desc of a frame has the number of its comment (`note`, 16 bits, wrapping; the frame's time distinguishes
//! rounds). So merge, filter and memory need not know about comments, and comments of filtered frames are dropped with
//! them.
//!
//! Kept of frames: `epb_flags`, comments, hash, drop count, packet number, queue, verdict, process. Direction, an FCS
//! and a wrong checksum are flags of the desc, the rest are notes. Of interfaces: all options but those on the
//! resolution of times, which are nanoseconds here. One section is written: its header is that of the first section of
//! the file; with several files it has their comments. Custom blocks that may be copied, and systemd journals, are
//! kept unchanged. Interface statistics of a file are notes in the ledger (`file_seen`, `file_dropped`) and are
//! written to the new file.
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
pub mod time_parser;
pub mod writer;

pub use aligned::{ALIGNMENT, AlignedBytes};
pub use compression::{Compressed, Compression, plain};
pub use date::date;
pub use error::ReadError;
pub use file::{Output, numbered};
pub use reader::Reader;
pub use recording::{Limits, Recording, Sync, WriteErrorPolicy};
pub use writer::{Format, OutputPosition, Writer};
