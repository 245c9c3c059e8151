//! The engine, from the side of a writer that forwards frames.
//!
//! The writer holds each block too, until it has sent or dropped every frame of it. The caller checks every number that
//! the engine writes; an engine with impossible values is evicted.

use super::Writer;
use crate::acceptor::ReaderIdentity;
use crate::answers::{Answer, AnswerCounts};
use crate::control::Control;
use crate::verdicts::{SETTLED, UNDECIDED, progress, said, set_verdict};
use linerate_burst::Block;
use std::sync::Arc;

/// The attached engine.
#[derive(Debug)]
pub(super) struct Engine {
    number: u32,
    control: Arc<Control>,
    answers: AnswerCounts,
    who: ReaderIdentity,
    is_gone: bool,
    /// Reason of its eviction, if it was evicted.
    evict: Option<String>,
}

/// State of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// No engine.
    Absent,
    /// An engine is attached.
    Attached,
    /// The engine is gone; its verdicts remain until [`Writer::remove_engine`].
    Gone,
}

impl Engine {
    pub(super) fn new(number: u32, control: Arc<Control>, who: ReaderIdentity) -> Self {
        Engine { number, control, answers: AnswerCounts::default(), who, is_gone: false, evict: None }
    }
}

impl Writer {
    /// Makes the writer hold each block from now on until [`Writer::release`], so that it can be read.
    pub fn hold_blocks(&mut self) {
        self.slots.keep();
    }

    /// Releases a block after reading it.
    pub fn release(&mut self, slot: u32) {
        self.slots.release(slot);
    }

    /// Returns the number of the block being filled.
    pub fn current_slot(&self) -> Option<u32> {
        self.slots.current()
    }

    /// Returns a block that was filled, or is being filled, for reading until it is released.
    ///
    /// # Panics
    /// If the block does not exist.
    pub fn filled(&self, slot: u32) -> &Block {
        &self.blocks[slot as usize]
    }

    /// Returns the state of the engine.
    pub fn deciding(&self) -> EngineState {
        match &self.engine {
            None => EngineState::Absent,
            Some(Engine { is_gone: true, .. }) => EngineState::Gone,
            Some(_) => EngineState::Attached,
        }
    }

    /// Returns the engine, or the last one until [`Writer::remove_engine`], and the reason of its eviction, if it was
    /// evicted.
    pub fn engine(&self) -> Option<(&ReaderIdentity, Option<&str>)> {
        self.engine.as_ref().map(|engine| (&engine.who, engine.evict.as_deref()))
    }

    /// Forgets an engine that is gone, and attaches the next one.
    pub fn remove_engine(&mut self) {
        if self.deciding() == EngineState::Gone {
            self.engine = None;
            if let Some(next) = self.next_engine.take() {
                self.admit(next);
            }
        }
    }

    /// Returns the first frame of a block that the engine was shown, if it holds the block.
    pub fn engine_from(&self, slot: u32) -> Option<u32> {
        self.slots.from(self.engine.as_ref().filter(|engine| !engine.is_gone)?.number, slot)
    }

    /// Returns the number of frames of a block that the engine has examined, and of verdicts on held ones.
    pub fn verdicts(&self, slot: u32) -> (u32, u32) {
        self.engine.as_ref().map_or((0, 0), |engine| progress(&engine.control.verdicts(slot)))
    }

    /// Returns the engine's verdict on a frame.
    ///
    /// # Panics
    /// If blocks never have this many frames.
    pub fn verdict(&self, slot: u32, frame: u32) -> u8 {
        self.engine.as_ref().map_or(SETTLED, |engine| said(&engine.control.verdicts(slot), frame))
    }

    /// Returns the next answer of the engine, if there is one.
    ///
    /// # Errors
    /// If it is invalid: then evict the engine.
    pub fn take_answer(&mut self) -> Result<Option<Answer>, &'static str> {
        self.engine.as_mut().map_or(Ok(None), |engine| engine.answers.take(&engine.control))
    }

    /// Marks this many more of its answers as handled.
    pub fn answers_done(&mut self, answers: u64) {
        if let Some(engine) = &mut self.engine {
            engine.answers.done(answers, &engine.control);
        }
    }

    /// Marks a frame as settled: the engine's verdict on it is not needed any more.
    ///
    /// # Panics
    /// If blocks never have this many frames.
    pub fn settle(&self, slot: u32, frame: u32) {
        if let Some(engine) = &self.engine {
            set_verdict(&engine.control.verdicts(slot), frame, SETTLED);
        }
    }

    /// Evicts the engine for breaking the protocol.
    pub fn refuse_engine(&mut self, reason: &str) {
        if let Some(Engine { number, is_gone: false, .. }) = self.engine {
            self.part(number, Some(format!("it broke the protocol: {reason}")));
        }
    }

    /// Returns the number of frames in blocks held by this reader that no longer need its verdict. A block that is
    /// still being filled cannot be returned, although all of its frames may be decided.
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

    pub(super) fn engine_detached(&mut self, number: u32, evict: Option<&str>) {
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
