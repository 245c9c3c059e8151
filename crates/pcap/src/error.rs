//! Errors of reading capture files.

use crate::compression::CUT_OFF;
use linerate_burst::MAX_FRAME;
use std::io;

fn packets(number: u64) -> String {
    if number == 1 { "1 packet".to_owned() } else { format!("{number} packets") }
}

/// Errors of reading, in classes by remedy. All complete frames before the offset were returned first.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The first bytes are not those of a capture file.
    #[error("{name}: not a pcap or pcapng file: {found}; convert other capture formats with editcap -F pcapng")]
    NotACapture {
        /// File name as given by the user.
        name: String,
        /// Description of the actual content.
        found: String,
    },
    /// The compression is not supported.
    #[error("{name}: unsupported compression; decompress it first ({tool} -dc {name} | linerate ... -r -)")]
    Compressed {
        /// File name as given by the user.
        name: String,
        /// Program that decompresses it.
        tool: &'static str,
    },
    /// The compressed data is truncated or damaged.
    #[error("{name}: {method} data is damaged at byte {offset}: {what}; {} before it", packets(*.frames))]
    Decompression {
        /// File name as given by the user.
        name: String,
        /// gzip, zstd or lz4.
        method: &'static str,
        /// Offset from the start of the compressed file in bytes, to within a block.
        offset: u64,
        /// Description of the problem.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// The file ends inside a record.
    #[error(
        "{name}: cut off in the middle of the record at byte {offset} ({present} of {needed} bytes \
         present); {} before it",
        packets(*.frames)
    )]
    CutOff {
        /// File name as given by the user.
        name: String,
        /// Start of the record, in bytes from the start of the file.
        offset: u64,
        /// Bytes that the record needs, as far as known.
        needed: u64,
        /// Bytes of it that are present.
        present: u64,
        /// Complete frames before it.
        frames: u64,
    },
    /// A record contradicts itself, so later ones cannot be found.
    #[error("{name}: damaged at byte {offset}: {what}; {} before it", packets(*.frames))]
    Damaged {
        /// File name as given by the user.
        name: String,
        /// Start of the record, in bytes from the start of the file.
        offset: u64,
        /// Description of the problem.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// The file seems valid, but uses an unsupported feature.
    #[error("{name}: unsupported at byte {offset}: {what}; {} before it", packets(*.frames))]
    Unsupported {
        /// File name as given by the user.
        name: String,
        /// Offset from the start of the file in bytes.
        offset: u64,
        /// Description of the feature.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// A system call failed.
    #[error("{name}: cannot read at byte {offset}: {reason}")]
    Io {
        /// File name as given by the user.
        name: String,
        /// Bytes read so far.
        offset: u64,
        /// Cause.
        #[source]
        reason: io::Error,
    },
}

impl ReadError {
    /// Returns whether the file ends inside a record, as one that is still being written; complete records are valid.
    pub fn is_cut_off(&self) -> bool {
        match self {
            ReadError::CutOff { .. } => true,
            ReadError::Decompression { what, .. } => what == CUT_OFF,
            _ => false,
        }
    }
}

/// Problem of the record at the cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Damaged(String),
    Unsupported(String),
}

impl Fault {
    /// Returns the fault of a frame beyond [`MAX_FRAME`].
    #[cold]
    pub(crate) fn too_long(length: u32) -> Self {
        Fault::Damaged(format!("packet length {length} exceeds the maximum of {MAX_FRAME} bytes"))
    }

    /// Returns the fault of a record that contradicts itself.
    #[cold]
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Fault::Damaged(what.into())
    }
}

/// Reasons why a parser stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// `descs` is full.
    Full,
    /// The record at the cursor is incomplete: this many bytes are needed from the cursor.
    Need(usize),
    /// This many bytes at the cursor can be skipped.
    Skip(u64),
    /// Nothing after the cursor can be read.
    Stop(Fault),
}
