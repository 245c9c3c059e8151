//! What changes in the frames of one variant, column by column: each loop does one thing to all frames.

use super::program::{Cover, Field, Mark, Place, Program, Programs, Sum, SumKind, Values};
use crate::stream::{ChecksumKind, Fill, Pick, Selector, draw, scale};
use crate::trailer::{self, Key, SEQUENCE_BITS, TIME_BITS};

/// The most frames of a burst.
pub(super) const FRAMES: usize = 256;

/// A number for each frame of a burst.
pub(super) type Column = [u64; FRAMES];

/// Where numbers wait between two loops.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    indices: Column,
    values: Column,
    uppers: Column,
    /// Of each checksum of a variant.
    sums: Vec<Column>,
}

/// Frames of one variant.
#[derive(Clone, Copy)]
pub(super) struct Frames<'a> {
    /// Their numbers, ascending; at most [`FRAMES`].
    pub numbers: &'a [u64],
    /// Where each lies.
    pub at: &'a [u32],
    /// When they are sent, UTC nanoseconds.
    pub time: u64,
    /// Of the trailers.
    pub key: Key,
}

impl Columns {
    /// For variants of at most so many checksums.
    pub fn new(sums: usize) -> Self {
        Columns { indices: [0; FRAMES], values: [0; FRAMES], uppers: [0; FRAMES], sums: vec![[0; FRAMES]; sums] }
    }

    /// Writes all that changes into frames that are templates otherwise.
    pub fn write(&mut self, programs: &Programs, program: &Program, frames: Frames<'_>, memory: &mut [u8]) {
        let length = frames.numbers.len();
        let sums = &programs.sums[program.sums.clone()];
        for column in &mut self.sums[..sums.len()] {
            column[..length].fill(0);
        }
        let mut selector = usize::MAX;
        for field in &programs.fields[program.fields.clone()] {
            if field.selector != selector {
                selector = field.selector;
                pick(&programs.selectors[selector], frames.numbers, &mut self.indices[..length]);
            }
            self.write_field(programs, field, frames.at, memory);
        }
        for (fill, covers) in &programs.fills[program.fills.clone()] {
            self.write_fill(fill, &programs.covers[covers.clone()], frames, memory);
        }
        if let Some(mark) = &program.trailer {
            self.write_trailer(mark, &programs.covers[mark.covers.clone()], frames, memory);
        }
        for (index, sum) in sums.iter().enumerate() {
            self.write_sum(index, sum, &programs.covers[sum.covers.clone()], frames.at, memory);
        }
    }

    fn write_field(&mut self, programs: &Programs, field: &Field, at: &[u32], memory: &mut [u8]) {
        let length = at.len();
        let (values, uppers) = (&mut self.values[..length], &mut self.uppers[..length]);
        field.map.write(&self.indices[..length], field.place.mask, values, uppers);
        field.place.write(at, values, memory);
        add(&mut self.sums, &programs.covers[field.place.covers.clone()], values);
        if let Some(place) = &field.upper {
            place.write(at, uppers, memory);
            add(&mut self.sums, &programs.covers[place.covers.clone()], uppers);
        }
    }

    fn write_fill(&mut self, fill: &Fill, covers: &[Cover], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.at.len()];
        for ((at, number), value) in frames.at.iter().zip(frames.numbers).zip(&mut *values) {
            let first = *at as usize + fill.offset;
            let Some(bytes) = memory.get_mut(first..first + fill.length) else { return };
            *value = noise(draw(fill.seed, *number), bytes);
        }
        add(&mut self.sums, covers, values);
    }

    fn write_trailer(&mut self, mark: &Mark, covers: &[Cover], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.at.len()];
        let time = frames.time & ((1 << TIME_BITS) - 1);
        for ((at, number), value) in frames.at.iter().zip(frames.numbers).zip(&mut *values) {
            let name = mark.stream << SEQUENCE_BITS | number & ((1 << SEQUENCE_BITS) - 1);
            let stamp = time << 24 | trailer::check(name, time, &frames.key);
            let place = memory.get_mut(*at as usize + mark.offset..).and_then(|place| place.first_chunk_mut::<16>());
            let Some(place) = place else { return };
            *place = (u128::from(name) << 64 | u128::from(stamp)).to_be_bytes();
            *value = halves(name) + halves(stamp);
        }
        add(&mut self.sums, covers, values);
    }

    fn write_sum(&mut self, index: usize, sum: &Sum, covers: &[Cover], at: &[u32], memory: &mut [u8]) {
        let values = &mut self.values[..at.len()];
        match &sum.kind {
            SumKind::Internet { base, no_zero } => {
                let zero = if *no_zero { 0xffff } else { 0 };
                for (value, sum) in values.iter_mut().zip(&self.sums[index]) {
                    let checksum = !fold(base + sum);
                    *value = if checksum == 0 { zero } else { checksum.into() };
                }
                store::<2>(at, sum.offset, values, memory);
            }
            SumKind::Crc32c(checksum) => {
                for (at, value) in at.iter().zip(&mut *values) {
                    let Some(frame) = memory.get_mut(*at as usize..) else { return };
                    checksum.write(frame);
                    let place = &frame[checksum.offset..checksum.offset + ChecksumKind::Crc32c.width()];
                    *value = place.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
                }
            }
        }
        add(&mut self.sums, covers, values);
    }
}

/// The indices of these frames.
fn pick(selector: &Selector, numbers: &[u64], indices: &mut [u64]) {
    let frames = numbers.iter().zip(&mut *indices);
    match &selector.pick {
        _ if selector.count == 1 => indices.fill(0),
        Pick::InTurn { every: 1 } if selector.count == 0 => indices.copy_from_slice(numbers),
        Pick::InTurn { every } => in_turn(*every, selector.count, numbers, indices),
        Pick::Random { seed } => match selector.count {
            0 => frames.for_each(|(number, index)| *index = draw(*seed, *number)),
            count @ 1..=0xffff_ffff => {
                frames.for_each(|(number, index)| *index = (draw(*seed, *number) >> 32).wrapping_mul(count) >> 32);
            }
            count => frames.for_each(|(number, index)| *index = draw(*seed, *number) % count),
        },
        Pick::Weighted { table, seed } => {
            frames.for_each(|(number, index)| *index = table.pick(draw(*seed, *number)));
        }
    }
}

/// The indices of frames in turn: divided for the first one, then advanced.
fn in_turn(every: u64, count: u64, numbers: &[u64], indices: &mut [u64]) {
    let every = every.max(1);
    let count = if count == 0 { u64::MAX } else { count };
    let Some(first) = numbers.first() else { return };
    let (mut turn, mut within) = if every == 1 { (*first, 0) } else { (first / every, first % every) };
    let mut last = *first;
    if turn >= count {
        turn %= count;
    }
    for (number, index) in numbers.iter().zip(indices) {
        within += number - last;
        last = *number;
        if within >= every {
            let steps = if every == 1 { within } else { within / every };
            within -= steps * every;
            turn += steps;
            if turn >= count {
                turn = if turn - count < count { turn - count } else { turn % count };
            }
        }
        *index = turn;
    }
}

impl Values {
    /// What indices mean, in place; of wide ones the upper part too.
    fn write(&self, indices: &[u64], mask: u64, values: &mut [u64], uppers: &mut [u64]) {
        let each = indices.iter().zip(&mut *values);
        match self {
            Values::Count { start, step, shift } => each.for_each(|(index, value)| {
                *value = start.wrapping_add(step.wrapping_mul(*index)) << shift & mask;
            }),
            Values::Divide { start, step, shift, divide, modulo } => each.for_each(|(index, value)| {
                let index = quotient(*index, *divide);
                let index = if *modulo == 0 { index } else { remainder(index, *modulo) };
                *value = start.wrapping_add(step.wrapping_mul(index)) << shift & mask;
            }),
            Values::List(list) => each.for_each(|(index, value)| {
                let index = if *index < list.len() as u64 { *index } else { index % list.len().max(1) as u64 };
                *value = list.get(index as usize).copied().unwrap_or(0);
            }),
            Values::Scatter { start, span, seed, shift } => each.for_each(|(index, value)| {
                *value = start.wrapping_add(scale(draw(*seed, *index), *span)) << shift & mask;
            }),
            Values::Wide { map, shift, mask } => each.zip(uppers).for_each(|((index, value), upper)| {
                let wide = map.at(*index) << shift & mask;
                (*value, *upper) = (wide as u64, (wide >> 64) as u64);
            }),
        }
    }
}

impl Place {
    /// Writes a value into each frame.
    fn write(&self, at: &[u32], values: &[u64], memory: &mut [u8]) {
        match (self.width, self.mask) {
            (1, 0xff) => store::<1>(at, self.offset, values, memory),
            (2, 0xffff) => store::<2>(at, self.offset, values, memory),
            (4, 0xffff_ffff) => store::<4>(at, self.offset, values, memory),
            (8, u64::MAX) => store::<8>(at, self.offset, values, memory),
            _ => self.blend(at, values, memory),
        }
    }

    /// Writes values among bits that stay: 8 bytes are read and written, which may reach beyond the frame.
    fn blend(&self, at: &[u32], values: &[u64], memory: &mut [u8]) {
        let shift = 8 * (8 - self.width as u32);
        let keep = !(self.mask << shift);
        for (at, value) in at.iter().zip(values) {
            let place = memory.get_mut(*at as usize + self.offset..).and_then(|place| place.first_chunk_mut::<8>());
            let Some(place) = place else { return };
            *place = (u64::from_be_bytes(*place) & keep | value << shift).to_be_bytes();
        }
    }
}

/// Writes the lowest bytes of a value into each frame.
fn store<const WIDTH: usize>(at: &[u32], offset: usize, values: &[u64], memory: &mut [u8]) {
    for (at, value) in at.iter().zip(values) {
        let place = memory.get_mut(*at as usize + offset..).and_then(|place| place.first_chunk_mut::<WIDTH>());
        let Some(place) = place else { return };
        place.copy_from_slice(&value.to_be_bytes()[8 - WIDTH..]);
    }
}

/// Adds values to the checksums that cover them.
fn add(sums: &mut [Column], covers: &[Cover], values: &[u64]) {
    for Cover { sum, shift } in covers {
        for (sum, value) in sums[*sum].iter_mut().zip(values) {
            *sum += halves(*value) << shift;
        }
    }
}

/// Fills bytes with noise; returns the sum of its words, each byte where it would be in a whole one.
fn noise(seed: u64, bytes: &mut [u8]) -> u64 {
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

/// The sum of the two halves of a number: the same modulo 2^16 - 1, and 0 only where the number is.
fn halves(value: u64) -> u64 {
    (value >> 32) + (value & 0xffff_ffff)
}

/// A sum in 16 bits (RFC 1071).
fn fold(sum: u64) -> u16 {
    let sum = halves(sum);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// A quotient: of small numbers, which most are, in half the time.
fn quotient(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 / by as u32) } else { number / by }
}

/// A remainder, in the same way.
fn remainder(number: u64, by: u64) -> u64 {
    if (number | by) >> 32 == 0 { u64::from(number as u32 % by as u32) } else { number % by }
}
