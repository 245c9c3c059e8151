//! Frames made when they are asked for.

use super::column::{Columns, FRAMES, Frames};
use super::groups::Groups;
use super::program::{GRAIN, Programs};
use super::row::Row;
use crate::Run;
use crate::stream::StreamSet;
use crate::trailer::Key;
use linerate_burst::{Desc, Nanos, TAIL};

/// Makes frames in its memory, which has a place for each frame of a burst.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    programs: Programs,
    key: Key,
    groups: Groups,
    columns: Columns,
    /// Of each checksum of a frame made alone.
    sums: Vec<u64>,
    memory: Vec<u8>,
    stride: usize,
    /// The variant whose frame lies at each place: its template need not be copied there again.
    held: Vec<u32>,
}

/// No variant.
const NONE: u32 = u32::MAX;
/// Memory that the frames of a burst may take, in bytes: a part of a second-level cache.
const MEMORY: usize = 256 << 10;
/// The fewest frames of a burst, however long they are.
const FEWEST: usize = 16;

/// From so many frames of one variant on they are made in columns.
const FEW: usize = 4;

impl Fresh {
    /// Of a set that was checked.
    pub fn new(set: &StreamSet) -> Self {
        let programs = Programs::of(set);
        let stride = programs.stride();
        let room = (MEMORY / stride).clamp(FEWEST, FRAMES);
        Fresh {
            key: set.key,
            groups: Groups::new(programs.variants.len()),
            columns: Columns::new(programs.most_sums()),
            sums: vec![0; programs.most_sums()],
            // One place more, so that what begins within the last one reaches as far as elsewhere.
            memory: vec![0; (room + 1) * stride + TAIL],
            stride,
            held: vec![NONE; room],
            programs,
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
        self.groups.arrange(runs, &self.programs);
        for (variant, numbers, indices) in self.groups.iter() {
            let program = &self.programs.variants[variant as usize];
            for index in indices {
                let held = &mut self.held[*index as usize];
                if *held != variant {
                    *held = variant;
                    let template = &self.programs.templates[program.template.clone()];
                    let offset = *index as usize * self.stride;
                    copy(template, &mut self.memory[offset..offset + template.len()]);
                    descs[*index as usize] = Desc::new(now, offset as u32, program.length);
                }
            }
            if indices.len() < FEW {
                for (number, index) in numbers.iter().zip(indices) {
                    let offset = *index as usize * self.stride;
                    let frame = &mut self.memory[offset..offset + self.stride + TAIL];
                    let sums = &mut self.sums[..program.sums.len()];
                    let (programs, number) = (&self.programs, *number);
                    Row { programs, frame, number, time: now.0, key: self.key, sums }.write(program);
                }
                continue;
            }
            let dense = indices.len() as u64 == u64::from(indices[indices.len() - 1] - indices[0]) + 1;
            let frames = Frames { numbers, indices, stride: self.stride, dense, time: now.0, key: self.key };
            self.columns.write(&self.programs, program, frames, &mut self.memory);
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
