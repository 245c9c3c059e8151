//! Streams that begin, hold on, go on and end one by one: no frame is left out, none comes twice, counts are final.

use linerate_burst::{Burst, Ledger, Nanos};
use linerate_engine::transmit::{Beginning, Doing, Sending, Transmitter};
use linerate_generate::Rate;
use linerate_generate::packet::{Setup, frames};
use linerate_generate::stream::{Mark, Next, Order, Shape, Stream, StreamSet};
use linerate_generate::trailer::{Key, Trailer};
use linerate_port::{PortError, Sent, TxPort, TxQueue};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a port has sent: stream and number of each frame.
type Log = Arc<Mutex<Vec<(u32, u64)>>>;

/// Takes up to seven frames at a time, and nothing every third time.
struct Kept {
    log: Log,
    sent: Sent,
    asked: u64,
}

impl TxQueue for Kept {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.asked += 1;
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
    let queue = Kept { log: Arc::clone(&log), sent: Sent::default(), asked: 0 };
    let port = TxPort { name: "kept".into(), queues: vec![Box::new(queue)], monitor: None };
    (Transmitter::start(port).unwrap(), log)
}

fn beginning(slot: usize, rate: f64, count: Option<u64>) -> Beginning {
    let made = frames("ip/udp", &Setup { mark: Mark::Trailer, ..Setup::default() }).unwrap();
    let stream = Stream {
        name: format!("stream {slot}"),
        id: slot as u32,
        link: made.link,
        variants: made.variants,
        size: made.size,
        selectors: made.selectors,
        rate: Rate::Frames(rate),
        shape: Shape::Even,
        count,
        next: Next::Following,
        mark: Mark::Trailer,
    };
    let set = StreamSet { streams: vec![stream], order: Order::Interleaved, rate: None, key: Key::default() };
    Beginning { slot, set, delay: Duration::ZERO, span: None, sending: Arc::default() }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The numbers of a stream, which follow one another from 0 on.
fn assert_whole(log: &Log, stream: u32, sent: u64) {
    let numbers: Vec<u64> = log.lock().unwrap().iter().filter(|row| row.0 == stream).map(|row| row.1).collect();
    assert_eq!(numbers, (0..sent).collect::<Vec<_>>(), "of stream {stream}");
}

#[test]
fn commands_leave_no_frame_out_and_touch_no_other_stream() {
    let (transmitter, log) = start();
    let all: Vec<Beginning> = (1..=5).map(|slot| beginning(slot, 20_000.0, None)).collect();
    let sending: Vec<Arc<Sending>> = all.iter().map(|one| Arc::clone(&one.sending)).collect();
    transmitter.begin(all).unwrap();
    let mut dice = 7u64;
    for _ in 0..200 {
        let slot = 1 + (linerate_burst::random::next(&mut dice) % 4) as usize;
        match linerate_burst::random::next(&mut dice) % 4 {
            0 => transmitter.hold(vec![slot]),
            1 => transmitter.go_on(vec![slot]),
            2 => transmitter.pace(slot, [0.1, 1.0, 3.7][slot % 3]),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    transmitter.hold(vec![2, 3]);
    let held = sending[1].frames();
    assert_eq!((sending[1].doing(), sending[4].doing()), (Doing::Paused, Doing::Started));
    let other = sending[4].frames();
    wait_until("the other goes on", || sending[4].frames() > other + 100);
    assert_eq!(sending[1].frames(), held);
    transmitter.end((1..=5).collect());
    let sent: Vec<u64> = sending.iter().map(|sending| sending.frames()).collect();
    assert!(
        sending.iter().all(|sending| sending.doing() == Doing::Stopped && sending.bytes() == 60 * sending.frames())
    );
    std::thread::sleep(Duration::from_millis(5));
    for (index, sent) in sent.iter().enumerate() {
        assert_whole(&log, index as u32 + 1, *sent);
    }
    assert_eq!(transmitter.failure(), None);
}

#[test]
fn streams_end_by_themselves_with_their_last_frame_and_begin_anew_from_the_first() {
    let (transmitter, log) = start();
    for _ in 0..3 {
        let one = beginning(1, 1e6, Some(1000));
        let sending = Arc::clone(&one.sending);
        transmitter.begin(vec![one]).unwrap();
        wait_until("all is sent", || sending.doing() == Doing::Stopped);
        assert_eq!(sending.frames(), 1000);
        assert_whole(&log, 1, 1000);
        log.lock().unwrap().clear();
    }
    wait_until("it is counted", || transmitter.sent() == (3000, 180_000));
}

#[test]
fn a_span_of_time_has_the_frames_that_are_due_in_it() {
    let (transmitter, log) = start();
    let mut one = beginning(1, 1000.0, None);
    (one.span, one.delay) = (Some(Duration::from_millis(50)), Duration::from_millis(20));
    let sending = Arc::clone(&one.sending);
    let began = Instant::now();
    transmitter.begin(vec![one]).unwrap();
    wait_until("it has ended", || sending.doing() == Doing::Stopped);
    assert!(began.elapsed() >= Duration::from_millis(20 + 49), "too early");
    assert_eq!(sending.frames(), 50);
    assert_whole(&log, 1, 50);
}

/// A hundred thousand frames at a rate that would take 100 s, then a thousand times as fast.
#[test]
fn another_pace_holds_from_then_on() {
    let (transmitter, log) = start();
    let one = beginning(1, 1000.0, Some(100_000));
    let sending = Arc::clone(&one.sending);
    transmitter.begin(vec![one]).unwrap();
    wait_until("it is sent", || sending.frames() > 5);
    transmitter.pace(1, 1000.0);
    wait_until("all is sent", || sending.doing() == Doing::Stopped);
    assert_whole(&log, 1, 100_000);
}

#[test]
fn a_set_that_is_wrong_begins_nothing() {
    let (transmitter, log) = start();
    let mut wrong = beginning(2, 1000.0, None);
    wrong.set.streams[0].count = Some(0);
    let right = beginning(1, 1000.0, None);
    let sending = Arc::clone(&right.sending);
    assert!(transmitter.begin(vec![right, wrong]).is_err());
    transmitter.end(vec![1, 2]);
    assert_eq!((sending.frames(), sending.doing(), log.lock().unwrap().len()), (0, Doing::Stopped, 0));
}
