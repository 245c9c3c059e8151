//! The first bytes of one direction of a conversation, reassembled by offset: a buffer, and a bit for each byte
//! received.
//!
//! Segments arrive in any order, overlap and repeat; the first bytes received are kept. No list of segments is needed,
//! so neither their number nor their order costs more than their bytes.

/// The start of a stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    bytes: Vec<u8>,
    /// Bitmap of received bytes.
    received: Vec<u64>,
    /// Length of the contiguous start.
    ready: usize,
}

/// Memory grows in steps of this many bytes.
const STEP: usize = 4096;

impl Stream {
    /// Maximum number of bytes kept.
    pub const MOST: usize = 16 << 10;

    /// Stores bytes at their offset, as far as it is within [`Stream::MOST`].
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len()).min(Stream::MOST);
        if offset >= end {
            return;
        }
        if end > self.bytes.len() {
            let room = end.next_multiple_of(STEP);
            self.bytes.reserve_exact(room - self.bytes.len());
            self.received.reserve_exact(room / 64 - self.received.len());
            self.bytes.resize(end, 0);
            self.received.resize(end.div_ceil(64), 0);
        }
        let mut place = offset.max(self.ready);
        while place < end {
            let next = end.min((place / 64 + 1) * 64);
            // Bits of this word: the lowest bits are its first bytes.
            let asked = (u64::MAX >> (64 - (next - place))) << (place % 64);
            let received = &mut self.received[place / 64];
            let mut new = asked & !*received;
            *received |= asked;
            if new == asked {
                self.bytes[place..next].copy_from_slice(&bytes[place - offset..next - offset]);
            } else {
                let first = place / 64 * 64;
                while new != 0 {
                    let at = first + new.trailing_zeros() as usize;
                    self.bytes[at] = bytes[at - offset];
                    new &= new - 1;
                }
            }
            place = next;
        }
        while self.ready < self.bytes.len() {
            let there = (self.received[self.ready / 64] >> (self.ready % 64)).trailing_ones() as usize;
            self.ready += there;
            if there == 0 || !self.ready.is_multiple_of(64) {
                break;
            }
        }
    }

    /// Returns the contiguous bytes from the start.
    pub fn ready(&self) -> &[u8] {
        &self.bytes[..self.ready]
    }

    /// Returns the memory used, without the struct itself.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + self.received.capacity() * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Compared with a byte at a time.
        #[test]
        fn first_bytes_win_and_ready_data_has_no_gap(
            pieces in vec((0..300usize, vec(any::<u8>(), 0..200)), 0..12), far in prop::bool::ANY
        ) {
            let start = if far { Stream::MOST - 250 } else { 0 };
            let (mut stream, mut naive) = (Stream::default(), vec![None; Stream::MOST]);
            let all = std::iter::once((0, vec![7; start])).chain(pieces.into_iter().map(|(at, bytes)| (at + start, bytes)));
            for (at, bytes) in all {
                stream.put(at, &bytes);
                for (place, byte) in (at..).zip(bytes) {
                    if let Some(known) = naive.get_mut(place) {
                        known.get_or_insert(byte);
                    }
                }
                let ready: Vec<u8> = naive.iter().map_while(|byte| *byte).collect();
                prop_assert_eq!(stream.ready(), &ready[..]);
                prop_assert!(stream.memory() <= Stream::MOST + Stream::MOST / 8);
            }
        }
    }

    #[test]
    fn early_data_is_not_overwritten_by_the_gap_filler() {
        let mut stream = Stream::default();
        stream.put(1, b"b");
        stream.put(0, b"ax");
        assert_eq!(stream.ready(), b"ab");
    }

    #[test]
    fn false_offsets_take_no_memory() {
        let mut stream = Stream::default();
        stream.put(usize::MAX, b"x");
        stream.put(Stream::MOST, b"x");
        assert_eq!((stream.memory(), stream.ready()), (0, &[][..]));
    }
}
