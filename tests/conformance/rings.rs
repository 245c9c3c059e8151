//! Full rings, lanes under load, and options of the ring.

use crate::conformance::backends::{Harness, Veth, receive, transmit};
use crate::conformance::frames::{assert_all_arrived, frames};
use crate::conformance::wire::{PATIENCE, Receiver, send_all};
use linerate_burst::{Count, Flags, Ledger};
use linerate_port::RxOptions;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Two blocks of 64 KiB, the minimum.
const TINY: &str = "&ring=128KiB&block=64KiB";

#[test]
fn frames_lost_to_a_full_ring_are_counted_exactly() {
    for lanes in [1, 2] {
        let Some(veth) = Veth::up(1, Some(lanes)) else { return };
        let mut wire = veth.open_with(&RxOptions::default(), TINY);
        // All on one processor: later frames go to the lane that was full.
        let mut first = CpuSet::new();
        first.set(0);
        sched_setaffinity(None, &first).expect("processor 0");
        wire.send(0, &frames(0, 3000, &[1000]));
        let mut receiver = Receiver::new(std::mem::take(wire.queues()));
        // The ring continues once it is read.
        receiver.run_until(|receiver| receiver.arrived() >= 50);
        let deadline = Instant::now() + PATIENCE;
        let after = receiver.arrived();
        while receiver.arrived() < after + 20 && Instant::now() < deadline {
            wire.send(0, &frames(1, 10, &[1000]));
            receiver.round();
        }
        assert!(receiver.arrived() >= after + 20, "no frame arrives after the ring was full");
        wire.close_sender();
        let outcome = receiver.finish(wire.sent);
        let ledger = &outcome.ledger;
        let total = |count| ledger.total(count);
        assert_eq!(ledger.imbalances(), [], "{ledger:#?}");
        assert_eq!(total(Count::Received), total(Count::Sent), "lanes {lanes}: {ledger:#?}");
        assert_eq!(total(Count::Delivered), outcome.got.len() as u64, "lanes {lanes}");
        assert_eq!(total(Count::RingFull), total(Count::Sent) - total(Count::Delivered), "lanes {lanes}");
        assert!(total(Count::RingFull) > 2000, "lanes {lanes}: {ledger:#?}");
        assert!(total(Count::Freezes) > 0, "lanes {lanes}: {ledger:#?}");
        assert!(outcome.got.iter().any(|got| got.desc.flags.contains(Flags::LOSING)), "lanes {lanes}");
    }
}

/// Eight blocks, each filled and returned many times.
#[test]
fn blocks_are_reused() {
    for lanes in [1, 2] {
        let Some(veth) = Veth::up(1, Some(lanes)) else { return };
        let more = format!("&ring={}&block=64KiB", lanes << 19);
        let wire = veth.open_with(&RxOptions::default(), &more).with_window(64);
        let sent = [frames(0, 8000, &[60, 333, 700])];
        let outcome = wire.exchange(&sent);
        assert_all_arrived(veth.name(), &sent, &outcome.got);
        assert_eq!(outcome.ledger.imbalances(), [], "lanes {lanes}");
        assert_eq!(outcome.ledger.lost(), 0, "lanes {lanes}: {:?}", outcome.ledger.losses());
    }
}

/// Returns the number of frames under load, of those older than a horizon, and the maximum violation.
fn horizon_violations(veth: &Veth, lag: Option<Duration>) -> (usize, u64, Duration) {
    let port = receive(&veth.receiver("right", ""), &RxOptions { lag, ..RxOptions::default() });
    let mut receiver = Receiver::new(port.queues);
    let stop = AtomicBool::new(false);
    let mut senders = transmit(&veth.sender("left"), 2).queues;
    let sent: Vec<_> = (0..2).map(|sender| frames(sender, 128, &[60, 300])).collect();
    thread::scope(|scope| {
        for (queue, list) in senders.iter_mut().zip(&sent) {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    send_all(queue.as_mut(), list);
                    thread::sleep(Duration::from_micros(500));
                }
            });
        }
        let until = Instant::now() + Duration::from_millis(700);
        receiver.run_until(|_| Instant::now() > until);
        stop.store(true, Ordering::Relaxed);
    });
    let outcome = receiver.finish(Ledger::new());
    let broken = outcome.watches.iter().map(|watch| watch.broken).sum();
    let worst = outcome.watches.iter().map(|watch| watch.worst).max().unwrap();
    (outcome.got.len(), broken, worst)
}

#[test]
fn horizons_hold_under_load() {
    let Some(veth) = Veth::up(4, Some(4)) else { return };
    let (frames, broken, worst) = horizon_violations(&veth, None);
    println!("default lag: {broken} of {frames} frames were older than a horizon, at most by {worst:?}");
    // The default assumes that the kernel is scheduled in time; a lag above any pause is a guarantee.
    let (frames, broken, worst) = horizon_violations(&veth, Some(Duration::from_millis(500)));
    assert_eq!(broken, 0, "of {frames} frames, at most by {worst:?}");
    assert!(frames > 1000, "only {frames} frames");
}

/// Uses the default ring.
#[test]
fn default_ring_accepts_the_longest_frames() {
    let Some(veth) = Veth::up(1, None) else { return };
    let text = veth.receiver("right", "").split('&').next().unwrap().to_owned();
    let wire =
        crate::conformance::wire::Wire::live(transmit(&veth.sender("left"), 1), receive(&text, &RxOptions::default()));
    let sent = [frames(0, 200, &[65_549, 60, 21_942])];
    let outcome = wire.exchange(&sent);
    assert_all_arrived(veth.name(), &sent, &outcome.got);
    assert_eq!(outcome.ledger.imbalances(), []);
}

#[test]
fn interface_is_promiscuous_while_open() {
    let Some(veth) = Veth::up(1, Some(2)) else { return };
    let promiscuity = || {
        let shown: serde_json::Value = serde_json::from_str(&veth.ip("right", "-d -j link show dev eth0")).unwrap();
        shown[0]["promiscuity"].as_u64().unwrap()
    };
    for promiscuous in [false, true] {
        let wire = veth.open_with(&RxOptions { promiscuous, ..RxOptions::default() }, "");
        assert_eq!(promiscuity() > 0, promiscuous);
        drop(wire);
        assert_eq!(promiscuity(), 0, "promiscuous after the port was closed");
    }
}
