//! Streams of the kernel's TCP received in user space, in chunks of several sizes, beside the kernel's own receiver.
//!
//! The next chunk begins when the last byte of the one before is acknowledged; the kernel stamps that moment. So the time of a
//! chunk is a fixed part and a part for each byte, and the line through the times of all sizes tells both: how fast a receiver is
//! where nothing waits, and what each wait costs. Sender and receiver have a processor each. The kernel works on what arrives
//! where the sender runs, for every receiver alike; what is counted is the time of the thread that receives.

pub(super) mod device;
mod fit;
mod receivers;
mod text;

pub(super) use self::text::text;

use self::fit::Line;
use self::receivers::{RECEIVERS, Receiver, Stage};
use super::Effort;
use anyhow::{Context, anyhow, ensure};
use linerate_backends::transfer::{self, Connection, Series, Source, Stream, Watched, explain};
use linerate_cli::view::terminal::tell;
use linerate_engine::Stop;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes of chunks.
const CHUNKS: [u64; 8] = [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20];
/// Chunks of one size are sent for so long. A chunk that was begun is ended.
const SPAN: Duration = Duration::from_millis(150);
const QUICK_SPAN: Duration = Duration::from_millis(10);
/// Before that, until congestion control has found out how much it may send.
const WARM_UP: Duration = Duration::from_millis(50);
/// No round of a way begins after so long: a slow machine measures fewer of them.
const ENOUGH: Duration = Duration::from_secs(30);
/// Whoever waits longer than this for the other end gives up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ethernet, with FCS; IPv4, and TCP with timestamps.
const LAYER_2: u32 = 14 + 4;
const HEADERS: u32 = 20 + 32;

/// What frames are like on the way.
#[derive(Clone, Copy, Debug)]
struct Way {
    name: &'static str,
    mtu: u32,
    /// Segments stay together, up to 64 KiB of them, as behind a card with LRO, and their checksums are left to cards; or each is a
    /// frame with a checksum of its own, which whoever receives verifies.
    is_joined: bool,
}

const WAYS: [Way; 3] = [
    Way { name: "super-frames", mtu: 1500, is_joined: true },
    Way { name: "MTU 8000", mtu: 8000, is_joined: false },
    Way { name: "MTU 1500", mtu: 1500, is_joined: false },
];

impl Way {
    /// Payload of a segment.
    fn segment(&self) -> u32 {
        self.mtu - HEADERS
    }

    /// Bytes on layer 2 for each one of payload, as on a wire.
    fn layer_2(&self) -> f64 {
        f64::from(self.mtu + LAYER_2) / f64::from(self.segment())
    }
}

/// A receiver with chunks of one size; names as in docs/json.md.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    bench: &'static str,
    case: &'static str,
    way: &'static str,
    mtu: u32,
    chunk: u64,
    chunk_us: f64,
    p50_us: f64,
    p99_us: f64,
    gbps_payload: f64,
    gbps_payload_min: f64,
    gbps_payload_max: f64,
    gbps_l2: f64,
    cpu_s_per_gib: f64,
    /// In all rounds.
    resent_segments: u32,
    /// Of the line through the times of all sizes.
    limit_gbps_payload: f64,
    limit_gbps_l2: f64,
    fixed_us: f64,
    peer: Option<&'static str>,
    peer_gbps_payload: Option<f64>,
    peer_cpu_s_per_gib: Option<f64>,
    ratio: Option<f64>,
    rounds: usize,
    spread_percent: f64,
}

/// Chunks of one size in one round.
struct Measured {
    /// Seconds of a chunk, on average.
    seconds: f64,
    /// Microseconds that half of them, and of a hundred all but one, take at the most.
    p50: f64,
    p99: f64,
    /// Seconds of the receiving thread for a GiB.
    cpu: f64,
    /// Segments that were sent again: lost on the way, or not taken.
    resent: u32,
}

/// The rounds of a receiver: of each, a figure for each size.
struct Side {
    receiver: Receiver,
    rounds: Vec<Vec<Measured>>,
}

/// Zeros, which cost the sender least.
struct Zeros;

impl Source for Zeros {
    fn next(&mut self, _: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(buffer.len())
    }
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if !rustix::process::geteuid().is_root() {
        tell("bench receive: SKIPPED: test hosts need root\n");
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    for way in WAYS {
        rows.extend(measure(effort, way).with_context(|| format!("bench receive: {}", way.name))?);
    }
    Ok(rows)
}

fn measure(effort: Effort, way: Way) -> anyhow::Result<Vec<Row>> {
    let stage = Stage::up(way, effort.quick)?;
    let chunks = if effort.quick { &CHUNKS[..2] } else { &CHUNKS };
    let receivers = RECEIVERS.into_iter().filter(|receiver| receiver.suits(way));
    let mut sides: Vec<Side> = receivers.map(|receiver| Side { receiver, rounds: Vec::new() }).collect();
    let began = Instant::now();
    for round in 0..effort.rounds.min(5) {
        if round > 0 && began.elapsed() > ENOUGH {
            break;
        }
        for side in &mut sides {
            side.round(&stage, chunks).with_context(|| side.receiver.name)?;
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for side in &sides {
        // The kernel's receiver is the first.
        let peers = rows.iter().take(chunks.len()).cloned().collect::<Vec<_>>();
        rows.extend(side.rows(way, chunks, &peers));
    }
    Ok(rows)
}

impl Side {
    /// One connection, over which chunks of all sizes go.
    fn round(&mut self, stage: &Stage, chunks: &[u64]) -> anyhow::Result<()> {
        let receiving = self.receiver.open(stage)?;
        let (to, stop) = (receiving.to, Stop::new());
        let (sending_cpu, receiving_cpu) = processors();
        let (tell, told) = mpsc::channel();
        let (measured, sent, received) = thread::scope(|scope| {
            let receiver = scope.spawn({
                let stop = stop.clone();
                move || receiving.run(receiving_cpu, &stop, &tell)
            });
            // Where the channel is closed the receiver has failed, and says why.
            let sent = told.recv().context("the receiver has not begun").and_then(|thread| {
                let result = send(stage, to, sending_cpu, chunks, thread);
                result.inspect_err(|_| stop.request())
            });
            let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            match (sent, received) {
                (Ok((measured, sent)), Ok(received)) => Ok((measured, sent, received)),
                (Err(error), Ok(_)) | (_, Err(error)) => Err(error),
            }
        })?;
        ensure!(sent == received, "{sent} bytes were acknowledged, and {received} received");
        self.rounds.push(measured);
        Ok(())
    }

    fn rows(&self, way: Way, chunks: &[u64], peers: &[Row]) -> Vec<Row> {
        let middle = |at: usize, of: fn(&Measured) -> f64| median(self.rounds.iter().map(|round| of(&round[at])));
        let times: Vec<(f64, f64)> =
            chunks.iter().enumerate().map(|(at, chunk)| (*chunk as f64, middle(at, |one| one.seconds))).collect();
        let line = Line::through(&times);
        let row = |(at, chunk): (usize, &u64)| {
            let gbps = |seconds: f64| *chunk as f64 * 8.0 / seconds / 1e9;
            let of_rounds = self.rounds.iter().map(|round| gbps(round[at].seconds));
            let (min, max) = of_rounds.fold((f64::MAX, 0.0f64), |(min, max), one| (min.min(one), max.max(one)));
            let (seconds, cpu) = (times[at].1, middle(at, |one| one.cpu));
            let peer = peers.get(at);
            Row {
                bench: "receive",
                case: self.receiver.name,
                way: way.name,
                mtu: way.mtu,
                chunk: *chunk,
                chunk_us: seconds * 1e6,
                p50_us: middle(at, |one| one.p50),
                p99_us: middle(at, |one| one.p99),
                gbps_payload: gbps(seconds),
                gbps_payload_min: min,
                gbps_payload_max: max,
                gbps_l2: gbps(seconds) * way.layer_2(),
                cpu_s_per_gib: cpu,
                resent_segments: self.rounds.iter().map(|round| round[at].resent).sum(),
                limit_gbps_payload: line.gbps(),
                limit_gbps_l2: line.gbps() * way.layer_2(),
                fixed_us: line.fixed * 1e6,
                peer: peer.map(|peer| peer.case),
                peer_gbps_payload: peer.map(|peer| peer.gbps_payload),
                peer_cpu_s_per_gib: peer.map(|peer| peer.cpu_s_per_gib),
                ratio: peer.map(|peer| gbps(seconds) / peer.gbps_payload),
                rounds: self.rounds.len(),
                spread_percent: (max - min) / gbps(seconds) * 100.0,
            }
        };
        chunks.iter().enumerate().map(row).collect()
    }
}

/// Sends chunks of all sizes, and watches what the receiving thread needs; and how many bytes were acknowledged.
fn send(
    stage: &Stage,
    to: SocketAddr,
    cpu: Option<usize>,
    chunks: &[u64],
    receiver: i32,
) -> anyhow::Result<(Vec<Measured>, u64)> {
    let way = transfer::Way {
        netns: Some(stage.sender()),
        // BBR paces, whoever receives.
        congestion: Some("cubic".to_owned()),
        patience: PATIENCE,
        silence: Some(PATIENCE),
        ..transfer::Way::default()
    };
    let connection = Connection::open(to, &way).map_err(|error| anyhow!(explain(&error, to)))?;
    let mut streams = [Stream { connection, source: Zeros, cpu, failure: None }];
    let (stop, written) = (Stop::new().flag(), AtomicU64::new(0));
    let watched = Watched { stop: &stop, written: &written };
    let mut series = |chunk: u64, span: Duration| {
        let series = Series { chunk: Some(chunk), bytes: None, duration: Some(span) };
        let outcome = transfer::send(&mut streams, series, watched)?;
        match streams[0].failure.take() {
            Some(failure) => Err(anyhow!(explain(&failure, to))),
            None => Ok((outcome, streams[0].connection.info().resent)),
        }
    };
    let (_, mut resent) = series(CHUNKS[0], stage.span().min(WARM_UP))?;
    let mut measured = Vec::new();
    for chunk in chunks {
        let before = cpu_time(receiver);
        let (outcome, resent_by_now) = series(*chunk, stage.span())?;
        let cpu = cpu_time(receiver).saturating_sub(before).as_secs_f64();
        let gib = outcome.bytes as f64 / f64::from(1 << 30);
        let (seconds, part) = (outcome.chunks.mean().as_secs_f64(), |part| outcome.chunks.quantile(part));
        let [p50, p99] = [0.5, 0.99].map(|of| part(of).as_secs_f64() * 1e6);
        measured.push(Measured { seconds, p50, p99, cpu: cpu / gib, resent: resent_by_now - resent });
        resent = resent_by_now;
    }
    let sent = streams[0].connection.acknowledged();
    transfer::finish(&mut streams, watched);
    if let Some(error) = &streams[0].failure {
        return Err(anyhow!(explain(error, to)));
    }
    Ok((measured, sent))
}

/// Processor time that a thread of this process has used (Documentation/scheduler/sched-stats.rst: nanoseconds come first).
fn cpu_time(thread: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// One for the sender and one for the receiver, where there are two.
fn processors() -> (Option<usize>, Option<usize>) {
    let all = sched_getaffinity(None).unwrap_or_default();
    let mut there = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    match (there.next(), there.next()) {
        (sender, Some(receiver)) => (sender, Some(receiver)),
        _ => (None, None),
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}
