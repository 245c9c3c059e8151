//! A second thread for a moment: it does one part of a piece of work while the caller does the other.
//!
//! Unsafe because the work borrows what its caller has, while the thread outlives all of it: a borrow that ends with each
//! call cannot be written down for a thread that is started once. [`Helper::beside`] does not return, nor unwind, before
//! nobody uses the work any more. Nothing is allocated, and nobody enters the kernel while one call follows the other.
//!
//! `scripts/loom` has this very file made of loom's threads and atomics and tries every order of what both sides do.
#![allow(unsafe_code)]

use crate::threads::{Arc, AtomicU32, LOOKS, Lent, Mutex, PATIENCE, Thread, current, park, spin_loop, yield_now};
use std::any::Any;
use std::fmt;
use std::mem::transmute;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The side that has work to be done.
#[derive(Debug)]
pub struct Helper {
    meeting: Arc<Meeting>,
    /// How much of the work the caller does itself, in parts of [`WHOLE`].
    here: usize,
}

/// The side that helps; a thread is to be started for [`Worker::work`].
#[derive(Debug)]
pub struct Worker {
    meeting: Arc<Meeting>,
}

/// What both sides share.
struct Meeting {
    state: AtomicU32,
    work: Lent<Option<*mut Work>>,
    /// Who is to be woken; set before it sleeps.
    thread: Mutex<Option<Thread>>,
    /// Why the worker panicked.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

type Work = dyn FnMut() + Send;

// SAFETY: `work` is written while there is none to be taken, and read by the worker alone once it has taken it; what
// it points to may be used by another thread, since it is `Send`.
unsafe impl Send for Meeting {}
// SAFETY: as above.
unsafe impl Sync for Meeting {}

/// Nothing to do.
const IDLE: u32 = 0;
/// Nothing to do, and the worker is to be woken when there is.
const ASLEEP: u32 = 1;
/// There is work; the worker may take it, or the caller take it back.
const READY: u32 = 2;
/// The worker is at it.
const TAKEN: u32 = 3;
/// The worker has done it.
const DONE: u32 = 4;
/// The worker has panicked over it.
const FAILED: u32 = 5;
/// There will be no more work.
const CLOSED: u32 = 6;

/// Parts of a piece of work; the least and the most of them that the caller does.
const WHOLE: usize = 256;
const LEAST: usize = WHOLE / 8;
const MOST: usize = WHOLE * 3 / 4;

impl Helper {
    /// A helper, and what its thread is to run.
    pub fn new() -> (Helper, Worker) {
        let (state, work) = (AtomicU32::new(IDLE), Lent::new(None));
        let meeting = Arc::new(Meeting { state, work, thread: Mutex::new(None), panic: Mutex::new(None) });
        (Helper { meeting: Arc::clone(&meeting), here: WHOLE / 2 }, Worker { meeting })
    }

    /// Of so many pieces of work, those that the caller should do itself so that both sides end together, as far as the
    /// last calls tell.
    pub fn share(&self, pieces: usize) -> usize {
        pieces * self.here / WHOLE
    }

    /// Runs `there` in the worker's thread and `here` in this one, and returns when both are done. What the worker has not
    /// begun by the end of `here` runs in this thread too: it may be asleep, or gone.
    ///
    /// # Panics
    /// If one of them does.
    pub fn beside(&mut self, here: impl FnOnce(), there: &mut (dyn FnMut() + Send)) {
        let work: *mut (dyn FnMut() + Send + '_) = &raw mut *there;
        // SAFETY: the same pointer. It is not used longer than `there` is borrowed: `Pending` waits for that.
        let work = unsafe { transmute::<*mut (dyn FnMut() + Send + '_), *mut Work>(work) };
        // SAFETY: there is no work to be taken, so no worker looks.
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
    /// Does what there is to do until the helper is dropped.
    pub fn work(self) {
        let Worker { meeting } = self;
        *meeting.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(current());
        let mut looks = 0;
        loop {
            match meeting.state.load(Acquire) {
                CLOSED => return,
                READY if meeting.change(READY, TAKEN) => {
                    // SAFETY: the work was put there before it was READY, and stays until its end is told below; what
                    // the pointer leads to is borrowed by the caller meanwhile, for the worker alone.
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

impl Meeting {
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

impl fmt::Debug for Meeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meeting").field("state", &self.state).finish_non_exhaustive()
    }
}

/// Work that is lent out. It comes back in any case, also when the caller panics.
struct Pending<'a>(&'a Meeting);

impl Pending<'_> {
    /// Takes back what the worker has not begun, or waits until it is done; how it ended. From then on nobody uses it.
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
