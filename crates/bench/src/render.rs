//! Frames of streams made in memory: how many a core makes in a second, beside a plain copy of as many bytes.

mod sets;

use super::Effort;
use super::measure::{Rounds, Row};
use linerate_burst::Nanos;
use linerate_generate::rate::FCS;
use linerate_generate::stream::StreamSet;
use linerate_generate::{Part, Traffic};
use sets::{four_fields, four_random_fields, one_field, set, stream, with_noise, with_trailer};
use std::hint::black_box;

/// The smallest frames, with FCS: of these alone there are many streams, which take much memory.
const SMALLEST: usize = 64;
/// Bytes made of each case in a round: the more the longer the frames.
const BYTES: usize = 256 << 20;
/// The most frames of a round.
const FRAMES: usize = 4 << 20;
/// Frames of a burst, as many as lie in memory.
const BURST: usize = 256;
/// Frames of a stream that are made once.
const KEPT: u64 = 1024;
/// Sizes of a mix, with how often each is met.
const IMIX: [(usize, f64); 3] = [(64, 7.0), (594, 4.0), (1518, 1.0)];

pub(super) fn run(effort: Effort) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in [SMALLEST, 512, 1518] {
        if effort.size.is_some_and(|wanted| wanted != size) {
            continue;
        }
        let one = |fields: &[_]| stream(1, &[(size, 1.0)], fields);
        let many = |count: u32| set((0..count).map(|id| stream(id, &[(size, 1.0)], &four_fields())).collect());
        let fresh = |set: &StreamSet| Traffic::new(set, Part::WHOLE);
        let mut cases = vec![
            ("template", fresh(&set(vec![one(&[])]))?),
            ("cached", Traffic::kept(&set(vec![one(&four_fields())]), Part::WHOLE, KEPT)?),
            ("one field", fresh(&set(vec![one(&one_field())]))?),
            ("four fields", fresh(&set(vec![one(&four_fields())]))?),
            ("four random fields", fresh(&set(vec![one(&four_random_fields())]))?),
            ("four fields, trailer", fresh(&set(vec![with_trailer(one(&four_fields()))]))?),
            ("noise payload", fresh(&set(vec![with_noise(one(&[]))]))?),
            ("1,000 streams in turn", fresh(&many(1_000))?),
        ];
        if size == SMALLEST {
            cases.push(("100,000 streams in turn", fresh(&many(effort.of(100_000) as u32))?));
        }
        for (case, traffic) in cases {
            rows.push(measure(effort, case, traffic, (size - FCS as usize) as f64).sized(size));
        }
    }
    if effort.size.is_none() {
        let weights: f64 = IMIX.iter().map(|(_, weight)| weight).sum();
        let mean = IMIX.iter().map(|(size, weight)| (size - FCS as usize) as f64 * weight).sum::<f64>() / weights;
        let mix = set(vec![stream(1, &IMIX, &four_fields())]);
        rows.push(measure(effort, "four fields, 7:4:1", Traffic::new(&mix, Part::WHOLE)?, mean));
    }
    Ok(rows)
}

/// Makes frames of `bytes` on average, in turn with the copy.
fn measure(effort: Effort, case: &str, mut traffic: Traffic, bytes: f64) -> Row {
    let frames = effort.of((BYTES / bytes as usize).min(FRAMES));
    let (mut ours, mut copy) = (Rounds::default(), Rounds::default());
    let source = vec![7; BURST * (bytes as usize).next_multiple_of(64)];
    let mut target = vec![0; source.len()];
    for _ in 0..effort.rounds {
        ours.time(|| make(&mut traffic, frames));
        copy.time(|| {
            for _ in 0..frames.div_ceil(BURST) {
                target.copy_from_slice(black_box(&source));
                black_box(&mut target);
            }
            (frames.div_ceil(BURST) * BURST) as u64
        });
    }
    ours.row("render", case, bytes).limited("memory copy", &copy)
}

/// Takes frames as a sender that is never full.
fn make(traffic: &mut Traffic, frames: usize) -> u64 {
    let mut made = 0;
    while made < frames {
        let burst = traffic.offer(0, Nanos(made as u64)).expect("frames lie in their memory");
        let shown = black_box(burst).len();
        traffic.consume(shown);
        made += shown;
    }
    made as u64
}
