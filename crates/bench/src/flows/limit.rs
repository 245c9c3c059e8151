//! What the machine does at best.

use crate::Effort;
use crate::measure::Rounds;
use linerate_burst::{prefetch_many, resident};
use std::hint::black_box;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Two cache lines, each of as many as there are flows and of its own memory, at random, 32 pairs asked for at a time.
pub(super) fn two_lines(flows: usize, effort: Effort) -> Rounds {
    const BATCH: usize = 32;
    let mut memory: [Vec<Line>; 2] = [resident(flows), resident(flows)];
    memory.iter_mut().for_each(|lines| lines.resize(flows, Line([0; 8])));
    let mut rounds = Rounds::default();
    let mut state = 1u64;
    let batches = effort.of(200_000);
    for _ in 0..effort.rounds {
        rounds.time(|| {
            let mut places = [[0; 2]; BATCH];
            for _ in 0..batches {
                for pair in &mut places {
                    for (place, lines) in pair.iter_mut().zip(&memory) {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        *place = ((u128::from(state) * flows as u128) >> 64) as usize;
                        prefetch_many(&lines[*place]);
                    }
                }
                for pair in places {
                    for (place, lines) in pair.into_iter().zip(&mut memory) {
                        lines[place].0[0] += 1;
                    }
                }
            }
            (batches * BATCH) as u64
        });
    }
    black_box(&memory);
    rounds
}
