//! Keyed hashes that cannot be predicted: SipHash (Aumasson, Bernstein 2012).

#[derive(Clone, Copy, Debug)]
pub(super) struct Secret([u64; 2]);

impl Secret {
    pub(super) fn new(words: [u64; 2]) -> Self {
        Secret(words)
    }

    /// Hash for tables: SipHash-1-3 of the words' bytes.
    #[inline]
    pub(super) fn spread(&self, words: [u64; 5]) -> u64 {
        self.hash::<1, 3>(&words)
    }

    /// Cryptographic hash: SipHash-2-4 of the words' bytes.
    pub(super) fn seal(&self, words: &[u64]) -> u64 {
        self.hash::<2, 4>(words)
    }

    #[inline]
    fn hash<const EACH: usize, const LAST: usize>(&self, words: &[u64]) -> u64 {
        let [one, other] = self.0;
        let mut state = [
            one ^ 0x736f_6d65_7073_6575,
            other ^ 0x646f_7261_6e64_6f6d,
            one ^ 0x6c79_6765_6e65_7261,
            other ^ 0x7465_6462_7974_6573,
        ];
        let length = (words.len() as u64 * 8) << 56;
        for word in words.iter().chain([&length]) {
            state[3] ^= word;
            (0..EACH).for_each(|_| round(&mut state));
            state[0] ^= word;
        }
        state[2] ^= 0xff;
        (0..LAST).for_each(|_| round(&mut state));
        state[0] ^ state[1] ^ state[2] ^ state[3]
    }
}

#[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of the paper: key 00..0f; message 00..0e would need a partial word, so 8 bytes, from the reference
    /// vectors.
    #[test]
    fn siphash_2_4_matches_the_reference() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let of = |words: &[u64]| Secret::new(key).seal(words).to_le_bytes();
        assert_eq!(of(&[]), [0x31, 0x0e, 0x0e, 0xdd, 0x47, 0xdb, 0x6f, 0x72]);
        assert_eq!(of(&[0x0706_0504_0302_0100]), [0x62, 0x24, 0x93, 0x9a, 0x79, 0xf5, 0xf5, 0x93]);
    }

    /// The hasher of the standard library is SipHash-1-3 with a key of zeros.
    #[test]
    fn siphash_1_3_matches_the_standard_library() {
        use std::hash::{DefaultHasher, Hasher};
        let mut hasher = DefaultHasher::new();
        (1..6u64).for_each(|word| hasher.write(&word.to_le_bytes()));
        assert_eq!(Secret::new([0, 0]).spread([1, 2, 3, 4, 5]), hasher.finish());
    }
}
