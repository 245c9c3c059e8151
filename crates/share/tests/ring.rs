//! One writer and several readers, step by step in one thread.

use crate::support::{self, Ring, assert_balanced, drain, ids, time};
use linerate_burst::{CommitState, Interface, LinkType, Nanos, StampSource};
use linerate_share::{AttachOptions, End, Reader};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

#[test]
fn a_reader_gets_frames_committed_after_it_attached() {
    let mut ring = Ring::new(4);
    assert_eq!(ring.write(10), 10);
    let mut reader = ring.lossless();
    assert!(reader.fill(100).is_empty());
    ring.write(10);
    assert_eq!(ids(reader.fill(3)), [10, 11, 12]);
    assert_eq!(ids(reader.fill(5)), [10, 11, 12, 13, 14]);
    reader.consume(4);
    assert_eq!((ids(reader.fill(2)), reader.horizon()), (vec![14, 15], time(15)));
    assert_eq!(drain(&mut reader), (14..20).collect::<Vec<_>>());
    assert_eq!((reader.horizon(), reader.consumed(), reader.ended()), (time(20), 10, None));
    ring.writer.finish();
    assert!(reader.fill(100).is_empty());
    assert_eq!((reader.ended(), reader.skipped(), reader.bad()), (Some(End::InOrder), (0, 0), 0));
}

#[test]
fn blocks_are_reused_and_a_lossless_reader_blocks_the_writer() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    let first = ring.write(100_000);
    assert!(first < 100_000 && ring.writer.block().is_none());
    let holders = ring.writer.waits_for();
    assert_eq!((holders.len(), holders[0].tally.held, holders[0].lossless), (1, 4, true));
    assert_eq!((holders[0].who.pid as u32, holders[0].tally.outstanding), (std::process::id(), first));
    let mut seen = 0;
    for _ in 0..20 {
        for id in drain(&mut reader) {
            assert_eq!(id, seen);
            seen += 1;
        }
        ring.write(1000);
        ring.check();
    }
    assert_eq!(seen + drain(&mut reader).len() as u64, ring.writer.committed());
    ring.tick();
    let tally = ring.writer.readers()[0].tally;
    assert_eq!((tally.finished + tally.outstanding, tally.skipped_frames), (ring.writer.committed(), 0));
}

#[test]
fn lossy_readers_never_block_and_know_what_they_missed() {
    let mut ring = Ring::new(8);
    let mut readers: Vec<Reader> = Vec::new();
    // Each attaches at another time and stops at once, so that they hold different blocks.
    for _ in 0..6 {
        readers.push(ring.lossy(4));
        assert_eq!(ring.write(2000), 2000);
        ring.check();
    }
    assert_eq!(ring.write(20_000), 20_000, "stopped lossy readers block the writer");
    let held: Vec<u32> = ring.writer.readers().iter().map(|report| report.tally.held).collect();
    assert!(held.iter().all(|held| *held <= 4), "{held:?}");
    let mut ended = readers.iter_mut().map(drain).map(|seen| seen.len() as u64).collect::<Vec<_>>();
    ring.tick();
    assert_eq!(ring.write(5000), 5000);
    for (at, reader) in readers.iter_mut().enumerate() {
        let seen = drain(reader);
        assert!(!seen.is_empty(), "a reader that continues gets frames again");
        ended[at] += seen.len() as u64;
        let tally = ring.writer.readers()[at].tally;
        assert_eq!(ended[at] + tally.skipped_frames, tally.committed);
        assert_eq!(reader.skipped(), (tally.skipped_frames, tally.skipped_slots));
        assert!(tally.skipped_frames > 0 && tally.skipped_slots > 0);
    }
}

#[test]
fn the_blocks_of_a_detached_reader_are_reclaimed() {
    let mut ring = Ring::new(4);
    let reader = ring.lossless();
    let written = ring.write(100_000);
    assert!(ring.writer.block().is_none());
    drop(reader);
    ring.tick();
    let departures = ring.writer.take_departures();
    let [gone] = departures.as_slice() else { panic!("{departures:?}") };
    assert_eq!((gone.report.tally.reclaimed, gone.report.tally.finished, gone.evict.as_ref()), (written, 0, None));
    assert_balanced(&gone.report.tally);
    assert_eq!(ring.write(100_000), 100_000);
}

#[test]
fn a_dead_writer_leaves_its_committed_frames() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    ring.write(50);
    let Ring { mut writer, acceptor, .. } = ring;
    assert!(writer.block().unwrap().push(&support::desc(50), &support::frame(50)), "never committed");
    drop((writer, acceptor));
    let mut seen = Vec::new();
    for _ in 0..1000 {
        seen.extend(drain(&mut reader));
    }
    assert_eq!((seen, reader.ended()), ((0..50).collect(), Some(End::Died)));
}

#[test]
fn detached_reader_returns_frames_already_arrived() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    ring.write(1500);
    assert_eq!(ids(reader.fill(10)).len(), 10);
    reader.detach();
    ring.write(10);
    assert_eq!(drain(&mut reader), (0..1500).collect::<Vec<_>>());
    assert_eq!(reader.ended(), Some(End::Detached));
    ring.tick();
    assert_eq!(ring.writer.readers(), []);
    assert_balanced(&ring.writer.take_departures()[0].report.tally);
}

#[test]
fn interfaces_grow_and_drops_are_reported() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossy(0);
    assert_eq!(reader.interfaces().len(), 1);
    let mut two = Interface::new("wlan0".repeat(40), LinkType::RAW, StampSource::File);
    two.description = "é".repeat(300);
    two.snap = 96;
    let mut all = vec![Interface::new("eth0", LinkType::ETHERNET, StampSource::Kernel), two.clone()];
    ring.writer.set_interfaces(&all).unwrap();
    ring.writer.commit(&CommitState { drops: 7, horizon: time(3), ..CommitState::default() });
    ring.write(1);
    assert_eq!(ids(reader.fill(10)), [0]);
    (two.name, two.description) = (two.name[..96].into(), "é".repeat(192));
    assert_eq!(reader.interfaces(), [all[0].clone(), two]);
    ring.writer.commit(&CommitState { drops: 9, ..CommitState::default() });
    assert_eq!((reader.lost_upstream(), reader.horizon()), (9, time(3)));
    all.resize(1025, all[0].clone());
    assert!(ring.writer.set_interfaces(&all).is_err());
}

#[test]
fn the_horizon_moves_without_frames_and_never_beyond_those_shown() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    ring.writer.commit(&CommitState { horizon: Nanos(500), ..CommitState::default() });
    assert!(reader.fill(10).is_empty());
    assert_eq!(reader.horizon(), Nanos(500));
    ring.write(20);
    assert_eq!((reader.fill(5).len(), reader.horizon()), (5, time(4)));
    assert_eq!((reader.fill(50).len(), reader.horizon()), (20, time(20)));
}

/// Returns whether a wait for more would end at once.
fn ready(reader: &Reader) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(reader.wake(), PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn wait_ends_at_once_if_work_is_pending() {
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    assert!(reader.fill(9).is_empty() && !ready(&reader));
    ring.write(5);
    assert!(ready(&reader), "woken while it sleeps");
    assert_eq!(drain(&mut reader).len(), 5);
    // Between the check that found nothing and the wait.
    ring.write(1);
    assert!(ready(&reader), "frames of the block that it holds");
    assert!(reader.fill(9).len() == 1 && !ready(&reader), "shown frames are not new");
    reader.consume(1);
    assert!(!ready(&reader));
    reader.fill(9);
    ring.writer.close_block();
    assert!(ready(&reader), "a block to return");
    assert!(reader.fill(9).is_empty() && !ready(&reader));
    reader.fill(9);
    ring.write(3);
    assert!(ready(&reader), "a new block");
    assert!(reader.fill(2).len() == 2 && ready(&reader), "more than was requested");
    assert!(reader.fill(3).len() == 3 && !ready(&reader));
    // No reader is woken only for the horizon.
    ring.writer.commit(&CommitState { horizon: time(999), ..CommitState::default() });
    assert!(!ready(&reader));
    let mut other = ring.lossy(2);
    other.fill(1);
    ring.writer.evict(1, "a test");
    assert!(ready(&other) && other.fill(1).is_empty() && other.ended() == Some(End::Evicted) && ready(&other));
    ring.writer.finish();
    assert!(ready(&reader));
    reader.detach();
    assert!(ready(&reader));
}

/// A skipped reader may have something to return.
#[test]
fn a_reader_that_is_skipped_is_woken_too() {
    let mut ring = Ring::new(4);
    let _stopped = ring.lossy(2);
    for _ in 0..2 {
        ring.write(5);
        ring.writer.close_block();
    }
    let mut reader = ring.lossy(2);
    assert!(reader.fill(9).is_empty() && !ready(&reader));
    ring.write(5);
    assert!(ready(&reader));
    assert!(reader.fill(9).is_empty() && reader.skipped() == (5, 1));
}

/// One step of a random sequence.
#[derive(Clone, Debug)]
enum Step {
    Write(u64),
    Close,
    AttachOptions { lossless: bool, quota: u32 },
    Fill { reader: usize, most: usize },
    Consume { reader: usize, part: usize },
    Drop(usize),
    Detach(usize),
    Tick,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..1500).prop_map(Step::Write),
        1 => Just(Step::Close),
        1 => (any::<bool>(), 0u32..6).prop_map(|(lossless, quota)| Step::AttachOptions { lossless, quota }),
        6 => (0usize..4, 1usize..2000).prop_map(|(reader, most)| Step::Fill { reader, most }),
        6 => (0usize..4, 0usize..4).prop_map(|(reader, part)| Step::Consume { reader, part }),
        1 => (0usize..4).prop_map(Step::Drop),
        1 => (0usize..4).prop_map(Step::Detach),
        2 => Just(Step::Tick),
    ]
}

/// A reader with its expected state.
struct TrackedReader {
    reader: Reader,
    number: Option<u32>,
    joined: u64,
    /// The frame it saw last, plus one.
    next: u64,
    seen: u64,
    shown: usize,
    is_lossy: bool,
    detached: bool,
}

impl TrackedReader {
    fn fill(&mut self, most: usize) {
        let new = ids(self.reader.fill(most));
        assert!(new.len() >= self.shown, "frames already returned disappeared");
        for id in &new[self.shown..] {
            assert!(*id >= self.next && (self.is_lossy || *id == self.next), "frame {id} after {}", self.next);
            self.next = id + 1;
        }
        self.shown = new.len();
    }

    fn consume(&mut self, frames: usize) {
        self.reader.consume(frames);
        self.shown -= frames;
        self.seen += frames as u64;
    }
}

fn live(steps: Vec<Step>) {
    let mut ring = Ring::new(6);
    let mut readers: Vec<TrackedReader> = Vec::new();
    for step in steps {
        match step {
            Step::Write(frames) => {
                let written = ring.write(frames);
                let waits = ring.writer.waits_for();
                assert!(written == frames || waits[0].lossless, "only lossless readers block the writer");
            }
            Step::Close => ring.writer.close_block(),
            Step::AttachOptions { lossless, quota } => {
                let joined = ring.writer.committed();
                // A ring of six blocks is limited to two lossless readers.
                let (reader, lossless) =
                    match ring.attach(&AttachOptions { lossless, quota, ..AttachOptions::default() }) {
                        Ok(reader) => (reader, lossless),
                        Err(_) => (ring.lossy(quota), false),
                    };
                let number = ring
                    .writer
                    .readers()
                    .iter()
                    .map(|report| report.reader)
                    .find(|number| readers.iter().all(|one| one.number != Some(*number)));
                readers.push(TrackedReader {
                    reader,
                    number,
                    joined,
                    next: joined,
                    seen: 0,
                    shown: 0,
                    is_lossy: !lossless,
                    detached: false,
                });
            }
            Step::Fill { reader, most } => {
                if let Some(one) = readers.get_mut(reader) {
                    one.fill(most);
                }
            }
            Step::Consume { reader, part } => {
                if let Some(one) = readers.get_mut(reader) {
                    one.consume(one.shown * part / 3);
                }
            }
            Step::Drop(reader) if reader < readers.len() => drop(readers.swap_remove(reader)),
            Step::Detach(reader) => {
                if let Some(one) = readers.get_mut(reader) {
                    one.reader.detach();
                    one.detached = true;
                }
            }
            Step::Drop(_) | Step::Tick => {}
        }
        // Numbers are reused as soon as the writer has noticed that a reader detached.
        ring.tick();
        let there: Vec<u32> = ring.writer.readers().iter().map(|report| report.reader).collect();
        readers.iter_mut().for_each(|one| one.number = one.number.filter(|number| there.contains(number)));
        ring.check();
        ring.writer.take_departures().iter().for_each(|gone| assert_balanced(&gone.report.tally));
    }
    finish(ring, readers);
}

/// Takes all remaining frames, and checks that each reader has seen or skipped every frame since it attached.
fn finish(ring: Ring, readers: Vec<TrackedReader>) {
    let committed = ring.writer.committed();
    ring.writer.finish();
    for mut one in readers {
        loop {
            one.fill(700);
            if one.shown == 0 {
                break;
            }
            one.consume(one.shown);
        }
        let (skipped, _) = one.reader.skipped();
        if one.detached {
            assert_eq!((one.reader.ended(), one.reader.bad()), (Some(End::Detached), 0));
        } else {
            assert_eq!((one.reader.ended(), one.reader.bad()), (Some(End::InOrder), 0));
            assert_eq!(one.seen + skipped, committed - one.joined);
        }
        assert!(one.is_lossy || skipped == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn every_reader_sees_or_counts_every_frame(steps in prop::collection::vec(step(), 1..120)) {
        live(steps);
    }
}
