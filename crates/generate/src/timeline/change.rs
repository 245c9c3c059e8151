//! Effects of commands on the clock of a stream.

use super::clock::{Clock, Lengths};
use crate::Rate;
use crate::stream::Shape;

impl Clock {
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    pub(super) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Returns the length of the frame before the next one.
    fn last_length(&self) -> u64 {
        self.lengths.at(self.frames.saturating_sub(1))
    }

    /// Returns the time of the frame before the next one at this rate, in nanoseconds.
    pub(super) fn gap(&self) -> f64 {
        self.rate.exact_nanos(1, self.last_length())
    }

    /// Changes the rate from `at` on. The rest of the current gap is scaled like whole gaps; the first frame waits for
    /// no gap, and a gap between bursts stays.
    pub(super) fn rescale(&mut self, at: f64, rate: Rate) {
        let (left, old, new) = (self.due() - at, self.gap(), rate.exact_nanos(1, self.last_length()));
        let stays = match self.shape {
            _ if self.frames == 0 => left.max(0.0),
            Shape::Bursts { .. } => (left - old).max(0.0),
            Shape::Even | Shape::Poisson { .. } | Shape::Recorded(_) => 0.0,
        };
        let rest = if old > 0.0 { (left - stays) * (new / old) } else { 0.0 };
        let due = at + stays + rest;
        self.rate = rate;
        self.set_due(due);
    }

    /// Sets the lengths of the frames after the next one, which stays due when it was.
    pub(super) fn set_lengths(&mut self, lengths: Lengths) {
        let due = self.due();
        self.lengths = lengths;
        self.set_due(due);
    }

    /// Makes all gaps equal from now on.
    pub(super) fn make_even(&mut self) {
        let due = self.due();
        self.shape = Shape::Even;
        self.set_due(due);
    }

    /// Sets the due time of the next frame, and shifts the later ones with it.
    pub(super) fn set_due(&mut self, due: f64) {
        (self.base, self.from, self.drawn) = (due, (self.frames, self.bytes), due);
    }

    /// Postpones everything by `by` nanoseconds.
    pub(super) fn shift(&mut self, by: f64) {
        (self.base, self.drawn) = (self.base + by, self.drawn + by);
    }

    /// Restarts at `at`: the next frame is the first one again.
    pub(super) fn restart(&mut self, at: f64) {
        (self.frames, self.bytes) = (0, 0);
        self.set_due(at + self.span.start as f64);
    }

    /// Returns the time from which on nothing is due, for a clock at its first frame.
    pub(super) fn end(&self) -> f64 {
        self.span.length.map_or(f64::INFINITY, |length| self.due() + length as f64)
    }

    /// Returns the number of frames since the due times began to count.
    pub(super) fn turns(&self) -> u64 {
        self.frames.wrapping_sub(self.from.0)
    }
}
