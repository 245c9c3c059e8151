//! Shares of a common rate.

use super::clock::Lengths;
use crate::stream::StreamSet;
use crate::{Layer, Rate, rate};

/// Shares of the streams of a set in their common rate, derived from their own rates.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Frames of each, and of all together, in the same time.
    frames: Box<[f64]>,
    all: f64,
    /// Bytes of all in that time.
    bytes: f64,
}

/// Number of frames sampled for the mean length of a stream.
const SAMPLED: u64 = 1024;

impl Shares {
    /// Derives the shares of a set; `None` if each stream has its own rate only, or if they are in sequence.
    pub fn of(set: &StreamSet) -> Option<Self> {
        set.rate.filter(|_| set.order == crate::stream::Order::Interleaved)?;
        let mean = |lengths: Lengths| match lengths {
            Lengths::One(length) => length as f64,
            picked => (0..SAMPLED).map(|n| picked.at(n) as f64).sum::<f64>() / SAMPLED as f64,
        };
        let lengths: Vec<f64> = set.streams.iter().map(|stream| mean(Lengths::of(stream, u64::MAX))).collect();
        let frames = set.streams.iter().zip(&lengths).map(|(stream, length)| match stream.rate {
            Rate::Top => 1.0,
            Rate::Frames(rate) => rate,
            Rate::Bits(bits, layer) => bits / (8.0 * (length + overhead(layer))),
        });
        let frames: Box<[f64]> = frames.collect();
        let bytes = frames.iter().zip(&lengths).map(|(frames, length)| frames * length).sum();
        Some(Shares { all: frames.iter().sum(), frames, bytes })
    }

    /// Returns the mean frame length in bytes over all streams, weighted by their rates.
    pub fn mean_length(&self) -> f64 {
        self.bytes / self.all
    }

    /// Returns the share of the stream at `place` in the rate `all`: frames per second, by its mean length.
    pub fn rate(&self, all: Rate, place: usize) -> Rate {
        let share = self.frames[place];
        match all {
            Rate::Top => Rate::Top,
            Rate::Frames(rate) => Rate::Frames(rate * share / self.all),
            Rate::Bits(bits, layer) => Rate::Frames(bits / 8.0 * share / (self.bytes + overhead(layer) * self.all)),
        }
    }
}

/// Returns the bytes of a frame in addition to those captured.
fn overhead(layer: Layer) -> f64 {
    match layer {
        Layer::L1 => rate::L1_OVERHEAD as f64,
        Layer::L2 => rate::FCS as f64,
    }
}
