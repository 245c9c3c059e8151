//! The reader: shows what is committed, in order, and gives back what is finished.
//!
//! The writer is trusted for nothing. Every number of its memory is copied out once and checked; what cannot be right
//! ends the stream, or leaves a frame out that is then counted.

mod deciding;

use crate::arena::Arena;
use crate::control::Control;
use crate::frames::Frames;
use crate::index::{self, Overrun, Pusher, Taker};
use crate::slots::Place;
use linerate_burst::{Burst, Interface, Nanos};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Looks that found nothing until the socket is looked at, by a reader that never sleeps.
const QUIET: u32 = 256;
/// Wake-ups taken out of the socket at a time.
const WAKES: usize = 64;
/// A count beyond this cannot be right, and sums of them must not overflow.
const MOST: u64 = 1 << 56;

/// Why no more frames come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writer has ended in order, and all was shown.
    InOrder,
    /// The writer is gone without having ended; all that it had committed was shown.
    Died,
    /// The writer has taken everything back: this reader was too slow, or broke the protocol.
    Evicted,
    /// What the writer wrote cannot be right.
    Broken(&'static str),
    /// This reader has detached, and all that had arrived was shown.
    Detached,
}

/// One of the processes that see what is committed; in the shape of `BufRead`.
#[derive(Debug)]
pub struct Reader {
    arena: Arena,
    control: Control,
    socket: OwnedFd,
    /// Always ready.
    ready: OwnedFd,
    published: Taker,
    returned: Pusher,
    /// Blocks in the order they came, each with the first desc that was not copied yet.
    held: VecDeque<Place>,
    /// Whether a block is this reader's, by its number.
    holds: Vec<bool>,
    /// Of one that decides, frames of each block that it has not said anything of yet.
    unsaid: Vec<u32>,
    /// Whether a block was looked at to its end, and is given back once all is said.
    put_aside: Vec<bool>,
    /// Of the first of them.
    frames: Frames,
    interfaces: Vec<Interface>,
    horizon: Nanos,
    consumed: u64,
    /// Drops that the writer had counted before this reader came.
    drops_before: u64,
    /// Whether the writer was told that this reader sleeps.
    lay_down: Cell<bool>,
    quiet: u32,
    hung_up: bool,
    detached: Option<Detached>,
    ended: Option<End>,
}

/// What had arrived when the reader detached.
#[derive(Clone, Copy, Debug)]
struct Detached {
    /// Frames of the last block held then.
    frames: u32,
    skipped: (u64, u64),
    drops: u64,
}

impl Reader {
    pub(crate) fn new(arena: Arena, control: Control, socket: OwnedFd) -> io::Result<Self> {
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shape = *arena.shape();
        let mut interfaces = Vec::new();
        arena.read_interfaces(&mut interfaces);
        Ok(Reader {
            frames: Frames::new(arena.mapping().clone(), shape),
            drops_before: arena.drops(),
            arena,
            control,
            socket,
            ready,
            published: Taker::default(),
            returned: Pusher::default(),
            held: VecDeque::with_capacity(shape.slots as usize),
            holds: vec![false; shape.slots as usize],
            unsaid: vec![0; shape.slots as usize],
            put_aside: vec![false; shape.slots as usize],
            interfaces,
            horizon: Nanos::ZERO,
            consumed: 0,
            lay_down: Cell::new(false),
            quiet: 0,
            hung_up: false,
            detached: None,
            ended: None,
        })
    }

    /// The frames that are there: those shown before and not consumed, and perhaps more behind them, up to `most` in
    /// all; of one block at a time. Empty while nothing is there, and once [`Reader::ended`] says why.
    #[inline]
    pub fn fill(&mut self, most: usize) -> Burst<'_> {
        if self.ended.is_none()
            && let Err(end) = self.look(most)
        {
            self.stop(end);
        }
        self.frames.burst()
    }

    /// What [`Reader::fill`] showed and was not consumed.
    #[inline]
    pub fn shown(&self) -> Burst<'_> {
        self.frames.burst()
    }

    /// The first `frames` of what [`Reader::fill`] showed are not needed any more. A block of which all is consumed
    /// goes back to the writer.
    ///
    /// # Panics
    /// If that many were not shown.
    #[inline]
    pub fn consume(&mut self, frames: usize) {
        self.frames.consume(frames);
        self.consumed += frames as u64;
        if let Err(end) = self.release(false) {
            self.stop(end);
        }
    }

    /// No frame that was not shown is older than this, but for those flagged late.
    pub fn horizon(&self) -> Nanos {
        self.horizon
    }

    /// Where frames are seen: what the interface of a desc points to. Grows, never changes otherwise.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Why no more frames come, once none does.
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Frames consumed so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Frames left out so far because their descs cannot be right.
    pub fn bad(&self) -> u64 {
        self.frames.bad()
    }

    /// What the writer did not show to this reader, because it was too slow: frames, and blocks.
    pub fn skipped(&self) -> (u64, u64) {
        let (frames, slots) = self.detached.map_or_else(|| self.control.skipped(), |detached| detached.skipped);
        (frames.min(MOST), slots.min(MOST))
    }

    /// Frames lost on the way to the ring since this reader came, as the writer says.
    pub fn lost_upstream(&self) -> u64 {
        let drops = self.detached.map_or_else(|| self.arena.drops(), |detached| detached.drops);
        drops.saturating_sub(self.drops_before).min(MOST)
    }

    /// Whether the writer waits for this reader.
    pub fn is_lossless(&self) -> bool {
        self.control.is_lossless()
    }

    /// The writer's process.
    pub fn writer(&self) -> u32 {
        self.arena.writer()
    }

    /// When the writer last did something, by its clock.
    pub fn heartbeat(&self) -> Nanos {
        self.arena.heartbeat()
    }

    /// Takes nothing in any more: [`Reader::fill`] shows what had arrived, then the stream has ended.
    pub fn detach(&mut self) {
        if self.detached.is_some() || self.ended.is_some() {
            return;
        }
        let skipped = self.control.skipped();
        let drops = self.arena.drops();
        match self.take_published() {
            Ok(()) => {
                let frames = self.held.back().map_or(0, |last| self.arena.progress(last.slot).1);
                self.detached = Some(Detached { frames, skipped, drops });
            }
            Err(end) => self.stop(end),
        }
    }

    /// What to wait on for more than was shown. The writer is told that this reader sleeps; what it committed meanwhile
    /// makes the answer a descriptor that is ready at once, so no wake-up is lost. To be asked anew for each wait.
    pub fn wake(&self) -> BorrowedFd<'_> {
        if self.ended.is_some() || self.detached.is_some() {
            return self.ready.as_fd();
        }
        self.lay_down.set(true);
        let may_sleep = index::prepare_to_sleep(self.control.sleeping(), || self.is_anything_new());
        if may_sleep { self.socket.as_fd() } else { self.ready.as_fd() }
    }

    fn is_anything_new(&self) -> bool {
        let first = || {
            self.held.front().is_some_and(|place| {
                let (closed, committed) = self.arena.progress(place.slot);
                committed != place.from || (closed && self.frames.len() == 0)
            })
        };
        let over = self.hung_up || self.arena.has_ended() || self.control.is_evicted();
        over || self.published.is_behind(&self.control.published()) || first()
    }

    /// Looks for frames until `most` are shown.
    fn look(&mut self, most: usize) -> Result<(), End> {
        self.wake_up();
        if self.control.is_evicted() {
            return Err(End::Evicted);
        }
        // These come first: what they speak of is found by the looks that follow.
        let over = self.hung_up || self.arena.has_ended();
        let horizon = self.arena.horizon();
        if self.detached.is_none() {
            self.take_published()?;
        }
        let mut complete = false;
        // Each turn that goes on has given a block up.
        for _ in 0..=self.holds.len() {
            let Some(&Place { slot, from }) = self.held.front() else {
                complete = true;
                break;
            };
            let (_, committed) = self.progress(slot, from)?;
            let room = most.saturating_sub(self.frames.len()).min(committed.abs_diff(from) as usize) as u32;
            let end = from + room;
            self.copy(from, end);
            complete = end == committed && self.held.len() == 1;
            if self.frames.len() > 0 || !self.release(over)? {
                break;
            }
        }
        let horizon = if complete { horizon } else { Nanos::ZERO };
        self.horizon = self.horizon.max(self.frames.newest()).max(horizon);
        self.quiet = if self.frames.len() > 0 { 0 } else { self.quiet + 1 };
        if self.quiet >= QUIET {
            self.quiet = 0;
            self.listen();
        }
        match (self.held.is_empty(), self.detached, over) {
            (true, Some(_), _) => Err(End::Detached),
            (true, None, true) => Err(if self.arena.has_ended() { End::InOrder } else { End::Died }),
            _ => Ok(()),
        }
    }

    fn take_published(&mut self) -> Result<(), End> {
        let most = u64::from(self.control.capacity());
        loop {
            let entry = match self.published.take(&self.control.published(), most) {
                Ok(None) => return Ok(()),
                Ok(Some(entry)) => entry,
                Err(Overrun) => return Err(End::Broken("more blocks are published than there are")),
            };
            let place = Place { slot: entry as u32, from: (entry >> 32) as u32 };
            match self.holds.get_mut(place.slot as usize) {
                Some(holds) if !*holds => *holds = true,
                Some(_) => return Err(End::Broken("a block is published again before it was given back")),
                None => return Err(End::Broken("a block is published that there is not")),
            }
            if self.held.is_empty() {
                self.frames.turn_to(place.slot);
            }
            self.held.push_back(place);
        }
    }

    /// Of a block: whether it gets no more frames, and how many it has for this reader.
    fn progress(&self, slot: u32, from: u32) -> Result<(bool, u32), End> {
        let (closed, mut committed) = self.arena.progress(slot);
        if let Some(detached) = self.detached
            && self.held.back().is_some_and(|last| last.slot == slot)
        {
            committed = committed.min(detached.frames);
        }
        if committed < from || committed as usize > self.arena.shape().layout.frames() {
            return Err(End::Broken("the count of committed frames of a block cannot be right"));
        }
        Ok((closed, committed))
    }

    fn copy(&mut self, from: u32, end: u32) {
        if from == end {
            return;
        }
        // New interfaces are there before the first frame that names them.
        self.arena.read_interfaces(&mut self.interfaces);
        self.frames.copy(from, end, self.interfaces.len());
        if let Some(first) = self.held.front_mut() {
            first.from = end;
        }
    }

    /// Gives the first block up if all of it was consumed and no more will come; whether it did.
    fn release(&mut self, over: bool) -> Result<bool, End> {
        let Some(&Place { slot, from }) = self.held.front() else { return Ok(false) };
        if self.frames.len() > 0 {
            return Ok(false);
        }
        let (closed, committed) = self.progress(slot, from)?;
        if committed != from || !(closed || over || self.detached.is_some()) {
            return Ok(false);
        }
        self.held.pop_front();
        if let Some(next) = self.held.front() {
            self.frames.turn_to(next.slot);
        }
        self.put_aside[slot as usize] = closed && self.unsaid[slot as usize] > 0;
        if closed && !self.put_aside[slot as usize] {
            self.give_back(slot)?;
        }
        Ok(true)
    }

    fn give_back(&mut self, slot: u32) -> Result<(), End> {
        self.holds[slot as usize] = false;
        self.returned.push(&self.control.returned(), u64::from(slot));
        // The next block may be written again, if the writer has put this reader out before it saw that one returned.
        index::turned();
        if self.control.is_evicted() { Err(End::Evicted) } else { Ok(()) }
    }

    /// Nothing more is shown; the writer takes back what is still held.
    fn stop(&mut self, end: End) {
        self.ended = Some(end);
        self.held.clear();
        self.frames.turn_to(0);
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    fn wake_up(&mut self) {
        if self.lay_down.replace(false) {
            index::wake_up(self.control.sleeping());
            self.listen();
        }
    }

    /// Takes wake-ups out of the socket, and notices when the writer is gone.
    fn listen(&mut self) {
        let mut bytes = [0; 16];
        for _ in 0..WAKES {
            match recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.hung_up = true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.hung_up = true,
            }
        }
    }
}
