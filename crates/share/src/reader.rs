//! The reader: presents committed frames, in order, and returns finished blocks.
//!
//! The writer is not trusted. Every number in its memory is copied out once and checked; an invalid one ends the
//! stream, or omits a frame that is then counted.

mod deciding;

use crate::arena::Arena;
use crate::control::Control;
use crate::frames::Frames;
use crate::index::{self, Overrun, Pusher, Taker};
use crate::slots::BlockPosition;
use linerate_burst::{Burst, Interface, Nanos};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Number of calls without new frames after which a reader that never sleeps checks its socket.
const QUIET: u32 = 256;
/// Wake-ups read from the socket at a time.
const WAKES: usize = 64;
/// Counts beyond this are invalid; it keeps sums from overflowing.
const MOST: u64 = 1 << 56;

/// The reason why no more frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writer has ended normally, and all frames were presented.
    InOrder,
    /// The writer died without ending; all frames that it had committed were presented.
    Died,
    /// The writer evicted this reader, which was too slow or broke the protocol.
    Evicted,
    /// The writer's memory is inconsistent.
    Broken(&'static str),
    /// This reader has detached, and all frames that had arrived were presented.
    Detached,
}

/// A process that reads committed frames; the interface resembles `BufRead`.
#[derive(Debug)]
pub struct Reader {
    arena: Arena,
    control: Control,
    socket: OwnedFd,
    ready: OwnedFd,
    published: Taker,
    returned: Pusher,
    /// Blocks in the order of arrival, each with the first desc that was not copied yet.
    held: VecDeque<BlockPosition>,
    /// For each block, whether this reader holds it.
    holds: Vec<bool>,
    /// For an engine, the number of held frames per block, whose verdict is still missing.
    undecided: Vec<u32>,
    /// For each block, whether it was consumed entirely, and is returned once all of its verdicts are given.
    consumed_blocks: Vec<bool>,
    /// Frames of the first held block.
    frames: Frames,
    interfaces: Vec<Interface>,
    horizon: Nanos,
    consumed: u64,
    /// Frames lost upstream before this reader attached.
    drops_before: u64,
    /// True if the reader is marked as sleeping.
    lay_down: Cell<bool>,
    quiet: u32,
    hung_up: bool,
    detached: Option<Detached>,
    ended: Option<End>,
}

/// State at the time when the reader detached.
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
            undecided: vec![0; shape.slots as usize],
            consumed_blocks: vec![false; shape.slots as usize],
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

    /// Returns the available frames: those presented before and not consumed, and possibly more after them, up to
    /// `most` in total, all of one block. Empty while no frame is available, and once [`Reader::ended`] returns a
    /// reason.
    #[inline]
    pub fn fill(&mut self, most: usize) -> Burst<'_> {
        if self.ended.is_none()
            && let Err(end) = self.look(most)
        {
            self.stop(end);
        }
        self.frames.burst()
    }

    /// Returns the frames that [`Reader::fill`] presented and that were not consumed.
    #[inline]
    pub fn shown(&self) -> Burst<'_> {
        self.frames.burst()
    }

    /// Consumes the first `frames` of those that [`Reader::fill`] presented. A block of which all frames are consumed
    /// is returned to the writer.
    ///
    /// # Panics
    /// If fewer were presented.
    #[inline]
    pub fn consume(&mut self, frames: usize) {
        self.frames.consume(frames);
        self.consumed += frames as u64;
        if let Err(end) = self.release(false) {
            self.stop(end);
        }
    }

    /// Returns the horizon: frames not presented yet are not older than this, except those flagged late.
    pub fn horizon(&self) -> Nanos {
        self.horizon
    }

    /// Returns the interfaces that descs refer to. The list grows, entries never change.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns why no more frames arrive, once that is so.
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Returns the number of frames consumed so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns the number of frames omitted so far because their descs are invalid.
    pub fn bad(&self) -> u64 {
        self.frames.bad()
    }

    /// Returns the numbers of frames and of blocks that the writer skipped because this reader was too slow.
    pub fn skipped(&self) -> (u64, u64) {
        let (frames, slots) = self.detached.map_or_else(|| self.control.skipped(), |detached| detached.skipped);
        (frames.min(MOST), slots.min(MOST))
    }

    /// Returns the number of frames lost upstream of the ring since this reader attached, as reported by the writer.
    pub fn lost_upstream(&self) -> u64 {
        let drops = self.detached.map_or_else(|| self.arena.drops(), |detached| detached.drops);
        drops.saturating_sub(self.drops_before).min(MOST)
    }

    /// Returns whether the writer waits for this reader.
    pub fn is_lossless(&self) -> bool {
        self.control.is_lossless()
    }

    /// Returns the writer's process.
    pub fn writer(&self) -> u32 {
        self.arena.writer()
    }

    /// Returns the time at which the writer was last active, by its clock.
    pub fn heartbeat(&self) -> Nanos {
        self.arena.heartbeat()
    }

    /// Detaches: [`Reader::fill`] presents the frames that have arrived, then the stream ends.
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

    /// Returns the descriptor to wait on for more frames. The reader is marked as sleeping; if frames were committed
    /// before that, the returned descriptor is ready immediately, so no wake-up is lost. Call it again for each wait.
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

    /// Looks for frames until `most` are presented.
    fn look(&mut self, most: usize) -> Result<(), End> {
        self.wake_up();
        if self.control.is_evicted() {
            return Err(End::Evicted);
        }
        // Loaded first: the frames before the end and the horizon are then found below.
        let over = self.hung_up || self.arena.has_ended();
        let horizon = self.arena.horizon();
        if self.detached.is_none() {
            self.take_published()?;
        }
        let mut complete = false;
        // Each further iteration has released a block.
        for _ in 0..=self.holds.len() {
            let Some(&BlockPosition { slot, from }) = self.held.front() else {
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
                Err(Overrun) => return Err(End::Broken("more blocks were published than exist")),
            };
            let place = BlockPosition { slot: entry as u32, from: (entry >> 32) as u32 };
            match self.holds.get_mut(place.slot as usize) {
                Some(holds) if !*holds => *holds = true,
                Some(_) => return Err(End::Broken("a block was published again before it was returned")),
                None => return Err(End::Broken("an unknown block was published")),
            }
            if self.held.is_empty() {
                self.frames.turn_to(place.slot);
            }
            self.held.push_back(place);
        }
    }

    /// Returns whether a block is closed, and its number of frames for this reader.
    fn progress(&self, slot: u32, from: u32) -> Result<(bool, u32), End> {
        let (closed, mut committed) = self.arena.progress(slot);
        if let Some(detached) = self.detached
            && self.held.back().is_some_and(|last| last.slot == slot)
        {
            committed = committed.min(detached.frames);
        }
        if committed < from || committed as usize > self.arena.shape().layout.frames() {
            return Err(End::Broken("the count of committed frames of a block is invalid"));
        }
        Ok((closed, committed))
    }

    fn copy(&mut self, from: u32, end: u32) {
        if from == end {
            return;
        }
        // New interfaces are written before the first frame that refers to them.
        self.arena.read_interfaces(&mut self.interfaces);
        self.frames.copy(from, end, self.interfaces.len());
        if let Some(first) = self.held.front_mut() {
            first.from = end;
        }
    }

    /// Releases the first block if all of it was consumed and it is closed; returns whether it did.
    fn release(&mut self, over: bool) -> Result<bool, End> {
        let Some(&BlockPosition { slot, from }) = self.held.front() else { return Ok(false) };
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
        self.consumed_blocks[slot as usize] = closed && self.undecided[slot as usize] > 0;
        if closed && !self.consumed_blocks[slot as usize] {
            self.return_slot(slot)?;
        }
        Ok(true)
    }

    fn return_slot(&mut self, slot: u32) -> Result<(), End> {
        self.holds[slot as usize] = false;
        self.returned.push(&self.control.returned(), u64::from(slot));
        // The next block may be overwritten, if the writer evicted this reader before it saw this block returned.
        index::turned();
        if self.control.is_evicted() { Err(End::Evicted) } else { Ok(()) }
    }

    /// Ends the stream; the writer reclaims the blocks that are still held.
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

    /// Reads wake-ups from the socket, and detects that the writer is gone.
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
