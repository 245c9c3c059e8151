//! Random valid programs, without loops, with all memory written first.

use linerate_filter::program::code::*;
use linerate_filter::{Insn, Program};
use proptest::prelude::*;

const LOADS: &[u16] =
    &[LD_W_ABS, LD_H_ABS, LD_B_ABS, LD_W_IND, LD_H_IND, LD_B_IND, LDX_MSH, LD_IMM, LDX_IMM, LD_LEN, LDX_LEN, TAX, TXA];
const ARITHMETIC: &[u16] = &[
    ADD_K, ADD_X, SUB_K, SUB_X, MUL_K, MUL_X, DIV_X, MOD_X, OR_K, OR_X, AND_K, AND_X, XOR_K, XOR_X, NEG, LSH_X, RSH_X,
];
const JUMPS: &[u16] = &[JEQ_K, JEQ_X, JGT_K, JGT_X, JGE_K, JGE_X, JSET_K, JSET_X];

/// Generates an operand: mostly small, sometimes where offsets turn negative or wrap around.
fn operand() -> impl Strategy<Value = u32> {
    prop_oneof![6 => 0_u32..24, 2 => 0_u32..80, 1 => any::<u32>(), 1 => 0x7fff_fff0_u32..0x8000_0010, 1 => 0xffff_ffd0_u32..=0xffff_ffff]
}

/// Generates one instruction of the body; jump distances are limited later.
fn insn() -> impl Strategy<Value = Insn> {
    let from = |codes: &'static [u16]| {
        (prop::sample::select(codes), operand(), 0_u8..4, 0_u8..4).prop_map(|(code, k, jt, jf)| Insn {
            code,
            jt,
            jf,
            k,
        })
    };
    prop_oneof![
        6 => from(LOADS),
        3 => from(ARITHMETIC),
        2 => from(JUMPS),
        1 => (prop::sample::select(&[LSH_K, RSH_K][..]), 0_u32..32).prop_map(|(code, k)| Insn::new(code, k)),
        1 => (prop::sample::select(&[DIV_K, MOD_K][..]), 1_u32..40).prop_map(|(code, k)| Insn::new(code, k)),
        2 => (prop::sample::select(&[ST, STX, LD_MEM, LDX_MEM][..]), 0_u32..16).prop_map(|(code, k)| Insn::new(code, k)),
        1 => (0_u32..4).prop_map(|k| Insn::new(JA, k)),
    ]
}

/// Generates a program that ends with `tail`.
pub(crate) fn program(tail: impl Strategy<Value = Vec<Insn>>) -> impl Strategy<Value = Program> {
    (prop::collection::vec(insn(), 0..24), tail).prop_map(|(body, tail)| {
        let mut insns: Vec<Insn> = (0..16).map(|word| Insn::new(ST, word)).collect();
        insns.extend(body);
        insns.extend(tail);
        let len = insns.len();
        for (at, insn) in insns.iter_mut().enumerate() {
            let most = len - at - 1;
            if insn.code == JA {
                insn.k = insn.k.min((most - 1) as u32);
            }
            (insn.jt, insn.jf) = (insn.jt.min((most.max(1) - 1) as u8), insn.jf.min((most.max(1) - 1) as u8));
        }
        Program::new(insns).expect("a valid program")
    })
}
