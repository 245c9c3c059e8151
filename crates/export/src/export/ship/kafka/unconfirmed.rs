//! Unconfirmed batches: possibly appended, although the broker expects other sequence numbers.
//!
//! A restarted broker remembers only the last batch of a producer per partition. Of several appended batches whose
//! responses were lost, it rejects all but the last because of their numbers. A later batch at the broker proves that
//! it has the earlier ones: sequence numbers have no gaps. A rejected batch therefore keeps its numbers until the later
//! ones were sent again as well.

use super::super::journal::{Assigned, Id};
use super::in_flight::InFlightBatch;
use std::collections::BTreeMap;

/// Maximum number of rejections before a batch gets new numbers, independent of the later ones.
const MOST: u8 = 4;

#[derive(Default)]
pub(super) struct UnconfirmedBatches {
    batches: BTreeMap<Id, Unconfirmed>,
    /// Last confirmed batch of each partition that has unconfirmed earlier ones.
    there: BTreeMap<i32, Assigned>,
}

struct Unconfirmed {
    assigned: Assigned,
    rows: u32,
    /// Number of rejections.
    times: u8,
    /// True if it may have been appended by an earlier attempt.
    is_retry: bool,
}

impl UnconfirmedBatches {
    /// Notes that a batch was rejected for its numbers.
    pub(super) fn refused(&mut self, sent: &InFlightBatch, rows: u32) {
        let InFlightBatch { id, assigned, is_retry, .. } = *sent;
        self.batches.entry(id).or_insert(Unconfirmed { assigned, rows, times: 0, is_retry }).times += 1;
    }

    /// Notes that the response for a batch was lost.
    pub(super) fn mark_unconfirmed(&mut self, id: Id) {
        self.batches.entry(id).and_modify(|batch| batch.is_retry = true);
    }

    /// Notes that a batch is appended.
    pub(super) fn taken(&mut self, sent: &InFlightBatch) {
        self.batches.remove(&sent.id);
        let partition = sent.assigned.partition;
        if self.batches.values().any(|batch| is_before(&batch.assigned, &sent.assigned)) {
            let last = self.there.entry(partition).or_insert(sent.assigned);
            if is_before(last, &sent.assigned) || !is_of(last, &sent.assigned) {
                *last = sent.assigned;
            }
        } else if !self.batches.values().any(|batch| batch.assigned.partition == partition) {
            self.there.remove(&partition);
        }
    }

    /// Returns whether a rejected batch is known to be appended.
    pub(super) fn is_there(&self, id: Id) -> bool {
        let last = |batch: &Unconfirmed| Some((batch.assigned, *self.there.get(&batch.assigned.partition)?));
        self.batches.get(&id).and_then(last).is_some_and(|(own, last)| is_before(&own, &last))
    }

    /// Returns the batches that need new numbers, whether each may be appended nevertheless, and its number of records:
    /// the broker has none of the batches with numbers of this producer in the partition.
    pub(super) fn batches_to_renumber(&mut self, of: &Assigned, numbered: &[Id]) -> Vec<(Id, bool, u32)> {
        // Others have left the spool for other reasons.
        self.batches.retain(|id, batch| !is_of(&batch.assigned, of) || numbered.contains(id));
        let is_over = numbered.iter().all(|id| self.batches.contains_key(id))
            || numbered.iter().any(|id| self.batches.get(id).is_some_and(|batch| batch.times >= MOST));
        if !is_over || self.there.get(&of.partition).is_some_and(|last| is_of(last, of)) {
            return Vec::new();
        }
        let given = numbered.iter().filter_map(|id| self.batches.remove(id).map(|batch| (*id, batch)));
        given.map(|(id, batch)| (id, batch.is_retry, batch.rows)).collect()
    }
}

/// Returns whether both have numbers of the same producer and partition.
pub(super) fn is_of(one: &Assigned, other: &Assigned) -> bool {
    let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
    numbers(one) == numbers(other)
}

/// Returns whether `one` has the lower number. Sequence numbers wrap around.
fn is_before(one: &Assigned, other: &Assigned) -> bool {
    let ahead = other.sequence.wrapping_sub(one.sequence) & i32::MAX;
    is_of(one, other) && (1..1 << 30).contains(&ahead)
}
