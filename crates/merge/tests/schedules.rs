//! The merge compared with its oracle over seeded random schedules, and planted bugs that the same check must catch.

use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};
use linerate_merge::{Input, Merge, Run};

const SCHEDULES: u64 = 100_000;

/// One lane of a schedule: its frames, and the number presented at a time.
struct Lane {
    descs: Vec<Desc>,
    /// Frames up to here have arrived.
    arrived: usize,
    /// Frames up to here are consumed.
    consumed: usize,
    /// Lag of the lane's horizon behind the time of its next frame.
    lag: u64,
}

impl Lane {
    /// Presents part of the arrived frames, with a horizon no later than the oldest frame to come.
    fn input(&self) -> Input<'_> {
        let to_come = self.descs[self.arrived..].iter().map(|desc| desc.time.0).min();
        let horizon = match to_come {
            None => Horizon::Ended,
            Some(oldest) => Horizon::At(Nanos(oldest.saturating_sub(self.lag))),
        };
        Input { descs: &self.descs[self.consumed..self.arrived], horizon }
    }
}

/// Any implementation of rounds.
trait Merger {
    fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>);
}

impl Merger for Merge {
    fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        Merge::round(self, inputs, runs);
    }
}

/// A merge that orders frame by frame.
struct Ordered {
    merge: Merge,
    picks: Vec<FrameIndex>,
}

impl Merger for Ordered {
    fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        self.picks.clear();
        self.merge.order(inputs, &mut self.picks);
        let run = |pick: &FrameIndex| Run { lane: pick.lane(), first: pick.index(), count: 1, late: pick.is_late() };
        runs.extend(self.picks.iter().map(run));
    }
}

/// Runs one schedule, about `scale` frames per lane and round; returns the fault of the output, if any.
fn check(seed: u64, scale: u64, merger: &mut dyn Merger, lanes: &mut [Lane]) -> Result<(), String> {
    let mut random = Random(seed ^ 0x5eed);
    let mut output: Vec<(usize, u64, bool)> = Vec::new();
    let mut idle_rounds = 0;
    while lanes.iter().any(|lane| lane.consumed < lane.descs.len()) {
        for lane in lanes.iter_mut() {
            let step = random.below(4 * scale) * random.below(3);
            lane.arrived = lane.descs.len().min(lane.arrived + step as usize);
        }
        let mut runs = Vec::new();
        let inputs: Vec<Input<'_>> = lanes.iter().map(Lane::input).collect();
        merger.round(&inputs, &mut runs);
        for run in &runs {
            let shown = inputs[run.lane].descs.get(run.first..run.first + run.count).ok_or("beyond the input")?;
            output.extend(shown.iter().map(|desc| (run.lane, desc.time.0, run.late)));
        }
        for run in runs {
            lanes[run.lane].consumed += run.count;
        }
        idle_rounds = if lanes.iter().all(|lane| lane.arrived == lane.descs.len()) { idle_rounds + 1 } else { 0 };
        if idle_rounds > 2 {
            return Err("frames are held back although every lane has ended".into());
        }
    }
    compare(lanes, &output)
}

fn compare(lanes: &[Lane], output: &[(usize, u64, bool)]) -> Result<(), String> {
    let expected = oracle(lanes);
    if output.len() != expected.len() {
        return Err(format!("{} frames out, {} in", output.len(), expected.len()));
    }
    let mut newest = 0;
    for (index, ((lane, time, late), expected)) in output.iter().zip(&expected).enumerate() {
        if (*lane, *time) != *expected {
            return Err(format!("frame {index} is {:?}, should be {expected:?}", (lane, time)));
        }
        if *late != (*time < newest) {
            return Err(format!("frame {index} of time {time} after {newest} has late = {late}"));
        }
        newest = newest.max(*time);
    }
    Ok(())
}

/// Stable sort by (greatest time so far in the lane, lane).
fn oracle(lanes: &[Lane]) -> Vec<(usize, u64)> {
    let mut ranked: Vec<(u64, usize, u64)> = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        let mut greatest = 0;
        for desc in &lane.descs {
            greatest = greatest.max(desc.time.0);
            ranked.push((greatest, index, desc.time.0));
        }
    }
    ranked.sort_by_key(|(rank, lane, _)| (*rank, *lane));
    ranked.into_iter().map(|(_, lane, time)| (lane, time)).collect()
}

/// Generates lanes with idle times, equal times within and between lanes, frames out of order, and lagging horizons.
fn schedule(seed: u64, scale: u64) -> Vec<Lane> {
    let mut random = Random(seed);
    let count = 1 + random.below(6);
    (0..count)
        .map(|_| {
            let frames = random.below(20 * scale);
            let step = 1 + random.below(8);
            let disorder = if random.below(3) == 0 { 1 + random.below(20) } else { 1 };
            let mut time = 100 + random.below(30);
            let descs = (0..frames)
                .map(|_| {
                    time += random.below(step) + if random.below(10) == 0 { random.below(50) } else { 0 };
                    Desc::new(Nanos(time - random.below(disorder)), 0, 0)
                })
                .collect();
            Lane { descs, arrived: 0, consumed: 0, lag: random.below(3) * random.below(10) }
        })
        .collect()
}

#[test]
fn every_schedule_matches_the_oracle() {
    let mut frames = 0;
    for seed in 0..SCHEDULES {
        let mut lanes = schedule(seed, 1);
        frames += lanes.iter().map(|lane| lane.descs.len()).sum::<usize>();
        let mut merge = Merge::new(lanes.len());
        if let Err(reason) = check(seed, 1, &mut merge, &mut lanes) {
            panic!("seed {seed}: {reason}");
        }
    }
    assert!(frames as u64 > 10 * SCHEDULES, "the schedules are nearly empty");
}

#[test]
fn every_schedule_matches_the_oracle_frame_by_frame() {
    // Rounds of few frames, and rounds of many in a tenth of the schedules.
    for (seed, scale) in (0..SCHEDULES).map(|seed| (seed, if seed % 10 == 0 { 20 } else { 1 })) {
        let mut lanes = schedule(seed, scale);
        let mut ordered = Ordered { merge: Merge::new(lanes.len()), picks: Vec::new() };
        if let Err(reason) = check(seed, scale, &mut ordered, &mut lanes) {
            panic!("seed {seed}: {reason}");
        }
    }
}

#[test]
fn each_planted_bug_is_caught() {
    let caught = |bug: Bug| {
        (0..SCHEDULES / 10).any(|seed| {
            let mut lanes = schedule(seed, 1);
            let mut naive = Naive { bug, newest: vec![0; lanes.len()], emitted: 0 };
            check(seed, 1, &mut naive, &mut lanes).is_err()
        })
    };
    assert!(!caught(Bug::None), "the naive merge itself is wrong");
    for bug in [Bug::IgnoreHorizon, Bug::EqualGoesFirst, Bug::ForgetALane, Bug::ForgetLate] {
        assert!(caught(bug), "{bug:?} passes the check");
    }
}

#[test]
fn frames_behind_a_horizon_are_emitted_at_once_and_flagged() {
    let mut merge = Merge::new(2);
    let first = [Desc::new(Nanos(50), 0, 0)];
    let mut runs = Vec::new();
    let idle = Input { descs: &[], horizon: Horizon::At(Nanos(60)) };
    merge.round(&[Input { descs: &first, horizon: Horizon::At(Nanos(50)) }, idle], &mut runs);
    assert_eq!(runs, [Run { lane: 0, first: 0, count: 1, late: false }]);
    runs.clear();
    let broken = [Desc::new(Nanos(40), 0, 0), Desc::new(Nanos(70), 0, 0)];
    let idle = Input { descs: &[], horizon: Horizon::At(Nanos(55)) };
    merge.round(&[idle, Input { descs: &broken, horizon: Horizon::Ended }], &mut runs);
    assert_eq!(runs, [Run { lane: 1, first: 0, count: 1, late: true }]);
    assert_eq!((merge.frames(), merge.late()), (2, 1));
}

/// A literal implementation of the rule, one frame at a time, with a bug on request.
struct Naive {
    bug: Bug,
    newest: Vec<u64>,
    emitted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    IgnoreHorizon,
    EqualGoesFirst,
    ForgetALane,
    ForgetLate,
}

impl Merger for Naive {
    fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        let mut done = vec![0; inputs.len()];
        'emit: loop {
            for lane in 0..inputs.len() {
                let Some(head) = inputs[lane].descs.get(done[lane]) else { continue };
                let rank = (head.time.0.max(self.newest[lane]), lane);
                let blocked = (0..inputs.len()).any(|other| self.blocks(inputs, &done, rank, other));
                if !blocked {
                    let late = head.time.0 < self.emitted && self.bug != Bug::ForgetLate;
                    runs.push(Run { lane, first: done[lane], count: 1, late });
                    self.newest[lane] = rank.0;
                    self.emitted = self.emitted.max(head.time.0);
                    done[lane] += 1;
                    continue 'emit;
                }
            }
            return;
        }
    }
}

impl Naive {
    fn blocks(&self, inputs: &[Input<'_>], done: &[usize], rank: (u64, usize), other: usize) -> bool {
        if other == rank.1 || (self.bug == Bug::ForgetALane && other == 1) {
            return false;
        }
        let bound = match (inputs[other].descs.get(done[other]), inputs[other].horizon) {
            (Some(head), _) => head.time.0,
            (None, Horizon::Ended) => return false,
            (None, Horizon::At(_)) if self.bug == Bug::IgnoreHorizon => return false,
            (None, Horizon::At(time)) => time.0,
        };
        let bound = (bound.max(self.newest[other]), other);
        if self.bug == Bug::EqualGoesFirst { rank.0 > bound.0 } else { rank >= bound }
    }
}

/// A small generator, reproducible from a seed (splitmix64, Steele et al. 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}
