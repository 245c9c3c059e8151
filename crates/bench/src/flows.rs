//! Packets in memory into flow records, per core: active flows, levels of detail, new flows per second, address patterns, packet sizes
//! and threads; and capture files, compared with other flow meters.

mod churn;
mod cores;
pub(super) mod files;
mod limit;
mod names;
mod snapshots;
mod traffic;

use self::limit::two_lines;
use self::traffic::{Pattern, Traffic};
use super::Effort;
use super::harness::{Case, Ours, Prepare, Sample, case};
use linerate_burst::Block;
use linerate_headers::Link;
use linerate_meter::{Config, EndReason, Flow, FlowDistributor, Level, Meter, Protocols};
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

/// Bytes of packets made at a time, which is not measured: about a processor's cache, as packets that have just arrived.
const CHUNK: usize = 2 << 20;
/// Active flows of the cases.
const FLOWS: [usize; 5] = [256, 16_384, 65_536, 1_048_576, 10_485_760];
/// Active flows of the cases of address patterns and sizes.
const OTHER_FLOWS: usize = 65_536;
/// Active flows of the cases of threads with longer packets.
const CORES_FLOWS: usize = 16_384;
/// Active flows with snapshots, at most.
const SNAPSHOT_FLOWS: usize = 1_048_576;
/// Packets of each flow, at least.
const PACKETS: usize = 20;
/// Workers whose balance is reported.
const WORKERS: usize = 8;
const LEVELS: [Level; 3] = [Level::Counters, Level::Tcp, Level::Stats];

impl Effort {
    fn levels(self) -> impl Iterator<Item = Level> {
        LEVELS.into_iter().filter(move |level| self.level.is_none_or(|wanted| wanted == *level))
    }

    /// Returns true if cases of this number of active flows are measured.
    fn wants(self, flows: usize) -> bool {
        self.flows.is_none_or(|wanted| wanted == flows) && !(self.quick && flows > OTHER_FLOWS)
    }

    fn has_counters(self) -> bool {
        self.levels().next() == Some(Level::Counters)
    }
}

pub(super) fn cases(effort: Effort) -> anyhow::Result<Vec<Prepare>> {
    let mut cases = Vec::new();
    for flows in FLOWS.into_iter().filter(|flows| effort.wants(*flows)) {
        for level in effort.levels() {
            cases.push(case(move || {
                let all = Case::sized(64).limit("two random lines", two_lines(flows, effort));
                let (known, new) = MeterCase { level, flows, ..MeterCase::default() }.sides(effort);
                Ok(others(all.ours(known), level, flows, effort).ours(new))
            }));
        }
        if flows == OTHER_FLOWS && effort.has_counters() {
            cases.push(case(move || Ok(names::parsers(effort))));
        }
    }
    cases.extend(churn::cases(effort));
    let most = FLOWS.into_iter().rfind(|flows| *flows <= SNAPSHOT_FLOWS && effort.wants(*flows));
    cases.extend(most.filter(|_| effort.has_counters()).map(|flows| case(move || Ok(snapshots::of(effort, flows)))));
    for flows in [OTHER_FLOWS, 1_048_576].into_iter().filter(|flows| effort.wants(*flows)) {
        cases.extend(effort.levels().map(|level| case(move || Ok(cores::of(effort, level, flows, 64)))));
    }
    // Rate of a core with packets of usual sizes, and the number of cores that memory keeps up with.
    for size in [750, 1500].into_iter().filter(|_| effort.wants(CORES_FLOWS) && !effort.quick) {
        cases.push(case(move || Ok(cores::of(effort, Level::Counters, CORES_FLOWS, size))));
    }
    Ok(cases)
}

/// Adds the patterns, sizes and names of one number of flows, in the rounds of the first side.
fn others(mut all: Case, level: Level, flows: usize, effort: Effort) -> Case {
    if flows != OTHER_FLOWS || level != Level::Counters {
        return all;
    }
    for pattern in [Pattern::Mesh, Pattern::LockStep, Pattern::Clients, Pattern::Chosen] {
        let ours = MeterCase { pattern, flows, ..MeterCase::default() }.sides(effort).0.baseline(0);
        all.ours.push(ours.finish(move |row| {
            row.remark = format!("fullest of {WORKERS} workers {:.2} of the mean", balance(pattern, flows));
            row.remark += &row.of_baseline.map_or_else(String::new, |rate| format!(", {rate:.2} of random's rate"));
        }));
    }
    // Payload without names: the cost of looking for them.
    for (size, names) in [(750, Protocols::NONE), (1500, Protocols::NONE), (750, Protocols::ALL)] {
        let work = MeterCase { size, names, flows, ..MeterCase::default() };
        all.ours.push(work.sides(effort).0.with(|row| row.size = Some(size)));
    }
    all
}

/// A meter and its traffic.
#[derive(Clone, Copy)]
struct MeterCase {
    level: Level,
    flows: usize,
    pattern: Pattern,
    /// With FCS.
    size: usize,
    names: Protocols,
}

impl Default for MeterCase {
    fn default() -> Self {
        MeterCase { level: Level::Counters, flows: 0, pattern: Pattern::Random, size: 64, names: Protocols::NONE }
    }
}

impl MeterCase {
    /// Packets of active flows, and the first packets of all flows, which are measured once.
    fn sides(self, effort: Effort) -> (Ours, Ours) {
        let MeterCase { level, flows, pattern, size, names } = self;
        let config = Config { names, ..config(level, flows) };
        let bytes = config.bytes_per_flow()[0];
        let opened: Rc<Cell<Option<Sample>>> = Rc::default();
        let fill = Rc::clone(&opened);
        let mut running: Option<MeterRun> = None;
        let known = move || {
            let metering = match &mut running {
                Some(metering) => metering,
                None => {
                    let (metering, seconds) = MeterRun::new(&config, flows, pattern, size);
                    fill.set(Some(Sample::new(flows as u64, seconds)));
                    running.insert(metering)
                }
            };
            let frames = effort.of((flows * PACKETS / effort.rounds).max(2 << 20)).next_multiple_of(metering.chunk);
            let mut seconds = 0.0;
            for _ in 0..frames / metering.chunk {
                seconds += metering.take(|traffic, block, chunk| traffic.continue_any(block, chunk));
            }
            Ok(Sample::new(frames as u64, seconds))
        };
        let new = move || Ok(opened.take().unwrap_or_default());
        let named = if names.is_empty() { "" } else { " and names" };
        let (level, pattern) = (format!("{}{named}", name(level)), pattern.name());
        let known = Ours::new(format!("{level}, {flows} flows, {pattern}"), known);
        let new = Ours::new(format!("{level}, new flows, to {flows}, {pattern}"), new);
        let finish = move |row: &mut crate::harness::Row| row.remark = format!("{bytes} bytes per flow");
        let [known, new] = [known, new].map(|ours| ours.with(|row| row.flows = Some(flows)).finish(finish));
        (known, new)
    }
}

/// A meter at work.
struct MeterRun {
    meter: Meter,
    traffic: Traffic,
    block: Block,
    /// Packets of a block.
    chunk: usize,
    /// Exported records of flows that closed.
    closed: u64,
}

impl MeterRun {
    /// Opens all flows; returns the seconds of that too.
    fn new(config: &Config, flows: usize, pattern: Pattern, size: usize) -> (Self, f64) {
        let chunk = (CHUNK / (size + 64)).max(1);
        let (meter, traffic) = (Meter::new(config), Traffic::new(pattern, flows, size));
        let mut metering = MeterRun { meter, traffic, block: Block::new(CHUNK, chunk), chunk, closed: 0 };
        let (mut left, mut seconds) = (flows, 0.0);
        while left > 0 {
            let frames = left.min(chunk);
            left -= frames;
            seconds += metering.take(|traffic, block, _| traffic.open(block, frames));
        }
        (metering, seconds)
    }

    /// Meters packets that `make` puts into the block; returns the seconds of metering.
    fn take(&mut self, make: impl FnOnce(&mut Traffic, &mut Block, usize)) -> f64 {
        self.block.clear();
        make(&mut self.traffic, &mut self.block, self.chunk);
        let (mut packets, mut closed) = (0u64, 0);
        let started = Instant::now();
        self.meter.take(self.block.burst(), &[Some(Link::Ethernet)], &mut |flow: &Flow| {
            packets += flow.packets();
            closed += u64::from(flow.end == EndReason::End);
        });
        let seconds = started.elapsed().as_secs_f64();
        self.closed += closed;
        black_box(packets);
        seconds
    }
}

/// Load of the fullest of several workers, compared with the mean.
fn balance(pattern: Pattern, flows: usize) -> f64 {
    let mut spread = FlowDistributor::new(&config(Level::Counters, flows), WORKERS);
    let mut block = Block::new(flows * 128, flows);
    Traffic::new(pattern, flows, 64).open(&mut block, flows);
    let mut loads = [0usize; WORKERS];
    block.burst().iter().for_each(|(_, frame)| loads[spread.meter_of(Some(Link::Ethernet), frame)] += 1);
    loads.iter().max().map_or(0.0, |most| *most as f64 * WORKERS as f64 / flows as f64)
}

fn config(level: Level, flows: usize) -> Config {
    let seed = [RandomState::new().hash_one(1), RandomState::new().hash_one(2)];
    Config { level, max_flows: flows, seed, ..Config::default() }
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Counters => "counters",
        Level::Tcp => "tcp",
        Level::Stats => "stats",
    }
}
