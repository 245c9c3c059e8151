//! Lanes in memory into one ordered block, frames copied, beside one lane through the same loop; their order alone; and,
//! in `files`, capture files.

use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::{Block, Burst, Desc, Horizon, Nanos, Pick};
use linerate_merge::{Input, Merge};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hint::black_box;

/// Frames each lane holds; shown to the merge this many at a time.
const SHOWN: usize = 1024;
const LANE_FRAMES: usize = 64 * SHOWN;
const FRAME: usize = 60;
/// Frames of all lanes whose order alone is measured: as many descs as fit into a large cache.
const ORDERED: usize = 512 * 1024;

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (case, lanes, run) in [
        ("2 lanes at random", 2, 1),
        ("4 lanes at random", 4, 1),
        ("4 lanes in runs of 32", 4, 32),
        ("16 lanes at random", 16, 1),
    ] {
        let passes = effort.of(100).div_ceil(lanes);
        let (many, single) = (lanes_of(lanes, run), lanes_of(1, 1));
        let many: Vec<Burst<'_>> = many.iter().map(Block::burst).collect();
        let single: Vec<Burst<'_>> = single.iter().map(Block::burst).collect();
        let mut block = Block::new(1 << 20, 8192);
        let (mut ours, mut copy) = (Rounds::default(), Rounds::default());
        for _ in 0..effort.rounds {
            ours.time(|| (0..passes).map(|_| merge(&many, &mut block)).sum());
            copy.time(|| (0..passes * lanes).map(|_| merge(&single, &mut block)).sum());
        }
        let mut row = ours.row("merge", case, FRAME as f64).sized(FRAME + 4).limited("one lane", &copy);
        row.ports = lanes;
        rows.push(row);
    }
    for lanes in [1, 2, 4, 8, 16, 64] {
        rows.push(order_row(effort, lanes, 1, SHOWN));
        rows.push(order_row(effort, lanes, 32, SHOWN));
    }
    rows.push(order_row(effort, 4, 1, 64));
    rows.push(order_row(effort, 4, 1, 4));
    rows.push(super::files::run(effort)?);
    Ok(rows)
}

/// The order of frames that alternate in runs of `run`, in rounds of `shown` frames a lane.
fn order_row(effort: Effort, count: usize, run: usize, shown: usize) -> Row {
    let mut lanes = vec![Vec::new(); count];
    alternating(count, run, ORDERED, |lane, desc| lanes[lane].push(desc));
    let passes = effort.of(40);
    let (mut ours, mut heap, mut times) = (Rounds::default(), Rounds::default(), Rounds::default());
    for _ in 0..effort.rounds {
        ours.time(|| (0..passes).map(|_| order(&lanes, shown)).sum());
        heap.time(|| (0..passes.div_ceil(8)).map(|_| by_heap(&lanes)).sum());
        times.time(|| (0..passes).map(|_| read_times(&lanes)).sum());
    }
    let pattern = if run == 1 { "at random".to_owned() } else { format!("in runs of {run}") };
    let rounds = if shown == SHOWN { String::new() } else { format!(", {shown} a round") };
    let case = format!("order, {count} lanes {pattern}{rounds}");
    let mut row = ours.row("merge", case, FRAME as f64).sized(FRAME + 4).beside("binary heap", &heap);
    row = row.limited("read times", &times);
    row.ports = count;
    row
}

/// Orders all frames, without a copy.
fn order(lanes: &[Vec<Desc>], shown: usize) -> u64 {
    let mut merge = Merge::new(lanes.len());
    let mut done = vec![0; lanes.len()];
    let mut inputs = Vec::with_capacity(lanes.len());
    let mut picks: Vec<Pick> = Vec::new();
    loop {
        inputs.clear();
        inputs.extend(lanes.iter().zip(&done).map(|(lane, done)| {
            let end = (done + shown).min(lane.len());
            Input { descs: &lane[*done..end], horizon: horizon(lane, end) }
        }));
        picks.clear();
        merge.order(&inputs, &mut picks);
        if black_box(&picks).is_empty() {
            return merge.frames();
        }
        for (lane, done) in done.iter_mut().enumerate() {
            *done += merge.taken(lane);
        }
    }
}

/// The same by a heap of all heads, as merges of files are written: no promises, no late frames.
fn by_heap(lanes: &[Vec<Desc>]) -> u64 {
    let head = |lane: usize, index: usize| Some(Reverse((lanes[lane].get(index)?.time, lane, index)));
    let mut heads: BinaryHeap<_> = (0..lanes.len()).filter_map(|lane| head(lane, 0)).collect();
    let mut picks = Vec::with_capacity(2 * SHOWN);
    let mut frames = 0;
    while let Some(mut least) = heads.peek_mut() {
        let Reverse((_, lane, index)) = *least;
        picks.push(Pick::new(lane, index));
        frames += 1;
        match head(lane, index + 1) {
            Some(next) => *least = next,
            None => drop(PeekMut::pop(least)),
        }
        if picks.len() == 2 * SHOWN {
            black_box(&picks);
            picks.clear();
        }
    }
    frames
}

fn read_times(lanes: &[Vec<Desc>]) -> u64 {
    let latest = lanes.iter().map(|lane| lane.iter().fold(Nanos::ZERO, |latest, desc| latest.max(desc.time)));
    black_box(latest.max());
    lanes.iter().map(|lane| lane.len() as u64).sum()
}

/// Merges and copies all frames of all lanes once.
fn merge(lanes: &[Burst<'_>], block: &mut Block) -> u64 {
    block.clear();
    let mut merge = Merge::new(lanes.len());
    let mut done = vec![0; lanes.len()];
    let mut picks: Vec<Pick> = Vec::new();
    let mut frames = 0;
    loop {
        let shown: Vec<Burst<'_>> =
            lanes.iter().zip(&done).map(|(lane, done)| lane.slice(*done..(*done + SHOWN).min(lane.len()))).collect();
        let inputs: Vec<Input<'_>> = shown
            .iter()
            .zip(lanes.iter().zip(&done))
            .map(|(burst, (lane, done))| Input {
                descs: burst.descs(),
                horizon: horizon(lane.descs(), done + burst.len()),
            })
            .collect();
        picks.clear();
        merge.order(&inputs, &mut picks);
        if picks.is_empty() {
            return frames;
        }
        let mut copied = 0;
        while copied < picks.len() {
            copied += block.gather(&shown, &picks[copied..], &mut ());
            if copied < picks.len() {
                block.clear();
            }
        }
        frames += picks.len() as u64;
        for (lane, done) in done.iter_mut().enumerate() {
            *done += merge.taken(lane);
        }
    }
}

fn horizon(lane: &[Desc], next: usize) -> Horizon {
    lane.get(next).map_or(Horizon::Ended, |desc| Horizon::At(desc.time))
}

/// Lanes whose frames alternate at random, in runs of `run`.
fn lanes_of(count: usize, run: usize) -> Vec<Block> {
    let mut lanes: Vec<Block> =
        (0..count).map(|_| Block::new(LANE_FRAMES * (FRAME + 16) + (1 << 20), LANE_FRAMES)).collect();
    alternating(count, run, LANE_FRAMES * count, |lane, desc| {
        lanes[lane].push(&desc, &[0x5a; FRAME]);
    });
    lanes
}

/// Hands out `frames` frames in runs of `run`, each of a lane at random.
fn alternating(lanes: usize, run: usize, frames: usize, mut push: impl FnMut(usize, Desc)) {
    let mut state = 88_172_645_463_325_252u64;
    let mut time = 1_700_000_000_000_000_000;
    for _ in 0..frames / run {
        state = xorshift(state);
        let lane = (state >> 30) as usize % lanes;
        for _ in 0..run {
            time += 7;
            push(lane, Desc::new(Nanos(time), 0, FRAME as u32));
        }
    }
}

/// The next number at random: Marsaglia's xorshift64 (Journal of Statistical Software 8, 2003).
pub(super) fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
