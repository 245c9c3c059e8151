//! Memory accesses of the machine without a meter.

use crate::Effort;
use crate::harness::Sample;
use linerate_burst::{prefetch_many, resident};
use std::hint::black_box;

/// One cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; 8]);

/// Pairs that are prefetched at a time.
const BATCH: usize = 32;

/// Touches two random cache lines per packet, of as many as flows and each in a memory of its own.
pub(super) fn two_lines(flows: usize, effort: Effort) -> impl FnMut() -> anyhow::Result<Sample> + 'static {
    let mut memory: [Vec<Line>; 2] = [resident(flows), resident(flows)];
    memory.iter_mut().for_each(|lines| lines.resize(flows, Line([0; 8])));
    let (mut state, batches) = (1u64, effort.of(200_000));
    move || {
        Sample::timed(|| {
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
            black_box(&memory);
            Ok((batches * BATCH) as u64)
        })
    }
}
