//! eBPF instructions and an assembler for them (RFC 9669).
//!
//! The programs that linerate loads into the kernel are generated at run time, for the port and the frames at hand: no
//! compiler is needed, and constants of a run are constants in its program.

/// One instruction: opcode, registers, offset and immediate value, in the order of `struct bpf_insn`
/// (linux/bpf.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Insn {
    opcode: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Insn>() == 8);

/// A register. R0 holds results, R1 to R5 arguments and are lost in a call, R6 to R9 are kept, FP is the top
/// of a stack of 512 bytes and cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reg {
    /// Result of a call and of the program.
    R0,
    /// First argument; the context when the program begins.
    R1,
    /// Second argument.
    R2,
    /// Third argument.
    R3,
    /// Fourth argument.
    R4,
    /// Fifth argument.
    R5,
    /// Kept over calls.
    R6,
    /// Kept over calls.
    R7,
    /// Kept over calls.
    R8,
    /// Kept over calls.
    R9,
    /// The frame pointer.
    Fp,
}

/// Width of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// One.
    B1 = 0x10,
    /// Two.
    B2 = 0x08,
    /// Four.
    B4 = 0x00,
    /// Eight.
    B8 = 0x18,
}

impl Size {
    /// Returns the number of bytes.
    pub fn bytes(self) -> usize {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }
}

/// Arithmetic on a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alu {
    /// Sum.
    Add = 0x00,
    /// Difference.
    Sub = 0x10,
    /// Product.
    Mul = 0x20,
    /// Quotient, unsigned; 0 if the divisor is 0.
    Div = 0x30,
    /// Or.
    Or = 0x40,
    /// And.
    And = 0x50,
    /// Shift left.
    Lsh = 0x60,
    /// Shift right.
    Rsh = 0x70,
    /// Remainder, unsigned; unchanged if the divisor is 0.
    Mod = 0x90,
    /// Exclusive or.
    Xor = 0xa0,
    /// Copy.
    Mov = 0xb0,
}

/// Jump conditions; comparisons are unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JumpCondition {
    /// Equal.
    Eq = 0x10,
    /// Greater.
    Gt = 0x20,
    /// Greater or equal.
    Ge = 0x30,
    /// Any common bit.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Less.
    Lt = 0xa0,
    /// Less or equal.
    Le = 0xb0,
}

/// The second operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A constant, sign-extended to 64 bits.
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Operand::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Self {
        Operand::Imm(value)
    }
}

/// Functions of the kernel by their number (`enum bpf_func_id`, linux/bpf.h).
pub mod helper {
    /// Nanoseconds since boot.
    pub const KTIME: i32 = 5;
    /// The processor that runs the program.
    pub const PROCESSOR: i32 = 8;
    /// A number that identifies the running thread.
    pub const TASK: i32 = 35;
    /// Redirects the frame to the entry of a map under a key.
    pub const REDIRECT_MAP: i32 = 51;
    /// Moves the start of the metadata before a frame.
    pub const ADJUST_META: i32 = 54;
    /// Moves the end of a frame.
    pub const ADJUST_TAIL: i32 = 65;
    /// Writes an event into a ring buffer and wakes its reader.
    pub const RING_OUTPUT: i32 = 130;
    /// Length of a frame, including its fragments.
    pub const BUFFER_LENGTH: i32 = 188;
    /// Copies bytes out of a frame, over its fragments too.
    pub const LOAD_BYTES: i32 = 189;
    /// Copies bytes into a frame, over its fragments too.
    pub const STORE_BYTES: i32 = 190;
    /// Nanoseconds of International Atomic Time.
    pub const TAI: i32 = 208;
}

/// A jump target in the program; created by [`Assembler::label`].
#[derive(Clone, Copy, Debug)]
pub struct Label(usize);

/// Assembles a program.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    insns: Vec<Insn>,
    /// Position of each label.
    labels: Vec<Option<usize>>,
    /// Jumps by instruction, and the label of each.
    jumps: Vec<(usize, Label)>,
}

/// A jump that is too long to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program for the kernel is too long: a jump over {0} instructions")]
pub struct TooFar(pub usize);

impl Assembler {
    /// Creates an empty program.
    pub fn new() -> Self {
        Assembler::default()
    }

    /// Creates a label without a position.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Sets the position of a label to here.
    pub fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    /// `dst = dst op value`, on 64 bits.
    pub fn alu(&mut self, op: Alu, dst: Reg, value: impl Into<Operand>) {
        self.operate(0x07 | op as u8, dst, value.into(), 0);
    }

    /// `dst = dst op value` on 32 bits; the upper half becomes 0.
    pub fn alu32(&mut self, op: Alu, dst: Reg, value: impl Into<Operand>) {
        self.operate(0x04 | op as u8, dst, value.into(), 0);
    }

    /// `dst = value`, on 64 bits.
    pub fn mov(&mut self, dst: Reg, value: impl Into<Operand>) {
        self.alu(Alu::Mov, dst, value);
    }

    /// `dst = value`, a constant of 64 bits.
    pub fn mov64(&mut self, dst: Reg, value: u64) {
        self.wide(dst, 0, value as u32 as i32, (value >> 32) as i32);
    }

    /// `dst = ` the low `bits` (16, 32, 64) of dst as a number in network byte order.
    pub fn to_be(&mut self, dst: Reg, bits: i32) {
        self.push(0xdc, dst, Reg::R0, 0, bits);
    }

    /// `dst = *(size *)(src + offset)`, zero-extended.
    pub fn load(&mut self, size: Size, dst: Reg, src: Reg, offset: i16) {
        self.push(0x61 | size as u8, dst, src, offset, 0);
    }

    /// `*(size *)(dst + offset) = value`.
    pub fn store(&mut self, size: Size, dst: Reg, offset: i16, value: impl Into<Operand>) {
        match value.into() {
            Operand::Reg(src) => self.push(0x63 | size as u8, dst, src, offset, 0),
            Operand::Imm(immediate) => self.push(0x62 | size as u8, dst, Reg::R0, offset, immediate),
        }
    }

    /// `*(u64 *)(dst + offset) += src`, atomically.
    pub fn atomic_add(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.push(0xdb, dst, src, offset, 0);
    }

    /// `src = exchange(*(u64 *)(dst + offset), src)`: orders earlier stores before this one.
    pub fn exchange(&mut self, dst: Reg, offset: i16, src: Reg) {
        self.push(0xdb, dst, src, offset, 0xe1);
    }

    /// Jumps to a label.
    pub fn jump(&mut self, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.push(0x05, Reg::R0, Reg::R0, 0, 0);
    }

    /// Jumps to a label if the comparison of `dst` with `value` holds, on 64 bits.
    pub fn jump_if(&mut self, when: JumpCondition, dst: Reg, value: impl Into<Operand>, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.operate(0x05 | when as u8, dst, value.into(), 0);
    }

    /// Calls a function of [`helper`].
    pub fn call(&mut self, helper: i32) {
        self.push(0x85, Reg::R0, Reg::R0, 0, helper);
    }

    /// Calls a kernel function by its number in the kernel's type information.
    pub fn call_kernel(&mut self, id: u32) {
        self.push(0x85, Reg::R0, Reg::R2, 0, id as i32);
    }

    /// `dst = ` the map of a descriptor.
    pub fn map(&mut self, dst: Reg, fd: i32) {
        self.wide(dst, 1, fd, 0);
    }

    /// `dst = ` the address of a byte in the only value of an array map.
    pub fn map_value(&mut self, dst: Reg, fd: i32, offset: i32) {
        self.wide(dst, 2, fd, offset);
    }

    /// Returns R0.
    pub fn exit(&mut self) {
        self.push(0x95, Reg::R0, Reg::R0, 0, 0);
    }

    /// Returns the number of instructions.
    pub fn len(&self) -> usize {
        self.insns.len()
    }

    /// Returns whether the program is empty.
    pub fn is_empty(&self) -> bool {
        self.insns.is_empty()
    }

    /// Returns the program with its jumps resolved.
    ///
    /// # Panics
    /// If a jump leads to a label that was never placed.
    pub fn finish(mut self) -> Result<Vec<Insn>, TooFar> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("every jump target has a position");
            let distance = target as i64 - at as i64 - 1;
            self.insns[at].offset = i16::try_from(distance).map_err(|_| TooFar(distance.unsigned_abs() as usize))?;
        }
        Ok(self.insns)
    }

    fn operate(&mut self, opcode: u8, dst: Reg, value: Operand, offset: i16) {
        match value {
            Operand::Reg(src) => self.push(opcode | 0x08, dst, src, offset, 0),
            Operand::Imm(immediate) => self.push(opcode, dst, Reg::R0, offset, immediate),
        }
    }

    /// Emits the only instruction of two words: a 64-bit constant, with its kind in place of the source.
    fn wide(&mut self, dst: Reg, kind: u8, low: i32, high: i32) {
        self.insns.push(Insn { opcode: 0x18, registers: dst as u8 | kind << 4, offset: 0, immediate: low });
        self.insns.push(Insn { opcode: 0, registers: 0, offset: 0, immediate: high });
    }

    fn push(&mut self, opcode: u8, dst: Reg, src: Reg, offset: i16, immediate: i32) {
        self.insns.push(Insn { opcode, registers: dst as u8 | (src as u8) << 4, offset, immediate });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodings from RFC 9669.
    #[test]
    fn instructions_follow_the_standard_encoding() {
        let mut asm = Assembler::new();
        let end = asm.label();
        asm.mov(Reg::R1, Reg::R2);
        asm.mov(Reg::R0, -1);
        asm.alu32(Alu::Add, Reg::R3, 7);
        asm.load(Size::B8, Reg::R1, Reg::Fp, -8);
        asm.store(Size::B2, Reg::R1, 12, 5);
        asm.store(Size::B4, Reg::R1, 12, Reg::R9);
        asm.jump_if(JumpCondition::Ne, Reg::R0, 0, end);
        asm.mov64(Reg::R4, 0x1122_3344_5566_7788);
        asm.to_be(Reg::R4, 16);
        asm.call(helper::TAI);
        asm.place(end);
        asm.exit();
        let bytes: Vec<[u8; 4]> = asm
            .finish()
            .unwrap()
            .iter()
            .map(|one| [one.opcode, one.registers, one.offset as u8, one.immediate as u8])
            .collect();
        let expected: [[u8; 4]; 12] = [
            [0xbf, 0x21, 0, 0],
            [0xb7, 0x00, 0, 0xff],
            [0x04, 0x03, 0, 7],
            [0x79, 0xa1, 0xf8, 0],
            [0x6a, 0x01, 12, 5],
            [0x63, 0x91, 12, 0],
            [0x55, 0x00, 4, 0],
            [0x18, 0x04, 0, 0x88],
            [0x00, 0x00, 0, 0x44],
            [0xdc, 0x04, 0, 16],
            [0x85, 0x00, 0, 208],
            [0x95, 0x00, 0, 0],
        ];
        assert_eq!(bytes, expected);
    }

    #[test]
    fn a_jump_too_far_is_an_error() {
        let mut asm = Assembler::new();
        let end = asm.label();
        asm.jump(end);
        for _ in 0..40_000 {
            asm.mov(Reg::R0, 0);
        }
        asm.place(end);
        asm.exit();
        assert_eq!(asm.finish().unwrap_err(), TooFar(40_000));
    }
}
