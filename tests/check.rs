//! The check after a faulty link: it reports exactly the faults that were injected.

use linerate::burst::{Block, Count, Desc, Nanos};
use linerate::engine::{CheckConsumer, CheckReport, CheckThread, Receive, Selection, Stop, clock::now};
use linerate::generate::Check;
use linerate::generate::check::{CheckSummary, Options};
use linerate::generate::trailer::{Key, Trailer};
use linerate::headers::build::Frame;
use linerate::headers::{MacAddr, ethernet, ipv4, udp};
use linerate::port::{RxOptions, Spec, TxOptions, TxPort, open_rx, open_tx};
use linerate_tests::support::{Scratch, program};
use std::thread;
use std::time::{Duration, Instant};

const FRAMES: u64 = 30_000;
/// Nanoseconds between two frames; a burst is much shorter than the time that a reordered frame is held.
const GAP: u64 = 100;

fn datagram(trailer: Trailer) -> Vec<u8> {
    let link = ethernet::Header { destination: MacAddr([2; 6]), source: MacAddr([6; 6]), ether_type: 0 };
    let ip = ipv4::Header { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..ipv4::Header::new(0) };
    let transport = udp::Header { source_port: 7, destination_port: 9 };
    let payload = [&[0x55, 0x55][..], &trailer.bytes(&Key::default())].concat();
    Frame::new(&[&link, &ip, &transport], &payload).to_vec().unwrap()
}

/// Sends frames of `streams` streams in turn, `flight` nanoseconds before their time stamps.
fn send(mut port: TxPort, streams: u64, flight: u64) {
    let start = now().0;
    let queue = port.queues[0].as_mut();
    let deadline = Instant::now() + Duration::from_secs(20);
    for first in (0..FRAMES).step_by(500) {
        let mut block = Block::new(64 << 10, 500);
        for number in first..first + 500 {
            let time = start + number * GAP;
            let trailer =
                Trailer { stream: (number % streams) as u32, sequence: number / streams, time: time - flight };
            assert!(block.push(&Desc::new(Nanos(time), 0, 60), &datagram(trailer)));
        }
        let mut taken = 0;
        while taken < block.len() {
            taken += queue.send(block.burst().slice(taken..block.len())).unwrap();
            queue.flush(now()).unwrap();
            assert!(Instant::now() < deadline, "the port stays full");
            thread::yield_now();
        }
    }
    while !queue.flush(now()).unwrap() {
        assert!(Instant::now() < deadline, "the port stays full");
    }
}

fn checking() -> CheckConsumer {
    CheckConsumer::new(Check::new(Key::default(), Options::default()), Selection::default())
}

fn open(name: &str, faults: &str) -> (Receive, TxPort) {
    let spec = |text: String| Spec::parse(&text).unwrap();
    let rx = open_rx(&spec(format!("faulty:mem:check-{name}{faults}")), &RxOptions::default()).unwrap();
    let tx = open_tx(&spec(format!("mem:check-{name}")), &TxOptions::default()).unwrap();
    (Receive::all(vec![rx]), tx)
}

fn run(name: &str, faults: &str, streams: u64) -> (CheckReport, CheckSummary) {
    let (receive, tx) = open(name, faults);
    let sender = thread::spawn(move || send(tx, streams, 1000));
    let report = checking().run(receive);
    sender.join().unwrap();
    assert!(report.run.quiesced && report.run.failure.is_none(), "{:?}", report.run.failure);
    let sent = vec![FRAMES / streams; streams as usize];
    let summary = report.check.report(Some(&sent)).summary();
    assert_eq!((summary.streams, summary.counts.sent, summary.foreign), (streams, Some(FRAMES), 0), "{faults}");
    (report, summary)
}

#[test]
fn no_faults_no_findings() {
    let (_, summary) = run("whole", "", 10);
    let counts = summary.counts;
    assert_eq!(
        (counts.received, counts.lost, counts.duplicated, counts.reordered, counts.corrupted),
        (FRAMES, 0, 0, 0, 0)
    );
    assert_eq!(summary.delay.latency_min_ns.zip(summary.delay.latency_max_ns), Some((1000, 1000)));
    assert_eq!(summary.delay.ipdv_max_ns, Some(0));
}

#[test]
fn each_fault_is_reported_exactly() {
    for seed in [3, 4] {
        for (name, faults, streams, count) in [
            ("drop", "drop=2%", 10, Count::FaultDropped),
            ("burst", "burst=0.1%x40", 10, Count::FaultDropped),
            ("repeat", "repeat=3%", 10, Count::FaultRepeated),
            ("reorder", "reorder=2%x5&hold=1s", 1, Count::FaultReordered),
            ("payload", "corrupt=2%x3@42-43", 10, Count::FaultCorrupted),
            ("headers", "corrupt=2%x1@14-41", 10, Count::FaultCorrupted),
            ("trailer", "corrupt=2%x1@44-59", 10, Count::FaultCorrupted),
            ("short", "truncate=2%x50", 10, Count::FaultTruncated),
            ("long", "pad=2%x9", 10, Count::FaultPadded),
        ] {
            let (report, summary) = run(&format!("{name}-{seed}"), &format!("?{faults}&seed={seed}"), streams);
            let planned = report.run.ledger.total(count);
            assert!(planned > 100, "{faults}: only {planned} frames");
            let counts = summary.counts;
            let found = [counts.lost, counts.duplicated, counts.reordered, counts.corrupted, summary.damaged];
            let expected = match name {
                "drop" | "burst" => [planned, 0, 0, 0, 0],
                "repeat" => [0, planned, 0, 0, 0],
                "reorder" => [0, 0, planned, 0, 0],
                "payload" | "headers" => [0, 0, 0, planned, 0],
                "trailer" | "short" => [planned, 0, 0, 0, planned],
                _ => [0; 5],
            };
            assert_eq!(found, expected, "{faults}, seed {seed}");
            assert!(name != "reorder" || counts.reorder_extent >= 5, "{}", counts.reorder_extent);
        }
    }
}

#[test]
fn delay_appears_in_the_latencies() {
    let (_, summary) = run("late", "?delay=3ms", 10);
    let delay = summary.delay;
    assert_eq!(delay.latency_min_ns.zip(delay.latency_max_ns), Some((3_001_000, 3_001_000)));
    assert_eq!(delay.latency_p99_ns, Some(3_001_000), "within the extremes");

    // That link keeps the order, so most frames wait for one with a long delay.
    let (_, summary) = run("delay", "?delay=3ms+-1ms&seed=5", 10);
    let delay = summary.delay;
    let (least, most) = (delay.latency_min_ns.unwrap(), delay.latency_max_ns.unwrap());
    assert!(2_001_000 <= least && least < most && most <= 4_001_000, "{least} to {most}");
    assert!(delay.latency_p50_ns.unwrap() > least && delay.latency_p999_ns.unwrap() <= most);
    assert_eq!(delay.pdv_p999_ns, Some(delay.latency_p999_ns.unwrap() - least));
    assert_eq!((summary.counts.received, summary.counts.reordered, summary.counts.lost), (FRAMES, 0, 0));
}

#[test]
fn all_faults_together_add_up() {
    let faults = "?drop=1%&repeat=1%&reorder=1%x3&corrupt=1%x1@42-43&pad=1%&seed=9";
    let (report, summary) = run("all", faults, 100);
    let (counts, ledger) = (summary.counts, &report.run.ledger);
    assert_eq!(counts.lost, ledger.total(Count::FaultDropped));
    assert_eq!(counts.duplicated, ledger.total(Count::FaultRepeated));
    assert_eq!(counts.received, FRAMES - counts.lost + counts.duplicated);
    assert!(counts.corrupted >= ledger.total(Count::FaultCorrupted), "copies of a corrupted frame are corrupted too");
    assert_eq!(summary.damaged, 0);
}

#[test]
fn parallel_checker_ends_after_the_last_frame() {
    let (receive, tx) = open("parallel", "?drop=1%&seed=2");
    let checker = CheckThread::start(checking(), receive).unwrap();
    let sender = thread::spawn(move || {
        send(tx, 4, 0);
        thread::sleep(Duration::from_secs(2));
    });
    let started = Instant::now();
    while checker.watch().ours() == 0 {
        assert!(started.elapsed() < Duration::from_secs(10), "no frames received");
        thread::sleep(Duration::from_millis(1));
    }
    let report = checker.finish(Some(FRAMES), Duration::from_millis(300), Duration::from_secs(10), &Stop::new());
    let dropped = report.run.ledger.total(Count::FaultDropped);
    assert_eq!(report.check.report(Some(&[FRAMES / 4; 4])).summary().counts.lost, dropped);
    assert!(dropped > 0 && started.elapsed() < Duration::from_secs(5));
    sender.join().unwrap();
}

#[test]
fn hurried_checker_does_not_wait() {
    let (receive, _tx) = open("hurry", "?seed=2");
    let (checker, sender) = (CheckThread::start(checking(), receive).unwrap(), Stop::new());
    sender.force();
    let long = Duration::from_secs(3600);
    let report = checker.finish(Some(FRAMES), long, long, &sender);
    assert_eq!((report.check.ours(), sender.is_requested()), (0, true));
}

#[test]
fn several_queues_are_not_reordering() {
    let spec = |text: &str| Spec::parse(text).unwrap();
    let rx = open_rx(&spec("mem:check-queues@0-3"), &RxOptions::default()).unwrap();
    let mut tx = open_tx(&spec("mem:check-queues@0-3"), &TxOptions::default()).unwrap();
    let start = now().0;
    let sender = thread::spawn(move || {
        for first in (0..FRAMES).step_by(1000) {
            for (lane, queue) in tx.queues.iter_mut().enumerate() {
                let mut block = Block::new(64 << 10, 250);
                for number in (first..first + 1000).filter(|number| number % 4 == lane as u64) {
                    let time = start + number * GAP;
                    let trailer = Trailer { stream: 9, sequence: number, time };
                    assert!(block.push(&Desc::new(Nanos(time), 0, 60), &datagram(trailer)));
                }
                let mut taken = 0;
                while taken < block.len() {
                    taken += queue.send(block.burst().slice(taken..block.len())).unwrap();
                    queue.flush(Nanos(start + first * GAP)).unwrap();
                    thread::yield_now();
                }
            }
        }
    });
    let report = checking().run(Receive::all(vec![rx]));
    sender.join().unwrap();
    let counts = report.check.report(None).summary().counts;
    assert_eq!((counts.received, counts.lost, counts.reordered, counts.stale), (FRAMES, 0, 0, 0));
}

#[test]
fn a_check_without_test_packets_is_not_lossless() {
    let scratch = Scratch::new();
    let (marked, foreign) = (scratch.file("marked.pcap"), scratch.file("foreign.pcap"));
    for (file, more) in [(&marked, &["--stamp"][..]), (&foreign, &[])] {
        let send = ["generate", "-q", "--to", &format!("pcap:{file}"), "-c", "60"];
        program::run(&[&send[..], &["-k", "ip/udp(dport=1..2)"], more].concat()).good();
    }
    program::run(&["check", &marked, "--lossless"]).good();
    let unchecked = program::run(&["check", &foreign, "--lossless"]).with_status(3);
    assert!(unchecked.output.contains("nothing was checked"), "{}", unchecked.output);
    let filtered = program::run(&["check", &marked, "udp port 1"]).good();
    assert!(filtered.output.contains("packets that the filter rejects count as lost"), "{}", filtered.output);
}
