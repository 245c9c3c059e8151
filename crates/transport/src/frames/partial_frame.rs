//! A frame in progress.

use super::frame::Frame;
use super::remote::CopyPath;
use super::{Config, Missing};
use crate::copy::Crc;
use crate::ranges::{Ranges, TooManyGaps};
use crate::stream_memory::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use std::ops::Range;

/// A frame, and the bytes received in it.
#[derive(Debug)]
pub(crate) struct PartialFrame {
    frame: Frame,
    there: Ranges,
    crc: Option<Crc>,
    /// End of the part covered by the checksum, which follows the edge.
    summed: u64,
}

impl PartialFrame {
    /// Starts frame `number` of a stream.
    pub(crate) fn new(mut frame: Frame, stream: StreamId, ends: &Ends, number: u64, config: &Config) -> Self {
        let meta = &mut frame.meta;
        (meta.stream, meta.ends, meta.number, meta.offset) = (stream, *ends, number, number * config.size as u64);
        (meta.first, meta.last, meta.repeated, meta.late, meta.ending) = (Nanos::ZERO, Nanos::ZERO, 0, 0, None);
        let is_here = frame.memory.is_here();
        PartialFrame { frame, there: Ranges::default(), crc: (config.crc && is_here).then_some(Crc::NEW), summed: 0 }
    }

    /// Returns the bytes received, from the start of the frame.
    #[inline]
    pub(crate) fn there(&self) -> &Ranges {
        &self.there
    }

    /// Stores those of the bytes that are new. Returns their number. They must end within the frame.
    #[inline]
    pub(crate) fn put(&mut self, at: usize, bytes: &[u8], way: &mut CopyPath, now: Nanos) -> usize {
        self.put_within(at, bytes, usize::MAX, way, now).unwrap_or_default()
    }

    /// Stores them, or fails if there would be more than `gaps` gaps.
    #[inline]
    pub(crate) fn put_within(
        &mut self,
        at: usize,
        bytes: &[u8],
        gaps: usize,
        way: &mut CopyPath,
        now: Nanos,
    ) -> Result<usize, TooManyGaps> {
        let PartialFrame { frame, there, crc, summed } = self;
        let mut count = 0;
        let (place, kernel) = (frame.memory.place, way.kernel);
        let memory = &mut frame.memory;
        let range = at as u64..(at + bytes.len()) as u64;
        there.insert(range, gaps, |new| {
            count += (new.end - new.start) as usize;
            let from = &bytes[new.start as usize - at..new.end as usize - at];
            if way.note(place, new.start, from) {
                return;
            }
            let to = &mut memory.bytes_mut()[bounds(&new)];
            match crc {
                Some(crc) if *summed == new.start => (*crc, *summed) = (kernel.copy_summed(to, from, *crc), new.end),
                _ => kernel.copy(to, from),
            }
        })?;
        self.received(now);
        Ok(count)
    }

    pub(crate) fn count_repeated(&mut self) {
        self.frame.meta.repeated = self.frame.meta.repeated.saturating_add(1);
    }

    pub(crate) fn count_late(&mut self) {
        self.frame.meta.late = self.frame.meta.late.saturating_add(1);
    }

    /// Returns the time of the last byte.
    pub(crate) fn last(&self) -> Nanos {
        self.frame.meta.last
    }

    /// Marks bytes as received that are in place already.
    #[inline]
    pub(crate) fn put_in_place(&mut self, at: usize, len: usize, now: Nanos) {
        let _ = self.there.insert(at as u64..(at + len) as u64, usize::MAX, |_| {});
        self.received(now);
    }

    /// Updates times, and the checksum: bytes received out of order are summed once the edge passes them.
    #[inline]
    fn received(&mut self, now: Nanos) {
        let edge = self.there.edge();
        if let Some(crc) = &mut self.crc
            && self.summed < edge
        {
            *crc = crc.with(&self.frame.memory.bytes()[bounds(&(self.summed..edge))]);
            self.summed = edge;
        }
        let meta = &mut self.frame.meta;
        if meta.first == Nanos::ZERO {
            meta.first = now;
        }
        meta.last = now;
    }

    /// Returns the room from `at` to the next received byte, at most `most` bytes; empty if `at` is received.
    #[inline]
    pub(crate) fn gap(&mut self, at: usize, most: usize) -> &mut [u8] {
        let (from, size) = (at as u64, self.frame.memory.len());
        if !self.frame.memory.is_here() {
            return Default::default();
        }
        let next = self.there.beyond().iter().find(|range| range.end > from);
        let end = match next {
            _ if from < self.there.edge() => at,
            Some(range) => (range.start.max(from) as usize).min(at + most),
            None => size.min(at + most),
        };
        &mut self.frame.memory.bytes_mut()[at..end]
    }

    /// Returns the bytes of a range, received or not.
    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.frame.memory.bytes()[range]
    }

    /// Finishes the frame at length `len`.
    pub(crate) fn finish(mut self, config: &Config, len: usize, ending: Option<Ending>, id: u64) -> Frame {
        let frame = &mut self.frame;
        let mut at = self.there.edge();
        frame.missing.clear();
        for range in self.there.beyond() {
            frame.missing.push(at..range.start);
            at = range.end;
        }
        if at < len as u64 {
            frame.missing.push(at..len as u64);
        }
        let memory = frame.memory.bytes_mut();
        if config.missing == Missing::Zeroed && !memory.is_empty() {
            frame.missing.iter().for_each(|range| memory[bounds(range)].fill(0));
        }
        frame.presence.set(len, &frame.missing);
        let meta = &mut frame.meta;
        meta.crc32c = self.crc.map(|crc| crc.with(&memory[self.summed as usize..len]).value());
        meta.missing = frame.missing.iter().map(|range| range.end - range.start).sum();
        (meta.id, meta.len, meta.ending) = (id, len, ending);
        // The frame may be passed to another thread.
        config.kernel.fence();
        self.frame
    }

    /// Returns the frame without using it.
    pub(crate) fn cancel(self) -> Frame {
        self.frame
    }
}

fn bounds(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}
