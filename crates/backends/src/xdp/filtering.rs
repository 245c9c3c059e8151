//! A filter of classic BPF as part of an XDP program: unwanted frames cost no copy, and no time of this process.
//!
//! libpcap's program is translated instruction by instruction.
//! [`Filter::in_kernel`](linerate_filter::Filter::in_kernel) has checked it before: no loops, no offsets that wrap
//! around, no shifts out of bounds, no reads of unwritten memory. It reads the frame in place; beyond the first of
//! several buffers by a helper of the kernel.
//!
//! ```text
//!  R2 accumulator   R3 index register   R4, R5 first and last byte of the first buffer   R0, R1 temporary
//! ```

use crate::ebpf::{Alu, Assembler, JumpCondition, Label, Operand, Reg, Size, helper};
use linerate_filter::Program;
use linerate_filter::interpret::{Op, Test};

const A: Reg = Reg::R2;
const X: Reg = Reg::R3;
const DATA: Reg = Reg::R4;
const END: Reg = Reg::R5;

/// Stack offsets, below those of the surrounding program: both registers during a helper call, its result, memory.
const KEPT_A: i16 = -48;
const KEPT_X: i16 = -56;
const READ: i16 = -64;
const MEMORY: i16 = -128;
/// The kernel's verifier tracks offsets up to here after the first byte (`MAX_PACKET_OFF`).
const REACH: u32 = 0xffff - 8;

/// Position of frame and results.
#[derive(Clone, Copy)]
pub(super) struct FilterContext {
    pub context: Reg,
    /// Offsets of the first buffer's start and end in the context.
    pub bounds: (i16, i16),
    /// Stack offset of the frame's length.
    pub length: i16,
    /// True if frames may be in several buffers.
    pub frags: bool,
    /// Target for frames that do not match; others continue.
    pub refused: Label,
}

/// Emits a filter program. All registers but R6 to R9 are lost.
pub(super) fn filter(asm: &mut Assembler, program: &Program, around: FilterContext) {
    let passed = asm.label();
    let reached = reached(program.ops());
    let mut writer =
        Writer { around, passed, labels: program.ops().iter().map(|_| asm.label()).collect(), slow: vec![] };
    writer.bounds(asm);
    // Never true; but the verifier requires every label to be reachable.
    asm.load(Size::B8, A, Reg::Fp, around.length);
    asm.jump_if(JumpCondition::Eq, A, 0, around.refused);
    asm.jump_if(JumpCondition::Gt, A, i32::MAX, passed);
    asm.mov(A, 0);
    asm.mov(X, 0);
    for (at, op) in program.ops().iter().enumerate().filter(|(at, _)| reached[*at]) {
        asm.place(writer.labels[at]);
        writer.write(asm, at, *op);
    }
    for slow in std::mem::take(&mut writer.slow) {
        writer.read_slowly(asm, slow);
    }
    asm.place(passed);
}

/// Returns which instructions are reachable; all jumps are forward.
fn reached(ops: &[Op]) -> Vec<bool> {
    let mut reached = vec![false; ops.len()];
    reached[0] = true;
    for (at, op) in ops.iter().enumerate() {
        if !reached[at] {
            continue;
        }
        let next = match *op {
            Op::RetK(_) | Op::RetA => [None, None],
            Op::Ja(target) => [Some(target as usize), None],
            Op::JumpK(_, _, jump) | Op::JumpX(_, jump) => [Some(jump.yes.into()), Some(jump.no.into())],
            _ => [Some(at + 1), None],
        };
        next.into_iter().flatten().for_each(|target| reached[target] = true);
    }
    reached
}

struct Writer {
    around: FilterContext,
    passed: Label,
    /// Label of each instruction.
    labels: Vec<Label>,
    /// Reads beyond the first buffer, emitted after all others.
    slow: Vec<SlowRead>,
}

/// A read from the offset in R1.
struct SlowRead {
    begin: Label,
    back: Label,
    size: Size,
    to: Reg,
}

impl Writer {
    fn write(&mut self, asm: &mut Assembler, at: usize, op: Op) {
        match op {
            Op::LdWord(k) => self.read(asm, Size::B4, k, A),
            Op::LdHalf(k) => self.read(asm, Size::B2, k, A),
            Op::LdByte(k) => self.read(asm, Size::B1, k, A),
            Op::LdWordInd(k) => self.read_after_x(asm, Size::B4, k),
            Op::LdHalfInd(k) => self.read_after_x(asm, Size::B2, k),
            Op::LdByteInd(k) => self.read_after_x(asm, Size::B1, k),
            Op::LdxMsh(k) => {
                self.read(asm, Size::B1, k, X);
                asm.alu(Alu::And, X, 0xf);
                asm.alu(Alu::Lsh, X, 2);
            }
            Op::LdLen => asm.load(Size::B8, A, Reg::Fp, self.around.length),
            Op::LdxLen => asm.load(Size::B8, X, Reg::Fp, self.around.length),
            Op::LdImm(k) => constant(asm, A, k),
            Op::LdxImm(k) => constant(asm, X, k),
            Op::LdMem(word) => asm.load(Size::B4, A, Reg::Fp, memory(word)),
            Op::LdxMem(word) => asm.load(Size::B4, X, Reg::Fp, memory(word)),
            Op::St(word) => asm.store(Size::B4, Reg::Fp, memory(word), A),
            Op::Stx(word) => asm.store(Size::B4, Reg::Fp, memory(word), X),
            Op::Tax => asm.mov(X, A),
            Op::Txa => asm.mov(A, X),
            Op::Ja(target) => self.go(asm, at, target as usize),
            Op::JumpK(test, k, jump) => {
                let value = match i32::try_from(k) {
                    Ok(k) => Operand::Imm(k),
                    Err(_) => {
                        constant(asm, Reg::R0, k);
                        Operand::Reg(Reg::R0)
                    }
                };
                asm.jump_if(when(test), A, value, self.labels[usize::from(jump.yes)]);
                self.go(asm, at, usize::from(jump.no));
            }
            Op::JumpX(test, jump) => {
                asm.jump_if(when(test), A, X, self.labels[usize::from(jump.yes)]);
                self.go(asm, at, usize::from(jump.no));
            }
            Op::RetK(0) => asm.jump(self.around.refused),
            Op::RetK(_) => asm.jump(self.passed),
            Op::RetA => {
                asm.jump_if(JumpCondition::Eq, A, 0, self.around.refused);
                asm.jump(self.passed);
            }
            arithmetic => self.compute(asm, arithmetic),
        }
    }

    fn compute(&self, asm: &mut Assembler, op: Op) {
        let shift = |asm: &mut Assembler, alu, k| match k {
            0..32 => asm.alu32(alu, A, k as i32),
            _ => asm.mov(A, 0),
        };
        match op {
            Op::AddK(k) => asm.alu32(Alu::Add, A, k as i32),
            Op::AddX => asm.alu32(Alu::Add, A, X),
            Op::SubK(k) => asm.alu32(Alu::Sub, A, k as i32),
            Op::SubX => asm.alu32(Alu::Sub, A, X),
            Op::MulK(k) => asm.alu32(Alu::Mul, A, k as i32),
            Op::MulX => asm.alu32(Alu::Mul, A, X),
            Op::DivK(k) => asm.alu32(Alu::Div, A, k as i32),
            Op::ModK(k) => asm.alu32(Alu::Mod, A, k as i32),
            Op::DivX | Op::ModX => {
                // The kernel would otherwise continue with 0, or with the old value.
                asm.jump_if(JumpCondition::Eq, X, 0, self.around.refused);
                asm.alu32(if op == Op::DivX { Alu::Div } else { Alu::Mod }, A, X);
            }
            Op::AndK(k) => asm.alu32(Alu::And, A, k as i32),
            Op::AndX => asm.alu32(Alu::And, A, X),
            Op::OrK(k) => asm.alu32(Alu::Or, A, k as i32),
            Op::OrX => asm.alu32(Alu::Or, A, X),
            Op::XorK(k) => asm.alu32(Alu::Xor, A, k as i32),
            Op::XorX => asm.alu32(Alu::Xor, A, X),
            Op::LshK(k) => shift(asm, Alu::Lsh, k),
            Op::RshK(k) => shift(asm, Alu::Rsh, k),
            Op::LshX => asm.alu32(Alu::Lsh, A, X),
            Op::RshX => asm.alu32(Alu::Rsh, A, X),
            Op::Neg => {
                asm.mov(Reg::R0, 0);
                asm.alu32(Alu::Sub, Reg::R0, A);
                asm.mov(A, Reg::R0);
            }
            other => unreachable!("{other:?} is not arithmetic"),
        }
    }

    /// Continues with an instruction, by a jump unless it is the next.
    fn go(&self, asm: &mut Assembler, at: usize, target: usize) {
        if target != at + 1 {
            asm.jump(self.labels[target]);
        }
    }

    fn bounds(&self, asm: &mut Assembler) {
        asm.load(Size::B4, DATA, self.around.context, self.around.bounds.0);
        asm.load(Size::B4, END, self.around.context, self.around.bounds.1);
    }

    fn read(&mut self, asm: &mut Assembler, size: Size, place: u32, to: Reg) {
        constant(asm, Reg::R1, place);
        self.read_at_r1(asm, size, to);
    }

    fn read_after_x(&mut self, asm: &mut Assembler, size: Size, place: u32) {
        asm.mov(Reg::R1, X);
        constant(asm, Reg::R0, place);
        asm.alu(Alu::Add, Reg::R1, Reg::R0);
        self.read_at_r1(asm, size, A);
    }

    /// Reads at offset R1 of the frame: from the first buffer, or by the slow path.
    fn read_at_r1(&mut self, asm: &mut Assembler, size: Size, to: Reg) {
        let (beyond, back) = self.beyond(asm, size, to);
        let bytes = size.bytes() as i16;
        asm.jump_if(JumpCondition::Gt, Reg::R1, REACH as i32, beyond);
        asm.mov(Reg::R0, DATA);
        asm.alu(Alu::Add, Reg::R0, Reg::R1);
        asm.alu(Alu::Add, Reg::R0, i32::from(bytes));
        asm.jump_if(JumpCondition::Gt, Reg::R0, END, beyond);
        asm.load(size, to, Reg::R0, -bytes);
        in_order(asm, size, to);
        asm.place(back);
    }

    /// Returns the labels of the slow path, and of its return.
    fn beyond(&mut self, asm: &mut Assembler, size: Size, to: Reg) -> (Label, Label) {
        let (begin, back) = (asm.label(), asm.label());
        if !self.around.frags {
            return (self.around.refused, back);
        }
        self.slow.push(SlowRead { begin, back, size, to });
        (begin, back)
    }

    fn read_slowly(&self, asm: &mut Assembler, SlowRead { begin, back, size, to }: SlowRead) {
        asm.place(begin);
        asm.store(Size::B8, Reg::Fp, KEPT_A, A);
        asm.store(Size::B8, Reg::Fp, KEPT_X, X);
        asm.mov(Reg::R2, Reg::R1);
        asm.mov(Reg::R1, self.around.context);
        asm.mov(Reg::R3, Reg::Fp);
        asm.alu(Alu::Add, Reg::R3, i32::from(READ));
        asm.mov(Reg::R4, size.bytes() as i32);
        asm.call(helper::LOAD_BYTES);
        asm.jump_if(JumpCondition::Ne, Reg::R0, 0, self.around.refused);
        self.bounds(asm);
        asm.load(Size::B8, A, Reg::Fp, KEPT_A);
        asm.load(Size::B8, X, Reg::Fp, KEPT_X);
        asm.load(size, to, Reg::Fp, READ);
        in_order(asm, size, to);
        asm.jump(back);
    }
}

/// Converts from network byte order.
fn in_order(asm: &mut Assembler, size: Size, reg: Reg) {
    if size != Size::B1 {
        asm.to_be(reg, 8 * size.bytes() as i32);
    }
}

/// Loads a 32-bit constant; the upper half is 0.
fn constant(asm: &mut Assembler, reg: Reg, value: u32) {
    asm.alu32(Alu::Mov, reg, value as i32);
}

fn memory(word: u32) -> i16 {
    MEMORY + 4 * word as i16
}

fn when(test: Test) -> JumpCondition {
    match test {
        Test::Equal => JumpCondition::Eq,
        Test::Greater => JumpCondition::Gt,
        Test::GreaterEqual => JumpCondition::Ge,
        Test::AnyBit => JumpCondition::Set,
    }
}

#[cfg(test)]
mod tests;
