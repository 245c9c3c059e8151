//! Frames in memory into flow records: how many a core meters in a second, over active flows, levels of detail, sizes,
//! address patterns and cores; and capture files, beside other flow meters.

mod cores;
mod limit;
mod looked;
mod names;
pub(super) mod peers;
mod traffic;

use self::limit::two_lines;
use self::traffic::{Pattern, Traffic};
use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::Block;
use linerate_meter::{Config, Flow, Level, Meter, Protocols, Spread};
use linerate_wire::Link;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::time::Instant;

/// Bytes of frames made at a time, outside of what is timed; about what a processor's cache holds, as of frames that just came.
const CHUNK: usize = 2 << 20;
/// Active flows of the cases.
const FLOWS: [usize; 5] = [256, 16_384, 65_536, 1_048_576, 10_485_760];
/// Of the cases of address patterns, sizes and cores.
const OTHER_FLOWS: usize = 65_536;
/// Of the cases of sizes over cores.
const CORES_FLOWS: usize = 16_384;
/// Of somebody who looks, or fewer.
const LOOKED_FLOWS: usize = 1_048_576;
/// Packets of each flow, at least.
const PACKETS: usize = 20;
/// Of which the balance is told.
const WORKERS: usize = 8;
const LEVELS: [Level; 3] = [Level::Counters, Level::Tcp, Level::Stats];

/// Of frames in memory.
pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let wants = |flows| effort.flows.is_none_or(|wanted| wanted == flows) && !(effort.quick && flows > OTHER_FLOWS);
    for flows in FLOWS.into_iter().filter(|flows| wants(*flows)) {
        let limit = two_lines(flows, effort);
        let case = Case {
            flows,
            limit: &limit,
            level: Level::Counters,
            pattern: Pattern::Random,
            size: 64,
            names: Protocols::NONE,
        };
        let first = rows.len();
        for level in effort.levels() {
            rows.extend(Case { level, ..case }.measure(effort));
        }
        if flows == OTHER_FLOWS {
            let random =
                rows.get(first).map(|row| row.mpps).filter(|_| effort.levels().next() == Some(Level::Counters));
            for pattern in [Pattern::Mesh, Pattern::LockStep, Pattern::Clients, Pattern::Chosen] {
                let [mut row, _] = Case { pattern, ..case }.measure(effort);
                row.remark = format!("fullest of {WORKERS} workers {:.2} of the mean", balance(pattern, flows));
                if let Some(random) = random {
                    row.remark += &format!(", {:.2} of random's rate", row.mpps / random);
                }
                rows.push(row);
            }
            for size in [750, 1500] {
                rows.extend(Case { size, ..case }.measure(effort).into_iter().take(1));
            }
            // Payload that says nothing: what it costs to look.
            rows.extend(Case { size: 750, names: Protocols::ALL, ..case }.measure(effort).into_iter().take(1));
            rows.extend(names::parsers(effort));
        }
    }
    let is_looked_at = |flows: &usize| *flows <= LOOKED_FLOWS && wants(*flows);
    if effort.levels().next() == Some(Level::Counters) {
        rows.extend(
            FLOWS.into_iter().rfind(is_looked_at).map(|flows| looked::run(effort, flows)).into_iter().flatten(),
        );
    }
    for flows in [OTHER_FLOWS, 1_048_576].into_iter().filter(|flows| wants(*flows)) {
        for level in effort.levels() {
            rows.extend(cores::run(effort, level, flows, 64));
        }
    }
    // What a core does with frames of usual sizes, and of how many cores the memory keeps up.
    for size in [750, 1500].into_iter().filter(|_| wants(CORES_FLOWS) && !effort.quick) {
        rows.extend(cores::run(effort, Level::Counters, CORES_FLOWS, size));
    }
    Ok(rows)
}

/// Of capture files.
pub(super) fn files(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let wants =
        |flows: &usize| effort.flows.is_none_or(|wanted| wanted == *flows) && !(effort.quick && *flows > OTHER_FLOWS);
    for flows in [256, OTHER_FLOWS, 1_048_576].into_iter().filter(wants) {
        rows.extend(peers::run(effort, flows)?);
    }
    Ok(rows)
}

impl Effort {
    fn levels(self) -> impl Iterator<Item = Level> {
        LEVELS.into_iter().filter(move |level| self.level.is_none_or(|wanted| wanted == *level))
    }
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case<'a> {
    level: Level,
    flows: usize,
    pattern: Pattern,
    /// With FCS.
    size: usize,
    names: Protocols,
    limit: &'a Rounds,
}

impl Case<'_> {
    /// Packets of flows that there are, and of flows that begin.
    fn measure(self, effort: Effort) -> [Row; 2] {
        let (mut known, mut new) = (Rounds::default(), Rounds::default());
        let config = Config { names: self.names, ..config(self.level, self.flows) };
        let mut meter = Meter::new(&config);
        let mut traffic = Traffic::new(self.pattern, self.flows, self.size);
        let chunk = (CHUNK / (self.size + 64)).max(1);
        let mut block = Block::new(CHUNK, chunk);
        let mut left = self.flows;
        let seconds = timed(&mut meter, &mut block, self.flows, |block| {
            let frames = left.min(chunk);
            left -= frames;
            traffic.begin(block, frames);
        });
        new.add(self.flows as u64, seconds);
        let frames = effort.of((self.flows * PACKETS / effort.rounds).max(2 << 20)).next_multiple_of(chunk);
        for _ in 0..effort.rounds {
            let seconds = timed(&mut meter, &mut block, frames, |block| traffic.go_on(block, chunk));
            known.add(frames as u64, seconds);
        }
        let row = |rounds: &Rounds, case: String| {
            let row = rounds.row("flows", case, self.size as f64 - 4.0).sized(self.size);
            let row = row.limited("two random lines", self.limit);
            Row { flows: Some(self.flows), remark: format!("{} bytes a flow", config.bytes_per_flow()[0]), ..row }
        };
        let named = if self.names.is_empty() { "" } else { " and names" };
        let level = format!("{}{named}", name(self.level));
        let (flows, pattern) = (self.flows, self.pattern.name());
        [
            row(&known, format!("{level}, {flows} flows, {pattern}")),
            row(&new, format!("{level}, new flows, to {flows}, {pattern}")),
        ]
    }
}

/// How much more than the mean the fullest of several workers gets.
fn balance(pattern: Pattern, flows: usize) -> f64 {
    let mut spread = Spread::new(&config(Level::Counters, flows), WORKERS);
    let mut block = Block::new(flows * 128, flows);
    Traffic::new(pattern, flows, 64).begin(&mut block, flows);
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

/// Seconds that the meter takes for so many frames, which `make` puts into the block.
fn timed(meter: &mut Meter, block: &mut Block, frames: usize, mut make: impl FnMut(&mut Block)) -> f64 {
    let (mut seconds, mut done, mut packets) = (0.0, 0, 0u64);
    while done < frames {
        block.clear();
        make(block);
        let started = Instant::now();
        meter.take(block.burst(), &[Some(Link::Ethernet)], &mut |flow: &Flow| packets += flow.packets());
        seconds += started.elapsed().as_secs_f64();
        done += block.len();
    }
    black_box(packets);
    seconds
}
