//! From a set of streams to the instructions that send it.

use super::emit::{self, Exits, MOST_MEMORY, Memory};
use super::index::{Index, SLOTS, count_up};
use super::words::{LIMIT, MADE, OWN, STOP, at};
use super::write::Writer;
use crate::ebpf::{Alu, Assembler, Insn, Label, Reg, Size, Value, When, helper};
use linerate_generate::plan::Plan;
use linerate_generate::stream::{Next, StreamSet};
use linerate_generate::timeline::{Kind, Pace, Turns};

/// Streams of one program.
const MOST_STREAMS: usize = 64;
/// When the next frame is due (time since boot), and 2^-32 ns beyond.
pub const DUE: usize = OWN;
const FRACTION: usize = OWN + 1;
/// The longest lateness, in nanoseconds.
pub const LATE_MAX: usize = OWN + 2;
/// The sum of all.
pub const LATE_SUM: usize = OWN + 3;
/// Which stream the next frame is of.
const TURN: usize = OWN + 4;
/// Bytes of all frames made, where they differ in length.
pub const BYTES: usize = OWN + 5;
/// Of each stream: who has the turn after and before it, ...
const AFTER: usize = OWN + 6;
const BEFORE: usize = AFTER + MOST_STREAMS;
/// ... frames made, ...
pub const NUMBERS: usize = BEFORE + MOST_STREAMS;
/// ... of this pass, jumps made, frames of this burst.
const PASS: usize = NUMBERS + MOST_STREAMS;
const JUMPS: usize = PASS + MOST_STREAMS;
const BURST: usize = JUMPS + MOST_STREAMS;
/// From here on words are taken as they are needed, as far as instructions can name them.
const FREE: usize = BURST + MOST_STREAMS;
const MOST_WORDS: usize = 4000;

/// A set of streams as a program.
pub struct Program<'a> {
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
}

/// The maps of a program.
#[derive(Clone, Copy, Default)]
pub struct Maps {
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
    pub fn of(set: &'a StreamSet) -> Result<Self, String> {
        set.check().map_err(|wrong| wrong.to_string())?;
        if set.streams.len() > MOST_STREAMS {
            return Err(format!("{} streams, where a program has {MOST_STREAMS} at most", set.streams.len()));
        }
        let (turns, plan) = (Turns::of(set)?, Plan::of(set));
        let lengths = || plan.layouts.iter().map(|layout| layout.length as usize);
        let longest = lengths().max().unwrap_or_default();
        let length = lengths().all(|length| length == longest).then_some(longest);
        let mut program = Program { set, plan, turns, longest, length, words: 0, memory: Vec::new() };
        // Put together once to know what maps it needs.
        let (_, words, memory) = program.assemble(Maps::default())?;
        (program.words, program.memory) = (words, memory);
        Ok(program)
    }

    /// The instructions, for these maps.
    pub fn instructions(&self, maps: Maps) -> Result<Vec<Insn>, String> {
        self.assemble(maps).map(|(instructions, ..)| instructions)
    }

    /// What words begin with: (word, value), where that is not 0.
    pub fn initial(&self) -> Vec<(usize, u64)> {
        let (mut found, streams) = (vec![(LIMIT, self.turns.frames)], self.set.streams.len());
        // The first turn is that of stream 0.
        found.extend((0..streams).map(|index| (AFTER + index, ((index + 1) % streams) as u64)));
        found.extend((0..streams).map(|index| (BEFORE + index, ((index + streams - 1) % streams) as u64)));
        found
    }

    /// Whether there is one stream, whose frames are all that are made.
    pub fn is_one(&self) -> bool {
        self.turns.kind == Kind::One
    }

    /// The least time from one frame to the next, in nanoseconds.
    pub fn least_gap(&self) -> u64 {
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
        if is_paced || has_time {
            asm.call(helper::KTIME);
            asm.mov(Reg::R9, Reg::R0);
        }
        if is_paced {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(When::Lt, Reg::R9, Reg::R1, exits.drop);
        }
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
        if !self.is_one() {
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
            let memory = &mut *memory;
            Writer { plan, layout, indices, first, memory, longest, failed, key, most: [0; 4] }.write(asm)?;
            if self.length.is_none() {
                emit::add(asm, BYTES, layout.length as i32);
            }
            if !pace.is_top() {
                load_gap(asm, pace, layout.length);
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
            Kind::One => emit::send(asm, Reg::R8),
            _ => {
                asm.load(Size::B8, Reg::R1, Reg::R7, at(MADE));
                emit::send(asm, Reg::R1);
            }
        }
        Ok(())
    }

    /// Whose turn is next. Uses R0, R1, R4 and R5.
    fn turn(&self, asm: &mut Assembler, index: usize) {
        if self.is_one() {
            return;
        }
        asm.alu(Alu::Add, Reg::R8, 1);
        set(asm, NUMBERS + index, Reg::R8);
        match self.turns.kind {
            Kind::One => {}
            Kind::Round => {
                asm.load(Size::B8, Reg::R0, Reg::R7, at(AFTER + index));
                set(asm, TURN, Reg::R0);
                if let Some(count) = self.set.streams[index].count {
                    leave(asm, index, count);
                }
            }
            Kind::Sequence => self.follow(asm, index),
        }
    }

    /// Behind the last frame of a pass another stream follows, or nothing. Uses R0 and R1.
    fn follow(&self, asm: &mut Assembler, index: usize) {
        let stream = &self.set.streams[index];
        let Some(count) = stream.count else { return };
        let (goes, done) = (asm.label(), asm.label());
        count_up(asm, PASS + index, count, done);
        let behind = |asm: &mut Assembler| match index + 1 {
            next if next < self.set.streams.len() && stream.next != Next::Stop => set(asm, TURN, next as i32),
            _ => {
                asm.load(Size::B8, Reg::R0, Reg::R7, at(MADE));
                asm.alu(Alu::Add, Reg::R0, 1);
                set(asm, LIMIT, Reg::R0);
            }
        };
        match stream.next {
            Next::Goto { stream: to, times } => {
                if let Some(times) = times {
                    count_up(asm, JUMPS + index, times.wrapping_add(1), goes);
                    behind(asm);
                    asm.jump(done);
                }
                asm.place(goes);
                set(asm, TURN, to as i32);
            }
            Next::Following | Next::Stop => behind(asm),
        }
        asm.place(done);
    }

    /// When the next frame is due, R2 and R3 being the gap. Uses R0, R1, R4 and R9.
    fn advance(&self, asm: &mut Assembler, index: usize) {
        let pace = &self.turns.paces[index];
        if !self.turns.is_paced() {
            return;
        }
        if pace.is_top() {
            set(asm, DUE, Reg::R9);
            return set(asm, FRACTION, 0);
        }
        if pace.by_round {
            let ends = asm.label();
            asm.load(Size::B8, Reg::R0, Reg::R7, at(TURN));
            asm.jump_if(When::Le, Reg::R0, index as i32, ends);
            asm.mov(Reg::R2, 0);
            asm.mov(Reg::R3, 0);
            asm.place(ends);
        }
        if let Some((frames, gap)) = pace.burst {
            let within = asm.label();
            count_up(asm, BURST + index, frames, within);
            emit::add_constant(asm, Reg::R2, gap, Reg::R1);
            asm.place(within);
        }
        asm.load(Size::B8, Reg::R4, Reg::R7, at(DUE));
        asm.alu(Alu::Sub, Reg::R9, Reg::R4);
        emit::add(asm, LATE_SUM, Reg::R9);
        let less = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LATE_MAX));
        asm.jump_if(When::Le, Reg::R9, Reg::R1, less);
        set(asm, LATE_MAX, Reg::R9);
        asm.place(less);
        asm.load(Size::B8, Reg::R1, Reg::R7, at(FRACTION));
        asm.alu(Alu::Add, Reg::R1, Reg::R3);
        asm.alu32(Alu::Mov, Reg::R3, Reg::R1);
        set(asm, FRACTION, Reg::R3);
        asm.alu(Alu::Rsh, Reg::R1, 32);
        asm.alu(Alu::Add, Reg::R4, Reg::R1);
        asm.alu(Alu::Add, Reg::R4, Reg::R2);
        set(asm, DUE, Reg::R4);
    }
}

/// Leaves the gap behind a frame in R2 (nanoseconds) and R3 (2^-32 of them).
fn load_gap(asm: &mut Assembler, pace: &Pace, length: u32) {
    let nanos = pace.rate.exact_nanos(1, length.into());
    asm.mov64(Reg::R2, nanos as u64);
    asm.mov64(Reg::R3, (nanos.fract() * 4_294_967_296.0) as u64);
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

/// A stream that has sent its frames takes no more turns. Uses R0, R1, R4 and R5.
fn leave(asm: &mut Assembler, index: usize, count: u64) {
    let stays = asm.label();
    asm.mov64(Reg::R1, count);
    asm.jump_if(When::Lt, Reg::R8, Reg::R1, stays);
    asm.load(Size::B8, Reg::R1, Reg::R7, at(BEFORE + index));
    for (of, word, value) in [(Reg::R1, AFTER, Reg::R0), (Reg::R0, BEFORE, Reg::R1)] {
        asm.mov(Reg::R4, of);
        asm.alu(Alu::And, Reg::R4, MOST_STREAMS as i32 - 1);
        asm.alu(Alu::Lsh, Reg::R4, 3);
        asm.mov(Reg::R5, Reg::R7);
        asm.alu(Alu::Add, Reg::R5, Reg::R4);
        asm.store(Size::B8, Reg::R5, at(word), value);
    }
    asm.place(stays);
}

/// Sets a word.
fn set(asm: &mut Assembler, word: usize, value: impl Into<Value>) {
    asm.store(Size::B8, Reg::R7, at(word), value);
}
