//! From a set of streams to the instructions that send it.

mod follow;

use super::emit::{self, Exits, MOST_MEMORY, Memory};
use super::index::{Index, SLOTS};
use super::words::{LIMIT, MADE, OWN, STOP, at};
use super::write::Writer;
use crate::ebpf::{Assembler, Insn, Label, Reg, Size, Value, When, helper};
use linerate_generate::plan::Plan;
use linerate_generate::stream::StreamSet;
use linerate_generate::timeline::{Kind, Pace, Turns};
use linerate_generate::trailer::SEQUENCE_BITS;
use std::ops::Range;

/// Streams of one program.
const MOST_STREAMS: usize = 64;
/// When the next frame is due (time since boot), and 2^-32 ns beyond.
pub(super) const DUE: usize = OWN;
pub(super) const FRACTION: usize = OWN + 1;
/// The longest lateness, in nanoseconds.
pub(super) const LATE_MAX: usize = OWN + 2;
/// The sum of all.
pub(super) const LATE_SUM: usize = OWN + 3;
/// Which stream the next frame is of.
pub(super) const TURN: usize = OWN + 4;
/// Bytes of all frames made, where they differ in length.
pub(super) const BYTES: usize = OWN + 5;
/// Written by this process, where streams are told something: nothing is made that is due then or later.
pub(super) const UNTIL: usize = OWN + 6;
/// Written by this process: how far behind its schedule it catches up, in nanoseconds; what goes beyond is due later.
pub(super) const BOUND: usize = OWN + 7;
/// How much later all became due by that, in nanoseconds.
pub(super) const SHIFTED: usize = OWN + 8;
/// Frames that left later than [`LATE`](linerate_port::LATE) after they were due.
pub(super) const LATE_FRAMES: usize = OWN + 9;
/// Of each stream: who has the turn after and before it, ...
const AFTER: usize = OWN + 10;
const BEFORE: usize = AFTER + MOST_STREAMS;
/// ... frames made, ...
pub(super) const NUMBERS: usize = BEFORE + MOST_STREAMS;
/// ... of this pass, jumps made, frames of this burst.
const PASS: usize = NUMBERS + MOST_STREAMS;
const JUMPS: usize = PASS + MOST_STREAMS;
const BURST: usize = JUMPS + MOST_STREAMS;
/// From here on words are taken as they are needed, as far as instructions can name them.
const FREE: usize = BURST + MOST_STREAMS;
const MOST_WORDS: usize = 4000;

/// A set of streams as a program.
pub(super) struct Program<'a> {
    set: &'a StreamSet,
    plan: Plan,
    pub turns: Turns,
    /// Of the longest frame.
    pub longest: usize,
    /// The length of all frames, if they have the same.
    pub length: Option<usize>,
    /// Words beside the common ones.
    pub words: usize,
    /// What it reads.
    pub memory: Vec<u8>,
    /// Where streams may be told something.
    pub told: Option<Places>,
}

/// Where words lie that say what is constant where streams are told nothing. A program whose next frame is due at 0 waits for no time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// Of each layout the gap behind its frames: nanoseconds, and 2^-32 of them.
    pub gaps: usize,
    /// Of each stream its number in trailers, where it stands there.
    pub numbers: usize,
}

/// The maps of a program.
#[derive(Clone, Copy, Default)]
pub(super) struct Maps {
    pub words: i32,
    /// The interface to send to.
    pub devmap: i32,
    pub memory: i32,
}

impl<'a> Program<'a> {
    /// Of a set.
    ///
    /// # Errors
    /// What is wrong with it, and what programs cannot do.
    pub(super) fn of(set: &'a StreamSet) -> Result<Self, String> {
        Program::with(set, false)
    }

    /// Of a set whose streams may be told something while they run.
    ///
    /// # Errors
    /// As above.
    pub(super) fn told(set: &'a StreamSet) -> Result<Self, String> {
        Program::with(set, true)
    }

    fn with(set: &'a StreamSet, is_told: bool) -> Result<Self, String> {
        set.check().map_err(|wrong| wrong.to_string())?;
        if set.streams.len() > MOST_STREAMS {
            return Err(format!("{} streams, where a program has {MOST_STREAMS} at most", set.streams.len()));
        }
        let (turns, plan) = (Turns::of(set)?, Plan::of(set));
        let lengths = || plan.layouts.iter().map(|layout| layout.length as usize);
        let longest = lengths().max().unwrap_or_default();
        let length = lengths().all(|length| length == longest).then_some(longest);
        let told = is_told.then(|| Places { gaps: FREE, numbers: FREE + 2 * plan.layouts.len() });
        let mut program = Program { set, plan, turns, longest, length, words: 0, memory: Vec::new(), told };
        // Put together once to know what maps it needs.
        let (_, words, memory) = program.assemble(Maps::default())?;
        (program.words, program.memory) = (words, memory);
        Ok(program)
    }

    /// The instructions, for these maps.
    pub(super) fn instructions(&self, maps: Maps) -> Result<Vec<Insn>, String> {
        self.assemble(maps).map(|(instructions, ..)| instructions)
    }

    /// What words begin with: (word, value), where that is not 0.
    pub(super) fn initial(&self) -> Vec<(usize, u64)> {
        let (mut found, streams) = (vec![(LIMIT, self.turns.frames)], self.set.streams.len());
        // The first turn is that of stream 0.
        found.extend((0..streams).map(|index| (AFTER + index, ((index + 1) % streams) as u64)));
        found.extend((0..streams).map(|index| (BEFORE + index, ((index + streams - 1) % streams) as u64)));
        if let Some(told) = self.told {
            found.push((UNTIL, u64::MAX));
            found.extend(self.set.streams.iter().zip(told.numbers..).map(|(stream, word)| (word, number(stream.id))));
            for (pace, lengths) in self.turns.paces.iter().zip(&self.plan.streams) {
                let layouts = lengths.layouts.clone();
                let gaps = layouts.map(|layout| (told.gap(layout), gap(pace, self.plan.layouts[layout].length)));
                found.extend(gaps.flat_map(|(word, (nanos, parts))| [(word, nanos), (word + 1, parts)]));
            }
        }
        found
    }

    /// The layouts of each stream: the number of the first one, and their lengths.
    pub(super) fn layouts(&self) -> Vec<(usize, Vec<u32>)> {
        let lengths = |layouts: Range<usize>| self.plan.layouts[layouts].iter().map(|layout| layout.length).collect();
        self.plan.streams.iter().map(|of| (of.layouts.start, lengths(of.layouts.clone()))).collect()
    }

    /// Whether there is one stream, whose frames are all that are made.
    pub(super) fn is_one(&self) -> bool {
        self.turns.kind == Kind::One
    }

    /// The least time from one frame to the next, in nanoseconds.
    pub(super) fn least_gap(&self) -> u64 {
        let paces = self.turns.paces.iter().zip(&self.set.streams);
        let gaps = paces.flat_map(|(pace, stream)| {
            stream.variants.iter().map(|variant| pace.rate.nanos(1, variant.frame.len() as u64))
        });
        let by_round = self.turns.paces.iter().any(|pace| pace.by_round);
        gaps.min().unwrap_or_default() / if by_round { self.set.streams.len() as u64 } else { 1 }
    }

    /// Instructions, how many words of its own they use, and the bytes that they read.
    fn assemble(&self, maps: Maps) -> Result<(Vec<Insn>, usize, Vec<u8>), String> {
        let (mut asm, mut words) = (Assembler::new(), FREE);
        if let Some(told) = self.told {
            words = told.numbers + self.set.streams.len();
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
            return Err(format!("counters of {words} words, where a program has {MOST_WORDS}"));
        }
        if memory.bytes.len() > MOST_MEMORY {
            return Err("tables that are too large for a program".into());
        }
        let instructions = asm.finish().map_err(|error| error.to_string())?;
        Ok((instructions, words - OWN, memory.bytes))
    }

    /// Whether a frame is to be made now; leaves the number made so far and the time.
    fn decide(&self, asm: &mut Assembler, exits: &Exits) {
        asm.load(Size::B8, Reg::R1, Reg::R7, at(STOP));
        asm.jump_if(When::Ne, Reg::R1, 0, exits.drop);
        asm.load(Size::B8, Reg::R8, Reg::R7, at(MADE));
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LIMIT));
        asm.jump_if(When::Ge, Reg::R8, Reg::R1, exits.drop);
        let is_paced = self.turns.is_paced();
        let has_time = self.plan.layouts.iter().any(|layout| layout.trailer.is_some());
        let now = asm.label();
        if self.told.is_some() && !has_time {
            // Whoever waits for no time asks for none.
            asm.mov(Reg::R9, 0);
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(When::Eq, Reg::R1, 0, now);
        }
        if is_paced || has_time || self.told.is_some() {
            asm.call(helper::KTIME);
            asm.mov(Reg::R9, Reg::R0);
        }
        if is_paced || self.told.is_some() {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(When::Lt, Reg::R9, Reg::R1, exits.drop);
        }
        if self.told.is_some() {
            asm.load(Size::B8, Reg::R2, Reg::R7, at(UNTIL));
            asm.jump_if(When::Ge, Reg::R1, Reg::R2, exits.drop);
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
        if !self.is_one() || self.told.is_some() {
            asm.load(Size::B8, Reg::R8, Reg::R7, at(NUMBERS + index));
        }
        let (first, mut slots) = (lengths.selectors.start, 0);
        let selectors = self.plan.selectors[lengths.selectors.clone()].iter();
        let indices: Vec<Index> = selectors.map(|one| Index::of(one, words, &mut slots, memory)).collect();
        if slots > SLOTS {
            return Err(format!("{slots} random selectors in one stream, {SLOTS} at most"));
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
            let (memory, number) = (&mut *memory, self.told.map(|told| told.numbers + index));
            Writer { plan, layout, indices, first, memory, longest, failed, key, number, most: [0; 4] }.write(asm)?;
            if self.length.is_none() {
                emit::add(asm, BYTES, layout.length as i32);
            }
            match self.told {
                Some(told) => {
                    let word = told.gap(lengths.layouts.start + place);
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
            Kind::One if self.told.is_none() => emit::send(asm, Reg::R8),
            _ => {
                asm.load(Size::B8, Reg::R1, Reg::R7, at(MADE));
                emit::send(asm, Reg::R1);
            }
        }
        Ok(())
    }
}

impl Places {
    /// The first of the two words of a layout's gap.
    pub(super) fn gap(&self, layout: usize) -> usize {
        self.gaps + 2 * layout
    }
}

/// The gap behind a frame: nanoseconds, and 2^-32 of them.
pub(super) fn gap(pace: &Pace, length: u32) -> (u64, u64) {
    let nanos = pace.rate.exact_nanos(1, length.into());
    (nanos as u64, (nanos.fract() * 4_294_967_296.0) as u64)
}

/// A stream's number as it stands in trailers.
pub(super) fn number(id: u32) -> u64 {
    u64::from(id) << SEQUENCE_BITS
}

/// Jumps to the label whose number, from `first`, is in R0: halving, so that many cost little.
fn choose(asm: &mut Assembler, first: usize, labels: &[Label]) {
    let (lower, upper) = labels.split_at(labels.len() / 2);
    match lower {
        [] => asm.jump(upper[0]),
        _ => {
            let above = asm.label();
            let middle = first + lower.len();
            asm.jump_if(When::Ge, Reg::R0, middle as i32, above);
            choose(asm, first, lower);
            asm.place(above);
            choose(asm, middle, upper);
        }
    }
}

/// Sets a word.
fn set(asm: &mut Assembler, word: usize, value: impl Into<Value>) {
    asm.store(Size::B8, Reg::R7, at(word), value);
}
