//! The frames of a burst by variant, so that all of one variant are made together.

use super::column::FRAMES;
use super::program::Programs;
use crate::Slot;
use std::ops::Range;

/// Frames of one variant after the other.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    /// Which variant, and which of the numbers.
    runs: Vec<(u32, Range<usize>)>,
    numbers: Vec<u64>,
    at: Vec<u32>,
    /// The variant of each slot, and its run.
    variants: Vec<u32>,
    run_of: Vec<u16>,
    /// For each variant in which burst it was last met, and its run there.
    met: Vec<(u64, u16)>,
    burst: u64,
}

impl Groups {
    /// For so many variants.
    pub fn new(variants: usize) -> Self {
        Groups {
            runs: Vec::with_capacity(FRAMES),
            numbers: vec![0; FRAMES],
            at: vec![0; FRAMES],
            variants: Vec::with_capacity(FRAMES),
            run_of: Vec::with_capacity(FRAMES),
            met: vec![(0, 0); variants],
            burst: 0,
        }
    }

    /// Arranges the frames of these slots, at most [`FRAMES`], which lie `stride` bytes apart.
    pub fn arrange(&mut self, slots: &[Slot], programs: &Programs, stride: u32) {
        self.variants.clear();
        self.runs.clear();
        let variant = |slot: &Slot| {
            let sizes = &programs.streams[slot.stream as usize];
            sizes.first + sizes.size.as_ref().map_or(0, |size| size.at(slot.number) as u32)
        };
        let Some(first) = slots.first().map(variant) else { return };
        let mut alike = true;
        self.variants.extend(slots.iter().map(|slot| {
            let variant = variant(slot);
            alike &= variant == first;
            variant
        }));
        if alike {
            self.runs.push((first, 0..slots.len()));
            for (index, (slot, (number, at))) in slots.iter().zip(self.numbers.iter_mut().zip(&mut self.at)).enumerate()
            {
                (*number, *at) = (slot.number, index as u32 * stride);
            }
            return;
        }
        self.count();
        let mut start = 0;
        for (_, range) in &mut self.runs {
            let length = range.len();
            *range = start..start;
            start += length;
        }
        for (index, (slot, run)) in slots.iter().zip(&self.run_of).enumerate() {
            let place = &mut self.runs[usize::from(*run)].1.end;
            (self.numbers[*place], self.at[*place]) = (slot.number, index as u32 * stride);
            *place += 1;
        }
    }

    /// Each variant with the numbers and the places of its frames.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[u64], &[u32])> {
        let of = |(variant, range): &(u32, Range<usize>)| {
            (*variant as usize, &self.numbers[range.clone()], &self.at[range.clone()])
        };
        self.runs.iter().map(of)
    }

    /// The variant of each slot.
    pub fn variants(&self) -> &[u32] {
        &self.variants
    }

    /// Makes a run for each variant, with as many numbers as it has frames.
    fn count(&mut self) {
        self.burst += 1;
        self.run_of.clear();
        for variant in &self.variants {
            let met = &mut self.met[*variant as usize];
            if met.0 != self.burst {
                *met = (self.burst, self.runs.len() as u16);
                self.runs.push((*variant, 0..0));
            }
            self.runs[usize::from(met.1)].1.end += 1;
            self.run_of.push(met.1);
        }
    }
}
