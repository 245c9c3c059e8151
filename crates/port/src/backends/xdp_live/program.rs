//! From a plan to the instructions that send it.
//!
//! Straight-line: for each template its constant bytes as constants, then each number that changes, then the
//! checksums as the constant sum plus what changed (RFC 1624). Every byte is written for every frame, because a
//! page comes back with whatever its receiver left in it.

use super::emit::{self, Exits, add_constant};
use super::shape::{Number, Shape, Weight};
use super::words::{LIMIT, MADE, OFFSET, OWN, STOP, at};
use crate::ebpf::{Alu, Assembler, Insn, Label, Reg, Size, TooFar, When, helper};
use crate::live::{Checked, Gap, Value};

/// Words of a plan: when the next frame is due (time since boot) and 2^-32 ns beyond, lateness, whose turn it is,
/// then one for each stepped field.
pub const DUE: usize = OWN;
const FRACTION: usize = OWN + 1;
/// The longest lateness, in nanoseconds.
pub const LATE_MAX: usize = OWN + 2;
/// The sum of all.
pub const LATE_SUM: usize = OWN + 3;
const TURN: usize = OWN + 4;
const STEPPED: usize = OWN + 5;

/// Longer frames are copied from memory: a call of a function costs as much as so many bytes of constants.
const BY_CONSTANTS: usize = 256;
/// Where sums are kept until all that counts in them is known.
const SUMS: [Reg; 4] = [Reg::R2, Reg::R3, Reg::R4, Reg::R5];

/// What a plan becomes.
pub struct Layout {
    shapes: Vec<Shape>,
    gaps: Vec<Gap>,
    /// Words beside the common ones, and what they begin with: (word, value).
    pub words: usize,
    pub initial: Vec<(usize, u64)>,
    /// Frames that are copied, one after the other, and where each begins.
    pub copied: Vec<u8>,
    places: Vec<usize>,
    longest: usize,
    paced: bool,
}

impl Layout {
    /// Of a plan.
    pub fn of(checked: Checked<'_>) -> Self {
        let plan = checked.plan();
        let shapes: Vec<Shape> = plan.templates.iter().map(Shape::of).collect();
        let (mut copied, mut places) = (Vec::new(), Vec::new());
        for shape in &shapes {
            places.push(copied.len());
            if shape.bytes.len() > BY_CONSTANTS {
                copied.extend_from_slice(&shape.bytes);
            }
        }
        let starts = shapes.iter().flat_map(|shape| &shape.numbers).filter_map(|number| match number.value {
            Value::Stepped { start, .. } => Some(start),
            _ => None,
        });
        let initial: Vec<_> = starts.enumerate().map(|(index, start)| (STEPPED + index, start)).collect();
        Layout {
            gaps: plan.templates.iter().map(|template| template.gap).collect(),
            words: STEPPED - OWN + initial.len(),
            initial,
            copied,
            places,
            longest: checked.longest(),
            paced: plan.is_paced(),
            shapes,
        }
    }

    /// The program, for these maps: words, interface to send to, frames to copy.
    pub fn program(&self, words: i32, devmap: i32, copied: i32) -> Result<Vec<Insn>, TooFar> {
        let mut asm = Assembler::new();
        let exits = emit::begin(&mut asm, words);
        self.decide(&mut asm, &exits);
        emit::redirect(&mut asm, devmap, &exits);
        let labels: Vec<Label> = self.shapes.iter().map(|_| asm.label()).collect();
        if labels.len() > 1 {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(TURN));
            choose(&mut asm, 0, &labels);
        }
        let mut stepped = STEPPED;
        for (index, label) in labels.iter().enumerate() {
            asm.place(*label);
            self.template(&mut asm, index, copied, &exits, &mut stepped);
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
        let has_time = self.shapes.iter().flat_map(|shape| &shape.numbers).any(|number| number.value == Value::Time);
        if self.paced || has_time {
            asm.call(helper::KTIME);
            asm.mov(Reg::R9, Reg::R0);
        }
        if self.paced {
            asm.load(Size::B8, Reg::R1, Reg::R7, at(DUE));
            asm.jump_if(When::Lt, Reg::R9, Reg::R1, exits.drop);
        }
    }

    /// Makes a frame of one template and sends it.
    fn template(&self, asm: &mut Assembler, index: usize, copied: i32, exits: &Exits, stepped: &mut usize) {
        let shape = &self.shapes[index];
        let length = shape.bytes.len();
        if length < self.longest {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, length as i32 - self.longest as i32);
            asm.call(helper::ADJUST_TAIL);
            asm.jump_if(When::Ne, Reg::R0, 0, exits.failed);
        }
        if length > BY_CONSTANTS {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, 0);
            asm.map_value(Reg::R3, copied, self.places[index] as i32);
            asm.mov(Reg::R4, length as i32);
            asm.call(helper::STORE_BYTES);
            asm.jump_if(When::Ne, Reg::R0, 0, exits.failed);
        }
        // struct xdp_md: data, data_end.
        asm.load(Size::B4, Reg::R2, Reg::R6, 4);
        asm.load(Size::B4, Reg::R6, Reg::R6, 0);
        asm.mov(Reg::R1, Reg::R6);
        asm.alu(Alu::Add, Reg::R1, length as i32);
        asm.jump_if(When::Gt, Reg::R1, Reg::R2, exits.failed);
        if length <= BY_CONSTANTS {
            store_constants(asm, &shape.bytes);
        }
        for (reg, sum) in SUMS.into_iter().zip(&shape.sums) {
            asm.mov(reg, i32::from(sum.constant));
        }
        let first = *stepped;
        for number in &shape.numbers {
            read(asm, number.value, stepped);
            count(asm, &number.counts, number.width);
            store_number(asm, number);
        }
        store_sums(asm, shape);
        let numbers = shape.numbers.iter().map(|number| number.value);
        let steps = numbers.filter(|value| matches!(value, Value::Stepped { .. }));
        for (word, value) in (first..).zip(steps) {
            step(asm, word, value);
        }
        self.advance(asm, index);
        emit::send(asm);
    }

    /// Whose turn is next, and when.
    fn advance(&self, asm: &mut Assembler, index: usize) {
        if self.shapes.len() > 1 {
            asm.store(Size::B8, Reg::R7, at(TURN), ((index + 1) % self.shapes.len()) as i32);
        }
        if !self.paced {
            return;
        }
        asm.load(Size::B8, Reg::R2, Reg::R7, at(DUE));
        asm.alu(Alu::Sub, Reg::R9, Reg::R2);
        emit::add(asm, LATE_SUM, Reg::R9);
        let less = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::R7, at(LATE_MAX));
        asm.jump_if(When::Le, Reg::R9, Reg::R1, less);
        asm.store(Size::B8, Reg::R7, at(LATE_MAX), Reg::R9);
        asm.place(less);
        let gap = self.gaps[index];
        asm.load(Size::B8, Reg::R1, Reg::R7, at(FRACTION));
        add_constant(asm, Reg::R1, gap.fraction.into(), Reg::R3);
        asm.alu32(Alu::Mov, Reg::R3, Reg::R1);
        asm.store(Size::B8, Reg::R7, at(FRACTION), Reg::R3);
        asm.alu(Alu::Rsh, Reg::R1, 32);
        asm.alu(Alu::Add, Reg::R2, Reg::R1);
        add_constant(asm, Reg::R2, gap.nanos, Reg::R3);
        asm.store(Size::B8, Reg::R7, at(DUE), Reg::R2);
    }
}

/// Jumps to the template whose number, from `first`, is in R1: halving, so that many templates cost little.
fn choose(asm: &mut Assembler, first: usize, labels: &[Label]) {
    let (lower, upper) = labels.split_at(labels.len() / 2);
    match lower {
        [] => asm.jump(upper[0]),
        _ => {
            let above = asm.label();
            let middle = first + lower.len();
            asm.jump_if(When::Ge, Reg::R1, middle as i32, above);
            choose(asm, first, lower);
            asm.place(above);
            choose(asm, middle, upper);
        }
    }
}

/// Writes constant bytes to the frame: eight at a time where a sign-extended constant holds them, else four.
fn store_constants(asm: &mut Assembler, bytes: &[u8]) {
    let mut place = 0;
    while place < bytes.len() {
        let rest = &bytes[place..];
        let eight = rest.first_chunk::<8>().map(|bytes| i64::from_le_bytes(*bytes)).map(i32::try_from);
        let (size, value) = match (eight, rest) {
            (Some(Ok(value)), _) => (Size::B8, value),
            (_, [a, b, c, d, ..]) => (Size::B4, i32::from_le_bytes([*a, *b, *c, *d])),
            (_, [a, b, ..]) => (Size::B2, i32::from(u16::from_le_bytes([*a, *b]))),
            (_, rest) => (Size::B1, i32::from(rest[0])),
        };
        asm.store(size, Reg::R6, place as i16, value);
        place += bytes_of(size);
    }
}

/// Leaves a field's value in R0; not cut to its width.
fn read(asm: &mut Assembler, value: Value, stepped: &mut usize) {
    match value {
        Value::Stepped { .. } => {
            asm.load(Size::B8, Reg::R0, Reg::R7, at(*stepped));
            *stepped += 1;
        }
        Value::Sequence { start } => {
            asm.mov(Reg::R0, Reg::R8);
            add_constant(asm, Reg::R0, start, Reg::R1);
        }
        Value::Time => {
            asm.load(Size::B8, Reg::R0, Reg::R7, at(OFFSET));
            asm.alu(Alu::Add, Reg::R0, Reg::R9);
        }
        Value::Fixed(value) => asm.mov64(Reg::R0, value),
    }
}

/// Cuts R0 to its width and adds it to the sums it counts in.
fn count(asm: &mut Assembler, counts: &[Weight], width: usize) {
    match width {
        1 => asm.alu(Alu::And, Reg::R0, 0xff),
        2 => asm.alu(Alu::And, Reg::R0, 0xffff),
        4 => asm.alu32(Alu::Mov, Reg::R0, Reg::R0),
        _ => {}
    }
    for weight in counts {
        let add = |asm: &mut Assembler| {
            if weight.shifted {
                asm.alu(Alu::Lsh, Reg::R1, 8);
            }
            asm.alu(Alu::Add, SUMS[weight.sum], Reg::R1);
        };
        if width == 8 {
            asm.mov(Reg::R1, Reg::R0);
            asm.alu(Alu::Rsh, Reg::R1, 32);
            add(asm);
        }
        asm.alu32(Alu::Mov, Reg::R1, Reg::R0);
        add(asm);
    }
}

fn store_number(asm: &mut Assembler, number: &Number) {
    let size = match number.width {
        1 => Size::B1,
        2 => Size::B2,
        4 => Size::B4,
        _ => Size::B8,
    };
    if size != Size::B1 {
        asm.to_be(Reg::R0, 8 * number.width as i32);
    }
    store_far(asm, size, number.offset);
}

/// Writes R0 to the frame.
fn store_far(asm: &mut Assembler, size: Size, offset: usize) {
    asm.store(size, Reg::R6, offset as i16, Reg::R0);
}

/// Folds the sums, in order, and writes the checksums.
fn store_sums(asm: &mut Assembler, shape: &Shape) {
    for (reg, sum) in SUMS.into_iter().zip(&shape.sums) {
        asm.mov(Reg::R0, reg);
        asm.alu(Alu::Rsh, Reg::R0, 32);
        asm.alu32(Alu::Mov, reg, reg);
        asm.alu(Alu::Add, Reg::R0, reg);
        // 34 bits become 19, then 17, then 16.
        for _ in 0..3 {
            asm.mov(Reg::R1, Reg::R0);
            asm.alu(Alu::Rsh, Reg::R1, 16);
            asm.alu(Alu::And, Reg::R0, 0xffff);
            asm.alu(Alu::Add, Reg::R0, Reg::R1);
        }
        asm.alu(Alu::Xor, Reg::R0, 0xffff);
        if sum.no_zero {
            let other = asm.label();
            asm.jump_if(When::Ne, Reg::R0, 0, other);
            asm.mov(Reg::R0, 0xffff);
            asm.place(other);
        }
        count(asm, &sum.counts, 2);
        asm.to_be(Reg::R0, 16);
        store_far(asm, Size::B2, sum.offset);
    }
}

/// Moves a stepped field on to its next value.
fn step(asm: &mut Assembler, word: usize, value: Value) {
    let Value::Stepped { start, step, count } = value else { return };
    asm.load(Size::B8, Reg::R0, Reg::R7, at(word));
    add_constant(asm, Reg::R0, step as u64, Reg::R1);
    if count > 0 {
        let within = asm.label();
        asm.mov64(Reg::R1, start.wrapping_add((step as u64).wrapping_mul(count)));
        asm.jump_if(When::Ne, Reg::R0, Reg::R1, within);
        asm.mov64(Reg::R0, start);
        asm.place(within);
    }
    asm.store(Size::B8, Reg::R7, at(word), Reg::R0);
}

fn bytes_of(size: Size) -> usize {
    match size {
        Size::B1 => 1,
        Size::B2 => 2,
        Size::B4 => 4,
        Size::B8 => 8,
    }
}
