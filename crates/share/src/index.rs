//! The index rings, and sleeping without lost wake-ups.
//!
//! A ring carries numbers from one side to the other: entries in shared memory, and a count of all entries ever pushed,
//! which is stored last. Each side keeps its own position in private memory, so neither depends on what the other
//! writes there. Removed entries are not counted: a ring has as many entries as there are blocks, and a block is
//! in it once at most.
//!
//! `scripts/loom` compiles this file with loom's atomics and tries every order of loads and stores that the memory
//! model allows.

use crate::atomics::{AtomicU32, AtomicU64, Ordering::*, fence};

pub(crate) trait Ring {
    /// Returns the count of entries ever pushed.
    fn count(&self) -> &AtomicU64;
    /// Returns entry `at` modulo the capacity.
    fn entry(&self, at: u64) -> &AtomicU64;
}

/// The pushing side.
#[derive(Debug, Default)]
pub(crate) struct Pusher {
    count: u64,
}

impl Pusher {
    /// Pushes an entry. There is always room: a ring has as many entries as can be outstanding.
    #[inline]
    pub(crate) fn push(&mut self, ring: &impl Ring, entry: u64) {
        ring.entry(self.count).store(entry, Relaxed);
        self.count = self.count.wrapping_add(1);
        ring.count().store(self.count, Release);
    }
}

/// The other side's count is impossible.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

/// The taking side.
#[derive(Debug, Default)]
pub(crate) struct Taker {
    count: u64,
}

impl Taker {
    /// Takes the next entry, if there is one; at most `most` can be outstanding.
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

    /// Returns whether there is an entry to take.
    pub(crate) fn is_behind(&self, ring: &impl Ring) -> bool {
        ring.count().load(Acquire) != self.count
    }
}

/// Marks the reader as sleeping, then calls `look` once more; returns false if that found something.
pub(crate) fn prepare_to_sleep(sleeping: &AtomicU32, look: impl FnOnce() -> bool) -> bool {
    sleeping.store(1, Relaxed);
    fence(SeqCst);
    !look()
}

/// Marks the reader as awake.
pub(crate) fn wake_up(sleeping: &AtomicU32) {
    sleeping.store(0, Relaxed);
}

/// Orders the writer's publications before its checks with [`must_wake`]; called once between them.
#[inline]
pub(crate) fn shown() {
    fence(SeqCst);
}

/// Orders evictions: the reader calls this after it has returned a block, before it checks whether it was evicted and
/// then reads the next one; the writer calls it after it has published the eviction, before it checks which blocks were
/// returned. So either the reader sees the eviction, or the writer sees which block the reader is reading.
#[inline]
pub(crate) fn turned() {
    fence(SeqCst);
}

/// Returns whether the writer has to wake this reader; true once per sleep.
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
    fn entries_round_trip() {
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
    fn impossible_count_is_an_overrun() {
        let (ring, mut taker) = (Cells::new(4), Taker::default());
        for count in [5, u64::MAX, 1 << 63] {
            ring.count.store(count, Relaxed);
            assert_eq!(taker.take(&ring, 4), Err(Overrun));
        }
        ring.count.store(1, Relaxed);
        assert_eq!(taker.take(&ring, 0), Err(Overrun));
    }
}
