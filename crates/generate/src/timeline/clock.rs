//! Due times of the frames of one stream.

use crate::stream::draw;
use crate::stream::{Selector, Shape, Span, Stream};
use crate::{Layer, Rate};

/// Fractions per nanosecond.
pub(super) const FRACTION: f64 = 65536.0;

/// The next frame of a stream, and its due time if the stream starts at 0.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    pub(super) rate: Rate,
    pub(super) shape: Shape,
    pub(super) lengths: Lengths,
    /// Frames before the next one, and their bytes if the rate depends on them.
    pub(super) frames: u64,
    pub(super) bytes: u64,
    /// Due time of the next frame, by the gaps drawn so far.
    pub(super) drawn: f64,
    /// Origin of due times: the time, and the frame with the number of bytes before it.
    pub(super) base: f64,
    pub(super) from: (u64, u64),
    /// Start and end, relative to the start of the stream.
    pub(super) span: Span,
}

/// Common properties of clocks that always agree.
pub(super) type ClockKind = [u64; 7];

/// Frame lengths of a stream.
#[derive(Clone, Debug)]
pub(super) enum Lengths {
    /// All frames have this length.
    One(u64),
    /// Frame n has the length that the selector picks for `n` modulo `cycle`.
    Picked { size: Selector, lengths: Box<[u32]>, cycle: u64 },
}

impl Clock {
    /// Starts at a stream's first frame. Frame n is as long as frame `n % cycle`.
    pub(super) fn new(stream: &Stream, rate: Rate, cycle: u64) -> Self {
        let lengths = Lengths::of(stream, cycle);
        let (shape, span, base) = (stream.shape.clone(), stream.span, stream.span.start as f64);
        Clock { rate, shape, lengths, frames: 0, bytes: 0, drawn: base, base, from: (0, 0), span }
    }

    /// Returns the number of the next frame.
    pub(super) fn number(&self) -> u64 {
        self.frames
    }

    /// Returns the due time of the next frame in nanoseconds.
    pub(super) fn due(&self) -> f64 {
        let (frames, bytes) = (self.frames.wrapping_sub(self.from.0), self.bytes.wrapping_sub(self.from.1));
        match &self.shape {
            Shape::Even => self.base + self.rate.exact_nanos(frames, bytes),
            Shape::Bursts { frames: burst, gap } => {
                let bursts = self.frames / burst.max(&1) - self.from.0 / burst.max(&1);
                self.base + self.rate.exact_nanos(frames, bytes) + bursts as f64 * *gap as f64
            }
            Shape::Poisson { .. } => self.drawn,
            Shape::Recorded(places) => {
                let gaps = place(places, self.frames) - place(places, self.from.0);
                self.base + gaps * self.rate.exact_nanos(1, 0)
            }
        }
    }

    /// Returns the due time of the next frame in fractions of a nanosecond.
    pub(super) fn fractions(&self) -> i128 {
        (self.due() * FRACTION).round() as i128
    }

    pub(super) fn advance(&mut self, by: u64) {
        match (&self.lengths, &self.shape) {
            (Lengths::One(length), Shape::Even | Shape::Bursts { .. }) => {
                self.bytes = self.bytes.wrapping_add(length.wrapping_mul(by));
                self.frames = self.frames.wrapping_add(by);
            }
            (_, Shape::Even | Shape::Bursts { .. } | Shape::Recorded(_)) if !matches!(self.rate, Rate::Bits(..)) => {
                self.frames = self.frames.wrapping_add(by);
            }
            _ => (0..by).for_each(|_| self.step()),
        }
    }

    fn step(&mut self) {
        let length = self.lengths.at(self.frames);
        if let Shape::Poisson { seed } = self.shape {
            self.drawn += self.rate.exact_nanos(1, length) * exponential(draw(seed, self.frames));
        }
        self.bytes = self.bytes.wrapping_add(length);
        self.frames = self.frames.wrapping_add(1);
    }

    /// Returns whether all frames are due at once.
    pub(super) fn is_idle(&self) -> bool {
        self.rate == Rate::Top && !matches!(self.shape, Shape::Bursts { .. })
    }

    /// Returns the kind that two clocks share if they always agree; `None` if this one agrees with no other.
    pub(super) fn kind(&self) -> Option<ClockKind> {
        let (kind, number, length) = match (self.rate, &self.lengths) {
            (Rate::Top, _) => (0, 0.0, 0),
            (Rate::Frames(number), _) => (1, number, 0),
            (Rate::Bits(number, Layer::L1), Lengths::One(length)) => (2, number, *length),
            (Rate::Bits(number, Layer::L2), Lengths::One(length)) => (3, number, *length),
            (Rate::Bits(..), Lengths::Picked { .. }) => return None,
        };
        let (frames, gap) = match &self.shape {
            Shape::Even => (0, 0),
            Shape::Bursts { frames, gap } => (*frames, *gap),
            Shape::Poisson { .. } | Shape::Recorded(_) => return None,
        };
        let Span { start, length: until } = self.span;
        Some([kind, number.to_bits(), length, frames, gap, start, until.unwrap_or(u64::MAX)])
    }
}

impl Lengths {
    pub(super) fn of(stream: &Stream, cycle: u64) -> Self {
        let lengths: Box<[u32]> = stream.variants.iter().map(|variant| variant.frame.len() as u32).collect();
        match lengths.iter().all(|length| *length == lengths[0]) {
            true => Lengths::One(u64::from(lengths[0])),
            false => Lengths::Picked { size: stream.size.clone(), lengths, cycle },
        }
    }

    /// Returns the length of frame `n`.
    pub(super) fn at(&self, n: u64) -> u64 {
        match self {
            Lengths::One(length) => *length,
            Lengths::Picked { size, lengths, cycle } => {
                let picked = size.at(if n < *cycle { n } else { n % cycle });
                lengths.get(picked as usize).copied().unwrap_or(0).into()
            }
        }
    }
}

/// Returns the position of a frame of a recording, in gaps from the first frame of the first pass.
fn place(places: &[f64], frame: u64) -> f64 {
    let pass = places.len().max(1) as u64;
    let within = places.get((frame % pass) as usize).copied().unwrap_or(0.0);
    (frame / pass * pass) as f64 + within
}

/// Maps a draw to the exponential distribution of mean 1: its upper 53 bits are a number above 0, up to 1.
fn exponential(draw: u64) -> f64 {
    let uniform = ((draw >> 11) + 1) as f64 / (1u64 << 53) as f64;
    -uniform.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_have_the_mean_and_spread_of_their_distribution() {
        let gaps: Vec<f64> = (0..100_000).map(|n| exponential(draw(3, n))).collect();
        let mean = gaps.iter().sum::<f64>() / 1e5;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 1e5;
        let short = gaps.iter().filter(|gap| **gap < std::f64::consts::LN_2).count();
        assert!((mean - 1.0).abs() < 0.02 && (spread - 1.0).abs() < 0.05, "{mean} {spread}");
        assert!((49_000..51_000).contains(&short), "half of the gaps are below ln 2: {short}");
        assert!(exponential(0).is_finite() && exponential(u64::MAX) == 0.0);
    }
}
