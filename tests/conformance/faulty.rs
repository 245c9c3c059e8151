//! Any backend behind a faulty wire: without faults it passes the suite, with faults it matches the model exactly.

use crate::conformance::backends::{Can, Fifo, FileWire, Harness, MemWire, Veth, receive, transmit};
use crate::conformance::checks::run;
use crate::conformance::frames::{Frame, frames, origin};
use crate::conformance::model::{self, Expected, expect};
use crate::conformance::wire::{Outcome, PATIENCE, Receiver, Wire, block_of, send_all};
use linerate_backends::faulty::{Faults, receive_through, send_through};
use linerate_burst::{Count, Desc, Horizon, Kind, Ledger, Nanos, Stage};
use linerate_engine::clock::now;
use linerate_port::{RxOptions, RxPort, RxQueue};
use std::thread;
use std::time::{Duration, Instant};

/// Harness with faults after its receiver, before its sender, or both.
pub(super) struct Faulty<H> {
    name: String,
    inner: H,
    rx: Faults,
    tx: Faults,
}

impl<H: Harness> Faulty<H> {
    pub(super) fn new(inner: H, rx: &str, tx: &str) -> Self {
        let (rx, tx) = (Faults::parse(rx).unwrap(), Faults::parse(tx).unwrap());
        Faulty { name: format!("{} and faulty", inner.name()), inner, rx, tx }
    }

    fn wrap(&self, wire: Wire) -> Wire {
        let (rx, tx) = (self.rx.clone(), self.tx.clone());
        wire.map(
            move |port| send_through(port, &tx, "faulty".into()),
            move |port| receive_through(port, &rx, "faulty".into()),
        )
    }
}

impl<H: Harness> Harness for Faulty<H> {
    fn name(&self) -> &str {
        &self.name
    }

    fn can(&self) -> Can {
        Can { cuts: None, ..self.inner.can() }
    }

    fn open(&self, options: &RxOptions) -> Wire {
        self.wrap(self.inner.open(&RxOptions { snap: 0, ..options.clone() }))
    }

    fn open_small(&self) -> Wire {
        self.wrap(self.inner.open_small())
    }

    fn reopen(&self, wire: &Wire) -> RxPort {
        receive_through(self.inner.reopen(wire), &self.rx, "faulty".into())
    }
}

/// Runs the suite without faults, then compares faults on either side with the model.
pub(super) fn run_faulty<H: Harness>(new: impl Fn() -> Option<H>) {
    let Some(harness) = new() else { return };
    run(&Faulty::new(harness, "", ""));
    exact(new);
}

/// Compares with the model. Needs one lane, which numbers the frames.
fn exact<H: Harness>(new: impl Fn() -> Option<H>) {
    for seed in [1, 77] {
        let faults = format!("{}{seed}", model::FAULTS);
        for (rx, tx) in [(faults.as_str(), ""), ("", faults.as_str())] {
            let Some(harness) = new() else { return };
            assert_matches_the_model(&Faulty::new(harness, rx, tx), seed, !rx.is_empty());
        }
    }
}

#[test]
fn faulty_memory() {
    run_faulty(|| Some(MemWire::new("?stamp=keep")));
    run_faulty(|| Some(MemWire::new("?stamp=now")));
    run(&Faulty::new(MemWire::new("@0-3?stamp=now"), "", ""));
}

#[test]
fn faulty_pcap() {
    for format in ["pcap", "pcapng"] {
        run_faulty(|| Some(FileWire::new(format)));
        run_faulty(|| Some(Fifo::new(format)));
    }
}

#[test]
fn faulty_packet() {
    run_faulty(|| Veth::up(1, Some(1)));
    if let Some(veth) = Veth::up(4, None) {
        run(&Faulty::new(veth, "", ""));
    }
}

const LENGTHS: [usize; 5] = [60, 61, 100, 333, 1506];

fn assert_matches_the_model(harness: &dyn Harness, seed: u64, receiving: bool) {
    let sent = frames(0, 4000, &LENGTHS);
    let lengths: Vec<usize> = sent.iter().map(|frame| frame.bytes.len()).collect();
    let expected = expect(seed, &lengths);
    assert!(expected.dropped > 100 && expected.reordered > 100 && expected.corrupted > 50, "{expected:?}");
    let wire = harness.open(&RxOptions { lag: Some(Duration::from_millis(40)), ..RxOptions::default() });
    let outcome = if receiving {
        wire.exchange_until(std::slice::from_ref(&sent), expected.out.len() - expected.at_end)
    } else {
        sent_in_one(wire, &sent, expected.out.len())
    };
    let name = format!("{}, seed {seed}, receiving: {receiving}", harness.name());
    assert_frames(&name, &sent, &expected, &outcome);
    for (lane, watch) in outcome.watches.iter().enumerate().filter(|_| harness.can().ordered_lanes) {
        assert_eq!((watch.broken, watch.back), (0, 0), "{name}: lane {lane}: {watch:?}");
    }
    assert_counts(&name, sent.len() as u64, &expected, &outcome.ledger, receiving);
}

/// Exchanges frames as [`Wire::exchange`] does, then flushes with a time after the longest hold, at which the sender
/// releases its delayed frames.
fn sent_in_one(mut wire: Wire, sent: &[Frame], expected: usize) -> Outcome {
    let mut tx = wire.tx.take().unwrap();
    let first = tx.queues.drain(..).next().unwrap();
    let ledger = thread::spawn({
        let sent = sent.to_vec();
        move || {
            let mut queue = first;
            let block = block_of(&sent);
            let (mut taken, mut time) = (0, now());
            let deadline = Instant::now() + PATIENCE;
            while taken < sent.len() {
                taken += queue.send(block.burst().slice(taken..(taken + 50).min(sent.len()))).unwrap();
                queue.flush(time).unwrap();
                assert!(Instant::now() < deadline, "the wire stays full");
                thread::sleep(Duration::from_micros(300));
            }
            time = Nanos(time.0 + 61_000_000_000);
            while !queue.flush(time).unwrap() {
                assert!(Instant::now() < deadline, "delayed frames are not sent");
                thread::sleep(Duration::from_micros(100));
            }
            let mut ledger = Ledger::new();
            queue.counters(&mut ledger);
            ledger
        }
    });
    if wire.is_late() {
        let deadline = Instant::now() + PATIENCE;
        while !ledger.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }
    let mut receiver = Receiver::new(std::mem::take(wire.queues()));
    receiver.run_until(|receiver| receiver.arrived() >= expected || receiver.is_over());
    receiver.finish(ledger.join().unwrap())
}

fn assert_frames(name: &str, sent: &[Frame], expected: &Expected, outcome: &Outcome) {
    let number = |bytes: &[u8]| origin(bytes).unwrap_or_else(|| panic!("{name}: an unknown frame")).1;
    // Only the first 60 bytes: the shortest frames may have padding after them.
    let bits = |bytes: &[u8]| -> u32 {
        let whole = &sent[number(bytes) as usize].bytes;
        whole.iter().zip(bytes).take(60).map(|(sent, got)| (sent ^ got).count_ones()).sum()
    };
    let got: Vec<(u32, usize, u32)> =
        outcome.got.iter().map(|got| (number(&got.bytes), got.bytes.len(), bits(&got.bytes))).collect();
    let differs = got.iter().zip(&expected.out).position(|(got, expected_frame)| got != expected_frame);
    if let Some(at) = differs {
        panic!("{name}: frame {at} is {:?}, not {:?}", got[at], expected.out[at]);
    }
    assert_eq!(got.len(), expected.out.len(), "{name}");
    let lengths = |desc: &Desc| desc.captured == desc.wire;
    assert!(outcome.got.iter().all(|got| lengths(&got.desc)), "{name}: a frame is truncated");
}

fn assert_counts(name: &str, sent: u64, expected: &Expected, ledger: &Ledger, receiving: bool) {
    use Count::*;
    let counts = if receiving {
        [FaultDropped, FaultRepeated, FaultReordered, FaultCorrupted, FaultTruncated, FaultPadded]
    } else {
        [
            SendFaultDropped,
            SendFaultRepeated,
            SendFaultReordered,
            SendFaultCorrupted,
            SendFaultTruncated,
            SendFaultPadded,
        ]
    };
    let Expected { dropped, repeated, reordered, corrupted, truncated, padded, .. } = *expected;
    let counted = counts.map(|count| ledger.total(count));
    assert_eq!(counted, [dropped, repeated, reordered, corrupted, truncated, padded], "{name}");
    assert_eq!(ledger.imbalances(), [], "{name}: {ledger:#?}");
    assert_eq!(ledger.lost(), 0, "{name}");
    let stage = if receiving { Stage::Receive } else { Stage::Send };
    assert_eq!(ledger.sum(stage, Kind::Received), sent + repeated, "{name}");
    assert_eq!(ledger.sum(stage, Kind::Refused), dropped, "{name}");
    assert_eq!(ledger.sum(stage, Kind::Delivered), expected.out.len() as u64, "{name}");
    assert_eq!(ledger.sum(Stage::Receive, Kind::Delivered), expected.out.len() as u64, "{name}");
}

#[test]
fn faulty_prefix_adds_faults_to_a_port() {
    let wire = MemWire::new("");
    let mut tx = transmit(wire.name(), 1);
    let mut rx = receive(&format!("faulty:{}?drop=100%&blocks=2", wire.name()), &RxOptions::default());
    send_all(tx.queues[0].as_mut(), &frames(0, 10, &[60]));
    drop(tx);
    let queue = &mut rx.queues[0];
    let head = queue.fill(now()).unwrap();
    assert_eq!((head.burst.len(), head.horizon), (0, Horizon::Ended));
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!((ledger.total(Count::FaultDropped), ledger.total(Count::Received)), (10, 10));
    assert_eq!(ledger.imbalances(), []);
    assert!(ledger.accounts()[0].subject.starts_with("faulty:mem:"), "{ledger:?}");
}

fn times(queue: &mut dyn RxQueue, at: Nanos) -> (Vec<Nanos>, Nanos) {
    let head = queue.fill(at).unwrap();
    (head.burst.descs().iter().map(|desc| desc.time).collect(), head.horizon.time())
}

/// A delayed frame is delivered when due, with its timestamp moved, and the horizon never passes it.
#[test]
fn delay_moves_timestamps_and_horizon() {
    let wire = MemWire::new("?stamp=now");
    let mut tx = transmit(wire.name(), 1);
    let mut rx = receive(&format!("faulty:{}&delay=20ms", wire.name()), &RxOptions::default());
    let (queue, start) = (rx.queues[0].as_mut(), now());
    let later = |ms: u64| start.after(Duration::from_millis(ms));
    tx.queues[0].send(block_of(&frames(0, 3, &[60])).burst()).unwrap();
    assert!(tx.queues[0].flush(start).unwrap());
    assert_eq!(times(queue, start), (vec![], later(20)));
    assert_eq!(queue.wake().map(|_| ()), None, "a port with a delay needs polling");
    tx.queues[0].flush(later(19)).unwrap();
    assert_eq!(times(queue, later(19)), (vec![], later(20)));
    tx.queues[0].flush(later(20)).unwrap();
    assert_eq!(times(queue, later(20)), (vec![later(20); 3], later(40)));
    queue.consume(3);
    tx.queues[0].send(block_of(&frames(0, 1, &[60])).burst()).unwrap();
    tx.queues[0].flush(later(50)).unwrap();
    assert_eq!(times(queue, later(50)).0, []);
    // Delays end at a detach.
    queue.detach();
    let deadline = Instant::now() + PATIENCE;
    while times(queue, later(50)).0.is_empty() {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(times(queue, later(50)), (vec![later(70)], Nanos::MAX));
}

/// Frames of a sender are delayed from the next flush, and are unsent until then.
#[test]
fn sender_delays_from_the_flush() {
    let wire = MemWire::new("?stamp=now");
    let mut rx = receive(wire.name(), &RxOptions::default());
    let mut tx = transmit(&format!("faulty:{}&delay=5ms", wire.name()), 1);
    let (queue, start) = (tx.queues[0].as_mut(), now());
    let later = |ms: u64| start.after(Duration::from_millis(ms));
    queue.send(block_of(&frames(0, 3, &[60])).burst()).unwrap();
    for (ms, left) in [(0, false), (4, false), (5, true)] {
        assert_eq!(queue.flush(later(ms)).unwrap(), left, "{ms} ms");
        let mut ledger = Ledger::new();
        queue.counters(&mut ledger);
        assert_eq!(ledger.total(Count::SendUnsent), if left { 0 } else { 3 }, "{ms} ms");
        assert_eq!((queue.sent().frames, ledger.imbalances()), (if left { 3 } else { 0 }, vec![]), "{ms} ms");
    }
    assert_eq!(times(rx.queues[0].as_mut(), later(5)).0, vec![later(5); 3]);
}

/// Delayed frames that no frame passes: the horizon waits, and they are delivered with the time of their release.
#[test]
fn frame_that_no_frame_passes_is_delivered_after_the_hold() {
    let wire = MemWire::new("?stamp=now");
    let mut tx = transmit(wire.name(), 1);
    let mut rx = receive(&format!("faulty:{}&reorder=100%x3&hold=10ms", wire.name()), &RxOptions::default());
    let (queue, start) = (rx.queues[0].as_mut(), now());
    let later = |ms: u64| start.after(Duration::from_millis(ms));
    tx.queues[0].send(block_of(&frames(0, 2, &[60])).burst()).unwrap();
    for ms in [0, 9, 10] {
        tx.queues[0].flush(later(ms)).unwrap();
        assert_eq!(times(queue, later(ms)), (vec![], start), "{ms} ms");
    }
    tx.queues[0].flush(later(11)).unwrap();
    assert_eq!(times(queue, later(11)), (vec![later(10); 2], later(11)));
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!(ledger.total(Count::FaultReordered), 0, "no frame passed them");
}

/// Memory is bounded: at the limit the wire fills up, and no frame is lost.
#[test]
fn delayed_frames_are_bounded() {
    let wire = MemWire::new("?stamp=now&blocks=4");
    let mut tx = transmit(wire.name(), 1);
    let mut rx = receive(&format!("faulty:{}&delay=60s", wire.name()), &RxOptions::default());
    let list = frames(0, 300, &[1514]);
    let block = block_of(&list);
    let (mut sent, mut stuck, start) = (0, 0, now());
    while stuck < 100 {
        let taken = tx.queues[0].send(block.burst()).unwrap();
        tx.queues[0].flush(start).unwrap();
        assert_eq!(times(rx.queues[0].as_mut(), start).0, []);
        sent += taken;
        stuck = if taken == 0 { stuck + 1 } else { 0 };
    }
    // 64 MiB and the capacity of the wire.
    assert!((40_000..50_000).contains(&sent), "{sent}");
    let mut got = 0;
    for _ in 0..10_000 {
        tx.queues[0].flush(start).unwrap();
        let shown = times(rx.queues[0].as_mut(), start.after(Duration::from_secs(61))).0.len();
        rx.queues[0].consume(shown);
        got += shown;
    }
    assert_eq!(got, sent);
}

#[test]
fn faults_and_options_of_the_port_are_distinguished() {
    for (text, parts) in [
        ("faulty:mem:x?drop=lots", &["faulty:mem:x", "drop=lots", "0.1%"][..]),
        ("faulty:mem:x?speed=1", &["mem:x", "speed", "stamp, blocks"]),
        ("faulty:mem:x?port.drop=1%", &["mem:x", "unknown option \"drop\""]),
        ("faulty:nosuch:x?drop=1%", &["unknown backend \"nosuch\""]),
        ("faulty:mem:?drop=1%", &["missing port"]),
    ] {
        crate::conformance::errors::assert_refused(text, false, parts);
        crate::conformance::errors::assert_refused(text, true, parts);
    }
}
