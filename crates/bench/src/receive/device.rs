//! Frames on a device compared with frames of the host, fed from memory: `bench receive --device`.
//!
//! Segments of one connection lie in blocks, as a port leaves them, and pass the endpoint, with acknowledgements, into frames: of the
//! host, or of the device by each way. A chunk is a frame: its time ends when the device has checked the frame (presence, CRC-32C) and
//! the next may start. The bus is measured in the same run, by one large copy each way.

mod packets;

use self::packets::Connection;
use super::chunks::{self, ChunkResult, Row, parts, positive, rates};
use super::{CHUNKS, cpu_time};
use crate::Effort;
use crate::harness::{Side, alternate};
use anyhow::{Context, ensure};
use linerate_burst::pool::OwnedBytes;
use linerate_cli::verbs::receive::device::DeviceChoice;
use linerate_cli::view::rates::counted;
use linerate_device::frames::{DeviceDestination, Memory, Options, open};
use linerate_device::{Form, Route, Shape};
use linerate_transport::destination::{Destination, Discard};
use linerate_transport::frames::{Batch, Config, Frames};
use linerate_transport::pattern::Pattern;
use rustix::thread::gettid;
use std::time::{Duration, Instant};

/// Bytes of a block of packets, and number of blocks.
const BLOCK: usize = 2 << 20;
const BLOCKS: usize = 8;
/// Sending time of chunks of one size, and their least number.
const SPAN: Duration = Duration::from_millis(150);
const QUICK_SPAN: Duration = Duration::from_millis(5);
const LEAST: usize = 5;
/// Bytes of the one large copy.
const LARGE: usize = 256 << 20;
const QUICK_LARGE: usize = 4 << 20;
const MTUS: [usize; 2] = [1500, 8000];
/// Bytes of IPv4, and of TCP with timestamps.
const HEADERS: usize = 20 + 32;
/// GiB per second of 100 Gb/s.
const GIB_OF_100_GBPS: f64 = 12.5e9 / (1_u64 << 30) as f64;

/// Memory of frames, and the way of bytes to it.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// `None`: on the host.
    route: Option<Route>,
    /// Segments lie in buffers of their own, and the processor copies them together.
    is_scattered: bool,
}

const CASES: [Case; 5] = [
    Case { name: "host", route: None, is_scattered: false },
    Case { name: "copy", route: Some(Route::Copy), is_scattered: false },
    Case { name: "place", route: Some(Route::Place), is_scattered: false },
    Case { name: "gather", route: Some(Route::Gather), is_scattered: false },
    Case { name: "place, scattered", route: Some(Route::Place), is_scattered: true },
];

/// Measures all ways; returns rows and text.
pub(super) fn run(effort: Effort, which: DeviceChoice) -> anyhow::Result<(Vec<Row>, String)> {
    // Kept open: to open a GPU again for each chunk would take most of the time.
    let held = which.device()?;
    let facts = held.facts();
    let bus = bus(which, if effort.quick { QUICK_LARGE } else { LARGE }).context("a large copy")?;
    let chunks = if effort.quick { &CHUNKS[..2] } else { &CHUNKS[..] };
    let span = if effort.quick { QUICK_SPAN } else { SPAN };
    let mut rows = Vec::new();
    for mtu in MTUS {
        for case in CASES {
            verify(which, case, mtu).with_context(|| format!("{}, MTU {mtu}", case.name))?;
        }
        let side = |case: Case| {
            let round = move || chunks.iter().map(|chunk| measure(which, case, mtu, *chunk as usize, span)).collect();
            Side::new(case.name, round)
        };
        let mut sides = CASES.map(side);
        alternate(effort.rounds, Duration::MAX, sides.iter_mut()).with_context(|| format!("MTU {mtu}"))?;
        let (device, model) = (Some(facts.name.clone()), Some(facts.model.clone()));
        let (bus_to_gbps, bus_from_gbps) = (Some(bus.0), Some(bus.1));
        let all = Row {
            bench: "receive-device",
            device,
            model,
            mtu: mtu as u32,
            bus_to_gbps,
            bus_from_gbps,
            ..Row::default()
        };
        let payload = |chunk: u64| in_segments(chunk as usize, mtu) as f64;
        rows.extend(sides.iter().flat_map(|side| chunks::rows(side, &all, payload)));
    }
    let title = format!("frames on {} ({})", facts.name, facts.model);
    let text = text(&title, &rows, bus);
    Ok((rows, text))
}

fn text(title: &str, rows: &[Row], bus: (f64, f64)) -> String {
    let mut text = format!("{title}\n\n");
    for mtu in parts(rows, |row| row.mtu) {
        let cases = parts(mtu, |row| row.case.clone());
        let heads = ["frames", "limit", "of bus", "fixed us", "to host", "s/GiB", "cores"];
        let host = &cases[0][0];
        let summary = chunks::summary(&heads, &cases, |_, row| {
            let compared = |text: String| if row.case == host.case { String::new() } else { text };
            vec![
                positive(Some(row.limit_gbps_payload)),
                compared(format!("{:.0} %", row.limit_gbps_payload.max(0.0) / bus.0 * 100.0)),
                format!("{:.1}", row.fixed_us),
                compared(format!("{:+.1}", row.fixed_us - host.fixed_us)),
                format!("{:.3}", row.cpu_s_per_gib),
                format!("{:.2}", row.cpu_s_per_gib * GIB_OF_100_GBPS),
            ]
        });
        text += &format!("{}\n\n{summary}\n\n", rates(&format!("MTU {}", mtu[0].mtu), &cases));
    }
    text + &format!(
        "  medians of up to {}, the ways in turn; heads are MiB of a chunk\n  \
         Gb/s are 10^9 bits of payload; a chunk ends when its frame was checked\n  \
         bus: one large copy in the same run: {:.0} Gb/s to the device, {:.0} Gb/s back\n  \
         limit and fixed us: the line closest to the times of all chunks; to host:\n  \
         fixed us more than with frames of the host\n  \
         s/GiB: CPU time of the receiving thread, with the endpoint; cores: that at\n  \
         100 Gb/s; both of the longest chunks\n  \
         scattered: a buffer per segment, copied together by the processor\n",
        counted(rows.first().map_or(0, |row| row.rounds) as u64, "round"),
        bus.0,
        bus.1
    )
}

/// Gb/s of one large copy to the device and back, the best of a few.
fn bus(which: DeviceChoice, bytes: usize) -> anyhow::Result<(f64, f64)> {
    let mut device = which.device()?;
    device.allocate(Shape { frames: 1, bytes, form: Form::Raw, granule: 4096 })?;
    let mut block = device.block(bytes)?;
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        let began = Instant::now();
        let ticket = device.copy(block.bytes(), 0, 0)?;
        device.wait(ticket)?;
        let there = began.elapsed().as_secs_f64();
        let began = Instant::now();
        device.fetch(0, 0, block.bytes_mut())?;
        best = (best.0.min(there), best.1.min(began.elapsed().as_secs_f64()));
    }
    let gbps = |seconds: f64| bytes as f64 * 8.0 / seconds / 1e9;
    Ok((gbps(best.0), gbps(best.1)))
}

/// Bytes of whole segments in a chunk.
fn in_segments(chunk: usize, mtu: usize) -> usize {
    let segment = mtu - HEADERS;
    chunk / segment * segment
}

/// A connection, its frames, and their destination.
struct Run {
    connection: Connection,
    frames: Frames,
    to: FrameTarget,
    is_lent: bool,
    blocks: Vec<OwnedBytes>,
    /// Segments of a chunk.
    segments: usize,
}

enum FrameTarget {
    Host(Discard),
    Device(Box<DeviceDestination>),
}

impl Run {
    fn new(which: DeviceChoice, case: Case, mtu: usize, chunk: usize, pattern: Option<Pattern>) -> anyhow::Result<Run> {
        let (segment, size) = (mtu - HEADERS, in_segments(chunk, mtu));
        let config = Config { size, frames: 3, ..Config::default() };
        let (mut frames, to) = match case.route {
            None => {
                let discard = pattern.map_or_else(Discard::default, Discard::verifying);
                (Frames::new(&config)?, FrameTarget::Host(discard))
            }
            Some(route) => {
                let options = Options { frames: config, form: Form::Raw, route, block: BLOCK, blocks: BLOCKS, pattern };
                let (memory, device) = open(which.device()?, options)?;
                let frames = match memory {
                    Memory::Here(pieces) => Frames::over(&config, pieces)?,
                    Memory::RemoteMemory(beyond) => Frames::beyond(&config, beyond)?,
                };
                (frames, FrameTarget::Device(Box::new(device)))
            }
        };
        let began = Instant::now();
        frames.calibrate(segment, &|| began.elapsed().as_nanos() as u64);
        let connection = Connection::open(&mut frames, segment, BLOCK, case.is_scattered)?;
        let is_lent = !case.is_scattered && matches!(case.route, Some(Route::Place | Route::Gather));
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            let mut block = match &to {
                FrameTarget::Device(device) => device.block(BLOCK)?,
                FrameTarget::Host(_) => OwnedBytes::of(vec![0; BLOCK], 0..BLOCK),
            };
            connection.fill(&mut block)?;
            blocks.push(block);
        }
        Ok(Run { connection, frames, to, is_lent, blocks, segments: size / segment })
    }

    /// Returns a block that is not read any more: the least recently used.
    fn block(&mut self) -> anyhow::Result<OwnedBytes> {
        if let FrameTarget::Device(device) = &mut self.to
            && self.is_lent
        {
            let began = Instant::now();
            while self.blocks.is_empty() {
                self.blocks.extend(std::iter::from_fn(|| device.returned()).map(|batch| batch.block));
                ensure!(began.elapsed() < Duration::from_secs(10), "the device gives no block back");
            }
        }
        Ok(self.blocks.remove(0))
    }

    /// Receives a chunk, up to the last byte in its frame.
    fn chunk(&mut self, pattern: Option<&Pattern>) -> anyhow::Result<()> {
        let mut left = self.segments;
        while left > 0 {
            let mut block = self.block()?;
            let count = left.min(self.connection.in_block());
            left -= count;
            self.connection.number(&mut block, count, pattern);
            if self.is_lent {
                self.frames.lend(block.bytes());
            }
            self.connection.take(block.bytes(), count, &mut self.frames)?;
            match &mut self.to {
                FrameTarget::Device(device) if self.is_lent => {
                    let (list, used) = (self.frames.lent(), self.connection.used(count));
                    device.place(Batch { block, used, list })?;
                }
                _ => self.blocks.push(block),
            }
        }
        self.frames.flush();
        let frame = self.frames.full().context("no frame was finished")?;
        match &mut self.to {
            FrameTarget::Host(discard) => discard.accept(&frame)?,
            FrameTarget::Device(device) => device.accept(&frame)?,
        }
        self.frames.return_frame(frame);
        self.connection.settle(&mut self.frames);
        Ok(())
    }
}

/// Every byte of a chunk is what was sent.
fn verify(which: DeviceChoice, case: Case, mtu: usize) -> anyhow::Result<()> {
    let pattern = Pattern::new(1);
    let mut run = Run::new(which, case, mtu, CHUNKS[1] as usize, Some(pattern))?;
    (0..4).try_for_each(|_| run.chunk(Some(&pattern)))
}

fn measure(which: DeviceChoice, case: Case, mtu: usize, chunk: usize, span: Duration) -> anyhow::Result<ChunkResult> {
    let mut run = Run::new(which, case, mtu, chunk, None)?;
    // All frames once, for what is only slow the first time.
    (0..3).try_for_each(|_| run.chunk(None))?;
    let (thread, mut times) = (gettid().as_raw_nonzero().get(), Vec::new());
    let (before, began) = (cpu_time(thread), Instant::now());
    while times.len() < LEAST || began.elapsed() < span {
        let began = Instant::now();
        run.chunk(None)?;
        times.push(began.elapsed().as_secs_f64());
    }
    let cpu = cpu_time(thread).saturating_sub(before).as_secs_f64();
    let seconds = times.iter().sum::<f64>() / times.len() as f64;
    let gib = (in_segments(chunk, mtu) * times.len()) as f64 / f64::from(1 << 30);
    times.sort_by(f64::total_cmp);
    let part = |part: f64| times[((times.len() - 1) as f64 * part) as usize] * 1e6;
    Ok(ChunkResult { seconds, p50: part(0.5), p99: part(0.99), cpu: cpu / gib, resent: 0 })
}
