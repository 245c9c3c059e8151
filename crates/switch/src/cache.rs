//! What was found for frames like this one: in front of the rules, exact, of one size.
//!
//! A key holds the bits that some rule looks at, so that frames which no rule tells apart share an entry. Entries are of one generation of
//! the rules; with the next one all are void at once.

use crate::classify::RuleId;
use crate::key::Key;
use linerate_burst::prefetch;

/// Entries that a key may lie in.
const WAYS: usize = 4;

/// An entry says that no rule was found.
const NONE: RuleId = RuleId::MAX;

#[derive(Debug)]
pub(crate) struct Cache {
    sets: Vec<Set>,
    keys: Vec<Key>,
    /// Which way is used anew next.
    turn: usize,
    pub hits: u64,
    pub misses: u64,
}

/// A cache line: what is to be known before a key is looked at.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Set {
    /// Of each entry; 0 is that of no rules.
    generations: [u32; WAYS],
    rules: [RuleId; WAYS],
    /// Bits of the hash that have not chosen the set.
    tags: [u32; WAYS],
}

impl Set {
    #[inline(always)]
    fn way(&self, hash: u64, generation: u32) -> impl Iterator<Item = usize> {
        let tag = tag(hash);
        (0..WAYS).filter(move |way| self.tags[*way] == tag && self.generations[*way] == generation)
    }
}

#[inline(always)]
fn tag(hash: u64) -> u32 {
    (hash >> 12) as u32
}

impl Cache {
    /// For so many keys; none at all with 0.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        Cache { sets: vec![Set::default(); sets], keys: vec![Key::default(); sets * WAYS], turn: 0, hits: 0, misses: 0 }
    }

    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    /// Asks for what [`Cache::expect`] will look at.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        if !self.sets.is_empty() {
            prefetch(&self.sets[self.set(hash)]);
        }
    }

    /// What is likely found for a key, whose entry is asked for.
    #[inline(always)]
    pub(crate) fn expect(&self, hash: u64, generation: u32) -> Option<RuleId> {
        if self.sets.is_empty() {
            return None;
        }
        let at = self.set(hash);
        let way = self.sets[at].way(hash, generation).next()?;
        prefetch(&self.keys[at * WAYS + way]);
        Some(self.sets[at].rules[way])
    }

    /// What was found for a key, if that is known.
    #[inline(always)]
    pub(crate) fn find(&mut self, hash: u64, key: &Key, generation: u32) -> Option<Option<RuleId>> {
        if self.sets.is_empty() {
            return None;
        }
        let at = self.set(hash);
        let set = &self.sets[at];
        let Some(way) = set.way(hash, generation).find(|way| self.keys[at * WAYS + way] == *key) else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        let rule = set.rules[way];
        Some((rule != NONE).then_some(rule))
    }

    /// Remembers what was found, in the place of something older where there is no room.
    pub(crate) fn put(&mut self, hash: u64, key: &Key, generation: u32, rule: Option<RuleId>) {
        if self.sets.is_empty() {
            return;
        }
        let at = self.set(hash);
        let set = &mut self.sets[at];
        let way = set.generations.iter().position(|other| *other != generation).unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        self.keys[at * WAYS + way] = *key;
        (set.generations[way], set.rules[way], set.tags[way]) = (generation, rule.unwrap_or(NONE), tag(hash));
    }

    /// Forgets all: a generation comes again.
    pub(crate) fn clear(&mut self) {
        self.sets.fill(Set::default());
    }
}
