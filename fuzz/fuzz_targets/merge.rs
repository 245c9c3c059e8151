//! Any lanes are merged as by a stable sort by (greatest time so far in the lane, lane), run by run and frame by frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};
use linerate_merge::{Input, Merge, Run};

const LANES: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    // Each byte is a frame: 2 bits of lane, 6 bits of time.
    let mut lanes: [Vec<Desc>; LANES] = Default::default();
    for byte in bytes {
        lanes[usize::from(byte >> 6)].push(Desc::new(Nanos(u64::from(byte & 63)), 0, 0));
    }
    let (mut merge, mut ordered) = (Merge::new(LANES), Merge::new(LANES));
    let (mut shown, mut done) = ([0; LANES], [0; LANES]);
    let mut output = Vec::new();
    while done.iter().zip(&lanes).any(|(done, lane)| *done < lane.len()) {
        for (index, lane) in lanes.iter().enumerate() {
            // Usually few at a time, sometimes many.
            let step = 1 + (index * 7 + output.len()) % 5;
            shown[index] = lane.len().min(shown[index] + if output.len() % 3 == 0 { 40 * step } else { step });
        }
        let inputs: Vec<Input<'_>> = lanes
            .iter()
            .enumerate()
            .map(|(index, lane)| {
                let oldest = lane[shown[index]..].iter().map(|desc| desc.time).min();
                let horizon = oldest.map_or(Horizon::Ended, Horizon::At);
                Input { descs: &lane[done[index]..shown[index]], horizon }
            })
            .collect();
        let mut runs = Vec::new();
        merge.round(&inputs, &mut runs);
        let mut picks = Vec::new();
        ordered.order(&inputs, &mut picks);
        assert!(picks.into_iter().eq(runs.iter().flat_map(picks_of)), "the order frame by frame differs");
        for run in runs {
            let descs = &inputs[run.lane].descs[run.first..run.first + run.count];
            output.extend(descs.iter().map(|desc| (run.lane, desc.time)));
            done[run.lane] += run.count;
        }
    }
    let mut expected = Vec::new();
    for (index, lane) in lanes.iter().enumerate() {
        let mut greatest = Nanos::ZERO;
        for desc in lane {
            greatest = greatest.max(desc.time);
            expected.push((greatest, index, desc.time));
        }
    }
    expected.sort_by_key(|(rank, lane, _)| (*rank, *lane));
    let expected: Vec<_> = expected.into_iter().map(|(_, lane, time)| (lane, time)).collect();
    assert_eq!(output, expected);
});

fn picks_of(run: &Run) -> impl Iterator<Item = FrameIndex> + use<> {
    let run = *run;
    (run.first..run.first + run.count).map(move |index| {
        let pick = FrameIndex::new(run.lane, index);
        if run.late { pick.late() } else { pick }
    })
}
