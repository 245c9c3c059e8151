//! Sequenced datagrams in frames: each says where it belongs, none comes again.
//!
//! A datagram has a *position*: what its [`Form`] finds in its header, made a 64-bit count of bytes. Frame `k` of its stream holds the
//! positions from `k * size` on, as with [`frames`](crate::frames), and everything known of a frame is known here too: bytes that did
//! not come are marked, and zero if that was asked for. There is nobody to tell how much room there is. So:
//!
//! - A stream has at most [`Config::window`] frames in the making. A datagram for a frame behind these finishes the oldest; one for
//!   a frame that is finished is late: counted, and dropped.
//! - Where no frame is free, the datagram is dropped, or the oldest finished frame that nobody has fetched is
//!   ([`WhenFull`]).
//! - A position further than [`Config::reach`] from the last one is out of line: counted and dropped. When eight datagrams in a row
//!   are out of line, and in line with each other, the sender has begun anew: its stream ends, and another one begins.
//! - A frame to which nothing came for [`Config::timeout`] is finished; a stream to which nothing came for so long is over.
//!
//! A frame of which nothing came at all does not go out; the numbers of frames say so, and [`Counts::skipped`].

mod arrival;
mod form;

pub use self::form::{Belongs, Field, Form, Unfit, Unit};

use crate::copy::Measured;
use crate::frames::filling::Filling;
use crate::frames::pool::Pool;
use crate::frames::{self, Frame, FramesError};
use crate::place::{Ending, Ends, StreamId};
use linerate_burst::{Account, Count, Nanos};
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

/// What became of datagrams, and of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that came.
    pub received: u64,
    /// Those with bytes that are in frames.
    pub placed: u64,
    /// Those whose bytes were there already.
    pub repeated: u64,
    /// Those for frames that were finished.
    pub late: u64,
    /// Those too far from the last one.
    pub out_of_line: u64,
    /// Those too short for their header, or of a length that they must not have.
    pub malformed: u64,
    /// Those with a wrong checksum.
    pub bad_checksum: u64,
    /// Fragments of datagrams, which are not put together.
    pub fragments: u64,
    /// Super-frames of several datagrams.
    pub joined: u64,
    /// Those that are in order and carry no data.
    pub no_data: u64,
    /// Those for which no frame was free.
    pub no_frame: u64,
    /// Those of streams beyond the greatest number.
    pub no_stream: u64,
    /// Times that a sender began anew.
    pub restarts: u64,
    /// Frames that were dropped for newer ones, and bytes that had come to them.
    pub reclaimed: u64,
    /// See `reclaimed`.
    pub reclaimed_bytes: u64,
    /// Frames of which nothing came.
    pub skipped: u64,
    /// Frames that were finished.
    pub frames: u64,
    /// Bytes in these that did not come.
    pub missing: u64,
}

impl Counts {
    /// Adds what was counted.
    pub fn add_to(&self, account: &mut Account) {
        account
            .add(Count::DatagramsReceived, self.received)
            .add(Count::DatagramsPlaced, self.placed)
            .add(Count::DatagramsRepeated, self.repeated)
            .add(Count::DatagramsNoData, self.no_data)
            .add(Count::DatagramsMalformed, self.malformed)
            .add(Count::DatagramsBadChecksum, self.bad_checksum)
            .add(Count::DatagramsFragment, self.fragments)
            .add(Count::DatagramsJoined, self.joined)
            .add(Count::DatagramsLate, self.late)
            .add(Count::DatagramsOutOfLine, self.out_of_line)
            .add(Count::DatagramsNoFrame, self.no_frame)
            .add(Count::DatagramsNoStream, self.no_stream)
            .add(Count::DatagramsRestarts, self.restarts)
            .add(Count::DatagramsReclaimed, self.reclaimed)
            .add(Count::DatagramsSkipped, self.skipped)
            .add(Count::DatagramsMissing, self.missing);
    }
}

/// After so many in a row a sender has begun anew.
const ANEW: u32 = 8;

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
        if position.abs_diff(stream.at) > self.config.reach {
            self.counts.out_of_line += 1;
            if !stream.strays(position, self.config.reach) {
                return;
            }
            self.counts.out_of_line -= 1;
            self.counts.restarts += 1;
            self.end(key, Ending::Stopped);
            self.begin(key, position, now);
        }
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.astray.1 = 0;
        (stream.at, stream.last) = (position, now);
        self.place(key, position, belongs.data, now);
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
            while let Some(Some(front)) = stream.held.front()
                && old(front.last(), self.config.timeout)
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
        let stream = Stream { id, first, held: VecDeque::new(), at: position, last: now, astray: (0, 0) };
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
            None => self.pool.finish_without(stream.id, &key.0, stream.first, ending),
        }
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
                Some(filling) => match filling.put(at, piece, config.frames.kernel, now) {
                    0 => filling.count_repeated(),
                    some => new += some,
                },
                None => return counts.no_frame += 1,
            }
        }
        match (new, late) {
            (1.., _) => counts.placed += 1,
            (0, false) => counts.repeated += 1,
            (0, true) => {
                counts.late += 1;
                if let Some(Some(front)) = stream.held.front_mut() {
                    front.count_late();
                }
            }
        }
    }
}

impl Stream {
    /// Whether this position, out of line as it is, is where the sender is now.
    fn strays(&mut self, position: u64, reach: u64) -> bool {
        let (before, count) = self.astray;
        let goes_on = count > 0 && position.abs_diff(before) <= reach;
        self.astray = (position, if goes_on { count + 1 } else { 1 });
        self.astray.1 >= ANEW
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
        }
        place.as_mut()
    }
}

#[cfg(test)]
mod tests;
