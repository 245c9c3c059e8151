//! What a writer that forwards frames knows of the reader that decides about them.
//!
//! Each block is the writer's own, beside its readers', until it has sent or dropped every frame of it. Of what the reader writes
//! the caller checks every number; a reader that says what cannot be is put out.

use super::Writer;
use crate::acceptor::Who;
use crate::answers::{Answer, Taken};
use crate::control::Control;
use crate::verdicts::{SETTLED, UNDECIDED, progress, said, say};
use linerate_burst::Block;
use std::sync::Arc;

/// The reader that decides.
#[derive(Debug)]
pub(super) struct Engine {
    number: u32,
    control: Arc<Control>,
    answers: Taken,
    who: Who,
    is_gone: bool,
    /// Why it was put out, if it was.
    evict: Option<String>,
}

/// Whether a reader decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deciding {
    /// None.
    Nobody,
    /// It is attached.
    Attached,
    /// It has gone; what it had said is still there, until [`Writer::forget_engine`].
    Gone,
}

impl Engine {
    pub(super) fn new(number: u32, control: Arc<Control>, who: Who) -> Self {
        Engine { number, control, answers: Taken::default(), who, is_gone: false, evict: None }
    }
}

impl Writer {
    /// From now on each block is the writer's own until [`Writer::release`], so that it can be read.
    pub fn keep_blocks(&mut self) {
        self.slots.keep();
    }

    /// A block is not read any more.
    pub fn release(&mut self, slot: u32) {
        self.slots.release(slot);
    }

    /// Which block is being filled.
    pub fn current_slot(&self) -> Option<u32> {
        self.slots.current()
    }

    /// A block that was filled, or is being filled, to be read until it is released.
    ///
    /// # Panics
    /// If there is no such block.
    pub fn filled(&self, slot: u32) -> &Block {
        &self.blocks[slot as usize]
    }

    /// Whether a reader decides.
    pub fn deciding(&self) -> Deciding {
        match &self.engine {
            None => Deciding::Nobody,
            Some(Engine { is_gone: true, .. }) => Deciding::Gone,
            Some(_) => Deciding::Attached,
        }
    }

    /// Who decides, or did so last until [`Writer::forget_engine`]; and why it was put out, if it was.
    pub fn engine(&self) -> Option<(&Who, Option<&str>)> {
        self.engine.as_ref().map(|engine| (&engine.who, engine.evict.as_deref()))
    }

    /// The one that has gone is done with: the next one may come.
    pub fn forget_engine(&mut self) {
        if self.deciding() == Deciding::Gone {
            self.engine = None;
            if let Some(next) = self.next_engine.take() {
                self.admit(next);
            }
        }
    }

    /// The first frame of a block that the one who decides was shown, if it has it.
    pub fn engine_from(&self, slot: u32) -> Option<u32> {
        self.slots.from(self.engine.as_ref().filter(|engine| !engine.is_gone)?.number, slot)
    }

    /// How many frames of a block it says it has looked at, and how many verdicts on those it held.
    pub fn verdicts(&self, slot: u32) -> (u32, u32) {
        self.engine.as_ref().map_or((0, 0), |engine| progress(&engine.control.verdicts(slot)))
    }

    /// What it says of a frame.
    ///
    /// # Panics
    /// If a block never has so many.
    pub fn verdict(&self, slot: u32, frame: u32) -> u8 {
        self.engine.as_ref().map_or(SETTLED, |engine| said(&engine.control.verdicts(slot), frame))
    }

    /// The next frame that it hands back, if there is one.
    ///
    /// # Errors
    /// It cannot be right: it is to be refused.
    pub fn take_answer(&mut self) -> Result<Option<Answer>, &'static str> {
        self.engine.as_mut().map_or(Ok(None), |engine| engine.answers.take(&engine.control))
    }

    /// So many more of its answers are done with.
    pub fn answers_done(&mut self, answers: u64) {
        if let Some(engine) = &mut self.engine {
            engine.answers.done(answers, &engine.control);
        }
    }

    /// Tells it that nobody waits for its verdict on a frame.
    ///
    /// # Panics
    /// If a block never has so many.
    pub fn settle(&self, slot: u32, frame: u32) {
        if let Some(engine) = &self.engine {
            say(&engine.control.verdicts(slot), frame, SETTLED);
        }
    }

    /// Puts it out: what it said cannot be.
    pub fn refuse_engine(&mut self, reason: &str) {
        if let Some(Engine { number, is_gone: false, .. }) = self.engine {
            self.part(number, Some(format!("it broke the protocol: {reason}")));
        }
    }

    /// Frames in blocks that this reader holds which need no verdict of it any more. A block that is still being filled cannot be given
    /// back, although all of its frames may be decided.
    pub(super) fn decided_by(&self, number: u32) -> u64 {
        let Some(engine) = self.engine.as_ref().filter(|engine| engine.number == number && !engine.is_gone) else {
            return 0;
        };
        let decided = |slot: u32| {
            let area = engine.control.verdicts(slot);
            let looked = progress(&area).0.min(self.slots.frames(slot));
            let from = self.slots.from(number, slot).unwrap_or(looked);
            (from..looked).filter(|frame| said(&area, *frame) != UNDECIDED).count() as u64
        };
        self.slots.held_by(number).map(decided).sum()
    }

    pub(super) fn engine_parted(&mut self, number: u32, evict: Option<&str>) {
        if let Some(engine) = self.engine.as_mut().filter(|engine| engine.number == number) {
            engine.is_gone = true;
            engine.evict = evict.map(str::to_owned);
        }
    }

    pub(super) fn reset_verdicts(&self, slot: u32) {
        if let Some(engine) = self.engine.as_ref().filter(|engine| !engine.is_gone) {
            engine.control.reset(slot);
        }
    }
}
