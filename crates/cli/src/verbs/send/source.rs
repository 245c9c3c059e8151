//! What is sent: a pattern, zeros, a file.

use crate::signals::opening;
use anyhow::Context;
use linerate_backends::transfer::Source;
use linerate_receive::pattern;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// How long to wait for what others write before the run is asked whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What is sent where no file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pattern {
    /// Bytes of which each says where it belongs
    Keyed,
    /// Zeros
    None,
}

/// Where the bytes come from.
pub(super) enum Bytes {
    Pattern(pattern::Pattern),
    Zeros,
    File(BufReader<File>, String),
}

impl Bytes {
    pub(super) fn of_pattern(pattern: Pattern, key: u64) -> Self {
        match pattern {
            Pattern::Keyed => Bytes::Pattern(pattern::Pattern::new(key)),
            Pattern::None => Bytes::Zeros,
        }
    }

    pub(super) fn of_file(path: &str) -> anyhow::Result<Self> {
        let input = match path {
            "-" => io::stdin().as_fd().try_clone_to_owned().map(File::from),
            path => opening(path, || File::open(path)),
        };
        Ok(Bytes::File(BufReader::new(input.with_context(|| path.to_owned())?), path.to_owned()))
    }
}

impl Source for Bytes {
    fn next(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::Pattern(pattern) => pattern.fill(offset, buffer),
            // It is made of them, and nobody writes to it.
            Bytes::Zeros => {}
            Bytes::File(file, path) => return read(file, path, buffer),
        }
        Ok(buffer.len())
    }
}

/// `WouldBlock` where nothing came for a moment: a pipe may be quiet for ever.
fn read(file: &mut BufReader<File>, path: &str, buffer: &mut [u8]) -> io::Result<usize> {
    if file.buffer().is_empty() && !is_ready(file.get_ref())? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    match file.read(buffer) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(error),
        result => result.map_err(|error| io::Error::other(format!("reading {path}: {error}"))),
    }
}

/// Also at its end, and where it cannot be read: that is then told at once. Files of a disk always are.
fn is_ready(file: &File) -> io::Result<bool> {
    let longest = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&longest)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
