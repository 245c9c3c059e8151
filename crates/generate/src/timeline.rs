//! The order and times of frames: the one sequence that all senders of a set share.
//!
//! Due times are nanoseconds from the start, each counted from there, so that errors don't add up. Frame k of a stream
//! (from 0) is due after the k frames before it at the stream's rate, plus the gaps of its shape. In a set of several
//! streams:
//!
//! - **sequential**: a stream begins when its predecessor has taken its time: its number of frames at its rate,
//!   including a burst gap after the last of them. When entered again, it continues its numbers, fields and bursts.
//!   With a common rate each stream has that rate;
//! - **interleaved**: all begin at once; frames are sent in the order of due time, number, stream. With a common rate
//!   frame j of all is due by that rate, and the streams' own rates only decide the order. A stream with a
//!   [`Span`](crate::stream::Span) begins later by its start, and has no frame from its end on.

mod batch;
mod change;
mod clock;
mod interleave;
mod recurrence;
mod sequence;
mod shares;

use crate::command::{Action, Command, StreamSelection};
use crate::stream::{Order, StreamError, StreamSet};
use interleave::Interleave;
use sequence::Sequence;
use std::collections::VecDeque;

pub use batch::Batch;
pub use recurrence::{Kind, Pace, Turns};
pub use shares::Shares;

/// Count of an endless stream.
const UNLIMITED: u64 = u64::MAX;

/// The share of a set that one of several senders has: every `of`-th frame of its timeline, so that together they send
/// the same as one would.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderPart {
    /// Index of the part, from 0.
    pub index: u32,
    /// Number of parts, 1 or more.
    pub of: u32,
}

impl SenderPart {
    /// The whole set.
    pub const WHOLE: SenderPart = SenderPart { index: 0, of: 1 };
}

/// One frame of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Index of the stream in the set.
    pub stream: u32,
    /// Frame number within the stream, from 0.
    pub number: u64,
    /// Due time in nanoseconds from the start; 0 at the maximum rate.
    pub due: u64,
}

/// Frames of a timeline that differ only in their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First frame.
    pub first: Slot,
    /// Number of frames, 1 or more.
    pub count: u64,
    /// Difference between successive numbers.
    pub step: u64,
}

impl Run {
    /// Returns the numbers of its frames.
    pub fn numbers(self) -> impl ExactSizeIterator<Item = u64> {
        (0..self.count as u32)
            .map(move |index| self.first.number.wrapping_add(u64::from(index).wrapping_mul(self.step)))
    }

    /// Returns each of its frames.
    pub fn slots(self) -> impl ExactSizeIterator<Item = Slot> {
        self.numbers().map(move |number| Slot { number, ..self.first })
    }
}

/// Frames of a set in the order of sending.
#[derive(Clone, Debug)]
pub struct Timeline {
    walk: FrameOrder,
    /// Distance between successive frames of this part.
    stride: u64,
    next: Option<Slot>,
    /// Latest due time; due times never decrease.
    latest: u64,
    commands: Option<Box<Commands>>,
}

#[derive(Clone, Debug)]
struct Commands {
    /// Pending commands, ordered by time.
    pending: VecDeque<Command>,
    /// Number of commands applied, time of the last one, and those that began streams.
    applied: u64,
    until: Option<u64>,
    arrived: Vec<Command>,
    /// Frames of other senders before the next one of this part. They are skipped when they are due: until then a
    /// command may arrive.
    others: u64,
    /// Index of this part.
    index: u64,
}

/// Event of a stream that accepts commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The stream was started or restarted.
    Begun {
        /// Index of the stream in the set.
        stream: u32,
        /// New stream number in trailers, if it changed.
        number: Option<u32>,
    },
    /// The stream was stopped, or its last frame was taken; not reported for streams in sequence.
    Ended {
        /// Index of the stream in the set.
        stream: u32,
    },
}

/// A sender that is this far behind its schedule when a command is due does not catch up, in nanoseconds: otherwise a
/// pause would begin only after the whole backlog.
const FORGIVEN: u64 = 100_000_000;

#[derive(Clone, Debug)]
enum FrameOrder {
    Sequence(Sequence),
    Interleave(Interleave),
}

impl Timeline {
    /// Creates the timeline of one part of a set.
    pub fn new(set: &StreamSet, part: SenderPart) -> Result<Self, StreamError> {
        Timeline::cycling(set, part, u64::MAX)
    }

    /// Like [`Timeline::new`], with frame n of each stream as long as frame `n % cycle`.
    pub(crate) fn cycling(set: &StreamSet, part: SenderPart, cycle: u64) -> Result<Self, StreamError> {
        check(set, part)?;
        let mut walk = match set.order {
            Order::Sequential => FrameOrder::Sequence(Sequence::new(set, cycle)),
            Order::Interleaved => FrameOrder::Interleave(Interleave::new(set, cycle)),
        };
        walk.advance(part.index.into());
        let next = walk.peek();
        Ok(Timeline { walk, stride: part.of.into(), next, latest: 0, commands: None })
    }

    /// Like [`Timeline::cycling`], for streams that accept [commands](Timeline::command).
    pub(crate) fn commanded(set: &StreamSet, part: SenderPart, cycle: u64) -> Result<Self, StreamError> {
        check(set, part)?;
        let walk = match set.order {
            Order::Sequential => FrameOrder::Sequence(Sequence::commanded(set, cycle)),
            Order::Interleaved => FrameOrder::Interleave(Interleave::commanded(set, cycle)),
        };
        let commands = Some(Box::new(Commands::new(part.index.into())));
        let next = walk.peek();
        Ok(Timeline { walk, stride: part.of.into(), next, latest: 0, commands })
    }

    /// Creates the timeline of streams that have yet to [begin](Action::Begin).
    pub(crate) fn coming() -> Self {
        let (walk, commands) = (FrameOrder::Interleave(Interleave::coming()), Some(Box::new(Commands::new(0))));
        Timeline { walk, stride: 1, next: None, latest: 0, commands }
    }

    /// Queues a command. No frame that is due at its time or later may have been taken.
    pub(crate) fn command(&mut self, command: Command) {
        if let Some(commands) = &mut self.commands {
            let place = commands.pending.partition_point(|other| other.at <= command.at);
            commands.pending.insert(place, command);
        }
    }

    /// Returns the number of commands applied so far.
    pub(crate) fn applied(&self) -> u64 {
        self.commands.as_ref().map_or(0, |commands| commands.applied)
    }

    /// Returns the time of the last command applied.
    pub(crate) fn applied_until(&self) -> Option<u64> {
        self.commands.as_ref().and_then(|commands| commands.until)
    }

    /// Drains the events of streams up to the frames taken last, in order.
    pub(crate) fn news(&mut self) -> Vec<StreamEvent> {
        match &mut self.walk {
            FrameOrder::Sequence(sequence) => sequence.news(),
            FrameOrder::Interleave(interleave) => interleave.news(),
        }
    }

    /// Drains the applied commands that began streams.
    pub(crate) fn arrived(&mut self) -> Vec<Command> {
        self.commands.as_mut().map(|commands| std::mem::take(&mut commands.arrived)).unwrap_or_default()
    }

    /// Applies commands due by `until` although frames due before them cannot be sent: those are postponed. Returns the
    /// streams that this ended. With several senders nothing is applied: each has frames of its own to send, and none
    /// can.
    pub(crate) fn stand(&mut self, until: u64) -> Vec<StreamSelection> {
        let mut ended = Vec::new();
        while let Some(commands) = self.commands.as_ref().filter(|_| self.stride == 1)
            && let Some(command) = commands.pending.front().filter(|command| command.at <= until)
        {
            if matches!(command.action, Action::Stop | Action::Begin(_)) {
                ended.push(command.which.clone());
            }
            let backlog = self.next.map_or(0, |slot| command.at.saturating_sub(slot.due));
            self.do_next(backlog);
        }
        ended
    }

    /// Returns the time of the next frame or command, if any is known.
    pub(crate) fn next_due(&self) -> Option<u64> {
        let command = self.commands.as_ref().and_then(|commands| commands.pending.front()).map(|command| command.at);
        let due = self.peek().map(|slot| slot.due);
        due.into_iter().chain(command).min()
    }

    /// Returns whether frames may become due after a command.
    pub(crate) fn is_waiting(&self) -> bool {
        match &self.walk {
            FrameOrder::Sequence(sequence) => sequence.is_waiting(),
            FrameOrder::Interleave(interleave) => interleave.is_waiting(),
        }
    }

    /// Returns the next frame, due or not; `None` after the last.
    pub fn peek(&self) -> Option<Slot> {
        self.next.map(|slot| Slot { due: slot.due.max(self.latest), ..slot })
    }

    /// Returns whether any frame is due later than the first one.
    pub fn is_paced(&self) -> bool {
        match &self.walk {
            FrameOrder::Sequence(sequence) => sequence.is_paced(),
            FrameOrder::Interleave(interleave) => interleave.is_paced(),
        }
    }

    /// Appends the frames that are due `elapsed` nanoseconds after the start to `runs`, at most `room`; returns their
    /// number.
    pub fn take(&mut self, elapsed: u64, room: usize, runs: &mut Vec<Run>) -> usize {
        let mut taken = 0;
        while taken < room {
            if self.commands.is_some() && !self.apply(elapsed, taken == 0) {
                break;
            }
            let Some(first) = self.peek().filter(|slot| slot.due <= elapsed) else { break };
            self.latest = first.due;
            if self.skip_others() {
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

    /// Applies the commands due by now, once all frames due before them were taken. Returns false if this must wait
    /// until the frames taken so far are sent: a command may change their streams.
    fn apply(&mut self, elapsed: u64, may: bool) -> bool {
        while let Some(commands) = &mut self.commands
            && let Some(command) = commands.pending.front()
            && command.at <= elapsed
        {
            let (at, backlog) = (command.at, self.next.map_or(0, |slot| command.at.saturating_sub(slot.due)));
            let idle = self.walk.is_idle();
            let forgiven = self.stride == 1 && elapsed - at + backlog > FORGIVEN;
            if backlog > 0 && !idle && !forgiven {
                break;
            }
            if !may {
                return false;
            }
            self.do_next(if idle { 0 } else { backlog });
        }
        true
    }

    /// Applies the next command, after postponing the frames due before it by `backlog` nanoseconds.
    fn do_next(&mut self, backlog: u64) {
        let Some(commands) = &mut self.commands else { return };
        let Some(command) = commands.pending.pop_front() else { return };
        if backlog > 0 {
            self.walk.shift(backlog as f64);
        }
        (commands.applied, commands.until) = (commands.applied + 1, Some(command.at));
        if self.next.is_none() && matches!(command.action, Action::Start(_)) {
            // Each of several senders is at its own position, and all begin together.
            commands.others = commands.index;
        }
        self.walk.apply(&command);
        if matches!(command.action, Action::Begin(_)) {
            commands.arrived.push(command);
        }
        self.next = self.walk.peek();
    }

    /// Skips a frame of another sender.
    fn skip_others(&mut self) -> bool {
        let Some(commands) = self.commands.as_mut().filter(|commands| commands.others > 0) else { return false };
        commands.others -= 1;
        self.walk.advance(1);
        self.next = self.walk.peek();
        true
    }

    /// Returns how many frames, at most `room`, differ from the next one only in their numbers.
    fn run(&self, room: usize) -> u64 {
        match &self.walk {
            _ if self.stride > 1 && self.commands.is_some() => 1,
            FrameOrder::Sequence(sequence) => sequence.run().div_ceil(self.stride).min(room as u64),
            FrameOrder::Interleave(_) => 1,
        }
    }
}

impl Commands {
    /// Creates the queue of a part with `others` frames of other senders before its first.
    fn new(others: u64) -> Self {
        let (pending, arrived) = (VecDeque::new(), Vec::new());
        Commands { pending, applied: 0, until: None, arrived, others, index: others }
    }
}

impl FrameOrder {
    fn peek(&self) -> Option<Slot> {
        match self {
            FrameOrder::Sequence(sequence) => sequence.peek(),
            FrameOrder::Interleave(interleave) => interleave.peek(),
        }
    }

    fn advance(&mut self, by: u64) {
        match self {
            FrameOrder::Sequence(sequence) => sequence.advance(by),
            FrameOrder::Interleave(interleave) => interleave.advance(by),
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            FrameOrder::Sequence(sequence) => sequence.is_idle(),
            FrameOrder::Interleave(interleave) => interleave.is_idle(),
        }
    }

    fn apply(&mut self, command: &Command) {
        match self {
            FrameOrder::Sequence(sequence) => sequence.apply(command),
            FrameOrder::Interleave(interleave) => interleave.apply(command),
        }
    }

    fn shift(&mut self, by: f64) {
        match self {
            FrameOrder::Sequence(sequence) => sequence.shift(by),
            FrameOrder::Interleave(interleave) => interleave.shift(by),
        }
    }
}

/// Checks that the set is valid and has this part.
fn check(set: &StreamSet, part: SenderPart) -> Result<(), StreamError> {
    set.check()?;
    if part.index >= part.of {
        return Err(StreamError::Set(format!(
            "part {}: no such part; expected a number from 0 to below {}",
            part.index, part.of
        )));
    }
    Ok(())
}
