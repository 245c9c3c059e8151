//! Lanes in memory into one ordered block, frames copied, beside one lane through the same loop.

use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::{Block, Burst, Desc, Horizon, Nanos};
use linerate_merge::{Input, Merge, Run};

/// Frames each lane holds; shown to the merge this many at a time.
const SHOWN: usize = 1024;
const LANE_FRAMES: usize = 64 * SHOWN;
const FRAME: usize = 60;

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
        let (mut ours, mut copy) = (Rounds::default(), Rounds::default());
        for _ in 0..effort.rounds {
            ours.time(|| (0..passes).map(|_| merge(&many)).sum());
            copy.time(|| (0..passes * lanes).map(|_| merge(&single)).sum());
        }
        let mut row = ours.row("merge", case, FRAME as f64).sized(FRAME + 4).limited("one lane", &copy);
        row.ports = lanes;
        rows.push(row);
    }
    Ok(rows)
}

/// Merges and copies all frames of all lanes once.
fn merge(lanes: &[Burst<'_>]) -> u64 {
    let mut merge = Merge::new(lanes.len());
    let mut block = Block::new(1 << 20, 8192);
    let mut done = vec![0; lanes.len()];
    let mut runs: Vec<Run> = Vec::new();
    let mut frames = 0;
    loop {
        let shown: Vec<Burst<'_>> =
            lanes.iter().zip(&done).map(|(lane, done)| lane.slice(*done..(*done + SHOWN).min(lane.len()))).collect();
        let inputs: Vec<Input<'_>> = shown
            .iter()
            .zip(lanes.iter().zip(&done))
            .map(|(burst, (lane, done))| Input { descs: burst.descs(), horizon: horizon(lane, done + burst.len()) })
            .collect();
        runs.clear();
        merge.round(&inputs, &mut runs);
        if runs.is_empty() {
            return frames;
        }
        for run in &runs {
            for (desc, frame) in shown[run.lane].slice(run.first..run.first + run.count).iter() {
                if !block.push(desc, frame) {
                    block.clear();
                    block.push(desc, frame);
                }
                frames += 1;
            }
            done[run.lane] += run.count;
        }
    }
}

fn horizon(lane: &Burst<'_>, next: usize) -> Horizon {
    lane.descs().get(next).map_or(Horizon::Ended, |desc| Horizon::At(desc.time))
}

/// Lanes whose frames alternate at random, in runs of `run`.
fn lanes_of(count: usize, run: usize) -> Vec<Block> {
    let mut lanes: Vec<Block> =
        (0..count).map(|_| Block::new(LANE_FRAMES * (FRAME + 16) + (1 << 20), LANE_FRAMES)).collect();
    let mut state = 88_172_645_463_325_252u64;
    let mut time = 1_700_000_000_000_000_000;
    for _ in 0..LANE_FRAMES * count / run {
        // Marsaglia's xorshift64 (Journal of Statistical Software 8, 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let lane = (state >> 30) as usize % count;
        for _ in 0..run {
            time += 7;
            lanes[lane].push(&Desc::new(Nanos(time), 0, FRAME as u32), &[0x5a; FRAME]);
        }
    }
    lanes
}
