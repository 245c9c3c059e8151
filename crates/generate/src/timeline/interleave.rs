//! Streams all at once.

use super::clock::{Clock, Lengths};
use super::{Slot, UNLIMITED};
use crate::Rate;
use crate::stream::{Order, StreamSet};
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap};

/// Which frame of which stream is next.
///
/// Streams whose clocks always show the same take turns in a round, whose frames have the same number and are due at
/// the same time; rounds lie in a heap. So a hundred thousand streams of one rate cost no more than one.
#[derive(Clone, Debug)]
pub(super) struct Interleave {
    heap: BinaryHeap<Reverse<Turn>>,
    rounds: Vec<Round>,
    /// Frames of each stream.
    counts: Vec<u64>,
    total: Option<Total>,
}

/// The next frame of a round, in the order in which frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    due: u64,
    number: u64,
    stream: u32,
    round: u32,
}

#[derive(Clone, Debug)]
struct Round {
    clock: Clock,
    /// The streams that still have frames, in order, and whose turn it is.
    members: Vec<u32>,
    turn: usize,
    /// The number at which the first of them has none left.
    ends: u64,
}

/// The rate of all streams together.
#[derive(Clone, Debug)]
struct Total {
    rate: Rate,
    frames: u64,
    bytes: u64,
    /// How long the frames of each stream are, where the rate asks for it.
    lengths: Vec<Lengths>,
}

impl Interleave {
    /// From the first frame on.
    pub fn new(set: &StreamSet, cycle: u64) -> Self {
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
                None => rounds.push(Round { clock, members: vec![index as u32], turn: 0, ends: counts[index] }),
            }
        }
        let first = |(index, round): (usize, &Round)| round.turn(index as u32).map(Reverse);
        let heap = rounds.iter().enumerate().filter_map(first).collect();
        let total = set.rate.map(|rate| {
            let streams = if matches!(rate, Rate::Bits(..)) { &set.streams[..] } else { &[] };
            let lengths = streams.iter().map(|stream| Lengths::of(stream, cycle)).collect();
            Total { rate, frames: 0, bytes: 0, lengths }
        });
        Interleave { heap, rounds, counts, total }
    }

    /// The next frame.
    pub fn peek(&self) -> Option<Slot> {
        let Reverse(Turn { due, number, stream, .. }) = *self.heap.peek()?;
        let due = self.total.as_ref().map_or(due, |total| total.rate.nanos(total.frames, total.bytes));
        Some(Slot { stream, number, due })
    }

    /// Whether any frame is due later than the first one.
    pub fn is_paced(&self) -> bool {
        match &self.total {
            Some(total) => total.rate != Rate::Top,
            None => self.rounds.iter().any(|round| !round.clock.is_idle()),
        }
    }

    /// Goes on by so many frames.
    pub fn advance(&mut self, by: u64) {
        for _ in 0..by {
            let Some(mut top) = self.heap.peek_mut() else { return };
            let Reverse(turn) = &mut *top;
            if let Some(total) = &mut self.total {
                total.step(turn);
            }
            let round = &mut self.rounds[turn.round as usize];
            round.turn += 1;
            if let Some(stream) = round.members.get(round.turn) {
                turn.stream = *stream;
                continue;
            }
            round.turn = 0;
            round.clock.advance(1);
            if round.clock.number() >= round.ends {
                round.retire(&self.counts);
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

impl Round {
    /// The next frame.
    fn turn(&self, round: u32) -> Option<Turn> {
        let stream = *self.members.get(self.turn)?;
        Some(Turn { due: self.clock.due().round() as u64, number: self.clock.number(), stream, round })
    }

    /// Leaves out the streams that have no frame left.
    fn retire(&mut self, counts: &[u64]) {
        let number = self.clock.number();
        self.members.retain(|stream| counts[*stream as usize] > number);
        self.ends = self.members.iter().map(|stream| counts[*stream as usize]).min().unwrap_or(UNLIMITED);
    }
}

impl Total {
    fn step(&mut self, turn: &Turn) {
        self.frames = self.frames.wrapping_add(1);
        let length = self.lengths.get(turn.stream as usize).map_or(0, |lengths| lengths.at(turn.number));
        self.bytes = self.bytes.wrapping_add(length);
    }
}
