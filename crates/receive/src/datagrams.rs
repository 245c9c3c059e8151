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
use crate::frames::{self, Frame, FramesError};
use crate::place::{Ending, Ends, StreamId};
use linerate_burst::Nanos;
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
        let (pool, streams) = (Pool::new(&config.frames)?, HashMap::new());
        Ok(Datagrams { config, pool, streams, next: 0, counts: Counts::default() })
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
        if !self.streams.contains_key(&key) {
            if self.streams.len() >= self.config.streams {
                return self.counts.no_stream += 1;
            }
            self.begin(key, belongs.first(), now);
        }
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let position = belongs.position(stream.at);
        if let Some(astray) = stream.astray(position, &self.config) {
            let near = if astray == Astray::Ahead { self.config.span() } else { self.config.reach };
            let in_a_row = stream.strays(position, near);
            if in_a_row < astray.needed() {
                let is_late = astray == Astray::Late;
                *(if is_late { &mut self.counts.late } else { &mut self.counts.out_of_line }) += 1;
                return if is_late {
                    stream.count_late()
                };
            }
            if astray == Astray::Ahead {
                return self.take(key, position, belongs.data, now);
            }
            self.counts.restarts += 1;
            self.end(key, Ending::Stopped);
            self.begin(key, position, now);
        }
        self.take(key, position, belongs.data, now);
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

    fn begin(&mut self, key: (Ends, u32), position: u64, now: Nanos) {
        let first = position / self.config.frames.size as u64;
        let id = StreamId(self.next);
        self.next = self.next.wrapping_add(1);
        let stream =
            Stream { id, first, has_had: false, held: VecDeque::new(), at: position, last: now, astray: (0, 0) };
        self.streams.insert(key, stream);
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

    /// A datagram that is in line.
    fn take(&mut self, key: (Ends, u32), position: u64, data: &[u8], now: Nanos) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.astray.1 = 0;
        (stream.at, stream.last) = (position, now);
        self.place(key, position, data, now);
    }

    fn place(&mut self, key: (Ends, u32), mut position: u64, mut data: &[u8], now: Nanos) {
        let Datagrams { config, pool, streams, counts, .. } = self;
        let Some(stream) = streams.get_mut(&key) else { return };
        let (size, mut new, mut late) = (config.frames.size as u64, 0, false);
        while !data.is_empty() {
            let (number, at) = (position / size, (position % size) as usize);
            let count = data.len().min(size as usize - at);
            let (piece, rest) = data.split_at(count);
            (position, data) = (position.saturating_add(count as u64), rest);
            if number < stream.first {
                late = true;
                continue;
            }
            stream.slide_to(number, config, pool, counts);
            match stream.frame(number, &key.0, config, pool, counts) {
                Some(filling) => match filling.put_within(at, piece, GAPS, config.frames.kernel, now) {
                    Ok(0) => filling.count_repeated(),
                    Ok(some) => new += some,
                    Err(_) => return counts.no_frame += 1,
                },
                None => return counts.no_frame += 1,
            }
        }
        match (new, late) {
            (1.., _) => counts.placed += 1,
            (0, false) => counts.repeated += 1,
            (0, true) => {
                counts.late += 1;
                stream.count_late();
            }
        }
    }
}

impl Stream {
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
    fn slide_to(&mut self, number: u64, config: &Config, pool: &mut Pool, counts: &mut Counts) {
        let window = config.window.max(1) as u64;
        while number - self.first >= window {
            if self.held.is_empty() {
                // Nothing came to any of those between.
                let first = number + 1 - window;
                counts.skipped += first - self.first;
                self.first = first;
                return;
            }
            self.slide(pool, counts, config.frames.size);
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
    fn frame(
        &mut self,
        number: u64,
        ends: &Ends,
        config: &Config,
        pool: &mut Pool,
        counts: &mut Counts,
    ) -> Option<&mut Filling> {
        let index = (number - self.first) as usize;
        if self.held.len() <= index {
            self.held.resize_with(index + 1, || None);
        }
        let place = self.held.get_mut(index)?;
        if place.is_none() {
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
