//! Latency of other flows while one flow is held for a second.

use super::engine::ring_name;
use super::lanes::{join, port};
use linerate_burst::{Block, Desc, Horizon, Nanos};
use linerate_engine::{Receive, Stop};
use linerate_port::{RxPort, TxPort};
use linerate_share::{AttachOptions, Engine, Verdict, VerdictReply};
use linerate_tests::support::{judge, wait_until};
use std::thread;
use std::time::{Duration, Instant};

/// Number of frames; frames per millisecond; every n-th belongs to the held flow.
const FRAMES: u32 = 28_000;
const AT_ONCE: u32 = 20;
const OF_THE_FLOW: u32 = 20;
/// Frames sent before the measurement starts.
const FIRST: u32 = 2_000;
const HOLD: Duration = Duration::from_secs(1);

/// A UDP frame with its number in it.
fn frame(number: u32) -> Vec<u8> {
    let source: u16 = if is_of_the_flow(number) { 1000 } else { 2000 + (number % 64) as u16 };
    let mut bytes = [[2, 0, 0, 0, 0, 0x0b], [2, 0, 0, 0, 0, 0x0a]].concat();
    bytes.extend([8, 0, 0x45, 0, 0, 46, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([source, 53, 26, 0].map(u16::to_be_bytes).concat());
    bytes.extend(number.to_be_bytes());
    bytes.resize(60, 0);
    bytes
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

fn is_of_the_flow(number: u32) -> bool {
    number.is_multiple_of(OF_THE_FLOW)
}

/// Passes everything; with `holds` it holds the first frame of the flow after the first `FIRST` for `HOLD`.
fn decide(mut engine: Engine, holds: bool) {
    let mut held = None;
    while engine.ended().is_none() {
        engine.look(|seen, _| {
            let own = number(seen.bytes);
            if !holds || own < FIRST || !is_of_the_flow(own) || held.is_some() {
                return VerdictReply::Now(Verdict::Pass);
            }
            held = Some((Some(seen.ticket), Instant::now()));
            VerdictReply::Later
        });
        if let Some((ticket, since)) = &mut held
            && since.elapsed() >= HOLD
            && let Some(ticket) = ticket.take()
        {
            engine.decide(ticket, Verdict::Pass);
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Sends all frames; returns the send times.
fn send(mut into: TxPort) -> Vec<Instant> {
    let (mut block, mut times, started) = (Block::new(1 << 16, AT_ONCE as usize), Vec::new(), Instant::now());
    for (turn, first) in (0..FRAMES).step_by(AT_ONCE as usize).enumerate() {
        thread::sleep((started + Duration::from_millis(turn as u64)).saturating_duration_since(Instant::now()));
        block.clear();
        for number in first..first + AT_ONCE {
            assert!(block.push(&Desc::new(Nanos(u64::from(number)), 0, 60), &frame(number)));
        }
        times.resize(block.len() + times.len(), Instant::now());
        let mut sent = 0;
        while sent < block.len() {
            sent += into.queues[0].send(block.burst().slice(sent..block.len())).unwrap();
            into.queues[0].flush(Nanos::ZERO).unwrap();
        }
    }
    times
}

/// Received frames and their arrival times.
fn receive(mut from: RxPort) -> Vec<(u32, Instant)> {
    let mut got = Vec::new();
    loop {
        let head = from.queues[0].fill(Nanos::ZERO).unwrap();
        let (shown, is_over, now) = (head.burst.len(), head.horizon == Horizon::Ended, Instant::now());
        got.extend(head.burst.iter().map(|(_, bytes)| (number(bytes), now)));
        from.queues[0].consume(shown);
        if shown == 0 && is_over {
            return got;
        }
        thread::sleep(Duration::from_micros(20));
    }
}

/// Returns the 99th percentile of the latency of the other flows, the number of frames that overtook the held one, and of
/// those that were lost.
fn run(holds: bool) -> (Duration, usize, u64) {
    let ([(into, from), (back, other)], [(to, far), (to_back, _near)]) = ([port(""), port("")], [port(""), port("")]);
    let name = ring_name();
    let mut inline = join([to, to_back], &name);
    let (times, got, lost) = thread::scope(|scope| {
        let running = scope.spawn(move || {
            let receive = Receive { ports: vec![from, other], stop: Stop::new(), ..Receive::all(Vec::new()) };
            let run = receive.run(&mut [&mut inline]);
            assert!(run.failure.is_none() && run.ledger.imbalances().is_empty(), "{:#?}", run.ledger);
            run.ledger.lost()
        });
        let mut engine = None;
        wait_until("the ring exists", || {
            engine = AttachOptions { name: name.clone(), ..AttachOptions::default() }.engine(&name).ok();
            engine.is_some()
        });
        let engine = engine.unwrap();
        scope.spawn(move || decide(engine, holds));
        let receiver = scope.spawn(move || receive(far));
        let times = send(into);
        drop(back);
        let lost = running.join().unwrap();
        (times, receiver.join().unwrap(), lost)
    });
    assert_eq!(got.len() as u64 + lost, u64::from(FRAMES));
    let is_other = |(number, _): &&(u32, Instant)| *number >= FIRST && !is_of_the_flow(*number);
    let mut waits: Vec<Duration> =
        got.iter().filter(is_other).map(|(at, arrived)| *arrived - times[*at as usize]).collect();
    waits.sort();
    let held = FIRST.next_multiple_of(OF_THE_FLOW);
    let overtook = got.iter().take_while(|(number, _)| *number != held).filter(|(number, _)| *number > held).count();
    let of_the_flow = got.iter().map(|(number, _)| *number).filter(|number| is_of_the_flow(*number));
    assert!(of_the_flow.is_sorted(), "the flow is out of order");
    (waits[waits.len() * 99 / 100], overtook, lost)
}

#[test]
fn held_flow_delays_no_other() {
    let ((plain, none, lost), (held, overtook, more)) = (run(false), run(true));
    if !judge(lost + more == 0, "frames are lost where a receiver has to wait for a processor") {
        return;
    }
    println!("p99 latency {plain:?}; {held:?} while a flow is held for {HOLD:?}; {overtook} frames overtook it");
    assert!(none == 0 && overtook > 1000, "{none} and {overtook} frames overtook the held frame");
    judge(
        held <= plain * 2 + Duration::from_millis(1),
        &format!("p99 latency {held:?} while a flow is held, {plain:?} without"),
    );
}
