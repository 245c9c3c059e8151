//! Which frame of which stream goes when: the one sequence that all senders of a set share.
//!
//! Due times are nanoseconds from the start, each counted from there, so that errors don't add up. Frame k of a stream
//! (from 0) is due when the k before it have gone at the stream's rate, with what its shape adds. What that means in a
//! set of several:
//!
//! - **sequential**: a stream begins when its predecessor has taken its time: as many frames at its rate, a gap
//!   of bursts behind the last of them included. Entered again, it goes on where it was: numbers, fields, bursts. With a rate of
//!   all together each stream has that one;
//! - **interleaved**: all begin at once; frames go in the order of due time, number, stream. With a rate of all together frame j
//!   of all is due as that rate says, and the streams' own times only decide on the order.

mod clock;
mod interleave;
mod sequence;
mod turns;

use crate::stream::{Order, StreamSet, Wrong};
use interleave::Interleave;
use sequence::Sequence;

pub use turns::{Kind, Pace, Turns};

/// Stands for a count without end.
const UNLIMITED: u64 = u64::MAX;

/// The part of a set that one of several senders has: every `of`-th frame of its timeline, so that together they send
/// what one would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which part, from 0.
    pub index: u32,
    /// Of how many, 1 or more.
    pub of: u32,
}

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part { index: 0, of: 1 };
}

/// One frame of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Which stream, by its place in the set.
    pub stream: u32,
    /// Which frame of it, from 0.
    pub number: u64,
    /// When it is due, in nanoseconds from the start; 0 at top speed.
    pub due: u64,
}

/// Frames of a timeline that are the same but for their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first one.
    pub first: Slot,
    /// How many, 1 or more.
    pub count: u64,
    /// From one number to the next.
    pub step: u64,
}

impl Run {
    /// The numbers of its frames.
    pub fn numbers(self) -> impl ExactSizeIterator<Item = u64> {
        (0..self.count as u32)
            .map(move |index| self.first.number.wrapping_add(u64::from(index).wrapping_mul(self.step)))
    }

    /// Each of its frames.
    pub fn slots(self) -> impl ExactSizeIterator<Item = Slot> {
        self.numbers().map(move |number| Slot { number, ..self.first })
    }
}

/// The frames of a set in the order in which they go.
#[derive(Clone, Debug)]
pub struct Timeline {
    walk: Walk,
    /// Frames from one of this part to its next.
    stride: u64,
    /// The next one.
    next: Option<Slot>,
    /// No due time is below the one before.
    latest: u64,
}

#[derive(Clone, Debug)]
enum Walk {
    Sequence(Sequence),
    Interleave(Interleave),
}

impl Timeline {
    /// Of the frames of a set that are this part's.
    pub fn new(set: &StreamSet, part: Part) -> Result<Self, Wrong> {
        Timeline::cycling(set, part, u64::MAX)
    }

    /// The same where frame n of each stream is as long as frame `n % cycle`.
    pub(crate) fn cycling(set: &StreamSet, part: Part, cycle: u64) -> Result<Self, Wrong> {
        set.check()?;
        if part.index >= part.of {
            return Err(Wrong::Set(format!("part {} of {}: from 0, below their number", part.index, part.of)));
        }
        let mut walk = match set.order {
            Order::Sequential => Walk::Sequence(Sequence::new(set, cycle)),
            Order::Interleaved => Walk::Interleave(Interleave::new(set, cycle)),
        };
        walk.advance(part.index.into());
        let next = walk.peek();
        Ok(Timeline { walk, stride: part.of.into(), next, latest: 0 })
    }

    /// The next frame, whether due or not; none behind the last.
    pub fn peek(&self) -> Option<Slot> {
        self.next.map(|slot| Slot { due: slot.due.max(self.latest), ..slot })
    }

    /// Whether any frame is due later than the first one.
    pub fn is_paced(&self) -> bool {
        match &self.walk {
            Walk::Sequence(sequence) => sequence.is_paced(),
            Walk::Interleave(interleave) => interleave.is_paced(),
        }
    }

    /// Adds the frames that are due `elapsed` nanoseconds after the start to `runs`, at most `room`; says how many.
    pub fn take(&mut self, elapsed: u64, room: usize, runs: &mut Vec<Run>) -> usize {
        let mut taken = 0;
        while taken < room {
            let Some(first) = self.peek().filter(|slot| slot.due <= elapsed) else { break };
            self.latest = first.due;
            let count = self.run(room - taken);
            runs.push(Run { first, count, step: self.stride });
            taken += count as usize;
            self.walk.advance(count * self.stride);
            self.next = self.walk.peek();
        }
        taken
    }

    /// How many frames, at most `room`, are the same as the next one but for their numbers.
    fn run(&self, room: usize) -> u64 {
        match &self.walk {
            Walk::Sequence(sequence) => sequence.run().div_ceil(self.stride).min(room as u64),
            Walk::Interleave(_) => 1,
        }
    }
}

impl Walk {
    fn peek(&self) -> Option<Slot> {
        match self {
            Walk::Sequence(sequence) => sequence.peek(),
            Walk::Interleave(interleave) => interleave.peek(),
        }
    }

    fn advance(&mut self, by: u64) {
        match self {
            Walk::Sequence(sequence) => sequence.advance(by),
            Walk::Interleave(interleave) => interleave.advance(by),
        }
    }
}
