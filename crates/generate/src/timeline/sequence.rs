//! Sequential streams: one after the other.

use super::clock::{Clock, FRACTION};
use super::{Slot, StreamEvent, UNLIMITED};
use crate::Rate;
use crate::command::{Action, Command, StreamSelection};
use crate::stream::{Next, Stream, StreamSet};

/// Maximum number of passes to follow when counting frames.
const FOLLOWED: usize = 100_000;

/// Yields the next frame of sequential streams.
///
/// Each stream's clock counts all of its frames, so that its errors don't add up when it is entered again; when a
/// stream begins, the time that all the others have taken is added to its clock.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    steps: Vec<Step>,
    /// Index of the current stream; past the last one the sequence is over.
    at: usize,
    /// Frames left of the current stream.
    left: u64,
    /// Sum of all the other clocks, in fractions of a nanosecond: integers, so that nothing is lost however often
    /// streams take turns.
    others: i128,
    /// Time of the pause, if paused.
    paused: Option<f64>,
    /// Steps at their start, if streams accept commands, and whether they are stopped.
    origins: Option<Box<[Step]>>,
    stopped: bool,
    /// Pending events of streams.
    news: Vec<StreamEvent>,
}

#[derive(Clone, Debug)]
struct Step {
    clock: Clock,
    count: u64,
    next: Next,
    /// Number of jumps since it last continued.
    gone: u64,
}

impl Sequence {
    /// Starts at the first stream.
    pub(super) fn new(set: &StreamSet, cycle: u64) -> Self {
        let step = |stream: &Stream| Step {
            clock: Clock::new(stream, set.rate.unwrap_or(stream.rate), cycle),
            count: stream.count.unwrap_or(UNLIMITED),
            next: stream.next,
            gone: 0,
        };
        let steps: Vec<Step> = set.streams.iter().map(step).collect();
        let left = steps.first().map_or(0, |step| step.count);
        Sequence { steps, at: 0, left, others: 0, paused: None, origins: None, stopped: false, news: Vec::new() }
    }

    /// Like [`Sequence::new`], for streams that accept commands.
    pub(super) fn commanded(set: &StreamSet, cycle: u64) -> Self {
        let sequence = Sequence::new(set, cycle);
        let origins = Some(sequence.steps.clone().into_boxed_slice());
        Sequence { origins, ..sequence }
    }

    /// Applies a command; frames due before it have been sent. Pause, resume, stop and start apply only to all streams
    /// together.
    pub(super) fn apply(&mut self, command: &Command) {
        let at = command.at as f64;
        let (places, is_all) = (command.which.places(self.steps.len()), command.which == StreamSelection::All);
        match &command.action {
            Action::Rate(rate) => places.for_each(|place| self.change_rate(place, at, |_| *rate)),
            Action::Rates(rates) => {
                places.zip(&rates[..]).for_each(|(place, rate)| self.change_rate(place, at, |_| *rate));
            }
            Action::Scale(factor) => places.for_each(|place| self.change_rate(place, at, |rate| rate.scaled(*factor))),
            Action::Pause if is_all && !self.stopped => self.paused = self.paused.or(Some(at)),
            Action::Resume if is_all => {
                if let Some(since) = self.paused.take() {
                    self.shift(at - since);
                }
            }
            Action::Stop if is_all && self.at < self.steps.len() => (self.stopped, self.paused) = (true, None),
            Action::Start(_) if is_all && (self.stopped || self.at >= self.steps.len()) => {
                self.restart(at);
                let begun = |nth| StreamEvent::Begun { stream: nth as u32, number: command.action.number(nth) };
                self.news.extend((0..self.steps.len()).map(begun));
            }
            _ => {}
        }
    }

    /// Drains the events of streams.
    pub(super) fn news(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.news)
    }

    /// Returns whether frames may become due after a command.
    pub(super) fn is_waiting(&self) -> bool {
        self.paused.is_some() || self.stopped
    }

    /// Postpones everything by `by` nanoseconds.
    pub(super) fn shift(&mut self, by: f64) {
        self.others = self.others.saturating_add((by * FRACTION).round() as i128);
    }

    /// Returns whether the next frame is due without waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.steps.get(self.at).is_none_or(|step| step.clock.is_idle())
    }

    fn change_rate(&mut self, place: usize, at: f64, new: impl Fn(Rate) -> Rate) {
        let Some(step) = self.steps.get_mut(place) else { return };
        let rate = new(step.clock.rate());
        // Other streams wait for their turn.
        let at =
            if place == self.at { self.paused.unwrap_or(at) - self.others as f64 / FRACTION } else { step.clock.due() };
        step.clock.rescale(at, rate);
        if let Some(origin) = self.origins.as_mut().and_then(|origins| origins.get_mut(place)) {
            origin.clock.rate = rate;
        }
    }

    fn restart(&mut self, at: f64) {
        let Some(origins) = &self.origins else { return };
        self.steps = origins.to_vec();
        (self.at, self.left, self.stopped) = (0, self.steps.first().map_or(0, |step| step.count), false);
        self.others = (at * FRACTION).round() as i128;
    }

    pub(super) fn peek(&self) -> Option<Slot> {
        if self.is_waiting() {
            return None;
        }
        let clock = &self.steps.get(self.at)?.clock;
        let due = (self.others as f64 / FRACTION + clock.due()).round() as u64;
        Some(Slot { stream: self.at as u32, number: clock.number(), due })
    }

    pub(super) fn advance(&mut self, mut by: u64) {
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

    /// Returns the number of frames; `None` if endless, or if the end is not reached within [`FOLLOWED`] passes.
    pub(super) fn frames(mut self) -> Option<u64> {
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

    /// Returns whether any frame is due later than the first one.
    pub(super) fn is_paced(&self) -> bool {
        self.steps.iter().any(|step| !step.clock.is_idle())
    }

    /// Returns the number of frames of this stream, the next one included, that are due at once.
    pub(super) fn run(&self) -> u64 {
        self.steps.get(self.at).map_or(0, |step| if step.clock.is_idle() { self.left } else { 1 })
    }

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
