//! Keyed hash of flow keys: without the secret, addresses that collide in one bucket cannot be constructed.
//!
//! Two words at a time are added to secret words and multiplied to 128 bits; the products are summed (NH, of which
//! Black, Halevi, Krawczyk, Krovetz and Rogaway proved in "UMAC", 1999, that two different keys collide with a
//! probability of 2^-64 over the secrets). The halves of the sum go through one more such product, whose halves are
//! folded.

use crate::key::{Wide, Words};
use linerate_burst::random::next as random;

/// Secrets, and the mask of the key.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    secrets: [u64; SECRETS],
}

const SECRETS: usize = 12;

impl Keyed {
    /// Derives secrets from `seed`, which must be random where untrusted senders choose the traffic.
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        let mut state = seed[0];
        let mut secrets = [0; SECRETS];
        for secret in &mut secrets {
            *secret = random(&mut state) ^ seed[1].rotate_left(17);
            state ^= seed[1];
        }
        Keyed { secrets }
    }

    /// Returns the hash of a key in two words.
    #[inline(always)]
    pub(crate) fn narrow(&self, words: Words) -> u64 {
        let [a, b, c, d, ..] = self.secrets;
        finish(multiply(words.ends, a, words.rest, b), [c, d])
    }

    /// Returns the hash of a wide key.
    pub(crate) fn wide(&self, words: Words, wide: &Wide) -> u64 {
        let [_, _, c, d, a, b, e, f, g, h, i, j] = self.secrets;
        let [one, two, three, four, five, six] = wide.words();
        let sum = multiply(one, a, two, b).wrapping_add(multiply(three, e, four, f));
        let sum = sum.wrapping_add(multiply(five, g, six, h)).wrapping_add(multiply(words.rest, i, 0, j));
        finish(sum, [c, d])
    }
}

/// Mixes words under a key, so that without it no two lists of words with the same result can be found: SipHash-1-3
/// (Aumasson, Bernstein 2012) of the words' bytes.
pub(crate) fn mixed(key: [u64; 2], words: impl IntoIterator<Item = u64>) -> u64 {
    let mut state = [
        key[0] ^ 0x736f_6d65_7073_6575,
        key[1] ^ 0x646f_7261_6e64_6f6d,
        key[0] ^ 0x6c79_6765_6e65_7261,
        key[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut bytes = 0u64;
    for word in words {
        take(&mut state, word);
        bytes += 8;
    }
    take(&mut state, bytes << 56);
    state[2] ^= 0xff;
    (0..3).for_each(|_| round(&mut state));
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

/// Returns bytes as words, the last one padded with zeros.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn take(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [a, b, c, d] = state;
    *a = a.wrapping_add(*b);
    *c = c.wrapping_add(*d);
    *b = b.rotate_left(13) ^ *a;
    *d = d.rotate_left(16) ^ *c;
    *a = a.rotate_left(32);
    *c = c.wrapping_add(*b);
    *a = a.wrapping_add(*d);
    *b = b.rotate_left(17) ^ *c;
    *d = d.rotate_left(21) ^ *a;
    *c = c.rotate_left(32);
}

#[inline(always)]
fn multiply(one: u64, secret: u64, other: u64, secret_too: u64) -> u128 {
    u128::from(one.wrapping_add(secret)) * u128::from(other.wrapping_add(secret_too))
}

#[inline(always)]
fn finish(sum: u128, secrets: [u64; 2]) -> u64 {
    let product = multiply(sum as u64, secrets[0], (sum >> 64) as u64, secrets[1]);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys whose addresses are consecutive, or differ in few bits, are distributed over buckets as if random.
    #[test]
    fn chosen_keys_spread_evenly() {
        const BUCKETS: usize = 4096;
        let patterns: [fn(u64) -> Words; 4] = [
            |number| Words { ends: (number << 32) | number, rest: 6 << 32 },
            |number| Words { ends: ((number / 128) << 32) | (number % 128), rest: 6 << 32 },
            |number| Words { ends: 0, rest: number },
            |number| Words { ends: number << 16, rest: number << 20 },
        ];
        for seed in 0..20 {
            let keyed = Keyed::new([seed, !seed]);
            for pattern in patterns {
                let mut loads = [0u32; BUCKETS];
                for number in 0..8 * BUCKETS as u64 {
                    let upper = keyed.narrow(pattern(number)) >> 32;
                    loads[((upper * BUCKETS as u64) >> 32) as usize] += 1;
                }
                // By chance the fullest of 4,096 has about 20 where the mean is 8, and rarely 30.
                assert!(*loads.iter().max().unwrap() < 30, "seed {seed}: {:?}", loads.iter().max());
            }
        }
    }

    /// The standard library's hasher is SipHash-1-3 with a key of zeros.
    #[test]
    fn words_are_mixed_as_in_the_standard_library() {
        use std::hash::{DefaultHasher, Hasher};
        for words in [&[][..], &[0], &[1, 2], &[u64::MAX, 0, 7], &[3; 8]] {
            let mut hasher = DefaultHasher::new();
            words.iter().for_each(|word| hasher.write(&word.to_le_bytes()));
            assert_eq!(mixed([0, 0], words.iter().copied()), hasher.finish(), "{words:?}");
        }
        assert_eq!(words_of(b"linerate!").collect::<Vec<_>>(), [u64::from_le_bytes(*b"linerate"), 0x21]);
    }

    #[test]
    fn hash_depends_on_the_secret() {
        let words = Words { ends: 1, rest: 2 };
        assert_ne!(Keyed::new([1, 2]).narrow(words), Keyed::new([1, 3]).narrow(words));
        assert_ne!(Keyed::new([1, 2]).narrow(words), Keyed::new([2, 2]).narrow(words));
    }
}
