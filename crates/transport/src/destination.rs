//! Sinks for finished frames.
//!
//! A destination accepts frames one by one, in the order in which they were finished, and returns each. After an error
//! only [`finish`](Destination::finish) is called: everything accepted before is complete, and the caller counts the
//! rest.

mod files;
mod index;

pub use self::files::{Files, FilesConfig};

use crate::frames::Frame;
use crate::pattern::{Mismatch, Pattern};
use crate::stream_memory::StreamId;
use std::io;
use std::path::PathBuf;

/// Sink for finished frames.
pub trait Destination: Send {
    /// Stores a frame; its memory is reused afterwards.
    ///
    /// # Errors
    /// If it cannot accept more frames; this one does not count as accepted.
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError>;

    /// Completes the output after the last frame.
    ///
    /// # Errors
    /// If accepted frames cannot be completed.
    fn finish(&mut self) -> Result<(), DestinationError>;

    /// Returns the totals accepted so far.
    fn stored(&self) -> DestinationTotals;
}

/// Totals of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestinationTotals {
    /// Frames.
    pub frames: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Files created.
    pub files: u64,
}

impl DestinationTotals {
    fn count(&mut self, frame: &Frame) {
        self.frames += 1;
        self.bytes += frame.meta.len as u64;
    }
}

/// Errors of a destination.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// Wrong byte.
    #[error("stream {stream}: {mismatch}")]
    Mismatch {
        /// Stream.
        stream: StreamId,
        /// Position and value of the byte.
        mismatch: Mismatch,
    },
    /// The folder does not exist and cannot be created.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Path.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// The folder has the list of frames of another run.
    #[error("{}: already exists; use another folder or move it away", .0.display())]
    Taken(PathBuf),
    /// A file cannot be created.
    #[error("{}: cannot create: {error}", path.display())]
    Make {
        /// Path.
        path: PathBuf,
        /// Cause.
        error: io::Error,
    },
    /// A write failed.
    #[error("{}: {error}; first {kept} bytes are complete; make room there or write elsewhere", path.display())]
    Write {
        /// Path.
        path: PathBuf,
        /// Cause.
        error: io::Error,
        /// Bytes written before.
        kept: u64,
    },
    /// The frame size is not a multiple of the block size of direct writes.
    #[error("frames of {0} bytes: invalid size for direct writes; use a multiple of 4096")]
    Blocks(usize),
    /// Error of a destination outside this crate.
    #[error("{0}")]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
}

/// Discards frames; optionally verifies every byte.
#[derive(Debug, Default)]
pub struct Discard {
    /// Expected pattern. Missing bytes are skipped.
    pub verify: Option<Pattern>,
    stored: DestinationTotals,
}

impl Discard {
    /// Discards frames, and fails at the first byte that does not match the pattern.
    pub fn verifying(pattern: Pattern) -> Self {
        Discard { verify: Some(pattern), stored: DestinationTotals::default() }
    }
}

impl Destination for Discard {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        for there in frame.there().filter(|_| self.verify.is_some()) {
            let bytes = &frame.bytes()[there.start as usize..there.end as usize];
            let checked =
                self.verify.as_ref().map_or(Ok(()), |pattern| pattern.check(frame.meta.offset + there.start, bytes));
            checked.map_err(|mismatch| DestinationError::Mismatch { stream: frame.meta.stream, mismatch })?;
        }
        self.stored.count(frame);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        Ok(())
    }

    fn stored(&self) -> DestinationTotals {
        self.stored
    }
}
