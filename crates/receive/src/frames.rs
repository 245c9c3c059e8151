//! Streams in frames: pieces of memory of one size, from a pool.
//!
//! Each stream fills frames of its own: frame `k` holds its bytes from `k * size` on, each byte at its final address from the start. A
//! frame is finished when the edge of its stream has passed its end, or when the stream is over, and goes out through one ring
//! ([`Frames::full`]) in the order in which frames are finished. It is owned by whoever fetched it, in any thread, until it comes back
//! through the other ([`Frames::give_back`]). As long as it does not, there is less room, which is what a sender is told.
//!
//! # Who gets a frame
//! What a stream was promised ([`Place::room`]) is memory that it holds, so the promise is kept whatever others do.
//!
//! - A stream begins only if a frame is free, so there are never more streams than frames.
//! - A stream whose frames are all finished gets the next free one; if there are several of these, one frame each, in the order in
//!   which they ran out.
//! - A stream with less room than [`Config::ahead`] behind its edge, and than it has brought so far, gets one more if then more are free than it holds. One that is
//!   alone does as long as one is left for a newcomer, or, in a pool of two, until a newcomer has been turned away.
//!
//! So one stream may have the whole pool, counting those that it finished and whose reader has them; among many each goes on
//! whatever the others do, as long as frames come back.
//!
//! # Reading straight to where bytes belong
//! [`Frames::read`] gives a vectored read the place where the next bytes of a stream are expected, and behind it a buffer. Who then
//! finds out from the headers what came hands it over as [`Payload::Read`]: at the expected place nothing is copied any more. What
//! belongs elsewhere is moved. Only places whose bytes are not there are given away so.

mod beyond;
mod config;
pub(crate) mod filling;
mod frame;
mod memory;
pub(crate) mod pool;
mod read;
mod stream;

pub use self::beyond::{Batch, Beyond, Entry};
pub use self::config::{Config, FramesError, Missing};
pub use self::frame::{Frame, Meta, NoFrame, Presence};

use self::pool::Pool;
use self::read::Read;
use self::stream::Stream;
use crate::copy::Measured;
use crate::place::{Ending, Ends, Payload, Place, StreamId};
use linerate_burst::Nanos;
use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::ops::Range;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes below the edges of all streams there were.
    pub bytes: u64,
    /// Frames that were finished.
    pub frames: u64,
    /// Bytes in these that did not come.
    pub missing: u64,
    /// Streams that could not begin, because no frame was free.
    pub refused: u64,
    /// Bytes that came behind the room of their stream, or to a stream that had not begun: nobody was promised room for them.
    pub beyond: u64,
    /// Bytes that were read to where they were expected, and belonged elsewhere.
    pub moved: u64,
}

/// Frames that streams fill.
#[derive(Debug)]
pub struct Frames {
    pool: Pool,
    /// By their number.
    streams: Vec<Stream>,
    /// The index of the one that was asked for last.
    hint: usize,
    /// Those without a frame, in the order in which they ran out.
    without: VecDeque<StreamId>,
    /// Those that want one more.
    wanting: VecDeque<StreamId>,
    /// Somebody was turned away since there were no streams.
    crowded: bool,
    read: Read,
    counts: Counts,
}

impl Frames {
    /// Takes memory for all of them.
    ///
    /// # Errors
    /// If there can be no such frames.
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

    /// Finds the fastest way to copy pieces of so many bytes to free frames, in about 50 ms, and uses it from here on. `clock` tells
    /// nanoseconds. What was found, the fastest first; nothing, and nothing is changed, if no frame is free.
    pub fn calibrate(&mut self, piece: usize, clock: &dyn Fn() -> u64) -> Vec<Measured> {
        self.pool.calibrate(piece, clock)
    }

    /// The next finished frame.
    #[inline]
    pub fn full(&mut self) -> Option<Frame> {
        self.pool.full()
    }

    /// Takes back a frame that was fetched; there may be more room then.
    pub fn give_back(&mut self, frame: Frame) {
        self.pool.give_back(frame);
        self.serve();
    }

    /// How many frames are free, and how many are finished and have not been fetched.
    pub fn state(&self) -> (usize, usize) {
        (self.pool.free(), self.pool.waiting())
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        Counts { frames: self.pool.finished(), missing: self.pool.missing(), ..self.counts }
    }

    /// Has the next packet read: its first bytes to `header`, those behind to where byte `offset` of a stream is expected to go, and
    /// what there is no room for to a buffer of at least 256 KiB. `read` says how many bytes it read.
    ///
    /// A later [`Payload::Read`] counts from the first byte behind `header`.
    ///
    /// # Errors
    /// Those of `read`; nothing was read then.
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
        let spill = self.read.spill();
        let mut pieces =
            [IoSliceMut::new(header), IoSliceMut::new(front), IoSliceMut::new(back), IoSliceMut::new(spill)];
        let result = read(&mut pieces);
        let len = result.as_ref().map_or(0, |len| len.saturating_sub(behind));
        self.read.came(id, offset, ahead.min(len));
        result
    }

    /// A part of what was read last, in the pieces in which it lies.
    ///
    /// # Panics
    /// If fewer bytes were asked to be read.
    pub fn read_bytes(&self, part: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (id, ahead, rest) = self.read.parts(part);
        let stream = self.index(id).filter(|_| !ahead.is_empty()).map(|index| &self.streams[index]);
        let ahead = stream.into_iter().flat_map(move |stream| stream.bytes(ahead.clone(), self.size()));
        ahead.chain([self.read.bytes(rest)])
    }

    /// The same in one piece: what lies at the expected place is brought together with the rest first.
    ///
    /// # Panics
    /// If fewer bytes were asked to be read.
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
        debug_assert!(self.streams.get(index).is_none_or(|there| there.id != stream), "{stream} twice");
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
                // Of what lies at the expected place a part may be taken: no more was promised.
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
        // The last frame is the one that holds the last byte; one behind it that is held already says that there is no more.
        let end = |filling: &filling::Filling| filling.there().end() as usize;
        let used = stream.held.iter().rposition(|filling| end(filling) > 0).map_or(0, |last| last + 1);
        let used = if used == 0 { stream.held.len().min(1) } else { used };
        stream.held.drain(used..).for_each(|filling| self.pool.give_up(filling));
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

    /// Has what was read last in one piece, away from the frames.
    #[cold]
    fn gather(&mut self) {
        let Some(index) = self.read.ahead().and_then(|id| self.index(id)) else { return };
        self.read.gather(&self.streams[index], self.size());
    }

    /// The edge has passed the end of a frame.
    #[cold]
    fn finish(&mut self, index: usize) {
        if self.read.ahead() == Some(self.streams[index].id) {
            self.gather();
        }
        let (size, stream) = (self.size(), &mut self.streams[index]);
        while (stream.first + 1) * size <= stream.edge {
            let Some(filling) = stream.held.pop_front() else {
                // The stream went on without the bytes of frames that it never had.
                stream.first = stream.edge / size;
                break;
            };
            stream.first += 1;
            self.pool.finish(filling, size as usize, None);
        }
    }

    /// Gives a stream what it needs, or has it wait.
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
        // Of two frames only one that is alone could have more than one.
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

    /// Frames have come back.
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
