//! From a set of streams to the instructions that send it.

mod schedule;

use super::emit::{self, Exits, MOST_MEMORY, Memory};
use super::index::{Index, SLOTS};
use super::shared_state::{LIMIT, MADE, OWN, STOP, at};
use super::write::Writer;
use crate::ebpf::{Assembler, Insn, JumpCondition, Label, Operand, Reg, Size, helper};
use linerate_generate::plan::Plan;
use linerate_generate::stream::StreamSet;
use linerate_generate::timeline::{Kind, Pace, Turns};
use linerate_generate::trailer::SEQUENCE_BITS;
use std::ops::Range;

/// Maximum number of streams of a program.
const MOST_STREAMS: usize = 64;
/// Due time of the next frame (time since boot), and its fraction in 2^-32 ns.
pub(super) const DUE: usize = OWN;
pub(super) const FRACTION: usize = OWN + 1;
/// Maximum lateness, in nanoseconds.
pub(super) const LATE_MAX: usize = OWN + 2;
/// Sum of all lateness, in nanoseconds.
pub(super) const LATE_SUM: usize = OWN + 3;
/// Stream of the next frame.
pub(super) const TURN: usize = OWN + 4;
/// Bytes of all frames made, if they differ in length.
pub(super) const BYTES: usize = OWN + 5;
/// Written by this process, for streams with commands: no frame due then or later is made.
pub(super) const UNTIL: usize = OWN + 6;
/// Written by this process: maximum lag that is caught up, in nanoseconds; a longer lag shifts the schedule.
pub(super) const BOUND: usize = OWN + 7;
/// Total shift of the schedule by that, in nanoseconds.
pub(super) const SHIFTED: usize = OWN + 8;
/// Frames that left later than [`LATE`](linerate_port::LATE) after they were due.
pub(super) const LATE_FRAMES: usize = OWN + 9;
/// Per stream: the streams after and before it in turn, ...
const AFTER: usize = OWN + 10;
const BEFORE: usize = AFTER + MOST_STREAMS;
/// ... frames made, ...
pub(super) const NUMBERS: usize = BEFORE + MOST_STREAMS;
/// ... of this pass, jumps made, frames of this burst.
const PASS: usize = NUMBERS + MOST_STREAMS;
const JUMPS: usize = PASS + MOST_STREAMS;
const BURST: usize = JUMPS + MOST_STREAMS;
/// Words from here on are allocated as needed, up to the offset that instructions can encode.
const FREE: usize = BURST + MOST_STREAMS;
const MOST_WORDS: usize = 4000;

/// A set of streams as a program.
pub(super) struct Program<'a> {
    set: &'a StreamSet,
    plan: Plan,
    pub turns: Turns,
    /// Length of the longest frame.
    pub longest: usize,
    /// Length of all frames, if they have the same.
    pub length: Option<usize>,
    /// Words in addition to the common ones.
    pub words: usize,
    /// Constant bytes that it reads.
    pub memory: Vec<u8>,
    /// Words that commands change, if prepared for commands.
    pub commanded: Option<CommandWords>,
}

/// Words that hold what is otherwise constant, for streams with commands. A program whose next frame is due at 0 does
/// not wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandWords {
    /// Per layout the gap after its frames: nanoseconds, and 2^-32 of them.
    pub gaps: usize,
    /// Per stream its number in trailers, if they have one.
    pub numbers: usize,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Maps {
    pub words: i32,
    /// The interface to send to.
    pub devmap: i32,
    pub memory: i32,
}

impl<'a> Program<'a> {
    /// Compiles a set.
    ///
    /// # Errors
    /// An invalid set, or a feature that programs do not support.
    pub(super) fn of(set: &'a StreamSet) -> Result<Self, String> {
        Program::with(set, false)
    }

    /// Compiles a set whose streams accept commands while they run.
    ///
    /// # Errors
    /// As for [`Program::of`].
    pub(super) fn commanded(set: &'a StreamSet) -> Result<Self, String> {
        Program::with(set, true)
    }

    fn with(set: &'a StreamSet, is_commanded: bool) -> Result<Self, String> {
        set.check().map_err(|wrong| wrong.to_string())?;
        if set.streams.len() > MOST_STREAMS {
            return Err(format!("{} streams; a program has at most {MOST_STREAMS}", set.streams.len()));
        }
        let (turns, plan) = (Turns::of(set)?, Plan::of(set));
        let lengths = || plan.layouts.iter().map(|layout| layout.length as usize);
        let longest = lengths().max().unwrap_or_default();
        let length = lengths().all(|length| length == longest).then_some(longest);
        let commanded = is_commanded.then(|| CommandWords { gaps: FREE, numbers: FREE + 2 * plan.layouts.len() });
        let mut program = Program { set, plan, turns, longest, length, words: 0, memory: Vec::new(), commanded };
        // Assembled once to find out the sizes of its maps.
        let (_, words, memory) = program.assemble(Maps::default())?;
        (program.words, program.memory) = (words, memory);
        Ok(program)
    }

    /// Returns the instructions for these maps.
    pub(super) fn instructions(&self, maps: Maps) -> Result<Vec<Insn>, String> {
        self.assemble(maps).map(|(instructions, ..)| instructions)
    }

    /// Returns the initial values of words that are not 0: (word, value).
    pub(super) fn initial(&self) -> Vec<(usize, u64)> {
        let (mut found, streams) = (vec![(LIMIT, self.turns.frames)], self.set.streams.len());
        // The first turn is that of stream 0.
        found.extend((0..streams).map(|index| (AFTER + index, ((index + 1) % streams) as u64)));
        found.extend((0..streams).map(|index| (BEFORE + index, ((index + streams - 1) % streams) as u64)));
        if let Some(commanded) = self.commanded {
            found.push((UNTIL, u64::MAX));
            found.extend(
                self.set.streams.iter().zip(commanded.numbers..).map(|(stream, word)| (word, number(stream.id))),
            );
            for (pace, lengths) in self.turns.paces.iter().zip(&self.plan.streams) {
                let layouts = lengths.layouts.clone();
                let gaps = layouts.map(|layout| (commanded.gap(layout), gap(pace, self.plan.layouts[layout].length)));
                found.extend(gaps.flat_map(|(word, (nanos, parts))| [(word, nanos), (word + 1, parts)]));
            }
        }
        found
    }

    /// Returns the layouts of each stream: the number of the first one, and their lengths.
    pub(super) fn layouts(&self) -> Vec<(usize, Vec<u32>)> {
        let lengths = |layouts: Range<usize>| self.plan.layouts[layouts].iter().map(|layout| layout.length).collect();
        self.plan.streams.iter().map(|of| (of.layouts.start, lengths(of.layouts.clone()))).collect()
    }

    /// Returns whether the set has only one stream, so that its number of frames is the total.
    pub(super) fn is_one(&self) -> bool {
        self.turns.kind == Kind::One
    }

    /// Returns the minimum time from one frame to the next, in nanoseconds.
    pub(super) fn least_gap(&self) -> u64 {
        let paces = self.turns.paces.iter().zip(&self.set.streams);
        let gaps = paces.flat_map(|(pace, stream)| {
            stream.variants.iter().map(|variant| pace.rate.nanos(1, variant.frame.len() as u64))
        });
        let by_round = self.turns.paces.iter().any(|pace| pace.by_round);
        gaps.min().unwrap_or_default() / if by_round { self.set.streams.len() as u64 } else { 1 }
    }

    /// Returns the instructions, the number of own words, and the constant bytes.
    fn assemble(&self, maps: Maps) -> Result<(Vec<Insn>, usize, Vec<u8>), String> {
        let (mut asm, mut words) = (Assembler::new(), FREE);
        if let Some(commanded) = self.commanded {
            words = commanded.numbers + self.set.streams.len();
        }
        let mut memory = Memory::new(maps.memory);
        let exits = emit::begin(&mut asm, maps.words);
        self.decide(&mut asm, &exits);
        emit::redirect(&mut asm, maps.devmap, &exits);
        let labels: Vec<Label> = self.set.streams.iter().map(|_| asm.label()).collect();
        if labels.len() > 1 {
            asm.load(Size::B8, Reg::R0, Reg::R7, at(TURN));
            choose(&mut asm, 0, &labels);
        }
        for (index, label) in labels.iter().enumerate() {
            asm.place(*label);
            let emitted = self.stream(&mut asm, index, &mut words, &mut memory, &exits);
            emitted.map_err(|reason| format!("stream {:?}: {reason}", self.set.streams[index].name))?;
        }
        emit::exits(&mut asm, &exits);
        if words > MOST_WORDS {
            return Err(format!("{words} words of counters; a program has at most {MOST_WORDS}"));
        }
        if memory.bytes.len() > MOST_MEMORY {
            return Err("tables are too large for a program".into());
        }
        let instructions = asm.finish().map_err(|error| error.to_string())?;
        Ok((instructions, words - OWN, memory.bytes))
    }

    /// Decides whether to make a frame now; leaves the number made so far and the time.
    fn decide(&self, asm: &mut Assembler, exits: &Exits) {
        asm.load(Size::B8, Reg::R1, Reg::R7, at(STOP));
        asm.jump_if(JumpCondition::Ne, Reg::R1, 0, exits.drop);
        asm.load(Size::B8, Reg::R8, Reg::R7, at(MADE));
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LIMIT));
        asm.jump_if(JumpCondition::Ge, Reg::R8, Reg::R1, exits.drop);
        let is_paced = self.turns.is_paced();
        let has_time = self.plan.layouts.iter().any(|layout| layout.trailer.is_some());
        let now = asm.label();
        if self.commanded.is_some() && !has_time {
            // Skip the clock if no frame waits for a time.
            asm.mov(Reg::R9, 0);
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(JumpCondition::Eq, Reg::R1, 0, now);
        }
        if is_paced || has_time || self.commanded.is_some() {
            asm.call(helper::KTIME);
            asm.mov(Reg::R9, Reg::R0);
        }
        if is_paced || self.commanded.is_some() {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(JumpCondition::Lt, Reg::R9, Reg::R1, exits.drop);
        }
        if self.commanded.is_some() {
            asm.load(Size::B8, Reg::R2, Reg::R7, at(UNTIL));
            asm.jump_if(JumpCondition::Ge, Reg::R1, Reg::R2, exits.drop);
        }
        asm.place(now);
    }

    /// Makes the next frame of a stream and sends it.
    fn stream(
        &self,
        asm: &mut Assembler,
        index: usize,
        words: &mut usize,
        memory: &mut Memory,
        exits: &Exits,
    ) -> Result<(), String> {
        let lengths = &self.plan.streams[index];
        if !self.is_one() || self.commanded.is_some() {
            asm.load(Size::B8, Reg::R8, Reg::R7, at(NUMBERS + index));
        }
        let (first, mut slots) = (lengths.selectors.start, 0);
        let selectors = self.plan.selectors[lengths.selectors.clone()].iter();
        let indices: Vec<Index> = selectors.map(|one| Index::of(one, words, &mut slots, memory)).collect();
        if slots > SLOTS {
            return Err(format!("{slots} random selectors in one stream; at most {SLOTS} are supported"));
        }
        indices.iter().for_each(|one| one.draw(asm, memory, exits.failed));
        let layouts = &self.plan.layouts[lengths.layouts.clone()];
        let (labels, made) = (layouts.iter().map(|_| asm.label()).collect::<Vec<_>>(), asm.label());
        if let Some(size) = lengths.size {
            indices[size - first].load(asm);
            choose(asm, 0, &labels);
        }
        let pace = &self.turns.paces[index];
        for (place, (label, layout)) in labels.iter().zip(layouts).enumerate() {
            asm.place(*label);
            let (plan, indices, key) = (&self.plan, &indices[..], self.set.key);
            let (longest, failed) = (self.longest, exits.failed);
            let (memory, number) = (&mut *memory, self.commanded.map(|commanded| commanded.numbers + index));
            Writer { plan, layout, indices, first, memory, longest, failed, key, number, most: [0; 4] }.write(asm)?;
            if self.length.is_none() {
                emit::add(asm, BYTES, layout.length as i32);
            }
            match self.commanded {
                Some(commanded) => {
                    let word = commanded.gap(lengths.layouts.start + place);
                    asm.load(Size::B8, Reg::R2, Reg::R7, at(word));
                    asm.load(Size::B8, Reg::R3, Reg::R7, at(word + 1));
                }
                None if pace.is_top() => {}
                None => {
                    let (nanos, parts) = gap(pace, layout.length);
                    asm.mov64(Reg::R2, nanos);
                    asm.mov64(Reg::R3, parts);
                }
            }
            if place + 1 < labels.len() {
                asm.jump(made);
            }
        }
        asm.place(made);
        indices.iter().for_each(|one| one.step(asm));
        self.turn(asm, index);
        self.advance(asm, index);
        match self.turns.kind {
            Kind::One if self.commanded.is_none() => emit::send(asm, Reg::R8),
            _ => {
                asm.load(Size::B8, Reg::R1, Reg::R7, at(MADE));
                emit::send(asm, Reg::R1);
            }
        }
        Ok(())
    }
}

impl CommandWords {
    /// Returns the first of the two words of a layout's gap.
    pub(super) fn gap(&self, layout: usize) -> usize {
        self.gaps + 2 * layout
    }
}

/// Returns the gap after a frame: nanoseconds, and 2^-32 of them.
pub(super) fn gap(pace: &Pace, length: u32) -> (u64, u64) {
    let nanos = pace.rate.exact_nanos(1, length.into());
    (nanos as u64, (nanos.fract() * 4_294_967_296.0) as u64)
}

/// Returns a stream's number in the form of trailers.
pub(super) fn number(id: u32) -> u64 {
    u64::from(id) << SEQUENCE_BITS
}

/// Jumps to the label whose number, from `first`, is in R0: binary search, so that many labels cost little.
fn choose(asm: &mut Assembler, first: usize, labels: &[Label]) {
    let (lower, upper) = labels.split_at(labels.len() / 2);
    match lower {
        [] => asm.jump(upper[0]),
        _ => {
            let above = asm.label();
            let middle = first + lower.len();
            asm.jump_if(JumpCondition::Ge, Reg::R0, middle as i32, above);
            choose(asm, first, lower);
            asm.place(above);
            choose(asm, middle, upper);
        }
    }
}

fn set(asm: &mut Assembler, word: usize, value: impl Into<Operand>) {
    asm.store(Size::B8, Reg::R7, at(word), value);
}
