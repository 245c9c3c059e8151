//! Positioned reads of an open file, for several threads at a time: without a shared position.

use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Read-ahead in bytes: a sequential reader needs the header of a page, and reads the rest by its length.
const AHEAD: usize = 512;

/// An open file of known size.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    file: Arc<File>,
    size: u64,
    /// Bytes read, of this file and others.
    read: Arc<AtomicU64>,
}

/// Sequential reader from a position.
pub(crate) struct PieceReader {
    of: Pieces,
    at: u64,
}

impl Pieces {
    /// Wraps a file; `read` counts the bytes read.
    pub(crate) fn of(file: File, read: &Arc<AtomicU64>) -> io::Result<Self> {
        Ok(Pieces { size: file.metadata()?.len(), file: Arc::new(file), read: Arc::clone(read) })
    }

    /// Reads `length` bytes from `start` on.
    pub(crate) fn piece(&self, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

impl Read for PieceReader {
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
    type T = BufReader<PieceReader>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::with_capacity(AHEAD, PieceReader { of: self.clone(), at: start }))
    }

    /// Allocates at most the size of the file, whatever length it states.
    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.size) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} lie beyond the end of the file")));
        }
        Ok(self.piece(start, length)?.into())
    }
}
