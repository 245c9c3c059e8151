//! Interleaved streams: all at once.

mod chain;
mod commands;

use self::commands::CommandState;
use super::clock::{Clock, Lengths};
use super::{Slot, StreamEvent, UNLIMITED};
use crate::Rate;
use crate::stream::{Order, StreamSet};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

/// Yields the next frame of interleaved streams.
///
/// Streams whose clocks always agree take turns in a round: their frames have the same number and due time. Rounds are
/// in a heap. So a hundred thousand streams of one rate cost no more than one.
#[derive(Clone, Debug)]
pub(super) struct Interleave {
    heap: BinaryHeap<Reverse<Turn>>,
    rounds: Vec<Round>,
    /// Number of frames per stream.
    counts: Vec<u64>,
    total: Option<Total>,
    /// State of streams that accept commands.
    commanded: Option<Box<CommandState>>,
    /// Pending events of those streams.
    news: Option<Vec<StreamEvent>>,
}

/// Next frame of a round, in the order of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    due: u64,
    /// Number of its frame, since its due times began to count.
    turns: u64,
    stream: u32,
    round: u32,
}

#[derive(Clone, Debug)]
struct Round {
    clock: Clock,
    /// Streams that still have frames, in order, and the index of the next one.
    members: Vec<u32>,
    turn: usize,
    /// Number at which the first of them has no frame left.
    ends: u64,
    /// Delay of each member after the clock, ascending; empty if all are due together.
    phases: Vec<f64>,
    /// Time from which on nothing is due.
    end: f64,
    /// Time of the pause, if paused.
    paused: Option<f64>,
    /// The only member is a stream of a sequence.
    is_chained: bool,
}

/// Common rate of all streams together.
#[derive(Clone, Debug)]
struct Total {
    rate: Rate,
    frames: u64,
    bytes: u64,
    /// Due time of the first frame.
    base: f64,
    /// Frame lengths of each stream, where the rate depends on them.
    lengths: Vec<Lengths>,
}

impl Interleave {
    /// Starts at the first frames.
    pub(super) fn new(set: &StreamSet, cycle: u64) -> Self {
        debug_assert_eq!(set.order, Order::Interleaved);
        let counts: Vec<u64> = set.streams.iter().map(|stream| stream.count.unwrap_or(UNLIMITED)).collect();
        let mut rounds: Vec<Round> = Vec::new();
        let mut kinds = HashMap::new();
        for (index, stream) in set.streams.iter().enumerate() {
            let clock = Clock::new(stream, stream.rate, cycle);
            let known = clock.kind().map(|kind| *kinds.entry(kind).or_insert(rounds.len()));
            match known.and_then(|known| rounds.get_mut(known)) {
                Some(round) => {
                    round.members.push(index as u32);
                    round.ends = round.ends.min(counts[index]);
                }
                None => rounds.push(Round::new(clock, index as u32, counts[index])),
            }
        }
        let heap = first_turns(&rounds);
        let total = set.rate.map(|rate| {
            let streams = if matches!(rate, Rate::Bits(..)) { &set.streams[..] } else { &[] };
            let lengths = streams.iter().map(|stream| Lengths::of(stream, cycle)).collect();
            Total { rate, frames: 0, bytes: 0, base: 0.0, lengths }
        });
        Interleave { heap, rounds, counts, total, commanded: None, news: None }
    }

    pub(super) fn peek(&self) -> Option<Slot> {
        let Reverse(Turn { due, stream, round, .. }) = *self.heap.peek()?;
        let number = self.rounds[round as usize].clock.number();
        let due = self.total.as_ref().map_or(due, |total| total.due().round() as u64);
        Some(Slot { stream, number, due })
    }

    /// Returns whether any frame is due later than the first one.
    pub(super) fn is_paced(&self) -> bool {
        match &self.total {
            Some(total) => total.rate != Rate::Top,
            None if self.rounds.is_empty() => self.would_be_paced(),
            None => self.rounds.iter().any(|round| !round.clock.is_idle()),
        }
    }

    /// Returns whether the next frame is due without waiting.
    pub(super) fn is_idle(&self) -> bool {
        match (&self.total, self.heap.peek()) {
            (Some(total), _) => total.rate == Rate::Top,
            (None, Some(Reverse(turn))) => self.rounds[turn.round as usize].clock.is_idle(),
            (None, None) => true,
        }
    }

    pub(super) fn advance(&mut self, by: u64) {
        for _ in 0..by {
            let Some(mut top) = self.heap.peek_mut() else { return };
            let Reverse(turn) = &mut *top;
            let round = &mut self.rounds[turn.round as usize];
            if let Some(total) = &mut self.total {
                total.step(turn.stream, round.clock.number());
            }
            round.turn += 1;
            if let Some(stream) = round.members.get(round.turn) {
                turn.stream = *stream;
                if !round.phases.is_empty() {
                    turn.due = round.due();
                }
                continue;
            }
            match &mut self.commanded {
                Some(commanded) if round.is_chained => round.follow(commanded, self.news.as_mut()),
                _ => round.go_on(&self.counts, self.news.as_mut()),
            }
            match round.turn(turn.round) {
                Some(next) => *turn = next,
                None => {
                    PeekMut::pop(top);
                }
            }
        }
    }
}

/// Returns the first turn of each running round.
fn first_turns(rounds: &[Round]) -> BinaryHeap<Reverse<Turn>> {
    let running = rounds.iter().enumerate().filter(|(_, round)| round.paused.is_none());
    running.filter_map(|(index, round)| round.turn(index as u32).map(Reverse)).collect()
}

impl Round {
    /// Creates a round of one stream with `count` frames.
    fn new(clock: Clock, stream: u32, count: u64) -> Self {
        let end = clock.end();
        let (turn, phases, paused) = (0, Vec::new(), None);
        Round { clock, members: vec![stream], turn, ends: count, phases, end, paused, is_chained: false }
    }

    /// Returns the next frame.
    fn turn(&self, round: u32) -> Option<Turn> {
        let stream = *self.members.get(self.turn).filter(|_| !self.is_late())?;
        Some(Turn { due: self.due(), turns: self.clock.turns(), stream, round })
    }

    /// Returns the due time of the next frame.
    fn due(&self) -> u64 {
        (self.clock.due() + self.phases.get(self.turn).copied().unwrap_or(0.0)).round() as u64
    }

    /// Returns whether the next frame would be due at or after the end.
    fn is_late(&self) -> bool {
        self.end.is_finite() && self.clock.due().round() >= self.end.round()
    }

    /// Advances after a turn of all members.
    fn go_on(&mut self, counts: &[u64], news: Option<&mut Vec<StreamEvent>>) {
        self.turn = 0;
        self.clock.advance(1);
        if self.clock.number() >= self.ends || self.is_late() {
            self.retire(counts, news);
        }
    }

    /// Removes the streams that have no frame left.
    fn retire(&mut self, counts: &[u64], news: Option<&mut Vec<StreamEvent>>) {
        let (number, is_late) = (self.clock.number(), self.is_late());
        let stays = |stream: &u32| !is_late && counts[*stream as usize] > number;
        if let Some(news) = news {
            let ended = self.members.iter().filter(|stream| !stays(stream));
            news.extend(ended.map(|stream| StreamEvent::Ended { stream: *stream }));
        }
        if !self.phases.is_empty() {
            let mut members = self.members.iter();
            self.phases.retain(|_| members.next().is_some_and(stays));
        }
        self.members.retain(stays);
        self.find_end(counts);
    }

    fn find_end(&mut self, counts: &[u64]) {
        self.ends = self.members.iter().map(|stream| counts[*stream as usize]).min().unwrap_or(UNLIMITED);
    }
}

impl Total {
    /// Returns the due time of the next frame.
    fn due(&self) -> f64 {
        self.base + self.rate.exact_nanos(self.frames, self.bytes)
    }

    fn step(&mut self, stream: u32, number: u64) {
        self.frames = self.frames.wrapping_add(1);
        let length = self.lengths.get(stream as usize).map_or(0, |lengths| lengths.at(number));
        self.bytes = self.bytes.wrapping_add(length);
    }
}
