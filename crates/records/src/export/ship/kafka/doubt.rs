//! Batches that may be there though the broker knows other numbers.
//!
//! A broker that has started again remembers the last batch of a producer in a partition, and no more. Of several that it had appended, and
//! whose answers were lost, it then refuses all but the last by their numbers. That it has a later one says that it has them: numbers have no
//! gaps. So what was refused keeps its numbers until those behind it were sent again as well.

use super::super::journal::{Assigned, Id};
use super::flight::Sent;
use std::collections::BTreeMap;

/// A batch is refused so often at most before it gets other numbers, whatever became of those behind it.
const MOST: u8 = 4;

#[derive(Default)]
pub(super) struct Doubts {
    batches: BTreeMap<Id, Doubt>,
    /// The last one that is there in each partition, where some before it are doubted.
    there: BTreeMap<i32, Assigned>,
}

struct Doubt {
    assigned: Assigned,
    rows: u32,
    /// It was refused so often.
    times: u8,
    /// It may have come at another time.
    is_again: bool,
}

impl Doubts {
    /// A batch was refused for its numbers.
    pub(super) fn refused(&mut self, sent: &Sent, rows: u32) {
        let Sent { id, assigned, is_again, .. } = *sent;
        self.batches.entry(id).or_insert(Doubt { assigned, rows, times: 0, is_again }).times += 1;
    }

    /// What became of a batch was not heard.
    pub(super) fn unheard(&mut self, id: Id) {
        self.batches.entry(id).and_modify(|doubt| doubt.is_again = true);
    }

    /// A batch is there.
    pub(super) fn taken(&mut self, sent: &Sent) {
        self.batches.remove(&sent.id);
        let partition = sent.assigned.partition;
        if self.batches.values().any(|doubt| is_before(&doubt.assigned, &sent.assigned)) {
            let last = self.there.entry(partition).or_insert(sent.assigned);
            if is_before(last, &sent.assigned) || !is_of(last, &sent.assigned) {
                *last = sent.assigned;
            }
        } else if !self.batches.values().any(|doubt| doubt.assigned.partition == partition) {
            self.there.remove(&partition);
        }
    }

    /// Whether a batch that was refused is there.
    pub(super) fn is_there(&self, id: Id) -> bool {
        let last = |doubt: &Doubt| Some((doubt.assigned, *self.there.get(&doubt.assigned.partition)?));
        self.batches.get(&id).and_then(last).is_some_and(|(own, last)| is_before(&own, &last))
    }

    /// Those that are to get other numbers, whether they may be there all the same, and their records: the broker has none of all the batches
    /// that have numbers of this producer there.
    pub(super) fn given_up(&mut self, of: &Assigned, numbered: &[Id]) -> Vec<(Id, bool, u32)> {
        // Others have left the spool in other ways.
        self.batches.retain(|id, doubt| !is_of(&doubt.assigned, of) || numbered.contains(id));
        let is_over = numbered.iter().all(|id| self.batches.contains_key(id))
            || numbered.iter().any(|id| self.batches.get(id).is_some_and(|doubt| doubt.times >= MOST));
        if !is_over || self.there.get(&of.partition).is_some_and(|last| is_of(last, of)) {
            return Vec::new();
        }
        let given = numbered.iter().filter_map(|id| self.batches.remove(id).map(|doubt| (*id, doubt)));
        given.map(|(id, doubt)| (id, doubt.is_again, doubt.rows)).collect()
    }
}

/// Whether both are numbers of one producer in one partition.
pub(super) fn is_of(one: &Assigned, other: &Assigned) -> bool {
    let numbers = |of: &Assigned| (of.partition, of.producer, of.epoch);
    numbers(one) == numbers(other)
}

/// Whether the one was before the other there. Numbers begin anew behind the last.
fn is_before(one: &Assigned, other: &Assigned) -> bool {
    let ahead = other.sequence.wrapping_sub(one.sequence) & i32::MAX;
    is_of(one, other) && (1..1 << 30).contains(&ahead)
}
