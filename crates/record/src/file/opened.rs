//! What is behind a path, or anything that takes bytes, as a target.

use super::{MODE, Target};
use rustix::event::{PollFd, PollFlags, poll};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Times the path is looked at anew when it appears or goes between two looks.
const LOOKS: usize = 8;

pub(super) fn open_file(path: &str) -> io::Result<File> {
    let no_terminal = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let mut last = ErrorKind::AlreadyExists.into();
    for _ in 0..LOOKS {
        match OpenOptions::new().write(true).create_new(true).mode(MODE).open(path) {
            Ok(file) => return Ok(file),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match OpenOptions::new().write(true).custom_flags(no_terminal).open(path) {
            Ok(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                return Ok(file);
            }
            Err(error) if error.kind() == ErrorKind::NotFound => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

/// A file descriptor, and whether it is a regular file.
pub(super) struct Opened {
    pub file: File,
    pub regular: bool,
    /// Whether it is known by a name: standard output may well be a file without any, and so may what /proc/self/fd leads to.
    pub has_name: bool,
}

impl Opened {
    pub fn new(file: File) -> io::Result<Self> {
        let data = file.metadata()?;
        Ok(Opened { file, regular: data.is_file(), has_name: data.nlink() > 0 })
    }
}

impl Target for Opened {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                // Whoever shares the pipe may have made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None)?;
                }
                result => return result,
            }
        }
    }

    fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let end = if self.regular { self.file.stream_position()? } else { 0 };
        // Standard output may stand in the middle of somebody's file: what lies behind is not ours.
        if !self.regular || end < bytes || self.file.metadata()?.len() != end {
            return Ok(false);
        }
        self.file.set_len(end - bytes)?;
        self.file.seek(SeekFrom::Start(end - bytes))?;
        Ok(true)
    }

    fn is_removed(&self) -> bool {
        self.regular && self.has_name && self.file.metadata().is_ok_and(|data| data.nlink() == 0)
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
