//! Commands to running streams, over a veth: the time until they are in force, and no effect on other streams. Counts
//! are exact on any machine; times are judged only on a quiet one.

use crate::live::testbed::{Stage, stream};
use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Count, Ledger};
use linerate_engine::streams::{Control, StreamRun};
use linerate_engine::{Streams, StreamsReport, clock};
use linerate_generate::stream::{Order, Stream, StreamSet};
use linerate_generate::trailer::{Key, Trailer};
use linerate_generate::{Action, Rate, StreamSelection};
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_tests::support::{judge, wait_until};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum time until a command is in force, in nanoseconds.
const IN_FORCE: u64 = 5_000_000;
/// Maximum time until a stop is confirmed.
const ANSWERED: Duration = Duration::from_millis(20);

/// A received frame: its stream, its number, and its time of sending.
type Frame = (u32, u64, u64);

/// `streams` streams with `rate` frames per second each.
fn set(streams: u32, rate: f64) -> StreamSet {
    let one = |id| Stream { name: format!("s{id}"), id, rate: Rate::Frames(rate), count: None, ..stream(&[60], 0) };
    StreamSet { streams: (0..streams).map(one).collect(), order: Order::Interleaved, rate: None, key: Key::default() }
}

/// Sends for `millis` milliseconds while `commands` controls the streams; returns the received frames and the report.
fn send(
    stage: &Stage,
    set: &StreamSet,
    millis: u64,
    commands: impl FnOnce(&Control, &StreamRun) + Send,
) -> (Vec<Frame>, StreamsReport) {
    send_by("packet", stage, set, millis, commands)
}

/// The same, through a port of this backend.
fn send_by(
    scheme: &str,
    stage: &Stage,
    set: &StreamSet,
    millis: u64,
    commands: impl FnOnce(&Control, &StreamRun) + Send,
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
    let run = StreamRun { duration: Some(Duration::from_millis(millis)), ..StreamRun::default() };
    let mut got = Vec::new();
    let report = std::thread::scope(|scope| {
        let sender = scope.spawn(|| streams.run(&run));
        let controller = scope.spawn(|| commands(&control, &run));
        let mut receive = |got: &mut Vec<Frame>| {
            let burst = queue.fill(clock::now()).unwrap().burst;
            for (desc, bytes) in burst.iter() {
                let trailer = bytes.last_chunk().and_then(|bytes| Trailer::read(bytes, &set.key));
                let time = |trailer: &Trailer| desc.time.0.wrapping_add_signed(-trailer.latency(desc.time));
                got.extend(trailer.map(|trailer| (trailer.stream, trailer.sequence, time(&trailer))));
            }
            let frames = burst.len();
            queue.consume(frames);
            frames > 0
        };
        while !sender.is_finished() {
            receive(&mut got);
        }
        controller.join().unwrap();
        let report = sender.join().unwrap();
        // The kernel hands over the last block when it has time; then nothing more may come.
        let sent: u64 = report.per_stream.iter().sum();
        wait_until("all frames are received", || {
            while receive(&mut got) {}
            got.len() as u64 >= sent || report.failure.is_some()
        });
        let mut quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(60) {
            if receive(&mut got) {
                quiet = Instant::now();
            }
        }
        report
    });
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!((report.failure.is_none(), ledger.total(Count::RingFull)), (true, 0), "{:?}", report.failure);
    assert_eq!((report.ledger.imbalances(), report.ledger.lost()), (vec![], 0));
    (got, report)
}

/// Asserts that each stream's numbers are consecutive from 0 up to its count: none missing, none twice.
fn assert_exact(got: &[Frame], report: &StreamsReport) {
    let mut next = vec![0; report.per_stream.len()];
    for (stream, number, _) in got {
        assert_eq!(*number, next[*stream as usize], "stream {stream}");
        next[*stream as usize] += 1;
    }
    assert_eq!(next, report.per_stream, "sent and received counts differ");
}

/// Timed commands are applied at their time: the count is exact to one frame.
#[test]
fn changed_rates_give_exact_frame_counts() {
    let Some(stage) = Stage::up() else { return };
    for scheme in ["packet", "xdp-live"] {
        let set = set(1, 10_000.0);
        let (got, report) = send_by(scheme, &stage, &set, 350, |control, _| {
            for (millis, rate) in [(100, 100_000.0), (200, 1000.0)] {
                let rate = Action::Rate(Rate::Frames(rate));
                control.command_at(Duration::from_millis(millis), &StreamSelection::All, rate).unwrap();
            }
            control.command_at(Duration::from_millis(300), &StreamSelection::All, Action::Stop).unwrap();
        });
        assert_exact(&got, &report);
        let frames = report.sent.frames as i64;
        let due = 1000 + 10_000 + 100;
        // A sender that was held up for more than 100 ms shifts its schedule.
        let shifted = (report.timing.shifted.as_secs_f64() * 100_000.0).ceil() as i64;
        assert!((due - shifted - 1..=due + 1).contains(&frames), "{scheme}: {frames} of {due}, shifted {shifted}");
    }
}

/// Streams sent by the kernel pause, resume, stop and restart only together; commands for one of them are rejected.
#[test]
fn kernel_streams_follow_commands() {
    let Some(stage) = Stage::up() else { return };
    let set = set(3, 20_000.0);
    let (got, report) = send_by("xdp-live", &stage, &set, 60_000, |control, run| {
        let wait = |command| assert!(control.wait(command, Duration::from_secs(20)), "the command is not applied");
        let sent = || control.states(&run.watch).iter().map(|stream| stream.sent).collect::<Vec<_>>();
        let wait_for_frames = |before: Vec<u64>| {
            wait_until("all streams send", || sent().iter().zip(&before).all(|(now, before)| now > &(before + 50)));
        };
        wait_for_frames(vec![0; 3]);
        let refused = control.command("s1", Action::Pause).unwrap_err().to_string();
        assert!(refused.contains("name all of them, or"), "{refused}");
        for (hold, resume) in [(Action::Pause, Action::Resume), (Action::Stop, Action::Start(Arc::from([])))] {
            wait(control.command("*", hold).unwrap());
            let held = sent();
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(sent(), held, "streams still send");
            wait(control.command("*", resume).unwrap());
            wait_for_frames(held);
            wait(control.command("*", Action::Scale(2.0)).unwrap());
        }
        wait(control.command("*", Action::Rate(Rate::Top)).unwrap());
        wait_for_frames(sent());
        wait(control.command("*", Action::Rate(Rate::Frames(5000.0))).unwrap());
        wait_for_frames(sent());
        assert!(control.states(&run.watch).iter().all(|stream| stream.rate == Rate::Frames(5000.0)));
        run.stop.request();
    });
    let (mut next, mut highest) = ([0; 6], 0);
    for (stream, number, _) in &got {
        assert_eq!(*number, next[*stream as usize], "stream {stream}");
        highest = highest.max(*stream);
        next[*stream as usize] += 1;
    }
    assert_eq!(highest, 5, "not all streams restarted with a new id");
    let by_stream: Vec<u64> = (0..3).map(|stream| next[stream] + next[stream + 3]).collect();
    assert_eq!(by_stream, report.per_stream, "sent and received counts differ");
}

#[test]
fn rate_change_is_in_force_within_5_ms() {
    let Some(stage) = Stage::up() else { return };
    let (set, asked) = (set(1, 10_000.0), Mutex::new(Vec::new()));
    let (got, report) = send(&stage, &set, 450, |control, _| {
        for rate in [100_000.0, 1000.0] {
            std::thread::sleep(Duration::from_millis(150));
            asked.lock().unwrap().push(clock::now().0);
            control.command("*", Action::Rate(Rate::Frames(rate))).unwrap();
        }
    });
    assert_exact(&got, &report);
    let asked = asked.into_inner().unwrap();
    let times: Vec<u64> = got.iter().map(|(.., time)| *time).collect();
    // The fast rate is in force with ten consecutive frames at its gaps, the slow one with two of its gaps.
    let of_fast = times.windows(11).find(|ten| ten[0] >= asked[0] && ten[10] - ten[0] < 10 * 20_000);
    let of_slow =
        times.windows(3).find(|two| two[0] >= asked[1] && two[1] - two[0] > 500_000 && two[2] - two[1] > 500_000);
    let spans = [of_fast.map(|ten| ten[0] - asked[0]), of_slow.map(|two| two[0] - asked[1])];
    let is_soon = spans.iter().all(|span| span.is_some_and(|span| span <= IN_FORCE));
    println!("in force after {spans:?} ns");
    judge(is_soon, &format!("a rate is in force after {spans:?} ns"));
}

/// The 99th percentile of the deviation of gaps within streams from `gap`, in nanoseconds, without stream `except`.
fn deviation(got: &[Frame], streams: usize, gap: u64, except: u32) -> u64 {
    let (mut last, mut deviation) = (vec![None; streams], Vec::new());
    for (stream, _, time) in got.iter().filter(|(stream, ..)| *stream != except) {
        if let Some(last) = last[*stream as usize].replace(*time) {
            deviation.push((time - last).abs_diff(gap));
        }
    }
    deviation.sort_unstable();
    deviation[deviation.len() * 99 / 100]
}

#[test]
fn stopping_a_stream_does_not_affect_a_thousand_others() {
    let Some(stage) = Stage::up() else { return };
    const STREAMS: u32 = 1000;
    let (set, stopped) = (set(STREAMS, 20.0), 500);
    let (undisturbed, report) = send(&stage, &set, 600, |_, _| {});
    assert_exact(&undisturbed, &report);
    let seen = Mutex::new((Duration::ZERO, 0));
    let (got, report) = send(&stage, &set, 600, |control, run| {
        std::thread::sleep(Duration::from_millis(300));
        let asked = Instant::now();
        let command = control.command_streams(&StreamSelection::Some(Arc::from([stopped])), Action::Stop).unwrap();
        assert!(control.wait(command, Duration::from_secs(5)));
        let took = asked.elapsed();
        *seen.lock().unwrap() = (took, control.states(&run.watch)[stopped as usize].sent);
    });
    assert_exact(&got, &report);
    let (took, final_count) = seen.into_inner().unwrap();
    let of = |stream: u32| report.per_stream[stream as usize];
    assert_eq!(of(stopped), final_count, "the stream sent after its stop was confirmed");
    assert!((0..STREAMS).all(|stream| stream == stopped || of(stream).abs_diff(12) <= 1), "{:?}", report.per_stream);
    let deviation = [deviation(&undisturbed, 1000, 50_000_000, stopped), deviation(&got, 1000, 50_000_000, stopped)];
    println!("gap deviation {deviation:?} ns, stop confirmed after {took:?}");
    judge(took < ANSWERED, &format!("stopped after {took:?}"));
    judge(
        deviation[1] <= deviation[0] * 3 / 2 + 100_000,
        &format!("gap deviation of other streams {deviation:?} ns, without and with a stop"),
    );
}
