//! The words that programs and this process share.

use crate::sys::bpf::Words;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Written by this process: nothing is made while it is not 0.
pub(crate) const STOP: usize = 0;
/// Frames to make in all.
pub(crate) const LIMIT: usize = 1;
/// UTC minus the time since boot, in nanoseconds.
pub(crate) const OFFSET: usize = 2;

/// Written by programs: the thread that runs them; 0 while none does.
pub(crate) const TASK: usize = 8;
/// Frames made and handed to the interface's queue.
pub(crate) const MADE: usize = 9;
/// Of those, frames that the driver took.
pub(crate) const SENT: usize = 10;
/// And frames that it dropped.
pub(crate) const DROPPED: usize = 11;
/// Why a frame was dropped or refused last in this call, as a negative error number; one that is too long says nothing of others.
pub(crate) const ERROR: usize = 12;
/// Frames that could not be made: the interface is gone, or the frame did not fit.
pub(crate) const FAILED: usize = 13;
/// Of those made, frames that are longer than the interface sends: somebody has set its MTU down.
pub(crate) const TOO_LONG: usize = 14;
/// From here on each program has words of its own.
pub(crate) const OWN: usize = 16;

/// The words of one program.
#[derive(Clone, Debug)]
pub(crate) struct State(Arc<Words>);

/// What the common words say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// See [`MADE`].
    pub made: u64,
    /// See [`SENT`].
    pub sent: u64,
    /// See [`DROPPED`].
    pub dropped: u64,
    /// See [`FAILED`].
    pub failed: u64,
    /// See [`TOO_LONG`].
    pub too_long: u64,
}

impl Counts {
    /// Frames that never came to the driver. Exact between two calls; while one runs, frames under way count too.
    pub(crate) fn refused(&self) -> u64 {
        self.made.saturating_sub(self.sent + self.dropped + self.too_long)
    }
}

impl State {
    /// With `own` words beside the common ones.
    pub(crate) fn new(own: usize) -> io::Result<Self> {
        Ok(State(Arc::new(Words::new(OWN + own)?)))
    }

    /// The descriptor of the map, as instructions name it.
    pub(crate) fn raw(&self) -> i32 {
        self.0.raw()
    }

    /// Reads a word.
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.0.word(word).load(Relaxed)
    }

    /// Writes a word.
    pub(crate) fn set(&self, word: usize, value: u64) {
        self.0.word(word).store(value, Relaxed);
    }

    /// The common counts.
    pub(crate) fn counts(&self) -> Counts {
        // What the driver took is read first: it is never more than what was made.
        let (sent, dropped, too_long) = (self.get(SENT), self.get(DROPPED), self.get(TOO_LONG));
        Counts { made: self.get(MADE), sent, dropped, failed: self.get(FAILED), too_long }
    }

    /// See [`ERROR`], as an error number; 0 for no reason given.
    pub(crate) fn error(&self) -> i32 {
        (self.get(ERROR) as i32).wrapping_neg()
    }

    /// Whether a frame was dropped or refused in this call for another reason than a full queue.
    pub(crate) fn is_turned_away(&self) -> bool {
        !matches!(self.error(), 0 | libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOSPC)
    }
}

/// Where a word lies, as an offset from the first.
pub(crate) fn at(word: usize) -> i16 {
    (word * 8) as i16
}
