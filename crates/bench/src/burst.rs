//! The main pipeline from ports in memory to another process: order, copy into shared memory with descs and flow hash,
//! a reader that touches every frame. Beside it the same loop with one port, and a plain copy.

mod dpdk;
mod reader;
mod source;

pub(super) use self::reader::read;

use self::reader::{Child, Reading};
use self::source::{Frames, Placing, Traffic, port, prepare};
use super::Effort;
use super::measure::{Rounds, Row};
use anyhow::{Context, ensure};
use linerate_engine::{Capture, Captured, Receive, Selection, Sharing, SharingOptions, Waiting};
use linerate_generate::rate::FCS;
use linerate_port::RxPort;
use linerate_share::{Access, Options};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

/// Records of all ports together, and of the one port beside them: more than caches hold.
const ALL_BYTES: usize = 128 << 20;
/// A ring that stays in the last cache, since a block that comes free is used again first.
const RING: Options = Options { slots: 16, slot_bytes: 1 << 20, huge: true, node: None, lock: false };
/// Bytes of the plain copy, and of the memory it goes to again and again.
const COPY_FROM: usize = 256 << 20;
const COPY_TO: usize = 1 << 20;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    if effort.dpdk {
        return dpdk::run(effort);
    }
    let cores = Cores::get(effort.copy_threads);
    let memory = vec![0x5a; effort.of(COPY_FROM).max(2 * COPY_TO)];
    let mut rows = Vec::new();
    for (size, ports) in [(64, 1), (64, 2), (64, 4), (64, 8), (128, 4), (256, 4), (512, 4), (1024, 4), (1518, 4)] {
        if effort.size.is_some_and(|wanted| wanted != size) || effort.ports.is_some_and(|wanted| wanted != ports) {
            continue;
        }
        let captured = size - FCS as usize;
        let frames = effort.of(ALL_BYTES / (captured + 16) / ports).max(1000);
        for placing in [Placing::Contiguous, Placing::Scattered] {
            for run in if ports == 1 { &[32][..] } else { &[1, 32] } {
                let traffic = Traffic { placing, ports, captured, run: *run, frames };
                rows.push(measure(traffic, effort, &cores, &memory)?);
            }
        }
    }
    Ok(rows)
}

/// How long frames take from a port to a reader in another process.
pub(super) fn hand_overs(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let cores = Cores::get(1);
    let cases = [(1_000_000, false), (1_000, false), (1_000, true)];
    cases.into_iter().map(|(rate, sleeps)| hand_over(effort, &cores, rate, sleeps)).collect()
}

/// One case, with its limits measured in the same rounds.
fn measure(traffic: Traffic, effort: Effort, cores: &Cores, memory: &[u8]) -> anyhow::Result<Row> {
    let many = prepare(traffic);
    // As many bytes: a port that caches hold a part of would be no limit.
    let single = prepare(Traffic { ports: 1, frames: traffic.frames * traffic.ports, ..traffic });
    let (mut ours, mut one, mut copy) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
        pipeline(&many, effort, cores)?.add_to(&mut ours);
        if traffic.ports > 1 {
            pipeline(&single, effort, cores)?.add_to(&mut one);
        }
        copy.time(|| plain_copy(memory));
    }
    let pattern = if traffic.run == 1 { "at random".to_owned() } else { format!("in runs of {}", traffic.run) };
    let case = if traffic.ports == 1 { "1 port".to_owned() } else { format!("{} ports {pattern}", traffic.ports) };
    let mut row = ours.row("burst", case, traffic.captured as f64).sized(traffic.captured + FCS as usize);
    row.layout = match traffic.placing {
        Placing::Contiguous => "contiguous",
        Placing::Scattered => "scattered",
    };
    (row.ports, row.cores) = (traffic.ports, effort.copy_threads.into());
    // The frame, its record header and its desc.
    let moved = (traffic.captured + 16 + 32) as f64;
    let copied = copy.median();
    row.gbytes = Some(row.mpps * moved / 1e3);
    row.copy_gbytes = Some(copied);
    row.ns = Some(1e3 / row.mpps);
    row.remark =
        format!("{}, {:.1} GB/s of {copied:.1} (copy), {:.1} ns", row.layout, row.mpps * moved / 1e3, 1e3 / row.mpps);
    Ok(if traffic.ports > 1 { row.limited("one port", &one) } else { row })
}

/// Everything that the ports hold, once, into a reader in another process.
fn pipeline(ports: &[Arc<Frames>], effort: Effort, cores: &Cores) -> anyhow::Result<Reading> {
    let total: u64 = ports.iter().map(|frames| frames.len() as u64).sum();
    let ports = ports.iter().enumerate().map(|(number, frames)| port(number, frames)).collect();
    let by_two = effort.copy_threads == 2;
    let reading = if effort.reader { into_child(ports, cores, by_two, false)? } else { alone(ports, cores, by_two)? };
    ensure!(reading.frames == total, "the reader got {} of {total} frames", reading.frames);
    Ok(reading)
}

/// Runs a capture of these ports into a ring with a reader in another process.
fn into_child(ports: Vec<RxPort>, cores: &Cores, by_two: bool, sleeps: bool) -> anyhow::Result<Reading> {
    let (name, sharing) = ring(1)?;
    let child = Child::start(&name, cores.reader, sleeps)?;
    capture(ports, sharing, cores, by_two)?;
    child.end()
}

/// Runs a capture of these ports into a ring that nobody reads.
fn alone(ports: Vec<RxPort>, cores: &Cores, by_two: bool) -> anyhow::Result<Reading> {
    let (captured, elapsed) = capture(ports, ring(0)?.1, cores, by_two)?;
    Ok(Reading { frames: captured.frames, seconds: elapsed.as_secs_f64(), ..Reading::default() })
}

/// A ring of its own name that so many readers are to come to.
fn ring(wait_for: usize) -> anyhow::Result<(String, Sharing)> {
    let name = format!("bench-{}", std::process::id());
    let access = Access { lossless: true, ..Access::default() };
    let options = SharingOptions { name: name.clone(), ring: RING, access, wait_for, patience: None };
    let sharing = Sharing::create(options).with_context(|| format!("cannot share {name}"))?;
    Ok((name, sharing))
}

fn capture(ports: Vec<RxPort>, sharing: Sharing, cores: &Cores, by_two: bool) -> anyhow::Result<(Captured, Duration)> {
    cores.pin_writer();
    let mut capture = Capture::new(Selection::default(), Vec::new()).share(Some(sharing)).copy_by_two(by_two);
    let run = Receive { waiting: Waiting::Spin, ..Receive::all(ports) }.run(&mut [&mut capture]);
    cores.unpin();
    ensure!(run.failure.is_none(), "{}", run.failure.map(|failure| failure.to_string()).unwrap_or_default());
    Ok((capture.done(), run.elapsed))
}

/// From the moment a frame is there to be taken until a reader has it, one that never sleeps or one that always does.
fn hand_over(effort: Effort, cores: &Cores, rate: u64, sleeps: bool) -> anyhow::Result<Row> {
    // Two seconds.
    let count = effort.of(2 * rate as usize) as u64;
    let (mut rounds, mut readings) = (Rounds::default(), Vec::new());
    for _ in 0..effort.rounds.min(5) {
        let reading = into_child(vec![source::paced(rate, count)], cores, false, sleeps)?;
        reading.clone().add_to(&mut rounds);
        readings.push(reading);
    }
    readings.sort_by_key(|reading| reading.p50_ns);
    let reading = &readings[readings.len() / 2];
    let how = if sleeps { "asleep" } else { "spinning" };
    let mut row = rounds.row("hand-over", format!("{rate} frames/s, reader {how}"), 60.0).sized(64);
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let [p50, p90, p99] = [reading.p50_ns, reading.p90_ns, reading.p99_ns].map(micros);
    row.remark = format!("p50 {p50:.1} us, p90 {p90:.1} us, p99 {p99:.1} us, max {:.0} us", micros(reading.max_ns));
    (row.p50_us, row.p99_us) = (Some(p50), Some(p99));
    Ok(row)
}

/// Copies memory that no cache holds to a place that one does, as the pipeline does; returns kilobytes, so that millions
/// of them are gigabytes.
fn plain_copy(from: &[u8]) -> u64 {
    let mut to = vec![0; COPY_TO];
    for part in from.chunks_exact(COPY_TO) {
        to.copy_from_slice(part);
        black_box(&mut to);
    }
    from.len() as u64 / 1000
}

/// Where writer and reader run: on processors of their own, where there are enough.
struct Cores {
    all: CpuSet,
    writer: CpuSet,
    reader: Option<usize>,
}

impl Cores {
    fn get(copy_threads: u8) -> Self {
        let all = sched_getaffinity(None).unwrap_or_default();
        let mut there = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let mut writer = CpuSet::new();
        there.by_ref().take(copy_threads.into()).for_each(|cpu| writer.set(cpu));
        let reader = there.next();
        Cores { all, writer: if reader.is_some() { writer } else { all }, reader }
    }

    fn pin_writer(&self) {
        // Unpinned it measures as well, only with more spread.
        let _ = sched_setaffinity(None, &self.writer);
    }

    fn unpin(&self) {
        let _ = sched_setaffinity(None, &self.all);
    }
}
