//! Stores streams in frames: buffers of a fixed size from a pool.
//!
//! Each stream fills its own frames: frame `k` holds the bytes from `k * size`, each byte at its final address from
//! the start. A frame is finished when the edge of its stream passes its end, or when the stream ends, and is output
//! through one queue ([`Frames::full`]) in the order in which frames are finished. Its reader owns it, in any thread,
//! until it returns it through the other ([`Frames::return_frame`]). Until then there is less room, so the receive window
//! shrinks.
//!
//! # Allocation of frames
//! The room promised to a stream ([`Place::room`]) is memory that it holds, so the promise is kept whatever other
//! streams do.
//!
//! - A stream starts only if a frame is free, so there are never more streams than frames.
//! - A stream whose frames are all finished gets the next free one; several such streams get one frame each, in the
//!   order in which they ran out.
//! - A stream with less room beyond its edge than [`Config::ahead`], and less than it has received so far, gets one
//!   more frame if more frames are then free than it holds. A single stream gets one as long as one is left for a new
//!   stream, or, in a pool of two, until a new stream was refused.
//!
//! So one stream may use the whole pool, counting finished frames that its reader holds; of many streams each makes
//! progress, whatever the others do, as long as frames come back.
//!
//! # Reading into place
//! [`Frames::read`] gives a vectored read the memory where the next bytes of a stream are expected, and after it a
//! buffer. The caller then parses the headers and passes the payload as [`Payload::Read`]: at the expected position
//! nothing is copied. Payload that belongs elsewhere is moved. Only memory without received bytes is lent in this way.

mod config;
mod frame;
mod memory;
pub(crate) mod partial_frame;
pub(crate) mod pool;
mod read;
mod remote;
mod stream;

pub use self::config::{Config, FramesError, Missing};
pub use self::frame::{Frame, FrameMeta, MetaMismatch, Presence};
pub use self::remote::{Batch, Entry, RemoteMemory};

use self::pool::Pool;
use self::read::Read;
use self::stream::Stream;
use crate::copy::KernelThroughput;
use crate::stream_memory::{Ending, Ends, Payload, Place, StreamId};
use linerate_burst::Nanos;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;

/// Counters of [`Frames`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes below the edges of all streams so far.
    pub bytes: u64,
    /// Finished frames.
    pub frames: u64,
    /// Bytes missing in finished frames.
    pub missing: u64,
    /// Streams refused because no frame was free.
    pub refused: u64,
    /// Bytes beyond the room of their stream, or of an unknown stream: no room was promised for them.
    pub beyond: u64,
    /// Bytes read into an expected place that belonged elsewhere.
    pub moved: u64,
}

/// Memory for streams, in frames.
#[derive(Debug)]
pub struct Frames {
    pool: Pool,
    /// Sorted by id.
    streams: Vec<Stream>,
    /// Index of the stream looked up last.
    hint: usize,
    /// Streams without a frame, in the order in which they ran out.
    without: VecDeque<StreamId>,
    /// Streams that want one more frame.
    wanting: VecDeque<StreamId>,
    /// A stream was refused since the number of streams was last 0.
    crowded: bool,
    read: Read,
    counts: Counts,
}

impl Frames {
    /// Allocates memory for all frames.
    ///
    /// # Errors
    /// If the configuration is invalid, or memory is insufficient.
    pub fn new(config: &Config) -> Result<Self, FramesError> {
        Ok(Frames::of(Pool::new(config)?))
    }

    fn of(pool: Pool) -> Self {
        Frames {
            pool,
            streams: Vec::new(),
            hint: 0,
            without: VecDeque::new(),
            wanting: VecDeque::new(),
            crowded: false,
            read: Read::new(),
            counts: Counts::default(),
        }
    }

    /// Measures the copy kernels with pieces of `piece` bytes on free frames, for about 50 ms, and selects the
    /// fastest. `clock` returns nanoseconds. Returns the results, fastest first; empty, with nothing changed, if no
    /// frame is free.
    pub fn calibrate(&mut self, piece: usize, clock: &dyn Fn() -> u64) -> Vec<KernelThroughput> {
        self.pool.calibrate(piece, clock)
    }

    /// Returns the next finished frame.
    #[inline]
    pub fn full(&mut self) -> Option<Frame> {
        self.pool.full()
    }

    /// Returns a fetched frame to the pool; there may be more room afterwards.
    pub fn return_frame(&mut self, frame: Frame) {
        self.pool.return_frame(frame);
        self.serve();
    }

    /// Returns the number of free frames, and of finished frames not fetched yet.
    pub fn state(&self) -> (usize, usize) {
        (self.pool.free(), self.pool.waiting())
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        Counts { frames: self.pool.finished(), missing: self.pool.missing(), ..self.counts }
    }

    /// Reads the next packet: its first bytes to `header`, later ones to where byte `offset` of a stream is expected,
    /// and what does not fit there to a buffer of at least 256 KiB. `read` returns the number of bytes it read.
    ///
    /// A later [`Payload::Read`] counts from the first byte after `header`.
    ///
    /// # Errors
    /// Those of `read`; nothing was read in that case.
    pub fn read<E>(
        &mut self,
        expected: Option<(StreamId, u64)>,
        header: &mut [u8],
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let (size, (id, offset)) = (self.size(), expected.unwrap_or((StreamId(0), 0)));
        let index = expected.and_then(|_| self.index(id));
        let (front, back) = match index.and_then(|index| self.streams.get_mut(index)) {
            Some(stream) => stream.gap(offset, size),
            None => Default::default(),
        };
        let (behind, ahead) = (header.len(), front.len() + back.len());
        let overflow = self.read.overflow();
        let mut pieces =
            [IoSliceMut::new(header), IoSliceMut::new(front), IoSliceMut::new(back), IoSliceMut::new(overflow)];
        let result = read(&mut pieces);
        let len = result.as_ref().map_or(0, |len| len.saturating_sub(behind));
        self.read.record(id, offset, ahead.min(len));
        result
    }

    /// Returns a part of the last read, in the pieces in which it is stored.
    ///
    /// # Panics
    /// If the part is beyond the bytes requested.
    pub fn read_bytes(&self, part: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (id, ahead, rest) = self.read.parts(part);
        let stream = self.index(id).filter(|_| !ahead.is_empty()).map(|index| &self.streams[index]);
        let ahead = stream.into_iter().flat_map(move |stream| stream.bytes(ahead.clone(), self.size()));
        ahead.chain([self.read.bytes(rest)])
    }

    /// Returns it in one piece: bytes at the expected place are first copied to the buffer.
    ///
    /// # Panics
    /// If the part is beyond the bytes requested.
    pub fn read_whole(&mut self, part: Range<usize>) -> &[u8] {
        self.gather();
        self.read.bytes(part)
    }
}

impl Place for Frames {
    fn begin(&mut self, stream: StreamId, ends: &Ends, _: Nanos) -> bool {
        let Some(frame) = self.pool.begin(stream, ends, 0) else {
            self.counts.refused += 1;
            self.crowded = true;
            return false;
        };
        let mut new = Stream::new(stream, ends);
        new.held.push_back(frame);
        let index = self.streams.partition_point(|there| there.id < stream);
        debug_assert!(self.streams.get(index).is_none_or(|there| there.id != stream), "duplicate {stream}");
        self.streams.insert(index, new);
        self.want(index);
        true
    }

    fn first_room(&self) -> u64 {
        self.size()
    }

    #[inline]
    fn room(&self, stream: StreamId) -> u64 {
        self.index(stream).map_or(0, |index| self.streams[index].room(self.size()))
    }

    #[inline]
    fn place(&mut self, stream: StreamId, mut offset: u64, payload: Payload<'_>, now: Nanos) {
        let size = self.size();
        let Some(index) = self.index(stream) else {
            self.counts.beyond += payload.len() as u64;
            return;
        };
        self.hint = index;
        let left = match payload {
            Payload::Bytes(bytes) => {
                if self.read.is_at(stream, offset..offset + bytes.len() as u64) {
                    self.gather();
                }
                self.streams[index].put(offset, bytes, size, &mut self.pool.way, now)
            }
            Payload::Read { from, len } => {
                let there = self.read.in_place(stream, offset, from, len);
                if there > 0 {
                    self.streams[index].put_in_place(offset, there, size, now);
                    offset += there as u64;
                } else if self.read.ahead().is_some() {
                    self.counts.moved += len as u64;
                    self.gather();
                }
                // Only a part of the bytes at the expected place may be stored: the promise ended there.
                match there < len {
                    true => {
                        let rest = self.read.bytes(from + there..from + len);
                        self.streams[index].put(offset, rest, size, &mut self.pool.way, now)
                    }
                    false => 0,
                }
            }
        };
        self.counts.beyond += left as u64;
    }

    fn copy_out(&self, payload: Payload<'_>, to: &mut Vec<u8>) {
        match payload {
            Payload::Bytes(bytes) => to.extend_from_slice(bytes),
            Payload::Read { from, len } => {
                self.read_bytes(from..from + len).for_each(|bytes| to.extend_from_slice(bytes))
            }
        }
    }

    #[inline]
    fn advance(&mut self, stream: StreamId, edge: u64, _: Nanos) {
        let size = self.size();
        let Some(index) = self.index(stream) else { return };
        let there = &mut self.streams[index];
        self.counts.bytes += edge.saturating_sub(there.edge);
        there.edge = there.edge.max(edge);
        if (there.first + 1) * size <= edge {
            self.finish(index);
        }
        let there = &mut self.streams[index];
        if there.waits && there.held.is_empty() {
            self.wanting.retain(|id| *id != stream);
            there.waits = self.without.contains(&stream);
        }
        if !there.waits && there.wants(size, self.pool.config().ahead) {
            self.want(index);
        }
    }

    fn end(&mut self, stream: StreamId, ending: Ending, _: Nanos) {
        let Some(index) = self.index(stream) else { return };
        if self.read.ahead() == Some(stream) {
            self.gather();
        }
        let (size, mut stream) = (self.size(), self.streams.remove(index));
        // The last frame is the one with the last byte; a held frame after it is not needed.
        let end = |filling: &partial_frame::PartialFrame| filling.there().end() as usize;
        let used = stream.held.iter().rposition(|filling| end(filling) > 0).map_or(0, |last| last + 1);
        let used = if used == 0 { stream.held.len().min(1) } else { used };
        stream.held.drain(used..).for_each(|filling| self.pool.cancel(filling));
        let mut ended = false;
        for (index, filling) in stream.held.into_iter().enumerate() {
            ended = index + 1 == used;
            let len = if ended { end(&filling) } else { size as usize };
            self.pool.finish(filling, len, ended.then_some(ending));
        }
        if !ended {
            self.pool.finish_without(stream.id, &stream.ends, stream.first, ending);
        }
        self.crowded &= !self.streams.is_empty();
        self.serve();
    }
}

impl Frames {
    #[inline]
    fn size(&self) -> u64 {
        self.pool.config().size as u64
    }

    #[inline]
    fn index(&self, stream: StreamId) -> Option<usize> {
        match self.streams.get(self.hint) {
            Some(there) if there.id == stream => Some(self.hint),
            _ => self.streams.binary_search_by_key(&stream, |there| there.id).ok(),
        }
    }

    /// Moves the last read to the buffer, out of the frames.
    #[cold]
    fn gather(&mut self) {
        let Some(index) = self.read.ahead().and_then(|id| self.index(id)) else { return };
        self.read.gather(&self.streams[index], self.size());
    }

    /// Finishes the frames that the edge has passed.
    #[cold]
    fn finish(&mut self, index: usize) {
        if self.read.ahead() == Some(self.streams[index].id) {
            self.gather();
        }
        let (size, stream) = (self.size(), &mut self.streams[index]);
        while (stream.first + 1) * size <= stream.edge {
            let Some(filling) = stream.held.pop_front() else {
                // The stream went on past frames that it never had.
                stream.first = stream.edge / size;
                break;
            };
            stream.first += 1;
            self.pool.finish(filling, size as usize, None);
        }
    }

    /// Allocates the frames that a stream needs, or queues it.
    #[cold]
    fn want(&mut self, index: usize) {
        let (size, ahead) = (self.size(), self.pool.config().ahead);
        while !self.streams[index].waits && self.streams[index].wants(size, ahead) {
            if self.may_have(index) {
                self.grant(index);
                continue;
            }
            let stream = &mut self.streams[index];
            stream.waits = true;
            let queue = if stream.held.is_empty() { &mut self.without } else { &mut self.wanting };
            queue.push_back(stream.id);
        }
    }

    fn may_have(&self, index: usize) -> bool {
        let (free, held) = (self.pool.free(), self.streams[index].held.len());
        // In a pool of two only a single stream can have more than one frame.
        let left = if self.pool.config().frames <= 2 && !self.crowded { 0 } else { 1 };
        let is_alone = self.streams.len() == 1;
        free > 0 && (held == 0 || self.without.is_empty() && (free > held || is_alone && free > left))
    }

    fn grant(&mut self, index: usize) {
        let stream = &mut self.streams[index];
        let number = stream.first + stream.held.len() as u64;
        let Some(filling) = self.pool.begin(stream.id, &stream.ends, number) else { return };
        stream.held.push_back(filling);
    }

    /// Serves the queues after frames have come back.
    fn serve(&mut self) {
        while self.pool.free() > 0 {
            let Some(stream) = self.without.pop_front() else { break };
            self.serve_one(stream);
        }
        for _ in 0..self.wanting.len() {
            if self.pool.free() == 0 {
                break;
            }
            let Some(stream) = self.wanting.pop_front() else { break };
            self.serve_one(stream);
        }
    }

    fn serve_one(&mut self, stream: StreamId) {
        if let Some(index) = self.index(stream) {
            self.streams[index].waits = false;
            self.want(index);
        }
    }
}

#[cfg(test)]
mod tests;
