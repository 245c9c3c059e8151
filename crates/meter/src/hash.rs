//! The hash of keys: with a secret, so that nobody can choose addresses that meet in one bucket.
//!
//! Two words at a time are added to secret words and multiplied to 128 bits; the products are summed (NH, of which
//! Black, Halevi, Krawczyk, Krovetz and Rogaway proved in "UMAC", 1999, that two different keys meet with a probability of 2^-64 over the
//! secrets). The halves of the sum go through one more such product, whose halves are folded.

use crate::key::{Wide, Words};

/// The secrets, and what of a key counts.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    secrets: [u64; SECRETS],
}

const SECRETS: usize = 12;

impl Keyed {
    /// Secrets made of `seed`, which is to be random wherever strangers choose what is hashed.
    pub fn new(seed: [u64; 2]) -> Self {
        let mut state = seed[0];
        let mut secrets = [0; SECRETS];
        for secret in &mut secrets {
            *secret = random(&mut state) ^ seed[1].rotate_left(17);
            state ^= seed[1];
        }
        Keyed { secrets }
    }

    /// Of a key that lies in two words.
    #[inline(always)]
    pub fn narrow(&self, words: Words) -> u64 {
        let [a, b, c, d, ..] = self.secrets;
        finish(multiply(words.ends, a, words.rest, b), [c, d])
    }

    /// Of a key that has more.
    pub fn wide(&self, words: Words, wide: &Wide) -> u64 {
        let [_, _, c, d, a, b, e, f, g, h, i, j] = self.secrets;
        let [one, two, three, four, five, six] = wide.words();
        let sum = multiply(one, a, two, b).wrapping_add(multiply(three, e, four, f));
        let sum = sum.wrapping_add(multiply(five, g, six, h)).wrapping_add(multiply(words.rest, i, 0, j));
        finish(sum, [c, d])
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
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

    /// Keys whose addresses count up in step, or differ in few bits, fall into buckets as by chance.
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
                // By chance the fullest of 4,096 has about 20 where the mean is 8, and hardly ever 30.
                assert!(*loads.iter().max().unwrap() < 30, "seed {seed}: {:?}", loads.iter().max());
            }
        }
    }

    #[test]
    fn another_secret_gives_another_hash() {
        let words = Words { ends: 1, rest: 2 };
        assert_ne!(Keyed::new([1, 2]).narrow(words), Keyed::new([1, 3]).narrow(words));
        assert_ne!(Keyed::new([1, 2]).narrow(words), Keyed::new([2, 2]).narrow(words));
    }
}
