//! Hashing of keys for tables.

use crate::key::Key;
use linerate_burst::random;

/// Secret random numbers: senders cannot choose colliding keys.
#[derive(Clone, Debug)]
pub(crate) struct Secrets([u64; 8]);

impl Secrets {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Secrets(std::array::from_fn(|_| random::next(&mut state)))
    }

    /// Returns 44 bits: pairs of words are added to secret ones and multiplied (NH, as in UMAC, 1999).
    #[inline(always)]
    pub(crate) fn hash(&self, key: &Key) -> u64 {
        let mut sum = 0u128;
        for (words, secrets) in key.0.as_chunks::<2>().0.iter().zip(self.0.as_chunks::<2>().0) {
            let (one, other) = (words[0].wrapping_add(secrets[0]), words[1].wrapping_add(secrets[1]));
            sum = sum.wrapping_add(u128::from(one) * u128::from(other));
        }
        (sum as u64 ^ (sum >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
    }
}
