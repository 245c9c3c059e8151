//! A frame: a part of a stream in its own memory, with metadata.

use super::memory::Memory;
use crate::stream_memory::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use std::ops::Range;

/// A finished frame. Its owner has exclusive use of its memory, and returns it to its pool when done.
#[derive(Debug)]
pub struct Frame {
    pub(super) memory: Memory,
    pub(super) presence: Presence,
    pub(super) missing: Vec<Range<u64>>,
    /// Metadata.
    pub meta: FrameMeta,
}

/// Metadata of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMeta {
    /// Sequence number over all frames of the run, in the order in which they were finished.
    pub id: u64,
    /// Stream.
    pub stream: StreamId,
    /// Addresses.
    pub ends: Ends,
    /// Index within its stream, from 0.
    pub number: u64,
    /// Stream offset of its first byte.
    pub offset: u64,
    /// Bytes that belong to the stream. All frames but the last of a stream are full.
    pub len: usize,
    /// Missing bytes among these.
    pub missing: u64,
    /// CRC-32C of these bytes as stored, if configured.
    pub crc32c: Option<u32>,
    /// Time of the first received byte, and of the last; 0 if nothing was received.
    pub first: Nanos,
    /// See `first`.
    pub last: Nanos,
    /// Duplicate datagrams of this frame.
    pub repeated: u32,
    /// Late datagrams of its stream while this frame was filled.
    pub late: u32,
    /// Reason for the end of the stream, if this is its last frame.
    pub ending: Option<Ending>,
}

/// Metadata that cannot belong to the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid length or gaps of a frame")]
pub struct MetaMismatch;

impl Frame {
    pub(super) fn new(memory: Memory, granule: usize) -> Self {
        let unset = ([0, 0, 0, 0], 0).into();
        let meta = FrameMeta {
            id: 0,
            stream: StreamId(0),
            ends: Ends { from: unset, to: unset },
            number: 0,
            offset: 0,
            len: 0,
            missing: 0,
            crc32c: None,
            first: Nanos::ZERO,
            last: Nanos::ZERO,
            repeated: 0,
            late: 0,
            ending: None,
        };
        Frame { memory, presence: Presence { granule, words: Vec::new(), granules: 0 }, missing: Vec::new(), meta }
    }

    /// Returns a frame that another process has finished, over its memory, which is only read. `missing` must be
    /// ascending.
    ///
    /// # Errors
    /// If it has more bytes than its memory, or `missing` is invalid.
    pub fn shown(
        memory: OwnedBytes,
        meta: FrameMeta,
        missing: Vec<Range<u64>>,
        granule: usize,
    ) -> Result<Self, MetaMismatch> {
        let ends = missing.iter().map(|gap| gap.end);
        let follows = missing.iter().zip([0].into_iter().chain(ends)).all(|(gap, before)| gap.start >= before);
        let fits = missing.iter().all(|gap| gap.start < gap.end && gap.end <= meta.len as u64);
        if meta.len > memory.len() || granule == 0 || !follows || !fits {
            return Err(MetaMismatch);
        }
        let mut presence = Presence { granule, words: Vec::new(), granules: 0 };
        presence.set(meta.len, &missing);
        Ok(Frame { memory: Memory::over(memory, None), presence, missing, meta })
    }

    /// Returns the index of its piece in an external pool; `None` for other frames, and without memory.
    pub fn place(&self) -> Option<u32> {
        self.memory.place
    }

    /// Returns its bytes. Missing parts are zero or unspecified, as configured. Empty for a frame that is
    /// [elsewhere](super::RemoteMemory).
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes().get(..self.meta.len).unwrap_or_default()
    }

    /// Returns all of its memory, aligned to 4096: bytes after [`Frame::bytes`] belong to no stream.
    pub fn memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Returns whether all bytes were received.
    pub fn is_complete(&self) -> bool {
        self.meta.missing == 0
    }

    /// Returns the missing ranges, relative to its start, ascending and separated by received bytes.
    pub fn missing(&self) -> &[Range<u64>] {
        &self.missing
    }

    /// Returns the received ranges, likewise.
    pub fn there(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = [0].into_iter().chain(self.missing.iter().map(|gap| gap.end));
        let ends = self.missing.iter().map(|gap| gap.start).chain([self.meta.len as u64]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty())
    }

    /// Returns the received parts as a bitmap, which is coarser.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }
}

/// Bitmap of the complete parts of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    granule: usize,
    words: Vec<u64>,
    granules: usize,
}

impl Presence {
    /// Returns the number of bytes per bit. The last bit of a frame may cover fewer.
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// Returns the number of bits.
    pub fn len(&self) -> usize {
        self.granules
    }

    /// Returns whether it has no bits, as for an empty frame.
    pub fn is_empty(&self) -> bool {
        self.granules == 0
    }

    /// Returns whether all bytes of a part were received.
    pub fn is_there(&self, granule: usize) -> bool {
        granule < self.granules && self.words[granule / 64] >> (granule % 64) & 1 == 1
    }

    /// Returns the bits, from the least significant one of the first word; unused ones are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Sets the bits for a frame of `len` bytes with these missing.
    pub(super) fn set(&mut self, len: usize, missing: &[Range<u64>]) {
        self.granules = len.div_ceil(self.granule);
        self.words.clear();
        self.words.resize(self.granules.div_ceil(64), u64::MAX);
        if let (Some(last), over @ 1..) = (self.words.last_mut(), self.granules % 64) {
            *last >>= 64 - over;
        }
        for range in missing {
            let (first, last) = (range.start as usize / self.granule, (range.end - 1) as usize / self.granule);
            (first..=last).for_each(|granule| self.words[granule / 64] &= !(1 << (granule % 64)));
        }
    }
}
