//! Streams of the kernel's TCP received in user space, in chunks of several sizes, compared with the kernel's own receiver.
//!
//! A chunk starts when the last byte of the previous one is acknowledged; the kernel stamps that moment. So the time of a chunk is a
//! fixed part and a part per byte, and the line through the times of all sizes shows both: the rate without waits, and the cost of a
//! wait. Sender and receiver have a processor each. The kernel processes arriving packets on the sender's processor, for every receiver
//! alike; CPU time is that of the receiving thread.

mod chunks;
pub(super) mod device;
mod receivers;

use self::chunks::{ChunkResult, Row, parts, positive, published, rates};
use self::receivers::{RECEIVERS, Receiver, Stage};
use super::harness::{Side, alternate};
use super::machine::{has_hosts, two_cpus};
use super::{Args, Effort, OwnTable};
use anyhow::{Context, anyhow, ensure};
use linerate_backends::transfer::{self, Connection, Series, Source, TransferControl, TransferStream, explain};
use linerate_cli::view::rates::counted;
use linerate_engine::Stop;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Bytes of chunks.
const CHUNKS: [u64; 8] = [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20, 128 << 20];
/// Sending time of chunks of one size. A started chunk is finished.
const SPAN: Duration = Duration::from_millis(150);
const QUICK_SPAN: Duration = Duration::from_millis(10);
/// Time for the congestion window to open first.
const WARM_UP: Duration = Duration::from_millis(50);
/// No round starts after this time: a slow machine measures fewer of them.
const ENOUGH: Duration = Duration::from_secs(30);
/// Maximum wait for the other end.
const PATIENCE: Duration = Duration::from_secs(10);
/// Ethernet, with FCS; IPv4, and TCP with timestamps.
const LAYER_2: u32 = 14 + 4;
const HEADERS: u32 = 20 + 32;

/// Packets between sender and receiver.
#[derive(Clone, Copy, Debug)]
struct PacketPath {
    name: &'static str,
    mtu: u32,
    /// Segments stay joined, up to 64 KiB, as from a card with LRO, with checksums left to the card; otherwise each is a packet with a
    /// checksum, which the receiver verifies.
    is_joined: bool,
}

const WAYS: [PacketPath; 3] = [
    PacketPath { name: "super-frames", mtu: 1500, is_joined: true },
    PacketPath { name: "MTU 8000", mtu: 8000, is_joined: false },
    PacketPath { name: "MTU 1500", mtu: 1500, is_joined: false },
];

impl PacketPath {
    /// Payload of a segment.
    fn segment(&self) -> u32 {
        self.mtu - HEADERS
    }

    /// Bytes on layer 2 per byte of payload, as on a wire.
    fn layer_2(&self) -> f64 {
        f64::from(self.mtu + LAYER_2) / f64::from(self.segment())
    }
}

/// Zeros, which cost the sender least.
struct Zeros;

impl Source for Zeros {
    fn next(&mut self, _: u64, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(buffer.len())
    }
}

/// Rows and text: of the device that was asked for, or of all receivers.
pub(super) fn own(args: &Args, effort: Effort) -> anyhow::Result<OwnTable> {
    let effort = Effort { rounds: effort.rounds.min(5), ..effort };
    let (rows, text) = match args.device {
        Some(which) => device::run(effort, which)?,
        None if has_hosts("receive") => {
            let ways = WAYS.into_iter().map(|way| measure(effort, way).with_context(|| way.name.to_owned()));
            let rows = ways.collect::<anyhow::Result<Vec<_>>>()?.concat();
            let text = text(&rows);
            (rows, text)
        }
        None => (Vec::new(), String::new()),
    };
    Ok((rows.iter().map(serde_json::to_value).collect::<Result<_, _>>()?, text))
}

fn measure(effort: Effort, way: PacketPath) -> anyhow::Result<Vec<Row>> {
    let stage = Rc::new(Stage::up(way, effort.quick)?);
    let chunks = if effort.quick { &CHUNKS[..2] } else { &CHUNKS };
    let side = |receiver: Receiver| {
        let stage = Rc::clone(&stage);
        Side::new(receiver.name, move || round(receiver, &stage, chunks))
    };
    let receivers: Vec<Receiver> = RECEIVERS.into_iter().filter(|receiver| receiver.suits(way)).collect();
    let mut sides: Vec<_> = receivers.iter().copied().map(side).collect();
    alternate(effort.rounds, ENOUGH, sides.iter_mut())?;
    let all = Row { bench: "receive", way: Some(way.name), mtu: way.mtu, ..Row::default() };
    let mut rows: Vec<Row> = Vec::new();
    for (side, receiver) in sides.iter().zip(&receivers) {
        let all = Row { remark: receiver.job(&stage), ..all.clone() };
        for row in chunks::rows(side, &all, |chunk| chunk as f64) {
            let is_peer = |peer: &&Row| Some(&*peer.case) == receiver.peer() && peer.chunk == row.chunk;
            let peer = rows.iter().find(is_peer).cloned();
            rows.push(Row {
                gbps_l2: Some(row.gbps_payload * way.layer_2()),
                limit_gbps_l2: Some(row.limit_gbps_payload * way.layer_2()),
                ratio: peer.as_ref().map(|peer| row.gbps_payload / peer.gbps_payload),
                peer_gbps_payload: peer.as_ref().map(|peer| peer.gbps_payload),
                peer_cpu_s_per_gib: peer.as_ref().map(|peer| peer.cpu_s_per_gib),
                peer: peer.map(|peer| peer.case),
                ..row
            });
        }
    }
    Ok(rows)
}

/// Sends chunks of all sizes over one connection.
fn round(receiver: Receiver, stage: &Stage, chunks: &[u64]) -> anyhow::Result<Vec<ChunkResult>> {
    let receiving = receiver.open(stage)?;
    let (to, stop) = (receiving.to, Stop::new());
    let [sending_cpu, receiving_cpu] = two_cpus();
    let (report, reported) = mpsc::channel();
    let (measured, sent, received) = thread::scope(|scope| {
        let receiver = scope.spawn({
            let stop = stop.clone();
            move || receiving.run(receiving_cpu, &stop, &report)
        });
        // The channel closes if the receiver fails, which then returns the reason.
        let sent = reported.recv().context("the receiver has not started").and_then(|thread| {
            let result = send(stage, to, Some(sending_cpu), chunks, thread);
            result.inspect_err(|_| stop.request())
        });
        let received = receiver.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (sent, received) {
            (Ok((measured, sent)), Ok(received)) => Ok((measured, sent, received)),
            (Err(error), Ok(_)) | (_, Err(error)) => Err(error),
        }
    })?;
    ensure!(sent == received, "{sent} bytes were acknowledged, and {received} received");
    Ok(measured)
}

fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = String::new();
    let heads = ["receiver", "limit", "L2", "fixed us", "s/GiB", "CPU", "ratio", "spread", "resent"];
    // Without the spread of one round.
    let heads: Vec<&str> = heads.into_iter().filter(|head| first.rounds > 1 || *head != "spread").collect();
    let ratio = |value: Option<f64>| {
        value.filter(|value| value.is_finite()).map_or_else(String::new, |value| format!("{value:.2}"))
    };
    for way in parts(rows, |row| row.way) {
        let sides = parts(way, |row| row.case.clone());
        let summary = chunks::summary(&heads, &sides, |side, row| {
            let cells = [
                positive(Some(row.limit_gbps_payload)),
                positive(row.limit_gbps_l2),
                format!("{:.1}", row.fixed_us),
                if row.cpu_s_per_gib > 0.0 { format!("{:.3}", row.cpu_s_per_gib) } else { String::new() },
                ratio(
                    row.peer_cpu_s_per_gib
                        .filter(|peer| *peer > 0.0 && row.cpu_s_per_gib > 0.0)
                        .map(|peer| row.cpu_s_per_gib / peer),
                ),
                ratio(row.ratio),
            ];
            let resent = side.iter().filter_map(|row| row.resent_segments).sum::<u32>().to_string();
            cells.into_iter().chain(row.spread_percent.map(|spread| format!("{spread:.0} %"))).chain([resent]).collect()
        });
        text += &format!("{}\n\n{summary}\n\n", rates(way[0].way.unwrap_or_default(), &sides));
    }
    text += &format!(
        "  medians of up to {}, the receivers in turn; heads are MiB of a chunk\n  \
         Gb/s are 10^9 bits of payload, or with headers and FCS (L2) for packets as\n  \
         long as the MTU (super-frames: 1500)\n  \
         limit and fixed us: the line closest to the times of all chunks\n  \
         s/GiB: CPU time of the receiving thread; CPU, ratio: that and the rate,\n  \
         compared with the kernel (with or without CRC-32C, as the receiver);\n  \
         these{} are of the longest chunks\n  \
         resent: segments, over all chunks\n  \
         kernel: {}\n\n",
        counted(first.rounds as u64, "round"),
        if first.rounds > 1 { " and spread" } else { "" },
        first.remark.as_deref().unwrap_or_default(),
    );
    text + &published()
}

/// Sends chunks of all sizes, and measures the CPU time of the receiving thread; returns the acknowledged bytes too.
fn send(
    stage: &Stage,
    to: SocketAddr,
    cpu: Option<usize>,
    chunks: &[u64],
    receiver: i32,
) -> anyhow::Result<(Vec<ChunkResult>, u64)> {
    let way = transfer::ConnectOptions {
        netns: Some(stage.sender()),
        // BBR would pace.
        congestion: Some("cubic".to_owned()),
        patience: PATIENCE,
        silence: Some(PATIENCE),
        ..transfer::ConnectOptions::default()
    };
    let connection = Connection::open(to, &way).map_err(|error| anyhow!(explain(&error, to)))?;
    let mut streams = [TransferStream { connection, source: Zeros, cpu, failure: None }];
    let (stop, written) = (Stop::new().flag(), AtomicU64::new(0));
    let watched = TransferControl { stop: &stop, written: &written };
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
        measured.push(ChunkResult { seconds, p50, p99, cpu: cpu / gib, resent: resent_by_now - resent });
        resent = resent_by_now;
    }
    let sent = streams[0].connection.acknowledged();
    transfer::finish(&mut streams, watched);
    if let Some(error) = &streams[0].failure {
        return Err(anyhow!(explain(error, to)));
    }
    Ok((measured, sent))
}

/// CPU time of a thread of this process (Documentation/scheduler/sched-stats.rst: nanoseconds are the first field).
fn cpu_time(thread: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|number| number.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
