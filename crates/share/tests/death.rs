//! Processes killed at any moment: readers by the thousand, and the writer. `LINERATE_KILLS` is the number of readers.

use crate::raw::{self, RawReader};
use crate::support::{self, Ring, assert_balanced, desc, drain, frame, ids, options, unique};
use linerate_burst::{CommitState, Nanos};
use linerate_share::{Access, AttachOptions, End, Reader, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A process that is killed when dropped.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Runs a test of this file in a process of its own.
fn child(test: &str, ring: &str) -> Victim {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", &format!("death::{test}"), "--ignored", "--nocapture", "--test-threads=1"])
        .env("LINERATE_RING", ring);
    let child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Victim(child.spawn().unwrap())
}

/// Waits for more frames like a sleeping reader; returns false if none arrived.
fn sleep(reader: &Reader, limit: Duration) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(reader.wake(), PollFlags::IN)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    poll(&mut polled, Some(&limit)).unwrap() > 0
}

#[test]
#[ignore = "a reader to be killed, run by the campaign"]
fn reader_to_be_killed() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let seed = std::process::id();
    for round in seed.. {
        let attach =
            AttachOptions { lossless: round % 3 == 0, quota: 2, name: "victim".into(), ..AttachOptions::default() };
        let Ok(mut reader) = attach.to(&name) else { return };
        for step in round.. {
            let shown = ids(reader.fill(1 + step as usize % 300)).len();
            reader.consume(shown - shown * (step as usize % 3) / 4);
            if shown == 0 {
                sleep(&reader, Duration::from_millis(5));
            }
            if reader.ended().is_some() || step % 400 == 399 {
                break;
            }
        }
    }
}

/// A generator of small random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[test]
fn readers_killed_at_any_moment_affect_no_other() {
    let kills: u64 = std::env::var("LINERATE_KILLS").map_or(500, |kills| kills.parse().unwrap());
    let mut ring = Ring::new(8);
    let (mut lossless, mut lossy) = (ring.lossless(), ring.lossy(0));
    let (mut seen, mut lossy_seen, mut dice) = (0, 0, Dice(kills));
    let mut victims: Vec<(Victim, Instant)> = Vec::new();
    let (mut killed, mut attached, mut finished, mut outstanding) = (0, 0, 0, 0);
    while killed < kills {
        while victims.len() < 4 {
            let life = Duration::from_micros(500 + dice.below(12) * dice.below(1500));
            // If few reach the acceptor they live longer: a process may start slowly.
            let patience = (1 + killed / (5 * attached + 10)).pow(3).min(100) as u32;
            victims.push((child("reader_to_be_killed", &ring.name), Instant::now() + life * patience));
        }
        let alive = victims.len();
        victims.retain(|(_, until)| Instant::now() < *until);
        killed += (alive - victims.len()) as u64;
        ring.let_in();
        ring.write(dice.below(200));
        ring.tick();
        ring.check();
        for id in drain(&mut lossless) {
            assert_eq!(id, seen, "a reader that lives gets every frame");
            seen += 1;
        }
        lossy_seen += drain(&mut lossy).len() as u64;
        for gone in ring.writer.take_departures() {
            let tally = gone.report.tally;
            assert_balanced(&tally);
            assert_eq!((gone.evict, tally.held, gone.report.who.name.as_str()), (None, 0, "victim"));
            attached += 1;
            finished += u64::from(tally.finished > 0);
            outstanding += u64::from(tally.reclaimed > 0);
        }
    }
    drop(victims);
    // Readers killed at the acceptor go too.
    (0..3).for_each(|_| ring.let_in());
    ring.wait_for(2);
    assert_eq!(ring.write(2000), 2000, "blocks of dead readers are not back");
    seen += drain(&mut lossless).len() as u64;
    assert_eq!(seen, ring.writer.committed());
    ring.writer.finish();
    lossy_seen += drain(&mut lossy).len() as u64;
    assert_eq!((lossy_seen + lossy.skipped().0, lossy.ended()), (seen, Some(End::InOrder)));
    println!("{kills} readers killed: {attached} attached, {finished} had finished a block, {outstanding} held frames");
    assert!(
        kills < 100 || (attached > kills / 10 && finished > 0 && outstanding > 0),
        "{attached} {finished} {outstanding}"
    );
}

/// Stops a reader between any two stores: to the writer, a killed reader is one that stops.
#[test]
fn a_reader_may_stop_between_any_two_stores() {
    for steps in 0..40 {
        for open_block_too in [false, true] {
            let mut ring = Ring::new(4);
            let mut other = ring.lossless();
            let mut reader = RawReader::attach(&mut ring, true, 0);
            for _ in 0..3 {
                ring.write(5);
                ring.writer.close_block();
            }
            ring.write(if open_block_too { 5 } else { 0 });
            let mut left = steps;
            let mut step = |store: &mut dyn FnMut()| {
                if left > 0 {
                    left -= 1;
                    store();
                }
            };
            for _ in 0..3 {
                step(&mut || reader.control.word(raw::control::SLEEPING).store(1, Ordering::Release));
                step(&mut || reader.control.word(raw::control::SLEEPING).store(0, Ordering::Release));
                let Some((slot, _)) = reader.take() else { panic!("a block is missing") };
                step(&mut || reader.put(slot.into()));
                step(&mut || reader.give(slot.into()));
                ring.tick();
                ring.check();
            }
            drop(reader);
            ring.wait_for(1);
            let gone = ring.writer.take_departures();
            assert_eq!(gone[0].evict, None);
            assert_balanced(&gone[0].report.tally);
            assert_eq!(drain(&mut other).len() as u64, ring.writer.committed());
            drop(other);
            ring.wait_for(0);
            assert_eq!(ring.write(20_000), 20_000, "blocks were not returned");
            ring.check();
        }
    }
}

#[test]
#[ignore = "a writer to be killed, run by another test"]
fn writer_to_be_killed() {
    let Ok(name) = std::env::var("LINERATE_RING") else { return };
    let began = Instant::now();
    let now = || Nanos(began.elapsed().as_nanos() as u64);
    let (mut writer, mut acceptor) =
        Writer::create(&name, Access { lossless: true, ..Access::default() }, &options(8), now()).unwrap();
    let interface = linerate_burst::Interface::new("x", linerate_burst::LinkType(1), linerate_burst::StampSource::User);
    writer.set_interfaces(&[interface]).unwrap();
    for id in 0.. {
        loop {
            acceptor.step(now()).into_iter().for_each(|client| writer.admit(client));
            writer.tick(now());
            let pushed = writer.block().map(|block| block.push(&desc(id), &frame(id)));
            match pushed {
                Some(true) => break,
                Some(false) => {
                    writer.commit(&CommitState::default());
                    writer.close_block();
                }
                None => {}
            }
        }
        if id % 3 == 0 {
            writer.commit(&CommitState { horizon: support::time(id), ..CommitState::default() });
        }
        if id % 700 == 0 {
            writer.commit(&CommitState::default());
            writer.close_block();
        }
    }
}

#[test]
fn a_writer_killed_at_any_moment_leaves_its_committed_frames_and_can_restart() {
    let name = unique();
    let mut dice = Dice(7);
    let mut shown = 0;
    for round in 0..40 {
        let mut writer = Some(child("writer_to_be_killed", &name));
        let lossless = AttachOptions { lossless: true, ..AttachOptions::default() };
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut reader = loop {
            match lossless.to(&name) {
                Ok(reader) => break reader,
                Err(error) => assert!(Instant::now() < deadline, "round {round}: {error}"),
            }
            thread::sleep(Duration::from_millis(1));
        };
        let until = Instant::now() + Duration::from_micros(dice.below(15_000));
        let mut next = None;
        while reader.ended().is_none() {
            if Instant::now() >= until {
                drop(writer.take());
            }
            let got = ids(reader.fill(500));
            for id in &got {
                assert!(next.is_none_or(|next| next == *id), "frame {id} instead of {next:?}");
                next = Some(id + 1);
            }
            if got.is_empty() {
                sleep(&reader, Duration::from_millis(20));
            }
            shown += got.len();
            reader.consume(got.len());
            assert!(Instant::now() < deadline, "round {round}: a reader of a dead writer does not end");
        }
        assert_eq!((reader.ended(), reader.bad(), writer.is_none()), (Some(End::Died), 0, true));
    }
    assert!(shown > 10_000, "{shown} frames");
}

/// A reader that sleeps as soon as it can, a writer that waits for it as soon as it can: a lost wake-up would stop
/// both. Nor is a frame ever older than the horizon before it.
#[test]
fn no_wake_up_is_lost() {
    const FRAMES: u64 = 40_000;
    let mut ring = Ring::new(4);
    let mut reader = ring.lossless();
    let (seen, mut dice) = (AtomicU64::new(0), Dice(3));
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut promised = Nanos::ZERO;
            while seen.load(Ordering::Relaxed) < FRAMES {
                let burst = reader.fill(10);
                let got = burst.len();
                assert!(burst.descs().iter().all(|desc| desc.time >= promised), "older than the horizon promised");
                promised = reader.horizon();
                // Consumed at once, so that the next burst is new.
                reader.consume(got);
                seen.fetch_add(got as u64, Ordering::Release);
                assert!(got > 0 || sleep(&reader, Duration::from_secs(5)), "a reader sleeps and is not woken");
            }
        });
        let deadline = Instant::now() + Duration::from_secs(100);
        while ring.writer.committed() < FRAMES {
            // Any delay from none to falling asleep.
            (0..dice.below(3) * dice.below(400)).for_each(|_| std::hint::spin_loop());
            let left = FRAMES - ring.writer.committed();
            ring.write((1 + dice.below(3)).min(left));
            if dice.below(50) == 0 {
                ring.writer.close_block();
            }
            while seen.load(Ordering::Acquire) < ring.writer.committed() {
                assert!(Instant::now() < deadline);
                thread::yield_now();
            }
        }
    });
}
