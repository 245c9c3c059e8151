//! The engine: a reader that gives a verdict on each frame, immediately or later.
//!
//! Verdicts lie in its own control memory: one byte per frame, published in batches. A block is returned to the writer
//! once all of its frames were examined and none is held.

use crate::answers::Answers;
use crate::reader::{End, Reader};
use crate::verdicts::{self, SETTLED};
use linerate_burst::{Desc, Interface};
use std::os::fd::BorrowedFd;

/// Frames whose verdicts are published together: one cache line of verdicts.
const BATCH: usize = 64;

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Pass the frame.
    Pass = 0,
    /// Drop the frame.
    Block = 1,
    /// Pass the frame with the replacement bytes that were given for it, as many as it has.
    Replace = 2,
    /// Pass the frame, and later frames of its flow without asking.
    Whitelist = 3,
    /// Drop the frame, and later frames of its flow.
    Blacklist = 4,
    /// Like [`Verdict::Whitelist`]: this engine does not want to see more of the flow.
    Ignore = 5,
}

impl Verdict {
    /// All verdicts, indexed by number.
    pub const ALL: [Verdict; 6] =
        [Verdict::Pass, Verdict::Block, Verdict::Replace, Verdict::Whitelist, Verdict::Blacklist, Verdict::Ignore];
}

/// Result of examining a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictReply {
    /// The verdict.
    Now(Verdict),
    /// The verdict follows later, through the frame's ticket.
    Later,
}

/// Identifies a frame until its verdict is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    slot: u32,
    frame: u32,
}

impl Ticket {
    /// Returns its block, and its index in the block.
    pub(crate) fn place(self) -> (u32, u32) {
        (self.slot, self.frame)
    }
}

/// A frame that needs a verdict.
#[derive(Clone, Copy, Debug)]
pub struct UndecidedFrame<'a> {
    /// Identifies the frame in a later verdict.
    pub ticket: Ticket,
    /// Desc of the frame.
    pub desc: &'a Desc,
    /// Bytes of the frame.
    pub bytes: &'a [u8],
    /// Interface on which it arrived.
    pub interface: &'a Interface,
}

/// A reader that gives verdicts.
#[derive(Debug)]
pub struct Engine {
    reader: Reader,
    given: u64,
    /// Frames whose verdict the writer no longer needed.
    settled: u64,
}

impl Engine {
    pub(crate) fn over(reader: Reader) -> Self {
        Engine { reader, given: 0, settled: 0 }
    }

    /// Returns the answers, which replace or accompany held frames.
    pub fn answers(&mut self) -> Answers<'_> {
        Answers { control: self.reader.control(), given: &mut self.given }
    }

    /// Examines the available frames, some at a time; returns their number. No more arrive once [`Engine::ended`]
    /// returns a reason.
    pub fn look(&mut self, mut decide: impl FnMut(&UndecidedFrame<'_>, &mut Answers<'_>) -> VerdictReply) -> usize {
        self.reader.fill(BATCH);
        if self.reader.bad() > 0 {
            self.reader.break_off("a desc is invalid, so its frame has no verdict");
        }
        let Some(place) = self.reader.place() else { return 0 };
        let burst = self.reader.shown();
        let area = self.reader.control().verdicts(place.slot);
        let (mut held, mut settled) = (0, 0);
        let mut answers = Answers { control: self.reader.control(), given: &mut self.given };
        for (frame, (desc, bytes)) in (place.from..).zip(burst.iter()) {
            if verdicts::said(&area, frame) == SETTLED {
                settled += 1;
                continue;
            }
            // Descs with an unknown interface were omitted.
            let interface = &self.reader.interfaces()[usize::from(desc.interface)];
            let seen = UndecidedFrame { ticket: Ticket { slot: place.slot, frame }, desc, bytes, interface };
            match decide(&seen, &mut answers) {
                VerdictReply::Now(verdict) => verdicts::set_verdict(&area, frame, verdict as u8),
                VerdictReply::Later => held += 1,
            }
        }
        let shown = burst.len();
        verdicts::publish(&area, place.from + shown as u32);
        self.settled += settled;
        (0..held).for_each(|_| self.reader.hold(place.slot));
        self.reader.consume(shown);
        shown
    }

    /// Gives the verdict on a frame that was held.
    ///
    /// # Panics
    /// If no frame of its block is held: the verdict was already given.
    pub fn decide(&mut self, ticket: Ticket, verdict: Verdict) {
        if self.reader.ended().is_some() {
            return;
        }
        let Ticket { slot, frame } = ticket;
        assert!(self.reader.is_held(slot), "that frame already has its verdict");
        let area = self.reader.control().verdicts(slot);
        verdicts::set_verdict(&area, frame, verdict as u8);
        verdicts::publish_later(&area);
        self.reader.said(slot);
    }

    /// Returns why no more frames arrive, once that is so.
    pub fn ended(&self) -> Option<End> {
        self.reader.ended()
    }

    /// Returns the descriptor to wait on for more frames, like [`Reader::wake`].
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.reader.wake()
    }

    /// Returns the interfaces on which frames were seen.
    pub fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    /// Returns the number of frames shown so far.
    pub fn looked(&self) -> u64 {
        self.reader.consumed()
    }

    /// Returns the number of shown frames whose verdict the writer did not, or no longer, need.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Returns the number of frames that the writer skipped because this engine was too slow.
    pub fn skipped(&self) -> u64 {
        self.reader.skipped().0
    }

    /// Stops accepting frames: those that have arrived are shown, then the stream ends.
    pub fn detach(&mut self) {
        self.reader.detach();
    }
}
