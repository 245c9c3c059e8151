//! Frames that the deciding reader hands back: bytes in place of a frame's own, and frames to be sent beside it.
//!
//! Entries of one size in the reader's own memory, and a count that is stored last. The writer copies an entry out once, checks it, and
//! counts it as answered when it has done with it, so that there are never more than [`ANSWERS`] under way.

use crate::control::Control;
use crate::engine::Ticket;
use crate::layout::{ANSWER_FRAME, ANSWERS};

/// Where a frame of the engine's own goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// Out of the port that the other frame came in by, instead of where that one goes.
    pub back: bool,
    /// Behind the other frame, instead of before it.
    pub behind: bool,
}

/// What an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The bytes that a frame goes on with.
    Replace,
    /// A frame beside it.
    Inject(Inject),
}

/// An answer, as the writer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Which block the frame is in that it is about.
    pub slot: u32,
    /// Which frame of the block.
    pub frame: u32,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Why an answer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// So many are under way.
    #[error("{} answers are under way: say what becomes of frames first", ANSWERS)]
    Full,
    /// It is too long.
    #[error("a frame of more than {} bytes", ANSWER_FRAME)]
    TooLong,
}

/// Where the engine puts answers: in front of the verdict on their frame.
pub struct Answers<'a> {
    pub(crate) control: &'a Control,
    pub(crate) given: &'a mut u64,
}

impl Answers<'_> {
    /// These bytes go on in place of the frame's own, once its verdict is [`crate::Verdict::Replace`]; as many as it has.
    ///
    /// # Errors
    /// There is no room.
    pub fn replace(&mut self, ticket: Ticket, bytes: &[u8]) -> Result<(), Unanswered> {
        self.put(ticket, Kind::Replace, bytes)
    }

    /// This frame is sent when that one goes, or is dropped by its verdict; not where the policy has it.
    ///
    /// # Errors
    /// There is no room.
    pub fn inject(&mut self, ticket: Ticket, inject: Inject, bytes: &[u8]) -> Result<(), Unanswered> {
        self.put(ticket, Kind::Inject(inject), bytes)
    }

    fn put(&mut self, ticket: Ticket, kind: Kind, bytes: &[u8]) -> Result<(), Unanswered> {
        if bytes.len() > ANSWER_FRAME {
            return Err(Unanswered::TooLong);
        }
        if self.given.wrapping_sub(self.control.answered()) >= ANSWERS.into() {
            return Err(Unanswered::Full);
        }
        let (kind, flags) = match kind {
            Kind::Replace => (REPLACE, 0),
            Kind::Inject(Inject { back, behind }) => (INJECT, u32::from(back) | u32::from(behind) << 1),
        };
        let (slot, frame) = ticket.place();
        self.control.put_answer(*self.given, [kind, slot, frame, flags, bytes.len() as u32], bytes);
        *self.given += 1;
        Ok(())
    }
}

const REPLACE: u32 = 1;
const INJECT: u32 = 2;

/// The answers that the writer has taken.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    taken: u64,
    done: u64,
}

impl Taken {
    /// The next one, if one is there.
    ///
    /// # Errors
    /// It cannot be right.
    pub(crate) fn take(&mut self, control: &Control) -> Result<Option<Answer>, &'static str> {
        let given = control.answering();
        if given == self.taken {
            return Ok(None);
        }
        if given.wrapping_sub(self.done) > ANSWERS.into() || given.wrapping_sub(self.taken) > ANSWERS.into() {
            return Err("more answers are under way than there can be");
        }
        let ([kind, slot, frame, flags, length], bytes) = control.answer(self.taken);
        self.taken += 1;
        let kind = match (kind, flags) {
            (REPLACE, 0) => Kind::Replace,
            (INJECT, 0..=3) => Kind::Inject(Inject { back: flags & 1 != 0, behind: flags & 2 != 0 }),
            _ => return Err("an answer is of no kind that there is"),
        };
        if length as usize != bytes.len() {
            return Err("an answer is longer than there can be");
        }
        Ok(Some(Answer { slot, frame, kind, bytes }))
    }

    /// So many more are done with.
    pub(crate) fn done(&mut self, answers: u64, control: &Control) {
        self.done += answers;
        control.set_answered(self.done);
    }
}
