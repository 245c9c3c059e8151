//! Packets whose memory is on its way.
//!
//! What a packet needs lies anywhere in memory, so it is asked for and meanwhile others are looked at. Each packet goes through
//! three steps: its key is hashed and its bucket asked for; its record is found in the bucket and asked for; it is counted.
//! Between the steps so many others have their turn that the memory has come. Steps of different packets take turns one by
//! one: an instruction that asks for memory waits for the page tables, and the processor counts another packet meanwhile.

use crate::encapsulation::Encapsulation;
use crate::facts::Facts;
use crate::key::Wide;
use crate::table::NONE;

/// Packets between two steps of one.
const DISTANCE: usize = 16;
/// Room: two distances and some, a power of two.
const ROOM: usize = 64;

/// A packet between its steps.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub facts: Facts,
    /// The other part of a wide key; of any other anything.
    pub wide: Wide,
    /// What is in front of it; anything unless the facts say that there is something.
    pub encapsulation: Encapsulation,
    /// Its record, as far as its bucket says.
    pub guess: u32,
}

/// Packets in the order in which they came.
#[derive(Default)]
pub(crate) struct Pipeline {
    slots: Vec<Slot>,
    /// How many took the first, the second and the third step; they go round.
    hashed: usize,
    guessed: usize,
    counted: usize,
}

impl Pipeline {
    pub fn new() -> Self {
        let slot =
            Slot { facts: Facts::NONE, wide: Wide::default(), encapsulation: Encapsulation::default(), guess: NONE };
        Pipeline { slots: vec![slot; ROOM], ..Pipeline::default() }
    }

    /// Where the next packet will be.
    #[inline(always)]
    pub fn next(&mut self) -> &mut Slot {
        &mut self.slots[self.hashed % ROOM]
    }

    /// The packet in `next` has taken its first step.
    #[inline(always)]
    pub fn push(&mut self) {
        self.hashed = self.hashed.wrapping_add(1);
    }

    /// The packet whose second step is due; `all` are if no more come.
    #[inline(always)]
    pub fn second(&mut self, all: bool) -> Option<&mut Slot> {
        let due = self.hashed.wrapping_sub(self.guessed) > if all { 0 } else { DISTANCE };
        due.then(|| {
            self.guessed = self.guessed.wrapping_add(1);
            &mut self.slots[self.guessed.wrapping_sub(1) % ROOM]
        })
    }

    /// The packet whose third step is due.
    #[inline(always)]
    pub fn third(&mut self, all: bool) -> Option<&Slot> {
        let due = self.guessed.wrapping_sub(self.counted) > if all { 0 } else { DISTANCE };
        due.then(|| {
            self.counted = self.counted.wrapping_add(1);
            &self.slots[self.counted.wrapping_sub(1) % ROOM]
        })
    }

    /// The packet that is counted so many later, if its record is asked for already.
    #[inline(always)]
    pub fn later(&self, by: usize) -> Option<&Slot> {
        let place = self.counted.wrapping_add(by);
        (self.guessed.wrapping_sub(place) as isize > 0).then(|| &self.slots[place % ROOM])
    }
}
