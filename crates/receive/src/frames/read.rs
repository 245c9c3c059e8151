//! What was read last, of which a part may lie where it belongs already.

use super::stream::Stream;
use crate::place::StreamId;
use linerate_burst::MAX_FRAME;
use std::ops::Range;

/// Bytes of one read: the first of them at an expected place of a stream, the others in a buffer.
#[derive(Debug)]
pub(super) struct Read {
    /// In two halves. What the expected place had no room for goes to the second; what turns out not to belong there goes to the
    /// end of the first, so that all lies in one piece.
    buffer: Vec<u8>,
    /// Where in the buffer its first byte is, or would be.
    base: usize,
    stream: StreamId,
    offset: u64,
    /// Bytes at the expected place; none once they were brought into the buffer.
    ahead: usize,
}

/// The longest read behind its header.
pub(super) const LONGEST: usize = MAX_FRAME;

impl Read {
    pub(super) fn new() -> Self {
        Read { buffer: vec![0; 2 * LONGEST], base: LONGEST, stream: StreamId(0), offset: 0, ahead: 0 }
    }

    /// Where bytes go that the expected place has no room for.
    pub(super) fn spill(&mut self) -> &mut [u8] {
        &mut self.buffer[LONGEST..]
    }

    /// Bytes have come, of them so many to this place.
    pub(super) fn came(&mut self, stream: StreamId, offset: u64, ahead: usize) {
        (self.stream, self.offset, self.ahead, self.base) = (stream, offset, ahead, LONGEST - ahead);
    }

    /// How many of the bytes from `from` on lie where they belong, if they belong to this offset.
    #[inline]
    pub(super) fn in_place(&self, stream: StreamId, offset: u64, from: usize, len: usize) -> usize {
        let fits = self.ahead > from && stream == self.stream && offset == self.offset + from as u64;
        if fits { len.min(self.ahead - from) } else { 0 }
    }

    /// Whether some of it lies at these bytes of a stream.
    #[inline]
    pub(super) fn is_at(&self, stream: StreamId, range: Range<u64>) -> bool {
        let ahead = self.offset..self.offset + self.ahead as u64;
        self.ahead > 0 && stream == self.stream && range.start < ahead.end && ahead.start < range.end
    }

    /// Whose place holds bytes of it.
    pub(super) fn ahead(&self) -> Option<StreamId> {
        (self.ahead > 0).then_some(self.stream)
    }

    /// Brings what lies at the expected place into the buffer.
    pub(super) fn gather(&mut self, stream: &Stream, size: u64) {
        let mut to = self.base;
        for piece in stream.bytes(self.offset..self.offset + self.ahead as u64, size) {
            self.buffer[to..to + piece.len()].copy_from_slice(piece);
            to += piece.len();
        }
        self.ahead = 0;
    }

    /// Bytes that are in the buffer.
    ///
    /// # Panics
    /// If they are not.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start >= self.ahead, "{range:?} of a read, the first {} of which are elsewhere", self.ahead);
        &self.buffer[self.base + range.start..self.base + range.end]
    }

    /// Which of these bytes are at the expected place, by their offset in its stream, and which in the buffer.
    pub(super) fn parts(&self, range: Range<usize>) -> (StreamId, Range<u64>, Range<usize>) {
        let cut = self.ahead.clamp(range.start, range.end);
        (self.stream, self.offset + range.start as u64..self.offset + cut as u64, cut..range.end)
    }
}
