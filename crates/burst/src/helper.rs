//! A second thread for short tasks: it does one part of a piece of work while the caller does the other.
//!
//! Unsafe because the work borrows from its caller, while the thread outlives the borrow: Rust cannot express a borrow
//! that ends with each call for a thread that is started once. [`Helper::join`] does not return, nor unwind, before
//! the work is no longer used. Nothing is allocated, and consecutive calls make no system call.
//!
//! `scripts/loom` compiles this file with loom's threads and atomics and tries every interleaving of both sides.
#![allow(unsafe_code)]

use crate::threads::{
    Arc, AtomicU32, HandoffCell, LOOKS, Mutex, PATIENCE, Thread, current, park, spin_loop, yield_now,
};
use std::any::Any;
use std::fmt;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The caller's side, which has work to do.
#[derive(Debug)]
pub struct Helper {
    meeting: Arc<SharedState>,
    /// Share of the work that the caller does itself, in parts of [`WHOLE`].
    here: usize,
}

/// The helping side; start a thread that runs [`Worker::work`].
#[derive(Debug)]
pub struct Worker {
    meeting: Arc<SharedState>,
}

/// State shared by both sides.
struct SharedState {
    state: AtomicU32,
    work: HandoffCell<Option<*mut Work>>,
    /// The thread to wake; set before it sleeps.
    thread: Mutex<Option<Thread>>,
    /// The worker's panic.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

type Work = dyn FnMut() + Send;

// SAFETY: `work` is written while no work can be taken, and read only by the worker after it has taken it; its target
// may be used by another thread, since it is `Send`.
unsafe impl Send for SharedState {}
// SAFETY: as above.
unsafe impl Sync for SharedState {}

const IDLE: u32 = 0;
/// No work, and the worker must be woken for the next.
const ASLEEP: u32 = 1;
/// Work is available; the worker may take it, or the caller take it back.
const READY: u32 = 2;
/// The worker is running it.
const TAKEN: u32 = 3;
/// The worker has finished it.
const DONE: u32 = 4;
/// The worker panicked in it.
const FAILED: u32 = 5;
/// No more work will follow.
const CLOSED: u32 = 6;

/// Parts of a piece of work; the fewest and the most of them that the caller does.
const WHOLE: usize = 256;
const LEAST: usize = WHOLE / 8;
const MOST: usize = WHOLE * 3 / 4;

impl Helper {
    /// Returns a helper, and the worker to run in a thread.
    pub fn new() -> (Helper, Worker) {
        let (state, work) = (AtomicU32::new(IDLE), HandoffCell::new(None));
        let meeting = Arc::new(SharedState { state, work, thread: Mutex::new(None), panic: Mutex::new(None) });
        (Helper { meeting: Arc::clone(&meeting), here: WHOLE / 2 }, Worker { meeting })
    }

    /// Returns how many of `pieces` the caller should do itself so that both sides finish together, judged by the last
    /// calls.
    pub fn share(&self, pieces: usize) -> usize {
        pieces * self.here / WHOLE
    }

    /// Runs `there` in the worker's thread and `here` in this one, and returns when both are done. If the worker has
    /// not started `there` by the end of `here`, it runs in this thread: the worker may be asleep, or gone.
    ///
    /// # Panics
    /// If either panics.
    pub fn join(&mut self, here: impl FnOnce(), there: &mut (dyn FnMut() + Send)) {
        let work: *mut (dyn FnMut() + Send + '_) = &raw mut *there;
        // SAFETY: the same pointer. It is not used longer than `there` is borrowed: `Pending` waits for that.
        let work = unsafe { transmute::<*mut (dyn FnMut() + Send + '_), *mut Work>(work) };
        // SAFETY: no work can be taken, so no worker reads it.
        self.meeting.work.with_mut(|place| unsafe { *place = Some(work) });
        if self.meeting.state.swap(READY, AcqRel) == ASLEEP {
            self.meeting.wake();
        }
        let pending = Pending(&self.meeting);
        here();
        let was_done = self.meeting.state.load(Relaxed) == DONE;
        self.here = if was_done { self.here - 1 } else { self.here + 1 }.clamp(LEAST, MOST);
        match pending.settle() {
            DONE => {}
            FAILED => panic!("the helping thread panicked: {}", self.meeting.reason()),
            _ => there(),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        if self.meeting.state.swap(CLOSED, AcqRel) == ASLEEP {
            self.meeting.wake();
        }
    }
}

impl Worker {
    /// Runs the caller's work until the helper is dropped.
    pub fn work(self) {
        let Worker { meeting } = self;
        *meeting.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(current());
        let mut looks = 0;
        loop {
            match meeting.state.load(Acquire) {
                CLOSED => return,
                READY if meeting.change(READY, TAKEN) => {
                    // SAFETY: the work was stored before it was READY, and stays until its end is reported below; until
                    // then the caller has it borrowed for the worker only.
                    let work = meeting.work.with(|place| unsafe { *place });
                    // SAFETY: as above.
                    let end = work.map(|work| catch_unwind(AssertUnwindSafe(|| unsafe { (*work)() })));
                    let is_done = matches!(end, Some(Ok(())));
                    if let Some(Err(panic)) = end {
                        *meeting.panic.lock().unwrap_or_else(PoisonError::into_inner) = Some(panic);
                    }
                    meeting.state.store(if is_done { DONE } else { FAILED }, Release);
                    looks = 0;
                }
                ASLEEP => park(),
                IDLE if looks >= LOOKS => {
                    meeting.change(IDLE, ASLEEP);
                    looks = 0;
                }
                _ => {
                    looks += 1;
                    spin_loop();
                }
            }
        }
    }
}

impl SharedState {
    fn change(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, AcqRel, Relaxed).is_ok()
    }

    fn reason(&self) -> String {
        let panic = self.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        let text = panic.as_ref().and_then(|panic| {
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string))
        });
        text.unwrap_or_default()
    }

    fn wake(&self) {
        if let Some(thread) = &*self.thread.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Work that is lent out. It is returned in any case, even if the caller panics.
struct Pending<'a>(&'a SharedState);

impl Pending<'_> {
    /// Takes back the work if the worker has not started it, or waits until it is done; returns its final state. The
    /// work is not used afterwards.
    fn settle(&self) -> u32 {
        let mut looks = 0;
        loop {
            match self.0.state.load(Acquire) {
                READY if self.0.change(READY, IDLE) => return IDLE,
                end @ (DONE | FAILED) => {
                    self.0.state.store(IDLE, Release);
                    return end;
                }
                IDLE | ASLEEP => return IDLE,
                _ if looks < PATIENCE => spin_loop(),
                _ => yield_now(),
            }
            looks += 1;
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.settle();
    }
}
