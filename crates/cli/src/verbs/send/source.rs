//! Data to send: a pattern, zeros, or a file.

use crate::signals::opening;
use anyhow::Context;
use linerate_backends::transfer::Source;
use linerate_transport::pattern;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::time::Duration;

/// Maximum wait for input before stop requests are checked.
const LOOK: Duration = Duration::from_millis(100);

/// Generated data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pattern {
    /// Position-dependent bytes that the receiver can verify
    Keyed,
    /// Zeros, for the lowest sender cost
    None,
}

/// Source of the data.
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
            // The buffer is zeroed, and nothing writes to it.
            Bytes::Zeros => {}
            Bytes::File(file, path) => return read(file, path, buffer),
        }
        Ok(buffer.len())
    }
}

/// Reads input; fails with `WouldBlock` after a short wait without data, since a pipe may stay idle.
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

/// Returns whether a read returns at once: with data, the end or an error. Regular files always are ready.
fn is_ready(file: &File) -> io::Result<bool> {
    let longest = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&longest)) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
