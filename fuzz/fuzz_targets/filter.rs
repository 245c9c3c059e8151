//! Any program that passes the checks ends on any frame, with the result that the instruction set defines.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_filter::program::{MEMORY_WORDS, code::*};
use linerate_filter::{Insn, KernelProgram, Program};

const CODES: [u16; 49] = [
    LD_IMM, LD_W_ABS, LD_H_ABS, LD_B_ABS, LD_W_IND, LD_H_IND, LD_B_IND, LD_MEM, LD_LEN, LDX_IMM, LDX_MEM, LDX_LEN,
    LDX_MSH, ST, STX, ADD_K, ADD_X, SUB_K, SUB_X, MUL_K, MUL_X, DIV_K, DIV_X, OR_K, OR_X, AND_K, AND_X, LSH_K, LSH_X,
    RSH_K, RSH_X, NEG, MOD_K, MOD_X, XOR_K, XOR_X, JA, JEQ_K, JEQ_X, JGT_K, JGT_X, JGE_K, JGE_X, JSET_K, JSET_X, RET_K,
    RET_A, TAX, TXA,
];

fuzz_target!(|bytes: &[u8]| {
    // Number of instructions, 4 bytes each; then a frame. The last instruction returns.
    let Some((count, rest)) = bytes.split_first() else { return };
    let (words, _) = rest.as_chunks::<4>();
    let count = words.len().min(usize::from(*count));
    let mut insns: Vec<Insn> = words[..count].iter().map(instruction).collect();
    insns.push(Insn::new(RET_A, 0));
    let frame = &rest[4 * count..];
    let wire = frame.len() as u32 + 100;
    if let Ok(program) = Program::new(insns) {
        assert_eq!(program.run(frame, wire), run(program.insns(), frame, wire).unwrap_or(0), "{:?}", program.insns());
        if let Ok(kernel) = KernelProgram::new(&program, 0) {
            assert!(Program::new(kernel.into_insns()).is_ok());
        }
    }
});

/// Returns an instruction with short jumps and small operands, which most checks accept; all ones means -2, a jump
/// back.
fn instruction([code, jt, jf, k]: &[u8; 4]) -> Insn {
    let k = if *k == u8::MAX { -2_i32 as u32 } else { u32::from(*k) };
    Insn { code: CODES[usize::from(*code) % CODES.len()], jt: jt & 7, jf: jf & 7, k }
}

/// Interprets the instruction set by its fields: class, size or operation, mode or source (McCanne and Jacobson, "The
/// BSD Packet Filter", 1993, with `MOD` and `XOR` of linux/filter.h). `None` rejects the frame.
fn run(insns: &[Insn], frame: &[u8], wire: u32) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0_u32, 0_u32, [0_u32; MEMORY_WORDS]);
    let (mut at, mut turns) = (0_usize, frame.len());
    loop {
        let Insn { code, jt, jf, k } = insns[at];
        let operand = if code & 8 != 0 { x } else { k };
        at += 1;
        match code & 7 {
            0 => a = load(code, k, x, frame, wire, &memory)?,
            1 if code & 0xe0 == 0xa0 => x = 4 * (u32::from(*frame.get(k as usize)?) & 15),
            1 => x = load(code, k, x, frame, wire, &memory)?,
            2 => memory[k as usize] = a,
            3 => memory[k as usize] = x,
            4 => a = operate(code >> 4, a, operand)?,
            5 => {
                let jump = match code >> 4 {
                    0 => i64::from(k as i32),
                    1 => i64::from(if a == operand { jt } else { jf }),
                    2 => i64::from(if a > operand { jt } else { jf }),
                    3 => i64::from(if a >= operand { jt } else { jf }),
                    _ => i64::from(if a & operand != 0 { jt } else { jf }),
                };
                if jump < 0 {
                    turns = turns.checked_sub(1)?;
                }
                at = (at as i64 + jump) as usize;
            }
            6 => return Some(if code & 0x10 != 0 { a } else { k }),
            _ if code & 0x80 != 0 => a = x,
            _ => x = a,
        }
    }
}

fn load(code: u16, k: u32, x: u32, frame: &[u8], wire: u32, memory: &[u32]) -> Option<u32> {
    let start = match code & 0xe0 {
        0x00 => return Some(k),
        0x60 => return Some(memory[k as usize]),
        0x80 => return Some(wire),
        0x20 => k as usize,
        _ => k as usize + x as usize,
    };
    let size = [4, 2, 1][usize::from(code >> 3 & 3)];
    let bytes = frame.get(start..start + size)?;
    Some(bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

fn operate(operation: u16, a: u32, operand: u32) -> Option<u32> {
    let (wide, by) = (u64::from(a), u64::from(operand));
    Some(match operation {
        0 => (wide + by) as u32,
        1 => a.wrapping_sub(operand),
        2 => (wide * by) as u32,
        3 => a.checked_div(operand)?,
        4 => a | operand,
        5 => a & operand,
        6 => {
            if by < 32 {
                (wide << by) as u32
            } else {
                0
            }
        }
        7 => {
            if by < 32 {
                (wide >> by) as u32
            } else {
                0
            }
        }
        8 => 0_u32.wrapping_sub(a),
        9 => a.checked_rem(operand)?,
        _ => a ^ operand,
    })
}
