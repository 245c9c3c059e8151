//! What changes in the frames of one variant, column by column: each loop does one thing to all frames.
//!
//! Loops are functions that are not inlined: as arguments what they read and write is known to lie apart, which in one large
//! function is forgotten (a quarter slower).

use super::arithmetic::{fold, halves, noise, not_zero, quotient, remainder};
use super::program::{Cover, Field, Mark, Place, Program, Programs, Sum, SumKind, Values};
use crate::stream::{ChecksumKind, Fill, GAMMA, Pick, Selector, draw, mix, scale};
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
    /// At which place each lies.
    pub indices: &'a [u32],
    /// Bytes from one place to the next.
    pub stride: usize,
    /// Whether all lie one behind the other.
    pub dense: bool,
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
        for (sum, column) in sums.iter().zip(&mut self.sums) {
            column[..length].fill(sum.base);
        }
        let step = step(frames.numbers);
        let mut selector = u32::MAX;
        for field in &programs.fields[program.fields.clone()] {
            if field.selector != selector {
                selector = field.selector;
                pick(&programs.selectors[selector as usize], frames.numbers, step, &mut self.indices[..length]);
            }
            self.write_field(programs, field, frames, memory);
        }
        for (fill, covers) in &programs.fills[program.fills.clone()] {
            self.write_fill(fill, programs.covering(*covers), frames, memory);
        }
        if let Some(mark) = &program.trailer {
            self.write_trailer(mark, programs.covering(mark.covers), frames, memory);
        }
        for (index, sum) in sums.iter().enumerate() {
            self.write_sum(index, sum, programs.covering(sum.covers), frames, memory);
        }
    }

    fn write_field(&mut self, programs: &Programs, field: &Field, frames: Frames<'_>, memory: &mut [u8]) {
        let length = frames.numbers.len();
        let (values, uppers) = (&mut self.values[..length], &mut self.uppers[..length]);
        field.map.write(&self.indices[..length], field.place.mask, values, uppers);
        field.place.write(frames, values, memory);
        field.place.add(&mut self.sums, programs.covering(field.place.covers), values);
        if let Some(place) = &field.upper {
            place.write(frames, uppers, memory);
            place.add(&mut self.sums, programs.covering(place.covers), uppers);
        }
    }

    fn write_fill(&mut self, fill: &Fill, covers: &[Cover], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        for ((index, number), value) in frames.indices.iter().zip(frames.numbers).zip(&mut *values) {
            let first = *index as usize * frames.stride + fill.offset;
            let Some(bytes) = memory.get_mut(first..first + fill.length) else { return };
            *value = noise(draw(fill.seed, *number), bytes);
        }
        add(&mut self.sums, covers, values);
    }

    #[inline(never)]
    fn write_trailer(&mut self, mark: &Mark, covers: &[Cover], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        let time = frames.time & ((1 << TIME_BITS) - 1);
        let each = frames.numbers.iter().zip(&mut *values);
        frames.each(mark.offset, each, memory, |place: &mut [u8; trailer::LEN], (number, value)| {
            let name = mark.stream << SEQUENCE_BITS | number & ((1 << SEQUENCE_BITS) - 1);
            let stamp = time << 24 | trailer::check(name, time, &frames.key);
            *place = (u128::from(name) << 64 | u128::from(stamp)).to_be_bytes();
            *value = halves(name) + halves(stamp);
        });
        add(&mut self.sums, covers, values);
    }

    #[inline(never)]
    fn write_sum(&mut self, index: usize, sum: &Sum, covers: &[Cover], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        match &sum.kind {
            SumKind::Internet { no_zero } => {
                let each = values.iter_mut().zip(&self.sums[index]);
                match no_zero {
                    true => each.for_each(|(value, sum)| *value = not_zero(0xffff - fold(*sum))),
                    false => each.for_each(|(value, sum)| *value = 0xffff - fold(*sum)),
                }
                frames.store::<2>(sum.offset, values, memory);
            }
            SumKind::Crc32c(checksum) => {
                for (index, value) in frames.indices.iter().zip(&mut *values) {
                    let Some(frame) = memory.get_mut(*index as usize * frames.stride..) else { return };
                    checksum.write(frame);
                    let place = &frame[checksum.offset..checksum.offset + ChecksumKind::Crc32c.width()];
                    *value = place.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
                }
            }
        }
        add(&mut self.sums, covers, values);
    }
}

impl Frames<'_> {
    /// Does something to the bytes at `offset` of each frame, each with one of `values`.
    #[inline(always)]
    fn each<T, const WIDTH: usize>(
        &self,
        offset: usize,
        values: impl Iterator<Item = T>,
        memory: &mut [u8],
        mut work: impl FnMut(&mut [u8; WIDTH], T),
    ) {
        if self.dense {
            let first = self.indices.first().map_or(0, |index| *index as usize * self.stride) + offset;
            let places = memory.get_mut(first..).unwrap_or_default().chunks_exact_mut(self.stride);
            for (place, value) in places.zip(values) {
                let Some(place) = place.first_chunk_mut() else { return };
                work(place, value);
            }
        } else {
            for (index, value) in self.indices.iter().zip(values) {
                let place =
                    memory.get_mut(*index as usize * self.stride + offset..).and_then(|place| place.first_chunk_mut());
                let Some(place) = place else { return };
                work(place, value);
            }
        }
    }

    /// Writes the lowest bytes of a value into each frame.
    #[inline(never)]
    fn store<const WIDTH: usize>(&self, offset: usize, values: &[u64], memory: &mut [u8]) {
        self.each(offset, values.iter(), memory, |place: &mut [u8; WIDTH], value| {
            place.copy_from_slice(&value.to_be_bytes()[8 - WIDTH..]);
        });
    }
}

/// How far apart numbers are; 0 if not all as far.
#[inline(never)]
fn step(numbers: &[u64]) -> u64 {
    let [first, second, ..] = numbers else { return 1 };
    let step = second - first;
    let even = numbers.windows(2).fold(true, |even, pair| even & (pair[1] - pair[0] == step));
    if even { step } else { 0 }
}

/// The indices of frames, whose numbers are `step` apart.
#[inline(never)]
fn pick(selector: &Selector, numbers: &[u64], step: u64, indices: &mut [u64]) {
    let frames = numbers.iter().zip(&mut *indices);
    match &selector.pick {
        _ if selector.count == 1 => indices.fill(0),
        Pick::InTurn { every: 1 } if selector.count == 0 => indices.copy_from_slice(numbers),
        Pick::InTurn { every: 1 } if step > 0 && selector.count / FEWEST_TURNS >= step => {
            in_steps(selector.count, numbers, step, indices);
        }
        Pick::InTurn { every } => in_turn(*every, selector.count, numbers, indices),
        Pick::Random { seed } if step > 0 && (1..=u32::MAX.into()).contains(&selector.count) => {
            // The state goes on as far from one to the next; each `scale` of few indices.
            let mut state = seed.wrapping_add(numbers[0].wrapping_add(1).wrapping_mul(GAMMA));
            let (step, count) = (step.wrapping_mul(GAMMA), u64::from(selector.count as u32));
            for index in indices {
                *index = ((mix(state) >> 32) * count) >> 32;
                state = state.wrapping_add(step);
            }
        }
        Pick::Random { seed } => {
            frames.for_each(|(number, index)| *index = scale(draw(*seed, *number), selector.count));
        }
        Pick::Weighted { table, seed } => {
            frames.for_each(|(number, index)| *index = table.pick(draw(*seed, *number)));
        }
    }
}

/// The fewest steps from an index to itself for which it pays to go in runs.
const FEWEST_TURNS: u64 = 16;

/// The indices of frames in turn that are a step apart: run by run, each up to the last index.
#[inline(never)]
fn in_steps(count: u64, numbers: &[u64], step: u64, indices: &mut [u64]) {
    let mut turn = numbers.first().map_or(0, |first| if *first < count { *first } else { first % count });
    let mut rest = indices;
    while !rest.is_empty() {
        let run = ((count - turn).div_ceil(step)).min(rest.len() as u64);
        let (now, later) = rest.split_at_mut(run as usize);
        for (index, position) in now.iter_mut().zip(0u64..) {
            *index = turn + position * step;
        }
        turn = turn.wrapping_add(run * step).wrapping_sub(count);
        rest = later;
    }
}

/// The indices of frames in turn: divided for the first one, then advanced.
#[inline(never)]
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
    #[inline(never)]
    fn write(&self, indices: &[u64], mask: u64, values: &mut [u64], uppers: &mut [u64]) {
        let each = indices.iter().zip(&mut *values);
        match self {
            Values::Count { start, step: 1, shift } => each.for_each(|(index, value)| {
                *value = start.wrapping_add(*index) << shift & mask;
            }),
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
            Values::Wide(wide) => each.zip(uppers).for_each(|((index, value), upper)| {
                (*value, *upper) = wide.at(*index);
            }),
        }
    }
}

impl Place {
    /// Writes a value into each frame.
    fn write(&self, frames: Frames<'_>, values: &[u64], memory: &mut [u8]) {
        let offset = self.offset as usize;
        match (self.width, self.mask) {
            (1, 0xff) => frames.store::<1>(offset, values, memory),
            (2, 0xffff) => frames.store::<2>(offset, values, memory),
            (4, 0xffff_ffff) => frames.store::<4>(offset, values, memory),
            (8, u64::MAX) => frames.store::<8>(offset, values, memory),
            _ => self.blend(frames, values, memory),
        }
    }

    /// Adds values to the checksums that cover them.
    #[inline(never)]
    fn add(&self, sums: &mut [Column], covers: &[Cover], values: &[u64]) {
        if self.width > 4 {
            return add(sums, covers, values);
        }
        for Cover { sum, shift } in covers {
            let each = sums[*sum as usize].iter_mut().zip(values);
            match shift {
                0 => each.for_each(|(sum, value)| *sum += value),
                _ => each.for_each(|(sum, value)| *sum += value << shift),
            }
        }
    }

    /// Writes values among bits that stay: 8 bytes are read and written, which may reach beyond the frame.
    #[inline(never)]
    fn blend(&self, frames: Frames<'_>, values: &[u64], memory: &mut [u8]) {
        let shift = 8 * (8 - self.width);
        let keep = !(self.mask << shift);
        frames.each(self.offset as usize, values.iter(), memory, |place: &mut [u8; 8], value| {
            *place = (u64::from_be_bytes(*place) & keep | value << shift).to_be_bytes();
        });
    }
}

/// Adds values of any size to checksums.
#[inline(never)]
fn add(sums: &mut [Column], covers: &[Cover], values: &[u64]) {
    for Cover { sum, shift } in covers {
        for (sum, value) in sums[*sum as usize].iter_mut().zip(values) {
            *sum += halves(*value) << shift;
        }
    }
}
