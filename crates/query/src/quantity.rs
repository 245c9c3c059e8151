//! Quantities and comparisons.

use crate::columns::{Batch, Id, Values, own};
use crate::filter::Outlook;
use std::borrow::Cow;

/// A quantity to compare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// A column of numbers.
    Column(Id),
    /// The sum of two.
    Sum(Id, Id),
    /// Bits per second, of both directions, from the first to the last packet; 0 for a duration of 0.
    Bps,
    /// Packets per second, likewise.
    Pps,
    /// Bytes per packet.
    Bpp,
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `=`
    Equal,
    /// `<`
    Less,
    /// `>`
    Greater,
}

/// Operand of a comparison: an integer if possible, so that none is rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer.
    Whole(u64),
    /// A float.
    Real(f64),
}

impl Order {
    /// Returns the possible outcomes for numbers from `least` to `most`.
    pub(crate) fn outlook(self, least: u64, most: u64, is_whole: bool, with: u64) -> Outlook {
        let (may, must) = match self {
            Order::Equal => (least <= with && with <= most, least == with && most == with),
            Order::Less => (least < with, most < with),
            Order::Greater => (most > with, least > with),
        };
        Outlook { may, must: must && is_whole }
    }
}

impl Quantity {
    /// Returns the columns that it is computed from.
    pub fn columns(self) -> Vec<Id> {
        let names: &[&str] = match self {
            Quantity::Column(id) => return vec![id],
            Quantity::Sum(one, other) => return vec![one, other],
            Quantity::Bps => &["orig_frame_bytes", "resp_frame_bytes", "duration_ns"],
            Quantity::Pps => &["orig_packets", "resp_packets", "duration_ns"],
            Quantity::Bpp => &["orig_frame_bytes", "resp_frame_bytes", "orig_packets", "resp_packets"],
        };
        names.iter().map(|name| own(name)).collect()
    }

    pub(crate) fn compare(self, batch: &Batch, order: Order, with: Number) -> Vec<bool> {
        let real = match with {
            Number::Whole(number) => number as f64,
            Number::Real(number) => number,
        };
        let by_real = |number: f64| match order {
            Order::Equal => number == real,
            Order::Less => number < real,
            Order::Greater => number > real,
        };
        let whole = |number: u64| match (with, order) {
            (Number::Whole(with), Order::Equal) => number == with,
            (Number::Whole(with), Order::Less) => number < with,
            (Number::Whole(with), Order::Greater) => number > with,
            (Number::Real(_), _) => by_real(number as f64),
        };
        match self {
            Quantity::Column(id) => match batch.get(id) {
                Some(Values::Reals(reals, absent)) => {
                    reals.iter().zip(absent).map(|(real, is_absent)| !is_absent && by_real(*real)).collect()
                }
                Some(Values::Numbers(numbers, absent)) if absent.is_empty() => {
                    numbers.iter().map(|number| whole(*number)).collect()
                }
                Some(Values::Numbers(numbers, absent)) => {
                    numbers.iter().zip(absent).map(|(number, is_absent)| !is_absent && whole(*number)).collect()
                }
                _ => vec![false; batch.rows],
            },
            Quantity::Sum(one, other) => sums(batch, one, other).into_iter().map(whole).collect(),
            _ => self.reals(batch).into_iter().map(by_real).collect(),
        }
    }

    /// Returns its value of each record; 0 if absent.
    pub fn reals(self, batch: &Batch) -> Vec<f64> {
        let sum = |one, other| sums(batch, own(one), own(other));
        let per = |counts: Vec<u64>, by: &[u64], scale: f64| -> Vec<f64> {
            let per = |(count, by): (u64, &u64)| if *by == 0 { 0.0 } else { count as f64 * scale / *by as f64 };
            counts.into_iter().zip(by).map(per).collect()
        };
        let time = || numbers(batch, own("duration_ns"));
        match self {
            Quantity::Column(id) => match batch.get(id) {
                Some(Values::Reals(reals, _)) => reals.clone(),
                _ => numbers(batch, id).iter().map(|number| *number as f64).collect(),
            },
            Quantity::Sum(one, other) => sums(batch, one, other).iter().map(|number| *number as f64).collect(),
            Quantity::Bps => per(sum("orig_frame_bytes", "resp_frame_bytes"), &time(), 8e9),
            Quantity::Pps => per(sum("orig_packets", "resp_packets"), &time(), 1e9),
            Quantity::Bpp => {
                per(sum("orig_frame_bytes", "resp_frame_bytes"), &sum("orig_packets", "resp_packets"), 1.0)
            }
        }
    }
}

/// Returns the numbers of a column; 0 if absent.
pub(crate) fn numbers(batch: &Batch, id: Id) -> Cow<'_, [u64]> {
    match batch.get(id) {
        Some(Values::Numbers(numbers, _)) => numbers.as_slice().into(),
        _ => vec![0; batch.rows].into(),
    }
}

/// Returns the sums of two columns.
pub(crate) fn sums(batch: &Batch, one: Id, other: Id) -> Vec<u64> {
    numbers(batch, one).iter().zip(&*numbers(batch, other)).map(|(one, other)| one.saturating_add(*other)).collect()
}
