//! Rates, stopping, failures, unsupported streams.

use crate::live::testbed::{Stage, marks, set, single, stream};
use linerate_backends::open_tx;
use linerate_backends::xdp_counter::CountAction;
use linerate_burst::{Block, Count, Desc, Ledger, Nanos};
use linerate_engine::Stop;
use linerate_generate::Rate;
use linerate_generate::stream::{Order, Shape, Stream, StreamSet};
use linerate_port::{PortError, Spec, TxOptions, Unable};
use linerate_tests::support::{judge, tool, wait_until};
use std::time::{Duration, Instant};

fn paced(rate: f64, count: Option<u64>) -> StreamSet {
    let mut stream = stream(&[60], 0);
    (stream.rate, stream.count) = (Rate::Frames(rate), count);
    single(stream)
}

#[test]
fn rates_hold_on_average_and_per_frame() {
    let Some(stage) = Stage::up() else { return };
    for (rate, count) in [(1000.0, 300), (100_000.0, 30_000)] {
        let got = stage.send_and_capture(&paced(rate, Some(count)));
        let times: Vec<u64> = got.iter().map(|(frame, arrived)| marks(frame, *arrived).1).collect();
        let span = (times[times.len() - 1] - times[0]) as f64 / 1e9;
        let asked = (count - 1) as f64 / rate;
        let place = |(number, time): (usize, &u64)| *time as f64 / 1e3 - number as f64 * 1e6 / rate;
        let mut late: Vec<f64> = times.iter().enumerate().map(place).collect();
        late.sort_by(f64::total_cmp);
        let (first, median, most) = (late[0], late[late.len() / 2] - late[0], late[late.len() - 1] - late[0]);
        println!("{rate}/s: {span:.6} s for {asked:.6}; late by {median:.2} us, {most:.0} us at most");
        // A busy machine delays frames; later ones catch up.
        assert!(span - asked > -0.2, "{rate}: {span} s");
        judge(span - asked < 0.2, &format!("{rate}: {span} s"));
        judge(median < 20_000.0, &format!("{rate}: {median} us after {first}"));
    }
}

#[test]
fn bursts_and_interleaved_streams_have_their_gaps() {
    let Some(stage) = Stage::up() else { return };
    let mut bursts = stream(&[60], 400);
    bursts.shape = Shape::Bursts { frames: 100, gap: 50_000_000 };
    let times = |set: &StreamSet| -> Vec<u64> {
        stage.send_and_capture(set).iter().map(|(frame, arrived)| marks(frame, *arrived).1).collect()
    };
    assert_gaps(&times(&single(bursts)), 20_000_000, &[100, 200, 300]);
    let each = stream(&[60], 12);
    let each = Stream { rate: Rate::Frames(20.0), ..each };
    let set =
        StreamSet { streams: vec![each.clone(), Stream { id: 6, ..each }], order: Order::Interleaved, ..set(&[60], 1) };
    assert_gaps(&times(&set), 20_000_000, &(2..24).step_by(2).collect::<Vec<_>>());
}

/// Judges that longer gaps precede the `wanted` frames; a busy machine hides some and adds a few.
fn assert_gaps(times: &[u64], longer: u64, wanted: &[usize]) {
    let found: Vec<usize> = (1..times.len()).filter(|at| times[*at] - times[at - 1] > longer).collect();
    let right = found.iter().filter(|at| wanted.contains(at)).count();
    let is_right = right * 2 >= wanted.len() && (found.len() - right) * 3 <= right;
    judge(is_right, &format!("gaps before {found:?}, not {wanted:?}"));
}

#[test]
fn unsupported_streams_leave_the_port_usable() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let mut poisson = stream(&[60], 10);
    poisson.shape = Shape::Poisson { seed: 1 };
    let mut port = stage.sender();
    let queue = &mut port.queues[0];
    match queue.live().unwrap().prepare(&single(poisson)) {
        Err(PortError::Unable { reason: Unable::Make(_), .. }) => {}
        other => panic!("{:?}", other.err()),
    }
    assert_eq!(queue.send(block(&[60; 10]).burst()).unwrap(), 10);
    assert!(queue.flush(Nanos::ZERO).unwrap());
    assert_eq!(counting.frames(), 10);
}

#[test]
fn duration_ends_an_endless_stream() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let report = stage.send(&paced(10_000.0, None), Some(Duration::from_millis(300)));
    assert!(report.failure.is_none(), "{:?}", report.failure);
    judge((2_500..=3_600).contains(&report.sent.frames), &format!("{} frames", report.sent.frames));
    assert_eq!(report.sent.frames, counting.frames());
    judge(report.elapsed < Duration::from_millis(600), &format!("{:?}", report.elapsed));
}

#[test]
fn long_call_stops_at_once_and_resumes() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let mut port = stage.sender();
    let live = port.queues[0].live().unwrap();
    let control = live.prepare(&set(&[60], u64::MAX)).unwrap();
    for _ in 0..3 {
        control.resume();
        let stopping = std::thread::scope(|scope| {
            let runs = scope.spawn(|| live.run());
            let before = counting.frames();
            wait_until("frames arrive", || counting.frames() > before);
            let asked = Instant::now();
            control.stop();
            runs.join().unwrap().unwrap();
            asked.elapsed()
        });
        println!("stopped in {stopping:?}");
        judge(stopping < Duration::from_millis(100), &format!("stopped in {stopping:?}"));
        let frames = counting.frames();
        assert_eq!(control.progress().sent.frames, frames, "sent and received counts differ");
    }
    assert!(counting.frames() > 1000);
}

#[test]
fn stop_request_ends_a_run() {
    let Some(stage) = Stage::up() else { return };
    let counting = stage.counting(CountAction::Drop);
    let stop = Stop::new();
    let report = std::thread::scope(|scope| {
        let run = scope.spawn(|| stage.transmit(&set(&[60], u64::MAX), None, stop.clone()));
        wait_until("frames arrive", || counting.frames() > 0);
        stop.request();
        let asked = Instant::now();
        let report = run.join().unwrap();
        judge(asked.elapsed() < Duration::from_millis(500), &format!("stopped in {:?}", asked.elapsed()));
        report
    });
    assert!(report.failure.is_none(), "{:?}", report.failure);
    assert_eq!(report.sent.frames, counting.frames());
}

#[test]
fn peer_that_drops_xdp_frames_is_an_error() {
    let Some(stage) = Stage::plain("a:eth0,b:eth0") else { return };
    let report = stage.send(&set(&[60], 1000), None);
    let failure = report.failure.expect("the peer drops the frames").to_string();
    assert!(failure.contains("ethtool -K PEER gro on"), "{failure}");
    assert_eq!(report.sent.frames, 0);
    assert_eq!(report.ledger.imbalances(), []);
    // The same for packets from memory.
    let mut port = stage.sender();
    let block = block(&[60; 10]);
    let queue = &mut port.queues[0];
    assert_eq!(queue.send(block.burst()).unwrap(), 10);
    let failure = queue.flush(Nanos::ZERO).unwrap_err().to_string();
    assert!(failure.contains("gro on"), "{failure}");
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    assert_eq!((ledger.imbalances(), ledger.total(Count::SendRefused)), (vec![], 10));
}

#[test]
fn interface_down_is_awaited_and_removal_is_an_error() {
    let Some(stage) = Stage::up() else { return };
    stage.ip("a", &["link", "set", "eth0", "down"]);
    let mut port = stage.sender();
    let queue = &mut port.queues[0];
    let block = block(&[60]);
    assert!(matches!(queue.send(block.burst()), Err(PortError::Down { .. })));
    assert!(matches!(queue.live().unwrap().prepare(&set(&[60], 1)), Err(PortError::Down { .. })));
    stage.ip("a", &["link", "set", "eth0", "up"]);
    for gone in [false, true] {
        let report = std::thread::scope(|scope| {
            let run = scope.spawn(|| stage.send(&set(&[60], u64::MAX), Some(Duration::from_secs(2))));
            let before = received(&stage);
            wait_until("frames arrive", || received(&stage) > before);
            if gone {
                stage.ip("a", &["link", "del", "eth0"]);
            } else {
                stage.ip("a", &["link", "set", "eth0", "down"]);
                std::thread::sleep(Duration::from_millis(100));
                let before = received(&stage);
                stage.ip("a", &["link", "set", "eth0", "up"]);
                wait_until("frames arrive again", || received(&stage) > before);
            }
            run.join().unwrap()
        });
        assert!(report.sent.frames > 0 && report.elapsed < Duration::from_secs(5), "{:?}", report.elapsed);
        assert_eq!(report.ledger.imbalances(), []);
        assert!(gone || report.ledger.total(Count::SendLinkDown) == 1, "{:#?}", report.ledger);
        assert_eq!(report.failure.is_some(), gone, "{:?}", report.failure);
        assert!(!matches!(report.failure, Some(PortError::Down { .. })), "{:?}", report.failure);
    }
}

#[test]
fn unsupported_lengths_are_errors() {
    let Some(stage) = Stage::plain("a:eth0,b:eth0,mtu=9000") else { return };
    let counting = stage.counting(CountAction::Drop);
    let prepare = |length| {
        let mut port = stage.sender();
        let refused = port.queues[0].live().unwrap().prepare(&set(&[length], 1)).err();
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    // The part of a page that the kernel reserves differs between versions.
    let longest = (3380..3440).rfind(|length| prepare(*length).is_empty()).unwrap();
    let report = stage.send(&set(&[longest], 100), None);
    assert!(report.failure.is_none() && report.sent.frames == 100, "{:?}", report.failure);
    let expected = format!("frames of {} bytes: the kernel makes at most {longest}; use packet: or xdp:", longest + 1);
    assert!(prepare(longest + 1).ends_with(&expected), "{}", prepare(longest + 1));
    // Single frames from memory: those of unsupported lengths are counted, the others are sent in order.
    let mut port = stage.sender();
    let queue = &mut port.queues[0];
    let block = block(&[13, 14, longest, longest + 1, 60, 9000]);
    assert_eq!(queue.send(block.burst()).unwrap(), 6);
    assert!(queue.flush(Nanos::ZERO).unwrap());
    let mut ledger = Ledger::new();
    queue.counters(&mut ledger);
    let total = |count| ledger.total(count);
    assert_eq!((total(Count::TooShort), total(Count::TooLong), total(Count::Sent)), (1, 2, 3));
    assert_eq!((ledger.imbalances(), counting.frames()), (vec![], 103));
    stage.ip("a", &["link", "set", "eth0", "mtu", "1000"]);
    assert!(prepare(1015).contains("MTU"), "{}", prepare(1015));
    assert_eq!(prepare(1014), "");
}

#[test]
fn port_only_sends_and_has_one_queue() {
    let spec = |text| Spec::parse(text).unwrap();
    let error = linerate_backends::open_rx(&spec("xdp-live:lo"), &Default::default()).err().unwrap();
    assert!(error.to_string().contains("only sends"), "{error}");
    let error = open_tx(&spec("xdp-live:lo@0-1"), &TxOptions::default()).err().unwrap();
    assert!(error.to_string().contains("omit the @"), "{error}");
}

/// Number of packets that the kernel of `b` has received.
fn received(stage: &Stage) -> u64 {
    let statistics = tool("ip", &["-n", stage.namespace("b"), "-s", "-j", "link", "show", "dev", "eth0"]);
    let statistics: serde_json::Value = serde_json::from_str(&statistics).unwrap();
    statistics[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// A block with frames of these lengths.
fn block(lengths: &[usize]) -> Block {
    let mut block = Block::new(lengths.iter().sum::<usize>() + 64 * lengths.len(), lengths.len());
    for length in lengths {
        assert!(block.push(&Desc::new(Nanos::ZERO, 0, *length as u32), &vec![0x5a; *length]));
    }
    block
}
