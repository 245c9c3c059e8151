//! Rules with the same mask: a hash table from masked keys to rules.
//!
//! Open addressing with linear probing, at least half empty, so that a key can be prefetched before it is read.

use crate::classify::{Rank, RuleId};
use crate::hash::Secrets;
use crate::key::Key;
use linerate_burst::prefetch;
use std::cmp::Reverse;
use std::collections::HashMap;

/// Minimum number of slots.
const LEAST: usize = 4;

/// Lowest rank.
const LAST: Rank = (0, Reverse(u64::MAX));

#[derive(Debug)]
pub(crate) struct Tuple {
    pub mask: Key,
    /// Rank of the best rule, or an upper bound until [`Tuple::tighten`].
    pub best: Rank,
    /// True if the best rule was removed.
    is_loose: bool,
    keys: Vec<Key>,
    /// Best rule of the key in the same slot; `None` if the slot is empty.
    firsts: Vec<Option<(Rank, RuleId)>>,
    /// Further rules of a key, best first.
    others: HashMap<Key, Vec<(Rank, RuleId)>>,
    used: usize,
}

impl Tuple {
    pub(crate) fn new(mask: Key) -> Self {
        let (keys, firsts) = (vec![Key::default(); LEAST], vec![None; LEAST]);
        Tuple { mask, best: LAST, is_loose: false, keys, firsts, others: HashMap::new(), used: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    #[inline(always)]
    fn home(&self, secrets: &Secrets, key: &Key) -> usize {
        secrets.hash(key) as usize & (self.keys.len() - 1)
    }

    /// Returns the slot of a key, or the empty slot for it.
    #[inline(always)]
    fn place(&self, secrets: &Secrets, key: &Key) -> usize {
        let mut at = self.home(secrets, key);
        while self.firsts[at].is_some() && self.keys[at] != *key {
            at = (at + 1) & (self.keys.len() - 1);
        }
        at
    }

    /// Prefetches the memory that [`Tuple::find`] reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self, secrets: &Secrets, key: &Key) {
        let home = self.home(secrets, &key.masked(&self.mask));
        prefetch(&self.keys[home]);
        prefetch(&self.firsts[home]);
    }

    /// Returns the rule for a frame, and its rank.
    #[inline(always)]
    pub(crate) fn find(&self, secrets: &Secrets, key: &Key) -> Option<(Rank, RuleId)> {
        self.firsts[self.place(secrets, &key.masked(&self.mask))]
    }

    /// Returns the rule with this key and priority.
    pub(crate) fn same(&self, secrets: &Secrets, key: &Key, priority: u16) -> Option<RuleId> {
        let first = self.firsts[self.place(secrets, key)]?;
        let others = self.others.get(key).into_iter().flatten();
        std::iter::once(&first).chain(others).find(|((other, _), _)| *other == priority).map(|(_, id)| *id)
    }

    pub(crate) fn add(&mut self, secrets: &Secrets, key: Key, rank: Rank, id: RuleId) {
        self.best = self.best.max(rank);
        if 2 * (self.used + 1) > self.keys.len() {
            self.grow(secrets);
        }
        let place = self.place(secrets, &key);
        let Some(first) = &mut self.firsts[place] else {
            (self.keys[place], self.firsts[place]) = (key, Some((rank, id)));
            self.used += 1;
            return;
        };
        let mut other = (rank, id);
        if rank > first.0 {
            std::mem::swap(first, &mut other);
        }
        let others = self.others.entry(key).or_default();
        others.insert(others.partition_point(|(rank, _)| *rank > other.0), other);
    }

    fn grow(&mut self, secrets: &Secrets) {
        let places = 2 * self.keys.len();
        let keys = std::mem::replace(&mut self.keys, vec![Key::default(); places]);
        let firsts = std::mem::replace(&mut self.firsts, vec![None; places]);
        for (key, first) in keys.into_iter().zip(firsts).filter(|(_, first)| first.is_some()) {
            let place = self.place(secrets, &key);
            (self.keys[place], self.firsts[place]) = (key, first);
        }
    }

    pub(crate) fn remove(&mut self, secrets: &Secrets, key: &Key, id: RuleId) {
        let place = self.place(secrets, key);
        let Some(first) = self.firsts[place] else { return };
        let mut next = None;
        if let Some(others) = self.others.get_mut(key) {
            match first.1 == id {
                true => next = Some(others.remove(0)),
                false => others.retain(|(_, other)| *other != id),
            }
            if others.is_empty() {
                self.others.remove(key);
            }
        }
        if first.1 != id {
            return;
        }
        match next {
            Some(_) => self.firsts[place] = next,
            None => self.empty(secrets, place),
        }
        self.is_loose |= first.0 == self.best;
    }

    /// Empties a slot; later entries move up if they would not be found otherwise (Knuth, The Art of Computer
    /// Programming, section 6.4, algorithm R).
    fn empty(&mut self, secrets: &Secrets, mut empty: usize) {
        let last = self.keys.len() - 1;
        let mut at = empty;
        self.firsts[empty] = None;
        self.used -= 1;
        loop {
            at = (at + 1) & last;
            if self.firsts[at].is_none() {
                return;
            }
            let home = self.home(secrets, &self.keys[at]);
            if at.wrapping_sub(home) & last >= at.wrapping_sub(empty) & last {
                (self.keys[empty], self.firsts[empty]) = (self.keys[at], self.firsts[at].take());
                empty = at;
            }
        }
    }

    /// Recomputes the best rank, if the best rule was removed.
    pub(crate) fn tighten(&mut self) {
        if std::mem::take(&mut self.is_loose) {
            self.best = self.firsts.iter().flatten().map(|(rank, _)| *rank).max().unwrap_or(LAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Adds and removes rules, several of one key among them: the best present one is found.
        #[test]
        fn the_first_rule_of_a_key_is_found(
            seed in any::<u64>(), steps in prop::collection::vec((any::<bool>(), 0..40u64, 0..4u16, any::<prop::sample::Index>()), 1..200),
        ) {
            let secrets = Secrets::new(seed);
            let key = |number| Key([number, 0, 0, 0, 0, 0, 0, 7]);
            let mut tuple = Tuple::new(Key([u64::MAX; 8]));
            let mut rules: Vec<(u64, Rank, RuleId)> = Vec::new();
            for (id, (is_in, number, priority, which)) in (0..).zip(steps) {
                if is_in || rules.is_empty() {
                    let rank = (priority, Reverse(u64::from(id)));
                    tuple.add(&secrets, key(number), rank, id);
                    rules.push((number, rank, id));
                } else {
                    let (number, _, id) = rules.swap_remove(which.index(rules.len()));
                    tuple.remove(&secrets, &key(number), id);
                    tuple.tighten();
                }
                let same = rules.iter().find(|(other, rank, _)| *other == number && rank.0 == priority).map(|(.., id)| *id);
                prop_assert_eq!(tuple.same(&secrets, &key(number), priority).is_some(), same.is_some());
                prop_assert_eq!(tuple.is_empty(), rules.is_empty());
                prop_assert_eq!(tuple.best, rules.iter().map(|(_, rank, _)| *rank).max().unwrap_or(LAST));
                for number in 0..40 {
                    let those = rules.iter().filter(|(other, ..)| *other == number);
                    prop_assert_eq!(tuple.find(&secrets, &key(number)), those.map(|(_, rank, id)| (*rank, *id)).max());
                }
            }
        }
    }
}
