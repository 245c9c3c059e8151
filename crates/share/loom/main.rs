//! The index rings of `linerate-share` under loom, which tries every order of loads and stores that the memory model
//! allows. `scripts/loom` runs this; no other build includes it.

#[path = "../src/index.rs"]
#[allow(dead_code)]
mod index;
#[path = "../src/verdicts.rs"]
#[allow(dead_code)]
mod verdicts;

/// Replaces the crate's `atomics`.
mod atomics {
    pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
}

use atomics::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use index::{Pusher, Ring, Taker, must_wake, prepare_to_sleep, shown, turned};
use loom::sync::Arc;
use verdicts::{Area, SETTLED, UNDECIDED};

fn main() {
    blocks_are_reused();
    an_entry_brings_what_was_written_before_it();
    no_wake_up_is_lost();
    frames_before_the_horizon_are_found();
    a_closed_block_has_its_final_count();
    no_block_is_read_after_reuse();
    a_count_brings_its_verdicts();
    a_verdict_later_is_found();
    a_block_begins_without_verdicts();
    println!("the index rings and the code on top of them are correct in every order");
}

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

/// The writer publishes blocks and takes them back, the reader returns those that it got: with a ring of two entries
/// and two blocks no entry is lost, repeated or overwritten before it was read.
fn blocks_are_reused() {
    loom::model(|| {
        let rings = Arc::new((Cells::new(2), Cells::new(2)));
        let theirs = rings.clone();
        let reader = loom::thread::spawn(move || {
            let (mut taker, mut pusher) = (Taker::default(), Pusher::default());
            let mut seen = Vec::new();
            while seen.len() < 3 {
                match taker.take(&theirs.0, 2).unwrap() {
                    Some(entry) => {
                        seen.push(entry & 0xff);
                        pusher.push(&theirs.1, entry >> 8);
                    }
                    None => loom::thread::yield_now(),
                }
            }
            seen
        });
        let (mut pusher, mut taker) = (Pusher::default(), Taker::default());
        let mut free = vec![1, 0];
        for number in 0..3 {
            let block = loop {
                match taker.take(&rings.1, 2 - free.len() as u64).unwrap() {
                    Some(block) => {
                        assert!(!free.contains(&block));
                        free.push(block);
                    }
                    None if free.is_empty() => loom::thread::yield_now(),
                    None => break free.pop().unwrap(),
                }
            };
            pusher.push(&rings.0, block << 8 | number);
        }
        assert_eq!(reader.join().unwrap(), [0, 1, 2]);
    });
}

/// Data written before an entry is pushed is visible to the side that takes it.
fn an_entry_brings_what_was_written_before_it() {
    loom::model(|| {
        let shared = Arc::new((Cells::new(2), AtomicU64::new(0)));
        let theirs = shared.clone();
        let writer = loom::thread::spawn(move || {
            theirs.1.store(7, Relaxed);
            Pusher::default().push(&theirs.0, 1);
        });
        if Taker::default().take(&shared.0, 2).unwrap().is_some() {
            assert_eq!(shared.1.load(Relaxed), 7);
        }
        writer.join().unwrap();
    });
}

/// Either the reader sees the publication before it sleeps, or the writer sees that it has to wake it.
fn no_wake_up_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Cells::new(2), AtomicU32::new(0)));
        let theirs = shared.clone();
        let writer = loom::thread::spawn(move || {
            Pusher::default().push(&theirs.0, 1);
            shown();
            must_wake(&theirs.1)
        });
        let sleeps = prepare_to_sleep(&shared.1, || Taker::default().is_behind(&shared.0));
        let woken = writer.join().unwrap();
        assert!(!sleeps || woken, "the reader sleeps and is not woken");
    });
}

/// The orders in which `Memory::commit`, `Writer::commit` and `Arena::set_horizon` store, and in which `Reader::look`
/// loads: a frame before a loaded horizon is found afterwards, with its desc.
fn frames_before_the_horizon_are_found() {
    loom::model(|| {
        let numbers = || Arc::new((Cells::new(2), [(); 3].map(|()| AtomicU64::new(0))));
        let shared = numbers();
        let theirs = shared.clone();
        let writer = loom::thread::spawn(move || {
            let (ring, [desc, committed, horizon]) = &*theirs;
            let mut pusher = Pusher::default();
            // The first commit of a block publishes it, the second does not.
            for frame in 1..=2 {
                desc.store(frame, Relaxed);
                committed.store(frame, Release);
                if frame == 1 {
                    pusher.push(ring, 0);
                }
                horizon.store(frame, Release);
            }
        });
        let (ring, [desc, committed, horizon]) = &*shared;
        let promised = horizon.load(Acquire);
        let has_block = Taker::default().take(ring, 2).unwrap().is_some();
        let found = if has_block { committed.load(Acquire) } else { 0 };
        assert!(found >= promised, "a frame before the horizon is not found");
        assert!(desc.load(Relaxed) >= found, "a frame without its desc");
        writer.join().unwrap();
    });
}

/// Stores as `Memory::commit` and `Memory::close` do, and loads as `Arena::progress` does.
fn a_closed_block_has_its_final_count() {
    loom::model(|| {
        let shared = Arc::new((AtomicU32::new(0), AtomicU32::new(0)));
        let theirs = shared.clone();
        let writer = loom::thread::spawn(move || {
            theirs.0.store(1, Release);
            theirs.0.store(2, Release);
            theirs.1.store(1, Release);
        });
        let closed = shared.1.load(Acquire);
        let committed = shared.0.load(Acquire);
        assert!(closed == 0 || committed == 2, "frames after the end");
        writer.join().unwrap();
    });
}

/// A reader returns its first block and reads the second, while the writer evicts it and overwrites all blocks but the
/// first one not returned (`Reader::release`, `Writer::evict`).
fn no_block_is_read_after_reuse() {
    /// The value that overwrites a block.
    const AGAIN: u64 = 9;
    loom::model(|| {
        let shared = Arc::new((Cells::new(2), AtomicU32::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
        let theirs = shared.clone();
        let reader = loom::thread::spawn(move || {
            let (returned, evict, blocks) = &*theirs;
            if evict.load(Acquire) != 0 {
                return;
            }
            assert!(blocks[0].load(Relaxed) != AGAIN, "the first block changes under its reader");
            Pusher::default().push(returned, 0);
            turned();
            if evict.load(Acquire) == 0 {
                assert!(blocks[1].load(Relaxed) != AGAIN, "the second block changes under its reader");
            }
        });
        let (returned, evict, blocks) = &*shared;
        evict.store(1, Release);
        turned();
        let first = usize::from(Taker::default().take(returned, 2).unwrap().is_some());
        (0..2).filter(|block| *block != first).for_each(|block| blocks[block].store(AGAIN, Relaxed));
        reader.join().unwrap();
    });
}

struct Verdicts {
    looked: AtomicU32,
    later: AtomicU32,
    bytes: [AtomicU8; 2],
}

impl Verdicts {
    fn new() -> Self {
        let bytes = [(); 2].map(|()| AtomicU8::new(UNDECIDED));
        Verdicts { looked: AtomicU32::new(0), later: AtomicU32::new(0), bytes }
    }
}

impl Area for Verdicts {
    fn looked(&self) -> &AtomicU32 {
        &self.looked
    }

    fn later(&self) -> &AtomicU32 {
        &self.later
    }

    fn byte(&self, frame: u32) -> &AtomicU8 {
        &self.bytes[frame as usize]
    }
}

/// A frame counted as examined has its verdict, unless the writer has settled it since.
fn a_count_brings_its_verdicts() {
    loom::model(|| {
        let said = Arc::new(Verdicts::new());
        let theirs = said.clone();
        let reader = loom::thread::spawn(move || {
            for frame in 0..2 {
                if verdicts::said(&*theirs, frame) != SETTLED {
                    verdicts::set_verdict(&*theirs, frame, 1);
                }
                verdicts::publish(&*theirs, frame + 1);
            }
        });
        let (looked, _) = verdicts::progress(&*said);
        for frame in 0..looked {
            assert_eq!(verdicts::said(&*said, frame), 1, "a counted verdict is missing");
        }
        if looked < 2 {
            verdicts::set_verdict(&*said, 1, SETTLED);
        }
        reader.join().unwrap();
        assert!([1, SETTLED].contains(&verdicts::said(&*said, 1)));
    });
}

/// A verdict on a held frame is visible once it is counted.
fn a_verdict_later_is_found() {
    loom::model(|| {
        let said = Arc::new(Verdicts::new());
        let theirs = said.clone();
        let reader = loom::thread::spawn(move || {
            verdicts::publish(&*theirs, 2);
            verdicts::set_verdict(&*theirs, 0, 5);
            verdicts::publish_later(&*theirs);
            verdicts::set_verdict(&*theirs, 1, 0);
            verdicts::publish_later(&*theirs);
        });
        let (_, later) = verdicts::progress(&*said);
        let found = (0..2).filter(|frame| verdicts::said(&*said, *frame) != UNDECIDED).count() as u32;
        assert!(found >= later, "{later} counted, {found} there");
        reader.join().unwrap();
        assert_eq!(verdicts::progress(&*said), (2, 2));
    });
}

/// A reader's verdicts on a returned block are gone when the block is filled again.
fn a_block_begins_without_verdicts() {
    loom::model(|| {
        let shared = Arc::new((Cells::new(2), Verdicts::new()));
        let theirs = shared.clone();
        let reader = loom::thread::spawn(move || {
            verdicts::set_verdict(&theirs.1, 0, 1);
            verdicts::publish(&theirs.1, 1);
            Pusher::default().push(&theirs.0, 0);
        });
        let (returned, said) = &*shared;
        let is_back = Taker::default().take(returned, 2).unwrap().is_some();
        if is_back {
            // As `Control::reset` does.
            said.looked.store(0, Relaxed);
            verdicts::set_verdict(said, 0, UNDECIDED);
        }
        reader.join().unwrap();
        let left = (verdicts::progress(said).0, verdicts::said(said, 0));
        assert_eq!(left, if is_back { (0, UNDECIDED) } else { (1, 1) });
    });
}
