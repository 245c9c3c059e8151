//! Frames on a device beside frames of the host, fed from memory: `bench receive --device`.
//!
//! Segments of one connection lie in blocks, as a port leaves them there, and go through the endpoint, with acknowledgements, into
//! frames: of the host, or of the device by each way. A chunk is a frame: its time ends when the frame was looked at on the device
//! (what came, CRC-32C) and the next may begin. The bus is measured in the same run, by one large copy each way.

mod packets;
mod text;

pub(crate) use self::text::text;

use self::packets::Connection;
use super::fit::Line;
use super::{CHUNKS, cpu_time, median};
use crate::Effort;
use anyhow::{Context, ensure};
use linerate_burst::pool::Piece;
use linerate_cli::verbs::receive::device::Which;
use linerate_device::frames::{Memory, OnDevice, Options, open};
use linerate_device::{Form, Route, Shape};
use linerate_receive::destination::{Destination, Discard};
use linerate_receive::frames::{Batch, Config, Frames};
use linerate_receive::pattern::Pattern;
use rustix::thread::gettid;
use serde::Serialize;
use std::time::{Duration, Instant};

/// Bytes of a block of frames, and how many blocks there are.
const BLOCK: usize = 2 << 20;
const BLOCKS: usize = 8;
/// Chunks of one size are sent for so long, at least so many.
const SPAN: Duration = Duration::from_millis(150);
const QUICK_SPAN: Duration = Duration::from_millis(5);
const LEAST: usize = 5;
/// Bytes of the one large copy.
const LARGE: usize = 256 << 20;
const QUICK_LARGE: usize = 4 << 20;
const MTUS: [usize; 2] = [1500, 8000];
/// Of IPv4, and of TCP with timestamps.
const HEADERS: usize = 20 + 32;

/// Where frames are, and how bytes come there.
#[derive(Clone, Copy, Debug)]
struct Case {
    name: &'static str,
    /// None: on the host.
    route: Option<Route>,
    /// Segments lie in buffers of their own, and the processor brings them together.
    is_scattered: bool,
}

const CASES: [Case; 5] = [
    Case { name: "host", route: None, is_scattered: false },
    Case { name: "copy", route: Some(Route::Copy), is_scattered: false },
    Case { name: "place", route: Some(Route::Place), is_scattered: false },
    Case { name: "gather", route: Some(Route::Gather), is_scattered: false },
    Case { name: "place, scattered", route: Some(Route::Place), is_scattered: true },
];

/// Chunks of one size by one way; names as in docs/json.md.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    bench: &'static str,
    device: String,
    model: String,
    case: &'static str,
    mtu: usize,
    chunk: u64,
    chunk_us: f64,
    p50_us: f64,
    p99_us: f64,
    gbps_payload: f64,
    cpu_s_per_gib: f64,
    limit_gbps_payload: f64,
    fixed_us: f64,
    bus_to_gbps: f64,
    bus_from_gbps: f64,
    rounds: usize,
}

/// Chunks of one size in one round: seconds of each on average, half of them, all but one of a hundred, and of the processor a GiB.
#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    seconds: f64,
    p50: f64,
    p99: f64,
    cpu: f64,
}

/// Measures all of it.
pub(crate) fn run(effort: Effort, which: Which) -> anyhow::Result<Vec<Row>> {
    // Kept to the end: to begin with a GPU again for each chunk would take most of the time.
    let held = which.device()?;
    let facts = held.facts();
    let bus = bus(which, if effort.quick { QUICK_LARGE } else { LARGE }).context("a large copy")?;
    let chunks = if effort.quick { &CHUNKS[..2] } else { &CHUNKS[..] };
    let mut rows = Vec::new();
    for mtu in MTUS {
        for case in CASES {
            verify(which, case, mtu).with_context(|| format!("{}, MTU {mtu}", case.name))?;
        }
        // The ways in turn, so that whatever else the machine does concerns all of them.
        let mut all = vec![vec![Vec::new(); chunks.len()]; CASES.len()];
        for _ in 0..effort.rounds.min(5) {
            for (case, rounds) in CASES.iter().zip(&mut all) {
                for (chunk, measured) in chunks.iter().zip(rounds) {
                    let span = if effort.quick { QUICK_SPAN } else { SPAN };
                    let one = measure(which, *case, mtu, *chunk as usize, span);
                    measured.push(one.with_context(|| format!("{}, MTU {mtu}, chunks of {chunk}", case.name))?);
                }
            }
        }
        for (case, rounds) in CASES.iter().zip(&all) {
            let of = |at: usize, part: fn(&Measured) -> f64| median(rounds[at].iter().map(part));
            let bytes = |chunk: u64| in_segments(chunk as usize, mtu) as f64;
            let times: Vec<(f64, f64)> =
                chunks.iter().enumerate().map(|(at, chunk)| (bytes(*chunk), of(at, |one| one.seconds))).collect();
            let line = Line::through(&times);
            rows.extend(chunks.iter().enumerate().map(|(at, chunk)| Row {
                bench: "receive-device",
                device: facts.name.clone(),
                model: facts.model.clone(),
                case: case.name,
                mtu,
                chunk: *chunk,
                chunk_us: times[at].1 * 1e6,
                p50_us: of(at, |one| one.p50) * 1e6,
                p99_us: of(at, |one| one.p99) * 1e6,
                gbps_payload: bytes(*chunk) * 8.0 / times[at].1 / 1e9,
                cpu_s_per_gib: of(at, |one| one.cpu),
                limit_gbps_payload: line.gbps(),
                fixed_us: line.fixed * 1e6,
                bus_to_gbps: bus.0,
                bus_from_gbps: bus.1,
                rounds: effort.rounds.min(5),
            }));
        }
    }
    Ok(rows)
}

/// Gb/s of one large copy to the device and back, the best of a few.
fn bus(which: Which, bytes: usize) -> anyhow::Result<(f64, f64)> {
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

/// A connection, its frames, and where these go.
struct Run {
    connection: Connection,
    frames: Frames,
    to: To,
    is_lent: bool,
    blocks: Vec<Piece>,
    /// Segments of a chunk.
    segments: usize,
}

enum To {
    Host(Discard),
    Device(Box<OnDevice>),
}

impl Run {
    fn new(which: Which, case: Case, mtu: usize, chunk: usize, pattern: Option<Pattern>) -> anyhow::Result<Run> {
        let (segment, size) = (mtu - HEADERS, in_segments(chunk, mtu));
        let config = Config { size, frames: 3, ..Config::default() };
        let (mut frames, to) = match case.route {
            None => {
                let discard = pattern.map_or_else(Discard::default, Discard::verifying);
                (Frames::new(&config)?, To::Host(discard))
            }
            Some(route) => {
                let options = Options { frames: config, form: Form::Raw, route, block: BLOCK, blocks: BLOCKS, pattern };
                let (memory, device) = open(which.device()?, options)?;
                let frames = match memory {
                    Memory::Here(pieces) => Frames::over(&config, pieces)?,
                    Memory::Beyond(beyond) => Frames::beyond(&config, beyond)?,
                };
                (frames, To::Device(Box::new(device)))
            }
        };
        let began = Instant::now();
        frames.calibrate(segment, &|| began.elapsed().as_nanos() as u64);
        let connection = Connection::open(&mut frames, segment, BLOCK, case.is_scattered)?;
        let is_lent = !case.is_scattered && matches!(case.route, Some(Route::Place | Route::Gather));
        let mut blocks = Vec::new();
        for _ in 0..BLOCKS {
            let mut block = match &to {
                To::Device(device) => device.block(BLOCK)?,
                To::Host(_) => Piece::of(vec![0; BLOCK], 0..BLOCK),
            };
            connection.fill(&mut block)?;
            blocks.push(block);
        }
        Ok(Run { connection, frames, to, is_lent, blocks, segments: size / segment })
    }

    /// A block that nobody reads any more: the one that was used longest ago.
    fn block(&mut self) -> anyhow::Result<Piece> {
        if let To::Device(device) = &mut self.to
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
                To::Device(device) if self.is_lent => {
                    let (list, used) = (self.frames.lent(), self.connection.used(count));
                    device.place(Batch { block, used, list })?;
                }
                _ => self.blocks.push(block),
            }
        }
        self.frames.flush();
        let frame = self.frames.full().context("no frame was finished")?;
        match &mut self.to {
            To::Host(discard) => discard.accept(&frame)?,
            To::Device(device) => device.accept(&frame)?,
        }
        self.frames.give_back(frame);
        self.connection.settle(&mut self.frames);
        Ok(())
    }
}

/// Every byte of a chunk is what was sent.
fn verify(which: Which, case: Case, mtu: usize) -> anyhow::Result<()> {
    let pattern = Pattern::new(1);
    let mut run = Run::new(which, case, mtu, CHUNKS[1] as usize, Some(pattern))?;
    (0..4).try_for_each(|_| run.chunk(Some(&pattern)))
}

fn measure(which: Which, case: Case, mtu: usize, chunk: usize, span: Duration) -> anyhow::Result<Measured> {
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
    let part = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    Ok(Measured { seconds, p50: part(0.5), p99: part(0.99), cpu: cpu / gib })
}
