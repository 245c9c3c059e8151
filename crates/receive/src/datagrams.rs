//! Sequenced datagrams in frames: each says where it belongs, none comes again.
//!
//! A datagram has a *position*: what its [`Form`] finds in its header, made a 64-bit count of bytes. Frame `k` of its stream holds the
//! positions from `k * size` on, as with [`frames`], and everything known of a frame is known here too: bytes that did
//! not come are marked, and zero if that was asked for. There is nobody to tell how much room there is. So:
//!
//! - A stream has at most [`Config::window`] frames in the making. A datagram for a frame behind these finishes the oldest; one for
//!   a frame that is finished is late: counted, and dropped.
//! - Where no frame is free, the datagram is dropped, or the oldest finished frame that nobody has fetched is
//!   ([`WhenFull`]).
//! - A position further than [`Config::reach`] from the last one is out of line: counted and dropped. When eight datagrams in a row
//!   are out of line, or late by more than the window, and in line with each other, the sender has begun anew: its stream ends, and
//!   another one begins. So none of these moves the place from which lines are drawn.
//! - A jump by more than the window ahead needs two datagrams that agree: the first is out of line, since one wrong number would
//!   finish all frames in the making.
//! - A frame to which nothing came for [`Config::timeout`] is finished; a stream to which nothing came for so long is over.
//!
//! A frame of which nothing came at all does not go out; the numbers of frames say so, and [`Counts::skipped`].

mod arrival;
mod counts;
mod form;

pub use self::counts::Counts;
pub use self::form::{Belongs, Field, Form, Unfit, Unit};

use crate::copy::Measured;
use crate::frames::filling::Filling;
use crate::frames::pool::Pool;
use crate::frames::{self, Beyond, Frame, FramesError};
use crate::place::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
use linerate_burst::pool::Piece;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// How datagrams become frames.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How frames are.
    pub frames: frames::Config,
    /// What datagrams say of themselves.
    pub form: Form,
    /// Frames of a stream that are in the making at a time.
    pub window: usize,
    /// The furthest that the next datagram is from the last, in bytes.
    pub reach: u64,
    /// For how long a frame waits for what is missing.
    pub timeout: Duration,
    /// What happens when no frame is free.
    pub full: WhenFull,
    /// How many streams there are at most.
    pub streams: usize,
}

/// What happens when no frame is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The datagram is dropped.
    #[default]
    DropNewest,
    /// The oldest finished frame that nobody has fetched is.
    DropOldest,
}

/// So many gaps a frame has at most while it is filled: their list is memory beside that of the frame.
const GAPS: usize = 65_536;

/// How a position is not where the next one is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Astray {
    /// Out of reach.
    Far,
    /// Behind, by more than the window.
    Late,
    /// All frames in the making, and more, would be finished.
    Ahead,
}

impl Astray {
    /// After so many in a row it is where the sender is now.
    fn needed(self) -> u32 {
        if self == Astray::Ahead { 2 } else { 8 }
    }
}

/// What the streams share.
struct Shared<'a> {
    config: &'a Config,
    pool: &'a mut Pool,
    counts: &'a mut Counts,
}

impl Config {
    /// Bytes of the frames in the making.
    fn span(&self) -> u64 {
        (self.frames.size as u64).saturating_mul(self.window.max(1) as u64)
    }
}

/// Datagrams become frames.
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
    /// The number of the oldest frame in the making.
    first: u64,
    /// It has had a frame: before that nobody is told that it is there.
    has_had: bool,
    /// Those of which nothing came are none yet.
    held: VecDeque<Option<Filling>>,
    /// The position of the last datagram.
    at: u64,
    last: Nanos,
    /// The position of the last one that was out of line, and how many of these there were.
    astray: (u64, u32),
}

impl Datagrams {
    /// Takes memory for all frames.
    ///
    /// # Errors
    /// If there can be no such frames.
    pub fn new(config: Config) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::new(&config.frames)?, config))
    }

    /// The same over memory of somebody else, as [`Frames::over`](crate::frames::Frames::over) has it.
    ///
    /// # Errors
    /// If there can be no such frames, or the pieces are others.
    pub fn over(config: Config, pieces: Vec<Piece>) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::over(&config.frames, pieces)?, config))
    }

    /// The same with no memory here, as [`Frames::beyond`](crate::frames::Frames::beyond) has it.
    ///
    /// # Errors
    /// If there can be no such frames.
    pub fn beyond(config: Config, beyond: Box<dyn Beyond>) -> Result<Self, FramesError> {
        Ok(Datagrams::of(Pool::beyond(&config.frames, beyond)?, config))
    }

    /// Has bytes on their way that finished frames wait for, as [`Frames::flush`](crate::frames::Frames::flush) does.
    pub fn flush(&mut self) {
        self.pool.way.flush(false);
    }

    fn of(pool: Pool, config: Config) -> Self {
        Datagrams { config, pool, streams: HashMap::new(), next: 0, counts: Counts::default() }
    }

    /// Finds the fastest way to copy, as [`Frames::calibrate`](crate::frames::Frames::calibrate) does.
    pub fn calibrate(&mut self, piece: usize, clock: &dyn Fn() -> u64) -> Vec<Measured> {
        let found = self.pool.calibrate(piece, clock);
        self.config.frames.kernel = self.pool.config().kernel;
        found
    }

    /// Takes the payload of a datagram.
    pub fn receive(&mut self, ends: &Ends, payload: &[u8], now: Nanos) {
        self.counts.received += 1;
        let belongs = match self.config.form.find(payload) {
            Ok(belongs) => belongs,
            Err(Unfit::NoData) => return self.counts.no_data += 1,
            Err(Unfit::Malformed) => return self.counts.malformed += 1,
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
        let Some(astray) = stream.astray(position, shared.config) else {
            return stream.take(ends, position, belongs.data, now, &mut shared);
        };
        let near = if astray == Astray::Ahead { shared.config.span() } else { shared.config.reach };
        let in_a_row = stream.strays(position, near);
        match astray {
            Astray::Late if in_a_row < astray.needed() => {
                counts.late += 1;
                stream.count_late();
            }
            _ if in_a_row < astray.needed() => counts.out_of_line += 1,
            Astray::Ahead => stream.take(ends, position, belongs.data, now, &mut shared),
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

    /// Finishes what nothing came to for too long.
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
            // One of which nothing came waits for nothing, and nothing waits behind it.
            while let Some(oldest) = stream.held.iter().flatten().next()
                && old(oldest.last(), self.config.timeout)
            {
                stream.slide(&mut self.pool, &mut self.counts, self.config.frames.size);
            }
        }
    }

    /// There are no more.
    pub fn finish(&mut self) {
        let mut keys: Vec<_> = self.streams.iter().map(|(key, stream)| (stream.id, *key)).collect();
        keys.sort_by_key(|(id, _)| *id);
        keys.into_iter().for_each(|(_, key)| self.end(key, Ending::Stopped));
    }

    /// The next finished frame.
    pub fn full(&mut self) -> Option<Frame> {
        self.pool.full()
    }

    /// Takes back a frame that was fetched.
    pub fn give_back(&mut self, frame: Frame) {
        self.pool.give_back(frame);
    }

    /// How many streams there are now, and how many have begun.
    pub fn streams(&self) -> (usize, u64) {
        (self.streams.len(), self.next.into())
    }

    /// What happened so far.
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
            // The news would pile up where nobody fetches: it takes no frame, and anybody can make streams.
            None if !stream.has_had => {}
            None => self.pool.finish_without(stream.id, &key.0, stream.first, ending),
        }
    }
}

impl Stream {
    fn new(next: &mut u32, position: u64, now: Nanos, config: &Config) -> Stream {
        let (id, first) = (StreamId(*next), position / config.frames.size as u64);
        *next = next.wrapping_add(1);
        Stream { id, first, has_had: false, held: VecDeque::new(), at: position, last: now, astray: (0, 0) }
    }

    /// A datagram that is in line.
    fn take(&mut self, ends: &Ends, mut position: u64, mut data: &[u8], now: Nanos, shared: &mut Shared<'_>) {
        self.astray.1 = 0;
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
                    Ok(some) => new += some,
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

    /// Whether a position is not where the next one is expected.
    fn astray(&self, position: u64, config: &Config) -> Option<Astray> {
        let (number, window) = (position / config.frames.size as u64, config.window.max(1) as u64);
        match () {
            () if position.abs_diff(self.at) > config.reach => Some(Astray::Far),
            () if number.saturating_add(window) < self.first => Some(Astray::Late),
            () if number >= self.first.saturating_add(2 * window) => Some(Astray::Ahead),
            () => None,
        }
    }

    /// How many in a row are astray with this one, and near each other.
    fn strays(&mut self, position: u64, near: u64) -> u32 {
        let (before, count) = self.astray;
        let goes_on = count > 0 && position.abs_diff(before) <= near;
        self.astray = (position, if goes_on { count + 1 } else { 1 });
        self.astray.1
    }

    fn count_late(&mut self) {
        if let Some(Some(front)) = self.held.front_mut() {
            front.count_late();
        }
    }

    /// Makes room for this frame within the window.
    fn slide_to(&mut self, number: u64, shared: &mut Shared<'_>) {
        let window = shared.config.window.max(1) as u64;
        while number - self.first >= window {
            if self.held.is_empty() {
                // Nothing came to any of those between.
                let first = number + 1 - window;
                shared.counts.skipped += first - self.first;
                self.first = first;
                return;
            }
            self.slide(shared.pool, shared.counts, shared.config.frames.size);
        }
    }

    /// The oldest frame is finished.
    fn slide(&mut self, pool: &mut Pool, counts: &mut Counts, size: usize) {
        match self.held.pop_front() {
            Some(Some(filling)) => pool.finish(filling, size, None),
            _ => counts.skipped += 1,
        }
        self.first += 1;
    }

    /// A frame within the window, begun if it is not.
    fn frame(&mut self, number: u64, ends: &Ends, shared: &mut Shared<'_>) -> Option<&mut Filling> {
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
