//! Replays from memory into queues that record their frames.

use super::*;
use crate::clock;
use linerate_burst::{Block, Burst, Count, Desc, Horizon, Interface, LinkType, Nanos, StampSource};
use linerate_generate::Rate;
use linerate_port::{Feed, Head, RxPort, RxQueue, TxQueue};
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

/// Frames of all queues in order: port, queue, frame, time.
type Log = Arc<Mutex<Vec<(usize, usize, Vec<u8>, Nanos)>>>;

struct Tape {
    block: Block,
    interfaces: [Interface; 1],
    at: usize,
}

impl RxQueue for Tape {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        let burst = self.block.burst();
        let burst = burst.slice(self.at..burst.len().min(self.at + 7));
        let horizon = if burst.is_empty() { Horizon::Ended } else { Horizon::At(Nanos::ZERO) };
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.at += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _ledger: &mut Ledger) {}
}

struct Writing {
    log: Log,
    port: usize,
    queue: usize,
    sent: Sent,
    /// Interval of calls at which it is full.
    full_every: usize,
    calls: usize,
}

impl TxQueue for Writing {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.calls += 1;
        if self.calls.is_multiple_of(self.full_every) {
            return Ok(0);
        }
        self.sent.add(burst);
        let mut log = self.log.lock().unwrap();
        log.extend(burst.iter().map(|(_, frame)| (self.port, self.queue, frame.to_vec(), clock::now())));
        Ok(burst.len())
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(linerate_burst::Stage::Send, "log");
        account.add(Count::SendReceived, self.sent.frames).add(Count::Sent, self.sent.frames);
    }
}

fn ports(queues: &[usize], log: &Log) -> Vec<TxPort> {
    let queue = |port, queue| -> Box<dyn TxQueue> {
        let log = Arc::clone(log);
        Box::new(Writing { log, port, queue, sent: Sent::default(), full_every: 5, calls: 0 })
    };
    let port = |(port, queues): (usize, &usize)| TxPort {
        name: format!("log{port}"),
        queues: (0..*queues).map(|index| queue(port, index)).collect(),
        monitor: None,
    };
    queues.iter().enumerate().map(port).collect()
}

/// A UDP frame with its number in the payload, from one of eight hosts to one server or back.
fn frame(number: u32) -> Vec<u8> {
    let (client, server) = ([10, 0, 0, (number % 8) as u8 + 1], [10, 0, 1, 1]);
    let (from, to, ports) = if number % 3 == 2 && number >= 24 {
        (server, client, [0, 53, 0x9c, 0x40])
    } else {
        (client, server, [0x9c, 0x40, 0, 53])
    };
    let head = [0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0];
    let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    [&link[..], &head, &from, &to, &ports, &[0, 12, 0, 0], &number.to_be_bytes(), &[0; 14]].concat()
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[42..46].try_into().unwrap())
}

/// Frames 100 us apart.
fn open(frames: u32) -> Open {
    Box::new(move || {
        let mut block = Block::new(0, frames as usize + 1);
        for index in 0..frames {
            let bytes = frame(index);
            block.push(&Desc::new(Nanos(5_000_000 + u64::from(index) * 100_000), 0, 60), &bytes);
        }
        let interfaces = [Interface::new("tape", LinkType::ETHERNET, StampSource::File)];
        Ok(RxPort {
            name: "tape".into(),
            queues: vec![Box::new(Tape { block, interfaces, at: 0 })],
            feed: Feed::Stored,
            monitor: None,
            filter: String::new(),
            offset_ns: 0,
            notes: Vec::new(),
        })
    })
}

fn replay(frames: u32, queues: &[usize], log: &Log) -> Replay {
    Replay {
        open: open(frames),
        memory: RecordingMemory::IfSmall,
        loops: 1,
        loop_gap: None,
        edits: Edits::default(),
        ports: ports(queues, log),
        pacing: Pacing::Fixed(Rate::Top),
        at_once: false,
        packets: None,
        duration: None,
        stop: Stop::new(),
        progress: Progress::new(),
    }
}

fn numbers(log: &Log) -> Vec<u32> {
    log.lock().unwrap().iter().map(|(_, _, frame, _)| number(frame)).collect()
}

#[test]
fn every_pass_is_the_same_held_or_read_ahead() {
    for memory in [RecordingMemory::IfSmall, RecordingMemory::Whole, RecordingMemory::Ahead] {
        let log = Log::default();
        let report = Replay { memory, loops: 3, ..replay(500, &[1], &log) }.run();
        assert!(report.failure.is_none() && report.passes == 3 && report.sent.frames == 1500, "{report:?}");
        assert_eq!(numbers(&log), [0, 1, 2].map(|_| 0..500).into_iter().flatten().collect::<Vec<_>>(), "{memory:?}");
    }
}

#[test]
fn number_of_packets_is_limited_over_all_passes() {
    for pacing in [Pacing::Fixed(Rate::Top), Pacing::Fixed(Rate::Frames(1e6))] {
        for packets in [1, 499, 500, 1234, 2000] {
            let log = Log::default();
            let report = Replay { packets: Some(packets), loops: 3, pacing, ..replay(500, &[1], &log) }.run();
            assert!(report.failure.is_none() && report.sent.frames == packets.min(1500), "{packets}: {report:?}");
        }
    }
}

#[test]
fn each_pass_has_its_own_addresses() {
    for memory in [RecordingMemory::IfSmall, RecordingMemory::Ahead] {
        let log = Log::default();
        let rewriting = Rewriting { shift: Some("256".parse().unwrap()), ..Rewriting::default() };
        let edits = Edits { rewriting, ..Edits::default() };
        let report = Replay { memory, edits, loops: 3, ..replay(40, &[1], &log) }.run();
        assert_eq!(report.passes, 3);
        for (index, (_, _, sent, _)) in log.lock().unwrap().iter().enumerate() {
            let was = frame(index as u32 % 40);
            let turn = index as u8 / 40;
            assert_eq!((number(sent), sent[28]), (index as u32 % 40, was[28] + turn), "the third byte moves");
            assert_eq!((sent[26], sent[29], sent[33]), (10, was[29], was[33]));
        }
    }
}

#[test]
fn frames_keep_their_order_over_all_queues_of_two_ports() {
    let log = Log::default();
    let edits = Edits { split_by: Some("first-packet".parse().unwrap()), ..Edits::default() };
    let report = Replay { edits, ..replay(1000, &[3, 2], &log) }.run();
    assert_eq!(numbers(&log), (0..1000).collect::<Vec<_>>());
    let log = log.lock().unwrap();
    let mut queues = std::collections::HashMap::new();
    for (port, queue, frame, _) in log.iter() {
        let is_server = frame[28] == 1;
        assert_eq!(*port, usize::from(is_server));
        let host = if is_server { frame[33] } else { frame[29] };
        assert_eq!(queues.entry((*port, host)).or_insert(*queue), queue, "a flow stays in its queue");
    }
    let used: std::collections::HashSet<_> = log.iter().map(|(port, queue, ..)| (port, queue)).collect();
    assert_eq!(used.len(), 5);
    assert_eq!(report.ports.iter().map(|(_, sent)| sent.frames).sum::<u64>(), 1000);
}

#[test]
fn no_frame_leaves_before_it_is_due() {
    let log = Log::default();
    let gap = Duration::from_millis(20);
    let pacing = Pacing::Recorded(2.0);
    let report = Replay { pacing, loops: 2, loop_gap: Some(gap), ..replay(100, &[1], &log) }.run();
    let log = log.lock().unwrap();
    let start = log[0].3.0;
    for (index, (.., when)) in log.iter().enumerate() {
        let pass = index as u64 / 100;
        let due = (index as u64 - pass) * 50_000 + pass * gap.as_nanos() as u64;
        // The schedule starts a little before the first frame is recorded.
        assert!(when.0 + 1_000_000 >= start + due, "frame {index}: {} us early", (start + due - when.0) / 1000);
    }
    assert_eq!(report.timing.behind.count(), 200);
    assert_eq!(report.timing.gap_error.count(), 199);
}

#[test]
fn empty_replay_ends_and_endless_replay_is_stopped() {
    for memory in [RecordingMemory::IfSmall, RecordingMemory::Ahead] {
        let report = Replay { memory, loops: 0, ..replay(0, &[1], &Log::default()) }.run();
        assert!(report.failure.is_none() && report.sent.frames == 0);
        let (log, duration) = (Log::default(), Some(Duration::from_millis(60)));
        let report = Replay { memory, loops: 0, duration, ..replay(300, &[1], &log) }.run();
        assert!(report.passes > 1 && report.failure.is_none(), "{report:?}");
        let numbers = numbers(&log);
        assert!(numbers.iter().enumerate().all(|(index, number)| *number == index as u32 % 300));
    }
}

/// A clock that jumps ahead by a second after a number of frames, as if the process had been suspended.
struct HeldUp(Log, usize);

impl clock::Clock for HeldUp {
    fn utc(&self) -> Nanos {
        let held = self.0.lock().unwrap().len() >= self.1;
        clock::now().after(Duration::from_secs(u64::from(held)))
    }

    fn steady(&self) -> Nanos {
        self.utc()
    }
}

#[test]
fn a_delayed_sender_catches_up_within_a_bound() {
    let log = Log::default();
    // 1,000 frames of 100 us: a second of delay is ten times as long as all of them.
    let held = replay(1000, &[1], &log);
    let report = Replay { pacing: Pacing::Recorded(1.0), ..held }.run_by(Box::new(HeldUp(Arc::clone(&log), 10)));
    assert_eq!((report.sent.frames, report.failure.is_none()), (1000, true));
    let timing = &report.timing;
    // The first packet afterwards was due in a moment.
    assert!(timing.shifted > Duration::from_millis(890), "{:?}", timing.shifted);
    assert!(timing.behind.longer_than(LATE) >= 500, "what is caught up was late");
    assert!(timing.behind.max() <= CATCH_UP + CATCH_UP / 16, "{:?}", timing.behind.max());
}
