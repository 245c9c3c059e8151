//! An engine: its effects on the writer, and its limits.

use crate::raw;
use crate::support::{self, Ring, frame, ids, unique};
use linerate_share::{Access, AttachOptions, Engine, EngineState, SETTLED, UNDECIDED, Verdict, VerdictReply};
use std::time::Duration;

fn ring(name: &str, slots: u32) -> Ring {
    let access = Access { engine: Some(name.to_owned()), ..Access::default() };
    let mut ring = Ring::with(&unique(), access, slots).unwrap();
    ring.writer.hold_blocks();
    ring
}

/// Attaches while another thread runs the acceptor.
fn attach(ring: &mut Ring, name: &str) -> Result<Engine, String> {
    let attach = AttachOptions { name: name.to_owned(), patience: Duration::from_secs(5), ..AttachOptions::default() };
    std::thread::scope(|scope| {
        let to = ring.name.clone();
        let engine = scope.spawn(move || attach.engine(&to));
        while !engine.is_finished() {
            ring.let_in();
            // Bounds the wait for another engine to go.
            ring.now = linerate_burst::Nanos(ring.now.0 + 1_000_000);
            std::thread::sleep(Duration::from_micros(200));
        }
        engine.join().unwrap().map_err(|error| error.to_string())
    })
}

#[test]
fn verdicts_are_seen_and_blocks_stay_until_they_are_released() {
    let mut ring = ring("", 8);
    let mut engine = attach(&mut ring, "any").unwrap();
    assert_eq!(ring.writer.deciding(), EngineState::Attached);
    ring.write(10);
    let slot = ring.writer.current_slot().unwrap();
    assert_eq!(ring.writer.engine_from(slot), Some(0));
    ring.writer.settle(slot, 3);
    let mut held = None;
    let mut seen = Vec::new();
    let looked = engine.look(|one, _| {
        let id = u64::from_le_bytes(one.bytes[..8].try_into().unwrap());
        assert_eq!((one.bytes, one.interface.name.as_str()), (&frame(id)[..], "eth0"));
        seen.push(id);
        match id {
            5 => {
                held = Some(one.ticket);
                VerdictReply::Later
            }
            id => VerdictReply::Now(Verdict::ALL[id as usize % 6]),
        }
    });
    assert_eq!((looked, engine.settled(), seen), (10, 1, vec![0, 1, 2, 4, 5, 6, 7, 8, 9]));
    let bytes = |ring: &Ring| (0..11).map(|frame| ring.writer.verdict(slot, frame)).collect::<Vec<_>>();
    assert_eq!(ring.writer.verdicts(slot), (10, 0));
    assert_eq!(bytes(&ring), [0, 1, 2, SETTLED, 4, UNDECIDED, 0, 1, 2, 3, UNDECIDED]);
    // The block is closed and fully examined: it stays with the engine for the held frame.
    ring.writer.close_block();
    engine.look(|_, _| unreachable!());
    ring.tick();
    assert_eq!(ring.writer.engine_from(slot), Some(0));
    engine.decide(held.unwrap(), Verdict::Block);
    assert_eq!((ring.writer.verdicts(slot), ring.writer.verdict(slot, 5)), ((10, 1), 1));
    ring.tick();
    assert_eq!(ring.writer.engine_from(slot), None);
    // The writer holds it until it releases it.
    assert_eq!(ids(ring.writer.filled(slot).burst()).len(), 10);
    let mut opened = Vec::new();
    while ring.write(1) > 0 {
        opened.push(ring.writer.current_slot().unwrap());
        ring.writer.close_block();
        engine.look(|_, _| VerdictReply::Now(Verdict::Pass));
        ring.tick();
    }
    assert!(opened.len() == 7 && !opened.contains(&slot), "{opened:?} and {slot}");
    ring.writer.release(slot);
    ring.write(1);
    assert_eq!(ring.writer.current_slot(), Some(slot));
    assert_eq!(
        (ring.writer.verdicts(slot), ring.writer.verdict(slot, 0)),
        ((0, 0), UNDECIDED),
        "the verdicts are reset"
    );
    ring.check();
}

/// A block that is being filled is not returned, whatever was decided about its frames.
#[test]
fn frames_without_verdict_are_reclaimed() {
    let mut ring = ring("", 8);
    let mut engine = attach(&mut ring, "any").unwrap();
    ring.write(10);
    engine.look(|one, _| match one.bytes[0] {
        5 => VerdictReply::Later,
        _ => VerdictReply::Now(Verdict::Block),
    });
    ring.write(3);
    let present = ring.writer.readers().remove(0).tally;
    assert_eq!((present.committed, present.finished, present.outstanding), (13, 9, 4));
    ring.check();
    drop(engine);
    ring.wait_for(0);
    let left = ring.writer.take_departures().remove(0).report.tally;
    assert_eq!((left.committed, left.finished, left.reclaimed, left.outstanding), (13, 9, 4, 0));
}

/// An engine may hold three eighths, whatever others hold; it never blocks the writer.
#[test]
fn stopped_engine_is_skipped_and_keeps_its_share() {
    let mut ring = ring("", 16);
    let mut passive = [ring.lossy(16), ring.lossy(16)];
    let engine = attach(&mut ring, "").unwrap();
    for _ in 0..40 {
        assert_eq!(ring.write(1), 1, "the writer is blocked");
        let slot = ring.writer.current_slot().unwrap();
        ring.writer.close_block();
        ring.writer.release(slot);
        ring.tick();
    }
    let held: Vec<u32> = ring.writer.readers().iter().map(|report| report.tally.held).collect();
    assert_eq!(held.iter().max(), Some(&8), "{held:?}");
    assert_eq!(held.iter().filter(|held| **held == 5).count(), 1, "{held:?}");
    assert_eq!(engine.skipped(), 35);
    passive.iter_mut().for_each(|reader| assert_eq!(support::drain(reader).len(), 8));
    ring.check();
}

#[test]
fn one_engine_at_a_time_is_attached() {
    let mut ring = ring("ids", 8);
    for (name, part) in [("other", "called ids, not \"other\""), ("", "called ids")] {
        let refused = attach(&mut ring, name).err().unwrap();
        assert!(refused.contains(part), "{refused}");
    }
    let mut first = attach(&mut ring, "ids").unwrap();
    let refused = attach(&mut ring, "ids").err().unwrap();
    assert!(refused.contains("another engine is already attached"), "{refused}");
    ring.write(3);
    let slot = ring.writer.current_slot().unwrap();
    first.look(|_, _| VerdictReply::Now(Verdict::Block));
    drop(first);
    ring.wait_for(0);
    // Its verdicts are still there.
    assert_eq!((ring.writer.deciding(), ring.writer.verdicts(slot)), (EngineState::Gone, (3, 0)));
    assert_eq!(ring.writer.verdict(slot, 2), 1);
    let mut second = attach(&mut ring, "ids").unwrap();
    assert_eq!(ring.writer.deciding(), EngineState::Gone, "engines are handled one at a time");
    ring.writer.remove_engine();
    assert_eq!(ring.writer.deciding(), EngineState::Attached);
    ring.write(2);
    assert_eq!((ring.writer.engine_from(slot), second.look(|_, _| VerdictReply::Now(Verdict::Pass))), (Some(3), 2));
    assert_eq!(ring.writer.verdicts(slot), (5, 0));
    ring.writer.refuse_engine("a test");
    assert_eq!((second.look(|_, _| VerdictReply::Now(Verdict::Pass)), second.ended().is_some()), (0, true));
    let gone = ring.writer.take_departures();
    assert_eq!(gone.last().unwrap().evict.as_deref(), Some("it broke the protocol: a test"));
}

#[test]
fn a_ring_without_verdicts_rejects_engines() {
    let mut ring = Ring::new(8);
    let refused = attach(&mut ring, "ids").err().unwrap();
    assert!(refused.contains("no verdicts are wanted here"), "{refused}");
}

/// A reader of version 1.0, written from the format's numbers, next to an engine.
#[test]
fn reader_of_the_previous_version_reads_a_ring_with_verdicts() {
    let mut ring = ring("", 8);
    let mut old = raw::RawReader::attach(&mut ring, false, 0);
    let mut engine = attach(&mut ring, "").unwrap();
    ring.write(50);
    assert_eq!(engine.look(|_, _| VerdictReply::Now(Verdict::Block)), 50);
    let (slot, from) = old.take().expect("a block");
    assert_eq!((from, old.progress(slot)), (0, (false, 50)));
    assert!((0..50).all(|index| old.frame(slot, index) == frame(index.into())));
    assert_eq!(old.control.bytes, 4096, "its control memory is that of version 1.0");
    assert!((36..56).all(|at| old.control.byte(at).load(std::sync::atomic::Ordering::Relaxed) == 0));
    ring.writer.close_block();
    old.give(slot.into());
    ring.tick();
    assert_eq!(ring.writer.readers().len(), 2, "it did nothing wrong");
}
