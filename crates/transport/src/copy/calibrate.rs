//! Measures the copy kernels on this machine.

use super::Kernel;

/// Throughput of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelThroughput {
    /// The kernel.
    pub kernel: Kernel,
    /// Bytes per second.
    pub rate: u64,
}

/// Duration of a calibration in nanoseconds.
const SPAN: u64 = 50_000_000;
/// Bytes copied between two reads of the clock.
const STRETCH: usize = 1 << 20;
/// Size of the source: it stays in a cache, like a burst just received.
const SOURCE: usize = 1 << 18;

/// Copies pieces of `piece` bytes into this memory for about 50 ms, with all kernels in turn. Returns their
/// throughput, the fastest first. `clock` returns nanoseconds. The memory should be of the kind and size that will be
/// copied to; it is zeroed.
pub fn calibrate(memory: &mut [&mut [u8]], piece: usize, clock: &dyn Fn() -> u64) -> Vec<KernelThroughput> {
    let source = vec![0; SOURCE];
    let piece = piece.clamp(1, SOURCE);
    // Other programs can only slow a kernel down, so the best time counts.
    let mut best: Vec<(Kernel, f64)> = Kernel::all().map(|kernel| (kernel, 0.0)).collect();
    let mut stretches = Stretches { memory: 0, at: 0 };
    let (begin, mut round) = (clock(), 0);
    while round < 2 || clock().saturating_sub(begin) < SPAN {
        for (kernel, rate) in &mut best {
            let Some(to) = stretches.next(memory) else { return Vec::new() };
            let start = clock();
            let mut pieces = source.chunks_exact(piece).cycle();
            to.chunks_mut(piece).for_each(|to| {
                let from = pieces.next().unwrap_or_default();
                kernel.copy(to, &from[..to.len()]);
            });
            kernel.fence();
            let span = clock().saturating_sub(start).max(1);
            *rate = f64::max(*rate, to.len() as f64 / span as f64);
        }
        round += 1;
        if round > MOST {
            break;
        }
    }
    let mut found: Vec<KernelThroughput> =
        best.into_iter().map(|(kernel, rate)| KernelThroughput { kernel, rate: (rate * 1e9) as u64 }).collect();
    found.sort_by_key(|measured| std::cmp::Reverse(measured.rate));
    found
}

/// Upper bound on rounds, in case the clock does not advance.
const MOST: usize = 10_000;

/// Iterates over the memory in stretches, cyclically.
struct Stretches {
    memory: usize,
    at: usize,
}

impl Stretches {
    fn next<'a>(&mut self, memory: &'a mut [&mut [u8]]) -> Option<&'a mut [u8]> {
        if memory.is_empty() {
            return None;
        }
        if self.at >= memory[self.memory].len() {
            (self.memory, self.at) = ((self.memory + 1) % memory.len(), 0);
        }
        let whole = &mut *memory[self.memory];
        let from = self.at;
        self.at = (from + STRETCH).min(whole.len());
        let stretch = &mut whole[from..self.at];
        (!stretch.is_empty()).then_some(stretch)
    }
}
