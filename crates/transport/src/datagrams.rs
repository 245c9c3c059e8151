//! Reassembles sequenced datagrams into frames: each datagram carries its position, and is never retransmitted.
//!
//! The *position* of a datagram is the number that its [`Form`] finds in its header, as a 64-bit count of bytes. Frame
//! `k` of its stream holds the positions from `k * size`, as with [`frames`], with the same metadata: missing bytes
//! are marked, and zeroed if configured. Since the sender gets no flow control:
//!
//! - A stream has at most [`Config::window`] frames in progress. A datagram for a frame after these finishes the
//!   oldest; one for a finished frame is late: counted and dropped.
//! - With no free frame, either the datagram or the oldest finished frame that was not fetched yet is dropped
//!   ([`WhenFull`]).
//! - A position further than [`Config::reach`] from the last one is out of line: counted and dropped. After eight
//!   consecutive datagrams that are out of line, or late by more than the window, and consistent with each other, the
//!   sender is taken to have restarted: its stream ends and another one starts. Until then none of them moves the
//!   reference position.
//! - A jump ahead by more than the window needs two consistent datagrams: the first is out of line, since one wrong
//!   number would finish all frames in progress.
//! - A frame that received nothing for [`Config::timeout`] is finished; a stream that received nothing for as long
//!   ends.
//!
//! A frame that received no bytes is not output; gaps in frame numbers and [`Counts::skipped`] show it.

mod arrival;
mod counts;
mod form;

pub use self::counts::Counts;
pub use self::form::{DatagramPosition, Field, Form, NoPosition, Unit};

use crate::copy::KernelThroughput;
use crate::frames::partial_frame::PartialFrame;
use crate::frames::pool::Pool;
use crate::frames::{self, Frame, FramesError, RemoteMemory};
use crate::stream_memory::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Configuration of datagram reassembly.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Frame configuration.
    pub frames: frames::Config,
    /// Header format of datagrams.
    pub form: Form,
    /// Frames in progress per stream.
    pub window: usize,
    /// Maximum distance between consecutive positions, in bytes.
    pub reach: u64,
    /// Time that a frame waits for missing bytes.
    pub timeout: Duration,
    /// Policy when no frame is free.
    pub full: WhenFull,
    /// Maximum number of streams.
    pub streams: usize,
}

/// Policy when no frame is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// Drop the datagram.
    #[default]
    DropNewest,
    /// Drop the oldest finished frame that was not fetched yet.
    DropOldest,
}

/// Maximum number of gaps in a frame in progress; bounds the memory of the list of gaps.
const GAPS: usize = 65_536;

/// Reasons why a position is unexpected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PositionFault {
    /// Further away than `reach`.
    Far,
    /// Behind by more than the window.
    Late,
    /// Would finish all frames in progress, and more.
    Ahead,
}

impl PositionFault {
    /// Returns the number of consecutive datagrams after which the new position is accepted.
    fn needed(self) -> u32 {
        if self == PositionFault::Ahead { 2 } else { 8 }
    }
}

struct Shared<'a> {
    config: &'a Config,
    pool: &'a mut Pool,
    counts: &'a mut Counts,
}

impl Config {
    /// Returns the bytes covered by the frames in progress.
    fn span(&self) -> u64 {
        (self.frames.size as u64).saturating_mul(self.window.max(1) as u64)
    }
}

/// Reassembles datagrams into frames.
#[derive(Debug)]
pub struct Datagrams {
    config: Config,
    pool: Pool,
    streams: HashMap<(Ends, u32), Stream>,
    next: u32,
    counts: Counts,
}

#[derive(Debug)]
struct Stream {
    id: StreamId,
    /// Number of the oldest frame in progress.
    first: u64,
    /// True once it has had a frame; until then no end is reported for it.
    has_had: bool,
    /// `None`: nothing received for this frame yet.
    held: VecDeque<Option<PartialFrame>>,
    /// Position of the last datagram.
    at: u64,
    last: Nanos,
    /// Last position out of line, and the number of consecutive ones.
    unexpected: (u64, u32),
}

impl Datagrams {
    /// Allocates memory for all frames.
    ///
    /// # Errors
    /// If the configuration is invalid, or memory is insufficient.
    pub fn new(config: Config) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::new(&config.frames)?, config))
    }

    /// Creates it over external memory, see [`Frames::over`](crate::frames::Frames::over).
    ///
    /// # Errors
    /// If the configuration is invalid, or the pieces do not match it.
    pub fn over(config: Config, pieces: Vec<OwnedBytes>) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::over(&config.frames, pieces)?, config))
    }

    /// Creates it with frames elsewhere, see [`Frames::beyond`](crate::frames::Frames::beyond).
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn beyond(config: Config, beyond: Box<dyn RemoteMemory>) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::beyond(&config.frames, beyond)?, config))
    }

    /// Flushes bytes that finished frames wait for, see [`Frames::flush`](crate::frames::Frames::flush).
    pub fn flush(&mut self) {
        self.pool.way.flush(false);
    }

    fn of(pool: Pool, config: Config) -> Self {
        Datagrams { config, pool, streams: HashMap::new(), next: 0, counts: Counts::default() }
    }

    /// Selects the fastest copy kernel, see [`Frames::calibrate`](crate::frames::Frames::calibrate).
    pub fn calibrate(&mut self, piece: usize, clock: &dyn Fn() -> u64) -> Vec<KernelThroughput> {
        let found = self.pool.calibrate(piece, clock);
        self.config.frames.kernel = self.pool.config().kernel;
        found
    }

    /// Processes the payload of a datagram.
    pub fn receive(&mut self, ends: &Ends, payload: &[u8], now: Nanos) {
        self.counts.received += 1;
        let belongs = match self.config.form.find(payload) {
            Ok(belongs) => belongs,
            Err(NoPosition::NoData) => return self.counts.no_data += 1,
            Err(NoPosition::Malformed) => return self.counts.malformed += 1,
        };
        let key = (*ends, belongs.stream);
        let Datagrams { config, pool, streams, next, counts } = self;
        let is_full = streams.len() >= config.streams;
        let stream = match streams.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if is_full => return counts.no_stream += 1,
            Entry::Vacant(vacant) => vacant.insert(Stream::new(next, belongs.first(), now, config)),
        };
        let position = belongs.position(stream.at);
        let mut shared = Shared { config, pool, counts };
        let Some(unexpected) = stream.unexpected(position, shared.config) else {
            return stream.take(ends, position, belongs.data, now, &mut shared);
        };
        let near = if unexpected == PositionFault::Ahead { shared.config.span() } else { shared.config.reach };
        let in_a_row = stream.count_unexpected(position, near);
        match unexpected {
            PositionFault::Late if in_a_row < unexpected.needed() => {
                counts.late += 1;
                stream.count_late();
            }
            _ if in_a_row < unexpected.needed() => counts.sequence_jump += 1,
            PositionFault::Ahead => stream.take(ends, position, belongs.data, now, &mut shared),
            _ => {
                counts.restarts += 1;
                self.end(key, Ending::Stopped);
                let mut stream = Stream::new(&mut self.next, position, now, &self.config);
                let mut shared = Shared { config: &self.config, pool: &mut self.pool, counts: &mut self.counts };
                stream.take(ends, position, belongs.data, now, &mut shared);
                self.streams.insert(key, stream);
            }
        }
    }

    /// Finishes frames and streams whose timeout has expired.
    pub fn tick(&mut self, now: Nanos) {
        let old = |last: Nanos, timeout| now.since(last) >= timeout;
        let mut keys: Vec<_> = self.streams.iter().map(|(key, stream)| (stream.id, *key)).collect();
        keys.sort_by_key(|(id, _)| *id);
        for (_, key) in keys {
            let Some(stream) = self.streams.get_mut(&key) else { continue };
            if old(stream.last, self.config.timeout) {
                self.end(key, Ending::Silent);
                continue;
            }
            // A frame without bytes has no timeout of its own, and must not block later ones.
            while let Some(oldest) = stream.held.iter().flatten().next()
                && old(oldest.last(), self.config.timeout)
            {
                stream.slide(&mut self.pool, &mut self.counts, self.config.frames.size);
            }
        }
    }

    /// Ends all streams.
    pub fn finish(&mut self) {
        let mut keys: Vec<_> = self.streams.iter().map(|(key, stream)| (stream.id, *key)).collect();
        keys.sort_by_key(|(id, _)| *id);
        keys.into_iter().for_each(|(_, key)| self.end(key, Ending::Stopped));
    }

    /// Returns the next finished frame.
    pub fn full(&mut self) -> Option<Frame> {
        self.pool.full()
    }

    /// Returns a fetched frame to the pool.
    pub fn return_frame(&mut self, frame: Frame) {
        self.pool.return_frame(frame);
    }

    /// Returns the number of streams now, and the number started so far.
    pub fn streams(&self) -> (usize, u64) {
        (self.streams.len(), self.next.into())
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        Counts { frames: self.pool.finished(), missing: self.pool.missing(), ..self.counts }
    }

    fn end(&mut self, key: (Ends, u32), ending: Ending) {
        let Some(mut stream) = self.streams.remove(&key) else { return };
        let last = stream.held.iter().rposition(Option::is_some);
        while stream.held.len() > last.map_or(0, |last| last + 1) {
            stream.held.pop_back();
        }
        while stream.held.len() > 1 {
            stream.slide(&mut self.pool, &mut self.counts, self.config.frames.size);
        }
        match stream.held.pop_front().flatten() {
            Some(filling) => {
                let len = filling.there().end() as usize;
                self.pool.finish(filling, len, Some(ending));
            }
            // Report no end: such reports take no frame, so a flood of new streams would let them pile up until
            // fetched.
            None if !stream.has_had => {}
            None => self.pool.finish_without(stream.id, &key.0, stream.first, ending),
        }
    }
}

impl Stream {
    fn new(next: &mut u32, position: u64, now: Nanos, config: &Config) -> Stream {
        let (id, first) = (StreamId(*next), position / config.frames.size as u64);
        *next = next.wrapping_add(1);
        Stream { id, first, has_had: false, held: VecDeque::new(), at: position, last: now, unexpected: (0, 0) }
    }

    /// Stores a datagram whose position is plausible.
    fn take(&mut self, ends: &Ends, mut position: u64, mut data: &[u8], now: Nanos, shared: &mut Shared<'_>) {
        self.unexpected.1 = 0;
        (self.at, self.last) = (position, now);
        let frames = &shared.config.frames;
        let (size, mut new, mut late) = (frames.size as u64, 0, false);
        while !data.is_empty() {
            let (number, at) = (position / size, (position % size) as usize);
            let count = data.len().min(size as usize - at);
            let (piece, rest) = data.split_at(count);
            (position, data) = (position.saturating_add(count as u64), rest);
            if number < self.first {
                late = true;
                continue;
            }
            self.slide_to(number, shared);
            match self.frame(number, ends, shared) {
                Some(filling) => match filling.put_within(at, piece, GAPS, &mut shared.pool.way, now) {
                    Ok(0) => filling.count_repeated(),
                    Ok(some) => {
                        new += some;
                        shared.counts.bytes += some as u64;
                    }
                    Err(_) => return shared.counts.no_frame += 1,
                },
                None => return shared.counts.no_frame += 1,
            }
        }
        match (new, late) {
            (1.., _) => shared.counts.placed += 1,
            (0, false) => shared.counts.repeated += 1,
            (0, true) => {
                shared.counts.late += 1;
                self.count_late();
            }
        }
    }

    /// Returns the reason if a position is unexpected.
    fn unexpected(&self, position: u64, config: &Config) -> Option<PositionFault> {
        let (number, window) = (position / config.frames.size as u64, config.window.max(1) as u64);
        match () {
            () if position.abs_diff(self.at) > config.reach => Some(PositionFault::Far),
            () if number.saturating_add(window) < self.first => Some(PositionFault::Late),
            () if number >= self.first.saturating_add(2 * window) => Some(PositionFault::Ahead),
            () => None,
        }
    }

    /// Returns the number of consecutive unexpected positions near each other, this one included.
    fn count_unexpected(&mut self, position: u64, near: u64) -> u32 {
        let (before, count) = self.unexpected;
        let goes_on = count > 0 && position.abs_diff(before) <= near;
        self.unexpected = (position, if goes_on { count + 1 } else { 1 });
        self.unexpected.1
    }

    fn count_late(&mut self) {
        if let Some(Some(front)) = self.held.front_mut() {
            front.count_late();
        }
    }

    /// Moves the window to include this frame.
    fn slide_to(&mut self, number: u64, shared: &mut Shared<'_>) {
        let window = shared.config.window.max(1) as u64;
        while number - self.first >= window {
            if self.held.is_empty() {
                // Nothing was received for the frames between.
                let first = number + 1 - window;
                shared.counts.skipped += first - self.first;
                self.first = first;
                return;
            }
            self.slide(shared.pool, shared.counts, shared.config.frames.size);
        }
    }

    /// Finishes the oldest frame.
    fn slide(&mut self, pool: &mut Pool, counts: &mut Counts, size: usize) {
        match self.held.pop_front() {
            Some(Some(filling)) => pool.finish(filling, size, None),
            _ => counts.skipped += 1,
        }
        self.first += 1;
    }

    /// Returns a frame within the window; takes a free one if needed.
    fn frame(&mut self, number: u64, ends: &Ends, shared: &mut Shared<'_>) -> Option<&mut PartialFrame> {
        let index = (number - self.first) as usize;
        if self.held.len() <= index {
            self.held.resize_with(index + 1, || None);
        }
        let place = self.held.get_mut(index)?;
        if place.is_none() {
            let Shared { config, pool, counts } = shared;
            if pool.free() == 0
                && config.full == WhenFull::DropOldest
                && let Some(bytes) = pool.reclaim()
            {
                (counts.reclaimed, counts.reclaimed_bytes) = (counts.reclaimed + 1, counts.reclaimed_bytes + bytes);
            }
            *place = pool.begin(self.id, ends, number);
            self.has_had |= place.is_some();
        }
        place.as_mut()
    }
}

#[cfg(test)]
mod tests;
