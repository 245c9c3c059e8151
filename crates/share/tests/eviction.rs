//! Evicted readers: the frames that they are reading do not change, and the other readers continue.

use crate::raw::RawReader;
use crate::support::{self, Ring, assert_balanced, drain, ids};
use linerate_share::{Access, AttachOptions, End, Error, Reader};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Writes more than all free blocks, several times.
fn write_over(ring: &mut Ring) {
    for _ in 0..20 {
        assert_eq!(ring.write(20), 20, "the writer is blocked");
        ring.writer.close_block();
        ring.tick();
    }
}

/// Returns the number of blocks that a lossless reader gets before the writer blocks.
fn free_blocks(ring: &mut Ring) -> u32 {
    let mut reader = ring.lossless();
    while ring.write(1) == 1 {
        ring.writer.close_block();
    }
    let held = ring.writer.waits_for()[0].tally.held;
    drain(&mut reader);
    drop(reader);
    let there = ring.writer.readers().len() - 1;
    ring.wait_for(there);
    held
}

#[test]
fn frames_of_an_evicted_reader_do_not_change() {
    let mut ring = Ring::new(8);
    let mut reader = ring.lossless();
    for _ in 0..4 {
        ring.write(50);
        ring.writer.close_block();
    }
    // Two blocks are returned, frames of the third are shown.
    assert_eq!(ids(reader.fill(50)), (0..50).collect::<Vec<_>>());
    reader.consume(50);
    assert_eq!(reader.fill(50).len(), 50);
    reader.consume(50);
    assert_eq!(reader.fill(20).len(), 20);
    ring.writer.evict(0, "a test");
    let gone = ring.writer.take_departures();
    assert_eq!((gone[0].report.tally.finished, gone[0].report.tally.reclaimed), (100, 100));
    assert_balanced(&gone[0].report.tally);
    write_over(&mut ring);
    assert_eq!(ids(reader.shown()), (100..120).collect::<Vec<_>>(), "frames change while they are looked at");
    assert_eq!(free_blocks(&mut ring), 7, "one block is kept for it");
    // It notices when it continues, and closes its socket: the block is free again.
    reader.consume(20);
    assert!(reader.fill(1).is_empty());
    assert_eq!(reader.ended(), Some(End::Evicted));
    ring.tick();
    assert_eq!(free_blocks(&mut ring), 8);
    write_over(&mut ring);
}

/// For each reader that never closes its socket a block and a registration are kept, up to a limit.
#[test]
fn stopped_evicted_readers_leave_enough_blocks() {
    for (slots, most) in [(4, 2), (5, 2), (8, 3), (16, 7)] {
        let mut ring = Ring::new(slots);
        // Two stopped lossy ones hold half of the blocks.
        let lossy = [ring.lossy(slots), ring.lossy(slots)];
        let mut stopped: Vec<Reader> = Vec::new();
        for _ in 0..most {
            stopped.push(ring.lossless());
            ring.write(3);
            ring.writer.close_block();
        }
        let refused = ring.attach(&AttachOptions { lossless: true, ..AttachOptions::default() }).err();
        assert!(matches!(&refused, Some(Error::Refused { reason, .. }) if reason.contains("lossless readers")));
        while ring.write(1) == 1 {
            ring.writer.close_block();
        }
        (0..most).for_each(|at| ring.writer.evict(2 + at, "a test"));
        write_over(&mut ring);
        let refused = ring.attach(&AttachOptions { lossless: true, ..AttachOptions::default() }).err();
        assert!(refused.is_none() || slots > 4, "only one block of four is kept");
        // No block is kept for a reader that breaks the protocol, lossy or not.
        for _ in 0..100 {
            let mut hostile = RawReader::attach(&mut ring, false, 2);
            ring.write(3);
            hostile.give(u64::MAX);
            ring.tick();
            assert!(ring.writer.take_departures().iter().any(|gone| gone.evict.is_some()));
            std::mem::forget(hostile.socket);
        }
        drop((stopped, lossy));
        ring.wait_for(0);
        assert_eq!(free_blocks(&mut ring), slots);
    }
}

#[test]
fn a_reader_that_blocks_for_too_long_is_evicted() {
    let mut ring = Ring::new(4);
    ring.writer.set_patience(Some(Duration::from_secs(1)));
    let mut stopped = ring.lossless();
    let wait = |ring: &mut Ring, milliseconds: u64| {
        for _ in 0..milliseconds {
            ring.now.0 += 1_000_000;
            ring.writer.tick(ring.now);
            ring.write(1);
        }
    };
    // The wait starts only when a block is requested.
    while ring.write(1) == 1 {
        ring.writer.close_block();
    }
    wait(&mut ring, 400);
    assert_eq!(ring.writer.take_departures(), []);
    // A block returned in time restarts the timeout; a clock jump does not expire it.
    assert_eq!(ids(stopped.fill(1)).len(), 1);
    stopped.consume(1);
    wait(&mut ring, 1);
    ring.writer.close_block();
    wait(&mut ring, 10);
    ring.now.0 += 3_600_000_000_000;
    // A reader that continues in time has lost nothing.
    wait(&mut ring, 800);
    assert_eq!((ring.writer.take_departures(), stopped.is_lossless(), stopped.skipped()), (vec![], true, (0, 0)));
    wait(&mut ring, 150);
    let gone = ring.writer.take_departures();
    assert!(gone[0].evict.as_deref().is_some_and(|reason| reason.starts_with("it blocked the writer")), "{gone:?}");
    // It learns that it was evicted, not that it was skipped.
    assert!(stopped.fill(1).is_empty());
    assert_eq!((stopped.ended(), stopped.skipped()), (Some(End::Evicted), (0, 0)));
    write_over(&mut ring);
}

#[test]
fn lossless_readers_need_the_writers_permission() {
    let name = support::unique();
    let made = linerate_share::Writer::create(&name, Access::default(), &support::options(4), Default::default());
    let (mut writer, mut acceptor) = made.unwrap();
    for lossless in [true, false] {
        let attaching = AttachOptions { lossless, ..AttachOptions::default() }.begin(&name).unwrap();
        acceptor.step(Default::default()).into_iter().for_each(|client| writer.admit(client));
        match attaching.finish() {
            Err(Error::Refused { reason, .. }) => {
                assert!(lossless && reason.contains("--lossless-readers"), "{reason}")
            }
            result => assert!(!lossless && result.is_ok()),
        }
    }
}

/// A reader that checks every byte, evicted at any moment by a writer at full speed.
#[test]
fn no_frame_changes_under_a_reader_evicted_at_any_moment() {
    let (mut rounds, mut caught) = (0, 0);
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let mut ring = Ring::new(6);
        let mut reader = ring.lossless();
        let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                while reader.ended().is_none() && !is_over.load(Ordering::Relaxed) {
                    // `ids` compares each frame with its expected bytes.
                    let got = ids(reader.fill(40)).len();
                    reader.consume(got);
                    seen.fetch_add(got as u64, Ordering::Relaxed);
                }
            });
            let goal = 100 + rounds * 37 % 900;
            while seen.load(Ordering::Relaxed) < goal {
                ring.write(30);
                ring.writer.close_block();
                ring.tick();
            }
            ring.writer.evict(0, "a test");
            for _ in 0..30 {
                assert_eq!(ring.write(30), 30);
                ring.writer.close_block();
                ring.writer.tick(ring.now);
            }
            is_over.store(true, Ordering::Relaxed);
        });
        rounds += 1;
        caught += u64::from(reader.ended() == Some(End::Evicted));
    }
    assert!(caught > 0, "{rounds} rounds, and it was never evicted while it read");
}
