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
//!   of all is due as that rate says, and the streams' own times only decide on the order. A stream with a
//!   [`Span`](crate::stream::Span) begins as much later, and has no frame from its end on.

mod batch;
mod change;
mod clock;
mod interleave;
mod sequence;
mod shares;
mod turns;

use crate::command::{Action, Command, Which};
use crate::stream::{Order, StreamSet, Wrong};
use interleave::Interleave;
use sequence::Sequence;
use std::collections::VecDeque;

pub use batch::Batch;
pub use shares::Shares;
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
    commands: Option<Box<Commands>>,
}

/// What streams are told.
#[derive(Clone, Debug)]
struct Commands {
    /// By their times.
    pending: VecDeque<Command>,
    /// How many were obeyed, the time of the last, and those by which streams came.
    obeyed: u64,
    until: Option<u64>,
    arrived: Vec<Command>,
    /// Frames of others before the next one of this part. They are passed when they are due: until then a command may come.
    others: u64,
    /// Which part that is.
    index: u64,
}

/// What became of a stream that can be told something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It began anew.
    Begun {
        /// Which, by its place in the set.
        stream: u32,
        /// Its number in trailers from now on, if that is another one.
        number: Option<u32>,
    },
    /// It was stopped, or its last frame was taken; not told of streams that follow one another.
    Ended {
        /// Which, by its place in the set.
        stream: u32,
    },
}

/// Whoever is so far behind its schedule when streams are told something does not make up for it, in nanoseconds: a pause would
/// begin when all that was due before it has gone.
const FORGIVEN: u64 = 100_000_000;

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
        check(set, part)?;
        let mut walk = match set.order {
            Order::Sequential => Walk::Sequence(Sequence::new(set, cycle)),
            Order::Interleaved => Walk::Interleave(Interleave::new(set, cycle)),
        };
        walk.advance(part.index.into());
        let next = walk.peek();
        Ok(Timeline { walk, stride: part.of.into(), next, latest: 0, commands: None })
    }

    /// The same of streams that can be [told](Timeline::tell) something while they run.
    pub(crate) fn commanded(set: &StreamSet, part: Part, cycle: u64) -> Result<Self, Wrong> {
        check(set, part)?;
        let walk = match set.order {
            Order::Sequential => Walk::Sequence(Sequence::commanded(set, cycle)),
            Order::Interleaved => Walk::Interleave(Interleave::commanded(set, cycle)),
        };
        let commands = Some(Box::new(Commands::new(part.index.into())));
        let next = walk.peek();
        Ok(Timeline { walk, stride: part.of.into(), next, latest: 0, commands })
    }

    /// Of streams that are yet to [begin](Action::Begin).
    pub(crate) fn coming() -> Self {
        let (walk, commands) = (Walk::Interleave(Interleave::coming()), Some(Box::new(Commands::new(0))));
        Timeline { walk, stride: 1, next: None, latest: 0, commands }
    }

    /// Tells streams something. No frame that is due at that time or later may have been taken.
    pub(crate) fn tell(&mut self, command: Command) {
        if let Some(commands) = &mut self.commands {
            let place = commands.pending.partition_point(|other| other.at <= command.at);
            commands.pending.insert(place, command);
        }
    }

    /// How many commands were obeyed so far.
    pub(crate) fn obeyed(&self) -> u64 {
        self.commands.as_ref().map_or(0, |commands| commands.obeyed)
    }

    /// The time of the last of those.
    pub(crate) fn obeyed_until(&self) -> Option<u64> {
        self.commands.as_ref().and_then(|commands| commands.until)
    }

    /// What became of streams with the frames taken last, in this order, since this was asked last.
    pub(crate) fn news(&mut self) -> Vec<News> {
        match &mut self.walk {
            Walk::Sequence(sequence) => sequence.news(),
            Walk::Interleave(interleave) => interleave.news(),
        }
    }

    /// Commands obeyed by which streams came, since this was asked last.
    pub(crate) fn arrived(&mut self) -> Vec<Command> {
        self.commands.as_mut().map(|commands| std::mem::take(&mut commands.arrived)).unwrap_or_default()
    }

    /// Does what streams are told by then though what is due before cannot go: it is due so much later. Says who has nothing to send any
    /// more by that. Of several senders each has its own frames to send, and none can.
    pub(crate) fn stand(&mut self, until: u64) -> Vec<Which> {
        let mut ended = Vec::new();
        while let Some(commands) = self.commands.as_ref().filter(|_| self.stride == 1)
            && let Some(command) = commands.pending.front().filter(|command| command.at <= until)
        {
            if matches!(command.action, Action::Stop | Action::Begin(_)) {
                ended.push(command.which.clone());
            }
            let behind = self.next.map_or(0, |slot| command.at.saturating_sub(slot.due));
            self.do_next(behind);
        }
        ended
    }

    /// When there is something to do next: a frame is due, or streams are told something; none where nothing is known to come.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let told = self.commands.as_ref().and_then(|commands| commands.pending.front()).map(|command| command.at);
        let due = self.peek().map(|slot| slot.due);
        due.into_iter().chain(told).min()
    }

    /// Whether frames may come once streams are told something.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.walk {
            Walk::Sequence(sequence) => sequence.is_waiting(),
            Walk::Interleave(interleave) => interleave.is_waiting(),
        }
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
            if self.commands.is_some() && !self.obey(elapsed, taken == 0) {
                break;
            }
            let Some(first) = self.peek().filter(|slot| slot.due <= elapsed) else { break };
            self.latest = first.due;
            if self.pass_others() {
                continue;
            }
            let count = self.run(room - taken);
            runs.push(Run { first, count, step: self.stride });
            taken += count as usize;
            match &mut self.commands {
                Some(commands) if self.stride > 1 => {
                    commands.others = self.stride - 1;
                    self.walk.advance(1);
                }
                _ => self.walk.advance(count * self.stride),
            }
            self.next = self.walk.peek();
        }
        taken
    }

    /// Does what streams are told by now, once all that was due before has gone. False where that has to wait until the frames
    /// taken so far have gone too: what is known of them may change.
    fn obey(&mut self, elapsed: u64, may: bool) -> bool {
        while let Some(commands) = &mut self.commands
            && let Some(command) = commands.pending.front()
            && command.at <= elapsed
        {
            let (at, behind) = (command.at, self.next.map_or(0, |slot| command.at.saturating_sub(slot.due)));
            let idle = self.walk.is_idle();
            let forgiven = self.stride == 1 && elapsed - at + behind > FORGIVEN;
            if behind > 0 && !idle && !forgiven {
                break;
            }
            if !may {
                return false;
            }
            self.do_next(if idle { 0 } else { behind });
        }
        true
    }

    /// Does what streams are told next, what is due before that being due so much later.
    fn do_next(&mut self, behind: u64) {
        let Some(commands) = &mut self.commands else { return };
        let Some(command) = commands.pending.pop_front() else { return };
        if behind > 0 {
            self.walk.shift(behind as f64);
        }
        (commands.obeyed, commands.until) = (commands.obeyed + 1, Some(command.at));
        if self.next.is_none() && matches!(command.action, Action::Start(_)) {
            // Each of several senders stands where it stands, and all begin together.
            commands.others = commands.index;
        }
        self.walk.obey(&command);
        if matches!(command.action, Action::Begin(_)) {
            commands.arrived.push(command);
        }
        self.next = self.walk.peek();
    }

    /// Passes a frame that others send.
    fn pass_others(&mut self) -> bool {
        let Some(commands) = self.commands.as_mut().filter(|commands| commands.others > 0) else { return false };
        commands.others -= 1;
        self.walk.advance(1);
        self.next = self.walk.peek();
        true
    }

    /// How many frames, at most `room`, are the same as the next one but for their numbers.
    fn run(&self, room: usize) -> u64 {
        match &self.walk {
            _ if self.stride > 1 && self.commands.is_some() => 1,
            Walk::Sequence(sequence) => sequence.run().div_ceil(self.stride).min(room as u64),
            Walk::Interleave(_) => 1,
        }
    }
}

impl Commands {
    /// For a part with so many frames of others before its first.
    fn new(others: u64) -> Self {
        let (pending, arrived) = (VecDeque::new(), Vec::new());
        Commands { pending, obeyed: 0, until: None, arrived, others, index: others }
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

    fn is_idle(&self) -> bool {
        match self {
            Walk::Sequence(sequence) => sequence.is_idle(),
            Walk::Interleave(interleave) => interleave.is_idle(),
        }
    }

    fn obey(&mut self, command: &Command) {
        match self {
            Walk::Sequence(sequence) => sequence.obey(command),
            Walk::Interleave(interleave) => interleave.obey(command),
        }
    }

    fn shift(&mut self, by: f64) {
        match self {
            Walk::Sequence(sequence) => sequence.shift(by),
            Walk::Interleave(interleave) => interleave.shift(by),
        }
    }
}

/// Whether there is such a part of a set.
fn check(set: &StreamSet, part: Part) -> Result<(), Wrong> {
    set.check()?;
    if part.index >= part.of {
        return Err(Wrong::Set(format!("part {} of {}: from 0, below their number", part.index, part.of)));
    }
    Ok(())
}
