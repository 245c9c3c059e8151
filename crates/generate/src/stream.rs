//! What to send: streams of frames, what changes in them, how fast they go and what follows.
//!
//! Frame number n of a stream is a function of the stream and of n alone (and, with a trailer, of the time it is sent
//! at): so runs repeat, several threads or paths send the same frames, and a receiver can tell what it should have
//! seen. [`Stream::frame`] is that function, plainly; whoever makes frames fast has to equal it.

pub mod check;
mod frame;
mod map;
mod select;

pub use check::Wrong;
pub(crate) use frame::put;
pub use linerate_wire::cover::{Coverage as Checksum, Kind as ChecksumKind};
pub use map::Map;
pub use select::{Alias, FACTORS, GAMMA, MOST_WEIGHTED, Pick, Selector};
pub(crate) use select::{draw, mix, scale};

use crate::Rate;
use crate::trailer::Key;
use linerate_wire::Link;
use std::sync::Arc;

/// The streams of one port.
#[derive(Clone, Debug)]
pub struct StreamSet {
    /// The streams; not empty.
    pub streams: Vec<Stream>,
    /// One after the other, or all at once.
    pub order: Order,
    /// The rate of all together: their own rates then only say how they share it. `None`: each has its own.
    pub rate: Option<Rate>,
    /// Of the trailers.
    pub key: Key,
}

impl StreamSet {
    /// How many nanoseconds lie between two frames of the run, if that is always the same.
    pub fn even_gap(&self) -> Option<f64> {
        let rate = match (self.rate, self.streams.as_slice()) {
            (Some(rate), _) => rate,
            (None, [stream]) => stream.rate,
            _ => return None,
        };
        let mut lengths = self.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len());
        let length = lengths.next()?;
        let is_even = self.streams.iter().all(|stream| stream.shape == Shape::Even);
        let is_one = matches!(rate, Rate::Frames(_)) || lengths.all(|other| other == length);
        (rate != Rate::Top && is_even && is_one).then(|| rate.exact_nanos(1, length as u64))
    }
}

/// How the streams of a port follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, as [`Stream::next`] says.
    Sequential,
    /// All at once, each at its own rate. Of frames due at the same time the one with the lower number
    /// within its stream goes first, then the one of the earlier stream: at top speed streams take turns.
    Interleaved,
}

/// One stream of frames.
#[derive(Clone, Debug)]
pub struct Stream {
    /// As the user named it.
    pub name: String,
    /// Its number in trailers, below 2^24; no other stream of the set has it.
    pub id: u32,
    /// What its frames begin with, the same for all streams of a set.
    pub link: Link,
    /// The lengths its frames have; not empty.
    pub variants: Vec<Variant>,
    /// Which variant frame n has; its count is that of the variants.
    pub size: Selector,
    /// What decides on the values of changing fields. Fields that are to move together share one.
    pub selectors: Vec<Selector>,
    /// How fast.
    pub rate: Rate,
    /// How the frames of that rate lie in time.
    pub shape: Shape,
    /// How many frames; `None` without end.
    pub count: Option<u64>,
    /// What follows in a sequence.
    pub next: Next,
    /// When it begins, and for how long it is sent, where streams are sent all at once.
    pub span: Span,
    /// What a receiver knows its frames by.
    pub mark: Mark,
}

/// One length that the frames of a stream have, with everything in the frame as it is where nothing changes it.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// The frame without FCS.
    pub frame: Vec<u8>,
    /// Fields that change; none overlaps another, a fill, a checksum or the trailer.
    pub changes: Vec<Change>,
    /// Bytes that are new in every frame.
    pub fills: Vec<Fill>,
    /// Checksums over what changes, in the order in which they are computed: an inner one before an outer one that covers it.
    pub checksums: Vec<Checksum>,
    /// Where the trailer's 16 bytes lie, if there is one.
    pub trailer: Option<usize>,
}

/// A field that changes.
#[derive(Clone, Debug)]
pub struct Change {
    /// Where its first byte lies.
    pub offset: usize,
    /// How many bytes it touches, 1 to 16.
    pub width: usize,
    /// Which of their bits it has, in one run, as a number in network byte order; not 0. The lowest bit of a value
    /// goes to the lowest of these, what is too large loses its upper bits, all other bits stay.
    pub mask: u128,
    /// Which of [`Stream::selectors`] it follows.
    pub selector: usize,
    /// What value that means.
    pub map: Map,
}

/// Bytes that are new in every frame: SplitMix64 of the seed and the frame's number.
#[derive(Clone, Debug)]
pub struct Fill {
    /// Where the first one lies.
    pub offset: usize,
    /// How many.
    pub length: usize,
    /// Other fills have others.
    pub seed: u64,
}

/// How the frames of a rate lie in time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// As far apart as the rate says.
    Even,
    /// So many frames at the rate, then nothing for so long, again and again. The gap lies between the last frame of a
    /// burst, with the time it takes at the rate, and the first one of the next.
    Bursts {
        /// Frames of a burst, 1 or more.
        frames: u64,
        /// Nanoseconds between two bursts.
        gap: u64,
    },
    /// Gaps drawn from an exponential distribution whose mean is that of the rate: a Poisson process.
    Poisson {
        /// Other streams have others.
        seed: u64,
    },
    /// As those of a recording, which is sent again and again: the places of its frames in gaps of the rate. They begin at 0 and do not
    /// descend; a pass takes as many gaps as it has frames.
    Recorded(Arc<[f64]>),
}

impl Shape {
    /// Of frames that came at these times, and how many a second that is; 1,000 where all came at once.
    pub fn recorded(times: &[u64]) -> (Self, f64) {
        let mut latest = times.first().copied().unwrap_or(0);
        let first = latest;
        // A time that goes back is that of the frame before.
        let ascending = times.iter().map(|time| {
            latest = latest.max(*time);
            (latest - first) as f64
        });
        let ascending: Vec<f64> = ascending.collect();
        let gaps = times.len().saturating_sub(1).max(1) as f64;
        match ascending.last().copied().unwrap_or(0.0) / gaps {
            mean if mean > 0.0 => (Shape::Recorded(ascending.iter().map(|time| time / mean).collect()), 1e9 / mean),
            _ => (Shape::Recorded((0..times.len()).map(|place| place as f64).collect()), 1e3),
        }
    }
}

/// The time in which a stream has its frames. Usually that is from the beginning on, without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds from the start of the run, or from where the stream is told to start, to its first frame.
    pub start: u64,
    /// So many nanoseconds behind that, or later, no frame is due; a pause makes it as much later.
    pub length: Option<u64>,
}

impl Span {
    /// From the beginning on, without end.
    pub const ALWAYS: Span = Span { start: 0, length: None };
}

/// What follows when a stream of a sequence has sent its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The stream behind it; behind the last one the run ends.
    Following,
    /// Another one, from its beginning: fields and sequence numbers go on where they were.
    Goto {
        /// Which, from 0.
        stream: usize,
        /// How often; then what follows is the stream behind this one. `None`: always.
        times: Option<u64>,
    },
    /// Nothing: the run ends.
    Stop,
}

/// What a receiver knows the frames of a stream by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    None,
    /// What is constant in them: it counts them.
    Count,
    /// A trailer in each.
    Trailer,
}
