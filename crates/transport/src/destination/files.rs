//! Writes streams to files, with a list of their frames.
//!
//! A frame is listed once it is completely written, so the list is valid after any failure. Nothing is overwritten:
//! files are created exclusively, in a folder that has no list yet.

use super::index::{COLUMNS, file_name, line};
use super::{Destination, DestinationError, DestinationTotals};
use crate::frames::Frame;
use crate::stream_memory::StreamId;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Configuration of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilesConfig {
    /// One file per frame instead of per stream.
    pub per_frame: bool,
    /// Bypass the page cache (`O_DIRECT`).
    pub direct: bool,
}

/// Alignment of lengths and offsets for direct writes.
const BLOCK: usize = 4096;
/// Mode of new files: private, since they hold captured content.
const MODE: u32 = 0o600;
/// Maximum number of open streams (two descriptors each with direct writes): a process may have 1024 descriptors by
/// default.
const MOST_OPEN: usize = 256;
/// Name of the list.
const LIST: &str = "frames.csv";

/// Writes frames to files in one folder.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    folder: OwnedFd,
    config: FilesConfig,
    list: File,
    /// Length of the list in bytes.
    listed: u64,
    /// Files of streams that have not ended.
    open: BTreeMap<StreamId, StreamFile>,
    stored: DestinationTotals,
}

#[derive(Debug)]
struct StreamFile {
    name: String,
    /// `None` while closed: the number of open files is limited.
    open: Option<FileHandles>,
    /// Number of frames written before its last use.
    used: u64,
    /// Stream offset of its first byte: that of the first frame. Datagrams may start anywhere below 2^64, files may
    /// not.
    base: u64,
    /// End of the written part.
    end: u64,
}

/// A file, opened with and without the page cache.
#[derive(Debug)]
struct FileHandles {
    plain: File,
    direct: Option<File>,
}

impl Files {
    /// Creates the folder, if needed, and the list in it. `frame`: size of frames in bytes.
    ///
    /// # Errors
    /// If the folder or list cannot be created, or a list already exists.
    pub fn create(path: &Path, frame: usize, config: FilesConfig) -> Result<Self, DestinationError> {
        if config.direct && !frame.is_multiple_of(BLOCK) {
            return Err(DestinationError::Blocks(frame));
        }
        let fail = |error: io::Error| DestinationError::Folder { path: path.to_owned(), error };
        std::fs::create_dir_all(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                fail(io::Error::new(ErrorKind::NotADirectory, "not a directory; use another path"))
            }
            _ => fail(error),
        })?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, path, flags, Mode::empty()).map_err(|errno| fail(errno.into()))?;
        let list = match make(folder.as_fd(), LIST) {
            Err(Errno::EXIST) => return Err(DestinationError::Taken(path.join(LIST))),
            made => made.map_err(|errno| DestinationError::Make { path: path.join(LIST), error: errno.into() })?,
        };
        let (open, stored) = (BTreeMap::new(), DestinationTotals::default());
        let mut files = Files { path: path.to_owned(), folder, config, list, listed: 0, open, stored };
        files.list(COLUMNS)?;
        Ok(files)
    }

    /// Returns the folder in which files are created during the run.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    fn list(&mut self, text: &str) -> Result<(), DestinationError> {
        let written = self.list.write_all(text.as_bytes());
        if let Err(error) = written {
            // Remove a partial line.
            let _ = self.list.set_len(self.listed);
            return Err(DestinationError::Write { path: self.path.join(LIST), error, kept: self.listed });
        }
        self.listed += text.len() as u64;
        Ok(())
    }

    /// Opens a file; `is_new`: creates it.
    fn open(&self, name: &str, is_new: bool) -> Result<FileHandles, DestinationError> {
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
                return Err(fail(io::Error::other("the file system does not support direct writes; omit --direct")));
            }
            Some(Err(errno)) => return Err(fail(errno.into())),
        };
        Ok(FileHandles { plain, direct })
    }

    /// Returns the file of a frame; creates it if needed.
    fn pair(&mut self, frame: &Frame) -> Result<StreamFile, DestinationError> {
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
        Ok(StreamFile { name, open, used: 0, base: frame.meta.offset, end: 0 })
    }

    /// Keeps the file of an unfinished stream; closes the least recently used one if too many are open.
    fn keep(&mut self, stream: StreamId, pair: StreamFile) {
        let open = |pair: &&mut StreamFile| pair.open.is_some();
        if self.open.values_mut().filter(open).count() >= MOST_OPEN
            && let Some(oldest) = self.open.values_mut().filter(open).min_by_key(|pair| pair.used)
        {
            oldest.open = None;
        }
        self.open.insert(stream, StreamFile { used: self.stored.frames, ..pair });
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

    fn stored(&self) -> DestinationTotals {
        self.stored
    }
}

impl StreamFile {
    /// Writes the bytes of a frame, whole blocks directly if configured.
    fn write(&mut self, frame: &Frame, at: u64) -> io::Result<()> {
        let bytes = frame.bytes();
        let Some(FileHandles { plain, direct }) = &self.open else { return Err(io::Error::other("file is closed")) };
        let whole = if direct.is_some() { bytes.len() / BLOCK * BLOCK } else { 0 };
        if let Some(direct) = direct {
            direct.write_all_at(&bytes[..whole], at)?;
        }
        plain.write_all_at(&bytes[whole..], at + whole as u64)?;
        self.end = at + bytes.len() as u64;
        Ok(())
    }
}

/// Creates a file; fails if it exists.
fn make(folder: BorrowedFd<'_>, name: &str) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    openat(folder, name, flags, Mode::from_raw_mode(MODE)).map(File::from)
}
