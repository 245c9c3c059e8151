//! The index rings, and how a reader sleeps without missing what comes.
//!
//! A ring carries numbers from one side to the other: entries in memory that both see, and a count of all that was ever put
//! in, which is stored last. Each side keeps its own place in private memory, so neither depends on what the other
//! writes there. There is no count of what was taken out: a ring has as many entries as there are blocks, and a block
//! is under way once at most.
//!
//! `scripts/loom` has this very file made of loom's atomics and tries every order of loads and stores that the memory model
//! allows.

use crate::atomics::{AtomicU32, AtomicU64, Ordering::*, fence};

/// Where a ring lies.
pub(crate) trait Ring {
    /// How many entries were ever put in.
    fn count(&self) -> &AtomicU64;
    /// Entry `at` modulo the capacity.
    fn entry(&self, at: u64) -> &AtomicU64;
}

/// The side that puts in.
#[derive(Debug, Default)]
pub(crate) struct Pusher {
    count: u64,
}

impl Pusher {
    /// Puts an entry in. There is room: no more entries are under way than the ring has.
    #[inline]
    pub(crate) fn push(&mut self, ring: &impl Ring, entry: u64) {
        ring.entry(self.count).store(entry, Relaxed);
        self.count = self.count.wrapping_add(1);
        ring.count().store(self.count, Release);
    }
}

/// The count of the other side cannot be right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// The side that takes out.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    count: u64,
}

impl Taker {
    /// The next entry, if one is there; at most `most` can be.
    #[inline]
    pub(crate) fn take(&mut self, ring: &impl Ring, most: u64) -> Result<Option<u64>, Overrun> {
        let there = ring.count().load(Acquire).wrapping_sub(self.count);
        match there {
            0 => Ok(None),
            _ if there > most => Err(Overrun),
            _ => {
                let entry = ring.entry(self.count).load(Relaxed);
                self.count += 1;
                Ok(Some(entry))
            }
        }
    }

    /// Whether there is anything to take.
    pub(crate) fn is_behind(&self, ring: &impl Ring) -> bool {
        ring.count().load(Acquire) != self.count
    }
}

/// The reader says that it is going to wait, then looks once more; false if `look` found something.
pub(crate) fn prepare_to_sleep(sleeping: &AtomicU32, look: impl FnOnce() -> bool) -> bool {
    sleeping.store(1, Relaxed);
    fence(SeqCst);
    !look()
}

/// The reader is awake.
pub(crate) fn wake_up(sleeping: &AtomicU32) {
    sleeping.store(0, Relaxed);
}

/// The writer calls this once after it has let readers see something, before it asks [`must_wake`] about each.
#[inline]
pub(crate) fn shown() {
    fence(SeqCst);
}

/// The reader calls this after it has given a block back, before it looks whether it was evicted and then at the next one;
/// the writer after it has said so, before it looks which blocks came back. So either the reader knows that it is out, or the
/// writer knows which block it is looking at.
#[inline]
pub(crate) fn turned() {
    fence(SeqCst);
}

/// Whether the writer has to wake this reader; true once for each time that it lay down.
#[inline]
pub(crate) fn must_wake(sleeping: &AtomicU32) -> bool {
    sleeping.load(Relaxed) != 0 && sleeping.swap(0, Relaxed) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cells {
        count: AtomicU64,
        entries: Vec<AtomicU64>,
    }

    impl Cells {
        fn new(capacity: usize) -> Self {
            Cells { count: AtomicU64::new(0), entries: (0..capacity).map(|_| AtomicU64::new(u64::MAX)).collect() }
        }
    }

    impl Ring for Cells {
        fn count(&self) -> &AtomicU64 {
            &self.count
        }

        fn entry(&self, at: u64) -> &AtomicU64 {
            &self.entries[at as usize & (self.entries.len() - 1)]
        }
    }

    #[test]
    fn entries_come_out_as_they_went_in() {
        let ring = Cells::new(4);
        let (mut pusher, mut taker) = (Pusher::default(), Taker::default());
        for round in 0..100 {
            for entry in 0..round % 5 {
                pusher.push(&ring, round * 10 + entry);
            }
            assert_eq!(taker.is_behind(&ring), round % 5 > 0);
            for entry in 0..round % 5 {
                assert_eq!(taker.take(&ring, 4), Ok(Some(round * 10 + entry)));
            }
            assert_eq!(taker.take(&ring, 4), Ok(None));
        }
    }

    #[test]
    fn a_count_that_cannot_be_is_an_overrun() {
        let (ring, mut taker) = (Cells::new(4), Taker::default());
        for count in [5, u64::MAX, 1 << 63] {
            ring.count.store(count, Relaxed);
            assert_eq!(taker.take(&ring, 4), Err(Overrun));
        }
        ring.count.store(1, Relaxed);
        assert_eq!(taker.take(&ring, 0), Err(Overrun));
    }
}
