//! Lanes of a machine whose clock is set: nothing waits for the clock to catch up.

use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};
use linerate_merge::{Input, Merge, Run};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const START: u64 = 1_700_000_000 * S;
const LAG: u64 = 2 * MS;
/// Allowed distance of a time above the clock.
const SLACK: u64 = 10 * MS;

fn desc(time: u64) -> Desc {
    Desc::new(Nanos(time), 0, 0)
}

/// One of the two implementations, with a clock.
struct Merger {
    merge: Merge,
    fast: bool,
}

impl Merger {
    /// Returns the frames emitted at `now`: lane, time, and late flag.
    fn round(&mut self, lanes: &mut [Vec<Desc>], now: u64) -> Vec<(usize, u64, bool)> {
        let horizon = Horizon::At(Nanos(now - LAG));
        let inputs: Vec<_> = lanes.iter().map(|descs| Input { descs, horizon }).collect();
        self.merge.set_ceiling(Nanos(now + SLACK));
        let (mut picks, mut runs): (Vec<FrameIndex>, Vec<Run>) = Default::default();
        if self.fast {
            self.merge.order(&inputs, &mut picks);
        } else {
            self.merge.round(&inputs, &mut runs);
        }
        let of_picks = picks.iter().map(|pick| (pick.lane(), pick.index(), pick.is_late()));
        let of_runs = runs.iter().flat_map(|run| (0..run.count).map(|at| (run.lane, run.first + at, run.late)));
        let out = of_picks.chain(of_runs).map(|(lane, index, late)| (lane, inputs[lane].descs[index].time.0, late));
        let out = out.collect();
        for (lane, descs) in lanes.iter_mut().enumerate() {
            descs.drain(..self.merge.taken(lane));
        }
        out
    }
}

fn both() -> [Merger; 2] {
    [false, true].map(|fast| Merger { merge: Merge::new(3), fast })
}

/// Two busy lanes and an idle one, like a port with a ring per processor. The clock goes back by 100 s.
#[test]
fn clock_steps_back_delay_no_frames() {
    for mut merger in both() {
        let (mut lanes, mut now, mut most, mut frames) = (vec![Vec::new(); 3], START, 0, 0);
        for ms in 0..3000u64 {
            now += MS;
            if ms == 1000 {
                now -= 100 * S;
            }
            match ms % 10 {
                0 => lanes[0].push(desc(now)),
                3 => lanes[1].push(desc(now)),
                _ => {}
            }
            frames += merger.round(&mut lanes, now).len();
            most = most.max(lanes.iter().map(Vec::len).max().unwrap());
        }
        assert!(most <= 3, "{most} frames of a lane were held, fast {}", merger.fast);
        assert_eq!((frames, merger.merge.late(), merger.merge.ahead()), (600, 0, 0));
    }
}

/// Frames in the lanes when the clock goes back are emitted at once, in order, and flagged.
#[test]
fn frames_of_the_old_time_are_emitted_first() {
    for mut merger in both() {
        let mut lanes = vec![vec![desc(START), desc(START + 5)], vec![desc(START + 3)], vec![]];
        assert_eq!(merger.round(&mut lanes, START + 7), []);
        let back = START - 100 * S;
        lanes[0].push(desc(back + 1));
        lanes[1].push(desc(back));
        let out = merger.round(&mut lanes, back + 5);
        assert_eq!(out, [(0, START, true), (1, START + 3, true), (0, START + 5, true)]);
        let out = merger.round(&mut lanes, back + 5 + LAG);
        assert_eq!(out, [(1, back, false), (0, back + 1, false)]);
        assert_eq!((merger.merge.late(), merger.merge.ahead(), merger.merge.frames()), (3, 3, 5));
    }
}

#[test]
fn far_future_frame_delays_no_lane() {
    for mut merger in both() {
        let far = START + 400 * 86_400 * S;
        let mut lanes = vec![vec![], vec![], vec![]];
        lanes[0].extend((0..200).map(|at| desc(START + at * 10)));
        lanes[0].insert(100, desc(far));
        lanes[0].insert(0, desc(far + 1));
        lanes[1].extend((0..200).map(|at| desc(START + at * 10 + 5)));
        let out = merger.round(&mut lanes, START + 2000 + LAG);
        assert_eq!(out.len(), 402);
        let ahead: Vec<usize> = (0..out.len()).filter(|at| out[*at].1 >= far).collect();
        assert_eq!(ahead.iter().map(|at| out[*at].2).collect::<Vec<_>>(), [true, true]);
        assert_eq!(ahead, [0, 200], "the one after frame 99 of its lane is emitted right after that");
        let others: Vec<_> = out.iter().filter(|one| one.1 < far).collect();
        assert!(others.windows(2).all(|pair| pair[0].1 < pair[1].1) && others.iter().all(|one| !one.2));
        assert_eq!((merger.merge.late(), merger.merge.ahead()), (2, 2));
    }
}

/// The clock steps back and forth between two rounds: frames presented together have both times.
#[test]
fn an_unnoticed_step_delays_no_frames() {
    for mut merger in both() {
        for step in [-100 * S as i64, 100 * S as i64] {
            let mut lanes = vec![vec![], vec![], vec![]];
            let start = START + step.unsigned_abs();
            for at in 0..300 {
                let time = if (100..200).contains(&at) { start.wrapping_add_signed(step) } else { start };
                lanes[at as usize % 2].push(desc(time + at));
            }
            assert_eq!(merger.round(&mut lanes, start + 300 + LAG).len(), 300);
        }
    }
}

/// Small steps, as slewing and coarse clocks make them, change nothing.
#[test]
fn order_is_kept_below_the_slack() {
    for mut merger in both() {
        let (mut lanes, mut now, mut out) = (vec![Vec::new(); 3], START, Vec::new());
        for ms in 0..1000u64 {
            now = if ms % 50 == 49 { now - 3 * MS } else { now + MS };
            lanes[ms as usize % 3].push(desc(now + ms % 5 * MS));
            out.extend(merger.round(&mut lanes, now));
        }
        out.extend(merger.round(&mut lanes, now + S));
        assert_eq!((out.len(), merger.merge.ahead()), (1000, 0));
        let mut newest = 0;
        for (_, time, late) in out {
            assert_eq!(late, time < newest);
            newest = newest.max(time);
        }
    }
}
