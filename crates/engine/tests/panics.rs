//! A panic in a thread ends the run: with a report of what was done before, and every frame accounted for.

use linerate_backends::{open_rx, open_tx};
use linerate_burst::block::View;
use linerate_burst::{Block, Count, Desc, Horizon, Interface, Kind, Ledger, LinkType, Nanos, Sink, SinkError, Stage};
use linerate_burst::{StampSource, ledger::Account};
use linerate_engine::{
    Capture, CaptureTotals, MeterConsumer, Meters, Progress, Receive, Replay, RunReport, Selection, Stop,
};
use linerate_engine::{Edits, RecordingMemory};
use linerate_generate::{Pacing, Rate};
use linerate_meter::{Config, Flow, Records};
use linerate_port::{Feed, Head, PortError, RxOptions, RxPort, RxQueue, Spec, TxOptions};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// A port that ends only by a stop or a failure.
struct Endless {
    block: Block,
    interfaces: [Interface; 1],
    taken: u64,
    detached: bool,
    /// Panics once this many frames were taken.
    most: u64,
}

/// Number of frames returned at a time.
const SHOWN: usize = 600;

impl Endless {
    fn port(most: u64) -> RxPort {
        let mut block = Block::new(SHOWN * 128, SHOWN);
        for index in 0..SHOWN {
            let udp = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 26, 0, 0];
            let mut frame = [&[2; 12][..], &[8, 0], &udp, &[0; 18]].concat();
            // One flow per frame, for all workers.
            frame[28..30].copy_from_slice(&(index as u16).to_be_bytes());
            assert!(block.push(&Desc::new(Nanos(1_700_000_000_000_000_000), 0, frame.len() as u32), &frame));
        }
        let interfaces = [Interface::new("endless", LinkType::ETHERNET, StampSource::User)];
        let queues: Vec<Box<dyn RxQueue>> =
            vec![Box::new(Endless { block, interfaces, taken: 0, detached: false, most })];
        let name = "endless".into();
        RxPort {
            name,
            queues,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            feed: Feed::Stored,
            notes: Vec::new(),
        }
    }
}

impl RxQueue for Endless {
    fn fill(&mut self, _: Nanos) -> Result<Head<'_>, PortError> {
        assert!(self.taken < self.most, "the port has a bug");
        let shown = if self.detached { 0 } else { SHOWN };
        let horizon = if self.detached { Horizon::Ended } else { Horizon::At(Nanos::MAX) };
        Ok(Head { burst: self.block.burst().slice(0..shown), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.taken += frames as u64;
        // Its next frames are a second later.
        self.block.restamp(Nanos(1_700_000_000_000_000_000 + self.taken / SHOWN as u64 * 1_000_000_000));
    }

    fn detach(&mut self) {
        self.detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, "endless");
        account.add(Count::Received, self.taken).add(Count::Delivered, self.taken);
    }
}

/// Counts frames, and panics at the block in which `most` is reached.
struct Patient {
    name: &'static str,
    received: u64,
    written: u64,
    most: u64,
}

impl Sink for Patient {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        self.received += view.burst().len() as u64;
        assert!(self.received < self.most, "the sink has a bug");
        self.written = self.received;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
        Ok(())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Write, self.name);
        account.add(Count::WriteReceived, self.received).add(Count::Written, self.written);
    }
}

const LIMIT: Duration = Duration::from_secs(30);

/// A run without a stop.
fn capture(ports: Vec<RxPort>, sinks: Vec<Box<dyn Sink>>, copy_with_helper: bool) -> (RunReport, CaptureTotals) {
    let began = Instant::now();
    let mut capture = Capture::new(Selection::default(), sinks).copy_with_helper(copy_with_helper);
    let run = Receive { duration: Some(LIMIT), ..Receive::all(ports) }.run(&mut [&mut capture]);
    assert!(began.elapsed() < LIMIT, "the run did not end");
    (run, capture.done())
}

fn account<'a>(ledger: &'a Ledger, name: &str) -> &'a Account {
    let found = ledger.accounts().iter().find(|account| account.stage == Stage::Write && account.subject == name);
    found.unwrap_or_else(|| panic!("no account of {name}: {ledger:?}"))
}

#[test]
fn panicked_sink_ends_the_run_and_its_losses_are_named() {
    let one = |name, most| Box::new(Patient { name, received: 0, written: 0, most }) as Box<dyn Sink>;
    let (report, captured) =
        capture(vec![Endless::port(u64::MAX)], vec![one("dying", 50_000), one("living", u64::MAX)], false);
    let failure = report.failure.unwrap().to_string();
    assert!(failure.contains("the sink has a bug") && failure.contains("thread "), "{failure}");
    let (dying, living) = (account(&report.ledger, "dying"), account(&report.ledger, "living"));
    assert!(captured.frames >= 50_000 && dying.get(Count::Written) < 50_000, "{:?}", report.ledger);
    assert_eq!(dying.get(Count::OutputDied), captured.frames - dying.get(Count::Written));
    assert_eq!(
        (living.get(Count::Written), living.get(Count::OutputDied)),
        (captured.frames, 0),
        "the other continues"
    );
    assert_eq!((report.ledger.imbalances(), report.quiesced), (vec![], true));
}

#[test]
fn panicked_port_ends_the_run_with_a_report() {
    for copy_with_helper in [false, true] {
        let sink = Box::new(Patient { name: "file", received: 0, written: 0, most: u64::MAX });
        let (report, captured) = capture(vec![Endless::port(20_000)], vec![sink], copy_with_helper);
        let failure = report.failure.unwrap().to_string();
        assert!(failure.contains("the port has a bug"), "{failure}");
        assert_eq!(account(&report.ledger, "file").get(Count::Written), captured.frames);
        assert!(captured.frames >= 20_000 && !report.quiesced);
    }
}

/// Takes records until the counter reaches zero.
struct Reader(u64);

impl Records for Reader {
    fn take(&mut self, _: &Flow) {
        self.0 = self.0.checked_sub(1).expect("the reader of records has a bug");
    }
}

#[test]
fn panicked_worker_ends_the_run_and_its_losses_are_named() {
    for workers in [1, 3] {
        let began = Instant::now();
        let mut config = Config { max_flows: 4096, ..Config::default() };
        // Records are exported while frames arrive.
        config.timeouts.iter_mut().for_each(|timeouts| timeouts.active = Nanos(10_000_000_000));
        let mut metering = MeterConsumer::new(Meters::new(&config, workers), Selection::default(), Reader(2000));
        let receive = Receive { duration: Some(LIMIT), ..Receive::all(vec![Endless::port(u64::MAX)]) };
        let report = receive.run(&mut [&mut metering]);
        assert!(began.elapsed() < LIMIT, "the run did not end");
        let failure = report.failure.unwrap().to_string();
        assert!(failure.contains("the reader of records has a bug"), "{failure}");
        assert!(workers == 1 || failure.contains("thread linerate-meter"), "{failure}");
        let flows = report.ledger.accounts().iter().find(|account| account.stage == Stage::Meter).unwrap();
        let metered = metering.done().0.counts.frames;
        assert_eq!(flows.get(Count::MeterDied), flows.sum(Kind::Received) - metered);
        assert_eq!(report.ledger.imbalances(), []);
        assert!(metered > 0, "{:?}", report.ledger);
    }
}

#[test]
fn panicked_recording_reader_fails_the_replay() {
    let name = format!("mem:died-{}", std::process::id());
    let spec = Spec::parse(&name).unwrap();
    let _taken = open_rx(&spec, &RxOptions::default()).unwrap();
    let replay = Replay {
        open: Box::new(|| Ok(Endless::port(5000))),
        memory: RecordingMemory::Ahead,
        loops: 1,
        loop_gap: None,
        edits: Edits::default(),
        ports: vec![open_tx(&spec, &TxOptions::default()).unwrap()],
        pacing: Pacing::Fixed(Rate::Top),
        at_once: false,
        packets: None,
        duration: Some(LIMIT),
        stop: Stop::new(),
        progress: Progress::new(),
    };
    let failure = replay.run().failure.unwrap().to_string();
    assert!(failure.contains("thread linerate-ahead panicked: the port has a bug"), "{failure}");
}
