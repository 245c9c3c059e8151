//! Frames by the definition of the model: plain, and slow.

use super::{Change, Fill, Stream, Variant};
use crate::stream::select::draw;
use crate::trailer::{self, Key, Trailer};

impl Stream {
    /// Returns the variant of frame `n`.
    pub fn variant(&self, n: u64) -> &Variant {
        &self.variants[self.size.at(n) as usize % self.variants.len()]
    }

    /// Returns the bytes of frame `n` (from 0), sent at `time` (UTC nanoseconds).
    ///
    /// # Panics
    /// If the stream has no variants, or if a part of one is outside of its frame.
    pub fn frame(&self, n: u64, time: u64, key: &Key) -> Vec<u8> {
        let variant = self.variant(n);
        let mut frame = variant.frame.clone();
        for change in &variant.changes {
            change.write(self.selectors[change.selector].at(n), &mut frame);
        }
        for fill in &variant.fills {
            fill.write(n, &mut frame);
        }
        if let Some(at) = variant.trailer {
            let trailer = Trailer { stream: self.id, sequence: n, time };
            frame[at..at + trailer::LEN].copy_from_slice(&trailer.bytes(key));
        }
        for checksum in &variant.checksums {
            checksum.fill(&mut frame);
        }
        frame
    }
}

impl Change {
    /// Writes the value of an index.
    pub fn write(&self, index: u64, frame: &mut [u8]) {
        put(&mut frame[self.offset..self.offset + self.width], self.mask, self.map.at(index));
    }
}

/// Writes a value into the bits of a mask, contiguous, in at most 16 bytes in network order.
pub(crate) fn put(place: &mut [u8], mask: u128, value: u128) {
    let value = value << mask.trailing_zeros() & mask;
    for (index, byte) in place.iter_mut().rev().enumerate() {
        *byte = *byte & !((mask >> (8 * index)) as u8) | (value >> (8 * index)) as u8;
    }
}

impl Fill {
    /// Writes the bytes of frame `n`.
    pub fn write(&self, n: u64, frame: &mut [u8]) {
        let seed = draw(self.seed, n);
        for (index, bytes) in frame[self.offset..self.offset + self.length].chunks_mut(8).enumerate() {
            bytes.copy_from_slice(&draw(seed, index as u64).to_be_bytes()[..bytes.len()]);
        }
    }
}
