//! Special ports: one that returns early without frames must be polled again at once; more interfaces than can be
//! distinguished are a failure.

use linerate_backends::open_tx;
use linerate_burst::{Burst, Horizon, Interface, Ledger, LinkType, Nanos, StampSource};
use linerate_engine::{
    Capture, CountConsumer, Edits, Progress, Receive, RecordingMemory, Replay, Selection, Stop, WaitStrategy,
};
use linerate_generate::{Pacing, Rate};
use linerate_port::{Feed, Head, PortError, RxPort, RxQueue, Spec, TxOptions};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Number of polls: with the shortest wait for each, a 10,000th of a second, 6 s or more.
const LOOKS: usize = 60_000;

/// Polls for frames and finds none.
struct Busy {
    left: usize,
    interfaces: Vec<Interface>,
}

fn busy(looks: usize) -> RxPort {
    busy_port(looks, 1)
}

fn busy_port(looks: usize, interfaces: usize) -> RxPort {
    let interfaces = vec![Interface::new("busy", LinkType::ETHERNET, StampSource::File); interfaces];
    let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(Busy { left: looks, interfaces })];
    let name = "busy".into();
    RxPort { name, queues, monitor: None, filter: String::new(), offset_ns: 0, feed: Feed::Stored, notes: Vec::new() }
}

impl RxQueue for Busy {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        self.left = self.left.saturating_sub(1);
        let horizon = if self.left == 0 { Horizon::Ended } else { Horizon::At(Nanos::ZERO) };
        Ok(Head { burst: Burst::EMPTY, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, _frames: usize) {}

    fn detach(&mut self) {
        self.left = 0;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn has_pending_work(&self) -> bool {
        self.left > 0
    }

    fn counters(&self, _: &mut Ledger) {}
}

/// Far less than the waits for all polls together.
fn assert_fast(started: Instant) {
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[test]
fn a_capture_does_not_wait_for_a_port_at_work() {
    for (waiting, ports) in [(WaitStrategy::Sleep, 1), (WaitStrategy::Adaptive, 2)] {
        let started = Instant::now();
        let ports = (0..ports).map(|_| busy(LOOKS)).collect();
        let mut capture = Capture::new(Selection::default(), Vec::new());
        let report = Receive { waiting, ..Receive::all(ports) }.run(&mut [&mut capture]);
        assert!(report.failure.is_none() && report.quiesced, "{report:?}");
        assert_fast(started);
    }
}

#[test]
fn counting_ends_in_time_with_an_idle_port() {
    let counting = |duration, ports| {
        let started = Instant::now();
        let mut counting = CountConsumer::new(Selection::default(), false);
        let receive = Receive { waiting: WaitStrategy::Sleep, duration, ..Receive::all(ports) };
        let report = receive.run(&mut [&mut counting]);
        assert!(report.failure.is_none() && report.quiesced, "{report:?}");
        assert_fast(started);
    };
    counting(None, vec![busy(LOOKS)]);
    counting(Some(Duration::from_millis(200)), vec![busy(usize::MAX)]);
}

#[test]
fn too_many_interfaces_are_a_failure() {
    for (ports, fits) in [(8, true), (9, false)] {
        let ports = (0..ports).map(|_| busy_port(3, 8192)).collect();
        let mut counting = CountConsumer::new(Selection::default(), false);
        let report = Receive { waiting: WaitStrategy::Sleep, ..Receive::all(ports) }.run(&mut [&mut counting]);
        let failure = report.failure.map(|failure| failure.to_string());
        assert_eq!(failure.is_none(), fits, "{failure:?}");
        assert!(failure.is_none_or(|failure| failure.contains("more than 65536 interfaces in one run")));
    }
}

#[test]
fn replay_continues_reading_at_once() {
    // It waits 100 times as long for a pipe.
    for memory in [RecordingMemory::IfSmall, RecordingMemory::Ahead] {
        let started = Instant::now();
        let report = Replay {
            open: Box::new(|| Ok(busy(LOOKS / 100))),
            memory,
            loops: 1,
            loop_gap: None,
            edits: Edits::default(),
            ports: vec![open_tx(&Spec::file("/dev/null"), &TxOptions::default()).unwrap()],
            pacing: Pacing::Fixed(Rate::Top),
            at_once: false,
            packets: None,
            duration: None,
            stop: Stop::new(),
            progress: Progress::new(),
        }
        .run();
        assert!(report.failure.is_none(), "{report:?}");
        assert_fast(started);
    }
}
