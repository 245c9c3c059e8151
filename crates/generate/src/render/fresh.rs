//! Frames made when they are asked for.

use super::column::{Columns, FRAMES, Frames};
use super::groups::Groups;
use super::row::Row;
use crate::Run;
use crate::plan::{GRAIN, Plan};
use crate::stream::StreamSet;
use crate::trailer::Key;
use linerate_burst::{Desc, Nanos, TAIL};

/// Makes frames in its memory, which has a place for each frame of a burst.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    plan: Plan,
    key: Key,
    groups: Groups,
    columns: Columns,
    /// Of each checksum of a frame made alone.
    sums: Vec<u64>,
    memory: Vec<u8>,
    stride: usize,
    /// The layout whose frame lies at each place: its template need not be copied there again.
    held: Vec<u32>,
}

/// No layout.
const NONE: u32 = u32::MAX;
/// Memory that the frames of a burst may take, in bytes: a part of a second-level cache.
const MEMORY: usize = 256 << 10;
/// The fewest frames of a burst, however long they are.
const FEWEST: usize = 16;

/// From so many frames of one layout on they are made in columns.
const FEW: usize = 4;

impl Fresh {
    /// Of a set that was checked.
    pub fn new(set: &StreamSet) -> Self {
        let plan = Plan::of(set);
        // Each frame may be the longest.
        let stride = plan.layouts.iter().map(|layout| layout.template.len()).max().unwrap_or(GRAIN);
        let sums = plan.layouts.iter().map(|layout| layout.sums.len()).max().unwrap_or(0);
        let room = (MEMORY / stride).clamp(FEWEST, FRAMES);
        Fresh {
            key: set.key,
            groups: Groups::new(plan.layouts.len()),
            columns: Columns::new(sums),
            sums: vec![0; sums],
            // One place more, so that what begins within the last one reaches as far as elsewhere.
            memory: vec![0; (room + 1) * stride + TAIL],
            stride,
            held: vec![NONE; room],
            plan,
        }
    }

    /// From now on the trailers of the stream at a place have this number.
    pub fn renumber(&mut self, place: u32, number: u32) {
        let Some(lengths) = self.plan.streams.get(place as usize) else { return };
        for layout in &mut self.plan.layouts[lengths.layouts.clone()] {
            if let Some(mark) = &mut layout.trailer {
                mark.stream = number;
            }
        }
    }

    /// The most frames of a burst.
    pub fn room(&self) -> usize {
        self.held.len()
    }

    /// Where the frames are.
    pub fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Makes the frames of these runs, at most as many as there is room for. Descs are as it left them.
    pub fn make(&mut self, runs: &[Run], now: Nanos, descs: &mut [Desc]) {
        self.groups.arrange(runs, &self.plan);
        for (number, numbers, indices) in self.groups.iter() {
            let layout = &self.plan.layouts[number as usize];
            for index in indices {
                let held = &mut self.held[*index as usize];
                if *held != number {
                    *held = number;
                    let template = &self.plan.templates[layout.template.clone()];
                    let offset = *index as usize * self.stride;
                    copy(template, &mut self.memory[offset..offset + template.len()]);
                    descs[*index as usize] = Desc::new(now, offset as u32, layout.length);
                }
            }
            if indices.len() < FEW {
                for (number, index) in numbers.iter().zip(indices) {
                    let offset = *index as usize * self.stride;
                    let frame = &mut self.memory[offset..offset + self.stride + TAIL];
                    let sums = &mut self.sums[..layout.sums.len()];
                    let (plan, number) = (&self.plan, *number);
                    Row { plan, frame, number, time: now.0, key: self.key, sums }.write(layout);
                }
                continue;
            }
            let dense = indices.len() as u64 == u64::from(indices[indices.len() - 1] - indices[0]) + 1;
            let frames = Frames { numbers, indices, stride: self.stride, dense, time: now.0, key: self.key };
            self.columns.write(&self.plan, layout, frames, &mut self.memory);
        }
    }
}

/// Copies a template: a short one without a call.
fn copy(template: &[u8], place: &mut [u8]) {
    match (template.as_chunks::<GRAIN>().0, place.as_chunks_mut::<GRAIN>().0) {
        ([grain], [place]) => *place = *grain,
        _ => place.copy_from_slice(template),
    }
}
