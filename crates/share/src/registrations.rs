//! Reader numbers and their use. The acceptor allocates them; their holders release them.

use crate::layout::READERS;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// State shared by the acceptor and the writer.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    /// A bit for each reader number in use.
    taken: AtomicU64,
    /// Readers for which a block may have to be kept when they are evicted.
    lossless: AtomicU64,
    /// The attached engine.
    deciding: AtomicU64,
    ended: AtomicBool,
}

impl Registrations {
    /// Marks the ring as ended: no reader is accepted any more.
    pub(crate) fn end(&self) {
        self.ended.store(true, Release);
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Acquire)
    }

    pub(crate) fn lossless(&self) -> u32 {
        self.lossless.load(Acquire).count_ones()
    }

    /// Returns whether an engine is attached.
    pub(crate) fn is_decided(&self) -> bool {
        self.deciding.load(Acquire) != 0
    }
}

/// A reader number, released when dropped.
#[derive(Debug)]
pub(crate) struct Registration {
    registrations: Arc<Registrations>,
    pub number: u32,
}

impl Registration {
    /// Allocates a number; `room` is the maximum number in use, including this one.
    pub(crate) fn take(registrations: &Arc<Registrations>, room: u32) -> Option<Registration> {
        // Only the acceptor takes registrations; others only release them.
        let taken = registrations.taken.load(Acquire);
        let number = (!taken).trailing_zeros();
        (taken.count_ones() < room.min(READERS)).then(|| {
            registrations.taken.fetch_or(1 << number, Relaxed);
            Registration { registrations: registrations.clone(), number }
        })
    }

    /// Marks it as the engine.
    pub(crate) fn count_as_deciding(&self) {
        self.registrations.deciding.fetch_or(1 << self.number, Release);
    }

    /// Marks it as a reader for which a block may have to be kept.
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
