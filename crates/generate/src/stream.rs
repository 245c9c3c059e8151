//! Streams of frames: their contents, changing fields, rates and order.
//!
//! Frame number n of a stream is a function of only the stream and n (and, with a trailer, of its send time): so runs
//! are repeatable, several threads or paths send the same frames, and a receiver can verify them. [`Stream::frame`] is
//! that function in its plain form; faster emitters must produce the same frames.

pub mod check;
mod frame;
mod map;
mod select;

pub use check::StreamError;
pub(crate) use frame::put;
pub use linerate_headers::coverage::{Coverage as Checksum, Kind as ChecksumKind};
pub use map::Map;
pub use select::{Alias, FACTORS, GAMMA, IndexSelection, MOST_WEIGHTED, Selector};
pub(crate) use select::{draw, mix, scale};

use crate::Rate;
use crate::trailer::Key;
use linerate_headers::Link;
use std::sync::Arc;

/// The streams of one port.
#[derive(Clone, Debug)]
pub struct StreamSet {
    /// The streams; not empty.
    pub streams: Vec<Stream>,
    /// Sequential or interleaved.
    pub order: Order,
    /// Common rate of all streams: their own rates then only define their shares. `None`: each has its own rate.
    pub rate: Option<Rate>,
    /// Key of the trailers.
    pub key: Key,
}

impl StreamSet {
    /// Returns the gap between frames of the run in nanoseconds, if it is constant.
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

/// Order of the streams of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other, by [`Stream::next`].
    Sequential,
    /// All at once, each at its own rate. Of frames due at the same time the one with the lower number within its
    /// stream is sent first, then the one of the earlier stream: at the maximum rate streams take turns.
    Interleaved,
}

/// One stream of frames.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Name given by the user.
    pub name: String,
    /// Stream number in trailers, below 2^24, unique in the set.
    pub id: u32,
    /// Link type of the frames, the same for all streams of a set.
    pub link: Link,
    /// Variants of its frames, one per length; not empty.
    pub variants: Vec<Variant>,
    /// Selects the variant of frame n; its count is that of the variants.
    pub size: Selector,
    /// Selectors of the values of changing fields. Fields that move together share one.
    pub selectors: Vec<Selector>,
    /// Rate.
    pub rate: Rate,
    /// Distribution of the frames over time.
    pub shape: Shape,
    /// Number of frames; `None` if endless.
    pub count: Option<u64>,
    /// Successor in a sequence.
    pub next: Next,
    /// Start and duration of interleaved streams.
    pub span: Span,
    /// Identification of its frames at the receiver.
    pub mark: Mark,
}

/// Template of the frames of a stream with one length.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// The frame without FCS.
    pub frame: Vec<u8>,
    /// Changing fields; none overlaps another, a fill, a checksum or the trailer.
    pub changes: Vec<Change>,
    /// Bytes that are random in every frame.
    pub fills: Vec<Fill>,
    /// Checksums over changing bytes, in the order of computation: an inner one before an outer one that covers it.
    pub checksums: Vec<Checksum>,
    /// Offset of the 16 bytes of the trailer, if present.
    pub trailer: Option<usize>,
}

/// Changing field.
#[derive(Clone, Debug)]
pub struct Change {
    /// Offset of its first byte.
    pub offset: usize,
    /// Number of bytes it touches, 1 to 16.
    pub width: usize,
    /// Bits of the field, contiguous, as a number in network byte order; not 0. The lowest bit of a value goes to the
    /// lowest of these; values that are too large lose their upper bits, and all other bits stay.
    pub mask: u128,
    /// Index into [`Stream::selectors`].
    pub selector: usize,
    /// Maps the selected index to a value.
    pub map: Map,
}

/// Bytes that are random in every frame: SplitMix64 of the seed and the frame's number.
#[derive(Clone, Debug)]
pub struct Fill {
    /// Offset of the first byte.
    pub offset: usize,
    /// Number of bytes.
    pub length: usize,
    /// Seed; different fills need different seeds.
    pub seed: u64,
}

/// Distribution of frames over time.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Evenly spaced by the rate.
    Even,
    /// Repeated bursts of `frames` frames at the rate, each followed by `gap`. The gap is between the last frame of a
    /// burst, including its time at the rate, and the first one of the next.
    Bursts {
        /// Frames per burst, 1 or more.
        frames: u64,
        /// Nanoseconds between two bursts.
        gap: u64,
    },
    /// Poisson process: gaps drawn from an exponential distribution whose mean is that of the rate.
    Poisson {
        /// Seed; different streams need different seeds.
        seed: u64,
    },
    /// Gaps of a recording, repeated: positions of its frames in gaps of the rate. They begin at 0 and do not decrease;
    /// a pass takes as many gaps as it has frames.
    Recorded(Arc<[f64]>),
}

impl Shape {
    /// Derives the shape from receive times, and the rate in frames per second; 1,000 if all times are equal.
    pub fn recorded(times: &[u64]) -> (Self, f64) {
        let mut latest = times.first().copied().unwrap_or(0);
        let first = latest;
        // A time that goes back counts as the time before.
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

/// Time span of a stream's frames. The default is from the beginning without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Nanoseconds from the start of the run, or from the start command, to the first frame.
    pub start: u64,
    /// Duration in nanoseconds after `start`, from which on no frame is due; pauses extend it.
    pub length: Option<u64>,
}

impl Span {
    /// Unlimited span from the beginning.
    pub const ALWAYS: Span = Span { start: 0, length: None };
}

/// Successor of a stream in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The following stream; after the last one the run ends.
    Following,
    /// Jump to another stream, from its beginning: fields and sequence numbers continue.
    Goto {
        /// Index of the stream, from 0.
        stream: usize,
        /// Number of jumps; after them the following stream is next. `None`: unlimited.
        times: Option<u64>,
    },
    /// None: the run ends.
    Stop,
}

/// Identification of the frames of a stream at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// None.
    None,
    /// By constant bytes: frames are counted.
    Count,
    /// By a trailer in each frame.
    Trailer,
}
