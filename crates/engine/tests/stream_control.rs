//! Streams controlled by other threads while they run, in memory: for any commands, every frame that was sent arrives
//! once, and paused streams send nothing.

use linerate_backends::{open_rx, open_tx};
use linerate_engine::check::{CheckConsumer, CheckThread};
use linerate_engine::streams::{CommandError, SendState, StreamRun};
use linerate_engine::{Control, Receive, Selection, Streams};
use linerate_generate::check::Options;
use linerate_generate::stream::{Order, StreamSet};
use linerate_generate::{Action, Check, Rate, file};
use linerate_port::{RxOptions, Spec, TxOptions};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(20);

fn set(rates: &[&str]) -> StreamSet {
    let stream = |(place, rate): (usize, &&str)| {
        format!("[[stream]]\nname = \"s{place}\"\npacket = \"udp(dport={})\"\nrate = \"{rate}\"\n", place + 1)
    };
    let text: String = rates.iter().enumerate().map(stream).collect();
    let set = file::streams("streams", &format!("order = \"interleaved\"\n{text}"), &file::Setup::default()).unwrap();
    assert_eq!(set.order, Order::Interleaved);
    set
}

/// Runs a set with a first command, and `what` while it runs; checks that every frame arrived once, and returns the
/// totals of each stream.
fn run(name: &str, set: &StreamSet, first: Option<Action>, what: impl FnOnce(&Control, &StreamRun)) -> Vec<u64> {
    let spec = Spec::parse(&format!("mem:{name}")).unwrap();
    let check = Check::new(set.key, Options { streams: 5000, verify: true });
    let receive = Receive::all(vec![open_rx(&spec, &RxOptions::default()).unwrap()]);
    let port = open_tx(&spec, &TxOptions { stamped: true, ..TxOptions::default() }).unwrap();
    let control = Control::new(set);
    let streams = Streams::controlled(set, port, &control).unwrap();
    let checker = CheckThread::start(CheckConsumer::new(check, Selection::default()), receive).unwrap();
    let run = StreamRun::default();
    if let Some(first) = first {
        control.command("*", first).unwrap();
    }
    let sent = std::thread::scope(|scope| {
        let sending = scope.spawn(|| streams.run(&run));
        what(&control, &run);
        run.stop.request();
        sending.join().unwrap()
    });
    assert!(sent.failure.is_none(), "{:?}", sent.failure);
    assert_eq!(control.command("*", Action::Pause), Err(CommandError::Over));
    let report = checker.finish(Some(sent.sent.frames), Duration::from_millis(500), PATIENCE, &run.stop);
    let by_number = control.by_number(&sent.per_stream);
    assert_eq!(by_number.iter().sum::<u64>(), sent.sent.frames);
    let counts = report.check.report(Some(&by_number)).summary().counts;
    // Two senders may be far apart: frames too late to be identified are stale, and not lost.
    let lost = counts.lost - counts.stale;
    assert_eq!((counts.received, lost, counts.duplicated), (sent.sent.frames, 0, 0), "{counts:?}");
    sent.per_stream
}

/// Sends a command, and waits until it is applied.
fn command(control: &Control, pattern: &str, action: Action) {
    let change = control.command(pattern, action).unwrap();
    assert!(control.wait(change, PATIENCE), "{pattern}");
}

fn start() -> Action {
    Action::Start(Arc::from([]))
}

#[test]
fn every_frame_arrives_once_under_any_commands() {
    for port in ["controlled1", "controlled2@0-1"] {
        let set = set(&["20kpps", "7kpps", "1kpps", "30kpps"]);
        run(port, &set, None, |control, run| {
            let mut dice = 7u64;
            for _ in 0..120 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let (which, rate) = (["*", "s0", "s?", "s1", "s3"][(dice >> 33) as usize % 5], (dice >> 40) % 50 + 1);
                let action = match (dice >> 59) % 7 {
                    0 | 1 => Action::Rate(Rate::Frames(rate as f64 * 1e3)),
                    2 => Action::Scale(if dice >> 50 & 1 == 0 { 0.5 } else { 1.5 }),
                    3 => Action::Pause,
                    4 => Action::Resume,
                    5 => Action::Stop,
                    _ => start(),
                };
                let change = control.command(which, action).unwrap();
                if dice >> 45 & 3 == 0 {
                    assert!(control.wait(change, PATIENCE));
                }
            }
            command(control, "*", Action::Stop);
            let stopped = run.watch.sent_now(PATIENCE);
            assert!(control.states(&run.watch).iter().all(|stream| stream.state == SendState::Stopped));
            command(control, "s1", start());
            while run.watch.sent_now(PATIENCE)[1] < stopped[1] + 100 {}
            let sent = run.watch.sent_now(PATIENCE);
            assert_eq!(
                (sent[0], sent[2], sent[3]),
                (stopped[0], stopped[2], stopped[3]),
                "what was sent by then was final"
            );
        });
    }
}

#[test]
fn streams_wait_from_the_beginning_and_are_counted_from_their_start() {
    let set = set(&["50kpps", "50kpps"]);
    let sent = run("waits", &set, Some(Action::Stop), |control, run| {
        command(control, "s1", start());
        while run.watch.sent_now(PATIENCE)[1] < 500 {}
        let states = control.states(&run.watch);
        assert_eq!((states[0].state, states[0].sent, states[0].number), (SendState::Stopped, 0, set.streams[0].id));
        assert_eq!(
            (states[1].number, states[1].sent),
            (set.streams[1].id, states[1].since_start),
            "it keeps its number"
        );
        command(control, "s1", Action::Stop);
        let before = run.watch.sent_now(PATIENCE)[1];
        command(control, "s1", start());
        while run.watch.sent_now(PATIENCE)[1] < before + 500 {}
        let state = control.states(&run.watch)[1];
        assert_eq!(state.sent - state.since_start, before);
        assert_eq!(
            (control.place_of(state.number), control.numbers_of(1)),
            (Some(1), vec![set.streams[1].id, state.number])
        );
    });
    assert_eq!(sent[0], 0);
}
