//! From what an index means to arithmetic on 64 bits.

use linerate_generate::stream::{Map, Pick, Selector};

/// Nobody sends more frames: ten million a second for two hundred years.
pub const MOST_FRAMES: u64 = 1 << 56;

/// A number of 64 bits that follows from an index. All sums and products wrap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// `start + step * (index / divide % modulo)`; 0: no modulo.
    Linear { start: u64, step: u64, divide: u64, modulo: u64 },
    /// The one at the index modulo the length.
    Table(Vec<u64>),
    /// `start`, and a draw scaled to `span` (0: 2^64).
    Scaled { start: u64, span: u64, seed: u64 },
    /// `start`, and the bits of a draw in `mask`.
    Masked { start: u64, mask: u64, seed: u64 },
}

/// Which part of a value a term is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The lower 64 bits, and nobody looks at the upper ones.
    Only,
    /// The lower 64 bits.
    Lower,
    /// The upper 64 bits.
    Upper,
}

/// The greatest index of a selector in the first `frames` frames.
pub fn most(selector: &Selector, frames: u64) -> u64 {
    match &selector.pick {
        Pick::InTurn { every } => {
            let turns = (frames.clamp(1, MOST_FRAMES) - 1) / (*every).max(1);
            turns.min(selector.count.wrapping_sub(1))
        }
        Pick::Random { .. } => selector.count.wrapping_sub(1),
        Pick::Weighted { table, .. } => table.rows().len().max(1) as u64 - 1,
    }
}

impl Term {
    /// Of a map whose indices are `most` at most.
    ///
    /// # Errors
    /// Values whose halves cannot be told without the other one.
    pub fn of(map: &Map, most: u64, half: Half) -> Result<Term, String> {
        let part = |value: u128| if half == Half::Upper { (value >> 64) as u64 } else { value as u64 };
        match map {
            Map::Range { start, step, divide, modulo } => {
                let divide = (*divide).max(1);
                let last = most / divide;
                let modulo = if *modulo > last { 0 } else { *modulo };
                let last = if modulo == 0 { last } else { modulo - 1 };
                let step = if half == Half::Only { *step as u64 } else { half_step(*start, *step, last, half)? };
                let step = if last == 0 { 0 } else { step };
                Ok(Term::Linear { start: part(*start), step, divide, modulo })
            }
            Map::List(values) if values.is_empty() => Ok(Term::constant_of(0)),
            Map::List(values) => Ok(Term::Table(values.iter().map(|value| part(*value)).collect())),
            Map::Scatter { start, span, seed } => scatter(*start, *span, *seed, half),
        }
    }

    fn constant_of(value: u64) -> Term {
        Term::Linear { start: value, step: 0, divide: 1, modulo: 0 }
    }

    /// Its value, where that is always the same.
    pub fn constant(&self) -> Option<u64> {
        match self {
            Term::Linear { start, step: 0, .. } => Some(*start),
            Term::Table(values) => values.first().copied().filter(|first| values.iter().all(|value| value == first)),
            Term::Scaled { start, span: 1, .. } | Term::Masked { start, mask: 0, .. } => Some(*start),
            _ => None,
        }
    }

    /// The index is first divided by one and taken modulo the other; 0: not at all.
    pub fn reduction(&self, most: u64) -> (u64, u64) {
        match self {
            Term::Linear { divide, modulo, .. } => (*divide, *modulo),
            Term::Table(values) if values.len() as u64 <= most => (1, values.len() as u64),
            _ => (1, 0),
        }
    }
}

/// The step of one half of a range. Neither is to carry into the other.
fn half_step(start: u128, step: i128, last: u64, half: Half) -> Result<u64, String> {
    let (low, high) = (step as u64, (step >> 64) as u64);
    let reach = |by: u64| u128::from(by) * u128::from(last);
    let stays_below = u128::from(start as u64) + reach(low) <= u64::MAX.into();
    let stays_above = reach(low.wrapping_neg()) <= u128::from(start as u64);
    match (stays_below, stays_above && low != 0, half) {
        (false, false, _) => {
            Err("a field of more than 64 bits carries from its lower 64 bits into the upper ones".into())
        }
        (.., Half::Lower | Half::Only) => Ok(low),
        (true, _, Half::Upper) => Ok(high),
        // A step back of the lower half alone.
        (false, true, Half::Upper) => Ok(high.wrapping_add(1)),
    }
}

fn scatter(start: u128, span: u128, seed: u64, half: Half) -> Result<Term, String> {
    let low = start as u64;
    match (span, half) {
        (1..=0xffff_ffff_ffff_ffff, Half::Only) => Ok(Term::Scaled { start: low, span: span as u64, seed }),
        (1..=0xffff_ffff_ffff_ffff, _) if low.checked_add(span as u64 - 1).is_none() => {
            Err("a field of more than 64 bits is scattered over the edge of its lower 64 bits".into())
        }
        (1..=0xffff_ffff_ffff_ffff, Half::Lower) => Ok(Term::Scaled { start: low, span: span as u64, seed }),
        (1..=0xffff_ffff_ffff_ffff, Half::Upper) => Ok(Term::constant_of((start >> 64) as u64)),
        _ if span != 0 && !span.is_power_of_two() => {
            Err("a field is scattered over more than 2^64 values, and not a power of two".into())
        }
        (_, Half::Only) => Ok(Term::Masked { start: low, mask: u64::MAX, seed }),
        _ if low != 0 => Err("a field is scattered over 2^64 or more values from a start with lower bits".into()),
        (_, Half::Lower) => Ok(Term::Masked { start: 0, mask: u64::MAX, seed }),
        (_, Half::Upper) => {
            let mask = if span == 0 { u64::MAX } else { ((span >> 64) as u64).wrapping_sub(1) };
            Ok(Term::Masked { start: (start >> 64) as u64, mask, seed: !seed })
        }
    }
}
