//! Where finished frames go.
//!
//! A destination takes frames one by one, in the order in which they were finished, and gives each back. After an error it is asked
//! for nothing more but to [`finish`](Destination::finish): what it has taken up to there is whole, and the rest is counted by who
//! hands frames over.

mod files;
mod index;

pub use self::files::{Files, FilesConfig};

use crate::frames::Frame;
use crate::pattern::{Mismatch, Pattern};
use crate::place::StreamId;
use std::io;
use std::path::PathBuf;

/// Takes finished frames.
pub trait Destination: Send {
    /// Takes what it needs of a frame; its memory is used again afterwards.
    ///
    /// # Errors
    /// If it can take no more frames; nothing of this one counts as taken.
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError>;

    /// There are no more.
    ///
    /// # Errors
    /// If what was taken cannot be completed.
    fn finish(&mut self) -> Result<(), DestinationError>;

    /// What it has taken.
    fn stored(&self) -> Stored;
}

/// What a destination has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that were made for these.
    pub files: u64,
}

impl Stored {
    fn count(&mut self, frame: &Frame) {
        self.frames += 1;
        self.bytes += frame.meta.len as u64;
    }
}

/// Frames go nowhere any more.
#[derive(Debug, thiserror::Error)]
pub enum DestinationError {
    /// A byte is not what it has to be.
    #[error("stream {stream}: {mismatch}")]
    Mismatch {
        /// Of which stream.
        stream: StreamId,
        /// Which byte.
        mismatch: Mismatch,
    },
    /// There is no such folder, and it cannot be made.
    #[error("{}: {error}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A list of frames is there, of another run.
    #[error("{}: there is one already: name another folder, or move this one away", .0.display())]
    Taken(PathBuf),
    /// A file cannot be made.
    #[error("{}: cannot be made: {error}", path.display())]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file takes no more.
    #[error("{}: {error}; {kept} bytes of it are whole: make room there or write elsewhere", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
        /// How much was written before.
        kept: u64,
    },
    /// Files are written in blocks that frames do not fill.
    #[error("frames of {0} bytes cannot be written directly: take a multiple of 4096")]
    Blocks(usize),
    /// What they go to is no part of this crate, and says so.
    #[error("{0}")]
    Elsewhere(Box<dyn std::error::Error + Send + Sync>),
}

/// Keeps nothing, and may look whether every byte is right.
#[derive(Debug, Default)]
pub struct Discard {
    /// What streams have to be. Bytes that did not come are left out.
    pub verify: Option<Pattern>,
    stored: Stored,
}

impl Discard {
    /// Keeps nothing, and fails at the first byte that is not of this pattern.
    pub fn verifying(pattern: Pattern) -> Self {
        Discard { verify: Some(pattern), stored: Stored::default() }
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

    fn stored(&self) -> Stored {
        self.stored
    }
}
