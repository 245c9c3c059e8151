//! A frame: a piece of a stream in memory of its own, and what is known of it.

use super::memory::Memory;
use crate::place::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use linerate_burst::pool::Piece;
use std::ops::Range;

/// A finished frame. Whoever has it owns its memory, and gives it back to where it came from once done.
#[derive(Debug)]
pub struct Frame {
    pub(super) memory: Memory,
    pub(super) presence: Presence,
    pub(super) missing: Vec<Range<u64>>,
    /// What is known of it.
    pub meta: Meta,
}

/// What is known of a frame beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// A running number, over all frames of the run, in the order in which they were finished.
    pub id: u64,
    /// Whose bytes it holds.
    pub stream: StreamId,
    /// Between whom.
    pub ends: Ends,
    /// Which frame of its stream it is, from 0 on.
    pub number: u64,
    /// Where in the stream its first byte is.
    pub offset: u64,
    /// Bytes of it that belong to the stream. All but the last frame of a stream are full.
    pub len: usize,
    /// Bytes among these that did not come.
    pub missing: u64,
    /// The CRC-32C of these bytes as they lie in memory, if it was asked for.
    pub crc32c: Option<u32>,
    /// When the first of its bytes came, and the last. Zero if none did.
    pub first: Nanos,
    /// See `first`.
    pub last: Nanos,
    /// Datagrams for it that came twice.
    pub repeated: u32,
    /// Datagrams for its stream that came too late for their frame while this one was filled.
    pub late: u32,
    /// How its stream ended, if this is the last of it.
    pub ending: Option<Ending>,
}

/// What was said of a frame cannot be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more bytes, or other gaps, than a frame has")]
pub struct NoFrame;

impl Frame {
    pub(super) fn new(memory: Memory, granule: usize) -> Self {
        let nobody = ([0, 0, 0, 0], 0).into();
        let meta = Meta {
            id: 0,
            stream: StreamId(0),
            ends: Ends { from: nobody, to: nobody },
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

    /// A frame that another process finished, over its memory, which is only read. `missing` ascends.
    ///
    /// # Errors
    /// If it has more bytes than its memory, or others are missing than it has.
    pub fn shown(memory: Piece, meta: Meta, missing: Vec<Range<u64>>, granule: usize) -> Result<Self, NoFrame> {
        let ends = missing.iter().map(|gap| gap.end);
        let follows = missing.iter().zip([0].into_iter().chain(ends)).all(|(gap, before)| gap.start >= before);
        let fits = missing.iter().all(|gap| gap.start < gap.end && gap.end <= meta.len as u64);
        if meta.len > memory.len() || granule == 0 || !follows || !fits {
            return Err(NoFrame);
        }
        let mut presence = Presence { granule, words: Vec::new(), granules: 0 };
        presence.set(meta.len, &missing);
        Ok(Frame { memory: Memory::over(memory, None), presence, missing, meta })
    }

    /// Which of the pieces it has that the pool was given; `None` of others, and of a frame without memory.
    pub fn place(&self) -> Option<u32> {
        self.memory.place
    }

    /// Its bytes. What did not come is zero, or whatever was there before, as the pool was told. None of a frame that is
    /// [elsewhere](super::Beyond).
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes().get(..self.meta.len).unwrap_or_default()
    }

    /// All of its memory, from a multiple of 4096 on: what lies behind [`Frame::bytes`] belongs to no stream.
    pub fn memory(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// Whether all of its bytes came.
    pub fn is_complete(&self) -> bool {
        self.meta.missing == 0
    }

    /// The bytes that did not come, from its first on: ascending, with what came between them.
    pub fn missing(&self) -> &[Range<u64>] {
        &self.missing
    }

    /// The bytes that came, likewise.
    pub fn there(&self) -> impl Iterator<Item = Range<u64>> {
        let starts = [0].into_iter().chain(self.missing.iter().map(|gap| gap.end));
        let ends = self.missing.iter().map(|gap| gap.start).chain([self.meta.len as u64]);
        starts.zip(ends).map(|(start, end)| start..end).filter(|range| !range.is_empty())
    }

    /// The same as a bitmap, coarser.
    pub fn presence(&self) -> &Presence {
        &self.presence
    }
}

/// Which parts of a frame are there, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    granule: usize,
    words: Vec<u64>,
    granules: usize,
}

impl Presence {
    /// Bytes to a bit. The last bit of a frame may stand for fewer.
    pub fn granule(&self) -> usize {
        self.granule
    }

    /// How many bits there are.
    pub fn len(&self) -> usize {
        self.granules
    }

    /// Whether there are none, as in a frame of no bytes.
    pub fn is_empty(&self) -> bool {
        self.granules == 0
    }

    /// Whether all bytes of a part came.
    pub fn is_there(&self, granule: usize) -> bool {
        granule < self.granules && self.words[granule / 64] >> (granule % 64) & 1 == 1
    }

    /// The bits, the lowest of the first word first; those behind the last are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// For a frame of `len` bytes without these.
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
