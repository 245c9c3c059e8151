//! An engine in this process, between ports in memory: it replaces, injects and holds frames.

use super::{frame, number, ports};
use linerate_burst::{Block, Count, Desc, Horizon, Ledger, Nanos, Stage};
use linerate_engine::{FailMode, Inline, InlinePolicy, Progress, Receive, RunReport, Sharing, SharingOptions, Stop};
use linerate_port::{RxPort, TxPort};
use linerate_share::{Access, AttachOptions, End, Engine, Inject, Ticket, Verdict, VerdictReply};
use linerate_tests::support::program::spawn;
use linerate_tests::support::{Scratch, judge, wait_until};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

const FRAMES: u32 = 3000;

/// A frame that the engine injects.
fn made(of: u32, mark: u8) -> Vec<u8> {
    [&of.to_be_bytes()[..], &[0xee; 40], &[mark; 30]].concat()
}

/// The result of a run, and the frames received in both directions.
pub(super) struct Through {
    pub run: RunReport,
    pub there: Vec<Vec<u8>>,
    pub back: Vec<Vec<u8>>,
}

/// Sends frames to the first port while an engine decides, until all have arrived and the run has ended.
fn through(policy: InlinePolicy, decide: impl FnOnce(Engine) + Send) -> Through {
    let frames = (0..FRAMES).map(frame).collect();
    frames_through(policy, frames, 64, decide)
}

/// The same with these frames, sent `at_once` at a time.
pub(super) fn frames_through(
    policy: InlinePolicy,
    frames: Vec<Vec<u8>>,
    at_once: usize,
    decide: impl FnOnce(Engine) + Send,
) -> Through {
    through_any(policy, (frames, at_once), "", |name| {
        let engine = AttachOptions { name: name.to_owned(), ..AttachOptions::default() }.engine(name).unwrap();
        move || decide(engine)
    })
}

/// Log lines of all runs.
static NEWS: LazyLock<&Mutex<Vec<String>>> = LazyLock::new(|| {
    let news = linerate_port::events::listen();
    let lines: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    thread::spawn(move || news.iter().for_each(|one| lines.lock().unwrap().push(one)));
    lines
});

/// The same with an engine that `attach` attaches to the named ring. `called` is the engine's name; empty: the ring's.
pub(super) fn through_any<D: FnOnce() + Send>(
    policy: InlinePolicy,
    (frames, at_once): (Vec<Vec<u8>>, usize),
    called: &str,
    attach: impl FnOnce(&str) -> D,
) -> Through {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("answers-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    LazyLock::force(&NEWS);
    let ([(mut into, from), (to, mut far)], [(other_into, other_from), (other_to, mut near)]) = (ports(), ports());
    let options = SharingOptions {
        name: name.clone(),
        ring: linerate_share::Options { slots: 16, slot_bytes: 512 << 10, huge: false, ..Default::default() },
        access: Access { engine: Some(String::new()), ..Access::default() },
        wait_for: 0,
        patience: None,
    };
    let sharing = Sharing::create(options).unwrap();
    let mut inline = Inline::new(["one", "other"], [to, other_to], sharing, policy, Progress::new());
    let stop = Stop::new();
    thread::scope(|scope| {
        let ends = stop.clone();
        let running = scope.spawn(move || {
            let receive = Receive { ports: vec![from, other_from], stop: ends, ..Receive::all(Vec::new()) };
            let run = receive.run(&mut [&mut inline]);
            drop(inline);
            run
        });
        let engine = scope.spawn(attach(&name));
        let is_admitted = format!("engine {} (pid ", if called.is_empty() { &name } else { called });
        scope.spawn(move || {
            // The engine decides once it has been admitted.
            wait_until("an engine decides", || NEWS.lock().unwrap().iter().any(|line| line.starts_with(&is_admitted)));
            send_all(&mut into, &frames, at_once);
            drop((into, other_into));
        });
        let receivers = [scope.spawn(move || receive_all(&mut far)), scope.spawn(move || receive_all(&mut near))];
        let run = running.join().unwrap();
        engine.join().unwrap();
        let [there, back] = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!(run.ledger.imbalances(), [], "{:#?}", run.ledger);
        assert!(run.failure.is_none(), "{:?}", run.failure);
        Through { run, there, back }
    })
}

fn send_all(into: &mut TxPort, frames: &[Vec<u8>], at_once: usize) {
    let mut block = Block::new(1 << 20, at_once);
    for (number, part) in frames.chunks(at_once).enumerate() {
        block.clear();
        for bytes in part {
            assert!(block.push(&Desc::new(Nanos(number as u64), 0, bytes.len() as u32), bytes));
        }
        let mut sent = 0;
        while sent < part.len() {
            sent += into.queues[0].send(block.burst().slice(sent..part.len())).unwrap();
            into.queues[0].flush(Nanos::ZERO).unwrap();
        }
    }
}

fn receive_all(from: &mut RxPort) -> Vec<Vec<u8>> {
    let (mut got, queue) = (Vec::new(), &mut from.queues[0]);
    loop {
        let head = queue.fill(Nanos::ZERO).unwrap();
        let (shown, is_over) = (head.burst.len(), head.horizon == Horizon::Ended);
        got.extend(head.burst.iter().map(|(_, bytes)| bytes.to_vec()));
        queue.consume(shown);
        if shown == 0 && is_over {
            return got;
        }
    }
}

/// Looks until the ring ends; held frames are decided in reverse order some looks later.
fn decide_by(
    mut engine: Engine,
    mut decide: impl FnMut(u32, Ticket, &[u8], &mut linerate_share::Answers<'_>) -> VerdictReply,
) {
    let mut held: Vec<(Ticket, u32)> = Vec::new();
    let mut looks = 0;
    while engine.ended().is_none() {
        let looked = engine.look(|seen, answers| {
            let own = number(seen.bytes);
            let decided = decide(own, seen.ticket, seen.bytes, answers);
            if decided == VerdictReply::Later {
                held.push((seen.ticket, own));
            }
            decided
        });
        looks += 1;
        if !held.is_empty() && (looks % 7 == 0 || looked == 0) {
            // Long enough for the forwarder to see that they are held.
            thread::sleep(Duration::from_millis(3));
            held.drain(..).rev().for_each(|(ticket, _)| engine.decide(ticket, Verdict::Pass));
        }
        if looked == 0 {
            thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(engine.ended(), Some(End::InOrder));
}

pub(super) fn patient() -> InlinePolicy {
    let (hold, budget) = (Duration::from_secs(20), Duration::from_secs(20));
    InlinePolicy { on_death: FailMode::Closed, on_overload: FailMode::Closed, hold, budget, ..InlinePolicy::default() }
}

fn total(ledger: &Ledger, count: Count) -> u64 {
    ledger.total(count)
}

#[test]
fn engine_replaces_and_injects_frames() {
    let got = through(patient(), |engine| {
        decide_by(engine, |own, ticket, bytes, answers| {
            if own % 50 == 7 {
                let mut other = bytes.to_vec();
                other[20..24].copy_from_slice(b"made");
                answers.replace(ticket, &other).unwrap();
                return VerdictReply::Now(Verdict::Replace);
            }
            if own % 50 == 9 {
                answers.inject(ticket, Inject { back: true, behind: false }, &made(own, 1)).unwrap();
                answers.inject(ticket, Inject { back: false, behind: true }, &made(own, 2)).unwrap();
                answers.inject(ticket, Inject::default(), &made(own, 3)).unwrap();
                return VerdictReply::Now(if own % 100 == 9 { Verdict::Block } else { Verdict::Pass });
            }
            if own % 31 == 3 { VerdictReply::Later } else { VerdictReply::Now(Verdict::Pass) }
        });
    });
    let mut expected = Vec::new();
    for own in 0..FRAMES {
        let mut bytes = frame(own);
        match (own % 50, own % 100) {
            (7, _) => bytes[20..24].copy_from_slice(b"made"),
            (9, at) => {
                let with = (at != 9).then_some(bytes);
                expected.extend([made(own, 3)].into_iter().chain(with).chain([made(own, 2)]));
                continue;
            }
            _ => {}
        }
        expected.push(bytes);
    }
    let mut back: Vec<_> = (0..FRAMES).filter(|own| own % 50 == 9).map(|own| made(own, 1)).collect();
    // Order is kept per flow, here by the bytes at the place of addresses; each frame arrives exactly once.
    for bytes in &expected {
        assert_eq!(got.there.iter().filter(|other| *other == bytes).count(), 1, "frame {}", number(bytes));
    }
    assert_eq!(got.there.len(), expected.len());
    for (at, bytes) in got.there.iter().enumerate().filter(|(_, bytes)| bytes[4..44] == [0xee; 40] && bytes[50] == 3) {
        let own = number(bytes);
        let behind = if own % 100 == 9 { &got.there[at + 1] } else { &got.there[at + 2] };
        assert_eq!(*behind, made(own, 2), "frame {own}");
    }
    let mut got_back = got.back;
    got_back.sort();
    back.sort();
    assert_eq!(got_back, back);
    let ledger = &got.run.ledger;
    assert_eq!((total(ledger, Count::InlineReplaced), total(ledger, Count::ForwardInjected)), (60, 180));
    assert_eq!((total(ledger, Count::InlineBlocked), total(ledger, Count::InlineUnused)), (30, 0));
    assert!(ledger.lost() == 0, "{ledger:#?}");
    // On a busy machine the forwarder misses some of the held frames.
    let held = total(ledger, Count::InlineHeld);
    judge(held > 50, &format!("{held} of {} frames were seen to be held", FRAMES / 31));
    assert_eq!(ledger.sum(Stage::Verdict, linerate_burst::Kind::Received), u64::from(FRAMES));
}

/// Injected frames above the limit are dropped and counted; their slots for answers are reused.
#[test]
fn injected_frames_are_rate_limited() {
    for inject_limit in [0, 1] {
        let policy = InlinePolicy { inject_limit, ..patient() };
        let got = through(policy, |engine| {
            decide_by(engine, |own, ticket, _, answers| {
                let back = own % 2 == 0;
                wait_until("room for an answer", || {
                    answers.inject(ticket, Inject { back, behind: false }, &made(own, 1)).is_ok()
                });
                VerdictReply::Now(Verdict::Pass)
            });
        });
        let ledger = &got.run.ledger;
        let (made, beyond) = (total(ledger, Count::ForwardInjected), total(ledger, Count::ForwardInjectLimit));
        let went = got.there.len() + got.back.len() - FRAMES as usize;
        assert_eq!((made, beyond), (FRAMES.into(), u64::from(FRAMES) - went as u64), "{ledger:#?}");
        assert_eq!((ledger.lost(), total(ledger, Count::InlineUnused)), (beyond, 0), "{ledger:#?}");
        // A full token bucket, and the tokens added during the run.
        let most = (got.run.elapsed.as_secs() + 2) * u64::from(inject_limit);
        assert!((u64::from(inject_limit)..=most).contains(&(went as u64)), "{went} in {:?}", got.run.elapsed);
    }
}

/// A replacement of another length, a missing one, and one that is too long.
#[test]
fn invalid_answers_evict_the_engine() {
    for case in 0..3 {
        let policy = InlinePolicy { on_death: FailMode::Open, ..patient() };
        let got = through(policy, |mut engine| {
            while engine.ended().is_none() {
                engine.look(|seen, answers| {
                    if number(seen.bytes) != 100 {
                        return VerdictReply::Now(Verdict::Pass);
                    }
                    match case {
                        0 => answers.replace(seen.ticket, &seen.bytes[1..]).unwrap(),
                        1 => {}
                        _ => assert!(answers.replace(seen.ticket, &[0; 20_000]).is_err(), "too long"),
                    }
                    VerdictReply::Now(Verdict::Replace)
                });
                thread::sleep(Duration::from_micros(50));
            }
            assert_eq!(engine.ended(), Some(End::Evicted));
        });
        assert_eq!(got.there.len(), FRAMES as usize, "all pass, since on_death is open");
        assert!(got.run.events.iter().any(|event| event.contains("replace")), "{:?}", got.run.events);
        assert!(total(&got.run.ledger, Count::InlineNoEngine) > 0);
    }
}

/// A burst may end exactly with the last frame of a block: 4,852 frames of 60 bytes fill one of 512 KiB.
#[test]
fn full_block_is_followed_by_the_next() {
    let frames: Vec<Vec<u8>> = (0..20_000u32).map(|own| frame(own)[..60].to_vec()).collect();
    let got = frames_through(patient(), frames.clone(), 4, |engine| {
        decide_by(engine, |_, _, _, _| VerdictReply::Now(Verdict::Pass));
    });
    assert_eq!(got.there.len(), frames.len());
    assert!(got.there == frames, "frames are not in order");
}

/// The example in C replaces a byte of every frame.
#[test]
fn c_engine_replaces_a_byte_of_each_frame() {
    let Some((scratch, program)) = compiled("examples/c/ring_replace.c") else { return };
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(frame).collect();
    let got = through_any(patient(), (frames.clone(), 64), "ring_replace", by_program(&program, &["30", "0x2a"]));
    drop(scratch);
    let expected: Vec<Vec<u8>> = frames
        .into_iter()
        .map(|mut bytes| {
            bytes[30] = 0x2a;
            bytes
        })
        .collect();
    assert!(got.there == expected, "{} of {} frames arrived", got.there.len(), expected.len());
    assert_eq!(total(&got.run.ledger, Count::InlineReplaced), u64::from(FRAMES));
    assert_eq!((total(&got.run.ledger, Count::InlineUnused), got.run.ledger.lost()), (0, 0));
}

/// An engine in C injects frames before and after frames, and back, for passed, blocked and held frames.
#[test]
fn c_engine_injects_frames() {
    let Some((scratch, program)) = compiled("tests/inline/makes.c") else { return };
    let frames: Vec<Vec<u8>> = (0..1000).map(frame).collect();
    let got = through_any(patient(), (frames, 64), "", by_program(&program, &[]));
    drop(scratch);
    let made = |of: u32, mark: u8| {
        let mut bytes = frame(of)[..40].to_vec();
        bytes[10] = mark;
        bytes
    };
    let with = |own: u32| own % 10 == 3;
    let mut expected: Vec<Vec<u8>> = Vec::new();
    for own in 0..1000 {
        let all = [made(own, b'a'), frame(own), made(own, b'b')];
        let parts = if !with(own) { 1..2 } else { 0..3 };
        expected.extend(all[parts].iter().filter(|bytes| own % 20 != 3 || bytes.len() == 40).cloned());
    }
    // Flows are identified by the bytes at the place of addresses; other flows may overtake.
    let sorted = |mut frames: Vec<Vec<u8>>| {
        frames.sort();
        frames
    };
    for (at, bytes) in got.there.iter().enumerate().filter(|(_, bytes)| bytes.len() == 40 && bytes[10] == b'b') {
        let before = if number(bytes) % 20 == 3 { 1 } else { 2 };
        assert_eq!(got.there[at - before], made(number(bytes), b'a'), "frame {}", number(bytes));
    }
    assert_eq!(sorted(got.there), sorted(expected));
    assert_eq!(sorted(got.back), sorted((0..1000).filter(|own| with(*own)).map(|own| made(own, b'c')).collect()));
    assert_eq!(total(&got.run.ledger, Count::ForwardInjected), 300);
}

/// Compiles a source with the reader in C; `None` without a compiler.
fn compiled(source: &str) -> Option<(Scratch, String)> {
    if !linerate_tests::support::has_tools(&["cc"]) {
        return None;
    }
    let scratch = Scratch::new();
    let program = scratch.file("engine");
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-I", "c", "-o", &program];
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let output =
        Command::new("cc").args(flags).args([source, "c/linerate_ring.c"]).current_dir(root).output().expect("cc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some((scratch, program))
}

/// Runs a program as the engine, with the name of the ring as its first argument.
fn by_program(program: &str, arguments: &[&str]) -> impl FnOnce(&str) -> Box<dyn FnOnce() + Send> {
    move |name| {
        let mut command = Command::new(program);
        let engine = spawn(command.arg(name).args(arguments).stdout(Stdio::null()));
        Box::new(move || drop(engine.end().good()))
    }
}
