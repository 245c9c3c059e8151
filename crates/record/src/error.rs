//! Why a capture file cannot be read, or not to its end.

use crate::compression::CUT_OFF;
use linerate_burst::MAX_FRAME;
use std::io;

/// Why reading stopped, in classes that say what the user can do. All complete frames before the place
/// named were handed out first.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The first bytes are those of no capture file.
    #[error("{name}: not a pcap or pcapng file: {found}; editcap -F pcapng converts other capture formats")]
    NotACapture {
        /// The file, as the user named it.
        name: String,
        /// What is there instead.
        found: String,
    },
    /// The file is compressed in a way that is not read here.
    #[error("{name}: compressed: decompress it first ({tool} -dc {name} | linerate ... -r -)")]
    Compressed {
        /// The file, as the user named it.
        name: String,
        /// The program that decompresses it.
        tool: &'static str,
    },
    /// The file is compressed, and what is compressed is cut off or damaged.
    #[error("{name}: {method} data is damaged at byte {offset}: {what}; the {frames} frames before it were read")]
    Decompression {
        /// The file, as the user named it.
        name: String,
        /// gzip, zstd or lz4.
        method: &'static str,
        /// Where, in bytes from the beginning of the compressed file, to within a block.
        offset: u64,
        /// What is wrong.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// The file ends inside a record.
    #[error(
        "{name}: cut off in the middle of the record at byte {offset}: {needed} bytes belong there, {present} are \
         left; the {frames} frames before it are complete"
    )]
    CutOff {
        /// The file, as the user named it.
        name: String,
        /// Where the record begins, in bytes from the beginning of the file.
        offset: u64,
        /// Bytes the record needs, as far as it can be told.
        needed: u64,
        /// Bytes of it that are there.
        present: u64,
        /// Complete frames before it.
        frames: u64,
    },
    /// A record contradicts itself, so that nothing behind it can be found.
    #[error("{name}: damaged at byte {offset}: {what}; the {frames} frames before it were read")]
    Damaged {
        /// The file, as the user named it.
        name: String,
        /// Where the record begins, in bytes from the beginning of the file.
        offset: u64,
        /// What is wrong with it.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// The file is sound as far as can be told, but beyond what is read here.
    #[error("{name}: unsupported at byte {offset}: {what}; the {frames} frames before it were read")]
    Unsupported {
        /// The file, as the user named it.
        name: String,
        /// Where it is, in bytes from the beginning of the file.
        offset: u64,
        /// What it is.
        what: String,
        /// Complete frames before it.
        frames: u64,
    },
    /// The system could not read.
    #[error("{name}: cannot read on from byte {offset}: {reason}")]
    Io {
        /// The file, as the user named it.
        name: String,
        /// How far the file was read, in bytes.
        offset: u64,
        /// What the system says.
        #[source]
        reason: io::Error,
    },
}

impl ReadError {
    /// Whether the file ends in the middle of something, as one does that is being written; what there is of it is sound.
    pub fn is_cut_off(&self) -> bool {
        match self {
            ReadError::CutOff { .. } => true,
            ReadError::Decompression { what, .. } => what == CUT_OFF,
            _ => false,
        }
    }
}

/// What a parser found wrong with the record under its cursor.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Damaged(String),
    Unsupported(String),
}

impl Fault {
    /// A frame beyond [`MAX_FRAME`].
    #[cold]
    pub(crate) fn too_long(length: u32) -> Self {
        Fault::Damaged(format!("a frame of {length} bytes, and none may be longer than {MAX_FRAME}"))
    }

    /// A record that contradicts itself.
    #[cold]
    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Fault::Damaged(what.into())
    }
}

/// Why a parser stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is no room for another desc.
    Full,
    /// The record under the cursor is not all there: this many bytes are needed from the cursor on.
    Need(usize),
    /// The cursor has this many bytes of no interest before it.
    Skip(u64),
    /// Nothing behind the cursor can be read.
    Stop(Fault),
}
