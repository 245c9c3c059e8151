//! Ports of prepared packets in memory, to measure the stages after the ports.

use crate::traffic::START;
use linerate_burst::{Block, Burst, Count, Desc, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{Feed, Head, PortError, RxPort, RxQueue};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Buffers of a scattered port, as large a pool as packet frameworks use, and the bytes of each.
const BUFFERS: usize = 32_768;
const BUFFER: usize = 2048;
/// Frames a port shows at a time.
const SHOWN: usize = 2048;

/// Layout of a port's packets in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BufferLayout {
    /// Back to back.
    Contiguous,
    /// Each in a buffer of 2 KiB; buffers follow in shuffled order.
    Scattered,
}

/// Packets of the ports of a case.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub placing: BufferLayout,
    pub ports: usize,
    /// Captured bytes of a frame.
    pub captured: usize,
    /// Frames of one port that follow each other in time before another port is drawn.
    pub run: usize,
    /// Frames of each port.
    pub frames: usize,
}

/// The frames of one port.
pub(super) struct Frames {
    block: Block,
    /// Descs of packets scattered over `block`, in order of time.
    scattered: Vec<Desc>,
}

/// Prepares the frames of all ports.
pub(super) fn prepare(traffic: Traffic) -> Vec<Arc<Frames>> {
    let mut random = Random(1);
    let mut times: Vec<Vec<u64>> = vec![Vec::with_capacity(traffic.frames); traffic.ports];
    let mut time = START;
    while times.iter().any(|times| times.len() < traffic.frames) {
        let port = random.below(traffic.ports);
        for _ in 0..traffic.run {
            time += 7;
            if times[port].len() < traffic.frames {
                times[port].push(time);
            }
        }
    }
    times.iter().map(|times| Arc::new(Frames::new(traffic, times, &mut random))).collect()
}

impl Frames {
    fn new(traffic: Traffic, times: &[u64], random: &mut Random) -> Frames {
        match traffic.placing {
            BufferLayout::Contiguous => {
                let mut block = Block::new(times.len() * (traffic.captured + 16), times.len());
                let mut frame = frame_of(traffic.captured);
                for time in times {
                    address(&mut frame, random.next());
                    block.push(&Desc::new(Nanos(*time), 0, traffic.captured as u32), &frame);
                }
                Frames { block, scattered: Vec::new() }
            }
            BufferLayout::Scattered => {
                let mut block = Block::new(BUFFERS * BUFFER, BUFFERS);
                let mut frame = frame_of(BUFFER - 16);
                for _ in 0..BUFFERS {
                    address(&mut frame, random.next());
                    block.push(&Desc::new(Nanos(START), 0, 0), &frame);
                }
                let mut order: Vec<usize> = (0..BUFFERS).collect();
                for last in (1..BUFFERS).rev() {
                    order.swap(last, random.below(last + 1));
                }
                let place = |(index, time): (usize, &u64)| {
                    let offset = 16 + order[index % BUFFERS] * BUFFER;
                    Desc::new(Nanos(*time), offset as u32, traffic.captured as u32)
                };
                let scattered = times.iter().enumerate().map(place).collect();
                Frames { block, scattered }
            }
        }
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        if self.scattered.is_empty() { self.block.len() } else { self.scattered.len() }
    }

    /// The frames from `first` to `end`.
    fn burst(&self, first: usize, end: usize) -> Burst<'_> {
        if self.scattered.is_empty() {
            return self.block.burst().slice(first..end);
        }
        let memory = self.block.view(0, &[]).records(0..BUFFERS);
        Burst::over(memory, &self.scattered[first..end]).expect("every buffer is longer than its frame")
    }

    fn time(&self, index: usize) -> Option<Nanos> {
        let descs = if self.scattered.is_empty() { self.block.descs() } else { &self.scattered };
        descs.get(index).map(|desc| desc.time)
    }
}

/// A port that shows prepared packets once.
pub(super) fn port(number: usize, frames: &Arc<Frames>) -> RxPort {
    let name = format!("prepared:{number}");
    let interfaces = interface(&name);
    of(name, Replay { frames: Arc::clone(frames), interfaces, next: 0 })
}

fn interface(name: &str) -> [Interface; 1] {
    [Interface::new(name, LinkType::ETHERNET, StampSource::User)]
}

fn of(name: String, queue: impl RxQueue + 'static) -> RxPort {
    let queues: Vec<Box<dyn RxQueue>> = vec![Box::new(queue)];
    RxPort { name, queues, feed: Feed::Stored, monitor: None, filter: String::new(), offset_ns: 0, notes: Vec::new() }
}

/// A port that makes `count` packets of 60 bytes, `rate` per second, each with its due time.
pub(super) fn paced(rate: u64, count: u64) -> RxPort {
    let (block, interfaces) = (Block::new(AT_ONCE * 76, AT_ONCE), interface("paced"));
    let gap = 1_000_000_000 / rate;
    of("paced".into(), Paced { block, interfaces, gap, left: count, due: Nanos::ZERO, consumed: 0, made: 0 })
}

/// Frames that may be due at once.
const AT_ONCE: usize = 4096;

struct Paced {
    block: Block,
    interfaces: [Interface; 1],
    gap: u64,
    left: u64,
    due: Nanos,
    consumed: usize,
    made: u64,
}

impl RxQueue for Paced {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if self.consumed == self.block.len() {
            self.block.clear();
            self.consumed = 0;
            if self.due == Nanos::ZERO {
                self.due = now;
            }
            let frame = frame_of(60);
            while self.left > 0 && self.due <= now && self.block.push(&Desc::new(self.due, 0, 60), &frame) {
                self.due = self.due.shifted(self.gap as i64);
                self.left -= 1;
                self.made += 1;
            }
        }
        let horizon = if self.left == 0 { Horizon::Ended } else { Horizon::At(self.due) };
        let burst = self.block.burst().slice(self.consumed..self.block.len());
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.consumed += frames;
    }

    fn detach(&mut self) {
        self.left = 0;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let waiting = (self.block.len() - self.consumed) as u64;
        let account = ledger.account(Stage::Receive, &self.interfaces[0].name);
        account.add(Count::Received, self.made).add(Count::Delivered, self.made - waiting);
    }
}

struct Replay {
    frames: Arc<Frames>,
    interfaces: [Interface; 1],
    next: usize,
}

impl RxQueue for Replay {
    fn fill(&mut self, _now: Nanos) -> Result<Head<'_>, PortError> {
        let end = (self.next + SHOWN).min(self.frames.len());
        let horizon = self.frames.time(end).map_or(Horizon::Ended, Horizon::At);
        Ok(Head { burst: self.frames.burst(self.next, end), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.next += frames;
    }

    fn detach(&mut self) {}

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, &self.interfaces[0].name);
        account.add(Count::Received, self.next as u64).add(Count::Delivered, self.next as u64);
    }
}

/// Ethernet, IPv4 and UDP as far as the flow hash looks.
fn frame_of(captured: usize) -> Vec<u8> {
    let mut frame = vec![0x5a; captured];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame[14] = 0x45;
    let length = (captured - 14) as u16;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    frame[20..22].fill(0);
    frame[23] = 17;
    frame
}

fn address(frame: &mut [u8], random: u64) {
    frame[26..34].copy_from_slice(&random.to_ne_bytes());
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        linerate_burst::random::next(&mut self.0)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 20) as usize % limit
    }
}
