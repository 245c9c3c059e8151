//! Pieces of an open file, for several threads at a time: each names the place that it reads, and none moves where another is.

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that are read ahead: whoever reads on from a place wants the header of a page, and asks for the rest by its length.
const AHEAD: usize = 512;

/// An open file of a size that is known.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    file: Arc<File>,
    size: u64,
    /// Bytes that were read, of this file and others.
    read: Arc<AtomicU64>,
}

/// Reads on from a place.
pub(crate) struct From {
    of: Pieces,
    at: u64,
}

impl Pieces {
    /// A file, of which `read` counts what is read.
    pub(crate) fn of(file: File, read: &Arc<AtomicU64>) -> io::Result<Self> {
        Ok(Pieces { size: file.metadata()?.len(), file: Arc::new(file), read: Arc::clone(read) })
    }

    /// So many bytes from a place on.
    pub(crate) fn piece(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Read for From {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.of.file.read_at(into, self.at)?;
        self.of.read.fetch_add(count as u64, Ordering::Relaxed);
        self.at += count as u64;
        Ok(count)
    }
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for Pieces {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(AHEAD, From { of: self.clone(), at: start }))
    }

    /// No more memory is taken than the file has bytes, whatever it claims.
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are behind the end of the file")));
        }
        Ok(self.piece(start, length)?.into())
    }
}
