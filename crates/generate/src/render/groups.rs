//! Frames of a burst grouped by layout, so that all of one layout are made together.

use super::column::FRAMES;
use crate::Run;
use crate::plan::{Lengths, Plan};
use std::ops::Range;

/// Frames of one layout after the other.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    /// Layout of each group, and its range of numbers.
    groups: Vec<(u32, Range<usize>)>,
    /// Numbers of all frames, and 0, 1, 2...: used if all frames have one layout.
    numbers: Vec<u64>,
    in_order: Vec<u32>,
    alike: bool,
    /// Numbers of all groups, and positions of the frames in the burst.
    grouped: Vec<u64>,
    indices: Vec<u32>,
    /// Layout of each frame, and its group.
    layouts: Vec<u32>,
    group_of: Vec<u16>,
    /// For each layout, the burst in which it last occurred, and its group there.
    met: Vec<(u64, u16)>,
    burst: u64,
}

impl Groups {
    /// Creates groups for `layouts` layouts.
    pub(super) fn new(layouts: usize) -> Self {
        Groups {
            groups: Vec::with_capacity(FRAMES),
            numbers: Vec::with_capacity(FRAMES),
            in_order: (0..FRAMES as u32).collect(),
            alike: true,
            grouped: vec![0; FRAMES],
            indices: vec![0; FRAMES],
            layouts: Vec::with_capacity(FRAMES),
            group_of: Vec::with_capacity(FRAMES),
            met: vec![(0, 0); layouts],
            burst: 0,
        }
    }

    /// Sets the number of layouts.
    pub(super) fn resize(&mut self, layouts: usize) {
        self.met.resize(layouts, (0, 0));
    }

    /// Groups the frames of these runs, at most [`FRAMES`].
    pub(super) fn arrange(&mut self, runs: &[Run], plan: &Plan) {
        self.layouts.clear();
        self.numbers.clear();
        self.groups.clear();
        if let [run] = runs
            && let Lengths { layouts, size: None, .. } = &plan.streams[run.first.stream as usize]
        {
            // The most frequent case: one layout.
            self.numbers.extend(run.numbers());
            self.alike = true;
            return self.groups.push((layouts.start as u32, 0..self.numbers.len()));
        }
        for run in runs {
            let lengths = &plan.streams[run.first.stream as usize];
            let first = lengths.layouts.start as u32;
            match lengths.size.map(|size| &plan.selectors[size]) {
                Some(size) => self.layouts.extend(run.numbers().map(|number| first + size.at(number) as u32)),
                None if run.count == 1 => self.layouts.push(first),
                None => self.layouts.extend(run.numbers().map(|_| first)),
            }
            match run.count {
                1 => self.numbers.push(run.first.number),
                _ => self.numbers.extend(run.numbers()),
            }
        }
        let Some(first) = self.layouts.first() else { return };
        self.alike = self.layouts.iter().fold(true, |alike, layout| alike & (layout == first));
        if self.alike {
            self.groups.push((*first, 0..self.layouts.len()));
            return;
        }
        self.count();
        let mut start = 0;
        for (_, range) in &mut self.groups {
            let length = range.len();
            *range = start..start;
            start += length;
        }
        for ((index, number), group) in (0..).zip(&self.numbers).zip(&self.group_of) {
            let place = &mut self.groups[usize::from(*group)].1.end;
            (self.grouped[*place], self.indices[*place]) = (*number, index);
            *place += 1;
        }
    }

    /// Returns each layout with the numbers of its frames and their positions in the burst.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[u64], &[u32])> {
        let (numbers, indices) = match self.alike {
            true => (&self.numbers, &self.in_order),
            false => (&self.grouped, &self.indices),
        };
        self.groups.iter().map(|(layout, range)| (*layout, &numbers[range.clone()], &indices[range.clone()]))
    }

    /// Makes a group for each layout, with the number of its frames.
    fn count(&mut self) {
        self.burst += 1;
        self.group_of.clear();
        for layout in &self.layouts {
            let met = &mut self.met[*layout as usize];
            if met.0 != self.burst {
                *met = (self.burst, self.groups.len() as u16);
                self.groups.push((*layout, 0..0));
            }
            self.groups[usize::from(met.1)].1.end += 1;
            self.group_of.push(met.1);
        }
    }
}
