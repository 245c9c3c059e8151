//! The receiver's account of streams: how many frames with trailers a core checks in a second, bursts as they would have just
//! arrived, of streams in no order.

use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::{Block, Desc, Nanos};
use linerate_cli::view::rates::counted;
use linerate_generate::check::{Check, Options};
use linerate_generate::trailer::{self, Key, Trailer};
use linerate_wire::build::Frame;
use linerate_wire::{Link, MacAddr, ethernet, ipv4, udp};
use std::hint::black_box;
use std::time::Instant;

/// Frames of a burst.
const BURST: usize = 2048;
/// Bytes of a frame without FCS, of all headers, and of those up to UDP.
const LENGTH: usize = 60;
const HEADERS: usize = 42;
const LINK_AND_IP: usize = 34;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    [1_000, 100_000].map(|streams| measure(streams, effort)).into_iter().collect()
}

fn measure(streams: usize, effort: Effort) -> anyhow::Result<Row> {
    let (mut check, mut traffic) =
        (Check::new(Key::default(), Options { streams, ..Options::default() }), Traffic::new(streams)?);
    let bursts = effort.of(1000).max(streams.div_ceil(BURST));
    let (mut ours, mut limit) = (Rounds::default(), Rounds::default());
    // The first time memory is allocated.
    for _ in 0..bursts {
        check.take(traffic.next()?.burst(), &[Some(Link::Ethernet)]);
    }
    for _ in 0..effort.rounds {
        let (mut checked, mut read) = (0.0, 0.0);
        for _ in 0..bursts {
            let block = traffic.next()?;
            let started = Instant::now();
            let sum = block
                .burst()
                .iter()
                .fold(0, |sum, (_, frame)| sum ^ u64::from(frame[0]) ^ u64::from(frame[LENGTH - 1]));
            black_box(sum);
            read += started.elapsed().as_secs_f64();
            let started = Instant::now();
            check.take(block.burst(), &[Some(Link::Ethernet)]);
            checked += started.elapsed().as_secs_f64();
        }
        let frames = (bursts * BURST) as u64;
        ours.add(frames, checked);
        limit.add(frames, read);
    }
    let summary = check.report(None).summary();
    anyhow::ensure!(
        (summary.streams, summary.counts.received, summary.counts.lost, summary.counts.corrupted)
            == (streams as u64, traffic.made, 0, 0),
        "the frames of the benchmark were not counted right: {summary:?}"
    );
    let row = ours.row("check", counted(streams as u64, "stream"), LENGTH as f64).limited("touch", &limit);
    let memory = format!("{} bytes a stream", check.memory() / streams);
    Ok(Row { remark: memory, ..row.sized(LENGTH + 4) })
}

/// UDP datagrams of many streams, each the next of a stream that is drawn.
struct Traffic {
    block: Block,
    frame: Vec<u8>,
    /// The next number of each stream.
    sequences: Vec<u64>,
    made: u64,
}

impl Traffic {
    fn new(streams: usize) -> anyhow::Result<Self> {
        let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
        let link = ethernet::Header { destination, source, ether_type: 0 };
        let network =
            ipv4::Header { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..ipv4::Header::new(0) };
        let transport = udp::Header { source_port: 1000, destination_port: 2000 };
        let frame = Frame::new(&[&link, &network, &transport], &[0; LENGTH - HEADERS]).to_vec()?;
        Ok(Traffic { block: Block::new(BURST * 128, BURST), frame, sequences: vec![0; streams], made: 0 })
    }

    /// A burst of frames, in the block as if it had just arrived. For the first frames each stream has its turn.
    fn next(&mut self) -> anyhow::Result<&Block> {
        self.block.clear();
        let streams = self.sequences.len() as u64;
        for _ in 0..BURST {
            let draw = self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let stream = if self.made < streams { self.made } else { draw % streams };
            let sequence = self.sequences[stream as usize];
            self.sequences[stream as usize] += 1;
            let received = Nanos(1_700_000_000_000_000_000 + self.made * 50);
            let sent = received.0 - 10_000 - draw % 20_000;
            let bytes = Trailer { stream: stream as u32, sequence, time: sent }.bytes(&Key::default());
            self.frame[LENGTH - trailer::LEN..].copy_from_slice(&bytes);
            let network = ipv4::View::parse(&self.frame[ethernet::LEN..])?.pseudo();
            udp::fill_checksum(&mut self.frame[LINK_AND_IP..], &network)?;
            anyhow::ensure!(self.block.push(&Desc::new(received, 0, LENGTH as u32), &self.frame), "no room");
            self.made += 1;
        }
        Ok(&self.block)
    }
}
