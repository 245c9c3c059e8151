//! The parts that all programs of this backend share.
//!
//! Registers: R6 the context, later the frame; R7 the shared words; R8 the number of the frame; R9 the time since boot.
//! The others are free between calls.

use super::shared_state::{ERROR, FAILED, MADE, TASK, TOO_LONG, at};
use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Label, Reg, Size, TooFar, helper};

/// `XDP_DROP` and `XDP_REDIRECT` (linux/bpf.h): return values of a program.
const DROP: i32 = 1;
pub(crate) const REDIRECT: i32 = 4;

/// Exits of a program.
pub(crate) struct Exits {
    /// Sends nothing in this run.
    pub drop: Label,
    /// Sends nothing, and counts a failure.
    pub failed: Label,
}

/// Loads context and words into their registers.
pub(crate) fn begin(asm: &mut Assembler, words: i32) -> Exits {
    asm.mov(Reg::R6, Reg::R1);
    asm.map_value(Reg::R7, words, 0);
    Exits { drop: asm.label(), failed: asm.label() }
}

/// Selects the interface as the target, before the frame is made.
pub(crate) fn redirect(asm: &mut Assembler, devmap: i32, exits: &Exits) {
    let known = asm.label();
    asm.load(Size::B8, Reg::R1, Reg::R7, at(TASK));
    asm.jump_if(JumpCondition::Ne, Reg::R1, 0, known);
    asm.call(helper::TASK);
    asm.store(Size::B8, Reg::R7, at(TASK), Reg::R0);
    asm.place(known);
    asm.map(Reg::R1, devmap);
    asm.mov(Reg::R2, 0);
    asm.mov(Reg::R3, 0);
    asm.call(helper::REDIRECT_MAP);
    asm.jump_if(JumpCondition::Ne, Reg::R0, REDIRECT, exits.failed);
}

/// Sends the frame that was made; `counter` is the register with the number of frames made before it.
pub(crate) fn send(asm: &mut Assembler, counter: Reg) {
    asm.alu(Alu::Add, counter, 1);
    asm.store(Size::B8, Reg::R7, at(MADE), counter);
    asm.mov(Reg::R0, REDIRECT);
    asm.exit();
}

/// Returns the shortest program that sends.
pub(crate) fn only_redirect(devmap: i32) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    asm.map(Reg::R1, devmap);
    asm.mov(Reg::R2, 0);
    asm.mov(Reg::R3, 0);
    asm.call(helper::REDIRECT_MAP);
    asm.exit();
    asm.finish()
}

/// Emits the exits.
pub(crate) fn exits(asm: &mut Assembler, exits: &Exits) {
    asm.place(exits.failed);
    add(asm, FAILED, 1);
    asm.place(exits.drop);
    asm.mov(Reg::R0, DROP);
    asm.exit();
}

/// Adds to a word. Uses R1.
pub(crate) fn add(asm: &mut Assembler, word: usize, value: impl Into<crate::ebpf::Operand>) {
    asm.load(Size::B8, Reg::R1, Reg::R7, at(word));
    asm.alu(Alu::Add, Reg::R1, value);
    asm.store(Size::B8, Reg::R7, at(word), Reg::R1);
}

/// `dst += value`; uses `spare` for a long value.
pub(crate) fn add_constant(asm: &mut Assembler, dst: Reg, value: u64, spare: Reg) {
    match i32::try_from(value as i64) {
        Ok(0) => {}
        Ok(value) => asm.alu(Alu::Add, dst, value),
        Err(_) => {
            asm.mov64(spare, value);
            asm.alu(Alu::Add, dst, spare);
        }
    }
}

/// `R0 = R0 op value`; uses R1 for a long value.
pub(crate) fn operate(asm: &mut Assembler, op: Alu, value: u64) {
    match i32::try_from(value) {
        Ok(value) => asm.alu(op, Reg::R0, value),
        Err(_) => {
            asm.mov64(Reg::R1, value);
            asm.alu(op, Reg::R0, Reg::R1);
        }
    }
}

/// Masks R0. Uses R1.
pub(crate) fn keep(asm: &mut Assembler, mask: u64) {
    match mask {
        u64::MAX => {}
        0xffff_ffff => asm.alu32(Alu::Mov, Reg::R0, Reg::R0),
        _ => operate(asm, Alu::And, mask),
    }
}

/// `R0 = R0 % by`. Uses R1.
pub(crate) fn modulo(asm: &mut Assembler, by: u64) {
    if by.is_power_of_two() {
        keep(asm, by - 1);
    } else {
        operate(asm, Alu::Mod, by);
    }
}

/// Maximum bytes of constant memory; a larger table serves no purpose.
pub(crate) const MOST_MEMORY: usize = 64 << 20;

/// Bytes that a program reads from a map, collected while its instructions are emitted: long frames and tables.
pub(crate) struct Memory {
    pub map: i32,
    pub bytes: Vec<u8>,
}

impl Memory {
    /// Creates an empty memory for a map.
    pub(crate) fn new(map: i32) -> Self {
        Memory { map, bytes: Vec::new() }
    }

    /// Adds bytes and returns their offset. Bytes beyond the maximum are dropped.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> i32 {
        let place = self.bytes.len();
        if place <= MOST_MEMORY {
            self.bytes.extend_from_slice(bytes);
            self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        }
        place as i32
    }

    /// Leaves in R1 the address of a row of eight bytes, with the row's number in a register, of a table with `rows`
    /// rows.
    pub(crate) fn row(&self, asm: &mut Assembler, number: Reg, place: i32, rows: usize, failed: Label) {
        // Never true; the verifier needs the bound.
        asm.jump_if(JumpCondition::Ge, number, rows as i32, failed);
        asm.alu(Alu::Lsh, number, 3);
        asm.map_value(Reg::R1, self.map, place);
        asm.alu(Alu::Add, Reg::R1, number);
    }
}

/// The tracepoint, whose arguments differ.
#[derive(Clone, Copy)]
pub(crate) enum Tracepoint {
    /// `xdp_devmap_xmit`: from, to, sent, drops, error.
    Transmitted,
    /// `xdp_redirect_err`: device, program, target, error, ...
    Refused,
}

/// Returns a program for a tracepoint that counts the outcome of frames made by the program with these words: frames
/// that this thread handed over and that are not accounted for yet.
pub(crate) fn count_outcomes(words: i32, watched: Tracepoint) -> Assembler {
    let mut asm = Assembler::new();
    let (foreign, taken) = (asm.label(), asm.label());
    asm.mov(Reg::R6, Reg::R1);
    asm.map_value(Reg::R7, words, 0);
    asm.call(helper::TASK);
    asm.load(Size::B8, Reg::R1, Reg::R7, at(TASK));
    asm.jump_if(JumpCondition::Ne, Reg::R0, Reg::R1, foreign);
    match watched {
        Tracepoint::Transmitted => {
            use super::shared_state::{DROPPED, SENT};
            asm.load(Size::B8, Reg::R2, Reg::R6, 16);
            asm.load(Size::B8, Reg::R3, Reg::R6, 24);
            asm.load(Size::B8, Reg::R4, Reg::R7, at(MADE));
            for word in [SENT, DROPPED] {
                asm.load(Size::B8, Reg::R1, Reg::R7, at(word));
                asm.alu(Alu::Sub, Reg::R4, Reg::R1);
            }
            asm.mov(Reg::R1, Reg::R2);
            asm.alu(Alu::Add, Reg::R1, Reg::R3);
            asm.jump_if(JumpCondition::Gt, Reg::R1, Reg::R4, foreign);
            add(&mut asm, SENT, Reg::R2);
            asm.jump_if(JumpCondition::Eq, Reg::R3, 0, taken);
            add(&mut asm, DROPPED, Reg::R3);
            asm.load(Size::B8, Reg::R1, Reg::R6, 32);
        }
        Tracepoint::Refused => {
            asm.load(Size::B8, Reg::R1, Reg::R6, 24);
            asm.mov(Reg::R2, Reg::R1);
            asm.alu32(Alu::Add, Reg::R2, libc::EMSGSIZE);
            let other = asm.label();
            asm.jump_if(JumpCondition::Ne, Reg::R2, 0, other);
            add(&mut asm, TOO_LONG, 1);
            asm.jump(taken);
            asm.place(other);
        }
    }
    asm.store(Size::B8, Reg::R7, at(ERROR), Reg::R1);
    asm.place(taken);
    asm.place(foreign);
    asm.mov(Reg::R0, 0);
    asm.exit();
    asm
}
