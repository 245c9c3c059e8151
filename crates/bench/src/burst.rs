//! The main pipeline from ports in memory to another process: order, copy into shared memory with descs and flow hash, a reader that
//! touches every packet. Compared with the same loop over one port, and with a plain copy.

mod dpdk;
mod reader;
mod source;

pub(super) use self::reader::read;

use self::reader::{Child, ReaderResult};
use self::source::{BufferLayout, Frames, Traffic, paced, port, prepare};
use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use anyhow::{Context, ensure};
use linerate_cli::view::rates::grouped;
use linerate_engine::{Capture, CaptureTotals, Receive, Selection, Sharing, SharingOptions, WaitStrategy};
use linerate_generate::rate::FCS;
use linerate_port::RxPort;
use linerate_share::{Access, Options};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Records of all ports together, and of the one port that they are compared with: more than caches hold.
const ALL_BYTES: usize = 128 << 20;
/// A ring that stays in the last cache, since a free block is reused first.
const RING: Options = Options { slots: 16, slot_bytes: 1 << 20, huge: true, node: None, lock: false };
/// Bytes of the plain copy, and of its target, which is written again and again.
const COPY_FROM: usize = 256 << 20;
const COPY_TO: usize = 1 << 20;
/// Sizes and ports.
const CASES: [(usize, usize); 9] =
    [(64, 1), (64, 2), (64, 4), (64, 8), (128, 4), (256, 4), (512, 4), (1024, 4), (1518, 4)];

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    if effort.dpdk {
        return dpdk::cases(effort);
    }
    let memory = Rc::new(vec![0x5a; effort.of(COPY_FROM).max(2 * COPY_TO)]);
    let wanted = CASES.into_iter().filter(|(size, ports)| {
        effort.size.is_none_or(|wanted| wanted == *size) && effort.ports.is_none_or(|wanted| wanted == *ports)
    });
    let mut cases = Vec::new();
    for (size, ports) in wanted {
        let captured = size - FCS as usize;
        let frames = effort.of(ALL_BYTES / (captured + 16) / ports).max(1000);
        for placing in [BufferLayout::Contiguous, BufferLayout::Scattered] {
            for run in if ports == 1 { &[32][..] } else { &[1, 32] } {
                let (traffic, memory) = (Traffic { placing, ports, captured, run: *run, frames }, Rc::clone(&memory));
                cases.push(case(move || Ok(of(traffic, effort, memory))));
            }
        }
    }
    Ok(cases)
}

/// Delay from a port to a reader in another process.
pub(super) fn hand_overs(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let effort = Effort { rounds: effort.rounds.min(5), ..effort };
    let cases = [(1_000_000, false), (1_000, false), (1_000, true)];
    Ok(cases.map(|(rate, sleeps)| case(move || Ok(hand_over(effort, rate, sleeps)))).into())
}

fn of(traffic: Traffic, effort: Effort, memory: Rc<Vec<u8>>) -> Case {
    let cores = Rc::new(Cores::get(effort.copy_threads));
    let side = |ports: Vec<Arc<Frames>>, cores: Rc<Cores>| move || Ok(pipeline(&ports, effort, &cores)?.sample());
    let pattern = if traffic.run == 1 { "at random".to_owned() } else { format!("in runs of {}", traffic.run) };
    let layout = match traffic.placing {
        BufferLayout::Contiguous => "contiguous",
        BufferLayout::Scattered => "scattered",
    };
    let name = if traffic.ports == 1 {
        format!("1 port, {layout}")
    } else {
        format!("{} ports {pattern}, {layout}", traffic.ports)
    };
    // The copy is measured in each round too, in GB/s.
    let copied: Rc<Cell<(f64, u32)>> = Rc::default();
    let (run, sum) = (side(prepare(traffic), Rc::clone(&cores)), Rc::clone(&copied));
    let round = move || {
        let copy = Sample::timed(|| Ok(plain_copy(&memory)))?;
        let (gbytes, rounds) = sum.get();
        sum.set((gbytes + copy.count as f64 / copy.seconds.max(1e-9) / 1e9, rounds + 1));
        run()
    };
    let ours = Ours::new(name, round).with(|row| {
        (row.layout, row.ports, row.cores) = (layout, traffic.ports, effort.copy_threads.into());
    });
    let ours = ours.finish(move |row| {
        // The packet, its record header and its desc.
        let gbytes = row.mpps * (traffic.captured + 16 + 32) as f64 / 1e3;
        let (sum, rounds) = copied.get();
        let copy = sum / f64::from(rounds.max(1));
        (row.gbytes, row.copy_gbytes, row.ns) = (Some(gbytes), Some(copy), Some(1e3 / row.mpps));
        row.remark = format!("{gbytes:.1} GB/s; plain copy {copy:.1} GB/s");
    });
    let case = Case::sized(traffic.captured + FCS as usize).ours(ours);
    if traffic.ports == 1 {
        return case;
    }
    // As many bytes: caches would hold a part of a port with fewer.
    let single = prepare(Traffic { ports: 1, frames: traffic.frames * traffic.ports, ..traffic });
    case.limit("one port", side(single, cores))
}

/// Hands all packets of the ports to a reader in another process.
fn pipeline(ports: &[Arc<Frames>], effort: Effort, cores: &Cores) -> anyhow::Result<ReaderResult> {
    let total: u64 = ports.iter().map(|frames| frames.len() as u64).sum();
    let ports = ports.iter().enumerate().map(|(number, frames)| port(number, frames)).collect();
    let by_two = effort.copy_threads == 2;
    let reading = if effort.reader { into_child(ports, cores, by_two, false)? } else { unread(ports, cores, by_two)? };
    ensure!(reading.frames == total, "the reader got {} of {total} packets", reading.frames);
    Ok(reading)
}

/// Captures these ports into a ring with a reader in another process.
fn into_child(ports: Vec<RxPort>, cores: &Cores, by_two: bool, sleeps: bool) -> anyhow::Result<ReaderResult> {
    let (name, sharing) = ring(1)?;
    let child = Child::start(&name, cores.reader, sleeps)?;
    capture(ports, sharing, cores, by_two)?;
    child.end()
}

/// Captures these ports into a ring without a reader.
fn unread(ports: Vec<RxPort>, cores: &Cores, by_two: bool) -> anyhow::Result<ReaderResult> {
    let (captured, elapsed) = capture(ports, ring(0)?.1, cores, by_two)?;
    Ok(ReaderResult { frames: captured.frames, seconds: elapsed.as_secs_f64(), ..ReaderResult::default() })
}

/// A ring that waits for this number of readers.
fn ring(wait_for: usize) -> anyhow::Result<(String, Sharing)> {
    let name = format!("bench-{}", std::process::id());
    let access = Access { lossless: true, ..Access::default() };
    let options = SharingOptions { name: name.clone(), ring: RING, access, wait_for, patience: None };
    let sharing = Sharing::create(options).with_context(|| format!("cannot share {name}"))?;
    Ok((name, sharing))
}

fn capture(
    ports: Vec<RxPort>,
    sharing: Sharing,
    cores: &Cores,
    by_two: bool,
) -> anyhow::Result<(CaptureTotals, Duration)> {
    // Measuring works unpinned too, with more spread.
    let _ = sched_setaffinity(None, &cores.writer);
    let mut capture = Capture::new(Selection::default(), Vec::new()).share(Some(sharing)).copy_with_helper(by_two);
    let run = Receive { waiting: WaitStrategy::Spin, ..Receive::all(ports) }.run(&mut [&mut capture]);
    let _ = sched_setaffinity(None, &cores.all);
    ensure!(run.failure.is_none(), "{}", run.failure.map(|failure| failure.to_string()).unwrap_or_default());
    Ok((capture.done(), run.elapsed))
}

/// Delay from the due time of a packet until a reader has it that spins, or sleeps.
fn hand_over(effort: Effort, rate: u64, sleeps: bool) -> Case {
    // Two seconds.
    let (cores, count) = (Cores::get(1), effort.of(2 * rate as usize) as u64);
    let round = move || Ok(into_child(vec![paced(rate, count)], &cores, false, sleeps)?.sample());
    let how = if sleeps { "sleeps" } else { "spins" };
    Case::sized(64).ours(Ours::new(format!("{} packets/s, reader {how}", grouped(rate)), round))
}

/// Copies memory that no cache holds to memory that one does, as the pipeline does; returns bytes.
fn plain_copy(from: &[u8]) -> u64 {
    let mut to = vec![0; COPY_TO];
    for part in from.chunks_exact(COPY_TO) {
        to.copy_from_slice(part);
        black_box(&mut to);
    }
    from.len() as u64
}

/// Processors of the writer and the reader: one of its own for each, if there are enough.
struct Cores {
    all: CpuSet,
    writer: CpuSet,
    reader: Option<usize>,
}

impl Cores {
    fn get(copy_threads: u8) -> Self {
        let all = sched_getaffinity(None).unwrap_or_default();
        let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
        let mut writer = CpuSet::new();
        usable.by_ref().take(copy_threads.into()).for_each(|cpu| writer.set(cpu));
        let reader = usable.next();
        Cores { all, writer: if reader.is_some() { writer } else { all }, reader }
    }
}
