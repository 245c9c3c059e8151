//! What is sent: a pattern, zeros, a file.

use crate::signals::opening;
use anyhow::Context;
use linerate_backends::transfer::Source;
use linerate_receive::pattern;
use std::fs::File;
use std::io::{self, Read};

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
    File(Box<dyn Read + Send>, String),
}

impl Bytes {
    pub fn of_pattern(pattern: Pattern, key: u64) -> Self {
        match pattern {
            Pattern::Keyed => Bytes::Pattern(pattern::Pattern::new(key)),
            Pattern::None => Bytes::Zeros,
        }
    }

    pub fn of_file(path: &str) -> anyhow::Result<Self> {
        let input: Box<dyn Read + Send> = match path {
            "-" => Box::new(io::stdin()),
            path => Box::new(opening(path, || File::open(path)).with_context(|| path.to_owned())?),
        };
        Ok(Bytes::File(input, path.to_owned()))
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

fn read(file: &mut dyn Read, path: &str, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result.map_err(|error| io::Error::other(format!("reading {path}: {error}"))),
        }
    }
}
