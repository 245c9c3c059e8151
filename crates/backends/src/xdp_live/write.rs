//! The instructions that write one frame.
//!
//! Straight-line: constant bytes as constants, then each number that changes, then the checksums as the constant sum
//! plus what changed (RFC 1624). Every byte is written for every frame, because a page comes back with whatever its
//! receiver left in it.

use super::emit::{add_constant, keep, operate};
use super::memory::Memory;
use super::number::{Content, Piece};
use super::selectors::{SLOTS, Selectors, draw, draw_from, fold_down, scale, stack};
use super::shape::{MOST_SUMS, Shape, Weight};
use super::term::Term;
use super::words::{OFFSET, at};
use crate::ebpf::{Alu, Assembler, Label, Reg, Size, When, helper};
use linerate_generate::trailer::{Key, SEQUENCE_BITS, TIME_BITS};

/// More constant bytes are copied from memory: a call of a function costs as much as so many of them.
const BY_CONSTANTS: usize = 256;
/// Where sums are kept until all that counts in them is known.
const SUMS: [Reg; MOST_SUMS] = [Reg::R2, Reg::R3, Reg::R4, Reg::R5];
/// Slots of the stack: a number of several pieces, and the seed of a fill's words.
const GATHERED: usize = SLOTS;
const NOISE: usize = SLOTS + 1;

/// One variant of a stream, ready to be written.
#[derive(Debug)]
pub struct Writer {
    shape: Shape,
    /// Which bytes numbers and checksums write.
    covered: Vec<bool>,
    /// Where the frame lies in memory, if it is copied.
    copied: Option<i32>,
    /// Where the tables of each number's pieces lie.
    tables: Vec<Vec<i32>>,
}

/// What all frames of a stream have in common.
pub struct Common<'a> {
    pub selectors: &'a Selectors,
    pub memory: i32,
    /// The length that the kernel makes frames of.
    pub longest: usize,
    pub failed: Label,
    pub id: u32,
    pub key: Key,
}

impl Writer {
    /// Places in memory what a variant needs there.
    pub fn new(shape: Shape, memory: &mut Memory) -> Self {
        let mut covered = vec![false; shape.bytes.len()];
        let numbers = shape.numbers.iter().map(|number| (number.offset, number.width));
        for (offset, width) in numbers.chain(shape.sums.iter().map(|sum| (sum.offset, 2))) {
            covered[offset..offset + width].fill(true);
        }
        let constant = covered.iter().filter(|covered| !**covered).count();
        let copied = (constant > BY_CONSTANTS).then(|| memory.place(&shape.bytes));
        let mut table = |piece: &Piece| match &piece.term {
            Term::Table(values) => {
                memory.place(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
            }
            _ => 0,
        };
        let tables = shape.numbers.iter().map(|number| match &number.content {
            Content::Fields { pieces, .. } => pieces.iter().map(&mut table).collect(),
            _ => Vec::new(),
        });
        let tables = tables.collect();
        Writer { shape, covered, copied, tables }
    }

    /// The frame's length.
    pub fn length(&self) -> usize {
        self.shape.bytes.len()
    }

    /// Whether the time is written into frames.
    pub fn has_time(&self) -> bool {
        self.shape.numbers.iter().any(|number| matches!(number.content, Content::Time))
    }

    /// The selectors that something follows, and what divides their indices.
    pub fn used(&self) -> impl Iterator<Item = (usize, (u64, u64))> {
        let pieces = self.shape.numbers.iter().flat_map(|number| match &number.content {
            Content::Fields { pieces, .. } => &pieces[..],
            _ => &[],
        });
        pieces.map(|piece| (piece.selector, piece.term.reduction(piece.most)))
    }

    /// Writes the frame. Uses R0 to R5; R6 becomes the frame.
    pub fn write(&self, asm: &mut Assembler, common: &Common<'_>) {
        self.reach(asm, common);
        if self.copied.is_none() {
            self.store_constants(asm);
        }
        for (reg, sum) in SUMS.into_iter().zip(&self.shape.sums) {
            asm.mov(reg, i32::from(sum.constant));
        }
        let mut seeded = None;
        for (index, number) in self.shape.numbers.iter().enumerate() {
            match &number.content {
                Content::Fields { constant, pieces } => {
                    self.gather(asm, common, *constant, pieces, &self.tables[index]);
                }
                Content::Noise { seed, word } => {
                    if seeded != Some(*seed) {
                        asm.mov(Reg::R0, Reg::R8);
                        draw(asm, *seed);
                        asm.store(Size::B8, Reg::Fp, stack(NOISE), Reg::R0);
                        seeded = Some(*seed);
                    } else {
                        asm.load(Size::B8, Reg::R0, Reg::Fp, stack(NOISE));
                    }
                    draw_from(asm, *word);
                    if number.width < 8 {
                        asm.alu(Alu::Rsh, Reg::R0, 64 - 8 * number.width as i32);
                    }
                }
                Content::Name => {
                    sequence(asm);
                    asm.mov64(Reg::R1, u64::from(common.id) << SEQUENCE_BITS);
                    asm.alu(Alu::Or, Reg::R0, Reg::R1);
                }
                Content::Time => time_and_check(asm, common),
            }
            count(asm, &self.shape.counts[index], number.width);
            store(asm, number.offset, number.width);
        }
        self.store_sums(asm);
    }

    /// Makes the live frame as long as this one and leaves it in R6.
    fn reach(&self, asm: &mut Assembler, common: &Common<'_>) {
        let length = self.length();
        if length < common.longest {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, length as i32 - common.longest as i32);
            asm.call(helper::ADJUST_TAIL);
            asm.jump_if(When::Ne, Reg::R0, 0, common.failed);
        }
        if let Some(place) = self.copied {
            asm.mov(Reg::R1, Reg::R6);
            asm.mov(Reg::R2, 0);
            asm.map_value(Reg::R3, common.memory, place);
            asm.mov(Reg::R4, length as i32);
            asm.call(helper::STORE_BYTES);
            asm.jump_if(When::Ne, Reg::R0, 0, common.failed);
        }
        // struct xdp_md: data, data_end.
        asm.load(Size::B4, Reg::R2, Reg::R6, 4);
        asm.load(Size::B4, Reg::R6, Reg::R6, 0);
        asm.mov(Reg::R1, Reg::R6);
        asm.alu(Alu::Add, Reg::R1, length as i32);
        asm.jump_if(When::Gt, Reg::R1, Reg::R2, common.failed);
    }

    /// Writes constant bytes: eight at a time where a sign-extended constant holds them, else four.
    fn store_constants(&self, asm: &mut Assembler) {
        let bytes = &self.shape.bytes;
        let mut place = 0;
        while place < bytes.len() {
            if self.covered[place] {
                place += 1;
                continue;
            }
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

    /// Leaves a number of several pieces in R0.
    fn gather(&self, asm: &mut Assembler, common: &Common<'_>, constant: u64, pieces: &[Piece], tables: &[i32]) {
        for (index, (piece, table)) in pieces.iter().zip(tables).enumerate() {
            common.selectors.index(asm, piece.selector, piece.term.reduction(piece.most));
            value(asm, common, &piece.term, *table);
            if piece.right > 0 {
                asm.alu(Alu::Rsh, Reg::R0, piece.right as i32);
            }
            keep(asm, u64::MAX >> (64 - piece.bits));
            if piece.left > 0 {
                asm.alu(Alu::Lsh, Reg::R0, piece.left as i32);
            }
            if index > 0 {
                asm.load(Size::B8, Reg::R1, Reg::Fp, stack(GATHERED));
                asm.alu(Alu::Or, Reg::R0, Reg::R1);
            }
            if index + 1 < pieces.len() {
                asm.store(Size::B8, Reg::Fp, stack(GATHERED), Reg::R0);
            }
        }
        if constant != 0 {
            operate(asm, Alu::Or, constant);
        }
    }

    /// Folds the sums, in order, and writes the checksums.
    fn store_sums(&self, asm: &mut Assembler) {
        for (reg, sum) in SUMS.into_iter().zip(&self.shape.sums) {
            let mut most = sum.most;
            asm.mov(Reg::R0, reg);
            while most > 0xffff {
                let shift = if most > 1 << 40 { 32 } else { 16 };
                asm.mov(Reg::R1, Reg::R0);
                asm.alu(Alu::Rsh, Reg::R1, shift);
                keep(asm, (1 << shift) - 1);
                asm.alu(Alu::Add, Reg::R0, Reg::R1);
                most = most_folded(most, shift);
            }
            asm.alu(Alu::Xor, Reg::R0, 0xffff);
            if sum.no_zero {
                let other = asm.label();
                asm.jump_if(When::Ne, Reg::R0, 0, other);
                asm.mov(Reg::R0, 0xffff);
                asm.place(other);
            }
            count(asm, &sum.counts, 2);
            store(asm, sum.offset, 2);
        }
    }
}

/// How large a sum of at most `most` is when its upper bits were added to its lower ones.
fn most_folded(most: u64, shift: i32) -> u64 {
    let (upper, mask) = (most >> shift, (1 << shift) - 1);
    // With one less in the upper bits the lower ones may be anything.
    if upper == 0 { most } else { (upper + (most & mask)).max(upper - 1 + mask) }
}

/// An index in R0, divided and taken modulo, becomes the value of a term. Uses R1.
fn value(asm: &mut Assembler, common: &Common<'_>, term: &Term, table: i32) {
    match term {
        Term::Linear { start, step, .. } => {
            match i32::try_from(*step as i64) {
                Ok(1) => {}
                Ok(step) => asm.alu(Alu::Mul, Reg::R0, step),
                Err(_) => operate(asm, Alu::Mul, *step),
            }
            add_constant(asm, Reg::R0, *start, Reg::R1);
        }
        Term::Table(values) => {
            // For the verifier; it never is.
            asm.jump_if(When::Ge, Reg::R0, values.len() as i32, common.failed);
            asm.alu(Alu::Lsh, Reg::R0, 3);
            asm.map_value(Reg::R1, common.memory, table);
            asm.alu(Alu::Add, Reg::R1, Reg::R0);
            asm.load(Size::B8, Reg::R0, Reg::R1, 0);
        }
        Term::Scaled { start, span, seed } => {
            draw(asm, *seed);
            scale(asm, *span);
            add_constant(asm, Reg::R0, *start, Reg::R1);
        }
        Term::Masked { start, mask, seed } => {
            draw(asm, *seed);
            keep(asm, *mask);
            add_constant(asm, Reg::R0, *start, Reg::R1);
        }
    }
}

/// Leaves the frame's number as trailers have it in R0.
fn sequence(asm: &mut Assembler) {
    asm.mov(Reg::R0, Reg::R8);
    asm.alu(Alu::Lsh, Reg::R0, 64 - SEQUENCE_BITS as i32);
    asm.alu(Alu::Rsh, Reg::R0, 64 - SEQUENCE_BITS as i32);
}

/// Leaves time and check of a trailer in R0 ([`check`](linerate_generate::trailer::check)). Uses R1.
fn time_and_check(asm: &mut Assembler, common: &Common<'_>) {
    let shift = 64 - TIME_BITS as i32;
    sequence(asm);
    asm.mov64(Reg::R1, u64::from(common.id) << SEQUENCE_BITS ^ common.key.0);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    operate(asm, Alu::Mul, 0xff51_afd7_ed55_8ccd);
    fold_down(asm, 32);
    asm.load(Size::B8, Reg::R1, Reg::R7, at(OFFSET));
    asm.alu(Alu::Add, Reg::R1, Reg::R9);
    asm.alu(Alu::Lsh, Reg::R1, shift);
    asm.store(Size::B8, Reg::Fp, stack(GATHERED), Reg::R1);
    asm.alu(Alu::Rsh, Reg::R1, shift);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
    operate(asm, Alu::Mul, 0xc4ce_b9fe_1a85_ec53);
    fold_down(asm, 29);
    operate(asm, Alu::Mul, 0x9e37_79b9_7f4a_7c15);
    asm.alu(Alu::Rsh, Reg::R0, 64 - shift);
    asm.load(Size::B8, Reg::R1, Reg::Fp, stack(GATHERED));
    asm.alu(Alu::Or, Reg::R0, Reg::R1);
}

/// Adds R0, a number of that width, to the sums it counts in. Uses R1.
fn count(asm: &mut Assembler, counts: &[Weight], width: usize) {
    for weight in counts {
        let sum = SUMS[weight.sum];
        if width <= 4 && !weight.shifted {
            asm.alu(Alu::Add, sum, Reg::R0);
            continue;
        }
        let add = |asm: &mut Assembler| {
            if weight.shifted {
                asm.alu(Alu::Lsh, Reg::R1, 8);
            }
            asm.alu(Alu::Add, sum, Reg::R1);
        };
        if width > 4 {
            asm.mov(Reg::R1, Reg::R0);
            asm.alu(Alu::Rsh, Reg::R1, 32);
            add(asm);
        }
        asm.alu32(Alu::Mov, Reg::R1, Reg::R0);
        add(asm);
    }
}

/// Writes R0, a number of that width, to the frame.
fn store(asm: &mut Assembler, offset: usize, width: usize) {
    if let Some(size) = [Size::B1, Size::B2, Size::B4, Size::B8].into_iter().find(|size| bytes_of(*size) == width) {
        if width > 1 {
            asm.to_be(Reg::R0, 8 * width as i32);
        }
        return asm.store(size, Reg::R6, offset as i16, Reg::R0);
    }
    asm.alu(Alu::Lsh, Reg::R0, 64 - 8 * width as i32);
    asm.to_be(Reg::R0, 64);
    let mut done = 0;
    for size in [Size::B4, Size::B2, Size::B1] {
        if (width - done) & bytes_of(size) != 0 {
            asm.store(size, Reg::R6, (offset + done) as i16, Reg::R0);
            asm.alu(Alu::Rsh, Reg::R0, 8 * bytes_of(size) as i32);
            done += bytes_of(size);
        }
    }
}

fn bytes_of(size: Size) -> usize {
    match size {
        Size::B1 => 1,
        Size::B2 => 2,
        Size::B4 => 4,
        Size::B8 => 8,
    }
}
