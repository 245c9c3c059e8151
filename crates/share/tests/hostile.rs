//! Readers that break every rule, writers that write anything anywhere.

use crate::raw::{self, RAW_SLOTS, RawReader, RawWriter, control};
use crate::support::{Ring, assert_balanced, drain, frame, ids, unique};
use linerate_share::{AttachOptions, End, Reader};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::thread;

/// A reader written only from the numbers of the format gets every frame.
#[test]
fn the_format_can_be_read_from_its_specification() {
    let mut ring = Ring::new(4);
    let mut reader = RawReader::attach(&mut ring, true, 0);
    let (mut next, mut open) = (0, None::<(u32, u32)>);
    for round in 0..200 {
        ring.write(1 + round * 37 % 400);
        while let Some((slot, index)) = open.or_else(|| reader.take()) {
            let (closed, committed) = reader.progress(slot);
            for index in index..committed {
                assert_eq!(reader.frame(slot, index), frame(next));
                next += 1;
            }
            open = Some((slot, committed)).filter(|_| !closed);
            if !closed {
                break;
            }
            reader.give(slot.into());
        }
        ring.tick();
        ring.check();
    }
    assert_eq!((next, ring.writer.take_departures()), (ring.writer.committed(), vec![]));
}

/// Returns a newly attached reader, with a closed block and an open one.
fn with_two_blocks() -> (Ring, RawReader, [u32; 2]) {
    let mut ring = Ring::new(4);
    let mut reader = RawReader::attach(&mut ring, true, 0);
    ring.write(10);
    ring.writer.close_block();
    ring.write(10);
    let slots = [reader.take().unwrap().0, reader.take().unwrap().0];
    assert!(reader.take().is_none());
    (ring, reader, slots)
}

#[test]
fn protocol_violation_evicts_the_reader_without_side_effects() {
    type Break = fn(&mut RawReader, [u32; 2]);
    let breaks: [(&str, Break); 9] = [
        ("unknown block 4", |reader, _| reader.give(4)),
        ("unknown block", |reader, _| reader.give(u64::MAX)),
        ("unknown block", |reader, [closed, _]| reader.give(u64::from(closed) | 1 << 32)),
        ("still being filled", |reader, [_, open]| reader.give(open.into())),
        ("does not hold", |reader, [closed, open]| {
            reader.give((0..4).find(|slot| ![closed, open].contains(slot)).unwrap().into());
        }),
        ("does not hold", |reader, [closed, _]| {
            reader.give(closed.into());
            reader.give(closed.into());
        }),
        ("more blocks than it holds", |reader, _| reader.control.long(control::RETURNED).store(3, Release)),
        ("more blocks than it holds", |reader, _| reader.control.long(control::RETURNED).store(u64::MAX, Release)),
        ("more blocks than it holds", |reader, [closed, _]| {
            reader.give(closed.into());
            reader.control.long(control::RETURNED).store(1 << 63, Release);
        }),
    ];
    for (words, does) in breaks {
        let (mut ring, mut reader, slots) = with_two_blocks();
        let mut other = ring.lossless();
        does(&mut reader, slots);
        ring.tick();
        let gone = ring.writer.take_departures();
        let reason = gone.first().and_then(|gone| gone.evict.clone()).expect(words);
        assert!(reason.contains("broke the protocol") && reason.contains(words), "{reason}");
        assert_balanced(&gone[0].report.tally);
        assert_eq!(raw::read_message(&reader.socket).map(|(bytes, _)| bytes.len()), Some(0), "the socket is closed");
        // The other readers are not affected.
        let written = ring.write(100_000);
        assert_eq!(drain(&mut other), (20..20 + written).collect::<Vec<_>>());
        ring.check();
    }
}

#[test]
fn a_reader_with_a_full_socket_does_not_block() {
    let mut ring = Ring::new(4);
    let reader = RawReader::attach(&mut ring, false, 2);
    let mut other = ring.lossless();
    let mut seen = 0;
    for _ in 0..5000 {
        reader.control.word(control::SLEEPING).store(1, Release);
        ring.write(20);
        seen += drain(&mut other).len() as u64;
    }
    assert_eq!(seen, ring.writer.committed());
    ring.tick();
    assert_eq!(ring.writer.readers().len(), 2, "a full socket does not evict a reader");
}

/// An action of a hostile reader.
#[derive(Clone, Debug)]
enum HostileAction {
    Scribble { at: usize, bytes: Vec<u8> },
    Zero,
    Give(u64),
    Put(u64),
    Count(u64),
    Take,
    Sleep,
    Noise(Vec<u8>),
    Leave,
}

fn action() -> impl Strategy<Value = HostileAction> {
    prop_oneof![
        4 => (0usize..576, prop::collection::vec(any::<u8>(), 1..64)).prop_map(|(at, bytes)| HostileAction::Scribble { at, bytes }),
        1 => Just(HostileAction::Zero),
        4 => (0u64..9).prop_map(HostileAction::Give),
        1 => any::<u64>().prop_map(HostileAction::Put),
        1 => (0u64..12).prop_map(HostileAction::Count),
        4 => Just(HostileAction::Take),
        2 => Just(HostileAction::Sleep),
        1 => prop::collection::vec(any::<u8>(), 0..200).prop_map(HostileAction::Noise),
        1 => Just(HostileAction::Leave),
    ]
}

fn perform(reader: &mut RawReader, action: HostileAction) {
    let bytes = reader.control.bytes;
    match action {
        HostileAction::Scribble { at, bytes } => reader.control.put(at, &bytes),
        HostileAction::Zero => reader.control.put(0, &vec![0; bytes]),
        HostileAction::Give(entry) => reader.give(entry),
        HostileAction::Put(entry) => reader.put(entry),
        HostileAction::Count(count) => reader.control.long(control::RETURNED).store(count, Release),
        HostileAction::Take => {
            if reader.control.word(control::CAPACITY).load(Relaxed) == 8
                && let Some((slot, _)) = reader.take()
            {
                reader.give(slot.into());
            }
        }
        HostileAction::Sleep => reader.control.word(control::SLEEPING).store(1, Release),
        HostileAction::Noise(noise) => raw::send_message(&reader.socket, &noise, &[]),
        HostileAction::Leave => {}
    }
}

/// Returns whether the positions of the rings are intact, so that the reader does not write outside them.
fn is_intact(reader: &RawReader) -> bool {
    reader.control.word(control::CAPACITY).load(Relaxed) == 8
}

fn run_hostile_actions(actions: Vec<(HostileAction, u64)>) {
    let mut ring = Ring::new(6);
    let (mut proper, mut lossy) = (ring.lossless(), ring.lossy(3));
    let mut hostile = Some(RawReader::attach(&mut ring, false, 2));
    let (mut seen, mut lossy_seen) = (0, 0);
    for (action, frames) in actions {
        let leaves = matches!(action, HostileAction::Leave);
        if let Some(reader) = &mut hostile
            && (is_intact(reader) || !matches!(action, HostileAction::Give(_) | HostileAction::Put(_)))
        {
            perform(reader, action);
        }
        if leaves {
            drop(hostile.take());
            ring.tick();
            hostile = Some(RawReader::attach(&mut ring, frames % 2 == 0, 2));
        }
        // Also when it is lossless: the writer waits for it, and continues when it is evicted.
        let written = ring.write(frames);
        ring.tick();
        ring.check();
        for id in drain(&mut proper) {
            assert_eq!(id, seen, "a proper reader gets every frame");
            seen += 1;
        }
        assert_eq!(seen, ring.writer.committed());
        lossy_seen += drain(&mut lossy).len() as u64;
        if written < frames {
            assert!(ring.writer.waits_for()[0].lossless, "only lossless readers block the writer");
            drop(hostile.take());
            ring.tick();
            assert_eq!(ring.write(1), 1, "blocks of a hostile reader are back");
            seen += drain(&mut proper).len() as u64;
            lossy_seen += drain(&mut lossy).len() as u64;
        }
        ring.writer.take_departures().iter().for_each(|gone| assert_balanced(&gone.report.tally));
        let there = ring.writer.readers().into_iter().map(|report| report.reader).collect::<Vec<_>>();
        assert!(there.starts_with(&[0, 1]), "well-behaved readers stay attached: {there:?}");
    }
    drop(hostile);
    ring.writer.finish();
    assert_eq!(proper.fill(1).len(), 0);
    lossy_seen += drain(&mut lossy).len() as u64;
    assert_eq!((proper.ended(), lossy.ended()), (Some(End::InOrder), Some(End::InOrder)));
    assert_eq!(lossy_seen + lossy.skipped().0, seen);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn hostile_reader_affects_no_other(actions in prop::collection::vec((action(), 0u64..900), 1..60)) {
        run_hostile_actions(actions);
    }
}

/// Another thread writes random numbers all the time while the writer works.
#[test]
fn continuous_scribbling_affects_no_other() {
    let mut ring = Ring::new(4);
    let mut proper = ring.lossless();
    let (stop, mut seen) = (AtomicBool::new(false), 0);
    let rounds = 60;
    for round in 0..rounds {
        let hostile = RawReader::attach(&mut ring, false, 2);
        stop.store(false, Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = round as u64 + 1;
                while !stop.load(Relaxed) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let at = (state >> 33) as usize % 72 * 8;
                    // Small numbers are more often valid.
                    let value = if state & 1 == 0 { state >> 8 & 7 } else { state };
                    hostile.control.long(at).store(value, Relaxed);
                }
            });
            for _ in 0..150 {
                ring.write(50);
                ring.tick();
                ring.check();
                for id in drain(&mut proper) {
                    assert_eq!(id, seen);
                    seen += 1;
                }
            }
            stop.store(true, Relaxed);
        });
    }
    ring.tick();
    assert_eq!(seen, ring.writer.committed());
    assert!(ring.writer.take_departures().iter().any(|gone| gone.evict.is_some()), "nothing wrong was noticed");
}

/// Returns a reader attached to a writer of the test, and the writer.
fn attached() -> (Reader, RawWriter) {
    let name = unique();
    let mut writer = RawWriter::new(&name);
    let attaching = AttachOptions::default().begin(&name).unwrap();
    writer.welcome();
    (attaching.finish().unwrap(), writer)
}

/// Memory that its writer truncates after it was mapped is SIGBUS.
#[test]
fn memory_that_may_be_truncated_is_rejected() {
    for of_control in [false, true] {
        let name = unique();
        let mut writer = RawWriter::new(&name);
        let attaching = AttachOptions::default().begin(&name).unwrap();
        let fd = if of_control { &mut writer.control_fd } else { &mut writer.arena_fd };
        let unsealed = memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&unsealed, fstat(&*fd).unwrap().st_size as u64).unwrap();
        *fd = unsealed;
        writer.welcome();
        let refused = attaching.finish().err().unwrap().to_string();
        assert!(refused.contains("may be truncated"), "{refused}");
    }
}

#[test]
fn independent_valid_writer_is_read() {
    let (mut reader, mut writer) = attached();
    let mut expected = Vec::new();
    for round in 0..40u32 {
        let (slot, first) = (round % RAW_SLOTS, u64::from(round) * 100);
        writer.fill(slot, first, 100);
        writer.publish(u64::from(slot) | 7 << 32);
        expected.extend(first + 7..first + 100);
        let mut got = drain_unchecked_wire(&mut reader);
        let rest = expected.split_off(got.len().min(expected.len()));
        assert_eq!(got, expected);
        expected = rest;
        got.clear();
        assert_eq!(writer.control.long(control::RETURNED).load(Relaxed), u64::from(round) + 1);
    }
    assert_eq!(reader.ended(), None);
}

/// Takes all frames of a raw writer.
fn drain_unchecked_wire(reader: &mut Reader) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let got = ids(reader.fill(64));
        if got.is_empty() {
            return all;
        }
        reader.consume(got.len());
        all.extend(got);
    }
}

#[test]
fn impossible_values_end_the_stream() {
    type Break = fn(&mut RawWriter);
    let breaks: [(&str, Break); 7] = [
        ("more blocks were published", |writer| writer.control.long(control::PUBLISHED).store(5, Release)),
        ("unknown block", |writer| writer.publish(4)),
        ("unknown block", |writer| writer.publish(0xffff_ffff)),
        ("published again", |writer| {
            writer.fill(1, 0, 5);
            writer.arena.word(writer.block(1) + 108).store(0, Relaxed);
            writer.publish(1);
            writer.publish(1);
        }),
        ("count of committed", |writer| {
            writer.fill(1, 0, 5);
            writer.publish(1 | 6 << 32);
        }),
        ("count of committed", |writer| {
            writer.arena.word(writer.block(2) + 64).store(raw::RAW_FRAMES + 1, Release);
            writer.publish(2);
        }),
        ("count of committed", |writer| {
            writer.arena.word(writer.block(2) + 64).store(u32::MAX, Release);
            writer.publish(2);
        }),
    ];
    for (words, does) in breaks {
        let (mut reader, mut writer) = attached();
        does(&mut writer);
        assert!(reader.fill(10).is_empty());
        let Some(End::Broken(reason)) = reader.ended() else { panic!("{words}: {:?}", reader.ended()) };
        assert!(reason.contains(words), "{reason}");
        assert!(reader.fill(10).is_empty());
        reader.consume(0);
    }
}

#[test]
fn invalid_descs_are_omitted_and_counted() {
    let (mut reader, mut writer) = attached();
    writer.fill(0, 0, 10);
    let desc = |index: usize| writer.block(0) + 128 + index * 32;
    writer.arena.word(desc(1) + 8).store(0, Relaxed);
    writer.arena.word(desc(3) + 8).store(u32::MAX, Relaxed);
    writer.arena.word(desc(4) + 12).store(u32::MAX, Relaxed);
    writer.arena.word(desc(7) + 20).store(1, Relaxed);
    writer.publish(0);
    assert_eq!(drain(&mut reader), [0, 2, 5, 6, 8, 9]);
    assert_eq!((reader.bad(), reader.ended()), (4, None));
    assert_eq!(writer.control.long(control::RETURNED).load(Relaxed), 1, "the block is returned nevertheless");
}

/// An action of a hostile writer.
#[derive(Clone, Debug)]
enum WriterFault {
    Arena { at: usize, bytes: Vec<u8> },
    Descs { slot: u32, at: usize, bytes: Vec<u8> },
    Control { at: usize, bytes: Vec<u8> },
    Word { at: usize, value: u32 },
    Fill { slot: u32, frames: u32 },
    Publish(u64),
    Heal,
}

fn writer_fault() -> impl Strategy<Value = WriterFault> {
    let bytes = || prop::collection::vec(any::<u8>(), 1..80);
    prop_oneof![
        2 => (0usize..5000, bytes()).prop_map(|(at, bytes)| WriterFault::Arena { at, bytes }),
        2 => (0..RAW_SLOTS, 0usize..400, bytes()).prop_map(|(slot, at, bytes)| WriterFault::Descs { slot, at, bytes }),
        1 => (0usize..560, bytes()).prop_map(|(at, bytes)| WriterFault::Control { at, bytes }),
        2 => (64usize..72, any::<u32>()).prop_map(|(at, value)| WriterFault::Word { at: at * 4, value }),
        4 => (0..RAW_SLOTS, 1u32..60).prop_map(|(slot, frames)| WriterFault::Fill { slot, frames }),
        4 => (0u64..5, 0u64..3).prop_map(|(slot, from)| WriterFault::Publish(slot | from << 32)),
        1 => Just(WriterFault::Heal),
    ]
}

fn survive(actions: Vec<(WriterFault, usize, usize)>) {
    let (mut reader, mut writer) = attached();
    for (action, most, part) in actions {
        match action {
            WriterFault::Arena { at, bytes } => writer.arena.put(at, &bytes),
            WriterFault::Descs { slot, at, bytes } => writer.arena.put(writer.block(slot) + at, &bytes),
            WriterFault::Control { at, bytes } => writer.control.put(at, &bytes),
            WriterFault::Word { at, value } => writer.arena.word(at).store(value, Relaxed),
            WriterFault::Fill { slot, frames } => writer.fill(slot, 0, frames),
            WriterFault::Publish(entry) => writer.publish(entry),
            WriterFault::Heal => writer.put_headers(),
        }
        let burst = reader.fill(most);
        let touched: usize = burst.iter().map(|(_, frame)| frame.iter().filter(|byte| **byte == 1).count()).sum();
        let shown = burst.len();
        assert!(touched < usize::MAX && shown <= most.max(shown));
        let _ = (reader.horizon(), reader.skipped(), reader.lost_upstream(), reader.heartbeat(), reader.is_lossless());
        let _ = (reader.interfaces().len(), reader.bad(), reader.wake());
        reader.consume(shown * part / 3);
    }
    reader.detach();
    for _ in 0..10 {
        let shown = reader.fill(5000).len();
        reader.consume(shown);
    }
    assert!(reader.ended().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn reader_survives_an_erratic_writer(actions in prop::collection::vec((writer_fault(), 0usize..200, 0usize..4), 1..40)) {
        survive(actions);
    }
}

/// Survives another thread that writes random numbers everywhere.
#[test]
fn reader_survives_a_continuously_scribbling_writer() {
    for round in 0..60u64 {
        let (mut reader, mut writer) = attached();
        (0..RAW_SLOTS).for_each(|slot| writer.fill(slot, 0, 300));
        (0..RAW_SLOTS).for_each(|slot| writer.publish(slot.into()));
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut state = round + 1;
                while !stop.load(Relaxed) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let slot = (state >> 60) as u32 % RAW_SLOTS;
                    let at = writer.block(slot) + (state >> 33) as usize % 1200 * 8;
                    writer.arena.long(at).store(state, Relaxed);
                }
            });
            for _ in 0..300 {
                let burst = reader.fill(100);
                let sum: u64 = burst.iter().flat_map(|(_, frame)| frame).map(|byte| u64::from(*byte)).sum();
                let shown = burst.len();
                assert!(sum < u64::MAX);
                reader.consume(shown);
            }
            stop.store(true, Relaxed);
        });
    }
}
