//! Mapping from indices to values.

use super::select::{draw, scale};
use std::sync::Arc;

/// Mapping from an index to the value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Map {
    /// `start` plus `step` for each index, modulo 2^128. The index is divided and taken modulo first, so that two
    /// fields that share a selector go through all pairs.
    Range {
        /// Value of index 0.
        start: u128,
        /// Difference between successive values; may be negative.
        step: i128,
        /// Divisor of the index, 1 or more.
        divide: u64,
        /// Modulus of the quotient; 0 for none.
        modulo: u64,
    },
    /// Listed values, repeated for larger indices; not empty.
    List(Arc<[u128]>),
    /// Pseudo-random values from `start` on, always the same for the same index.
    Scatter {
        /// Lowest value.
        start: u128,
        /// Number of values from there on; 0: 2^128.
        span: u128,
        /// Seed; different fields need different seeds.
        seed: u64,
    },
}

impl Map {
    /// Returns the map of `start` plus one for each index.
    pub fn counting(start: u128) -> Map {
        Map::Range { start, step: 1, divide: 1, modulo: 0 }
    }

    /// Returns the value of an index.
    pub fn at(&self, index: u64) -> u128 {
        match self {
            Map::Range { start, step, divide, modulo } => {
                let index = index / (*divide).max(1);
                let index = if *modulo == 0 { index } else { index % modulo };
                start.wrapping_add((*step as u128).wrapping_mul(index.into()))
            }
            Map::List(values) => values.get((index % (values.len() as u64).max(1)) as usize).copied().unwrap_or(0),
            Map::Scatter { start, span, seed } => {
                let low = draw(*seed, index);
                let value = match span {
                    1..=0xffff_ffff_ffff_ffff => u128::from(scale(low, *span as u64)),
                    _ => {
                        let wide = u128::from(draw(!*seed, index)) << 64 | u128::from(low);
                        if *span == 0 { wide } else { wide % span }
                    }
                };
                start.wrapping_add(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fields_of_one_index_cover_all_pairs() {
        let source = Map::Range { start: 10, step: 1, divide: 4, modulo: 3 };
        let destination = Map::Range { start: 20, step: -1, divide: 1, modulo: 4 };
        let mut pairs: Vec<_> = (0..12).map(|index| (source.at(index), destination.at(index))).collect();
        assert_eq!((pairs[0], pairs[1], pairs[4]), ((10, 20), (10, 19), (11, 20)));
        pairs.sort_unstable();
        pairs.dedup();
        assert_eq!(pairs.len(), 12);
    }

    #[test]
    fn scattered_values_stay_in_range() {
        for span in [1, 7, 1 << 33, (1 << 64) - 1, 1 << 64, 1 << 100] {
            let map = Map::Scatter { start: 5, span, seed: 3 };
            assert!((0..100).all(|index| (5..5 + span).contains(&map.at(index))), "{span}");
        }
        let all = Map::Scatter { start: 0, span: 0, seed: 3 };
        assert_ne!(all.at(0), all.at(1));
    }
}
