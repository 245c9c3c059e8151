//! Which copy is the fastest, where it runs.

use super::Kernel;

/// What a calibration has found about one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Which.
    pub kernel: Kernel,
    /// Bytes that it copies in a second.
    pub rate: u64,
}

/// How long a calibration takes.
const SPAN: u64 = 50_000_000;
/// Bytes copied between two looks at the clock.
const STRETCH: usize = 1 << 20;
/// What pieces are copied from: as a burst that just came, it stays in a cache.
const SOURCE: usize = 1 << 18;

/// Copies pieces of so many bytes into this memory for about 50 ms, by every kernel in turn, and says how fast each is, the fastest first.
/// `clock` tells nanoseconds. The memory is to be of the kind and size that will be copied to, and holds zeros afterwards.
pub fn calibrate(memory: &mut [&mut [u8]], piece: usize, clock: &dyn Fn() -> u64) -> Vec<Measured> {
    let source = vec![0; SOURCE];
    let piece = piece.clamp(1, SOURCE);
    // What other programs do meanwhile only makes it slower, so the best time counts.
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
    let mut found: Vec<Measured> =
        best.into_iter().map(|(kernel, rate)| Measured { kernel, rate: (rate * 1e9) as u64 }).collect();
    found.sort_by_key(|measured| std::cmp::Reverse(measured.rate));
    found
}

/// No clock stands still for so many rounds.
const MOST: usize = 10_000;

/// The memory, a stretch after the other, round and round.
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
