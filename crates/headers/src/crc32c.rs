//! The CRC-32C checksum (Castagnoli's polynomial) of SCTP (RFC 9260 appendix A).

/// The polynomial 0x1edc6f41, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Bytes per step.
const STRIDE: usize = 8;

/// Contribution of a byte to the remainder when 0 to 7 more bytes follow it.
static TABLES: [[u32; 256]; STRIDE] = tables();

/// A running CRC-32C.
///
/// ```
/// use linerate_headers::Crc32c;
/// assert_eq!(Crc32c::NEW.with(b"1234").with(b"56789").value(), 0xe306_9283);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Checksum of no bytes.
    pub const NEW: Crc32c = Crc32c(u32::MAX);

    /// Continues after bytes that have this checksum.
    pub fn behind(value: u32) -> Crc32c {
        Crc32c(!value)
    }

    /// Returns this checksum extended by `bytes`.
    pub fn with(self, bytes: &[u8]) -> Crc32c {
        let (words, tail) = bytes.as_chunks::<STRIDE>();
        let mut remainder = self.0;
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(remainder);
            let bytes = word.to_le_bytes();
            remainder = (0..STRIDE).fold(0, |sum, at| sum ^ TABLES[STRIDE - 1 - at][usize::from(bytes[at])]);
        }
        for byte in tail {
            remainder = remainder >> 8 ^ TABLES[0][usize::from(*byte ^ remainder as u8)];
        }
        Crc32c(remainder)
    }

    /// Returns the checksum. SCTP sends it with the lowest byte first.
    pub fn value(self) -> u32 {
        !self.0
    }
}

const fn tables() -> [[u32; 256]; STRIDE] {
    let mut tables = [[0; 256]; STRIDE];
    let mut byte = 0;
    while byte < 256 {
        let (mut remainder, mut bit) = (byte as u32, 0);
        while bit < 8 {
            remainder = remainder >> 1 ^ if remainder & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = remainder;
        byte += 1;
    }
    let mut more = 1;
    while more < STRIDE {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[more - 1][byte];
            tables[more][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        more += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit, by polynomial long division.
    fn naive(bytes: &[u8]) -> u32 {
        let mut remainder = u32::MAX;
        for byte in bytes {
            remainder ^= u32::from(*byte);
            for _ in 0..8 {
                remainder = if remainder & 1 != 0 { remainder >> 1 ^ POLYNOMIAL } else { remainder >> 1 };
            }
        }
        !remainder
    }

    #[test]
    fn the_examples_of_rfc_3720_hold() {
        // Appendix B.4: 32 bytes of zeros, of ones, ascending.
        assert_eq!(Crc32c::NEW.with(&[0; 32]).value(), 0x8a91_36aa);
        assert_eq!(Crc32c::NEW.with(&[0xff; 32]).value(), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(Crc32c::NEW.with(&ascending).value(), 0x46dd_794e);
    }

    proptest! {
        #[test]
        fn steps_of_eight_equal_steps_of_one_bit(bytes in prop::collection::vec(any::<u8>(), 0..100), split in 0usize..100) {
            let (front, back) = bytes.split_at(split.min(bytes.len()));
            prop_assert_eq!(Crc32c::NEW.with(front).with(back).value(), naive(&bytes));
            let value = Crc32c::NEW.with(front).value();
            prop_assert_eq!(Crc32c::behind(value).with(back).value(), naive(&bytes));
        }
    }
}
