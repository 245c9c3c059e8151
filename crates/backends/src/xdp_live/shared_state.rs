//! Words that programs and this process share.

use crate::sys::bpf::Words;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Written by this process: no frame is made while it is not 0.
pub(crate) const STOP: usize = 0;
/// Maximum number of frames.
pub(crate) const LIMIT: usize = 1;
/// UTC minus the time since boot, in nanoseconds.
pub(crate) const OFFSET: usize = 2;

/// Written by programs: the thread that runs them; 0 if none does.
pub(crate) const TASK: usize = 8;
/// Frames made and handed to the interface's queue.
pub(crate) const MADE: usize = 9;
/// Frames among these that the driver took.
pub(crate) const SENT: usize = 10;
/// Frames among these that the driver dropped.
pub(crate) const DROPPED: usize = 11;
/// Reason of the last drop or refusal in this call, as a negative error number; frames that are too long do not set it.
pub(crate) const ERROR: usize = 12;
/// Frames that could not be made: the interface is gone, or the frame did not fit.
pub(crate) const FAILED: usize = 13;
/// Frames made that are longer than the interface sends: its MTU was lowered.
pub(crate) const TOO_LONG: usize = 14;
/// Words from here on belong to each program.
pub(crate) const OWN: usize = 16;

#[derive(Clone, Debug)]
pub(crate) struct State(Arc<Words>);

/// Values of the common words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveCounts {
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

impl LiveCounts {
    /// Returns the frames that the driver never received. Exact between two calls; during a call, frames in flight
    /// count too.
    pub(crate) fn refused(&self) -> u64 {
        self.made.saturating_sub(self.sent + self.dropped + self.too_long)
    }
}

impl State {
    /// Creates the words, `own` in addition to the common ones.
    pub(crate) fn new(own: usize) -> io::Result<Self> {
        Ok(State(Arc::new(Words::new(OWN + own)?)))
    }

    /// Returns the descriptor of the map for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.0.raw()
    }

    pub(crate) fn get(&self, word: usize) -> u64 {
        self.0.word(word).load(Relaxed)
    }

    pub(crate) fn set(&self, word: usize, value: u64) {
        self.0.word(word).store(value, Relaxed);
    }

    /// Returns the common counts.
    pub(crate) fn counts(&self) -> LiveCounts {
        // Read first: the driver never took more frames than were made.
        let (sent, dropped, too_long) = (self.get(SENT), self.get(DROPPED), self.get(TOO_LONG));
        LiveCounts { made: self.get(MADE), sent, dropped, failed: self.get(FAILED), too_long }
    }

    /// Returns [`ERROR`] as an error number; 0 for no reason given.
    pub(crate) fn error(&self) -> i32 {
        (self.get(ERROR) as i32).wrapping_neg()
    }

    /// Returns whether a frame was dropped or refused in this call for another reason than a full queue.
    pub(crate) fn is_rejected(&self) -> bool {
        !matches!(self.error(), 0 | libc::EAGAIN | libc::EBUSY | libc::ENOBUFS | libc::ENOSPC)
    }
}

/// Returns the offset of a word from the first.
pub(crate) fn at(word: usize) -> i16 {
    (word * 8) as i16
}
