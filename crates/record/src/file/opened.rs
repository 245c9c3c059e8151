//! What is behind a path, or anything that takes bytes, as a target.

use super::{MODE, Target};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Times the path is looked at anew when it appears or goes between two looks.
const LOOKS: usize = 8;

/// Opens a file to write it, and says whether it was made for that.
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

/// The file, locked as long as it is open where it is a regular one. File systems without locks are written to all the same.
///
/// # Errors
/// Another output has it.
pub(super) fn lock(file: File) -> io::Result<File> {
    if file.metadata()?.is_file() && matches!(file.try_lock(), Err(TryLockError::WouldBlock)) {
        let text = "the file is being written by another run, or by another output of this one; write to another file";
        return Err(io::Error::new(ErrorKind::ResourceBusy, text));
    }
    Ok(file)
}

/// What a file has is replaced by what is written to it: an existing one is emptied before the first write, so that it stays
/// as it was where a run fails before that.
pub struct Replaced {
    file: File,
    is_older: bool,
}

impl Replaced {
    /// Over a regular file that is open for writing at its begin.
    pub(super) fn new(file: File) -> io::Result<Self> {
        Ok(Replaced { is_older: file.metadata()?.len() > 0, file })
    }

    fn empty(&mut self) -> io::Result<()> {
        if self.is_older {
            self.file.set_len(0)?;
            self.is_older = false;
        }
        Ok(())
    }
}

impl Write for Replaced {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.empty()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens a file to be replaced by what is written: as [`Output::open`](super::Output::open) does, but without compression.
///
/// # Errors
/// Those of `open(2)`; another output has the file.
pub fn replace(path: &str) -> io::Result<Replaced> {
    Replaced::new(open_file(path)?.0)
}

/// A file descriptor, and whether it is a regular file.
pub(super) struct Opened {
    pub file: Replaced,
    pub regular: bool,
    /// Whether it is known by a name: standard output may well be a file without any, and so may what /proc/self/fd leads to.
    pub has_name: bool,
}

impl Opened {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        let regular = data.is_file();
        let file = if regular { Replaced::new(file)? } else { Replaced { file, is_older: false } };
        Ok(Opened { file, regular, has_name: data.nlink() > 0 })
    }

    /// Standard output: what it leads to is written on.
    pub(super) fn output(file: File) -> io::Result<Self> {
        let mut opened = Opened::new(file)?;
        (opened.file.is_older, opened.has_name) = (false, false);
        Ok(opened)
    }
}

impl Target for Opened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                // Whoever shares the pipe may have made it non-blocking.
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
        // Standard output may stand in the middle of somebody's file: what lies behind is not ours.
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
