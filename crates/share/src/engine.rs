//! The reader that decides: it looks at each frame and says what becomes of it, at once or later.
//!
//! What it says lies in its own control memory: a byte a frame, published some frames at a time. A block goes back to the writer
//! once all of it was looked at and nothing of it is held.

use crate::answers::Answers;
use crate::reader::{End, Reader};
use crate::verdicts::{self, SETTLED};
use linerate_burst::{Desc, Interface};
use std::os::fd::BorrowedFd;

/// Frames whose verdicts are published together: a line of them.
const BATCH: usize = 64;

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// It goes on.
    Pass = 0,
    /// It does not.
    Block = 1,
    /// It goes on with the bytes that were handed over for it, as many as it has.
    Replace = 2,
    /// It goes on, and later frames of its flow do without being asked about.
    Whitelist = 3,
    /// It does not, nor do later frames of its flow.
    Blacklist = 4,
    /// As [`Verdict::Whitelist`]: this engine wants to see no more of its flow.
    Ignore = 5,
}

impl Verdict {
    /// All of them, by their number.
    pub const ALL: [Verdict; 6] =
        [Verdict::Pass, Verdict::Block, Verdict::Replace, Verdict::Whitelist, Verdict::Blacklist, Verdict::Ignore];
}

/// What is said of a frame that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decide {
    /// This becomes of it.
    Now(Verdict),
    /// That will be said later, of its ticket.
    Later,
}

/// A frame, until its verdict is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    slot: u32,
    frame: u32,
}

impl Ticket {
    /// Its block, and which frame of that.
    pub(crate) fn place(self) -> (u32, u32) {
        (self.slot, self.frame)
    }
}

/// A frame to be decided about.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What a later verdict names it by.
    pub ticket: Ticket,
    /// What is known of it.
    pub desc: &'a Desc,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Where it came in.
    pub interface: &'a Interface,
}

/// A reader that decides.
#[derive(Debug)]
pub struct Engine {
    reader: Reader,
    /// Answers given.
    given: u64,
    /// Frames that nobody waited for any more.
    settled: u64,
}

impl Engine {
    pub(crate) fn over(reader: Reader) -> Self {
        Engine { reader, given: 0, settled: 0 }
    }

    /// Where frames are handed back for those that are held.
    pub fn answers(&mut self) -> Answers<'_> {
        Answers { control: self.reader.control(), given: &mut self.given }
    }

    /// Looks at the frames that are there, some at a time; how many there were. None come once [`Engine::ended`] says why.
    pub fn look(&mut self, mut decide: impl FnMut(&Seen<'_>, &mut Answers<'_>) -> Decide) -> usize {
        self.reader.fill(BATCH);
        if self.reader.bad() > 0 {
            self.reader.break_off("a desc cannot be right, and no verdict on its frame");
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
            // Descs that name an interface which there is not were left out.
            let interface = &self.reader.interfaces()[usize::from(desc.interface)];
            let seen = Seen { ticket: Ticket { slot: place.slot, frame }, desc, bytes, interface };
            match decide(&seen, &mut answers) {
                Decide::Now(verdict) => verdicts::say(&area, frame, verdict as u8),
                Decide::Later => held += 1,
            }
        }
        let shown = burst.len();
        verdicts::publish(&area, place.from + shown as u32);
        self.settled += settled;
        (0..held).for_each(|_| self.reader.hold(place.slot));
        self.reader.consume(shown);
        shown
    }

    /// Says what becomes of a frame that was to be decided later.
    ///
    /// # Panics
    /// If nothing of its block is held: it was said before.
    pub fn decide(&mut self, ticket: Ticket, verdict: Verdict) {
        if self.reader.ended().is_some() {
            return;
        }
        let Ticket { slot, frame } = ticket;
        assert!(self.reader.is_held(slot), "it was said before what becomes of that frame");
        let area = self.reader.control().verdicts(slot);
        verdicts::say(&area, frame, verdict as u8);
        verdicts::publish_later(&area);
        self.reader.said(slot);
    }

    /// Why no more frames come, once none does.
    pub fn ended(&self) -> Option<End> {
        self.reader.ended()
    }

    /// What to wait on for more frames, as [`Reader::wake`].
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.reader.wake()
    }

    /// Where frames are seen.
    pub fn interfaces(&self) -> &[Interface] {
        self.reader.interfaces()
    }

    /// Frames that were shown so far.
    pub fn looked(&self) -> u64 {
        self.reader.consumed()
    }

    /// Of those, frames that nobody waited for any more, or had asked about.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Frames that the writer did not show, because this engine was too slow.
    pub fn skipped(&self) -> u64 {
        self.reader.skipped().0
    }

    /// Takes nothing in any more: what had arrived is shown, then it has ended.
    pub fn detach(&mut self) {
        self.reader.detach();
    }
}
