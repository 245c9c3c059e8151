//! Answers: frames that the deciding reader returns, as replacement bytes for a frame or as additional frames.
//!
//! They are entries of one size in the reader's own memory, with a count that is stored last. The writer copies an
//! entry out once, checks it, and counts it as answered when it has handled it, so that at most [`ANSWERS`] are
//! outstanding.

use crate::control::Control;
use crate::engine::Ticket;
use crate::layout::{ANSWER_FRAME, ANSWERS};

/// Position of a frame that the engine injects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inject {
    /// Sent out of the port on which the other frame arrived, instead of where that one goes.
    pub back: bool,
    /// Sent after the other frame, instead of before it.
    pub behind: bool,
}

/// Type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// Replacement bytes for a frame.
    Replace,
    /// An additional frame.
    Inject(Inject),
}

/// An answer, as received by the writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Block of the frame that the answer refers to.
    pub slot: u32,
    /// Index of the frame in the block.
    pub frame: u32,
    /// Type of the answer.
    pub kind: AnswerKind,
    /// Bytes of the answer.
    pub bytes: Vec<u8>,
}

/// Reason why an answer was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The maximum number of answers is outstanding.
    #[error("{} answers are outstanding; give verdicts on their frames first", ANSWERS)]
    Full,
    /// The answer is too long.
    #[error("frame too long; the limit is {} bytes", ANSWER_FRAME)]
    TooLong,
}

/// The answers of the engine: to be given before the verdict on their frame.
pub struct Answers<'a> {
    pub(crate) control: &'a Control,
    pub(crate) given: &'a mut u64,
}

impl Answers<'_> {
    /// Replaces the frame's bytes, with this length, once its verdict is [`crate::Verdict::Replace`].
    ///
    /// # Errors
    /// If too many answers are outstanding, or the frame is too long.
    pub fn replace(&mut self, ticket: Ticket, bytes: &[u8]) -> Result<(), AnswerError> {
        self.put(ticket, AnswerKind::Replace, bytes)
    }

    /// Injects a frame that is sent when the other one is passed or dropped by its verdict, but not when the policy
    /// decides.
    ///
    /// # Errors
    /// If too many answers are outstanding, or the frame is too long.
    pub fn inject(&mut self, ticket: Ticket, inject: Inject, bytes: &[u8]) -> Result<(), AnswerError> {
        self.put(ticket, AnswerKind::Inject(inject), bytes)
    }

    fn put(&mut self, ticket: Ticket, kind: AnswerKind, bytes: &[u8]) -> Result<(), AnswerError> {
        if bytes.len() > ANSWER_FRAME {
            return Err(AnswerError::TooLong);
        }
        if self.given.wrapping_sub(self.control.answered()) >= ANSWERS.into() {
            return Err(AnswerError::Full);
        }
        let (kind, flags) = match kind {
            AnswerKind::Replace => (REPLACE, 0),
            AnswerKind::Inject(Inject { back, behind }) => (INJECT, u32::from(back) | u32::from(behind) << 1),
        };
        let (slot, frame) = ticket.place();
        self.control.put_answer(*self.given, [kind, slot, frame, flags, bytes.len() as u32], bytes);
        *self.given += 1;
        Ok(())
    }
}

const REPLACE: u32 = 1;
const INJECT: u32 = 2;

/// The answers that the writer has received.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounts {
    taken: u64,
    done: u64,
}

impl AnswerCounts {
    /// Returns the next answer, if there is one.
    ///
    /// # Errors
    /// If the reader broke the protocol.
    pub(crate) fn take(&mut self, control: &Control) -> Result<Option<Answer>, &'static str> {
        let given = control.answering();
        if given == self.taken {
            return Ok(None);
        }
        if given.wrapping_sub(self.done) > ANSWERS.into() || given.wrapping_sub(self.taken) > ANSWERS.into() {
            return Err("it has more answers outstanding than allowed");
        }
        let ([kind, slot, frame, flags, length], bytes) = control.answer(self.taken);
        self.taken += 1;
        let kind = match (kind, flags) {
            (REPLACE, 0) => AnswerKind::Replace,
            (INJECT, 0..=3) => AnswerKind::Inject(Inject { back: flags & 1 != 0, behind: flags & 2 != 0 }),
            _ => return Err("an answer has an unknown type"),
        };
        if length as usize != bytes.len() {
            return Err("an answer is too long");
        }
        Ok(Some(Answer { slot, frame, kind, bytes }))
    }

    /// Marks this many more answers as handled.
    pub(crate) fn done(&mut self, answers: u64, control: &Control) {
        self.done += answers;
        control.set_answered(self.done);
    }
}
