//! Changing fields of the frames of one layout, column by column: each loop does one thing to all frames.
//!
//! Loops are functions that are not inlined: function arguments are known not to alias, which is lost in one large
//! function (a quarter slower).

use super::arithmetic::{checksum, crc, halves, noise};
use crate::plan::{CoveringSum, FieldPosition, Layout, Plan, Sum, SumKind, Term, TrailerPosition};
use crate::stream::{Fill, GAMMA, IndexSelection, Selector, draw, mix};
use crate::trailer::{self, Key, Trailer};

/// Maximum number of frames per burst.
pub(super) const FRAMES: usize = 256;

/// One number per frame of a burst.
pub(super) type Column = [u64; FRAMES];

/// Intermediate results between two loops.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    indices: Column,
    values: Column,
    /// One column per checksum of a layout.
    sums: Vec<Column>,
}

/// Frames of one layout.
#[derive(Clone, Copy)]
pub(super) struct Frames<'a> {
    /// Frame numbers, ascending; at most [`FRAMES`].
    pub numbers: &'a [u64],
    /// Slot of each frame.
    pub indices: &'a [u32],
    /// Bytes from one slot to the next.
    pub stride: usize,
    /// True if the slots are contiguous.
    pub dense: bool,
    /// Send time, UTC nanoseconds.
    pub time: u64,
    /// Key of the trailers.
    pub key: Key,
}

impl Columns {
    /// Creates columns for layouts with at most `sums` checksums.
    pub(super) fn new(sums: usize) -> Self {
        Columns { indices: [0; FRAMES], values: [0; FRAMES], sums: vec![[0; FRAMES]; sums] }
    }

    /// Writes all changing fields into frames that otherwise equal their templates.
    pub(super) fn write(&mut self, plan: &Plan, layout: &Layout, frames: Frames<'_>, memory: &mut [u8]) {
        let length = frames.numbers.len();
        let sums = &plan.sums[layout.sums.clone()];
        for (sum, column) in sums.iter().zip(&mut self.sums) {
            column[..length].fill(sum.base.into());
        }
        let step = step(frames.numbers);
        let mut selector = u32::MAX;
        for field in &plan.fields[layout.fields.clone()] {
            if field.selector != selector {
                selector = field.selector;
                pick(&plan.selectors[selector as usize], frames.numbers, step, &mut self.indices[..length]);
            }
            let values = &mut self.values[..length];
            evaluate(&field.term, field.place.mask, &self.indices[..length], values);
            place(&field.place, frames, values, memory);
            add(&mut self.sums, plan.covering(field.covers), field.place.width > 4, values);
        }
        for (fill, covers) in &plan.fills[layout.fills.clone()] {
            self.write_fill(fill, plan.covering(*covers), frames, memory);
        }
        if let Some(mark) = &layout.trailer {
            self.write_trailer(mark, plan.covering(mark.covers), frames, memory);
        }
        for (index, sum) in sums.iter().enumerate() {
            self.write_sum(index, sum, plan.covering(sum.covers), frames, memory);
        }
    }

    fn write_fill(&mut self, fill: &Fill, covers: &[CoveringSum], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        for ((index, number), value) in frames.indices.iter().zip(frames.numbers).zip(&mut *values) {
            let first = *index as usize * frames.stride + fill.offset;
            let Some(bytes) = memory.get_mut(first..first + fill.length) else { return };
            *value = noise(draw(fill.seed, *number), bytes);
        }
        add(&mut self.sums, covers, false, values);
    }

    #[inline(never)]
    fn write_trailer(&mut self, mark: &TrailerPosition, covers: &[CoveringSum], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        let each = frames.numbers.iter().zip(&mut *values);
        frames.each(mark.offset, each, memory, |place: &mut [u8; trailer::LEN], (number, value)| {
            *place = Trailer { stream: mark.stream, sequence: *number, time: frames.time }.bytes(&frames.key);
            let both = u128::from_be_bytes(*place);
            *value = halves((both >> 64) as u64) + halves(both as u64);
        });
        add(&mut self.sums, covers, false, values);
    }

    #[inline(never)]
    fn write_sum(&mut self, index: usize, sum: &Sum, covers: &[CoveringSum], frames: Frames<'_>, memory: &mut [u8]) {
        let values = &mut self.values[..frames.numbers.len()];
        match &sum.kind {
            SumKind::Internet { no_zero } => {
                let each = values.iter_mut().zip(&self.sums[index]);
                match no_zero {
                    true => each.for_each(|(value, sum)| *value = checksum(*sum, true)),
                    false => each.for_each(|(value, sum)| *value = checksum(*sum, false)),
                }
                frames.store::<2>(sum.offset, values, memory);
            }
            SumKind::Crc32c(checksum) => {
                for (index, value) in frames.indices.iter().zip(&mut *values) {
                    let Some(frame) = memory.get_mut(*index as usize * frames.stride..) else { return };
                    *value = crc(checksum, frame);
                }
            }
        }
        add(&mut self.sums, covers, false, values);
    }
}

impl Frames<'_> {
    /// Calls `work` with the bytes at `offset` of each frame and its value.
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

/// Returns the constant distance of the numbers; 0 if it varies.
#[inline(never)]
fn step(numbers: &[u64]) -> u64 {
    let [first, second, ..] = numbers else { return 1 };
    let step = second - first;
    let even = numbers.windows(2).fold(true, |even, pair| even & (pair[1] - pair[0] == step));
    if even { step } else { 0 }
}

/// Computes the indices of frames whose numbers are `step` apart.
#[inline(never)]
fn pick(selector: &Selector, numbers: &[u64], step: u64, indices: &mut [u64]) {
    let frames = numbers.iter().zip(&mut *indices);
    match &selector.pick {
        IndexSelection::InTurn { every: 1 } if selector.count == 0 => indices.copy_from_slice(numbers),
        IndexSelection::InTurn { every: 1 } if step > 0 && selector.count / FEWEST_TURNS >= step => {
            in_steps(selector.count, numbers, step, indices);
        }
        IndexSelection::InTurn { every } => in_turn(*every, selector.count, numbers, indices),
        IndexSelection::Random { seed } if step > 0 && (1..=u32::MAX.into()).contains(&selector.count) => {
            // The state advances by a constant; each index is `scale` for small counts.
            let mut state = seed.wrapping_add(numbers[0].wrapping_add(1).wrapping_mul(GAMMA));
            let (step, count) = (step.wrapping_mul(GAMMA), u64::from(selector.count as u32));
            for index in indices {
                *index = ((mix(state) >> 32) * count) >> 32;
                state = state.wrapping_add(step);
            }
        }
        IndexSelection::Random { .. } => frames.for_each(|(number, index)| *index = selector.at(*number)),
        IndexSelection::Weighted { table, seed } => {
            frames.for_each(|(number, index)| *index = table.pick(draw(*seed, *number)));
        }
    }
}

/// Minimum number of steps per cycle of indices for which runs are faster.
const FEWEST_TURNS: u64 = 16;

/// Computes indices in turn for numbers that are `step` apart: run by run, each up to the last index.
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

/// Computes indices in turn: by division for the first one, then by increments.
#[inline(never)]
fn in_turn(every: u64, count: u64, numbers: &[u64], indices: &mut [u64]) {
    let count = if count == 0 { u64::MAX } else { count };
    let Some(first) = numbers.first() else { return };
    let (mut turn, mut within) = (first / every, first % every);
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

/// Maps indices to values. Each arm is a loop of its own, specialised for the term.
#[inline(never)]
fn evaluate(term: &Term, mask: u64, indices: &[u64], values: &mut [u64]) {
    let each = indices.iter().zip(values);
    match term {
        Term::Linear { start, step: 1 } => {
            each.for_each(|(index, value)| *value = start.wrapping_add(*index) & mask);
        }
        Term::Linear { .. } => each.for_each(|(index, value)| *value = term.at(*index, mask)),
        Term::Divided { .. } => each.for_each(|(index, value)| *value = term.at(*index, mask)),
        Term::Table(_) => each.for_each(|(index, value)| *value = term.at(*index, mask)),
        Term::Scaled { .. } => each.for_each(|(index, value)| *value = term.at(*index, mask)),
        Term::Masked { .. } => each.for_each(|(index, value)| *value = term.at(*index, mask)),
        Term::Wide(_) => each.for_each(|(index, value)| *value = term.at(*index, mask)),
    }
}

/// Writes a number into each frame.
fn place(place: &FieldPosition, frames: Frames<'_>, values: &[u64], memory: &mut [u8]) {
    let offset = place.offset as usize;
    match (place.width, place.mask) {
        (1, 0xff) => frames.store::<1>(offset, values, memory),
        (2, 0xffff) => frames.store::<2>(offset, values, memory),
        (4, 0xffff_ffff) => frames.store::<4>(offset, values, memory),
        (8, u64::MAX) => frames.store::<8>(offset, values, memory),
        _ => blend(place, frames, values, memory),
    }
}

/// Writes numbers between bits that stay: reads and writes 8 bytes, which may extend beyond the frame.
#[inline(never)]
fn blend(place: &FieldPosition, frames: Frames<'_>, values: &[u64], memory: &mut [u8]) {
    let shift = 8 * (8 - place.width);
    let keep = !(place.mask << shift);
    frames.each(place.offset as usize, values.iter(), memory, |place: &mut [u8; 8], value| {
        *place = (u64::from_be_bytes(*place) & keep | value << shift).to_be_bytes();
    });
}

/// Adds numbers to the checksums that cover them: those of up to eight bytes (`long`) in halves, so that no sum
/// overflows.
#[inline(never)]
fn add(sums: &mut [Column], covers: &[CoveringSum], long: bool, values: &[u64]) {
    for CoveringSum { sum, shift } in covers {
        let each = sums[*sum as usize].iter_mut().zip(values);
        match (long, shift) {
            (false, 0) => each.for_each(|(sum, value)| *sum += value),
            (false, _) => each.for_each(|(sum, value)| *sum += value << shift),
            (true, _) => each.for_each(|(sum, value)| *sum += halves(*value) << shift),
        }
    }
}
