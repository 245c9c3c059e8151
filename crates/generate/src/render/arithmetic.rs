//! The arithmetic of frames: sums, noise, values.

use super::program::Wide;
use crate::stream::draw;

impl Wide {
    /// What an index means: the lower 8 bytes and those above.
    pub fn at(&self, index: u64) -> (u64, u64) {
        let wide = self.map.at(index) << self.shift & self.mask;
        (wide as u64, (wide >> 64) as u64)
    }
}

/// Fills bytes with noise; returns the sum of its words, each byte where it would be in a whole one.
pub(super) fn noise(seed: u64, bytes: &mut [u8]) -> u64 {
    let (words, tail) = bytes.as_chunks_mut::<8>();
    let mut sum = 0;
    let count = words.len() as u64;
    for (index, word) in words.iter_mut().enumerate() {
        let value = draw(seed, index as u64);
        *word = value.to_be_bytes();
        sum += halves(value);
    }
    if !tail.is_empty() {
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(&draw(seed, count).to_be_bytes()[..tail.len()]);
        tail.copy_from_slice(&last[..tail.len()]);
        sum += halves(u64::from_be_bytes(last));
    }
    sum
}

/// The sum of the two halves of a number: the same modulo 2^16 - 1, and 0 only where the number is.
pub(super) fn halves(value: u64) -> u64 {
    (value >> 32) + (value & 0xffff_ffff)
}

/// A sum in 16 bits (RFC 1071).
pub(super) fn fold(sum: u64) -> u64 {
    let sum = halves(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) + (sum & 0xffff)
}

/// 0xffff for 0.
pub(super) fn not_zero(checksum: u64) -> u64 {
    checksum | checksum.wrapping_sub(1) >> 48
}

/// A quotient: of small numbers, which most are, in half the time.
pub(super) fn quotient(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 / by as u32) } else { number / by }
}

/// A remainder, in the same way.
pub(super) fn remainder(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 % by as u32) } else { number % by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_fold_as_rfc_1071_says() {
        for sum in [0, 1, 0xffff, 0x1_0000, 0x1_fffe, 0xffff_ffff, 0xffff_fffe_0001, u64::MAX] {
            let mut naive = sum;
            while naive > 0xffff {
                naive = (naive & 0xffff) + (naive >> 16);
            }
            assert_eq!(fold(sum), naive, "{sum:#x}");
        }
    }

    #[test]
    fn no_checksum_but_0_is_replaced() {
        assert_eq!(not_zero(0), 0xffff);
        assert!((1..=0xffff).all(|checksum| not_zero(checksum) == checksum));
    }
}
