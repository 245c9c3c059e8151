//! Shares of records in time steps.
//!
//! A record has no packets, only the times of its first and last one. Its sums are spread evenly over that time, like
//! `rwcount` of SiLK does by default: shares of a record add up to its sums, and the first unit, such as its only
//! flow, is in the step of the first packet.

use crate::columns::{Batch, Id, Values, own};
use crate::group::Groups;
use crate::quantity::numbers;
use crate::question::Question;
use crate::slot::Slot;
use std::borrow::Cow;

/// Maximum number of shares of a record. A longer one has shares at every second, third, ... step.
const MOST_SHARES: u64 = 1 << 17;
/// Number of shares that are passed on together.
const CHUNK: usize = 1 << 14;

/// Part of a record within a time step.
struct Share {
    row: usize,
    start: u64,
    end: u64,
}

/// Time steps, and the columns that shares of records need.
pub(crate) struct Steps {
    step: u64,
    keys: Vec<Id>,
}

impl Steps {
    /// Creates the steps of a question.
    pub(crate) fn new(question: &Question) -> Self {
        let keys = question.keys.iter().flat_map(|key| [key.id(0), key.id(1)]).collect();
        Steps { step: question.every, keys }
    }

    /// Adds the shares of the chosen records to groups, as records of their own, with the value of each slot.
    pub(crate) fn spread(
        &self,
        batch: &Batch,
        chosen: Option<&[bool]>,
        slots: &[Slot],
        values: &[Cow<'_, [u64]>],
        groups: &mut Groups,
    ) {
        let [firsts, lasts] = [own("first_time"), own("last_time")].map(|id| numbers(batch, id));
        let is_chosen = |row: &usize| chosen.is_none_or(|chosen| chosen[*row]);
        let is_within = |row: usize| lasts[row].max(firsts[row]) / self.step == firsts[row] / self.step;
        if (0..batch.rows).filter(is_chosen).all(is_within) {
            return groups.take(batch, chosen, values);
        }
        let mut shares: Vec<Share> = Vec::new();
        let mut flush = |shares: &mut Vec<Share>| {
            let (batch, values) = self.records(batch, &firsts, &lasts, shares, slots, values);
            groups.take(&batch, None, &values);
            shares.clear();
        };
        for row in (0..batch.rows).filter(is_chosen) {
            let (first, last) = (firsts[row], lasts[row].max(firsts[row]));
            let steps = last / self.step - first / self.step + 1;
            let stride = self.step.saturating_mul(steps.div_ceil(MOST_SHARES));
            let mut start = first;
            loop {
                let next = (start / self.step * self.step).saturating_add(stride);
                shares.push(Share { row, start, end: next.min(last) });
                if shares.len() == CHUNK {
                    flush(&mut shares);
                }
                if next >= last {
                    break;
                }
                start = next;
            }
        }
        flush(&mut shares);
    }

    /// Returns shares as records.
    fn records(
        &self,
        batch: &Batch,
        firsts: &[u64],
        lasts: &[u64],
        shares: &[Share],
        slots: &[Slot],
        values: &[Cow<'_, [u64]>],
    ) -> (Batch, Vec<Cow<'static, [u64]>>) {
        let mut records = Batch::new(shares.len());
        for id in &self.keys {
            if let Some(values) = batch.get(*id) {
                records.put(*id, values.at(shares.iter().map(|share| share.row)));
            }
        }
        let starts = shares.iter().map(|share| share.start).collect();
        records.put(own("first_time"), Values::Numbers(starts, Vec::new()));
        let of_slot = |(slot, values): (&Slot, &Cow<'_, [u64]>)| -> Cow<'static, [u64]> {
            let of_share = |share: &Share| match slot {
                Slot::First => share.start,
                Slot::Last => share.end,
                Slot::Count | Slot::Sum(_) | Slot::OfEnd(_) => {
                    let (first, sum) = (firsts[share.row], values[share.row]);
                    let until = |time: u64| sum_until(sum, time - first, lasts[share.row].saturating_sub(first));
                    until(share.end) - if share.start == first { 0 } else { until(share.start) }
                }
            };
            shares.iter().map(of_share).collect::<Vec<_>>().into()
        };
        let values = slots.iter().zip(values).map(of_slot).collect();
        (records, values)
    }
}

/// Returns the part of a sum in the first `time` of `span` ns, rounded up so that the first unit counts at once.
fn sum_until(sum: u64, time: u64, span: u64) -> u64 {
    match span {
        0 => sum,
        _ => (u128::from(sum) * u128::from(time)).div_ceil(span.into()) as u64,
    }
}
