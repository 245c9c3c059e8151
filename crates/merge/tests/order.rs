//! Frame by frame compared with run by run: the same frames in the same order, for any lanes and horizons.

use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};
use linerate_merge::{Input, Merge};
use proptest::prelude::*;

/// Properties of the frames of one lane.
#[derive(Clone, Debug)]
struct Shape {
    frames: usize,
    /// Maximum nanoseconds between frames of a run; 0: all at once.
    step: u64,
    /// Number of consecutive frames in a run, and the nanoseconds after it.
    run: usize,
    pause: u64,
    /// One frame in this many goes back, by up to this many nanoseconds; 0: none.
    back: (u64, u64),
}

fn shape() -> impl Strategy<Value = Shape> {
    let frames = prop_oneof![0..20usize, 100..700usize, 1000..4000usize];
    let step = prop_oneof![Just(0u64), Just(1), Just(30), Just(1000)];
    let run = prop_oneof![Just(1usize), Just(4), Just(40)];
    let pause = prop_oneof![8 => 0..200u64, 2 => 0..50_000u64, 1 => Just(1 << 31), 1 => Just(5_000_000_000)];
    let back = prop_oneof![4 => Just((0, 0)), 1 => (2..300u64, 1..100u64), 1 => (100..2000u64, 1..10_000_000_000u64)];
    (frames, step, run, pause, back).prop_map(|(frames, step, run, pause, back)| Shape {
        frames,
        step,
        run,
        pause,
        back,
    })
}

/// Generates many small lanes, or a few of any size.
fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    prop_oneof![
        4 => prop::collection::vec(shape(), 1..9),
        1 => (prop::collection::vec(shape(), 1..4), 10..=64usize).prop_map(|(shapes, lanes)| {
            let few = |shape: &Shape| Shape { frames: shape.frames / 4, ..shape.clone() };
            shapes.iter().cycle().take(lanes).map(few).collect()
        }),
    ]
}

fn descs(shape: &Shape, start: u64, random: &mut Random) -> Vec<Desc> {
    let mut time = start;
    (0..shape.frames)
        .map(|number| {
            let pause = if number % shape.run == shape.run - 1 { shape.pause } else { 0 };
            time = time.saturating_add(random.below(shape.step + 1)).saturating_add(random.below(pause + 1));
            let goes_back = shape.back.0 > 0 && random.below(shape.back.0) == 0;
            let back = if goes_back { 1 + random.below(shape.back.1) } else { 0 };
            Desc::new(Nanos(time.saturating_sub(back)), 0, 0)
        })
        .collect()
}

/// Returns a lane's horizon: exact, too early, or too late.
fn horizon(to_come: &[Desc], kind: u64, random: &mut Random) -> Horizon {
    let oldest = to_come.iter().map(|desc| desc.time.0).min();
    match (oldest, kind) {
        (None, _) => Horizon::Ended,
        (Some(time), 0 | 1) => Horizon::At(Nanos(time)),
        (Some(time), 2) => Horizon::At(Nanos(time.saturating_sub(random.below(2000)))),
        (Some(time), 3) => Horizon::At(Nanos(time.saturating_add(random.below(3000)))),
        (Some(_), _) => Horizon::At(Nanos::MAX),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn both_methods_emit_the_same(
        shapes in shapes(),
        start in prop_oneof![4 => Just(1_700_000_000_000_000_000u64), 1 => Just(0), 1 => (0..20_000u64).prop_map(|less| u64::MAX - less)],
        most in prop_oneof![Just(5u64), Just(300), Just(3000)],
        kind in 0..5u64,
        clock in prop_oneof![1 => Just(0u64), 1 => 2..200u64],
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let lanes: Vec<Vec<Desc>> = shapes.iter().map(|shape| descs(shape, start, &mut random)).collect();
        let (mut ours, mut theirs) = (Merge::new(lanes.len()), Merge::new(lanes.len()));
        let (mut shown, mut taken) = (vec![0usize; lanes.len()], vec![0usize; lanes.len()]);
        let (mut picks, mut runs) = (Vec::new(), Vec::new());
        let mut idle = 0;
        while idle < 3 {
            for (shown, lane) in shown.iter_mut().zip(&lanes) {
                *shown = lane.len().min(*shown + random.below(most + 1) as usize);
            }
            let inputs: Vec<Input<'_>> = lanes.iter().enumerate().map(|(lane, descs)| Input {
                descs: &descs[taken[lane]..shown[lane]],
                horizon: horizon(&descs[shown[lane]..], kind, &mut random),
            }).collect();
            // A ceiling anywhere among the times, sometimes elsewhere.
            if clock > 0 && random.below(clock / 20 + 1) == 0 {
                let lane = random.below(lanes.len() as u64) as usize;
                let near = lanes[lane].get(random.below(lanes[lane].len() as u64) as usize);
                let ceiling = Nanos(near.map_or(u64::MAX, |desc| desc.time.0.saturating_add(random.below(100))));
                ours.set_ceiling(ceiling);
                theirs.set_ceiling(ceiling);
            }
            picks.clear();
            runs.clear();
            theirs.round(&inputs, &mut runs);
            // Calls of both kinds may follow each other.
            if random.below(8) == 0 {
                let mut own = Vec::new();
                ours.round(&inputs, &mut own);
                prop_assert_eq!(&own, &runs);
            } else {
                ours.order(&inputs, &mut picks);
                let pick = |lane, index, late| if late { FrameIndex::new(lane, index).late() } else { FrameIndex::new(lane, index) };
                let expected: Vec<FrameIndex> = runs
                    .iter()
                    .flat_map(|run| (run.first..run.first + run.count).map(|index| pick(run.lane, index, run.late)))
                    .collect();
                let differs = picks.iter().zip(&expected).position(|(ours, theirs)| ours != theirs);
                prop_assert_eq!((picks.len(), differs), (expected.len(), None));
            }
            prop_assert_eq!(
                (ours.frames(), ours.late(), ours.ahead()),
                (theirs.frames(), theirs.late(), theirs.ahead())
            );
            for (lane, taken) in taken.iter_mut().enumerate() {
                prop_assert_eq!(ours.taken(lane), theirs.taken(lane));
                *taken += ours.taken(lane);
            }
            idle = if shown.iter().zip(&lanes).all(|(shown, lane)| *shown == lane.len()) { idle + 1 } else { 0 };
        }
        prop_assert_eq!(ours.frames(), lanes.iter().map(|lane| lane.len() as u64).sum::<u64>());
    }
}

#[test]
fn lane_is_limited_to_the_range_of_picks() {
    let long: Vec<Desc> = (0..FrameIndex::MAX_FRAMES as u64 + 2).map(|time| Desc::new(Nanos(time), 0, 0)).collect();
    let end = [Desc::new(Nanos(long.len() as u64 + 5), 0, 0)];
    let inputs = [Input { descs: &long, horizon: Horizon::Ended }, Input { descs: &end, horizon: Horizon::Ended }];
    let mut merge = Merge::new(2);
    let mut picks = Vec::new();
    merge.order(&inputs, &mut picks);
    assert_eq!((picks.len(), merge.taken(0), merge.taken(1)), (FrameIndex::MAX_FRAMES, FrameIndex::MAX_FRAMES, 0));
    let rest = [Input { descs: &long[FrameIndex::MAX_FRAMES..], ..inputs[0] }, inputs[1]];
    picks.clear();
    merge.order(&rest, &mut picks);
    assert_eq!(picks, [FrameIndex::new(0, 0), FrameIndex::new(0, 1), FrameIndex::new(1, 0)]);
}

#[test]
#[should_panic(expected = "exceed the limit of 128")]
fn more_lanes_than_picks_can_address_are_rejected() {
    Merge::new(FrameIndex::MAX_LANES + 1);
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
