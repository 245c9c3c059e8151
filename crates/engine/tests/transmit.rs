//! Streams that are started, paused, resumed and ended one by one: no frame is missing or duplicated, totals are final.

use linerate_burst::{Burst, Ledger, Nanos};
use linerate_engine::transmit::{StreamTotals, TransmitState, Transmitter};
use linerate_generate::Rate;
use linerate_generate::packet::{Setup, frames};
use linerate_generate::stream::{Mark, Next, Shape, Span, Stream};
use linerate_generate::trailer::{Key, Trailer};
use linerate_port::{PortError, Sent, TxPort, TxQueue};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Frames sent by a port: stream and number of each.
type Log = Arc<Mutex<Vec<(u32, u64)>>>;

/// Takes up to seven frames at a time, and none every third time; none at all, or reports down, while it is closed.
#[derive(Default)]
struct Kept {
    log: Log,
    sent: Sent,
    asked: u64,
    closed: Arc<AtomicBool>,
    is_down: bool,
    broken: Arc<AtomicBool>,
}

impl TxQueue for Kept {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.asked += 1;
        if self.broken.load(Ordering::Relaxed) {
            return Err(PortError::broken("kept", "on fire".to_owned()));
        }
        if self.closed.load(Ordering::Relaxed) {
            return if self.is_down { Err(PortError::Down { port: "kept".to_owned() }) } else { Ok(0) };
        }
        let taken = if self.asked.is_multiple_of(3) { 0 } else { burst.len().min(7) };
        let mut log = self.log.lock().unwrap();
        for index in 0..taken {
            let trailer = burst.frame(index).last_chunk().and_then(|bytes| Trailer::read(bytes, &Key::default()));
            let trailer = trailer.expect("a frame of ours");
            log.push((trailer.stream, trailer.sequence));
        }
        self.sent.add(burst.slice(0..taken));
        Ok(taken)
    }

    fn flush(&mut self, _: Nanos) -> Result<bool, PortError> {
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}
}

fn start() -> (Transmitter, Log) {
    let log = Log::default();
    (start_with(Kept { log: Arc::clone(&log), ..Kept::default() }), log)
}

fn start_with(queue: Kept) -> Transmitter {
    Transmitter::start(TxPort { name: "kept".into(), queues: vec![Box::new(queue)], monitor: None }).unwrap()
}

fn stream(id: u32, rate: f64, count: Option<u64>) -> Stream {
    let made = frames("ip/udp", &Setup { mark: Mark::Trailer, ..Setup::default() }).unwrap();
    Stream {
        name: format!("stream {id}"),
        id,
        link: made.link,
        variants: made.variants,
        size: made.size,
        selectors: made.selectors,
        rate: Rate::Frames(rate),
        shape: Shape::Even,
        count,
        next: Next::Following,
        span: Span::ALWAYS,
        mark: Mark::Trailer,
    }
}

fn begin(transmitter: &Transmitter, stream: Stream) -> Arc<StreamTotals> {
    transmitter.begin(vec![stream], Key::default()).unwrap().remove(0)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "timeout: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that the numbers of a stream are consecutive from 0.
fn assert_whole(log: &Log, stream: u32, sent: u64) {
    let numbers: Vec<u64> = log.lock().unwrap().iter().filter(|row| row.0 == stream).map(|row| row.1).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>(), "of stream {stream}");
}

#[test]
fn commands_skip_no_frame_and_affect_no_other_stream() {
    let (transmitter, log) = start();
    let streams = (1..=5).map(|id| stream(id, 20_000.0, None)).collect();
    let sending = transmitter.begin(streams, Key::default()).unwrap();
    let mut dice = 7u64;
    for _ in 0..200 {
        let one = &sending[(linerate_burst::random::next(&mut dice) % 4) as usize];
        match linerate_burst::random::next(&mut dice) % 4 {
            0 => transmitter.hold([one]),
            1 => transmitter.go_on([one]),
            2 => transmitter.pace([(one, Rate::Frames([2e3, 2e4, 7.4e4][dice as usize % 3]))]),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    transmitter.hold(&sending[1..3]);
    let held = sending[1].frames();
    assert_eq!((sending[1].doing(), sending[4].doing()), (TransmitState::Paused, TransmitState::Started));
    let other = sending[4].frames();
    wait_until("the other continues", || sending[4].frames() > other + 100);
    assert_eq!(sending[1].frames(), held);
    transmitter.end(&sending);
    let sent: Vec<u64> = sending.iter().map(|sending| sending.frames()).collect();
    assert!(
        sending
            .iter()
            .all(|sending| sending.doing() == TransmitState::Stopped && sending.bytes() == 60 * sending.frames())
    );
    std::thread::sleep(Duration::from_millis(5));
    for (index, sent) in sent.iter().enumerate() {
        assert_whole(&log, index as u32 + 1, *sent);
    }
    assert_eq!(transmitter.failure(), None);
}

#[test]
fn streams_end_with_their_last_frame_and_restart_from_the_first() {
    let (transmitter, log) = start();
    for _ in 0..3 {
        let sending = begin(&transmitter, stream(1, 1e6, Some(1000)));
        wait_until("all is sent", || sending.doing() == TransmitState::Stopped);
        assert_eq!(sending.frames(), 1000);
        assert_whole(&log, 1, 1000);
        log.lock().unwrap().clear();
    }
    wait_until("it is counted", || transmitter.sent() == (3000, 180_000));
}

/// Random streams of all lengths are added and removed: whatever used an index before, each has all of its own frames.
#[test]
fn a_new_stream_has_its_own_frames_at_a_reused_index() {
    let (transmitter, log) = start();
    let (mut dice, mut all) = (5u64, Vec::<(u32, Arc<StreamTotals>)>::new());
    for round in 0..150u32 {
        let roll = linerate_burst::random::next(&mut dice) as usize;
        let many = 1 + roll % 30;
        let streams = (0..many as u32).map(|index| {
            let mut stream = stream(round * 100 + index, 1e5, [None, Some(1 + roll as u64 % 50)][roll / 7 % 2]);
            let end = stream.variants[0].frame.len();
            // Longer ones require more space.
            let mut variant = stream.variants[0].clone();
            variant.frame.resize(end + [0, 1000, 9000][roll / 3 % 3], 0);
            (variant.trailer, variant.checksums) = (Some(variant.frame.len() - 16), Vec::new());
            stream.variants = vec![variant];
            stream
        });
        let streams: Vec<Stream> = streams.collect();
        let ids: Vec<u32> = streams.iter().map(|stream| stream.id).collect();
        all.extend(ids.into_iter().zip(transmitter.begin(streams, Key::default()).unwrap()));
        let leaving: Vec<&Arc<StreamTotals>> =
            all.iter().map(|(_, sending)| sending).skip(round as usize % 3).collect();
        transmitter.end(leaving.into_iter().step_by(2));
    }
    transmitter.end(all.iter().map(|(_, sending)| sending));
    let mut found = std::collections::HashMap::<u32, Vec<u64>>::new();
    log.lock().unwrap().iter().for_each(|(stream, number)| found.entry(*stream).or_default().push(*number));
    for (id, sending) in &all {
        let numbers = found.remove(id).unwrap_or_default();
        assert_eq!(numbers, (0..sending.frames()).collect::<Vec<_>>(), "of stream {id}");
    }
    assert_eq!((found.len(), transmitter.failure()), (0, None));
}

#[test]
fn interval_contains_the_frames_due_in_it() {
    let (transmitter, log) = start();
    let mut one = stream(1, 1000.0, None);
    one.span = Span { start: 20_000_000, length: Some(50_000_000) };
    let began = Instant::now();
    let sending = begin(&transmitter, one);
    wait_until("it has ended", || sending.doing() == TransmitState::Stopped);
    assert!(began.elapsed() >= Duration::from_millis(20 + 49), "too early");
    assert_eq!(sending.frames(), 50);
    assert_whole(&log, 1, 50);
}

/// A hundred thousand frames at a rate that would take 100 s, then a thousand times as fast.
#[test]
fn new_rate_applies_from_the_command_on() {
    let (transmitter, log) = start();
    let sending = begin(&transmitter, stream(1, 1000.0, Some(100_000)));
    wait_until("it is sent", || sending.frames() > 5);
    transmitter.pace([(&sending, Rate::Frames(1e6))]);
    wait_until("all is sent", || sending.doing() == TransmitState::Stopped);
    assert_whole(&log, 1, 100_000);
}

#[test]
fn invalid_stream_starts_nothing() {
    let (transmitter, log) = start();
    for wrong in [stream(2, 1000.0, Some(0)), Stream { rate: Rate::Top, ..stream(2, 1.0, None) }] {
        assert!(transmitter.begin(vec![stream(1, 1000.0, None), wrong], Key::default()).is_err());
    }
    let sending = begin(&transmitter, stream(1, 1000.0, Some(1)));
    wait_until("it is sent", || sending.doing() == TransmitState::Stopped);
    assert_whole(&log, 1, 1);
    assert_eq!(log.lock().unwrap().len(), 1);
}

/// A port that takes nothing, or is down, does not block the end of streams: totals are final, and others continue when
/// it is up.
#[test]
fn commands_are_applied_while_the_port_is_blocked() {
    for is_down in [false, true] {
        let (log, closed) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let queue = Kept { log: Arc::clone(&log), closed: Arc::clone(&closed), is_down, ..Kept::default() };
        let transmitter = start_with(queue);
        let streams = (1..=3).map(|id| stream(id, 50_000.0, (id == 3).then_some(30))).collect();
        let sending = transmitter.begin(streams, Key::default()).unwrap();
        wait_until("it is sent", || sending.iter().all(|sending| sending.frames() > 20));
        closed.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(30));
        let began = Instant::now();
        for _ in 0..20 {
            // The schedule does not advance, but each command is applied when the call returns.
            transmitter.hold([&sending[0]]);
            transmitter.go_on([&sending[0]]);
        }
        transmitter.hold([&sending[0], &sending[1]]);
        transmitter.end([&sending[0], &sending[2]]);
        assert_eq!(sending[0].doing(), TransmitState::Stopped);
        let late = begin(&transmitter, stream(4, 50_000.0, Some(10)));
        assert!(began.elapsed() < Duration::from_secs(5), "it waits for its port");
        let doing: Vec<TransmitState> = sending.iter().map(|sending| sending.doing()).collect();
        assert_eq!(doing, [TransmitState::Stopped, TransmitState::Paused, TransmitState::Stopped]);
        let (first, third) = (sending[0].frames(), sending[2].frames());
        closed.store(false, Ordering::Relaxed);
        wait_until("the last one is sent", || late.doing() == TransmitState::Stopped);
        transmitter.go_on([&sending[1]]);
        let second = sending[1].frames();
        wait_until("it continues", || sending[1].frames() > second + 100);
        transmitter.end([&sending[1]]);
        for (id, sent) in [(1, first), (2, sending[1].frames()), (3, third), (4, 10)] {
            assert_whole(&log, id, sent);
        }
        assert_eq!(transmitter.failure(), None);
    }
}

#[test]
fn a_broken_port_is_reported() {
    let broken = Arc::new(AtomicBool::new(false));
    let transmitter = start_with(Kept { broken: Arc::clone(&broken), ..Kept::default() });
    let sending = begin(&transmitter, stream(1, 10_000.0, None));
    wait_until("it is sent", || sending.frames() > 10);
    broken.store(true, Ordering::Relaxed);
    wait_until("it has failed", || sending.doing() == TransmitState::Stopped);
    wait_until("it is reported", || transmitter.failure().is_some_and(|failure| failure.contains("on fire")));
    let late = begin(&transmitter, stream(1, 10_000.0, None));
    assert_eq!((late.doing(), late.frames()), (TransmitState::Stopped, 0));
    transmitter.hold([&late, &sending]);
}
