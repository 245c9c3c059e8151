//! The index of each selector of a stream in the next frame.
//!
//! Sequential indices are counted in words, which avoids divisions; where the bits of a frame's number suffice, no word
//! is needed. Random ones are drawn at the start of a frame and kept on the stack.

use super::emit::{Memory, add_constant, keep, modulo, operate};
use super::shared_state::at;
use crate::ebpf::{Alu, Assembler, JumpCondition, Label, Reg, Size};
use linerate_generate::stream::{FACTORS, GAMMA, IndexSelection, Selector};

/// Slots of eight bytes on the stack for indices.
pub(super) const SLOTS: usize = 56;

/// Source of a selector's index. The frame's number is in R8.
pub(super) enum Index {
    /// Bits of the frame's number.
    Bits { shift: u32, mask: u64 },
    /// A word that counts up to `count` (0: without end), and a word that counts frames if each value is used for
    /// several.
    Word { word: usize, count: u64, every: (u64, usize) },
    /// A stack slot, drawn for each frame, with an alias table if weighted.
    Drawn { slot: usize, count: u64, seed: u64, table: Option<i32> },
}

impl Index {
    /// Allocates words from `words` on, and slots from `slots` on.
    pub(super) fn of(selector: &Selector, words: &mut usize, slots: &mut usize, memory: &mut Memory) -> Self {
        let count = selector.count;
        let mut drawn = |seed, table| {
            *slots += 1;
            Index::Drawn { slot: *slots - 1, count, seed, table }
        };
        let every = match &selector.pick {
            IndexSelection::InTurn { every } => *every,
            IndexSelection::Random { seed } => return drawn(*seed, None),
            IndexSelection::Weighted { table, seed } => {
                let rows = table.rows().iter().flat_map(|(below, other)| [below.to_le_bytes(), other.to_le_bytes()]);
                return drawn(*seed, Some(memory.place(&rows.flatten().collect::<Vec<u8>>())));
            }
        };
        if (count == 0 || count.is_power_of_two()) && every.is_power_of_two() {
            return Index::Bits { shift: every.trailing_zeros(), mask: count.wrapping_sub(1) };
        }
        let word = *words;
        *words += if every > 1 { 2 } else { 1 };
        Index::Word { word, count, every: (every, word + 1) }
    }

    /// Draws a random index. Uses R0 to R5.
    pub(super) fn draw(&self, asm: &mut Assembler, memory: &Memory, failed: Label) {
        let Index::Drawn { slot, count, seed, table } = self else { return };
        asm.mov(Reg::R0, Reg::R8);
        draw(asm, *seed);
        match table {
            Some(table) => pick(asm, memory, *table, *count, failed),
            None => scale(asm, *count),
        }
        asm.store(Size::B8, Reg::Fp, stack(*slot), Reg::R0);
    }

    /// Leaves the index in R0. Uses R1.
    pub(super) fn load(&self, asm: &mut Assembler) {
        match self {
            Index::Bits { shift, mask } => {
                asm.mov(Reg::R0, Reg::R8);
                shift_right(asm, *shift);
                keep(asm, *mask);
            }
            Index::Word { word, .. } => asm.load(Size::B8, Reg::R0, Reg::R7, at(*word)),
            Index::Drawn { slot, .. } => asm.load(Size::B8, Reg::R0, Reg::Fp, stack(*slot)),
        }
    }

    /// Advances to the next frame. Uses R0 and R1.
    pub(super) fn step(&self, asm: &mut Assembler) {
        let Index::Word { word, count, every } = self else { return };
        let stays = asm.label();
        if every.0 > 1 {
            count_up(asm, every.1, every.0, stays);
        }
        count_up(asm, *word, *count, stays);
        asm.place(stays);
    }
}

/// Returns the offset of a slot from the frame pointer.
pub(super) fn stack(slot: usize) -> i16 {
    -8 * (slot as i16 + 1)
}

/// Replaces the number in R0 by that output of SplitMix64 from a seed. Uses R1.
pub(super) fn draw(asm: &mut Assembler, seed: u64) {
    asm.mov64(Reg::R1, GAMMA);
    asm.alu(Alu::Mul, Reg::R0, Reg::R1);
    add_constant(asm, Reg::R0, seed.wrapping_add(GAMMA), Reg::R1);
    mix(asm);
}

/// Replaces a seed in R0 by output `number` of SplitMix64. Uses R1.
pub(super) fn draw_from(asm: &mut Assembler, number: u64) {
    add_constant(asm, Reg::R0, number.wrapping_add(1).wrapping_mul(GAMMA), Reg::R1);
    mix(asm);
}

fn mix(asm: &mut Assembler) {
    for (shift, factor) in [30, 27].into_iter().zip(FACTORS) {
        fold_down(asm, shift);
        asm.mov64(Reg::R1, factor);
        asm.alu(Alu::Mul, Reg::R0, Reg::R1);
    }
    fold_down(asm, 31);
}

/// `R0 ^= R0 >> shift`. Uses R1.
pub(super) fn fold_down(asm: &mut Assembler, shift: i32) {
    asm.mov(Reg::R1, Reg::R0);
    asm.alu(Alu::Rsh, Reg::R1, shift);
    asm.alu(Alu::Xor, Reg::R0, Reg::R1);
}

/// Scales a draw in R0 to one of `count` values (0: 2^64). Uses R1.
pub(super) fn scale(asm: &mut Assembler, count: u64) {
    match count {
        0 => {}
        1..=0xffff_ffff if count.is_power_of_two() => shift_right(asm, 64 - count.trailing_zeros()),
        1..=0xffff_ffff => {
            asm.alu(Alu::Rsh, Reg::R0, 32);
            operate(asm, Alu::Mul, count);
            asm.alu(Alu::Rsh, Reg::R0, 32);
        }
        _ => modulo(asm, count),
    }
}

/// Maps a draw in R0 by an alias table. Uses R1 to R5.
fn pick(asm: &mut Assembler, memory: &Memory, place: i32, rows: u64, failed: Label) {
    asm.alu32(Alu::Mov, Reg::R3, Reg::R0);
    asm.alu(Alu::Rsh, Reg::R0, 32);
    asm.alu(Alu::Mul, Reg::R0, rows as i32);
    asm.alu(Alu::Rsh, Reg::R0, 32);
    asm.mov(Reg::R4, Reg::R0);
    memory.row(asm, Reg::R4, place, rows as usize, failed);
    asm.load(Size::B4, Reg::R5, Reg::R1, 0);
    asm.load(Size::B4, Reg::R2, Reg::R1, 4);
    // All bits set if the draw is below; a jump would be mispredicted half of the time.
    asm.alu(Alu::Sub, Reg::R3, Reg::R5);
    asm.alu(Alu::Rsh, Reg::R3, 63);
    asm.mov(Reg::R1, 0);
    asm.alu(Alu::Sub, Reg::R1, Reg::R3);
    asm.alu(Alu::Xor, Reg::R0, Reg::R2);
    asm.alu(Alu::And, Reg::R0, Reg::R1);
    asm.alu(Alu::Xor, Reg::R0, Reg::R2);
}

/// Increments a word, and resets it at `end` (0: never); otherwise jumps to `below`. Uses R0 and R1.
pub(super) fn count_up(asm: &mut Assembler, word: usize, end: u64, below: Label) {
    let wraps = asm.label();
    asm.load(Size::B8, Reg::R0, Reg::R7, at(word));
    asm.alu(Alu::Add, Reg::R0, 1);
    match i32::try_from(end as i64) {
        Ok(end) => asm.jump_if(JumpCondition::Eq, Reg::R0, end, wraps),
        Err(_) => {
            asm.mov64(Reg::R1, end);
            asm.jump_if(JumpCondition::Eq, Reg::R0, Reg::R1, wraps);
        }
    }
    asm.store(Size::B8, Reg::R7, at(word), Reg::R0);
    asm.jump(below);
    asm.place(wraps);
    asm.store(Size::B8, Reg::R7, at(word), 0);
}

/// `R0 = R0 >> by`.
pub(super) fn shift_right(asm: &mut Assembler, by: u32) {
    match by {
        0 => {}
        // eBPF shifts by the count modulo 64.
        64.. => asm.mov(Reg::R0, 0),
        _ => asm.alu(Alu::Rsh, Reg::R0, by as i32),
    }
}
