//! Classic BPF: instructions, and checked programs.
//!
//! The checks are those of the kernel's `bpf_check_classic` (net/core/filter.c) with one exception that libpcap's
//! `bpf_validate` makes too: an unconditional jump may go backwards, which is how `protochain` walks a chain of
//! headers. The interpreter bounds such loops, the kernel rejects them.

use crate::interpret::Op;

/// Maximum number of instructions of a program (`BPF_MAXINSNS` of linux/bpf_common.h).
pub const MAX_INSNS: usize = 4096;
/// Words of scratch memory (`BPF_MEMWORDS` of linux/filter.h).
pub const MEMORY_WORDS: usize = 16;

/// One classic BPF instruction, laid out as `struct sock_filter` of linux/filter.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insn {
    /// Operation code.
    pub code: u16,
    /// Instructions to skip if a test holds.
    pub jt: u8,
    /// Instructions to skip if it does not.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

const _: () = assert!(size_of::<Insn>() == 8 && align_of::<Insn>() == 4);

impl Insn {
    /// Returns an instruction that does not branch.
    pub const fn new(code: u16, k: u32) -> Insn {
        Insn { code, jt: 0, jf: 0, k }
    }

    /// Returns a conditional jump.
    pub const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Insn {
        Insn { code, jt, jf, k }
    }

    /// Returns the instruction that ends with `k`: bytes of the frame to keep, 0 to reject it.
    pub const fn ret(k: u32) -> Insn {
        Insn::new(code::RET_K, k)
    }
}

/// All instruction codes (linux/bpf_common.h, linux/filter.h): the sum of class, size and mode, or of class, operation
/// and source.
#[allow(missing_docs)]
pub mod code {
    pub const LD_IMM: u16 = 0x00;
    pub const LD_W_ABS: u16 = 0x20;
    pub const LD_H_ABS: u16 = 0x28;
    pub const LD_B_ABS: u16 = 0x30;
    pub const LD_W_IND: u16 = 0x40;
    pub const LD_H_IND: u16 = 0x48;
    pub const LD_B_IND: u16 = 0x50;
    pub const LD_MEM: u16 = 0x60;
    pub const LD_LEN: u16 = 0x80;
    pub const LDX_IMM: u16 = 0x01;
    pub const LDX_MEM: u16 = 0x61;
    pub const LDX_LEN: u16 = 0x81;
    pub const LDX_MSH: u16 = 0xb1;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const ADD_K: u16 = 0x04;
    pub const ADD_X: u16 = 0x0c;
    pub const SUB_K: u16 = 0x14;
    pub const SUB_X: u16 = 0x1c;
    pub const MUL_K: u16 = 0x24;
    pub const MUL_X: u16 = 0x2c;
    pub const DIV_K: u16 = 0x34;
    pub const DIV_X: u16 = 0x3c;
    pub const OR_K: u16 = 0x44;
    pub const OR_X: u16 = 0x4c;
    pub const AND_K: u16 = 0x54;
    pub const AND_X: u16 = 0x5c;
    pub const LSH_K: u16 = 0x64;
    pub const LSH_X: u16 = 0x6c;
    pub const RSH_K: u16 = 0x74;
    pub const RSH_X: u16 = 0x7c;
    pub const NEG: u16 = 0x84;
    pub const MOD_K: u16 = 0x94;
    pub const MOD_X: u16 = 0x9c;
    pub const XOR_K: u16 = 0xa4;
    pub const XOR_X: u16 = 0xac;
    pub const JA: u16 = 0x05;
    pub const JEQ_K: u16 = 0x15;
    pub const JEQ_X: u16 = 0x1d;
    pub const JGT_K: u16 = 0x25;
    pub const JGT_X: u16 = 0x2d;
    pub const JGE_K: u16 = 0x35;
    pub const JGE_X: u16 = 0x3d;
    pub const JSET_K: u16 = 0x45;
    pub const JSET_X: u16 = 0x4d;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
}

/// A checked program: running it cannot leave the program or its memory.
#[derive(Clone, Debug)]
pub struct Program {
    insns: Vec<Insn>,
    ops: Vec<Op>,
}

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// Its first fault.
    pub fn new(insns: Vec<Insn>) -> Result<Program, ProgramFault> {
        if insns.is_empty() || insns.len() > MAX_INSNS {
            return Err(ProgramFault::Length(insns.len()));
        }
        let ops =
            insns.iter().enumerate().map(|(at, insn)| check(*insn, at, insns.len())).collect::<Result<Vec<_>, _>>()?;
        match ops.last() {
            Some(Op::RetK(_) | Op::RetA) => Ok(Program { insns, ops }),
            _ => Err(ProgramFault::NoReturn),
        }
    }

    /// Returns the instructions as given.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// Returns the decoded instructions.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }
}

/// The fault of an invalid program. `at` counts instructions from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramFault {
    /// The program is empty or too long.
    #[error("it has {0} instructions; 1 to {MAX_INSNS} are allowed")]
    Length(usize),
    /// No instruction has this code.
    #[error("instruction {at}: unknown code {code:#x}")]
    Code {
        /// Instruction.
        at: usize,
        /// The code.
        code: u16,
    },
    /// A jump leaves the program.
    #[error("instruction {at}: jumps out of the program")]
    Jump {
        /// Instruction.
        at: usize,
    },
    /// The memory word is beyond the 16 that exist.
    #[error("instruction {at}: memory word {word} exceeds the limit of {MEMORY_WORDS}")]
    Memory {
        /// Instruction.
        at: usize,
        /// The word.
        word: u32,
    },
    /// Division by the constant 0.
    #[error("instruction {at}: divides by 0")]
    Division {
        /// Instruction.
        at: usize,
    },
    /// Shift by 32 bits or more.
    #[error("instruction {at}: shifts by {by} bits; at most 31 are allowed")]
    Shift {
        /// Instruction.
        at: usize,
        /// Number of bits.
        by: u32,
    },
    /// The program can run past its end.
    #[error("its last instruction does not return")]
    NoReturn,
}

/// Checks and decodes instruction `at` of a program of `len` instructions.
fn check(insn: Insn, at: usize, len: usize) -> Result<Op, ProgramFault> {
    let op = Op::decode(insn, at).ok_or(ProgramFault::Code { at, code: insn.code })?;
    match op {
        Op::LdMem(word) | Op::LdxMem(word) | Op::St(word) | Op::Stx(word) if word >= MEMORY_WORDS as u32 => {
            Err(ProgramFault::Memory { at, word })
        }
        Op::DivK(0) | Op::ModK(0) => Err(ProgramFault::Division { at }),
        Op::LshK(by) | Op::RshK(by) if by > 31 => Err(ProgramFault::Shift { at, by }),
        Op::Ja(target) if target as usize >= len => Err(ProgramFault::Jump { at }),
        Op::JumpK(_, _, jump) | Op::JumpX(_, jump) if jump.furthest() >= len => Err(ProgramFault::Jump { at }),
        op => Ok(op),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fault(insns: &[Insn]) -> Option<ProgramFault> {
        Program::new(insns.to_vec()).err()
    }

    #[test]
    fn invalid_programs_are_rejected_and_valid_ones_pass() {
        let end = Insn::ret(1);
        assert_eq!(fault(&[]), Some(ProgramFault::Length(0)));
        assert_eq!(fault(&vec![end; 4097]), Some(ProgramFault::Length(4097)));
        assert_eq!(fault(&vec![end; 4096]), None);
        assert_eq!(fault(&[Insn::new(0x0e, 0), end]), Some(ProgramFault::Code { at: 0, code: 0x0e }));
        assert_eq!(fault(&[end, Insn::new(code::TAX, 0)]), Some(ProgramFault::NoReturn));
        for word in [code::LD_MEM, code::LDX_MEM, code::ST, code::STX] {
            assert_eq!(fault(&[Insn::new(word, 16), end]), Some(ProgramFault::Memory { at: 0, word: 16 }));
            assert_eq!(fault(&[Insn::new(word, 15), end]), None);
        }
        for division in [code::DIV_K, code::MOD_K] {
            assert_eq!(fault(&[Insn::new(division, 0), end]), Some(ProgramFault::Division { at: 0 }));
            assert_eq!(fault(&[Insn::new(division, 1), end]), None);
        }
        for shift in [code::LSH_K, code::RSH_K] {
            assert_eq!(fault(&[Insn::new(shift, 32), end]), Some(ProgramFault::Shift { at: 0, by: 32 }));
            assert_eq!(fault(&[Insn::new(shift, 31), end]), None);
        }
    }

    #[test]
    fn jumps_stay_within_the_program() {
        let end = Insn::ret(1);
        assert_eq!(fault(&[Insn::jump(code::JEQ_K, 0, 1, 0), end, end]), None);
        assert_eq!(fault(&[Insn::jump(code::JEQ_K, 0, 2, 0), end, end]), Some(ProgramFault::Jump { at: 0 }));
        assert_eq!(fault(&[Insn::jump(code::JSET_X, 0, 0, 2), end, end]), Some(ProgramFault::Jump { at: 0 }));
        assert_eq!(fault(&[Insn::new(code::JA, 1), end, end]), None);
        assert_eq!(fault(&[Insn::new(code::JA, 2), end, end]), Some(ProgramFault::Jump { at: 0 }));
        // Backwards to the first instruction, and one further.
        assert_eq!(fault(&[end, Insn::new(code::JA, (-2_i32) as u32), end]), None);
        assert_eq!(fault(&[end, Insn::new(code::JA, (-3_i32) as u32), end]), Some(ProgramFault::Jump { at: 1 }));
    }

    proptest! {
        #[test]
        fn any_instructions_are_rejected_or_run(
            parts in prop::collection::vec((0_u16..0xb8, 0_u8..4, 0_u8..4, 0_u32..40), 0..40),
            frame in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut insns: Vec<Insn> =
                parts.iter().map(|&(code, jt, jf, k)| Insn { code, jt, jf, k }).filter(|i| Op::decode(*i, 0).is_some()).collect();
            insns.push(Insn::ret(7));
            if let Ok(program) = Program::new(insns) {
                program.run(&frame, 64);
            }
        }
    }
}
