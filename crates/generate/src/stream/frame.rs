//! Frames as the model says they are: plainly, and slowly.

use super::{Change, Checksum, ChecksumKind, Fill, Stream, Variant};
use crate::stream::select::draw;
use crate::trailer::{self, Key, Trailer};
use linerate_wire::Crc32c;

impl Stream {
    /// The variant of frame `n`.
    pub fn variant(&self, n: u64) -> &Variant {
        &self.variants[self.size.at(n) as usize % self.variants.len()]
    }

    /// The bytes of frame `n` (from 0), sent at `time` (UTC nanoseconds).
    ///
    /// # Panics
    /// If there is no variant, or something in it lies outside of its frame.
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
            checksum.write(&mut frame);
        }
        frame
    }
}

impl Change {
    /// Writes what an index means.
    pub fn write(&self, index: u64, frame: &mut [u8]) {
        let place = &mut frame[self.offset..self.offset + self.width];
        let old = place.iter().fold(0u128, |value, byte| value << 8 | u128::from(*byte));
        let value = self.map.at(index) << self.mask.trailing_zeros() & self.mask | old & !self.mask;
        place.copy_from_slice(&value.to_be_bytes()[16 - self.width..]);
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

impl Checksum {
    /// Computes it over a frame and writes it there.
    pub fn write(&self, frame: &mut [u8]) {
        match self.kind {
            ChecksumKind::Internet { plus, no_zero } => {
                frame[self.offset..self.offset + 2].fill(0);
                let mut sum = u64::from(plus);
                for (first, end) in &self.parts {
                    for pair in frame[*first..*end].chunks(2) {
                        sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
                    }
                }
                while sum > 0xffff {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                let sum = if no_zero && sum == 0xffff { 0xffff } else { !sum as u16 };
                frame[self.offset..self.offset + 2].copy_from_slice(&sum.to_be_bytes());
            }
            ChecksumKind::Crc32c => {
                frame[self.offset..self.offset + 4].fill(0);
                let crc = self.parts.iter().fold(Crc32c::NEW, |crc, (first, end)| crc.with(&frame[*first..*end]));
                frame[self.offset..self.offset + 4].copy_from_slice(&crc.value().to_le_bytes());
            }
        }
    }
}
