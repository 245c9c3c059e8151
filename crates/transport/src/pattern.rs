//! Test pattern: each byte depends on its position in the stream, so a receiver can detect every wrong byte.
//!
//! The stream is words of eight bytes, little-endian. The word at position `n` is a bijective function of `n` and the
//! key, in 64 bits: no two words of a stream are equal, at any distance, and a misplaced word is always detected. A
//! single misplaced byte looks right once in 256 times, its neighbours then do not.

/// Content of a test stream by offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Word at position 0, before mixing.
    start: u64,
    /// XOR mask of all words: the streams of two keys are not shifted copies of each other.
    mask: u64,
}

/// First wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset} of the stream is 0x{found:02x}, not 0x{expected:02x}")]
pub struct Mismatch {
    /// Offset in the stream.
    pub offset: u64,
    /// Expected value.
    pub expected: u8,
    /// Actual value.
    pub found: u8,
}

impl Pattern {
    /// Returns the pattern of a key.
    pub fn new(key: u64) -> Self {
        Pattern { start: scatter(key), mask: scatter(!key) }
    }

    /// Fills `bytes` with the pattern from `offset`.
    pub fn fill(&self, offset: u64, bytes: &mut [u8]) {
        let (head, first) = self.head(offset, bytes.len());
        let (before, rest) = bytes.split_at_mut(head.len);
        before.copy_from_slice(&head.bytes[head.from..][..head.len]);
        let (blocks, tail) = rest.as_chunks_mut::<BLOCK>();
        let mut words = Words::new(self, first);
        for block in blocks {
            for (bytes, word) in block.as_chunks_mut::<8>().0.iter_mut().zip(words.next()) {
                *bytes = word.to_le_bytes();
            }
        }
        for (piece, word) in tail.chunks_mut(8).zip(words.next()) {
            piece.copy_from_slice(&word.to_le_bytes()[..piece.len()]);
        }
    }

    /// Verifies bytes from `offset`.
    ///
    /// # Errors
    /// The first wrong byte.
    pub fn check(&self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        if self.holds(offset, bytes) { Ok(()) } else { self.find(offset, bytes) }
    }

    /// Returns the stream offset of eight bytes: where a misplaced word belongs. For bytes that are not of this stream
    /// the result is arbitrary.
    pub fn origin(&self, bytes: [u8; 8]) -> u64 {
        let position = unmix(u64::from_le_bytes(bytes) ^ self.mask).wrapping_sub(self.start).wrapping_mul(INVERSE);
        position.wrapping_mul(8)
    }

    #[inline]
    fn holds(&self, offset: u64, bytes: &[u8]) -> bool {
        let (head, first) = self.head(offset, bytes.len());
        let (before, rest) = bytes.split_at(head.len);
        let mut same = before == &head.bytes[head.from..][..head.len];
        let (blocks, tail) = rest.as_chunks::<BLOCK>();
        let mut words = Words::new(self, first);
        // Accumulate differences over a page: no branches within it.
        for page in blocks.chunks(64) {
            let mut differences = [0; LANES];
            for block in page {
                for ((difference, bytes), word) in
                    differences.iter_mut().zip(block.as_chunks::<8>().0).zip(words.next())
                {
                    *difference |= u64::from_le_bytes(*bytes) ^ word;
                }
            }
            same &= differences == [0; LANES];
        }
        for (piece, word) in tail.chunks(8).zip(words.next()) {
            same &= piece == &word.to_le_bytes()[..piece.len()];
        }
        same
    }

    #[cold]
    fn find(&self, offset: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut wanted = [0; 4096];
        let mut at = offset;
        for piece in bytes.chunks(wanted.len()) {
            self.fill(at, &mut wanted[..piece.len()]);
            for ((&expected, &found), offset) in wanted.iter().zip(piece).zip(at..) {
                if expected != found {
                    return Err(Mismatch { offset, expected, found });
                }
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Returns the part before the first whole word, and the position of that word.
    #[inline]
    fn head(&self, offset: u64, len: usize) -> (Head, u64) {
        let (position, from) = (offset / 8, (offset % 8) as usize);
        if from == 0 {
            return (Head { bytes: [0; 8], from, len: 0 }, position);
        }
        let bytes = (mix(self.start.wrapping_add(position.wrapping_mul(STEP))) ^ self.mask).to_le_bytes();
        (Head { bytes, from, len: (8 - from).min(len) }, position + 1)
    }
}

/// Words per iteration, for SIMD.
const LANES: usize = 8;
const BLOCK: usize = 8 * LANES;
/// Odd, so that positions are spread over 64 bits; and its inverse.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(STEP.wrapping_mul(INVERSE) == 1);

struct Head {
    bytes: [u8; 8],
    from: usize,
    len: usize,
}

/// Words from a position.
struct Words {
    lanes: [u64; LANES],
    mask: u64,
}

impl Words {
    #[inline]
    fn new(pattern: &Pattern, position: u64) -> Self {
        let at = |lane: usize| pattern.start.wrapping_add(position.wrapping_add(lane as u64).wrapping_mul(STEP));
        Words { lanes: std::array::from_fn(at), mask: pattern.mask }
    }

    #[inline]
    fn next(&mut self) -> [u64; LANES] {
        let words = self.lanes.map(|lane| mix(lane) ^ self.mask);
        self.lanes = self.lanes.map(|lane| lane.wrapping_add(STEP.wrapping_mul(LANES as u64)));
        words
    }
}

/// Bijective, and only of operations that SIMD units have for 64-bit words: no multiplication.
#[inline]
fn mix(word: u64) -> u64 {
    let word = word ^ word >> 32;
    word ^ word << 21
}

/// Inverts [`mix`].
fn unmix(word: u64) -> u64 {
    let word = word ^ word << 21 ^ word << 42 ^ word << 63;
    word ^ word >> 32
}

/// Scrambles a key (the final steps of SplitMix64).
fn scatter(key: u64) -> u64 {
    let word = key.wrapping_add(STEP);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reference implementation, a byte at a time.
    fn plain(key: u64, offset: u64) -> u8 {
        let pattern = Pattern::new(key);
        let word = mix(pattern.start.wrapping_add((offset / 8).wrapping_mul(STEP))) ^ pattern.mask;
        word.to_le_bytes()[(offset % 8) as usize]
    }

    /// Frozen: senders and receivers of different versions must agree.
    #[test]
    fn pattern_starts_with_known_bytes() {
        let mut bytes = [0; 16];
        Pattern::new(1).fill(0, &mut bytes);
        assert_eq!(u128::from_be_bytes(bytes), 0x0cd9_5c04_7212_a9df_51d7_f9f0_9978_a528);
    }

    proptest! {
        #[test]
        fn fill_and_check_match_the_definition(
            key: u64, offset in prop_oneof![0_u64..200, 0xffff_ff00_u64..0x1_0000_0100, 0_u64..1 << 60], len in 0_usize..10_000,
            wrong: prop::sample::Index, bit in 0_u8..8,
        ) {
            let pattern = Pattern::new(key);
            let mut bytes = vec![0; len];
            pattern.fill(offset, &mut bytes);
            let wanted: Vec<u8> = (offset..offset + len as u64).map(|at| plain(key, at)).collect();
            prop_assert_eq!(&bytes, &wanted);
            prop_assert_eq!(pattern.check(offset, &bytes), Ok(()));
            if len > 0 {
                let at = wrong.index(len);
                bytes[at] ^= 1 << bit;
                let mismatch = Mismatch { offset: offset + at as u64, expected: wanted[at], found: bytes[at] };
                prop_assert_eq!(pattern.check(offset, &bytes), Err(mismatch));
            }
        }

        /// At any distance, powers of two in particular.
        #[test]
        fn misplaced_word_is_detected_with_its_origin(
            key: u64, at in 0_u64..1 << 40, distance in prop_oneof![(0_u32..60).prop_map(|power| 1_u64 << power), 1_u64..1 << 60],
        ) {
            let pattern = Pattern::new(key);
            let mut word = [0; 8];
            pattern.fill((at + distance) * 8, &mut word);
            prop_assert!(pattern.check(at * 8, &word).is_err());
            prop_assert_eq!(pattern.origin(word), (at + distance) * 8);
            prop_assert!(Pattern::new(key ^ 1).check((at + distance) * 8, &word).is_err());
        }
    }
}
