//! Mapping from the index of a field to its bits, in 64-bit arithmetic where possible.

use super::FieldPosition;
use crate::stream::{Change, IndexSelection, Map, Selector, draw, scale};
use std::sync::Arc;

/// Number derived from an index, in its place; all sums and products wrap. It may have bits outside of its mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Term {
    /// `start + step * index`.
    Linear {
        /// Number of index 0.
        start: u64,
        /// Difference between successive numbers.
        step: u64,
    },
    /// Like `Linear`, with the index divided and taken modulo first (0: no modulo).
    Divided {
        /// Number of index 0.
        start: u64,
        /// Difference between successive numbers.
        step: u64,
        /// Divisor of the index, 1 or more.
        divide: u64,
        /// Modulus of the quotient.
        modulo: u64,
    },
    /// Number at the index modulo the length.
    Table(Arc<[u64]>),
    /// `start` plus a draw scaled to `span` (0: 2^64), shifted.
    Scaled {
        /// Lowest value.
        start: u64,
        /// Number of values.
        span: u64,
        /// Seed of the draw.
        seed: u64,
        /// Shift to the left.
        shift: u32,
    },
    /// `start` plus the bits of a draw in `mask`, shifted.
    Masked {
        /// Lowest value.
        start: u64,
        /// Bits of the draw.
        mask: u64,
        /// Seed of the draw.
        seed: u64,
        /// Shift to the left.
        shift: u32,
    },
    /// Anything else.
    Wide(Box<Wide>),
}

/// Part of a number that takes 128 bits to compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wide {
    /// Map of the whole number.
    pub map: Map,
    /// Shift to the left, ...
    left: u32,
    /// ... then to the right.
    right: u32,
    /// Reason why 64 bits are too few.
    pub why: String,
}

/// Splits a field into numbers, each with the selector of its index.
pub(super) fn numbers(change: &Change, selector: &Selector, frames: u64) -> Vec<(FieldPosition, Selector, Term)> {
    // Bytes at either end that the mask does not cover are dropped.
    let trailing = change.mask.trailing_zeros() as usize / 8;
    let mask = change.mask >> (8 * trailing);
    let (width, shift) = ((u128::BITS - mask.leading_zeros()).div_ceil(8) as usize, mask.trailing_zeros());
    let end = change.offset + change.width - trailing;
    let (divide, modulo) = match &change.map {
        Map::Range { divide, modulo, .. } => (*divide, *modulo),
        Map::List(values) => (1, values.len() as u64),
        Map::Scatter { .. } => (1, 0),
    };
    let reduced = reduced(selector, divide, modulo, frames);
    let index = Index {
        reduction: reduced.is_none().then_some((divide, modulo)),
        most: match &reduced {
            Some(reduced) => most(reduced, frames),
            None => (most(selector, frames) / divide).min(modulo.wrapping_sub(1)),
        },
    };
    let part = |half, right, place: FieldPosition| {
        let term = match half {
            Half::Lower | Half::Upper if shift > 0 => {
                Err(format!("a field of {} bits that does not end with a byte", mask.count_ones()))
            }
            _ => index.term(&change.map, half, shift, place.mask),
        };
        let wide = |why| Term::Wide(Box::new(Wide { map: change.map.clone(), left: shift, right, why }));
        match term {
            Ok(term) => (place, reduced.as_ref().unwrap_or(selector).clone(), term),
            Err(why) => (place, selector.clone(), wide(why)),
        }
    };
    match width {
        0..=8 => vec![part(Half::Only, 0, FieldPosition::before(end, width, mask as u64))],
        _ => vec![
            part(Half::Lower, 0, FieldPosition::before(end, 8, mask as u64)),
            part(Half::Upper, 64, FieldPosition::before(end - 8, width - 8, (mask >> 64) as u64)),
        ],
    }
}

/// Returns a selector whose index is that of `selector`, divided and taken modulo (0: no modulo); `None` if none
/// exists.
fn reduced(selector: &Selector, divide: u64, modulo: u64, frames: u64) -> Option<Selector> {
    let last = most(selector, frames);
    let modulo = if modulo > last / divide { 0 } else { modulo };
    let IndexSelection::InTurn { every } = selector.pick else {
        return ((divide, modulo) == (1, 0)).then(|| selector.clone());
    };
    // An index that does not wrap within `frames` frames never does.
    let starts_over = most(&Selector { count: 0, ..selector.clone() }, frames) > last;
    let count = match (starts_over, modulo) {
        (false, modulo) => modulo,
        (true, 0) if selector.count.is_multiple_of(divide) => selector.count / divide,
        (true, 1..) if selector.count.is_multiple_of(divide.saturating_mul(modulo)) => modulo,
        _ => return None,
    };
    Some(Selector { count, pick: IndexSelection::InTurn { every: every.saturating_mul(divide) } })
}

/// Returns the highest index of a selector within `frames` frames.
fn most(selector: &Selector, frames: u64) -> u64 {
    let last = selector.count.wrapping_sub(1);
    match &selector.pick {
        IndexSelection::InTurn { every } => last.min((frames.max(1) - 1) / every),
        IndexSelection::Random { .. } | IndexSelection::Weighted { .. } => last,
    }
}

/// Part of a value: the lower 64 bits if the others are unused, or one half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Only,
    Lower,
    Upper,
}

/// Properties of an index.
struct Index {
    /// Remaining division and modulus.
    reduction: Option<(u64, u64)>,
    /// Highest index after that.
    most: u64,
}

impl Index {
    /// Returns the term of a map, if 64 bits suffice.
    fn term(&self, map: &Map, half: Half, shift: u32, mask: u64) -> Result<Term, String> {
        match map {
            Map::Range { start, step, .. } if half != Half::Only => carries(*start, *step, self.most)?,
            Map::Scatter { start, span, .. } => spills(*start, *span, half)?,
            _ => {}
        }
        let part = |value: u128| (if half == Half::Upper { value >> 64 } else { value } as u64) << shift;
        Ok(match map {
            Map::Range { start, step, .. } => {
                // A step back in only the lower half borrows nothing from the upper half.
                let borrows = u64::from(half == Half::Upper && !is_increasing(*start, *step, self.most));
                let (start, step) = (part(*start), part(*step as u128).wrapping_add(borrows));
                let step = if self.most == 0 { 0 } else { step };
                match self.reduction {
                    None => Term::Linear { start, step },
                    Some((divide, modulo)) => Term::Divided { start, step, divide, modulo },
                }
            }
            Map::List(values) => Term::Table(values.iter().map(|value| part(*value) & mask).collect()),
            Map::Scatter { start, span, seed } => match (*span, half) {
                (1..=0xffff_ffff_ffff_ffff, Half::Upper) => Term::Linear { start: part(*start), step: 0 },
                (1..=0xffff_ffff_ffff_ffff, _) => {
                    Term::Scaled { start: *start as u64, span: *span as u64, seed: *seed, shift }
                }
                (span, Half::Upper) => {
                    let mask = if span == 0 { u64::MAX } else { ((span >> 64) as u64).wrapping_sub(1) };
                    Term::Masked { start: part(*start), mask, seed: !*seed, shift }
                }
                _ => Term::Masked { start: *start as u64, mask: u64::MAX, seed: *seed, shift },
            },
        })
    }
}

/// Returns whether the lower half of a range only increases, without a carry.
fn is_increasing(start: u128, step: i128, most: u64) -> bool {
    u128::from(start as u64) + u128::from(step as u64) * u128::from(most) <= u64::MAX.into()
}

fn carries(start: u128, step: i128, most: u64) -> Result<(), String> {
    let back = u128::from((step as u64).wrapping_neg()) * u128::from(most);
    match is_increasing(start, step, most) || step as u64 != 0 && back <= u128::from(start as u64) {
        true => Ok(()),
        false => Err("a field of more than 64 bits carries from its lower 64 bits into the upper ones".into()),
    }
}

fn spills(start: u128, span: u128, half: Half) -> Result<(), String> {
    let is_split = half != Half::Only;
    match span {
        1..=0xffff_ffff_ffff_ffff if is_split && (start as u64).checked_add(span as u64 - 1).is_none() => {
            Err("a field of more than 64 bits is scattered over the edge of its lower 64 bits".into())
        }
        1..=0xffff_ffff_ffff_ffff => Ok(()),
        _ if span != 0 && !span.is_power_of_two() => {
            Err("a field is scattered over more than 2^64 values, and not a power of two".into())
        }
        _ if is_split && start as u64 != 0 => {
            Err("a field is scattered over 2^64 or more values from a start with lower bits".into())
        }
        _ => Ok(()),
    }
}

impl Term {
    /// Returns the number of an index.
    #[inline(always)]
    pub fn at(&self, index: u64, mask: u64) -> u64 {
        let value = match self {
            Term::Linear { start, step } => start.wrapping_add(step.wrapping_mul(index)),
            Term::Divided { start, step, divide, modulo } => {
                let index = quotient(index, *divide);
                let index = if *modulo == 0 { index } else { remainder(index, *modulo) };
                start.wrapping_add(step.wrapping_mul(index))
            }
            Term::Table(values) => {
                let index = if index < values.len() as u64 { index } else { index % values.len().max(1) as u64 };
                return values.get(index as usize).copied().unwrap_or(0);
            }
            Term::Scaled { start, span, seed, shift } => start.wrapping_add(scale(draw(*seed, index), *span)) << shift,
            Term::Masked { start, mask, seed, shift } => start.wrapping_add(draw(*seed, index) & mask) << shift,
            Term::Wide(wide) => ((wide.map.at(index) << wide.left) >> wide.right) as u64,
        };
        value & mask
    }

    /// Returns the value under a mask, if it is constant.
    pub(super) fn constant(&self, selector: &Selector, frames: u64, mask: u64) -> Option<u64> {
        let is_constant = match self {
            _ if most(selector, frames) == 0 => true,
            Term::Linear { step: 0, .. } | Term::Divided { step: 0, .. } => true,
            Term::Table(values) => values.iter().all(|value| *value == values[0]),
            Term::Scaled { span: 1, .. } | Term::Masked { mask: 0, .. } => true,
            _ => false,
        };
        is_constant.then(|| self.at(0, mask))
    }
}

/// Divides; twice as fast for 32-bit numbers, which most are.
fn quotient(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 / by as u32) } else { number / by }
}

/// Takes the remainder, in the same way.
fn remainder(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 % by as u32) } else { number % by }
}
