//! The reader: takes frames in the order in which they were finished, and returns each when it is dropped.
//!
//! The writer is not trusted. Every number in its memory is copied out once and checked; an invalid one ends the ring.

use super::arena::Arena;
use super::metadata::FrameMetadata;
use crate::control::Control;
use crate::index::{self, Overrun, Pusher, Taker};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Wake-ups read from the socket at a time.
const WAKES: usize = 64;

/// The reason why no more frames arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The writer has ended normally, and all frames were taken.
    InOrder,
    /// The writer died without ending; all frames that it had handed over were taken.
    Died,
    /// The writer evicted this reader, which broke the protocol.
    Evicted,
    /// This reader has [left](Reader::leave).
    Left,
    /// The writer's memory is inconsistent.
    Broken(&'static str),
}

/// The process that takes frames.
#[derive(Debug)]
pub struct Reader {
    session: Arc<Session>,
    published: Taker,
    /// For each entry, whether it was taken and not yet returned.
    taken: Vec<bool>,
    hung_up: bool,
    ended: Option<End>,
    ready: OwnedFd,
}

/// State shared with the taken frames: it lives until the last of them is dropped.
#[derive(Debug)]
struct Session {
    arena: Arena,
    control: Control,
    socket: OwnedFd,
    giving: Mutex<ReturnState>,
    /// Frames returned so far.
    given: AtomicU64,
    /// Held frames now belong to the next reader.
    has_left: AtomicBool,
}

/// State of returns, by whichever thread drops a frame.
#[derive(Debug, Default)]
struct ReturnState {
    returned: Pusher,
    /// Returned entries that the reader has not processed yet.
    news: Vec<u32>,
}

/// The ownership of one entry, which is returned when it is dropped.
#[derive(Debug)]
struct EntryLease {
    session: Arc<Session>,
    entry: u32,
}

impl Drop for EntryLease {
    fn drop(&mut self) {
        let mut giving = self.session.giving.lock().unwrap_or_else(PoisonError::into_inner);
        if self.session.has_left.load(Ordering::Relaxed) {
            return;
        }
        giving.news.push(self.entry);
        giving.returned.push(&self.session.control.returned(), u64::from(self.entry));
        self.session.given.fetch_add(1, Ordering::Relaxed);
    }
}

/// A frame that was taken. It is returned to the writer for reuse when its memory is dropped.
#[derive(Debug)]
pub struct TakenFrame {
    /// Metadata of the frame.
    pub about: FrameMetadata,
    /// Missing bytes as ranges from the first byte of the frame, ascending.
    pub gaps: Vec<Range<u64>>,
    memory: OwnedBytes,
    granule: u32,
}

impl TakenFrame {
    /// Returns its bytes, where they were received.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.about.len as usize]
    }

    /// Returns the bytes per bit of its bitmap.
    pub fn granule(&self) -> u32 {
        self.granule
    }

    /// Returns all of its memory, read-only; the frame is returned to the writer when that is dropped.
    pub fn into_memory(self) -> OwnedBytes {
        self.memory
    }
}

impl Reader {
    pub(crate) fn open(
        arena: BorrowedFd<'_>,
        control: BorrowedFd<'_>,
        generation: u64,
        socket: OwnedFd,
    ) -> Result<Self, String> {
        let arena = Arena::open(arena)?;
        if arena.generation() != generation {
            return Err("it handed over the memory of another ring".into());
        }
        let entries = arena.shape().entries;
        let control = Control::open(control, entries, generation, None)?;
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?;
        let session = Session {
            arena,
            control,
            socket,
            giving: Mutex::default(),
            given: AtomicU64::new(0),
            has_left: AtomicBool::new(false),
        };
        Ok(Reader {
            session: Arc::new(session),
            published: Taker::default(),
            taken: vec![false; entries as usize],
            hung_up: false,
            ended: None,
            ready,
        })
    }

    /// Returns the next frame, if one is available. Any number may be held at a time, and dropped in any order; held
    /// frames are not available for receiving.
    pub fn take(&mut self) -> Option<TakenFrame> {
        if self.ended.is_some() {
            return None;
        }
        match self.look() {
            Ok(taken) => taken,
            Err(end) => {
                self.ended = Some(end);
                None
            }
        }
    }

    /// Waits until there may be a new frame, at most for `limit`.
    pub fn wait(&mut self, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        let mut polled = [PollFd::from_borrowed_fd(self.wake(), PollFlags::IN)];
        // An interrupted wait counts as finished: the caller polls again.
        let _ = poll(&mut polled, Some(&limit));
        index::wake_up(self.session.control.sleeping());
        self.listen();
    }

    /// Returns the descriptor to wait on for the next frame. The reader is marked as sleeping; if a frame arrived
    /// before that, the returned descriptor is ready immediately, so no wake-up is lost. Call it again for each wait.
    pub fn wake(&self) -> BorrowedFd<'_> {
        let Session { control, socket, .. } = &*self.session;
        let is_anything_new = || {
            let over = self.hung_up || self.ended.is_some() || control.has_ended() || control.is_evicted();
            over || self.published.is_behind(&control.published())
        };
        let may_sleep = index::prepare_to_sleep(control.sleeping(), is_anything_new);
        if may_sleep { socket.as_fd() } else { self.ready.as_fd() }
    }

    /// Detaches: takes and returns no more frames; those still held go to the next reader.
    pub fn leave(&mut self) {
        let _giving = self.session.giving.lock().unwrap_or_else(PoisonError::into_inner);
        self.session.has_left.store(true, Ordering::Relaxed);
        let _ = shutdown(&self.session.socket, Shutdown::Both);
        self.ended.get_or_insert(End::Left);
    }

    /// Returns why no more frames arrive, once that is so.
    pub fn ended(&self) -> Option<End> {
        self.ended
    }

    /// Returns the number of frames, and the bytes of each.
    pub fn frames(&self) -> (u32, usize) {
        let shape = self.session.arena.shape();
        (shape.frames, shape.frame_bytes)
    }

    /// Returns the number of frames returned so far.
    pub fn frames_returned(&self) -> u64 {
        self.session.given.load(Ordering::Relaxed)
    }

    /// Returns the writer's process.
    pub fn writer(&self) -> u32 {
        self.session.arena.writer()
    }

    /// Returns the time at which the writer was last active, by its clock.
    pub fn heartbeat(&self) -> Nanos {
        self.session.arena.heartbeat()
    }

    fn look(&mut self) -> Result<Option<TakenFrame>, End> {
        let Session { arena, control, .. } = &*self.session;
        if control.is_evicted() {
            return Err(End::Evicted);
        }
        // Loaded before the last frames are looked for.
        let is_over = control.has_ended();
        let entry = match self.published.take(&control.published(), self.taken.len() as u64) {
            Ok(Some(entry)) => entry,
            Ok(None) if is_over => return Err(End::InOrder),
            Ok(None) if self.hung_up => return Err(End::Died),
            Ok(None) => return Ok(None),
            Err(Overrun) => return Err(End::Broken("more frames were handed over than exist")),
        };
        let entry = u32::try_from(entry).ok().filter(|entry| (*entry as usize) < self.taken.len());
        let entry = entry.ok_or(End::Broken("an unknown frame was handed over"))?;
        for back in self.session.giving.lock().unwrap_or_else(PoisonError::into_inner).news.drain(..) {
            self.taken[back as usize] = false;
        }
        if std::mem::replace(&mut self.taken[entry as usize], true) {
            return Err(End::Broken("a frame was handed over again before it was returned"));
        }
        let (about, gaps) = arena.read(entry).map_err(End::Broken)?;
        let lent = Arc::new(EntryLease { session: Arc::clone(&self.session), entry });
        let granule = arena.shape().granule;
        Ok(Some(TakenFrame { about, gaps, memory: arena.lend(entry, lent), granule }))
    }

    /// Reads wake-ups from the socket, and detects that the writer is gone.
    fn listen(&mut self) {
        let mut bytes = [0; 16];
        for _ in 0..WAKES {
            match recv(&self.session.socket, &mut bytes, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.hung_up = true,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.hung_up = true,
            }
        }
    }
}
