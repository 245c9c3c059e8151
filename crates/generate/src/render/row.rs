//! What changes in one frame: for variants of which a burst has few, where a loop for each thing costs more than the thing.

use super::arithmetic::{fold, halves, noise, not_zero, quotient, remainder};
use super::program::{Covers, Mark, Place, Program, Programs, Sum, SumKind, Values};
use crate::stream::{ChecksumKind, draw, scale};
use crate::trailer::{self, Key, Trailer};

/// One frame to be written.
pub(super) struct Row<'a> {
    pub programs: &'a Programs,
    /// Its place, which holds the template, and what lies behind it.
    pub frame: &'a mut [u8],
    pub number: u64,
    /// When it is sent, UTC nanoseconds.
    pub time: u64,
    /// Of the trailer.
    pub key: Key,
    /// Of each checksum of the variant; anything at first.
    pub sums: &'a mut [u64],
}

impl Row<'_> {
    /// Writes all that changes.
    pub fn write(&mut self, program: &Program) {
        let programs = self.programs;
        let sums = &programs.sums[program.sums.clone()];
        self.sums.iter_mut().zip(sums).for_each(|(to, sum)| *to = sum.base);
        for field in &programs.fields[program.fields.clone()] {
            let index = programs.selectors[field.selector as usize].at(self.number);
            let (value, upper) = field.map.at(index, field.place.mask);
            self.put(&field.place, value);
            if let Some(place) = &field.upper {
                self.put(place, upper);
            }
        }
        for (fill, covers) in &programs.fills[program.fills.clone()] {
            let bytes = &mut self.frame[fill.offset..fill.offset + fill.length];
            let sum = noise(draw(fill.seed, self.number), bytes);
            self.add(*covers, sum);
        }
        if let Some(mark) = &program.trailer {
            self.put_trailer(mark);
        }
        for (index, sum) in sums.iter().enumerate() {
            self.put_sum(index, sum);
        }
    }

    fn put(&mut self, place: &Place, value: u64) {
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
        self.add(place.covers, value);
    }

    fn put_trailer(&mut self, mark: &Mark) {
        let trailer = Trailer { stream: mark.stream as u32, sequence: self.number, time: self.time };
        let bytes = trailer.bytes(&self.key);
        self.frame[mark.offset..mark.offset + trailer::LEN].copy_from_slice(&bytes);
        let (words, _) = bytes.as_chunks();
        let sum = words.iter().map(|word| halves(u64::from_be_bytes(*word))).sum();
        self.add(mark.covers, sum);
    }

    fn put_sum(&mut self, index: usize, sum: &Sum) {
        match &sum.kind {
            SumKind::Internet { no_zero } => {
                let checksum = 0xffff - fold(self.sums[index]);
                let checksum = if *no_zero { not_zero(checksum) } else { checksum };
                self.frame[sum.offset..sum.offset + 2].copy_from_slice(&(checksum as u16).to_be_bytes());
                self.add(sum.covers, checksum);
            }
            SumKind::Crc32c(checksum) => {
                checksum.write(self.frame);
                let place = &self.frame[sum.offset..sum.offset + ChecksumKind::Crc32c.width()];
                self.add(sum.covers, place.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)));
            }
        }
    }

    /// Adds a number to the checksums that cover it.
    fn add(&mut self, covers: Covers, value: u64) {
        for cover in self.programs.covering(covers) {
            self.sums[cover.sum as usize] += halves(value) << cover.shift;
        }
    }
}

impl Values {
    /// What an index means, in place; of wide ones the upper part too.
    fn at(&self, index: u64, mask: u64) -> (u64, u64) {
        let value = match self {
            Values::Count { start, step, shift } => start.wrapping_add(step.wrapping_mul(index)) << shift & mask,
            Values::Divide { start, step, shift, divide, modulo } => {
                let index = quotient(index, *divide);
                let index = if *modulo == 0 { index } else { remainder(index, *modulo) };
                start.wrapping_add(step.wrapping_mul(index)) << shift & mask
            }
            Values::List(list) => {
                let index = if index < list.len() as u64 { index } else { index % list.len().max(1) as u64 };
                list.get(index as usize).copied().unwrap_or(0)
            }
            Values::Scatter { start, span, seed, shift } => {
                start.wrapping_add(scale(draw(*seed, index), *span)) << shift & mask
            }
            Values::Wide(wide) => return wide.at(index),
        };
        (value, 0)
    }
}
