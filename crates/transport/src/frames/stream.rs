//! The frames of one stream.

use super::partial_frame::PartialFrame;
use super::read::LONGEST;
use super::remote::CopyPath;
use crate::stream_memory::{Ends, StreamId};
use linerate_burst::Nanos;
use std::collections::VecDeque;
use std::ops::Range;

/// A stream and its frames in progress, consecutive from its edge.
#[derive(Debug)]
pub(super) struct Stream {
    pub id: StreamId,
    pub ends: Ends,
    /// Index of the first frame held.
    pub first: u64,
    pub held: VecDeque<PartialFrame>,
    pub edge: u64,
    /// True if it waits for a frame.
    pub waits: bool,
}

impl Stream {
    pub(super) fn new(id: StreamId, ends: &Ends) -> Self {
        Stream { id, ends: *ends, first: 0, held: VecDeque::new(), edge: 0, waits: false }
    }

    /// Returns the first byte without room.
    #[inline]
    pub(super) fn room(&self, size: u64) -> u64 {
        (self.first + self.held.len() as u64) * size
    }

    /// Returns whether there is less room beyond the edge than wanted, or none. At most as much as received so far: of
    /// many streams that start at once, none takes the frames of all.
    #[inline]
    pub(super) fn wants(&self, size: u64, ahead: u64) -> bool {
        self.room(size) < self.edge + ahead.min(self.edge).max(1)
    }

    /// Stores bytes, as far as there is room. Returns the number of bytes without room.
    #[inline]
    pub(super) fn put(
        &mut self,
        mut offset: u64,
        mut bytes: &[u8],
        size: u64,
        way: &mut CopyPath,
        now: Nanos,
    ) -> usize {
        while let Some((frame, at)) = self.frame_of(offset, size) {
            let count = bytes.len().min(size as usize - at);
            frame.put(at, &bytes[..count], way, now);
            if count == bytes.len() {
                return 0;
            }
            (offset, bytes) = (offset + count as u64, &bytes[count..]);
        }
        bytes.len()
    }

    /// Marks bytes as received that are in place already.
    #[inline]
    pub(super) fn put_in_place(&mut self, mut offset: u64, mut len: usize, size: u64, now: Nanos) {
        while let Some((frame, at)) = self.frame_of(offset, size) {
            let count = len.min(size as usize - at);
            frame.put_in_place(at, count, now);
            if count == len {
                return;
            }
            (offset, len) = (offset + count as u64, len - count);
        }
    }

    /// Returns the frame of a byte, if held, and the offset in it.
    #[inline]
    fn frame_of(&mut self, offset: u64, size: u64) -> Option<(&mut PartialFrame, usize)> {
        let (index, at) = self.index_of(offset, size)?;
        Some((self.held.get_mut(index)?, at))
    }

    #[inline]
    fn index_of(&self, offset: u64, size: u64) -> Option<(usize, usize)> {
        let within = offset.checked_sub(self.first * size)?;
        match within < size {
            true => Some((0, within as usize)),
            false => Some(((within / size) as usize, (within % size) as usize)),
        }
    }

    /// Returns the room from `offset` to the next received byte, in two pieces: it may span two frames.
    pub(super) fn gap(&mut self, offset: u64, size: u64) -> (&mut [u8], &mut [u8]) {
        let Some((index, at)) = self.index_of(offset, size) else { return Default::default() };
        let mut frames = self.held.iter_mut().skip(index);
        let front = frames.next().map_or(Default::default(), |frame| frame.gap(at, LONGEST));
        match frames.next() {
            Some(frame) if at + front.len() == size as usize && !front.is_empty() => {
                let most = LONGEST - front.len();
                (front, frame.gap(0, most))
            }
            _ => (front, Default::default()),
        }
    }

    /// Returns the bytes of a range, received or not, as far as their frames are held.
    pub(super) fn bytes(&self, range: Range<u64>, size: u64) -> impl Iterator<Item = &[u8]> {
        let begin = self.index_of(range.start, size).unwrap_or((self.held.len(), 0));
        let mut left = (range.end - range.start) as usize;
        self.held.iter().skip(begin.0).enumerate().map_while(move |(index, frame)| {
            let at = if index == 0 { begin.1 } else { 0 };
            let count = left.min(size as usize - at);
            left -= count;
            (count > 0).then(|| frame.bytes(at..at + count))
        })
    }
}
