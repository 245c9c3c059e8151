//! Reads a file or pipe in large pieces into one buffer.

use linerate_burst::TAIL;
use std::io::{ErrorKind, Read, Result};

/// Bytes read at a time: large enough to amortise the system call, small enough that the data is still in the L2 cache
/// when parsed.
const PIECE: usize = 256 << 10;

/// Maximum record length in bytes: a frame of the maximum length, and as much again for the options of a pcapng block.
pub(crate) const LONGEST_RECORD: usize = 2 * linerate_burst::MAX_FRAME;

/// Pieces are page aligned, which the kernel copies to fastest.
const PAGE: usize = 4096;

/// A buffer over a source. Bytes between the cursor and the end of the data are available; reading moves the few
/// remaining ones before a fixed position, so that each piece is read to the same pages.
pub(crate) struct Input {
    source: Box<dyn Read + Send>,
    memory: Vec<u8>,
    front: usize,
    start: usize,
    end: usize,
    /// Offset in the source of the first byte of `memory`; wraps below 0.
    base: u64,
    exhausted: bool,
}

impl Input {
    pub(crate) fn new(source: Box<dyn Read + Send>) -> Self {
        let memory = vec![0; PAGE + LONGEST_RECORD + PIECE + TAIL];
        let front = LONGEST_RECORD + memory[LONGEST_RECORD..].as_ptr().align_offset(PAGE).min(PAGE);
        Input {
            source,
            memory,
            front,
            start: front,
            end: front,
            base: 0u64.wrapping_sub(front as u64),
            exhausted: false,
        }
    }

    /// Returns the bytes not consumed, and the source, which continues after them.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Box<dyn Read + Send>) {
        (self.memory[self.start..self.end].to_vec(), self.source)
    }

    /// Returns the whole buffer, with at least [`TAIL`] bytes after the data.
    pub(crate) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Returns the buffer up to the end of the data, and the position of the cursor.
    pub(crate) fn read_so_far(&self) -> (&[u8], usize) {
        (&self.memory[..self.end], self.start)
    }

    /// Returns the available bytes.
    pub(crate) fn available(&self) -> &[u8] {
        &self.memory[self.start..self.end]
    }

    /// Returns the position of the cursor, in bytes from the start of the source.
    pub(crate) fn offset(&self) -> u64 {
        self.base.wrapping_add(self.start as u64)
    }

    /// Moves the cursor to a position in the buffer, at most to the end of the data.
    pub(crate) fn move_to(&mut self, at: usize) {
        self.start = at.min(self.end);
    }

    /// Skips at most `bytes` of the available bytes. Returns how many.
    pub(crate) fn skip(&mut self, bytes: u64) -> u64 {
        let skipped = bytes.min(self.available().len() as u64);
        self.start += skipped as usize;
        skipped
    }

    /// Reads once; returns false at the end of the source. An interrupted read has returned nothing, and may be
    /// repeated. Available bytes stay available but may move, so no references into the buffer may be kept. At most
    /// [`LONGEST_RECORD`] may be available.
    pub(crate) fn read_more(&mut self) -> Result<bool> {
        if self.exhausted {
            return Ok(false);
        }
        if self.end + PIECE + TAIL > self.memory.len() || self.start == self.end || self.start >= self.front {
            self.make_room();
        }
        let room = self.end..self.end + PIECE;
        let count = match self.source.read(&mut self.memory[room]) {
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            result => result?.min(PIECE),
        };
        self.end += count;
        self.exhausted = count == 0;
        Ok(count > 0)
    }

    /// Moves the available bytes directly before the next piece.
    fn make_room(&mut self) {
        let start = self.front - self.available().len();
        self.memory.copy_within(self.start..self.end, start);
        self.base = self.base.wrapping_add(self.start as u64).wrapping_sub(start as u64);
        self.start = start;
        self.end = self.front;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_offsets_survive_every_move() {
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut input = Input::new(Box::new(std::io::Cursor::new(bytes.clone())));
        let mut step = 1;
        loop {
            let offset = input.offset() as usize;
            let available = input.available();
            assert_eq!(available, &bytes[offset..offset + available.len()]);
            let (memory, start) = input.read_so_far();
            assert!(memory.len() + TAIL <= input.memory().len() && &memory[start..] == available);
            step = step * 5 % 300_007;
            let leave = (step as usize).min(LONGEST_RECORD);
            let surplus = available.len().saturating_sub(leave);
            input.skip(surplus as u64);
            if !input.read_more().unwrap() {
                break;
            }
        }
        assert_eq!(input.offset() as usize + input.available().len(), bytes.len());
    }
}
