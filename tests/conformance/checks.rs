//! Checks that run against every backend.

use crate::conformance::backends::Harness;
use crate::conformance::frames::{CUSTOMER, Frame, SERVICE, assert_all_arrived, frame, frames, origin, tagged};
use crate::conformance::wire::{Outcome, PATIENCE, PAUSE, Receiver, Wire, add, block_of};
use linerate_burst::Kind;
use linerate_burst::{Count, Desc, Flags, Horizon, Ledger, LinkType, Stage};
use linerate_engine::clock::now;
use linerate_port::RxOptions;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

type Check = (&'static str, fn(&dyn Harness));

const CHECKS: &[Check] = &[
    ("frames arrive once and in order", frames_arrive_once_and_in_order),
    ("frames of every length arrive", frames_of_every_length_arrive),
    ("timestamps are those of the backend", timestamps_are_those_of_the_backend),
    ("snap cuts captured and not wire", snap_cuts_captured_and_not_wire),
    ("VLAN tags arrive as sent", vlan_tags_arrive_as_sent),
    ("fill returns unconsumed frames again", fill_returns_unconsumed_frames_again),
    ("visible frames are bounded", visible_frames_are_bounded),
    ("consuming more than visible panics", consuming_more_than_visible_panics),
    ("the horizon of an idle lane advances", horizon_of_an_idle_lane_advances),
    ("a detached queue delivers received frames and ends", detached_queue_delivers_received_frames_and_ends),
    ("an immediate detach leaves no frame uncounted", immediate_detach_leaves_no_frame_uncounted),
    ("back pressure loses no frame", back_pressure_loses_no_frame),
    ("ports open and close many times", ports_open_and_close_many_times),
    ("a receiver is replaced", receiver_is_replaced),
    ("poll returns when frames are ready", poll_returns_when_frames_are_ready),
];

/// Number of times that a port is opened and closed.
const REOPENED: u32 = 50;
/// Number of times that a receiver is replaced: more than memory has blocks.
const REPLACED: u32 = 12;

/// Runs every check and reports those that failed.
pub(super) fn run(harness: &dyn Harness) {
    let failed = CHECKS.iter().filter(|(name, check)| {
        let start = Instant::now();
        let failed = catch_unwind(AssertUnwindSafe(|| check(harness))).is_err();
        println!("{}: {name}: {} in {:?}", harness.name(), if failed { "FAILED" } else { "ok" }, start.elapsed());
        failed
    });
    let failed: Vec<&str> = failed.map(|(name, _)| *name).collect();
    assert!(failed.is_empty(), "{}: failed: {}", harness.name(), failed.join("; "));
}

fn open(harness: &dyn Harness) -> Wire {
    harness.open(&RxOptions::default())
}

/// Opens a wire for frames over several lanes, with a lag above the pauses of a busy machine, so that no frame is late.
fn open_with_lag(harness: &dyn Harness) -> Wire {
    harness.open(&RxOptions { lag: Some(Duration::from_millis(40)), ..RxOptions::default() })
}

/// Checks the invariants of every exchange: the lanes kept their contract and the ledger balances.
fn assert_invariants(harness: &dyn Harness, sent: &[Vec<Frame>], outcome: &Outcome) {
    let (name, can) = (harness.name(), harness.can());
    for (lane, watch) in outcome.watches.iter().enumerate() {
        assert!(!can.ordered_lanes || watch.back == 0, "{name}: lane {lane}: timestamps went backwards: {watch:?}");
        assert!(watch.broken == 0 || !can.ordered_lanes, "{name}: lane {lane}: violated its horizon: {watch:?}");
    }
    assert_ledger(name, sent.iter().map(Vec::len).sum(), outcome.got.len(), &outcome.ledger);
    assert!(outcome.drained_in < Duration::from_secs(1), "{name}: drained in {:?}", outcome.drained_in);
    assert_eq!(outcome.interfaces.len(), 1, "{name}");
    assert_eq!(outcome.interfaces[0].link, LinkType::ETHERNET, "{name}");
}

/// Checks that all frames sent are received and delivered without loss, in each account and in total.
pub(super) fn assert_ledger(name: &str, sent: usize, delivered: usize, ledger: &Ledger) {
    assert_eq!(ledger.imbalances(), [], "{name}: {ledger:#?}");
    assert_eq!(ledger.lost(), 0, "{name}: {:?}", ledger.losses());
    let count = |stage, kind| ledger.sum(stage, kind) as usize;
    assert_eq!(count(Stage::Send, Kind::Received), sent, "{name}: {ledger:#?}");
    assert_eq!(count(Stage::Send, Kind::Delivered), sent, "{name}: {ledger:#?}");
    assert_eq!(count(Stage::Receive, Kind::Received), sent, "{name}: {ledger:#?}");
    assert_eq!(count(Stage::Receive, Kind::Delivered), delivered, "{name}: {ledger:#?}");
}

fn frames_arrive_once_and_in_order(harness: &dyn Harness) {
    let lengths = [14, 15, 59, 60, 61, 64, 100, 333, 1514];
    let senders = harness.can().senders as u8;
    let sent: Vec<Vec<Frame>> = (0..senders).map(|sender| frames(sender, 12_000, &lengths)).collect();
    let outcome = open_with_lag(harness).exchange(&sent);
    assert_all_arrived(harness.name(), &sent, &outcome.got);
    assert_invariants(harness, &sent, &outcome);
    if harness.can().keeps_times {
        let in_time = outcome.got.is_sorted_by_key(|got| got.desc.time);
        assert!(in_time, "{}: merged frames are not in time order", harness.name());
    }
}

fn frames_of_every_length_arrive(harness: &dyn Harness) {
    let lengths = [14, 15, 59, 60, 61, 64, 1514, 9014, 21_942, 65_549, linerate_burst::MAX_FRAME];
    let lengths: Vec<usize> = lengths.into_iter().filter(|length| *length <= harness.can().longest).collect();
    let sent = [frames(0, 3 * lengths.len() as u32, &lengths)];
    let outcome = open_with_lag(harness).exchange(&sent);
    assert_all_arrived(harness.name(), &sent, &outcome.got);
    assert_invariants(harness, &sent, &outcome);
    for got in &outcome.got {
        let flags = got.desc.flags.without(Flags::CHECKSUM_VALID | Flags::JOINED);
        assert_eq!(flags, Flags::NONE, "{}: a frame of {} bytes", harness.name(), got.bytes.len());
    }
}

fn timestamps_are_those_of_the_backend(harness: &dyn Harness) {
    let sent = [frames(0, 500, &[60])];
    let before = now();
    let outcome = open(harness).exchange(&sent);
    let after = now();
    for got in &outcome.got {
        let (_, number) = origin(&got.bytes).unwrap();
        let time = got.desc.time;
        if harness.can().keeps_times {
            assert_eq!(time, sent[0][number as usize].time, "{}: frame {number}", harness.name());
        } else {
            assert!(before <= time && time <= after, "{}: {before} <= {time} <= {after}", harness.name());
        }
    }
    assert_eq!(outcome.got.len(), 500, "{}", harness.name());
}

fn snap_cuts_captured_and_not_wire(harness: &dyn Harness) {
    let sent = [frames(0, 300, &[14, 60, 64, 65, 1514])];
    for snap in [64u32, 14, 1] {
        let wire = harness.open(&RxOptions { snap, ..RxOptions::default() });
        let outcome = wire.exchange(&sent);
        assert_eq!(outcome.got.len(), 300, "{}: snap {snap}", harness.name());
        for (got, frame) in outcome.got.iter().zip(&sent[0]) {
            let length = frame.bytes.len();
            let kept = harness.can().cuts.map_or(length, |least| length.min((snap as usize).max(least)));
            let lengths = (got.desc.captured as usize, got.desc.wire as usize);
            assert_eq!(lengths, (kept, length), "{}: snap {snap}", harness.name());
            assert!(got.bytes == frame.bytes[..kept], "{}: snap {snap}", harness.name());
        }
    }
}

fn vlan_tags_arrive_as_sent(harness: &dyn Harness) {
    let stacks: [&[(u16, u16)]; 7] = [
        &[(CUSTOMER, 42)],
        &[(SERVICE, 0x2fff)],
        &[(SERVICE, 100), (CUSTOMER, 200)],
        &[(CUSTOMER, 1), (CUSTOMER, 4095)],
        &[(CUSTOMER, 0x6000)],
        &[(CUSTOMER, 0)],
        &[(SERVICE, 1), (CUSTOMER, 2), (CUSTOMER, 3)],
    ];
    // The kernel drops tagged frames of less than 20 bytes (skb_vlan_untag).
    let lengths = [26, 46, 64, 1514, 1518];
    let tag = |number: u32| {
        let number = number as usize;
        tagged(0, number as u32, lengths[number / stacks.len() % lengths.len()], stacks[number % stacks.len()])
    };
    let sent = [(0..70).map(tag).collect::<Vec<_>>()];
    let outcome = open_with_lag(harness).exchange(&sent);
    assert_all_arrived(harness.name(), &sent, &outcome.got);
    assert_invariants(harness, &sent, &outcome);
    let restored = harness.can().restores_vlan;
    let flagged = outcome.got.iter().filter(|got| got.desc.flags.contains(Flags::VLAN_RESTORED)).count();
    assert_eq!(flagged, if restored { 70 } else { 0 }, "{}", harness.name());
    assert_eq!(outcome.ledger.total(Count::VlanRestored), flagged as u64, "{}", harness.name());
}

/// Returns a copy of the frames that a queue shows.
fn shown(wire: &mut Wire, lane: usize) -> Vec<(Desc, Vec<u8>)> {
    let head = wire.queues()[lane].fill(now()).unwrap();
    head.burst.iter().map(|(desc, bytes)| (*desc, bytes.to_vec())).collect()
}

fn fill_returns_unconsumed_frames_again(harness: &dyn Harness) {
    let name = harness.name();
    let mut wire = open(harness);
    let sent = frames(0, 40, &[14, 60, 90, 1514]);
    wire.send(0, &sent);
    wire.wait_for(40);
    let mut left: Vec<(u8, u32)> = (0..40).map(|number| (0, number)).collect();
    for lane in 0..wire.queues().len() {
        let first = shown(&mut wire, lane);
        assert_eq!(shown(&mut wire, lane), first, "{name}: after fill without consume");
        let taken = first.len() / 3;
        wire.queues()[lane].consume(taken);
        // A backend may move its memory between two calls, so offsets differ.
        let rest = |list: &[(Desc, Vec<u8>)]| -> Vec<(Desc, Vec<u8>)> {
            list.iter().map(|(desc, bytes)| (Desc { offset: 0, ..*desc }, bytes.clone())).collect()
        };
        assert_eq!(rest(&shown(&mut wire, lane)), rest(&first[taken..]), "{name}: after partial consume");
        wire.queues()[lane].consume(0);
        assert_eq!(shown(&mut wire, lane).len(), first.len() - taken, "{name}: after consuming no frame");
        wire.queues()[lane].consume(first.len() - taken);
        assert!(shown(&mut wire, lane).is_empty(), "{name}: after consuming all frames");
        left.retain(|origin_of| !first.iter().any(|(_, bytes)| origin(bytes) == Some(*origin_of)));
    }
    assert!(left.is_empty(), "{name}: not delivered by any lane: {left:?}");
}

/// The number of visible frames stays bounded for a reader that consumes slowly.
fn visible_frames_are_bounded(harness: &dyn Harness) {
    let mut wire = open(harness);
    // Within the capacity of every backend without a receiver: a pipe has 64 KiB, memory 8 blocks.
    let count = if harness.can().live { 480 } else { 10_000 };
    wire.send(0, &frames(0, count as u32, &[60]));
    let mut max_shown = 0;
    let deadline = Instant::now() + PATIENCE;
    let mut taken = 0;
    while taken < count && Instant::now() < deadline {
        for queue in wire.queues() {
            let mut previous = usize::MAX;
            loop {
                let shown = queue.fill(now()).unwrap().burst.len();
                max_shown = max_shown.max(shown);
                if shown == previous {
                    break;
                }
                previous = shown;
            }
            let some = previous.min(7);
            queue.consume(some);
            taken += some;
        }
    }
    assert_eq!(taken, count, "{}", harness.name());
    assert!(max_shown <= 2048, "{}: {max_shown} frames visible at once", harness.name());
}

fn consuming_more_than_visible_panics(harness: &dyn Harness) {
    let mut wire = open(harness);
    wire.send(0, &frames(0, 3, &[60]));
    wire.wait_for(3);
    for queue in wire.queues() {
        let shown = queue.fill(now()).unwrap().burst.len();
        let result = catch_unwind(AssertUnwindSafe(|| queue.consume(shown + 1)));
        assert!(result.is_err(), "{}: {} frames consumed, {shown} visible", harness.name(), shown + 1);
        queue.consume(shown);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.consume(1))).is_err(), "{}", harness.name());
    }
}

fn horizon_of_an_idle_lane_advances(harness: &dyn Harness) {
    if !harness.can().idle_horizon {
        return;
    }
    let mut wire = open(harness);
    let mut previous = vec![Horizon::At(linerate_burst::Nanos::ZERO); wire.queues().len()];
    for _ in 0..3 {
        thread::sleep(Duration::from_millis(5));
        let time = now();
        wire.tx.as_mut().unwrap().queues.iter_mut().for_each(|queue| assert!(queue.flush(time).unwrap()));
        for (lane, queue) in wire.queues().iter_mut().enumerate() {
            let horizon = queue.fill(time).unwrap().horizon;
            let lag = time.since(horizon.time());
            assert!(horizon.time() <= time, "{}: lane {lane}: horizon after now", harness.name());
            assert!(lag <= Duration::from_millis(10), "{}: lane {lane}: horizon lags by {lag:?}", harness.name());
            assert!(horizon.time() > previous[lane].time(), "{}: lane {lane}: horizon stalls", harness.name());
            previous[lane] = horizon;
        }
    }
}

fn detached_queue_delivers_received_frames_and_ends(harness: &dyn Harness) {
    let name = harness.name();
    let mut wire = open(harness);
    wire.send(0, &frames(0, 50, &[60]));
    wire.wait_for(50);
    let mut receiver = Receiver::new(std::mem::take(wire.queues()));
    for queue in receiver.queues_mut() {
        queue.detach();
        queue.detach();
    }
    if let Some(tx) = &mut wire.tx {
        // A wire may reject or drop later frames, but the receiver must not deliver them.
        if harness.can().live && !name.starts_with("pcap") {
            let _ = tx.queues[0].send(block_of(&[frame(0, 50, 60)]).burst());
            let _ = tx.queues[0].flush(now());
        }
    }
    receiver.run_until(Receiver::is_over);
    assert!(receiver.is_over(), "{name}: detached lanes do not end");
    receiver.round();
    assert!(receiver.is_over(), "{name}: a lane delivers frames after its end");
    let outcome = receiver.finish(Ledger::new());
    assert_eq!(outcome.got.len(), 50, "{name}");
    assert_eq!(outcome.ledger.imbalances(), [], "{name}");
    let received = outcome.ledger.sum(Stage::Receive, Kind::Received);
    assert_eq!(received, 50, "{name}: frames after the detach are counted");
}

/// Frames in flight at the detach are delivered, counted as lost (the ring is small), or never counted as received.
fn immediate_detach_leaves_no_frame_uncounted(harness: &dyn Harness) {
    for _ in 0..10 {
        let mut wire = harness.open_small();
        wire.send(0, &frames(0, 20, &[60]));
        let outcome = Receiver::new(std::mem::take(wire.queues())).finish(Ledger::new());
        let received = outcome.ledger.sum(Stage::Receive, Kind::Received);
        assert_eq!(
            received,
            outcome.got.len() as u64 + outcome.ledger.lost(),
            "{}: {:#?}",
            harness.name(),
            outcome.ledger
        );
        assert_eq!(outcome.ledger.imbalances(), [], "{}", harness.name());
    }
}

fn back_pressure_loses_no_frame(harness: &dyn Harness) {
    if !harness.can().back_pressure {
        return;
    }
    let name = harness.name();
    let mut wire = open(harness);
    let sent = frames(0, 60_000, &[60, 1514]);
    let block = block_of(&sent);
    let queues = &mut wire.tx.as_mut().unwrap().queues;
    // Lanes without a sender have ended and block no other lane.
    queues.truncate(1);
    let queue = &mut queues[0];
    let mut taken = 0;
    // A full wire returns 0 twice: for the block being filled, and for those on the wire.
    for _ in 0..100 {
        taken += queue.send(block.burst().slice(taken..sent.len())).unwrap();
        queue.flush(now()).unwrap();
    }
    assert!(0 < taken && taken < sent.len(), "{name}: {taken} frames were accepted without a receiver");
    assert_eq!(queue.send(block.burst().slice(taken..sent.len())).unwrap(), 0, "{name}: a full wire accepts frames");
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!(ledger.imbalances(), [], "{name}");
    assert!(ledger.total(Count::SendFull) > 0, "{name}");
    assert_eq!(ledger.total(Count::SendReceived), taken as u64, "{name}");
    let mut receiver = Receiver::new(std::mem::take(wire.queues()));
    let deadline = Instant::now() + PATIENCE;
    let queue = &mut wire.tx.as_mut().unwrap().queues[0];
    while (taken < sent.len() || !queue.flush(now()).unwrap()) && Instant::now() < deadline {
        taken += queue.send(block.burst().slice(taken..sent.len())).unwrap();
        queue.flush(now()).unwrap();
        receiver.round();
    }
    wire.close_sender();
    let outcome = receiver.finish(std::mem::take(&mut wire.sent));
    assert_all_arrived(name, std::slice::from_ref(&sent), &outcome.got);
    assert_ledger(name, sent.len(), sent.len(), &outcome.ledger);
}

fn ports_open_and_close_many_times(harness: &dyn Harness) {
    for round in 0..REOPENED {
        let sent = [vec![frame(0, round, 60)]];
        let outcome = harness.open_small().exchange(&sent);
        assert_all_arrived(harness.name(), &sent, &outcome.got);
    }
}

/// The sender stays open while receivers open and close, leaving frames unread.
fn receiver_is_replaced(harness: &dyn Harness) {
    if !harness.can().reopens {
        return;
    }
    let mut wire = harness.open_small();
    for round in 0..REPLACED {
        // A lane of the small ring has two blocks, and each frame may have a block of its own: the kernel hands one over
        // after 1 ms, which may pass between two frames.
        wire.send(0, &frames(0, 2, &[60]));
        wire.wait_for(2);
        for queue in wire.queues() {
            let shown = queue.fill(now()).unwrap().burst.len();
            queue.consume(shown / 2);
        }
        wire.queues().clear();
        let queues = harness.reopen(&wire).queues;
        *wire.queues() = queues;
        let mut ledger = Ledger::new();
        wire.queues().iter().for_each(|queue| {
            let mut single = Ledger::new();
            queue.counters(&mut single);
            add(&mut ledger, &single);
        });
        assert_eq!(ledger.total(Count::Delivered), 0, "{}: round {round}: stale counters", harness.name());
    }
}

fn poll_returns_when_frames_are_ready(harness: &dyn Harness) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut wire = open(harness);
    if !harness.can().live || wire.queues().iter().any(|queue| queue.wake().is_none()) {
        return;
    }
    let ready = |wire: &mut Wire, seconds| {
        let queues = wire.queues();
        let mut polled: Vec<PollFd<'_>> =
            queues.iter().map(|queue| PollFd::from_borrowed_fd(queue.wake().unwrap(), PollFlags::IN)).collect();
        poll(&mut polled, Some(&Timespec { tv_sec: seconds, tv_nsec: 1_000_000 })).unwrap()
    };
    assert_eq!(ready(&mut wire, 0), 0, "{}: ready although no frame was sent", harness.name());
    wire.send(0, &frames(0, 1, &[60]));
    assert!(ready(&mut wire, 5) > 0, "{}: no wake-up after a frame was sent", harness.name());
    let deadline = Instant::now() + PATIENCE;
    while wire.queues().iter_mut().all(|queue| queue.fill(now()).unwrap().burst.is_empty()) {
        assert!(Instant::now() < deadline, "{}: woken without a frame", harness.name());
        thread::sleep(PAUSE);
    }
}
