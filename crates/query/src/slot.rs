//! Accumulators of groups.

use crate::columns::{Batch, Id, own};
use crate::quantity::{numbers, sums};
use std::borrow::Cow;

/// Accumulator of a group: a number each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Slot {
    /// Number of records.
    Count,
    /// Sum of columns.
    Sum(Vec<Id>),
    /// Sum of a column of the end of the group; then the same column of the other end.
    OfEnd([Id; 2]),
    /// Time of the first packet.
    First,
    /// Time of the last packet.
    Last,
}

impl Slot {
    pub(crate) fn columns(&self) -> Vec<Id> {
        match self {
            Slot::Count => Vec::new(),
            Slot::Sum(ids) => ids.clone(),
            Slot::OfEnd(ids) => ids.to_vec(),
            Slot::First => vec![own("first_time")],
            Slot::Last => vec![own("last_time")],
        }
    }

    /// Returns whether it is a sum.
    pub(crate) fn is_count(&self) -> bool {
        matches!(self, Slot::Count | Slot::Sum(_) | Slot::OfEnd(_))
    }

    /// Returns its initial value.
    pub(crate) fn none(&self) -> u64 {
        if *self == Slot::First { u64::MAX } else { 0 }
    }

    /// Returns its value of each record.
    pub(crate) fn of<'a>(&self, batch: &'a Batch) -> Cow<'a, [u64]> {
        match self {
            Slot::Count => vec![1; batch.rows].into(),
            Slot::Sum(ids) => match ids[..] {
                [one] => numbers(batch, one),
                [one, other] => sums(batch, one, other).into(),
                _ => vec![0; batch.rows].into(),
            },
            Slot::OfEnd([id, _]) => numbers(batch, *id),
            Slot::First => numbers(batch, own("first_time")),
            Slot::Last => numbers(batch, own("last_time")),
        }
    }

    /// Returns whether it is of the end of the group.
    pub(crate) fn is_of_end(&self) -> bool {
        matches!(self, Slot::OfEnd(_))
    }

    /// Returns the place of the accumulator whose values it has in groups of the other end.
    pub(crate) fn other_end(&self, slots: &[Slot]) -> Option<usize> {
        let Slot::OfEnd([id, other]) = self else { return None };
        slots.iter().position(|slot| *slot == Slot::OfEnd([*other, *id]))
    }

    /// Accumulates the values of all chosen records.
    pub(crate) fn total(&self, so_far: u64, values: &[u64], chosen: Option<&[bool]>) -> u64 {
        let join = |sum, value: &u64| self.join(sum, *value);
        match chosen {
            None => values.iter().fold(so_far, join),
            Some(chosen) => values.iter().zip(chosen).filter(|(_, is)| **is).map(|(value, _)| value).fold(so_far, join),
        }
    }

    /// Combines two values.
    #[inline]
    pub(crate) fn join(&self, one: u64, other: u64) -> u64 {
        match self {
            Slot::Count | Slot::Sum(_) | Slot::OfEnd(_) => one.saturating_add(other),
            Slot::First => one.min(other),
            Slot::Last => one.max(other),
        }
    }
}
