//! From a set of streams to the instructions that send it.

use super::emit::{self, Exits};
use super::memory::Memory;
use super::selectors::Selectors;
use super::shape::Shape;
use super::term::{MOST_FRAMES, most};
use super::turns::{Kind, MOST_STREAMS, Pace, Turns};
use super::words::{LIMIT, MADE, OWN, STOP, at};
use super::write::{Common, Writer};
use crate::ebpf::{Alu, Assembler, Insn, Label, Reg, Size, TooFar, When, helper};
use linerate_generate::stream::{Next, Selector, Stream, StreamSet};
use linerate_generate::trailer::Key;

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
/// ... frames left in this pass, jumps left, frames of this burst.
const LEFT: usize = NUMBERS + MOST_STREAMS;
const TIMES: usize = LEFT + MOST_STREAMS;
const BURST: usize = TIMES + MOST_STREAMS;
/// From here on words are taken as they are needed, as far as instructions can name them.
const FREE: usize = BURST + MOST_STREAMS;
const MOST_WORDS: usize = 4000;

/// What a set of streams becomes.
#[derive(Debug)]
pub struct Layout {
    streams: Vec<Program>,
    pub turns: Turns,
    /// Words beside the common ones.
    pub words: usize,
    pub memory: Memory,
    /// Of the longest frame.
    pub longest: usize,
    /// The length of all frames, if they have the same.
    pub length: Option<usize>,
    has_time: bool,
    key: Key,
}

/// What one stream becomes.
#[derive(Debug)]
struct Program {
    id: u32,
    count: Option<u64>,
    next: Next,
    selectors: Selectors,
    /// The number of the selector that picks the variant.
    size: usize,
    writers: Vec<Writer>,
}

impl Layout {
    /// Of a set.
    ///
    /// # Errors
    /// What programs cannot do.
    pub fn of(set: &StreamSet) -> Result<Self, String> {
        let turns = Turns::of(set)?;
        let (mut memory, mut words) = (Memory::default(), FREE);
        let mut streams = Vec::with_capacity(set.streams.len());
        for stream in &set.streams {
            let program = Program::of(stream, turns.most_of(stream, set), &mut words, &mut memory);
            streams.push(program.map_err(|reason| format!("stream {:?}: {reason}", stream.name))?);
        }
        if words > MOST_WORDS {
            return Err(format!("counters of {words} words, where a program has {MOST_WORDS}"));
        }
        if memory.is_over() {
            return Err("tables that are too large for a program".into());
        }
        let mut lengths = streams.iter().flat_map(|stream| &stream.writers).map(Writer::length);
        let longest = lengths.clone().max().unwrap_or_default();
        let length = lengths.all(|length| length == longest).then_some(longest);
        let has_time = streams.iter().flat_map(|stream| &stream.writers).any(Writer::has_time);
        Ok(Layout { streams, turns, words: words - OWN, memory, longest, length, has_time, key: set.key })
    }

    /// What words begin with: (word, value), where that is not 0.
    pub fn initial(&self) -> Vec<(usize, u64)> {
        let mut found = vec![(LIMIT, self.turns.limit)];
        for (index, stream) in self.streams.iter().enumerate() {
            found.push((LEFT + index, stream.count.unwrap_or(u64::MAX)));
            if let Next::Goto { times: Some(times), .. } = stream.next {
                found.push((TIMES + index, times));
            }
        }
        let takes_turns = |index: &usize| self.streams[*index].count != Some(0);
        let ring: Vec<usize> = (0..self.streams.len()).filter(takes_turns).collect();
        for (place, index) in ring.iter().enumerate() {
            let next = ring[(place + 1) % ring.len()];
            found.extend([(AFTER + index, next as u64), (BEFORE + next, *index as u64)]);
        }
        if matches!(self.turns.kind, Kind::Round { .. }) {
            found.push((TURN, ring.first().copied().unwrap_or_default() as u64));
        }
        found
    }

    /// Whether there is one stream.
    fn is_one(&self) -> bool {
        self.turns.kind == Kind::One
    }

    /// The least time from one frame to the next, in nanoseconds.
    pub fn least_gap(&self) -> u64 {
        let gaps =
            self.streams.iter().zip(&self.turns.paces).flat_map(|(stream, pace)| {
                stream.writers.iter().map(|writer| pace.rate.nanos(1, writer.length() as u64))
            });
        let by_round = self.turns.paces.iter().any(|pace| pace.by_round);
        gaps.min().unwrap_or_default() / if by_round { self.streams.len() as u64 } else { 1 }
    }

    /// The program, for these maps: words, interface to send to, memory.
    pub fn program(&self, words: i32, devmap: i32, memory: i32) -> Result<Vec<Insn>, TooFar> {
        let mut asm = Assembler::new();
        let exits = emit::begin(&mut asm, words);
        self.decide(&mut asm, &exits);
        emit::redirect(&mut asm, devmap, &exits);
        let labels: Vec<Label> = self.streams.iter().map(|_| asm.label()).collect();
        if labels.len() > 1 {
            asm.load(Size::B8, Reg::R0, Reg::R7, at(TURN));
            choose(&mut asm, 0, &labels);
        }
        for (index, label) in labels.iter().enumerate() {
            asm.place(*label);
            self.stream(&mut asm, index, memory, &exits);
        }
        emit::exits(&mut asm, &exits);
        asm.finish()
    }

    /// Whether a frame is to be made now; leaves the number made so far and the time.
    fn decide(&self, asm: &mut Assembler, exits: &Exits) {
        asm.load(Size::B8, Reg::R1, Reg::R7, at(STOP));
        asm.jump_if(When::Ne, Reg::R1, 0, exits.drop);
        asm.load(Size::B8, Reg::R8, Reg::R7, at(MADE));
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LIMIT));
        asm.jump_if(When::Ge, Reg::R8, Reg::R1, exits.drop);
        let is_paced = self.turns.is_paced();
        if is_paced || self.has_time {
            asm.call(helper::KTIME);
            asm.mov(Reg::R9, Reg::R0);
        }
        if is_paced {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(When::Lt, Reg::R9, Reg::R1, exits.drop);
        }
    }

    /// Makes the next frame of a stream and sends it.
    fn stream(&self, asm: &mut Assembler, index: usize, memory: i32, exits: &Exits) {
        let stream = &self.streams[index];
        if !self.is_one() {
            asm.load(Size::B8, Reg::R8, Reg::R7, at(NUMBERS + index));
        }
        stream.selectors.draw(asm, memory, exits.failed);
        let common = Common {
            selectors: &stream.selectors,
            memory,
            longest: self.longest,
            failed: exits.failed,
            id: stream.id,
            key: self.key,
        };
        let (labels, made) = (stream.writers.iter().map(|_| asm.label()).collect::<Vec<_>>(), asm.label());
        if labels.len() > 1 {
            stream.selectors.index(asm, stream.size, (1, 0));
            choose(asm, 0, &labels);
        }
        let pace = &self.turns.paces[index];
        for (place, (label, writer)) in labels.iter().zip(&stream.writers).enumerate() {
            asm.place(*label);
            writer.write(asm, &common);
            if self.length.is_none() {
                emit::add(asm, BYTES, writer.length() as i32);
            }
            if !pace.is_top() {
                pace.load_gap(asm, writer.length());
            }
            if place + 1 < labels.len() {
                asm.jump(made);
            }
        }
        asm.place(made);
        stream.selectors.step(asm);
        self.turn(asm, index);
        self.advance(asm, index);
        match self.turns.kind {
            Kind::One => emit::send(asm, Reg::R8),
            _ => {
                asm.load(Size::B8, Reg::R1, Reg::R7, at(MADE));
                emit::send(asm, Reg::R1);
            }
        }
    }

    /// Whose turn is next. Uses R0, R1, R4 and R5.
    fn turn(&self, asm: &mut Assembler, index: usize) {
        if self.is_one() {
            return;
        }
        asm.alu(Alu::Add, Reg::R8, 1);
        asm.store(Size::B8, Reg::R7, at(NUMBERS + index), Reg::R8);
        match self.turns.kind {
            Kind::One => {}
            Kind::Round { same: true } => {
                asm.store(Size::B8, Reg::R7, at(TURN), ((index + 1) % self.streams.len()) as i32);
            }
            Kind::Round { same: false } => {
                asm.load(Size::B8, Reg::R0, Reg::R7, at(AFTER + index));
                asm.store(Size::B8, Reg::R7, at(TURN), Reg::R0);
                if self.streams[index].count.is_some() {
                    leave(asm, index);
                }
            }
            Kind::Sequence => self.follow(asm, index),
        }
    }

    /// Behind the last frame of a pass another stream follows, or nothing.
    fn follow(&self, asm: &mut Assembler, index: usize) {
        let stream = &self.streams[index];
        let Some(count) = stream.count else { return };
        let done = asm.label();
        asm.load(Size::B8, Reg::R0, Reg::R7, at(LEFT + index));
        asm.alu(Alu::Sub, Reg::R0, 1);
        asm.store(Size::B8, Reg::R7, at(LEFT + index), Reg::R0);
        asm.jump_if(When::Ne, Reg::R0, 0, done);
        store_constant(asm, LEFT + index, count);
        let turn = |asm: &mut Assembler, to: usize| asm.store(Size::B8, Reg::R7, at(TURN), to as i32);
        match stream.next {
            Next::Goto { stream: to, times: None } => {
                turn(asm, to);
                return asm.place(done);
            }
            Next::Goto { stream: to, times: Some(times) } => {
                let behind = asm.label();
                asm.load(Size::B8, Reg::R0, Reg::R7, at(TIMES + index));
                asm.jump_if(When::Eq, Reg::R0, 0, behind);
                asm.alu(Alu::Sub, Reg::R0, 1);
                asm.store(Size::B8, Reg::R7, at(TIMES + index), Reg::R0);
                turn(asm, to);
                asm.jump(done);
                asm.place(behind);
                store_constant(asm, TIMES + index, times);
            }
            Next::Following | Next::Stop => {}
        }
        if stream.next != Next::Stop && index + 1 < self.streams.len() {
            turn(asm, index + 1);
        } else {
            asm.load(Size::B8, Reg::R0, Reg::R7, at(MADE));
            asm.alu(Alu::Add, Reg::R0, 1);
            asm.store(Size::B8, Reg::R7, at(LIMIT), Reg::R0);
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
            asm.store(Size::B8, Reg::R7, at(DUE), Reg::R9);
            return asm.store(Size::B8, Reg::R7, at(FRACTION), 0);
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
            asm.load(Size::B8, Reg::R0, Reg::R7, at(BURST + index));
            asm.alu(Alu::Add, Reg::R0, 1);
            asm.store(Size::B8, Reg::R7, at(BURST + index), Reg::R0);
            asm.mov64(Reg::R1, frames);
            asm.jump_if(When::Lt, Reg::R0, Reg::R1, within);
            asm.store(Size::B8, Reg::R7, at(BURST + index), 0);
            emit::add_constant(asm, Reg::R2, gap, Reg::R1);
            asm.place(within);
        }
        asm.load(Size::B8, Reg::R4, Reg::R7, at(DUE));
        asm.alu(Alu::Sub, Reg::R9, Reg::R4);
        emit::add(asm, LATE_SUM, Reg::R9);
        let less = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LATE_MAX));
        asm.jump_if(When::Le, Reg::R9, Reg::R1, less);
        asm.store(Size::B8, Reg::R7, at(LATE_MAX), Reg::R9);
        asm.place(less);
        asm.load(Size::B8, Reg::R1, Reg::R7, at(FRACTION));
        asm.alu(Alu::Add, Reg::R1, Reg::R3);
        asm.alu32(Alu::Mov, Reg::R3, Reg::R1);
        asm.store(Size::B8, Reg::R7, at(FRACTION), Reg::R3);
        asm.alu(Alu::Rsh, Reg::R1, 32);
        asm.alu(Alu::Add, Reg::R4, Reg::R1);
        asm.alu(Alu::Add, Reg::R4, Reg::R2);
        asm.store(Size::B8, Reg::R7, at(DUE), Reg::R4);
    }
}

impl Program {
    fn of(stream: &Stream, frames: u64, words: &mut usize, memory: &mut Memory) -> Result<Self, String> {
        let size = stream.selectors.len();
        if most(&stream.size, MOST_FRAMES) >= stream.variants.len() as u64 {
            return Err(format!("its size rule picks more than the {} lengths it has", stream.variants.len()));
        }
        let shapes: Vec<Shape> =
            stream.variants.iter().map(|variant| Shape::of(stream, variant, frames)).collect::<Result<_, _>>()?;
        let writers: Vec<Writer> = shapes.into_iter().map(|shape| Writer::new(shape, memory)).collect();
        let mut used: Vec<_> = writers.iter().flat_map(Writer::used).collect();
        if writers.len() > 1 {
            used.push((size, (1, 0)));
        }
        let all: Vec<&Selector> = stream.selectors.iter().chain([&stream.size]).collect();
        let selectors = Selectors::of(&all, &used, words, memory)?;
        Ok(Program { id: stream.id, count: stream.count, next: stream.next, selectors, size, writers })
    }
}

impl Pace {
    /// Leaves the gap behind a frame in R2 (nanoseconds) and R3 (2^-32 of them).
    fn load_gap(&self, asm: &mut Assembler, length: usize) {
        let nanos = self.rate.exact_nanos(1, length as u64);
        asm.mov64(Reg::R2, nanos as u64);
        asm.mov64(Reg::R3, (nanos.fract() * 4_294_967_296.0) as u64);
    }
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
fn leave(asm: &mut Assembler, index: usize) {
    let stays = asm.label();
    asm.load(Size::B8, Reg::R1, Reg::R7, at(LEFT + index));
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

fn store_constant(asm: &mut Assembler, word: usize, value: u64) {
    asm.mov64(Reg::R1, value);
    asm.store(Size::B8, Reg::R7, at(word), Reg::R1);
}
