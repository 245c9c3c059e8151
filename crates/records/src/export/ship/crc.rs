//! CRC-32C (Castagnoli; RFC 3720, B.4): of the batches of Kafka, and of what lies in a spool.

/// Of each byte, and of each byte with so many zeros behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    // Of the first all have to be there.
    let mut at = 0;
    while at < 7 * 256 {
        let crc = tables[at / 256][at % 256];
        tables[at / 256 + 1][at % 256] = crc >> 8 ^ tables[0][(crc & 0xff) as usize];
        at += 1;
    }
    tables
}

/// The check of these bytes.
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = !0;
    for word in words {
        let word = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = (0..8).fold(0, |crc, byte| crc ^ TABLES[7 - byte][(word >> (8 * byte) & 0xff) as usize]);
    }
    !rest.iter().fold(crc, |crc, byte| crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_that_of_the_rfc() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        for (bytes, crc) in [
            (&[0; 32][..], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&up, 0x46dd_794e),
            (&down, 0x113f_db5c),
            (b"123456789", 0xe306_9283),
            (b"", 0),
        ] {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn it_is_that_of_one_bit_after_the_other(bytes: Vec<u8>) {
            let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            let plain = bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step));
            prop_assert_eq!(crc32c(&bytes), !plain);
        }
    }
}
