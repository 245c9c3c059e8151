//! Frames in memory into flow records: how many a core meters in a second, over the number of active flows.

mod traffic;

use self::traffic::{Pattern, Traffic};
use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::{Block, Nanos, prefetch, resident};
use linerate_meter::{Config, Flow, Level, Meter};
use linerate_wire::Link;
use std::hint::black_box;
use std::time::Instant;

/// Frames made at a time, outside of what is timed; about what a processor's cache holds, as of frames that just came.
const CHUNK: usize = 16_384;
/// Captured bytes of a frame.
const BYTES: f64 = 60.0;
/// Active flows of the cases.
const FLOWS: [usize; 4] = [256, 65_536, 1_048_576, 10_485_760];
/// Of the cases of address patterns.
const PATTERN_FLOWS: usize = 65_536;

/// Levels of detail, each with its name.
const LEVELS: [(Level, &str); 3] = [(Level::Counters, "counters"), (Level::Tcp, "tcp"), (Level::Stats, "stats")];

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let wants = |flows| effort.flows.is_none_or(|wanted| wanted == flows) && !(effort.quick && flows > PATTERN_FLOWS);
    for flows in FLOWS.into_iter().filter(|flows| wants(*flows)) {
        let limit = update_lines(flows, effort);
        for (level, name) in LEVELS {
            let cases = case(Pattern::Random, flows, (level, name), effort, &limit);
            rows.extend(cases);
        }
    }
    if wants(PATTERN_FLOWS) {
        let limit = update_lines(PATTERN_FLOWS, effort);
        for pattern in [Pattern::Mesh, Pattern::LockStep, Pattern::Clients] {
            rows.extend(case(pattern, PATTERN_FLOWS, LEVELS[0], effort, &limit).into_iter().take(1));
        }
    }
    Ok(rows)
}

/// Packets of flows that there are, and of flows that begin.
fn case(pattern: Pattern, flows: usize, (level, name): (Level, &str), effort: Effort, limit: &Rounds) -> [Row; 2] {
    let (mut known, mut new) = (Rounds::default(), Rounds::default());
    let seed = [Instant::now().elapsed().as_nanos() as u64, 7];
    let config = Config { max_flows: flows, level, seed, ..Config::default() };
    let mut meter = Meter::new(&config);
    let mut traffic = Traffic::new(pattern, flows);
    let mut block = Block::new(CHUNK * 128, CHUNK);
    let mut left = flows;
    let seconds = timed(&mut meter, &mut block, flows, |block| {
        let frames = left.min(CHUNK);
        left -= frames;
        traffic.begin(block, frames);
    });
    new.add(flows as u64, seconds);
    let frames = effort.of((flows * 20 / effort.rounds).clamp(2 << 20, 8 << 20)).next_multiple_of(CHUNK);
    for _ in 0..effort.rounds {
        let seconds = timed(&mut meter, &mut block, frames, |block| traffic.go_on(block, CHUNK));
        known.add(frames as u64, seconds);
    }
    let bytes = config.bytes_per_flow()[0];
    let row = |rounds: &Rounds, case: String| {
        let row = rounds.row("flows", case, BYTES).sized(64).limited("two random lines", limit);
        Row { flows: Some(flows), remark: format!("{bytes} bytes a flow"), ..row }
    };
    [
        row(&known, format!("{name}, {flows} flows, {}", pattern.name())),
        row(&new, format!("{name}, new flows, to {flows}, {}", pattern.name())),
    ]
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

/// What the machine does: two cache lines of as many entries as there are flows, at random, 32 asked for at a time.
fn update_lines(flows: usize, effort: Effort) -> Rounds {
    const BATCH: usize = 32;
    let mut lines: Vec<[u64; 16]> = resident(flows);
    lines.resize(flows, [0; 16]);
    let mut rounds = Rounds::default();
    let mut state = 1u64;
    let batches = effort.of(200_000);
    for _ in 0..effort.rounds {
        rounds.time(|| {
            let mut places = [0; BATCH];
            for _ in 0..batches {
                for place in &mut places {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *place = ((u128::from(state) * flows as u128) >> 64) as usize;
                    prefetch(&lines[*place][0]);
                    prefetch(&lines[*place][8]);
                }
                for place in places {
                    lines[place][0] += 1;
                    lines[place][8] ^= state;
                }
            }
            (batches * BATCH) as u64
        });
    }
    black_box(&lines);
    rounds
}

/// When a run of frames begins: any day.
const START: Nanos = Nanos(1_700_000_000_000_000_000);
