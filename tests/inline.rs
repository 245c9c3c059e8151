//! In-place forwarding through the receive loop: with verdicts in memory, and with an engine in another process.

mod answers;
mod daq;
mod engine;
mod head_of_line;
mod lanes;
mod shares;

use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Block, Count, Desc, Kind, Ledger, Nanos, Stage};
use linerate_engine::{Forward, Inspect, Policy, Progress, Receive, RunReport, Stop, Verdict};
use linerate_port::{RxOptions, RxPort, Spec, TxOptions, TxPort};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const FRAMES: u32 = 5000;

fn ports() -> [(TxPort, RxPort); 2] {
    static USED: AtomicU32 = AtomicU32::new(0);
    [(); 2].map(|()| {
        let name = format!("mem:inline{}?chunk=2048", USED.fetch_add(1, Ordering::Relaxed));
        let spec = Spec::parse(&name).unwrap();
        let tx = linerate_backends::REGISTRY.open_tx(&spec, &TxOptions::default());
        (tx.unwrap_or_else(|error| panic!("{error}")), open_rx(&spec, &RxOptions::default()).unwrap())
    })
}

/// A frame that starts with its number.
fn frame(number: u32) -> Vec<u8> {
    let mut bytes = vec![number as u8; 60 + number as usize % 900];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[..4].try_into().unwrap())
}

/// Sends frames through a forwarder between two ports; returns the result of the run and the received frames.
fn through(inspector: Option<(Box<dyn Inspect>, Policy)>) -> (RunReport, Vec<Vec<u8>>) {
    let [(mut into, mut from), (to, mut far)] = ports();
    let progress = Progress::new();
    let mut forward = match inspector {
        None => Forward::new(&mut from, to, progress),
        Some(inspector) => Forward::inspected(&mut from, to, progress, inspector).unwrap(),
    };
    assert!(forward.is_in_place());
    let got = std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut block = Block::new(1 << 20, 64);
            for numbers in (0..FRAMES).collect::<Vec<_>>().chunks(64) {
                block.clear();
                for number in numbers {
                    let bytes = frame(*number);
                    assert!(block.push(&Desc::new(Nanos(u64::from(*number)), 0, bytes.len() as u32), &bytes));
                }
                let mut sent = 0;
                while sent < numbers.len() {
                    sent += into.queues[0].send(block.burst().slice(sent..numbers.len())).unwrap();
                    into.queues[0].flush(Nanos::ZERO).unwrap();
                }
            }
        });
        let running = scope.spawn(move || {
            let run = Receive { ports: vec![from], ..Receive::all(Vec::new()) }.run(&mut [&mut forward]);
            drop(forward);
            run
        });
        let mut got = Vec::new();
        let queue = &mut far.queues[0];
        loop {
            let head = queue.fill(Nanos::ZERO).unwrap();
            let (shown, is_over) = (head.burst.len(), head.horizon == linerate_burst::Horizon::Ended);
            got.extend(head.burst.iter().map(|(_, bytes)| bytes.to_vec()));
            queue.consume(shown);
            if shown == 0 && is_over {
                break;
            }
        }
        (running.join().unwrap(), got)
    });
    assert_eq!(got.0.ledger.imbalances(), [], "{:#?}", got.0.ledger);
    got
}

fn at(ledger: &Ledger, stage: Stage, kind: Kind) -> u64 {
    ledger.sum(stage, kind)
}

#[test]
fn frames_are_forwarded_unchanged() {
    let (run, got) = through(None);
    assert!(run.failure.is_none(), "{:?}", run.failure);
    assert_eq!(got.len(), FRAMES as usize);
    assert!(got.iter().enumerate().all(|(place, bytes)| *bytes == frame(place as u32)));
    assert_eq!((run.ledger.lost(), at(&run.ledger, Stage::Send, Kind::Delivered)), (0, FRAMES.into()));
}

/// Drops every third frame, changes every fifth, holds every seventh for a while and every 101st forever.
#[derive(Default)]
struct Picky {
    held: Vec<u64>,
    rounds: u32,
}

impl Inspect for Picky {
    fn inspect(&mut self, ticket: u64, desc: &Desc, frame: &mut [u8]) -> Verdict {
        assert_eq!(desc.captured as usize, frame.len());
        let number = number(frame);
        assert_eq!(u64::from(number), ticket);
        if number % 101 == 100 {
            return Verdict::Hold;
        }
        if number % 7 == 6 {
            self.held.push(ticket);
            return Verdict::Hold;
        }
        match (number % 3, number % 5) {
            (2, _) => Verdict::Drop,
            (_, 4) => {
                frame[10..14].copy_from_slice(b"made");
                Verdict::Changed
            }
            _ => Verdict::Pass,
        }
    }

    fn flow(&mut self, frame: &[u8]) -> u64 {
        u64::from(number(frame) % 16)
    }

    fn later(&mut self, verdicts: &mut Vec<(u64, Verdict)>) {
        self.rounds += 1;
        if self.rounds.is_multiple_of(3) {
            verdicts.extend(self.held.drain(..).rev().map(|ticket| (ticket, Verdict::Pass)));
        }
    }
}

#[test]
fn verdicts_are_applied_and_counted() {
    for fail_open in [false, true] {
        let policy = Policy { fail_open, deadline: Duration::from_millis(400), most: 1 << 20 };
        let (run, got) = through(Some((Box::new(Picky::default()), policy)));
        assert!(run.failure.is_none(), "{:?}", run.failure);
        let mut expected = Vec::new();
        for number in 0..FRAMES {
            let mut bytes = frame(number);
            let (never, later) = (number % 101 == 100, number % 7 == 6);
            if never && !fail_open || !never && !later && number % 3 == 2 {
                continue;
            }
            if !never && !later && number % 5 == 4 {
                bytes[10..14].copy_from_slice(b"made");
            }
            expected.push(bytes);
        }
        let mut sorted = got.clone();
        sorted.sort_by_key(|bytes| number(bytes));
        assert!(sorted == expected, "{} arrived, {} were expected", got.len(), expected.len());
        for flow in 0..16 {
            let of_flow = got.iter().map(|bytes| number(bytes)).filter(|number| number % 16 == flow);
            assert!(of_flow.is_sorted(), "flow {flow}");
        }
        let total = |count| run.ledger.total(count);
        let never = u64::from(FRAMES / 101);
        assert_eq!(total(Count::VerdictReceived), u64::from(FRAMES));
        assert_eq!(
            (total(Count::VerdictLate), total(Count::VerdictFailedOpen)),
            if fail_open { (0, never) } else { (never, 0) }
        );
        assert_eq!(run.ledger.lost(), if fail_open { 0 } else { never });
        assert_eq!(total(Count::VerdictUnknown), 0);
    }
}

/// A panic of the inspector ends the run: every frame is accounted for, and none passes without a verdict.
#[test]
fn panicking_inspector_ends_the_run() {
    struct Dies;
    impl Inspect for Dies {
        fn inspect(&mut self, ticket: u64, _: &Desc, _: &mut [u8]) -> Verdict {
            assert!(ticket < 1000, "a bug");
            Verdict::Pass
        }
    }
    let [(mut into, mut from), (to, _far)] = ports();
    let mut forward = Forward::inspected(&mut from, to, Progress::new(), (Box::new(Dies), Policy::default())).unwrap();
    let mut block = Block::new(1 << 20, 1500);
    for number in 0..1500 {
        assert!(block.push(&Desc::new(Nanos(number), 0, 60), &frame(number as u32)[..60]));
    }
    assert_eq!(into.queues[0].send(block.burst()).unwrap(), 1500);
    drop(into);
    let run = Receive { ports: vec![from], stop: Stop::new(), ..Receive::all(Vec::new()) }.run(&mut [&mut forward]);
    let failure = run.failure.expect("the run failed").to_string();
    assert!(failure.contains("a bug"), "{failure}");
    assert!(run.ledger.imbalances().is_empty(), "{:#?}", run.ledger);
    assert_eq!(at(&run.ledger, Stage::Receive, Kind::Delivered), 1500);
}

#[test]
fn ports_that_cannot_hold_frames_are_rejected() {
    let [(_, mut from), (..)] = ports();
    let spec = Spec::parse("mem:inline-blocks").unwrap();
    let to = open_tx(&spec, &TxOptions::default()).unwrap();
    let inspector: Box<dyn Inspect> = Box::new(Picky::default());
    let refused = Forward::inspected(&mut from, to, Progress::new(), (inspector, Policy::default())).err().unwrap();
    assert!(refused.to_string().contains("cannot hold, change and forward frames to mem:inline-blocks"), "{refused}");
}
