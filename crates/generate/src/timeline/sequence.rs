//! Streams one after the other.

use super::clock::{Clock, FRACTION};
use super::{Slot, UNLIMITED};
use crate::stream::{Next, Stream, StreamSet};

/// Passes that are followed to find the end.
const FOLLOWED: usize = 100_000;

/// Which frame of which stream is next.
///
/// Each stream's clock counts all of its frames, so that its errors don't add up when it is entered again; when a
/// stream begins, its clock is set off against the time that all the others have taken.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    steps: Vec<Step>,
    /// Which stream; behind the last one the sequence is over.
    at: usize,
    /// Its frames that are left.
    left: u64,
    /// What all the other clocks show together, in fractions of a nanosecond: whole numbers, so that nothing is lost
    /// however often streams take turns.
    others: i128,
}

#[derive(Clone, Debug)]
struct Step {
    clock: Clock,
    count: u64,
    next: Next,
    /// How often it went elsewhere since it last went on.
    gone: u64,
}

impl Sequence {
    /// From the first stream on.
    pub fn new(set: &StreamSet, cycle: u64) -> Self {
        let step = |stream: &Stream| Step {
            clock: Clock::new(stream, set.rate.unwrap_or(stream.rate), cycle),
            count: stream.count.unwrap_or(UNLIMITED),
            next: stream.next,
            gone: 0,
        };
        let steps: Vec<Step> = set.streams.iter().map(step).collect();
        let left = steps.first().map_or(0, |step| step.count);
        Sequence { steps, at: 0, left, others: 0 }
    }

    /// The next frame.
    pub fn peek(&self) -> Option<Slot> {
        let clock = &self.steps.get(self.at)?.clock;
        let due = (self.others as f64 / FRACTION + clock.due()).round() as u64;
        Some(Slot { stream: self.at as u32, number: clock.number(), due })
    }

    /// Goes on by so many frames.
    pub fn advance(&mut self, mut by: u64) {
        while let Some(step) = self.steps.get_mut(self.at) {
            if by < self.left {
                step.clock.advance(by);
                self.left -= if self.left == UNLIMITED { 0 } else { by };
                return;
            }
            by -= self.left;
            step.clock.advance(self.left);
            self.enter_next();
        }
    }

    /// How many frames there are; `None` without end, or where more passes than are worth following do not show it.
    pub fn frames(mut self) -> Option<u64> {
        let mut frames = 0u64;
        for _ in 0..FOLLOWED {
            match self.left {
                _ if self.at >= self.steps.len() => return Some(frames),
                UNLIMITED => return None,
                left => frames = frames.checked_add(left)?,
            }
            self.enter_next();
        }
        None
    }

    /// Whether any frame is due later than the first one.
    pub fn is_paced(&self) -> bool {
        self.steps.iter().any(|step| !step.clock.is_idle())
    }

    /// How many frames of this stream, the next one included, are due at once.
    pub fn run(&self) -> u64 {
        self.steps.get(self.at).map_or(0, |step| if step.clock.is_idle() { self.left } else { 1 })
    }

    /// The stream that follows, from its beginning.
    fn enter_next(&mut self) {
        let step = &mut self.steps[self.at];
        let all = self.others.saturating_add(step.clock.fractions());
        self.at = match step.next {
            Next::Goto { stream, times } if times.is_none_or(|times| step.gone < times) => {
                step.gone += u64::from(times.is_some());
                stream
            }
            Next::Goto { .. } => {
                step.gone = 0;
                self.at + 1
            }
            Next::Following => self.at + 1,
            Next::Stop => self.steps.len(),
        };
        if let Some(step) = self.steps.get(self.at) {
            self.left = step.count;
            self.others = all.saturating_sub(step.clock.fractions());
        }
    }
}
