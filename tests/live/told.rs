//! Streams that are told something while they run, over a veth: how soon it is in force, and that nobody else notices. What is counted is
//! exact on any machine; how long things take only a quiet one judges.

use crate::live::stage::{Stage, stream};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Count, Ledger};
use linerate_engine::streams::{Control, Run};
use linerate_engine::{Streams, StreamsReport, clock};
use linerate_generate::stream::{Order, Stream, StreamSet};
use linerate_generate::trailer::{Key, Trailer};
use linerate_generate::{Action, Rate, Which};
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_tests::support::{judge, wait_until};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What is told is in force so soon.
const IN_FORCE: u64 = 5_000_000;
/// Whoever stops a stream has the answer so soon.
const ANSWERED: Duration = Duration::from_millis(20);

/// A frame that came: its stream, its number, and when it was handed over.
type Frame = (u32, u64, u64);

/// So many streams with so many frames a second each.
fn set(streams: u32, rate: f64) -> StreamSet {
    let one = |id| Stream { name: format!("s{id}"), id, rate: Rate::Frames(rate), count: None, ..stream(&[60], 0) };
    StreamSet { streams: (0..streams).map(one).collect(), order: Order::Interleaved, rate: None, key: Key::default() }
}

/// Sends for so long while `tell` tells streams something, and says what came.
fn told(
    stage: &Stage,
    set: &StreamSet,
    millis: u64,
    tell: impl FnOnce(&Control, &Run) + Send,
) -> (Vec<Frame>, StreamsReport) {
    told_by("packet", stage, set, millis, tell)
}

/// The same, through a port of this backend.
fn told_by(
    scheme: &str,
    stage: &Stage,
    set: &StreamSet,
    millis: u64,
    tell: impl FnOnce(&Control, &Run) + Send,
) -> (Vec<Frame>, StreamsReport) {
    let spec = |scheme: &str, host: &str, options: &str| {
        Spec::parse(&format!("{scheme}:eth0?netns={}{options}", stage.namespace(host))).unwrap()
    };
    let mut port = open_rx(&spec("packet", "b", "&lanes=1&ring=64MiB&block=256KiB"), &RxOptions::default()).unwrap();
    let queue = &mut port.queues[0];
    let control = Control::new(set);
    let to = open_tx(&spec(scheme, "a", ""), &TxOptions::default()).unwrap();
    let streams = Streams::controlled(set, to, &control).unwrap();
    assert_eq!(streams.is_live(), scheme == "xdp-live", "{:?}", streams.note());
    let run = Run { duration: Some(Duration::from_millis(millis)), ..Run::default() };
    let mut got = Vec::new();
    let report = std::thread::scope(|scope| {
        let sender = scope.spawn(|| streams.run(&run));
        let teller = scope.spawn(|| tell(&control, &run));
        let mut quiet = Instant::now();
        while !sender.is_finished() || quiet.elapsed() < Duration::from_millis(60) {
            let burst = queue.fill(clock::now()).unwrap().burst;
            for (desc, bytes) in burst.iter() {
                let trailer = bytes.last_chunk().and_then(|bytes| Trailer::read(bytes, &set.key));
                let time = |trailer: &Trailer| desc.time.0.wrapping_add_signed(-trailer.latency(desc.time));
                got.extend(trailer.map(|trailer| (trailer.stream, trailer.sequence, time(&trailer))));
            }
            let frames = burst.len();
            queue.consume(frames);
            if frames > 0 {
                quiet = Instant::now();
            }
        }
        teller.join().unwrap();
        sender.join().unwrap()
    });
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!((report.failure.is_none(), ledger.total(Count::RingFull)), (true, 0), "{:?}", report.failure);
    assert_eq!((report.ledger.imbalances(), report.ledger.lost()), (vec![], 0));
    (got, report)
}

/// Each stream's numbers are in a row from 0 on, as many as it has sent: none left out, none twice.
fn assert_exact(got: &[Frame], report: &StreamsReport) {
    let mut next = vec![0; report.per_stream.len()];
    for (stream, number, _) in got {
        assert_eq!(*number, next[*stream as usize], "of stream {stream}");
        next[*stream as usize] += 1;
    }
    assert_eq!(next, report.per_stream, "all that was sent came");
}

/// What is told at a time is done at that time: so many frames, to one, as the rates have them by then.
#[test]
fn as_many_frames_come_as_rates_that_change_have_them() {
    let Some(stage) = Stage::up() else { return };
    for scheme in ["packet", "xdp-live"] {
        let set = set(1, 10_000.0);
        let (got, report) = told_by(scheme, &stage, &set, 350, |control, _| {
            for (millis, rate) in [(100, 100_000.0), (200, 1000.0)] {
                let rate = Action::Rate(Rate::Frames(rate));
                control.tell_at(Duration::from_millis(millis), &Which::All, rate).unwrap();
            }
            control.tell_at(Duration::from_millis(300), &Which::All, Action::Stop).unwrap();
        });
        assert_exact(&got, &report);
        let frames = report.sent.frames as i64;
        assert!((frames - (1000 + 10_000 + 100)).abs() <= 1, "{scheme}: {frames}");
    }
}

/// By a program of the kernel: all of them pause, go on, stop and begin anew; of one alone nothing is touched.
#[test]
fn streams_that_the_kernel_makes_do_what_they_are_told() {
    let Some(stage) = Stage::up() else { return };
    let set = set(3, 20_000.0);
    let (got, report) = told_by("xdp-live", &stage, &set, 60_000, |control, run| {
        let wait = |told| assert!(control.wait(told, Duration::from_secs(20)), "it is done");
        let sent = || control.states(&run.watch).iter().map(|stream| stream.sent).collect::<Vec<_>>();
        let goes_on = |before: Vec<u64>| {
            wait_until("all of them go on", || sent().iter().zip(&before).all(|(now, before)| now > &(before + 50)));
        };
        goes_on(vec![0; 3]);
        let refused = control.tell("s1", Action::Pause).unwrap_err().to_string();
        assert!(refused.contains("name all of them, or"), "{refused}");
        for (hold, go_on) in [(Action::Pause, Action::Resume), (Action::Stop, Action::Start(Arc::from([])))] {
            wait(control.tell("*", hold).unwrap());
            let held = sent();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(sent(), held, "their counts were final");
            wait(control.tell("*", go_on).unwrap());
            goes_on(held);
            wait(control.tell("*", Action::Scale(2.0)).unwrap());
        }
        wait(control.tell("*", Action::Rate(Rate::Top)).unwrap());
        goes_on(sent());
        wait(control.tell("*", Action::Rate(Rate::Frames(5000.0))).unwrap());
        goes_on(sent());
        assert!(control.states(&run.watch).iter().all(|stream| stream.rate == Rate::Frames(5000.0)));
        run.stop.request();
    });
    let (mut next, mut begun) = ([0; 6], 0);
    for (stream, number, _) in &got {
        assert_eq!(*number, next[*stream as usize], "of number {stream}");
        begun = begun.max(*stream);
        next[*stream as usize] += 1;
    }
    assert_eq!(begun, 5, "all began anew, each under another number");
    let by_stream: Vec<u64> = (0..3).map(|stream| next[stream] + next[stream + 3]).collect();
    assert_eq!(by_stream, report.per_stream, "all that was sent came");
}

#[test]
fn a_rate_is_in_force_within_five_milliseconds() {
    let Some(stage) = Stage::up() else { return };
    let (set, asked) = (set(1, 10_000.0), Mutex::new(Vec::new()));
    let (got, report) = told(&stage, &set, 450, |control, _| {
        for rate in [100_000.0, 1000.0] {
            std::thread::sleep(Duration::from_millis(150));
            asked.lock().unwrap().push(clock::now().0);
            control.tell("*", Action::Rate(Rate::Frames(rate))).unwrap();
        }
    });
    assert_exact(&got, &report);
    let asked = asked.into_inner().unwrap();
    let times: Vec<u64> = got.iter().map(|(.., time)| *time).collect();
    // Ten frames of the new rate follow one another; the last frame of the old one comes before a gap of the new one.
    let of_fast = times.windows(11).find(|ten| ten[0] >= asked[0] && ten[10] - ten[0] < 10 * 20_000);
    let of_slow =
        times.windows(3).find(|two| two[0] >= asked[1] && two[1] - two[0] > 500_000 && two[2] - two[1] > 500_000);
    let spans = [of_fast.map(|ten| ten[0] - asked[0]), of_slow.map(|two| two[0] - asked[1])];
    let is_soon = spans.iter().all(|span| span.is_some_and(|span| span <= IN_FORCE));
    println!("in force after {spans:?} ns");
    judge(is_soon, &format!("a rate is in force after {spans:?} ns"));
}

/// How far off the gaps within streams are from the gap that they should have, of 99 in 100, in nanoseconds; one of them left out.
fn off(got: &[Frame], streams: usize, gap: u64, but: u32) -> u64 {
    let (mut last, mut off) = (vec![None; streams], Vec::new());
    for (stream, _, time) in got.iter().filter(|(stream, ..)| *stream != but) {
        if let Some(last) = last[*stream as usize].replace(*time) {
            off.push((time - last).abs_diff(gap));
        }
    }
    off.sort_unstable();
    off[off.len() * 99 / 100]
}

#[test]
fn a_stream_that_is_stopped_leaves_a_thousand_others_alone() {
    let Some(stage) = Stage::up() else { return };
    const STREAMS: u32 = 1000;
    let (set, stopped) = (set(STREAMS, 20.0), 500);
    let (alone, report) = told(&stage, &set, 600, |_, _| {});
    assert_exact(&alone, &report);
    let seen = Mutex::new((Duration::ZERO, 0));
    let (got, report) = told(&stage, &set, 600, |control, run| {
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        let told = control.tell_which(&Which::Some(Arc::from([stopped])), Action::Stop).unwrap();
        assert!(control.wait(told, Duration::from_secs(5)));
        let took = asked.elapsed();
        *seen.lock().unwrap() = (took, control.states(&run.watch)[stopped as usize].sent);
    });
    assert_exact(&got, &report);
    let (took, final_count) = seen.into_inner().unwrap();
    let of = |stream: u32| report.per_stream[stream as usize];
    assert_eq!(of(stopped), final_count, "its count was final when it had stopped");
    assert!((0..STREAMS).all(|stream| stream == stopped || of(stream).abs_diff(12) <= 1), "{:?}", report.per_stream);
    let off = [off(&alone, 1000, 50_000_000, stopped), off(&got, 1000, 50_000_000, stopped)];
    println!("gaps off by {off:?} ns, answered after {took:?}");
    judge(took < ANSWERED, &format!("stopped after {took:?}"));
    judge(off[1] <= off[0] * 3 / 2 + 100_000, &format!("gaps of the others are off by {off:?} ns, without and with"));
}
