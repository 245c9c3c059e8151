//! Output of decided frames, with the answers of the engine for them.

use super::decide::{Fate, FramePosition};
use super::limit::Limit;
use super::tally::FateCounts;
use linerate_share::{Answer, AnswerKind, Inject, Writer};
use std::collections::{HashMap, VecDeque};

/// Output of frames that are not dropped, and of those injected by the engine; `way` is the direction in which they
/// arrived.
pub(crate) trait Exits {
    /// Sends a frame in place.
    fn pass(&mut self, way: u16, place: FramePosition);

    /// Sends a frame with other bytes.
    fn replace(&mut self, way: u16, place: FramePosition, bytes: Vec<u8>);

    /// Sends a frame injected with this one: in its direction, or with `back` in the opposite one.
    fn inject(&mut self, way: u16, place: FramePosition, back: bool, bytes: Vec<u8>);

    /// Counts an injected frame beyond the limit.
    fn refuse(&mut self, way: u16, back: bool);

    /// Returns how many frames of the current engine were sent or dropped since the last call.
    fn take_own(&mut self) -> u64;

    /// Resets that count for a new engine.
    fn discard_own(&mut self);
}

/// Output of frames, their blocks, and their accounts.
pub(crate) struct FrameOutput<E> {
    pub exits: E,
    pub blocks: Blocks,
    /// For each direction, or one for all.
    tally: Vec<FateCounts>,
    pub answers: PendingAnswers,
    /// Limit of injected frames.
    pub limit: Limit,
}

/// Blocks with pending frames.
#[derive(Default)]
pub(crate) struct Blocks {
    pub first: u64,
    pub all: VecDeque<Taken>,
    /// True if the last of them is being filled.
    pub is_open: bool,
}

/// A block of the ring.
#[derive(Default)]
pub(crate) struct Taken {
    pub slot: u32,
    /// Number of frames passed to an output and not sent.
    pub unsent: u32,
    /// Number of frames inspected, and of later verdicts, as reported by the engine.
    pub looked: u32,
    pub later: u32,
    /// Verdicts on inspected frames, as they were when read.
    pub said: Vec<u8>,
    /// Frames shown to the engine but decided by the policy, and their directions.
    pub overdue: Vec<(u32, u16)>,
    /// True once it was returned to the ring.
    pub is_released: bool,
}

/// Answers of the engine for pending frames.
#[derive(Default)]
pub(crate) struct PendingAnswers {
    replaced: HashMap<FramePosition, Vec<u8>>,
    injected: HashMap<FramePosition, Vec<(Inject, Vec<u8>)>>,
    /// Number of answers completed but not reported.
    done: u64,
    /// Number of answers for frames already gone or decided by the policy.
    pub unused: u64,
}

impl<E: Exits> FrameOutput<E> {
    /// Creates an output with an account for each of `ways` directions, or with one for all; at most `inject_limit`
    /// injected frames are sent per second.
    pub(crate) fn new(exits: E, ways: usize, inject_limit: u32) -> Self {
        let (blocks, answers) = Default::default();
        FrameOutput {
            exits,
            blocks,
            tally: vec![FateCounts::default(); ways],
            answers,
            limit: Limit::new(inject_limit),
        }
    }

    /// Returns the account of a direction.
    #[inline]
    pub(crate) fn tally(&mut self, way: u16) -> &mut FateCounts {
        let last = self.tally.len() - 1;
        &mut self.tally[usize::from(way).min(last)]
    }

    /// Returns the accounts of each direction, or the common one.
    pub(crate) fn tallies(&self) -> &[FateCounts] {
        &self.tally
    }

    /// Sends or drops a frame.
    #[inline]
    pub(crate) fn route(&mut self, place: FramePosition, way: u16, fate: Fate) {
        self.tally(way).count(fate);
        if self.answers.is_empty() {
            return self.send(place, way, fate, None);
        }
        let answers = &mut self.answers;
        let replaced = answers.replaced.remove(&place);
        let injected = answers.injected.remove(&place).unwrap_or_default();
        if matches!(fate, Fate::Policy(..) | Fate::Unfit) {
            answers.count_unused(u64::from(replaced.is_some()) + injected.len() as u64);
            return self.send(place, way, fate, None);
        }
        answers.count_unused(u64::from(replaced.is_some() && fate != Fate::Replaced));
        let (after, before): (Vec<_>, Vec<_>) = injected.into_iter().partition(|(inject, _)| inject.behind);
        self.inject(place, way, before);
        self.send(place, way, fate, replaced);
        self.inject(place, way, after);
    }

    fn inject(&mut self, place: FramePosition, way: u16, frames: Vec<(Inject, Vec<u8>)>) {
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
    fn send(&mut self, place: FramePosition, way: u16, fate: Fate, replaced: Option<Vec<u8>>) {
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

    /// Records an answer after checking it: its frame must exist, and a replacement must have the same length.
    pub(crate) fn take_answer(
        &mut self,
        answer: Answer,
        writer: &Writer,
        is_gone: impl Fn(FramePosition) -> bool,
    ) -> Result<(), &'static str> {
        let Answer { slot, frame, kind, bytes } = answer;
        let of_slot = |taken: &Taken| taken.slot == slot && !taken.is_released;
        let at = self.blocks.all.iter().rposition(of_slot).ok_or("an answer refers to a block that is not pending")?;
        let descs = writer.filled(slot).descs();
        let desc = descs.get(frame as usize).ok_or("an answer refers to an unknown frame")?;
        let place = FramePosition { block: self.blocks.first + at as u64, frame };
        if kind == AnswerKind::Replace && bytes.len() != desc.captured as usize {
            return Err("a replacement has another length than its frame");
        }
        let answers = &mut self.answers;
        if is_gone(place) {
            answers.count_unused(1);
            return Ok(());
        }
        match kind {
            AnswerKind::Replace => {
                let before = answers.replaced.insert(place, bytes).is_some();
                answers.count_unused(u64::from(before));
            }
            AnswerKind::Inject(inject) => answers.injected.entry(place).or_default().push((inject, bytes)),
        }
        Ok(())
    }
}

impl<E: Exits> FrameOutput<E> {
    /// Returns the number of answers completed since the last call. Bytes to be sent are complete when they have left:
    /// until then they occupy memory.
    pub(crate) fn take_completed(&mut self) -> u64 {
        self.exits.take_own() + std::mem::take(&mut self.answers.done)
    }

    /// Drops the answers of an engine that has detached; those already in the output are still sent.
    pub(crate) fn drop_answers(&mut self) {
        self.answers.clear();
        self.exits.discard_own();
    }
}

impl Blocks {
    pub(crate) fn at(&mut self, block: u64) -> Option<&mut Taken> {
        self.all.get_mut(block.checked_sub(self.first)? as usize)
    }
}

impl PendingAnswers {
    #[inline]
    fn is_empty(&self) -> bool {
        self.replaced.is_empty() && self.injected.is_empty()
    }

    /// Returns whether there are replacement bytes for a frame.
    pub(crate) fn replaces(&self, place: FramePosition) -> bool {
        self.replaced.contains_key(&place)
    }

    /// Counts unused answers.
    fn count_unused(&mut self, answers: u64) {
        self.done += answers;
        self.unused += answers;
    }

    /// Drops the answers of an engine that has detached.
    pub(crate) fn clear(&mut self) {
        self.unused += (self.replaced.len() + self.injected.values().map(Vec::len).sum::<usize>()) as u64;
        self.replaced.clear();
        self.injected.clear();
        self.done = 0;
    }
}
