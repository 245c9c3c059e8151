//! Interfaces with link down, link up and removal, and frames that cannot be sent.

use crate::conformance::backends::{Harness, Veth};
use crate::conformance::frames::{Frame, frame, frames, origin};
use crate::conformance::wire::{PATIENCE, PAUSE, Wire, block_of};
use linerate_burst::{Count, Horizon, Ledger};
use linerate_engine::clock::now;
use linerate_port::{PortError, RxOptions, RxQueue};
use std::thread;
use std::time::{Duration, Instant};

/// Fills until a nonempty burst or an error, for at most [`PATIENCE`].
fn next_event(queue: &mut dyn RxQueue) -> Result<usize, PortError> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let shown = queue.fill(now())?.burst.len();
        if shown > 0 {
            return Ok(shown);
        }
        thread::sleep(PAUSE);
    }
    panic!("no event");
}

/// Fills for this time, and returns the first error.
fn quiet_for(queue: &mut dyn RxQueue, time: Duration) -> Result<(), PortError> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        queue.fill(now())?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns a pair for each backend and mode of receiving.
fn receivers(packet_lanes: &[usize]) -> impl Iterator<Item = Veth> {
    let packet = packet_lanes.iter().copied().filter_map(|lanes| Veth::up(1, Some(lanes)));
    let modes = ["&mode=native", "&mode=generic"].into_iter();
    packet.chain(modes.filter_map(|mode| Some(Veth::up(1, None)?.using("packet", "xdp", mode))))
}

/// Returns a pair for each backend of sending.
fn senders() -> impl Iterator<Item = Veth> {
    let schemes = ["packet", "xdp"].into_iter();
    schemes.filter_map(|scheme| Some(Veth::up(1, Some(1))?.using(scheme, "packet", "")))
}

fn counters(queue: &dyn RxQueue) -> Ledger {
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    ledger
}

#[test]
fn receiver_reports_link_down_once_and_resumes_after_up() {
    for veth in receivers(&[1, 2]) {
        let mut wire = veth.open(&RxOptions::default());
        for round in 1..=2 {
            veth.ip("right", "link set eth0 down");
            for queue in wire.queues() {
                let event = next_event(queue.as_mut());
                assert!(matches!(event, Err(PortError::Down { .. })), "{}: {event:?}", veth.name());
                quiet_for(queue.as_mut(), Duration::from_millis(60)).expect("one report per link down");
                assert_eq!(counters(queue.as_ref()).total(Count::LinkDown), round);
            }
            veth.ip("right", "link set eth0 up");
            wire.send(0, &frames(0, 10, &[60]));
            wire.wait_for(10);
            for queue in wire.queues() {
                let shown = queue.fill(now()).unwrap().burst.len();
                queue.consume(shown);
                quiet_for(queue.as_mut(), Duration::from_millis(30)).expect("no error after link up");
            }
        }
    }
}

#[test]
fn frames_before_link_down_are_delivered_first() {
    for veth in receivers(&[1]) {
        let mut wire = veth.open(&RxOptions::default());
        wire.send(0, &frames(0, 10, &[60]));
        veth.ip("right", "link set eth0 down");
        thread::sleep(Duration::from_millis(30));
        let name = veth.name();
        let queue = &mut wire.queues()[0];
        let event = next_event(queue.as_mut());
        assert!(matches!(event, Ok(10)), "{name}: {event:?}");
        queue.consume(10);
        assert!(matches!(next_event(queue.as_mut()), Err(PortError::Down { .. })));
    }
}

/// Checks that each queue reports the removal of its interface, and ends after a detach.
fn assert_ends(wire: &mut Wire, subject: &str) {
    for queue in wire.queues() {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            match queue.fill(now()) {
                Err(PortError::Broken { reason, .. }) => {
                    assert!(reason.contains("removed"), "{subject}: {reason}");
                    break;
                }
                Ok(_) | Err(PortError::Down { .. }) => {
                    assert!(Instant::now() < deadline, "{subject}: removal not reported")
                }
                Err(error) => panic!("{subject}: {error}"),
            }
            thread::sleep(PAUSE);
        }
        queue.detach();
        let deadline = Instant::now() + Duration::from_secs(2);
        while !matches!(queue.fill(now()), Ok(head) if head.horizon == Horizon::Ended) {
            assert!(Instant::now() < deadline, "{subject}: does not end when detached");
            thread::sleep(PAUSE);
        }
    }
}

#[test]
fn receiver_ends_when_its_interface_is_removed() {
    for veth in receivers(&[1, 2]) {
        let mut wire = veth.open(&RxOptions::default());
        veth.ip("right", "link del eth0");
        assert_ends(&mut wire, veth.name());
    }
}

#[test]
fn frames_before_a_removal_are_delivered_first() {
    for veth in receivers(&[1]) {
        let mut wire = veth.open(&RxOptions::default());
        wire.send(0, &frames(0, 100, &[60]));
        veth.ip("right", "link del eth0");
        let name = veth.name();
        let queue = &mut wire.queues()[0];
        let (mut shown, deadline) = (0, Instant::now() + PATIENCE);
        loop {
            assert!(Instant::now() < deadline, "removal not reported");
            match queue.fill(now()).map(|head| head.burst.len()) {
                Ok(frames) => {
                    queue.consume(frames);
                    shown += frames;
                }
                Err(PortError::Broken { reason, .. }) if reason.contains("removed") => break,
                Err(PortError::Down { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(shown, 100, "{name}: {:#?}", counters(queue.as_ref()));
    }
}

#[test]
fn receiver_ends_when_its_interface_is_removed_after_link_down() {
    for veth in receivers(&[1]) {
        let mut wire = veth.open(&RxOptions::default());
        veth.ip("right", "link set eth0 down");
        assert!(matches!(next_event(wire.queues()[0].as_mut()), Err(PortError::Down { .. })));
        veth.ip("right", "link del eth0");
        assert_ends(&mut wire, veth.name());
    }
}

#[test]
fn receiver_ends_when_its_interface_changes_namespace() {
    for veth in receivers(&[1]) {
        let mut wire = veth.open(&RxOptions::default());
        let left = veth.lab().host("left").unwrap().to_owned();
        veth.ip("right", &format!("link set eth0 netns {left} name moved"));
        assert_ends(&mut wire, veth.name());
    }
}

fn send(wire: &mut Wire, frames: &[Frame]) -> Result<usize, PortError> {
    wire.tx.as_mut().unwrap().queues[0].send(block_of(frames).burst())
}

#[test]
fn sender_reports_link_down_and_resumes_after_up() {
    for veth in senders() {
        let mut wire = veth.open(&RxOptions::default());
        let list = frames(0, 10, &[60]);
        veth.ip("left", "link set eth0 down");
        for _ in 0..2 {
            let event = send(&mut wire, &list);
            assert!(matches!(event, Err(PortError::Down { .. })), "{event:?}");
        }
        veth.ip("left", "link set eth0 up");
        wire.send(0, &list);
        wire.wait_for(10);
        wire.close_sender();
        assert_eq!((wire.sent.total(Count::Sent), wire.sent.total(Count::SendReceived)), (10, 10));
        assert_eq!(wire.sent.imbalances(), []);
    }
}

#[test]
fn sender_without_carrier_reports_link_down() {
    for veth in senders() {
        let mut wire = veth.open(&RxOptions::default());
        veth.ip("right", "link set eth0 down");
        assert!(matches!(next_event(wire.queues()[0].as_mut()), Err(PortError::Down { .. })));
        let list = frames(0, 10, &[60]);
        // The kernel may report the carrier up to a second late; until then the queue is full, or frames are dropped
        // and counted.
        let deadline = Instant::now() + PATIENCE;
        let mut event = send(&mut wire, &list);
        while event.is_ok() && Instant::now() < deadline {
            thread::sleep(PAUSE);
            event = send(&mut wire, &list);
        }
        assert!(matches!(event, Err(PortError::Down { .. })), "{event:?}");
        veth.ip("right", "link set eth0 up");
        wire.send(0, &list);
        let sent = wire.tx.as_ref().unwrap().queues[0].sent().frames;
        assert!(sent >= 10);
        // The driver itself counts frames that it drops when its carrier returns.
        wire.wait_for(10);
        wire.close_sender();
        assert_eq!(wire.sent.total(Count::Sent), sent, "{}: {:#?}", veth.name(), wire.sent);
        assert_eq!(wire.sent.imbalances(), []);
    }
}

/// Returns true if the kernel reports a carrier.
fn has_carrier(veth: &Veth, host: &str) -> bool {
    let shown: serde_json::Value = serde_json::from_str(&veth.ip(host, "-j link show dev eth0")).unwrap();
    shown[0]["operstate"] == "UP"
}

#[test]
fn frames_dropped_without_carrier_are_not_counted_as_sent() {
    let Some(veth) = Veth::up(1, Some(1)) else { return };
    let veth = veth.using("xdp", "packet", "");
    let mut wire = veth.open(&RxOptions::default());
    veth.ip("right", "link set eth0 down");
    let deadline = Instant::now() + PATIENCE;
    while has_carrier(&veth, "left") && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    assert_eq!(send(&mut wire, &frames(0, 10, &[60])).unwrap(), 10);
    for _ in 0..20 {
        let event = send(&mut wire, &frames(1, 1, &[60]));
        assert!(matches!(event, Err(PortError::Down { .. })), "{event:?}");
    }
    assert!(wire.tx.as_mut().unwrap().queues[0].flush(now()).unwrap());
    wire.close_sender();
    let count = |count| wire.sent.total(count);
    assert_eq!((count(Count::SendReceived), count(Count::Sent), count(Count::SendDropped)), (10, 0, 10));
}

#[test]
fn sender_ends_when_its_interface_is_removed() {
    for veth in senders() {
        let mut wire = veth.open(&RxOptions::default());
        veth.ip("left", "link del eth0");
        let event = send(&mut wire, &frames(0, 10, &[60]));
        assert!(matches!(&event, Err(PortError::Broken { reason, .. }) if reason.contains("removed")), "{event:?}");
    }
}

#[test]
fn frames_that_cannot_be_sent_are_counted_and_others_sent() {
    for scheme in ["packet", "xdp"] {
        let Some(veth) = Veth::with("left:eth0,right:eth0", Some(1)) else { return };
        let veth = veth.using(scheme, "packet", "");
        let mut wire = veth.open(&RxOptions::default());
        let list: Vec<Frame> = (0..60)
            .map(|number| match number % 6 {
                1 => frame(0, number, 1515),
                2 => frame(0, number, 9014),
                4 => Frame { bytes: frame(0, number, 14).bytes[..13].to_vec(), ..frame(0, number, 14) },
                _ => frame(0, number, 1514),
            })
            .collect();
        wire.send(0, &list);
        wire.wait_for(30);
        let head = wire.queues()[0].fill(now()).unwrap();
        let numbers: Vec<u32> = head.burst.iter().map(|(_, bytes)| origin(bytes).unwrap().1).collect();
        let expected: Vec<u32> = (0..60).filter(|number| matches!(number % 6, 0 | 3 | 5)).collect();
        assert_eq!(numbers, expected);
        wire.close_sender();
        let count = |count| wire.sent.total(count);
        assert_eq!((count(Count::SendReceived), count(Count::Sent)), (60, 30));
        assert_eq!((count(Count::TooLong), count(Count::TooShort), count(Count::SendRefused)), (20, 10, 0));
        assert_eq!(wire.sent.imbalances(), []);
    }
}
