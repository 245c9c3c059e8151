//! Accounting of streams: packets with trailers that a core checks in a second, in bursts as they arrive, of streams in random order.

use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use super::traffic::START;
use linerate_burst::{Block, Desc, Nanos};
use linerate_cli::view::rates::counted;
use linerate_generate::check::{Check, Options};
use linerate_generate::trailer::{self, Key, Trailer};
use linerate_headers::build::Frame;
use linerate_headers::{Link, MacAddr, ethernet, ipv4, udp};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

/// Packets of a burst.
const BURST: usize = 2048;
/// Bytes of a packet without FCS, of all headers, and of those up to UDP.
const LENGTH: usize = 60;
const HEADERS: usize = 42;
const LINK_AND_IP: usize = 34;

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    Ok([1_000, 100_000].map(|streams| case(move || of(streams, effort))).into())
}

fn of(streams: usize, effort: Effort) -> anyhow::Result<Case> {
    let mut check = Check::new(Key::default(), Options { streams, ..Options::default() });
    let mut traffic = Traffic::new(streams)?;
    let bursts = effort.of(1000).max(streams.div_ceil(BURST));
    // The first round allocates memory.
    for _ in 0..bursts {
        check.take(traffic.next()?.burst(), &[Some(Link::Ethernet)]);
    }
    let check = Rc::new(RefCell::new(check));
    // The same bursts are read and checked; making them is not measured.
    let (memory, read) = (Rc::clone(&check), Rc::new(Cell::new(0.0)));
    let (frames, own_read) = ((bursts * BURST) as u64, Rc::clone(&read));
    let ours = move || {
        let (mut checked, mut touched, mut check) = (0.0, 0.0, check.borrow_mut());
        for _ in 0..bursts {
            let burst = traffic.next()?.burst();
            let started = Instant::now();
            black_box(burst.iter().fold(0, |sum, (_, frame)| sum ^ frame[0] ^ frame[LENGTH - 1]));
            touched += started.elapsed().as_secs_f64();
            let started = Instant::now();
            check.take(burst, &[Some(Link::Ethernet)]);
            checked += started.elapsed().as_secs_f64();
        }
        own_read.set(touched);
        let summary = check.report(None).summary();
        let counts = (summary.streams, summary.counts.received, summary.counts.lost, summary.counts.corrupted);
        anyhow::ensure!(counts == (streams as u64, traffic.made, 0, 0), "packets were miscounted: {summary:?}");
        Ok(Sample::new(frames, checked))
    };
    let ours = Ours::new(counted(streams as u64, "stream"), ours)
        .finish(move |row| row.remark = format!("{} bytes per stream", memory.borrow().memory() / streams));
    Ok(Case::sized(LENGTH + 4).ours(ours).limit("touch", move || Ok(Sample::new(frames, read.get()))))
}

/// UDP datagrams of many streams, each the next one of a random stream.
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

    /// A burst of packets. The first ones are of each stream in sequence.
    fn next(&mut self) -> anyhow::Result<&Block> {
        self.block.clear();
        let streams = self.sequences.len() as u64;
        for _ in 0..BURST {
            let draw = self.made.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            let stream = if self.made < streams { self.made } else { draw % streams };
            let sequence = self.sequences[stream as usize];
            self.sequences[stream as usize] += 1;
            let received = Nanos(START + self.made * 50);
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
