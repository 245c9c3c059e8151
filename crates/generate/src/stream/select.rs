//! Selection of the value of a field in frame n.

pub use linerate_burst::random::{FACTORS, GAMMA};
pub(crate) use linerate_burst::random::{draw, mix};
use std::sync::Arc;

/// Selects an index for each frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Number of indices, from 0; 0 stands for 2^64.
    pub count: u64,
    /// Method of selection.
    pub pick: IndexSelection,
}

/// Method of selecting an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexSelection {
    /// One after the other, each for `every` frames (1 or more), then from the first again.
    InTurn {
        /// Number of successive frames with the same index.
        every: u64,
    },
    /// At random, all equally likely.
    Random {
        /// Seed; different selectors need different seeds.
        seed: u64,
    },
    /// At random by weights.
    Weighted {
        /// Weights of the indices; one for each index.
        table: Arc<Alias>,
        /// Seed; different selectors need different seeds.
        seed: u64,
    },
}

/// Weights as an alias table (Walker 1974, in the form of Vose 1991): one draw for any weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// For each index, the threshold (of 2^32) below which a draw keeps it, and its substitute. Indices that are always
    /// kept substitute themselves.
    rows: Vec<(u32, u32)>,
}

/// Maximum number of weighted indices: a table of 8 MiB.
pub const MOST_WEIGHTED: usize = 1 << 20;

impl Selector {
    /// Always index 0.
    pub const ONE: Selector = Selector { count: 1, pick: IndexSelection::InTurn { every: 1 } };

    /// Returns the index of frame `n`.
    pub fn at(&self, n: u64) -> u64 {
        match &self.pick {
            IndexSelection::InTurn { every } => {
                let turn = if *every <= 1 { n } else { n / every };
                if self.count == 0 || turn < self.count { turn } else { turn % self.count }
            }
            IndexSelection::Random { seed } => scale(draw(*seed, n), self.count),
            IndexSelection::Weighted { table, seed } => table.pick(draw(*seed, n)),
        }
    }
}

impl Alias {
    /// Creates a table of weights, which need not add up to anything; `None` if the list is empty or too long, if a
    /// weight is negative or not finite, or if all are 0.
    pub fn new(weights: &[f64]) -> Option<Self> {
        let sum: f64 = weights.iter().sum();
        let wrong = weights.iter().any(|weight| !weight.is_finite() || *weight < 0.0);
        if wrong || !sum.is_finite() || sum <= 0.0 || weights.len() > MOST_WEIGHTED {
            return None;
        }
        let mut share: Vec<f64> = weights.iter().map(|weight| weight / sum * weights.len() as f64).collect();
        let mut rows: Vec<(u32, u32)> = (0..weights.len() as u32).map(|index| (u32::MAX, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..share.len()).partition(|index| share[*index] < 1.0);
        while let (Some(little), Some(&much)) = (small.pop(), large.last()) {
            rows[little] = ((share[little] * 4_294_967_296.0) as u32, much as u32);
            share[much] -= 1.0 - share[little];
            if share[much] < 1.0 {
                large.pop();
                small.push(much);
            }
        }
        Some(Alias { rows })
    }

    /// Creates a table by Zipf's law: index i has the weight 1 / (i + 1)^exponent.
    pub fn zipf(count: usize, exponent: f64) -> Option<Self> {
        if count > MOST_WEIGHTED {
            return None;
        }
        Alias::new(&(1..=count).map(|rank| (rank as f64).powf(-exponent)).collect::<Vec<_>>())
    }

    /// Returns the index for a draw.
    pub fn pick(&self, draw: u64) -> u64 {
        let slot = scale(draw, self.rows.len() as u64);
        let (below, other) = self.rows[slot as usize];
        if (draw as u32) < below { slot } else { u64::from(other) }
    }

    /// Returns for each index the threshold (of 2^32) below which a draw keeps it, and its substitute.
    pub fn rows(&self) -> &[(u32, u32)] {
        &self.rows
    }
}

/// Maps a draw to one of `count` indices (0: 2^64). For counts below 2^32 by the upper half of the draw only, which a
/// machine without 128-bit products can do too.
pub(crate) fn scale(draw: u64, count: u64) -> u64 {
    match count {
        0 => draw,
        1..=0xffff_ffff => (draw >> 32).wrapping_mul(count) >> 32,
        _ => draw % count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_in_turn_wrap_around() {
        let selector = Selector { count: 3, pick: IndexSelection::InTurn { every: 2 } };
        assert_eq!((0..8).map(|n| selector.at(n)).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 0, 0]);
        assert_eq!(Selector { count: 0, pick: IndexSelection::InTurn { every: 1 } }.at(u64::MAX), u64::MAX);
    }

    #[test]
    fn picks_have_the_requested_probability() {
        let weights = [1.0, 0.0, 5.0, 2.0];
        let table = Alias::new(&weights).unwrap();
        let mut seen = [0u32; 4];
        (0..80_000).for_each(|n| seen[table.pick(draw(7, n)) as usize] += 1);
        for (seen, weight) in seen.iter().zip(weights) {
            assert!((f64::from(*seen) / 10_000.0 - weight).abs() < 0.1, "{seen} {weight}");
        }
        let random = Selector { count: 10, pick: IndexSelection::Random { seed: 1 } };
        let mut seen = [0u32; 10];
        (0..100_000).for_each(|n| seen[random.at(n) as usize] += 1);
        assert!(seen.iter().all(|seen| (9_000..11_000).contains(seen)), "{seen:?}");
    }

    #[test]
    fn invalid_weights_are_rejected() {
        for wrong in [&[][..], &[0.0], &[-1.0, 2.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(Alias::new(wrong), None);
        }
        assert_eq!(Alias::zipf(MOST_WEIGHTED + 1, 1.0), None);
    }
}
