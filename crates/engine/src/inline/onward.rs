//! Where frames go once their fate is known: out of a port, or nowhere; with what the engine handed back for them.

use super::decide::{Fate, Place};
use super::limit::Limit;
use super::tally::Tally;
use linerate_share::{Answer, Inject, Kind, Writer};
use std::collections::{HashMap, VecDeque};

/// Where frames go that are not dropped, and frames that the engine hands back. By `way` they came.
pub(crate) trait Exits {
    /// A frame goes on as it lies.
    fn pass(&mut self, way: u16, place: Place);

    /// A frame goes on with other bytes.
    fn replace(&mut self, way: u16, place: Place, bytes: Vec<u8>);

    /// A frame of the engine's own goes, beside this one: on its way, or back to where that came from.
    fn inject(&mut self, way: u16, place: Place, back: bool, bytes: Vec<u8>);

    /// Such a frame does not go: they were too many.
    fn refuse(&mut self, way: u16, back: bool);

    /// How many frames of the engine that there is have left, or will not, since this was last asked.
    fn take_own(&mut self) -> u64;

    /// The next engine is another one.
    fn forget_own(&mut self);
}

/// Where frames go, the blocks that they lie in, and the account of all.
pub(crate) struct Onward<E> {
    pub exits: E,
    pub blocks: Blocks,
    /// Of each way, or of all.
    tally: Vec<Tally>,
    pub answers: Pending,
    /// Of frames of the engine's own.
    pub limit: Limit,
}

/// Blocks of which frames are under way.
#[derive(Default)]
pub(crate) struct Blocks {
    pub first: u64,
    pub all: VecDeque<Taken>,
    /// Whether the last of them is being filled.
    pub is_open: bool,
}

/// A block of the ring.
#[derive(Default)]
pub(crate) struct Taken {
    pub slot: u32,
    /// Frames that were handed to a way and are not sent.
    pub unsent: u32,
    /// What the engine says it has looked at, and said later.
    pub looked: u32,
    pub later: u32,
    /// Its verdicts on those that it has looked at, as they were when that was heard.
    pub said: Vec<u8>,
    /// Frames that the engine was asked about and the policy had, and their ways.
    pub overdue: Vec<(u32, u16)>,
    /// It is the ring's again.
    pub is_released: bool,
}

/// What the engine has handed back for frames under way.
#[derive(Default)]
pub(crate) struct Pending {
    replaced: HashMap<Place, Vec<u8>>,
    injected: HashMap<Place, Vec<(Inject, Vec<u8>)>>,
    /// Answers that are done with, and not told.
    done: u64,
    /// Answers for frames that had gone, or that the policy had.
    pub unused: u64,
}

impl<E: Exits> Onward<E> {
    /// With an account for each of so many ways, or with one for all; so many frames of the engine's own go in a second.
    pub(crate) fn new(exits: E, ways: usize, inject_limit: u32) -> Self {
        let (blocks, answers) = Default::default();
        Onward { exits, blocks, tally: vec![Tally::default(); ways], answers, limit: Limit::new(inject_limit) }
    }

    /// The account of a way.
    #[inline]
    pub(crate) fn tally(&mut self, way: u16) -> &mut Tally {
        let last = self.tally.len() - 1;
        &mut self.tally[usize::from(way).min(last)]
    }

    /// Of each way, or of all.
    pub(crate) fn tallies(&self) -> &[Tally] {
        &self.tally
    }

    /// A frame goes where its fate has it.
    #[inline]
    pub(crate) fn route(&mut self, place: Place, way: u16, fate: Fate) {
        self.tally(way).count(fate);
        if self.answers.is_empty() {
            return self.send(place, way, fate, None);
        }
        let answers = &mut self.answers;
        let replaced = answers.replaced.remove(&place);
        let injected = answers.injected.remove(&place).unwrap_or_default();
        if matches!(fate, Fate::Policy(..) | Fate::Unfit) {
            answers.waste(u64::from(replaced.is_some()) + injected.len() as u64);
            return self.send(place, way, fate, None);
        }
        answers.waste(u64::from(replaced.is_some() && fate != Fate::Replaced));
        let (behind, before): (Vec<_>, Vec<_>) = injected.into_iter().partition(|(inject, _)| inject.behind);
        self.inject(place, way, before);
        self.send(place, way, fate, replaced);
        self.inject(place, way, behind);
    }

    fn inject(&mut self, place: Place, way: u16, frames: Vec<(Inject, Vec<u8>)>) {
        for (Inject { back, .. }, bytes) in frames {
            if self.limit.take() {
                self.exits.inject(way, place, back, bytes);
            } else {
                self.answers.done += 1;
                self.exits.refuse(way, back);
            }
        }
    }

    #[inline]
    fn send(&mut self, place: Place, way: u16, fate: Fate, replaced: Option<Vec<u8>>) {
        if !fate.is_sent() {
            return;
        }
        match replaced.filter(|_| fate == Fate::Replaced) {
            Some(bytes) => self.exits.replace(way, place, bytes),
            None => {
                self.exits.pass(way, place);
                self.blocks.at(place.block).into_iter().for_each(|taken| taken.unsent += 1);
            }
        }
    }

    /// Takes note of an answer. It is checked: about a frame that there is, and of its length where it replaces one.
    pub(crate) fn take_answer(
        &mut self,
        answer: Answer,
        writer: &Writer,
        is_gone: impl Fn(Place) -> bool,
    ) -> Result<(), &'static str> {
        let Answer { slot, frame, kind, bytes } = answer;
        let of_slot = |taken: &Taken| taken.slot == slot && !taken.is_released;
        let at = self.blocks.all.iter().rposition(of_slot).ok_or("an answer is about a block that is not under way")?;
        let descs = writer.filled(slot).descs();
        let desc = descs.get(frame as usize).ok_or("an answer is about a frame that there is not")?;
        let place = Place { block: self.blocks.first + at as u64, frame };
        if kind == Kind::Replace && bytes.len() != desc.captured as usize {
            return Err("a frame is replaced by one of another length");
        }
        let answers = &mut self.answers;
        if is_gone(place) {
            answers.waste(1);
            return Ok(());
        }
        match kind {
            Kind::Replace => {
                let before = answers.replaced.insert(place, bytes).is_some();
                answers.waste(u64::from(before));
            }
            Kind::Inject(inject) => answers.injected.entry(place).or_default().push((inject, bytes)),
        }
        Ok(())
    }
}

impl<E: Exits> Onward<E> {
    /// How many answers are done with since this was last asked. One that is sent is when it has left: until then it is memory.
    pub(crate) fn take_done(&mut self) -> u64 {
        self.exits.take_own() + std::mem::take(&mut self.answers.done)
    }

    /// The engine has gone, and what it has handed back with it; what is on its way out goes on.
    pub(crate) fn forget_answers(&mut self) {
        self.answers.clear();
        self.exits.forget_own();
    }
}

impl Blocks {
    pub(crate) fn at(&mut self, block: u64) -> Option<&mut Taken> {
        self.all.get_mut(block.checked_sub(self.first)? as usize)
    }
}

impl Pending {
    #[inline]
    fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.injected.is_empty()
    }

    /// Whether there are bytes for a frame.
    pub(crate) fn replaces(&self, place: Place) -> bool {
        self.replaced.contains_key(&place)
    }

    /// Answers that are for nothing.
    fn waste(&mut self, answers: u64) {
        self.done += answers;
        self.unused += answers;
    }

    /// The engine has gone, and what it has handed back with it.
    pub(crate) fn clear(&mut self) {
        self.unused += (self.replaced.len() + self.injected.values().map(Vec::len).sum::<usize>()) as u64;
        self.replaced.clear();
        self.injected.clear();
        self.done = 0;
    }
}
