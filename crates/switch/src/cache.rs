//! What was found for frames like this one: in front of the rules, exact, of one size.
//!
//! A key holds the bits that some rule looks at, so that frames which no rule tells apart share an entry: where rules look at the port
//! alone there are as many entries as ports. Entries are of one generation of the rules; with the next one all are void at once.

use crate::classify::RuleId;
use crate::key::Key;
use linerate_burst::prefetch;
use linerate_burst::random;

/// Entries that a key may lie in.
const WAYS: usize = 4;

/// An entry says that no rule was found.
const NONE: RuleId = RuleId::MAX;

#[derive(Debug)]
pub(crate) struct Cache {
    keys: Vec<Key>,
    /// Of each key, the generation above and the rule below. Generation 0 is that of no rules.
    found: Vec<[u64; WAYS]>,
    secrets: [u64; 8],
    /// Which way is used anew next.
    turn: usize,
    pub hits: u64,
    pub misses: u64,
}

impl Cache {
    /// For so many keys; none at all with 0.
    pub fn new(entries: usize, seed: u64) -> Self {
        let sets = if entries == 0 { 0 } else { entries.div_ceil(WAYS).next_power_of_two() };
        let mut state = seed;
        let secrets = std::array::from_fn(|_| random::next(&mut state));
        Cache {
            keys: vec![Key::default(); sets * WAYS],
            found: vec![[0; WAYS]; sets],
            secrets,
            turn: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Where a key lies: two words at a time are added to secret ones and multiplied (NH, as in UMAC, 1999), so that strangers do not
    /// choose keys that meet.
    #[inline(always)]
    pub fn hash(&self, key: &Key) -> u64 {
        let mut sum = 0u128;
        for (words, secrets) in key.0.as_chunks::<2>().0.iter().zip(self.secrets.as_chunks::<2>().0) {
            let (one, other) = (words[0].wrapping_add(secrets[0]), words[1].wrapping_add(secrets[1]));
            sum = sum.wrapping_add(u128::from(one) * u128::from(other));
        }
        (sum as u64 ^ (sum >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
    }

    /// Asks for what [`Cache::find`] will look at.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        if self.found.is_empty() {
            return;
        }
        let set = hash as usize & (self.found.len() - 1);
        prefetch(&self.found[set]);
        self.keys[set * WAYS..][..WAYS].iter().for_each(prefetch);
    }

    /// What was found for a key, if that is known.
    #[inline(always)]
    pub fn find(&mut self, hash: u64, key: &Key, generation: u32) -> Option<Option<RuleId>> {
        if self.found.is_empty() {
            return None;
        }
        let set = hash as usize & (self.found.len() - 1);
        for (way, found) in self.found[set].iter().enumerate() {
            if (found >> 32) as u32 == generation && self.keys[set * WAYS + way] == *key {
                self.hits += 1;
                let rule = *found as RuleId;
                return Some((rule != NONE).then_some(rule));
            }
        }
        self.misses += 1;
        None
    }

    /// Remembers what was found, in the place of something older where there is no room.
    pub fn put(&mut self, hash: u64, key: &Key, generation: u32, rule: Option<RuleId>) {
        if self.found.is_empty() {
            return;
        }
        let set = hash as usize & (self.found.len() - 1);
        let stale = self.found[set].iter().position(|found| (found >> 32) as u32 != generation);
        let way = stale.unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        self.keys[set * WAYS + way] = *key;
        self.found[set][way] = u64::from(generation) << 32 | u64::from(rule.unwrap_or(NONE));
    }

    /// Forgets all: a generation comes again.
    pub fn clear(&mut self) {
        self.found.fill([0; WAYS]);
    }
}
