//! Frames made on demand.

use super::column::{Columns, FRAMES, Frames};
use super::groups::Groups;
use super::row::Row;
use crate::Run;
use crate::plan::{GRAIN, Plan};
use crate::stream::StreamSet;
use crate::trailer::Key;
use linerate_burst::{Desc, Nanos, TAIL};

/// Makes frames in its memory, which has a slot for each frame of a burst.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    plan: Plan,
    key: Key,
    groups: Groups,
    columns: Columns,
    /// Checksums of a frame made by a [`Row`].
    sums: Vec<u64>,
    memory: Vec<u8>,
    stride: usize,
    /// Layout whose template is in each slot and need not be copied again.
    held: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// Maximum memory for the frames of a burst, in bytes: a part of a second-level cache.
const MEMORY: usize = 256 << 10;
/// Minimum number of frames in a burst, for any length.
const FEWEST: usize = 16;

/// Unused layouts are removed when they exceed the used ones by this number.
const SPARSE: usize = 1024;

/// Minimum number of frames of one layout that are made in columns.
const FEW: usize = 4;

impl Fresh {
    /// Creates the emitter of a set that was checked.
    pub(super) fn new(set: &StreamSet) -> Self {
        let plan = Plan::of(set);
        let room = (MEMORY / longest(&plan)).clamp(FEWEST, FRAMES);
        Fresh::of(plan, set.key, room)
    }

    /// Creates the emitter of a plan, for bursts of `room` frames, at most [`FRAMES`].
    pub(super) fn of(plan: Plan, key: Key, room: usize) -> Self {
        // Any frame may be the longest.
        let stride = longest(&plan);
        let sums = plan.layouts.iter().map(|layout| layout.sums.len()).max().unwrap_or(0);
        Fresh {
            key,
            groups: Groups::new(plan.layouts.len()),
            columns: Columns::new(sums),
            sums: vec![0; sums],
            // One more slot, so that accesses that begin in the last slot stay in the memory.
            memory: vec![0; (room + 1) * stride + TAIL],
            stride,
            held: vec![NONE; room],
            plan,
        }
    }

    /// Adds streams at these places, replacing those there; trailers use this key from now on. Frames made before must
    /// have been consumed.
    pub(super) fn receive(&mut self, places: impl Iterator<Item = usize>, batch: &Plan, key: Key) {
        self.key = key;
        for (place, stream) in places.zip(&batch.streams) {
            self.plan.put(place, batch, stream);
        }
        let present: usize = self.plan.streams.iter().map(|stream| stream.layouts.len()).sum();
        let is_sparse = self.plan.layouts.len() > 2 * present + SPARSE;
        let plan = if is_sparse { packed(&self.plan) } else { std::mem::take(&mut self.plan) };
        let stride = longest(&plan);
        let sums = plan.layouts.iter().map(|layout| layout.sums.len()).max().unwrap_or(0);
        if is_sparse || stride > self.stride || sums > self.sums.len() {
            *self = Fresh::of(plan, self.key, self.room());
        } else {
            self.groups.resize(plan.layouts.len());
            self.plan = plan;
        }
    }

    /// Sets the stream number in trailers of the stream at a place.
    pub(super) fn renumber(&mut self, place: u32, number: u32) {
        let Some(lengths) = self.plan.streams.get(place as usize) else { return };
        for layout in &mut self.plan.layouts[lengths.layouts.clone()] {
            if let Some(mark) = &mut layout.trailer {
                mark.stream = number;
            }
        }
    }

    /// Returns the maximum number of frames per burst.
    pub(super) fn room(&self) -> usize {
        self.held.len()
    }

    /// Returns the memory of the frames.
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Makes the frames of these runs, at most one burst. `descs` must be unchanged since the last call.
    pub(super) fn make(&mut self, runs: &[Run], now: Nanos, descs: &mut [Desc]) {
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

/// Returns the length of the longest template in bytes.
fn longest(plan: &Plan) -> usize {
    plan.layouts.iter().map(|layout| layout.template.len()).max().unwrap_or(GRAIN)
}

/// Returns the plan without parts that belong to no stream.
fn packed(plan: &Plan) -> Plan {
    let mut packed = Plan::default();
    for (place, stream) in plan.streams.iter().enumerate() {
        packed.put(place, plan, stream);
    }
    packed
}

/// Copies a template; short ones inline.
fn copy(template: &[u8], place: &mut [u8]) {
    match (template.as_chunks::<GRAIN>().0, place.as_chunks_mut::<GRAIN>().0) {
        ([grain], [place]) => *place = *grain,
        _ => place.copy_from_slice(template),
    }
}
