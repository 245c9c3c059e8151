//! Changing fields of one frame: for layouts with few frames in a burst, where a loop per field would cost more than
//! the field.

use super::arithmetic::{checksum, crc, halves, noise};
use crate::plan::{FieldPosition, Layout, Plan, SumKind, SumRange};
use crate::stream::draw;
use crate::trailer::{self, Key, Trailer};

/// Frame to write.
pub(super) struct Row<'a> {
    pub plan: &'a Plan,
    /// Its slot, which holds the template, and the bytes after it.
    pub frame: &'a mut [u8],
    pub number: u64,
    /// Send time, UTC nanoseconds.
    pub time: u64,
    /// Key of the trailer.
    pub key: Key,
    /// Scratch memory for the checksums of the layout.
    pub sums: &'a mut [u64],
}

impl Row<'_> {
    pub(super) fn write(&mut self, layout: &Layout) {
        let plan = self.plan;
        let sums = &plan.sums[layout.sums.clone()];
        self.sums.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum.base.into());
        let (mut selector, mut index) = (u32::MAX, 0);
        for field in &plan.fields[layout.fields.clone()] {
            if field.selector != selector {
                selector = field.selector;
                index = plan.selectors[selector as usize].at(self.number);
            }
            self.put(&field.place, field.covers, field.term.at(index, field.place.mask));
        }
        for (fill, covers) in &plan.fills[layout.fills.clone()] {
            let bytes = &mut self.frame[fill.offset..fill.offset + fill.length];
            let sum = noise(draw(fill.seed, self.number), bytes);
            self.add(*covers, sum);
        }
        if let Some(mark) = &layout.trailer {
            let trailer = Trailer { stream: mark.stream, sequence: self.number, time: self.time };
            let bytes = trailer.bytes(&self.key);
            self.frame[mark.offset..mark.offset + trailer::LEN].copy_from_slice(&bytes);
            let (words, _) = bytes.as_chunks();
            words.iter().for_each(|word| self.add(mark.covers, u64::from_be_bytes(*word)));
        }
        for (index, sum) in sums.iter().enumerate() {
            let value = match &sum.kind {
                SumKind::Internet { no_zero } => {
                    let value = checksum(self.sums[index], *no_zero);
                    self.frame[sum.offset..sum.offset + 2].copy_from_slice(&(value as u16).to_be_bytes());
                    value
                }
                SumKind::Crc32c(checksum) => crc(checksum, self.frame),
            };
            self.add(sum.covers, value);
        }
    }

    fn put(&mut self, place: &FieldPosition, covers: SumRange, value: u64) {
        let Some(bytes) = self.frame.get_mut(place.offset as usize..).and_then(|rest| rest.first_chunk_mut::<8>())
        else {
            return;
        };
        match (place.width, place.mask) {
            (2, 0xffff) => bytes[..2].copy_from_slice(&(value as u16).to_be_bytes()),
            (4, 0xffff_ffff) => bytes[..4].copy_from_slice(&(value as u32).to_be_bytes()),
            (width, mask) => {
                let shift = 8 * (8 - width);
                *bytes = (u64::from_be_bytes(*bytes) & !(mask << shift) | value << shift).to_be_bytes();
            }
        }
        self.add(covers, value);
    }

    /// Adds a number to the checksums that cover it.
    fn add(&mut self, covers: SumRange, value: u64) {
        for cover in self.plan.covering(covers) {
            self.sums[cover.sum as usize] += halves(value) << cover.shift;
        }
    }
}
