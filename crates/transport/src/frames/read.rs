//! The last read; a part of it may already be in its final place.

use super::stream::Stream;
use crate::stream_memory::StreamId;
use linerate_burst::MAX_FRAME;
use std::ops::Range;

/// Bytes of one read: the first at the expected place in a stream, the others in a buffer.
#[derive(Debug)]
pub(super) struct Read {
    /// Two halves: bytes that do not fit the expected place go to the second; bytes that turn out not to belong there
    /// are moved to the end of the first, so that all are contiguous.
    buffer: Vec<u8>,
    /// Position in the buffer of the first byte, real or virtual.
    base: usize,
    stream: StreamId,
    offset: u64,
    /// Bytes at the expected place; 0 once they were moved to the buffer.
    ahead: usize,
}

/// Maximum length of a read after its header.
pub(super) const LONGEST: usize = MAX_FRAME;

impl Read {
    pub(super) fn new() -> Self {
        Read { buffer: vec![0; 2 * LONGEST], base: LONGEST, stream: StreamId(0), offset: 0, ahead: 0 }
    }

    /// Returns the buffer for bytes that do not fit the expected place.
    pub(super) fn overflow(&mut self) -> &mut [u8] {
        &mut self.buffer[LONGEST..]
    }

    /// Records a read with `ahead` bytes at the expected place.
    pub(super) fn record(&mut self, stream: StreamId, offset: u64, ahead: usize) {
        (self.stream, self.offset, self.ahead, self.base) = (stream, offset, ahead, LONGEST - ahead);
    }

    /// Returns how many bytes from `from` are in place, if they belong to this offset.
    #[inline]
    pub(super) fn in_place(&self, stream: StreamId, offset: u64, from: usize, len: usize) -> usize {
        let fits = self.ahead > from && stream == self.stream && offset == self.offset + from as u64;
        if fits { len.min(self.ahead - from) } else { 0 }
    }

    /// Returns whether a part of it is stored at these bytes of a stream.
    #[inline]
    pub(super) fn is_at(&self, stream: StreamId, range: Range<u64>) -> bool {
        let ahead = self.offset..self.offset + self.ahead as u64;
        self.ahead > 0 && stream == self.stream && range.start < ahead.end && ahead.start < range.end
    }

    /// Returns the stream whose memory holds bytes of it.
    pub(super) fn ahead(&self) -> Option<StreamId> {
        (self.ahead > 0).then_some(self.stream)
    }

    /// Moves the bytes at the expected place to the buffer.
    pub(super) fn gather(&mut self, stream: &Stream, size: u64) {
        let mut to = self.base;
        for piece in stream.bytes(self.offset..self.offset + self.ahead as u64, size) {
            self.buffer[to..to + piece.len()].copy_from_slice(piece);
            to += piece.len();
        }
        self.ahead = 0;
    }

    /// Returns bytes in the buffer.
    ///
    /// # Panics
    /// If they are not in the buffer.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start >= self.ahead, "{range:?} of a read, the first {} of which are elsewhere", self.ahead);
        &self.buffer[self.base + range.start..self.base + range.end]
    }

    /// Splits a range into the part at the expected place, by stream offset, and the part in the buffer.
    pub(super) fn parts(&self, range: Range<usize>) -> (StreamId, Range<u64>, Range<usize>) {
        let cut = self.ahead.clamp(range.start, range.end);
        (self.stream, self.offset + range.start as u64..self.offset + cut as u64, cut..range.end)
    }
}
