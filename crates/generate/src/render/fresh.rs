//! Frames made when they are asked for.

use super::column::{Columns, FRAMES, Frames};
use super::groups::Groups;
use super::program::{GRAIN, Programs};
use crate::Slot;
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
            memory: vec![0; room * stride + TAIL],
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

    /// Makes the frames of these slots, at most as many as there is room for.
    pub fn make(&mut self, slots: &[Slot], now: Nanos, descs: &mut Vec<Desc>) {
        self.groups.arrange(slots, &self.programs, self.stride as u32);
        for (variant, numbers, at) in self.groups.iter() {
            let program = &self.programs.variants[variant];
            let template = self.programs.templates[program.template.clone()].as_chunks::<GRAIN>().0;
            for at in at {
                let held = &mut self.held[*at as usize / self.stride];
                if *held != variant as u32 {
                    *held = variant as u32;
                    let place = &mut self.memory[*at as usize..*at as usize + template.len() * GRAIN];
                    place.as_chunks_mut::<GRAIN>().0.copy_from_slice(template);
                }
            }
            let frames = Frames { numbers, at, time: now.0, key: self.key };
            self.columns.write(&self.programs, program, frames, &mut self.memory);
        }
        let lengths = self.groups.variants().iter().map(|variant| self.programs.variants[*variant as usize].length);
        let desc = |(index, length)| Desc::new(now, (index * self.stride) as u32, length);
        descs.extend(lengths.enumerate().map(desc));
    }
}
