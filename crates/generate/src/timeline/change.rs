//! What commands do to the clock of a stream.

use super::clock::{Clock, Lengths};
use crate::Rate;
use crate::stream::Shape;

impl Clock {
    /// How fast it goes.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// How long its frames are.
    pub(super) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// The length of the frame before the next one.
    fn last_length(&self) -> u64 {
        self.lengths.at(self.frames.saturating_sub(1))
    }

    /// How long a frame takes at the rate, in nanoseconds: the one before the next.
    pub(super) fn gap(&self) -> f64 {
        self.rate.exact_nanos(1, self.last_length())
    }

    /// From `at` on it goes at another rate. What is left of the gap by then changes as whole gaps do; the first frame waits for
    /// none, and a gap between bursts stays.
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

    /// The frames behind the next one are so long, and it is due when it was.
    pub(super) fn set_lengths(&mut self, lengths: Lengths) {
        let due = self.due();
        self.lengths = lengths;
        self.set_due(due);
    }

    /// The gaps are all the same from now on.
    pub(super) fn make_even(&mut self) {
        let due = self.due();
        self.shape = Shape::Even;
        self.set_due(due);
    }

    /// The next frame is due then, and the others behind it.
    pub(super) fn set_due(&mut self, due: f64) {
        (self.base, self.from, self.drawn) = (due, (self.frames, self.bytes), due);
    }

    /// Everything is due so much later.
    pub(super) fn shift(&mut self, by: f64) {
        (self.base, self.drawn) = (self.base + by, self.drawn + by);
    }

    /// It begins then: the next frame is the first one again.
    pub(super) fn restart(&mut self, at: f64) {
        (self.frames, self.bytes) = (0, 0);
        self.set_due(at + self.span.start as f64);
    }

    /// From when on nothing is due, of a clock at its first frame.
    pub(super) fn end(&self) -> f64 {
        self.span.length.map_or(f64::INFINITY, |length| self.due() + length as f64)
    }

    /// Frames since the due times began to count: so many turns it had.
    pub(super) fn turns(&self) -> u64 {
        self.frames.wrapping_sub(self.from.0)
    }
}
