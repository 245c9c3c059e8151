//! CRC-32C constants for a GPU that sums a frame in many threads at once (`remainder` in kernels.cu).
//!
//! A checksum is a remainder of polynomials over GF(2), and remainders add up: that of all bytes is the sum of those of
//! its parts, each multiplied by x to the power of the number of bits after it. Bits of a word are reversed: the
//! highest is x to the power 0.

/// The polynomial 0x1edc6f41, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// x to the power of 0, and of 1.
const ONE: u32 = 1 << 31;
const X: u32 = 1 << 30;
/// Bytes per line, of which each lane takes a word.
const LINE: usize = 128;

/// Returns the product of two polynomials, modulo that of the checksum.
const fn times(one: u32, mut other: u32) -> u32 {
    let (mut product, mut bit) = (0, ONE);
    while bit != 0 {
        if one & bit != 0 {
            product ^= other;
        }
        other = other >> 1 ^ if other & 1 != 0 { POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// Powers of x with exponents 8 * digit * 16^k, sixteen for each k.
pub(crate) const POWERS: [u32; 256] = {
    let (mut powers, mut at) = ([ONE; 256], 1);
    // For one byte, then for sixteen times as many bytes.
    let mut base = times(times(X, X), times(X, X));
    base = times(base, base);
    while at < 256 {
        if at % 16 == 0 {
            base = times(powers[at - 1], base);
        } else {
            powers[at] = times(powers[at - 1], base);
        }
        at += 1;
    }
    powers
};

/// Returns the value that byte `k` of a word becomes one line later, 256 words for each `k`.
pub(crate) fn tables() -> Vec<u32> {
    let line = power(LINE as u64);
    (0..4).flat_map(|byte| (0..256_u32).map(move |value| times(line, value << (8 * byte)))).collect()
}

/// Returns x to the power of eight times `bytes`.
fn power(bytes: u64) -> u32 {
    (0..16).fold(ONE, |product, at| times(POWERS[16 * at + (bytes >> (4 * at) & 15) as usize], product))
}

/// Returns the checksum of `bytes` bytes with this remainder.
pub(crate) fn finish(remainder: u32, bytes: u64) -> u32 {
    !(remainder ^ times(u32::MAX, power(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_headers::Crc32c;

    /// Returns the remainder with initial value 0, bit by bit.
    fn remainder(bytes: &[u8]) -> u32 {
        bytes.iter().fold(0, |rest, byte| (0..8).fold(rest ^ u32::from(*byte), |rest, _| times(rest, X)))
    }

    #[test]
    fn parts_add_up_to_the_checksum() {
        let bytes: Vec<u8> = (0..1000_u32).map(|at| (at * at / 7) as u8).collect();
        for (cut, len) in [(0, 0), (0, 1), (1, 9), (128, 256), (333, 1000), (999, 1000)] {
            let (front, back) = bytes[..len].split_at(cut);
            let sum = times(remainder(front), power(back.len() as u64)) ^ remainder(back);
            assert_eq!(finish(sum, len as u64), Crc32c::NEW.with(&bytes[..len]).value(), "{cut} of {len}");
        }
    }

    #[test]
    fn tables_advance_by_one_line() {
        let tables = tables();
        for word in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
            let looked_up = (0..4).fold(0, |sum, byte| sum ^ tables[byte * 256 + (word >> (8 * byte) & 0xff) as usize]);
            assert_eq!(looked_up, times(word, power(128)));
        }
    }
}
