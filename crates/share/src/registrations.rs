//! Numbers of readers: which are in use, and what for. The acceptor gives them out, and whoever holds one gives it back.

use crate::layout::READERS;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What the acceptor and the writer both know.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    /// A bit for each reader number in use.
    taken: AtomicU64,
    /// Those of them that a block may have to be kept for when they are evicted.
    lossless: AtomicU64,
    /// The one that decides.
    deciding: AtomicU64,
    ended: AtomicBool,
}

impl Registrations {
    /// The writer has ended: nobody is let in any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Release);
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    pub(crate) fn lossless(&self) -> u32 {
        self.lossless.load(Acquire).count_ones()
    }

    /// Whether a reader decides.
    pub(crate) fn is_decided(&self) -> bool {
        self.deciding.load(Acquire) != 0
    }
}

/// A reader number, free again when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registrations: Arc<Registrations>,
    pub number: u32,
}

impl Registration {
    /// `room`: so many may be taken, with this one.
    pub(crate) fn take(registrations: &Arc<Registrations>, room: u32) -> Option<Registration> {
        // The acceptor alone takes registrations; others only free them.
        let taken = registrations.taken.load(Acquire);
        let number = (!taken).trailing_zeros();
        (taken.count_ones() < room.min(READERS)).then(|| {
            registrations.taken.fetch_or(1 << number, Relaxed);
            Registration { registrations: registrations.clone(), number }
        })
    }

    /// Is the one that decides.
    pub(crate) fn count_as_deciding(&self) {
        self.registrations.deciding.fetch_or(1 << self.number, Release);
    }

    /// Counts as one of those that a block may have to be kept for.
    pub(crate) fn count_as_lossless(&self) {
        self.registrations.lossless.fetch_or(1 << self.number, Release);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registrations.lossless.fetch_and(!(1 << self.number), Release);
        self.registrations.deciding.fetch_and(!(1 << self.number), Release);
        self.registrations.taken.fetch_and(!(1 << self.number), Release);
    }
}
