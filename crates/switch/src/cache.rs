//! Cache of lookups, before the rules: exact, of fixed size.
//!
//! A key holds the bits that some rule matches, so that frames which no rule distinguishes share an entry. Entries
//! belong to one generation of the rules; the next generation invalidates all of them at once.

use crate::classify::RuleId;
use crate::key::Key;
use linerate_burst::prefetch;

/// Entries of a set.
const WAYS: usize = 4;

/// Entry of a key without a rule.
const NONE: RuleId = RuleId::MAX;

#[derive(Debug)]
pub(crate) struct Cache {
    sets: Vec<Set>,
    keys: Vec<Key>,
    /// Way to be replaced next.
    turn: usize,
    pub hits: u64,
    pub misses: u64,
}

/// One cache line: everything needed before a key is compared.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Set {
    /// Generation of each entry; 0 is never valid.
    generations: [u32; WAYS],
    rules: [RuleId; WAYS],
    /// Bits of the hash that do not select the set.
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
    /// Creates a cache for `entries` keys; disabled with 0.
    pub(crate) fn new(entries: usize) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        Cache { sets: vec![Set::default(); sets], keys: vec![Key::default(); sets * WAYS], turn: 0, hits: 0, misses: 0 }
    }

    #[inline(always)]
    fn set(&self, hash: u64) -> usize {
        hash as usize & (self.sets.len() - 1)
    }

    /// Prefetches the set that [`Cache::expect`] reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        if !self.sets.is_empty() {
            prefetch(&self.sets[self.set(hash)]);
        }
    }

    /// Returns the likely result for a key, and prefetches its entry.
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

    /// Returns the cached result for a key; `None` on a miss.
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

    /// Stores a result, in place of an older entry if the set is full.
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

    /// Clears the cache: generation numbers start over.
    pub(crate) fn clear(&mut self) {
        self.sets.fill(Set::default());
    }
}
