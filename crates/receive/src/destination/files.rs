//! Streams in files, and a list of their frames.
//!
//! A frame is in the list once all of it is in its file; whatever goes wrong, what the list names is there. Nothing is written over:
//! files are made anew, in a folder that has no list yet.

use super::index::{COLUMNS, file_name, line};
use super::{Destination, DestinationError, Stored};
use crate::frames::Frame;
use crate::place::StreamId;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How files are to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesConfig {
    /// A file for each frame, and not for each stream.
    pub per_frame: bool,
    /// Past the page cache (`O_DIRECT`).
    pub direct: bool,
}

/// What direct writes want lengths and places to be multiples of.
const BLOCK: usize = 4096;
/// Of new files, since they hold what others said.
const MODE: u32 = 0o600;
/// So many files are open at a time, twice if written directly too: a process may have 1024 of any kind by default.
const MOST_OPEN: usize = 256;
/// The list.
const LIST: &str = "frames.csv";

/// Writes frames to files of one folder.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    folder: OwnedFd,
    config: FilesConfig,
    list: File,
    /// Bytes of the list.
    listed: u64,
    /// Those of streams that have not ended.
    open: BTreeMap<StreamId, Pair>,
    stored: Stored,
}

/// The file of a stream.
#[derive(Debug)]
struct Pair {
    name: String,
    /// Closed while others need it more: only so many are open at a time.
    open: Option<Open>,
    /// When it was written last: which frame of all.
    used: u64,
    /// Where in the stream its first byte is: that of the first frame. Datagrams may begin anywhere below 2^64, files may not.
    base: u64,
    /// Where what was written ends.
    end: u64,
}

/// A file, and the same once more without the page cache.
#[derive(Debug)]
struct Open {
    plain: File,
    direct: Option<File>,
}

impl Files {
    /// Makes the folder, if it is not there, and the list in it. Frames will have so many bytes.
    ///
    /// # Errors
    /// If that cannot be done, or if there is a list already.
    pub fn create(path: &Path, frame: usize, config: FilesConfig) -> Result<Self, DestinationError> {
        if config.direct && !frame.is_multiple_of(BLOCK) {
            return Err(DestinationError::Blocks(frame));
        }
        let fail = |error: io::Error| DestinationError::Folder { path: path.to_owned(), error };
        std::fs::create_dir_all(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                fail(io::Error::new(ErrorKind::NotADirectory, "this is there, and is no folder: name another one"))
            }
            _ => fail(error),
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?;
        let list = match make(folder.as_fd(), LIST) {
            Err(Errno::EXIST) => return Err(DestinationError::Taken(path.join(LIST))),
            made => made.map_err(|errno| DestinationError::Make { path: path.join(LIST), error: errno.into() })?,
        };
        let (open, stored) = (BTreeMap::new(), Stored::default());
        let mut files = Files { path: path.to_owned(), folder, config, list, listed: 0, open, stored };
        files.list(COLUMNS)?;
        Ok(files)
    }

    /// The folder, in which files are made while frames come.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    fn list(&mut self, text: &str) -> Result<(), DestinationError> {
        let written = self.list.write_all(text.as_bytes());
        if let Err(error) = written {
            // No half line stays.
            let _ = self.list.set_len(self.listed);
            return Err(DestinationError::Write { path: self.path.join(LIST), error, kept: self.listed });
        }
        self.listed += text.len() as u64;
        Ok(())
    }

    /// Opens a file, which is new or was there before.
    fn open(&self, name: &str, is_new: bool) -> Result<Open, DestinationError> {
        let fail = |error| DestinationError::Make { path: self.path.join(name), error };
        let again = || {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            openat(self.folder(), name, flags, Mode::empty()).map(File::from)
        };
        let plain = if is_new { make(self.folder(), name) } else { again() };
        let plain = plain.map_err(|errno| fail(errno.into()))?;
        let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let direct = match self.config.direct.then(|| openat(self.folder(), name, flags, Mode::empty())) {
            None => None,
            Some(Ok(file)) => Some(File::from(file)),
            Some(Err(Errno::INVAL)) => {
                return Err(fail(io::Error::other("this file system takes no direct writes: leave --direct out")));
            }
            Some(Err(errno)) => return Err(fail(errno.into())),
        };
        Ok(Open { plain, direct })
    }

    /// The file of a frame, made if there is none.
    fn pair(&mut self, frame: &Frame) -> Result<Pair, DestinationError> {
        if let Some(mut pair) = self.open.remove(&frame.meta.stream) {
            if pair.open.is_none() {
                pair.open = Some(self.open(&pair.name, false)?);
            }
            return Ok(pair);
        }
        let mut name = file_name(frame.meta.stream, &frame.meta.ends);
        if self.config.per_frame {
            name.push_str(&format!("_{:06}", frame.meta.number));
        }
        let open = Some(self.open(&name, true)?);
        self.stored.files += 1;
        Ok(Pair { name, open, used: 0, base: frame.meta.offset, end: 0 })
    }

    /// Keeps the file of a stream that goes on; the one that was not used for longest is closed if too many are open.
    fn keep(&mut self, stream: StreamId, pair: Pair) {
        let open = |pair: &&mut Pair| pair.open.is_some();
        if self.open.values_mut().filter(open).count() >= MOST_OPEN
            && let Some(oldest) = self.open.values_mut().filter(open).min_by_key(|pair| pair.used)
        {
            oldest.open = None;
        }
        self.open.insert(stream, Pair { used: self.stored.frames, ..pair });
    }
}

impl Destination for Files {
    fn accept(&mut self, frame: &Frame) -> Result<(), DestinationError> {
        let mut pair = self.pair(frame)?;
        let at = frame.meta.offset.saturating_sub(pair.base);
        if let Err(error) = pair.write(frame, at) {
            pair.open.iter().for_each(|open| drop(open.plain.set_len(pair.end)));
            return Err(DestinationError::Write { path: self.path.join(&pair.name), error, kept: pair.end });
        }
        self.list(&line(&frame.meta, frame.missing(), &pair.name))?;
        if !self.config.per_frame && frame.meta.ending.is_none() {
            self.keep(frame.meta.stream, pair);
        }
        self.stored.count(frame);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), DestinationError> {
        self.list.flush().map_err(|error| DestinationError::Write {
            path: self.path.join(LIST),
            error,
            kept: self.listed,
        })
    }

    fn stored(&self) -> Stored {
        self.stored
    }
}

impl Pair {
    /// Writes the bytes of a frame, whole blocks directly if that is asked for.
    fn write(&mut self, frame: &Frame, at: u64) -> io::Result<()> {
        let bytes = frame.bytes();
        let Some(Open { plain, direct }) = &self.open else { return Err(io::Error::other("it is closed")) };
        let whole = if direct.is_some() { bytes.len() / BLOCK * BLOCK } else { 0 };
        if let Some(direct) = direct {
            direct.write_all_at(&bytes[..whole], at)?;
        }
        plain.write_all_at(&bytes[whole..], at + whole as u64)?;
        self.end = at + bytes.len() as u64;
        Ok(())
    }
}

/// A file that was not there.
fn make(folder: BorrowedFd<'_>, name: &str) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, name, flags, Mode::from_raw_mode(MODE)).map(File::from)
}
