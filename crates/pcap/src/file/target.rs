//! Targets: opened paths and other writers.

use super::{MODE, Target};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Attempts to open a path that appears or disappears in between.
const LOOKS: usize = 8;

/// Opens a file for writing. Also returns whether it was created.
pub(super) fn open_file(path: &str) -> io::Result<(File, bool)> {
    let no_terminal = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let mut last = ErrorKind::AlreadyExists.into();
    for _ in 0..LOOKS {
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
            Ok(file) => return Ok((lock(file)?, true)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match OpenOptions::new().write(true).custom_flags(no_terminal).open(path) {
            Ok(file) => return Ok((lock(file)?, false)),
            Err(error) if error.kind() == ErrorKind::NotFound => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// Locks a regular file while it is open. File systems without locks are written to without.
///
/// # Errors
/// If another output has the file locked.
pub(super) fn lock(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let text = "file is being written by another run, or by another output of this one; write to another file";
        return Err(io::Error::new(ErrorKind::ResourceBusy, text));
    }
    Ok(file)
}

/// Replaces the content of a file: an existing one is emptied before the first write, so that it stays unchanged if a
/// run fails earlier.
pub struct ReplacedFile {
    file: File,
    is_older: bool,
}

impl ReplacedFile {
    /// Wraps a regular file opened for writing at its start.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(ReplacedFile { is_older: file.metadata()?.len() > 0, file })
    }

    fn empty(&mut self) -> io::Result<()> {
        if self.is_older {
            self.file.set_len(0)?;
            self.is_older = false;
        }
        Ok(())
    }
}

impl Write for ReplacedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.empty()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file to be replaced, like [`Output::open`](super::Output::open), but without compression.
///
/// # Errors
/// Those of `open(2)`; if another output has the file.
pub fn replace(path: &str) -> io::Result<ReplacedFile> {
    ReplacedFile::new(open_file(path)?.0)
}

/// A file descriptor.
pub(super) struct OpenedFd {
    pub file: ReplacedFile,
    pub regular: bool,
    /// True if it has a name: standard output may be an unlinked file, and so may a path in /proc/self/fd.
    pub has_name: bool,
}

impl OpenedFd {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        let regular = data.is_file();
        let file = if regular { ReplacedFile::new(file)? } else { ReplacedFile { file, is_older: false } };
        Ok(OpenedFd { file, regular, has_name: data.nlink() > 0 })
    }

    /// Wraps standard output: a file is appended to.
    pub(super) fn output(file: File) -> io::Result<Self> {
        let mut opened = OpenedFd::new(file)?;
        (opened.file.is_older, opened.has_name) = (false, false);
        Ok(opened)
    }
}

impl Target for OpenedFd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                // Another process that shares the pipe may have made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.file.file, PollFlags::OUT)], None)?;
                }
                result => return result,
            }
        }
    }

    fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let file = &mut self.file.file;
        let end = if self.regular { file.stream_position()? } else { 0 };
        // Standard output may be in the middle of a file of another program: later data is not ours.
        if !self.regular || end < bytes || file.metadata()?.len() != end {
            return Ok(false);
        }
        file.set_len(end - bytes)?;
        file.seek(SeekFrom::Start(end - bytes))?;
        Ok(true)
    }

    fn is_removed(&self) -> bool {
        self.regular && self.has_name && self.file.file.metadata().is_ok_and(|data| data.nlink() == 0)
    }

    fn is_older(&self) -> bool {
        self.file.is_older
    }
}

pub(super) struct Stream(pub Box<dyn Write + Send>);

impl Target for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn take_back(&mut self, _bytes: u64) -> io::Result<bool> {
        Ok(false)
    }
}
