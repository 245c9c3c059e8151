//! Arithmetic of frames: sums and noise.

use crate::stream::{Checksum, draw};

/// Fills bytes with noise; returns the sum of its words, the last one padded.
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

/// Computes a CRC over a frame and writes it; returns it as a number.
pub(super) fn crc(checksum: &Checksum, frame: &mut [u8]) -> u64 {
    checksum.fill(frame);
    let place = &frame[checksum.offset..checksum.offset + checksum.length()];
    place.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns the sum of the two halves of a number: equal modulo 2^16 - 1, and 0 only if the number is 0.
pub(super) fn halves(value: u64) -> u64 {
    (value >> 32) + (value & 0xffff_ffff)
}

/// Returns the checksum over numbers with this sum (RFC 1071).
pub(super) fn checksum(sum: u64, no_zero: bool) -> u64 {
    let sum = halves(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let checksum = 0xffff - ((sum >> 16) + (sum & 0xffff));
    // 0xffff instead of 0.
    if no_zero { checksum | checksum.wrapping_sub(1) >> 48 } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_fold_as_in_rfc_1071() {
        for sum in [0, 1, 0xffff, 0x1_0000, 0x1_fffe, 0xffff_ffff, 0xffff_fffe_0001, u64::MAX] {
            let mut naive = sum;
            while naive > 0xffff {
                naive = (naive & 0xffff) + (naive >> 16);
            }
            assert_eq!(checksum(sum, false), 0xffff - naive, "{sum:#x}");
        }
    }

    #[test]
    fn no_checksum_but_0_is_replaced() {
        assert_eq!((checksum(0xffff, false), checksum(0xffff, true)), (0, 0xffff));
        assert!((0..0xffff).all(|sum| checksum(sum, true) == checksum(sum, false)));
    }
}
