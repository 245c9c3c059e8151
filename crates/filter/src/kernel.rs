//! Filters in the kernel: whether a packet socket can run a filter in place of this process, with the same result.
//!
//! A socket filter does not see exactly what a reader of the finished capture sees:
//!
//! - **VLAN.** The kernel removes the outer tag of a frame, into `skb->vlan_tci`, before the filter runs; linerate
//!   restores it afterwards. So the program given to the kernel first tests for a removed tag
//!   (`SKF_AD_VLAN_TAG_PRESENT`, Linux 3.8). Frames that had one all pass, whole, and **the caller filters them in this
//!   process after restoring it**. The kernel's decision about frames without a tag is final; they have the same bytes,
//!   and the same `len`, in both places. This applies to every filter, not only to those with `vlan` in them: any
//!   offset after the addresses moves by 4 with the tag.
//! - **Offsets from 2^31 on** are beyond any frame for a reader, which gets 0; in the kernel they are negative and
//!   refer to ancillary data or other headers (`SKF_AD_OFF`, `SKF_NET_OFF`, `SKF_LL_OFF`). The sum of index register
//!   and constant also wraps around in the kernel: -4 + 14 is offset 10. So a bound is computed for every register and
//!   memory word; a load whose offset may reach 2^31 keeps the filter in this process.
//! - **Shifts by the index register** of 32 and more give 0 here; the kernel shifts by the low 5 bits.
//! - **Loops** (`protochain`) are rejected by the kernel, and so are programs beyond 4096 instructions and reads of
//!   memory that may not have been written.
//!
//! Everything else is the same: short frames (a load beyond them ends the program with 0), division by an index of 0
//! (likewise), zeros in both registers at the start. Fragmented buffers are read across fragments. Source:
//! net/core/filter.c and net/packet/af_packet.c of Linux.

use crate::interpret::Op;
use crate::program::{Insn, MAX_INSNS, MEMORY_WORDS, Program, code};

/// `SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT` of linux/filter.h.
pub const VLAN_TAG_PRESENT: u32 = 0xffff_f000 + 48;
/// First offset that is negative in the kernel.
const NEGATIVE: u64 = 1 << 31;

/// The reason why a filter must run in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserspaceReason {
    /// The program is too long, with the instructions that precede it.
    #[error("it has {0} instructions, more than the kernel accepts")]
    Length(usize),
    /// A loop.
    #[error("it loops (protochain), which the kernel rejects")]
    Loop,
    /// A load whose offset may be negative in the kernel.
    #[error("it computes offsets that may wrap around, which the kernel treats differently")]
    Offset,
    /// A shift by a computed number of bits.
    #[error("it shifts by a computed number of bits that may exceed 31, which the kernel treats differently")]
    Shift,
    /// A read of memory that may not have been written.
    #[error("it may read memory before writing it, which the kernel rejects")]
    Memory,
    /// It returns a computed value, which cannot be replaced by the snap length.
    #[error("it returns a computed value")]
    Return,
}

/// Program prefix that rejects frames whose VLAN tag was removed; others continue after it, with A = 0. A
/// [`KernelProgram`] of a filter starts with the same test, but passes them.
pub const REFUSE_TAGGED: [Insn; 3] =
    [Insn::new(code::LD_W_ABS, VLAN_TAG_PRESENT), Insn::jump(code::JEQ_K, 0, 1, 0), Insn::ret(0)];

/// A program for `SO_ATTACH_FILTER` on an `AF_PACKET` socket of type `SOCK_RAW`.
///
/// It returns the snap length for untagged frames that pass, 0 for those that do not, and `u32::MAX` for frames whose
/// VLAN tag was removed: filter those by [`crate::Filter::matches`] after the tag is restored, and truncate them only
/// then. Attaching can still fail with `ENOMEM`, if a program is larger than `net.core.optmem_max` allows: then run the
/// filter in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelProgram {
    insns: Vec<Insn>,
}

impl KernelProgram {
    /// Makes the kernel's version of a program. Frames that pass are truncated to `snap` bytes; 0: not truncated.
    ///
    /// # Errors
    /// The reason why the program must run in this process.
    pub fn new(program: &Program, snap: u32) -> Result<KernelProgram, UserspaceReason> {
        check_paths(program)?;
        // A is 0 after the test for the tag, as the filter itself expects at its start.
        let [load, test, _] = REFUSE_TAGGED;
        let mut insns = vec![load, test, Insn::ret(u32::MAX)];
        insns.extend(program.insns().iter().map(|&insn| match insn {
            Insn { code: code::RET_K, k: 1.., .. } => Insn::ret(keep(snap)),
            other => other,
        }));
        if insns.len() > MAX_INSNS {
            return Err(UserspaceReason::Length(insns.len()));
        }
        Ok(KernelProgram { insns })
    }

    /// Returns the program that passes every frame, truncated to `snap` bytes; 0: not truncated.
    pub(crate) fn accepting_all(snap: u32) -> KernelProgram {
        KernelProgram { insns: vec![Insn::ret(keep(snap))] }
    }

    /// Returns the instructions, in the layout of `struct sock_filter`.
    pub fn insns(&self) -> &[Insn] {
        &self.insns
    }

    /// Converts to the instructions.
    pub fn into_insns(self) -> Vec<Insn> {
        self.insns
    }
}

fn keep(snap: u32) -> u32 {
    if snap == 0 { u32::MAX } else { snap }
}

/// Upper bounds of each register and memory word at one position of a program.
#[derive(Clone, Copy, Default)]
struct Bounds {
    a: u32,
    x: u32,
    memory: [u32; MEMORY_WORDS],
}

impl Bounds {
    /// Returns the bounds at a position that two paths reach.
    fn join(self, other: Bounds) -> Bounds {
        let mut memory = self.memory;
        for (word, other) in memory.iter_mut().zip(other.memory) {
            *word = other.max(*word);
        }
        Bounds { a: self.a.max(other.a), x: self.x.max(other.x), memory }
    }
}

/// Checks whether a program can run in the kernel. Without loops, one pass in order visits every path to an instruction
/// before the instruction itself.
///
/// # Errors
/// The reason why it cannot.
fn check_paths(program: &Program) -> Result<(), UserspaceReason> {
    let ops = program.ops();
    check_statically(ops)?;
    let mut reached: Vec<Option<Bounds>> = vec![None; ops.len()];
    reached[0] = Some(Bounds::default());
    for (at, &op) in ops.iter().enumerate() {
        let Some(mut bounds) = reached[at] else { continue };
        step(op, &mut bounds)?;
        let mut flow = |target: usize| {
            reached[target] = Some(reached[target].map_or(bounds, |earlier| earlier.join(bounds)));
        };
        match op {
            Op::RetK(_) => {}
            Op::RetA => return Err(UserspaceReason::Return),
            Op::Ja(target) => flow(target as usize),
            Op::JumpK(_, _, jump) | Op::JumpX(_, jump) => {
                flow(usize::from(jump.yes));
                flow(usize::from(jump.no));
            }
            _ => flow(at + 1),
        }
    }
    Ok(())
}

/// Applies the kernel's own checks of offsets (`bpf_check_classic`) and memory (`check_load_and_stores`), so that it
/// never rejects our programs. They examine unreachable instructions too, and treat a return as continuing with the
/// next instruction.
fn check_statically(ops: &[Op]) -> Result<(), UserspaceReason> {
    let mut on_arrival = vec![u16::MAX; ops.len()];
    let mut written = 0_u16;
    for (at, &op) in ops.iter().enumerate() {
        written &= on_arrival[at];
        match op {
            Op::LdWord(k) | Op::LdHalf(k) | Op::LdByte(k) | Op::LdxMsh(k) if u64::from(k) >= NEGATIVE => {
                return Err(UserspaceReason::Offset);
            }
            Op::St(word) | Op::Stx(word) => written |= 1 << word,
            Op::LdMem(word) | Op::LdxMem(word) if written & (1 << word) == 0 => return Err(UserspaceReason::Memory),
            Op::Ja(target) if (target as usize) <= at => return Err(UserspaceReason::Loop),
            Op::Ja(target) => {
                on_arrival[target as usize] &= written;
                written = u16::MAX;
            }
            Op::JumpK(_, _, jump) | Op::JumpX(_, jump) => {
                on_arrival[usize::from(jump.yes)] &= written;
                on_arrival[usize::from(jump.no)] &= written;
                written = u16::MAX;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Checks one instruction against the bounds of its operands, and computes the bounds after it.
fn step(op: Op, bounds: &mut Bounds) -> Result<(), UserspaceReason> {
    let Bounds { a, x, memory } = bounds;
    match op {
        Op::LdWordInd(k) | Op::LdHalfInd(k) | Op::LdByteInd(k) if u64::from(k) + u64::from(*x) >= NEGATIVE => {
            return Err(UserspaceReason::Offset);
        }
        Op::LdWord(_) | Op::LdWordInd(_) => *a = u32::MAX,
        Op::LdHalf(_) | Op::LdHalfInd(_) => *a = 0xffff,
        Op::LdByte(_) | Op::LdByteInd(_) => *a = 0xff,
        Op::LdxMsh(_) => *x = 0xf << 2,
        Op::LdLen => *a = u32::MAX,
        Op::LdxLen => *x = u32::MAX,
        Op::LdImm(k) => *a = k,
        Op::LdxImm(k) => *x = k,
        Op::LdMem(word) => *a = memory[word as usize],
        Op::LdxMem(word) => *x = memory[word as usize],
        Op::St(word) => memory[word as usize] = *a,
        Op::Stx(word) => memory[word as usize] = *x,
        Op::Tax => *x = *a,
        Op::Txa => *a = *x,
        Op::LshX | Op::RshX if *x > 31 => return Err(UserspaceReason::Shift),
        Op::JumpK(..) | Op::JumpX(..) | Op::Ja(_) | Op::RetK(_) | Op::RetA => {}
        arithmetic => *a = greatest(arithmetic, *a, *x),
    }
    Ok(())
}

/// Returns the greatest value of the accumulator after an arithmetic instruction, with operands of at most `a` and `x`.
/// A result that may wrap around can be anything.
fn greatest(op: Op, a: u32, x: u32) -> u32 {
    match op {
        Op::AddK(k) => a.saturating_add(k),
        Op::AddX => a.saturating_add(x),
        Op::MulK(k) => a.saturating_mul(k),
        Op::MulX => a.saturating_mul(x),
        Op::LshK(by) => shifted(a, by),
        Op::LshX => shifted(a, x),
        Op::AndK(k) => a.min(k),
        Op::AndX => a.min(x),
        Op::OrK(k) | Op::XorK(k) => all_ones(a | k),
        Op::OrX | Op::XorX => all_ones(a | x),
        Op::DivK(k) => a / k.max(1),
        Op::RshK(by) => a >> by.min(31),
        Op::ModK(k) => a.min(k.saturating_sub(1)),
        Op::DivX | Op::ModX | Op::RshX => a,
        _ => u32::MAX,
    }
}

fn shifted(a: u32, by: u32) -> u32 {
    u32::try_from(u64::from(a) << by.min(32)).unwrap_or(u32::MAX)
}

/// Sets every bit below the highest one set.
fn all_ones(value: u32) -> u32 {
    u32::MAX.checked_shr(value.leading_zeros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(insns: &[Insn]) -> Option<UserspaceReason> {
        KernelProgram::new(&Program::new(insns.to_vec()).expect("a valid program"), 0).err()
    }

    /// Returns the reason for `before` followed by a byte load at X + `k`.
    fn indirect(before: &[Insn], k: u32) -> Option<UserspaceReason> {
        let mut insns = before.to_vec();
        insns.extend([Insn::new(code::LD_B_IND, k), Insn::ret(1)]);
        reason(&insns)
    }

    /// Runs a kernel program as the kernel would, with `tag` as the kernel's tag flag.
    fn run_with_tag(program: &KernelProgram, tag: u32, frame: &[u8]) -> u32 {
        let mut insns = program.insns().to_vec();
        assert_eq!(insns[0], Insn::new(code::LD_W_ABS, VLAN_TAG_PRESENT));
        insns[0] = Insn::new(code::LD_IMM, tag);
        Program::new(insns).expect("valid").run(frame, frame.len() as u32)
    }

    #[test]
    fn only_untagged_frames_are_filtered_and_truncated() {
        // Passes frames that start with 5, if A is 0 at the start.
        let insns = [
            Insn::jump(code::JEQ_K, 0, 0, 2),
            Insn::new(code::LD_B_ABS, 0),
            Insn::jump(code::JEQ_K, 5, 1, 0),
            Insn::ret(0),
            Insn::ret(262_144),
        ];
        let program = Program::new(insns.to_vec()).expect("valid");
        for (snap, kept) in [(96, 96), (0, u32::MAX)] {
            let kernel = KernelProgram::new(&program, snap).expect("runs in the kernel");
            assert_eq!(run_with_tag(&kernel, 0, &[5]), kept);
            assert_eq!(run_with_tag(&kernel, 0, &[6]), 0);
            assert_eq!(run_with_tag(&kernel, 0, &[]), 0);
            assert_eq!(run_with_tag(&kernel, 1, &[6]), u32::MAX);
            assert_eq!(run_with_tag(&kernel, 1, &[]), u32::MAX);
        }
    }

    #[test]
    fn offsets_that_are_negative_in_the_kernel() {
        for absolute in [code::LD_W_ABS, code::LD_H_ABS, code::LD_B_ABS, code::LDX_MSH] {
            assert_eq!(reason(&[Insn::new(absolute, 1 << 31), Insn::ret(1)]), Some(UserspaceReason::Offset));
            assert_eq!(reason(&[Insn::new(absolute, (1 << 31) - 1), Insn::ret(1)]), None);
            // The kernel checks unreachable instructions too.
            assert_eq!(
                reason(&[Insn::ret(1), Insn::new(absolute, u32::MAX), Insn::ret(1)]),
                Some(UserspaceReason::Offset)
            );
        }
        let word = [Insn::new(code::LD_W_ABS, 0), Insn::new(code::TAX, 0)];
        assert_eq!(indirect(&word, 0), Some(UserspaceReason::Offset));
        let half = [Insn::new(code::LD_H_ABS, 0), Insn::new(code::TAX, 0)];
        assert_eq!(indirect(&half, 14), None);
        assert_eq!(indirect(&half, 0x8000_0000 - 0xffff), Some(UserspaceReason::Offset));
        assert_eq!(indirect(&half, 0x8000_0000 - 0x1_0000), None);
        let less = [Insn::new(code::LD_B_ABS, 0), Insn::new(code::SUB_K, 4), Insn::new(code::TAX, 0)];
        assert_eq!(indirect(&less, 14), Some(UserspaceReason::Offset));
        let masked = [Insn::new(code::LD_W_ABS, 0), Insn::new(code::AND_K, 0xfff), Insn::new(code::TAX, 0)];
        assert_eq!(indirect(&masked, 14), None);
        let remembered = [Insn::new(code::LD_W_ABS, 0), Insn::new(code::ST, 3), Insn::new(code::LDX_MEM, 3)];
        assert_eq!(indirect(&remembered, 0), Some(UserspaceReason::Offset));
        assert_eq!(indirect(&[Insn::new(code::LDX_MSH, 14)], 14), None);
    }

    #[test]
    fn worse_of_two_paths_counts() {
        let meeting = |first, second| {
            [
                Insn::new(code::LD_B_ABS, 0),
                Insn::jump(code::JEQ_K, 1, 0, 2),
                Insn::new(code::LDX_IMM, first),
                Insn::new(code::JA, 1),
                Insn::new(code::LDX_IMM, second),
            ]
        };
        assert_eq!(indirect(&meeting(1, 2), 0), None);
        assert_eq!(indirect(&meeting(u32::MAX, 2), 0), Some(UserspaceReason::Offset));
        assert_eq!(indirect(&meeting(1, u32::MAX), 0), Some(UserspaceReason::Offset));
    }

    #[test]
    fn further_differences_of_the_kernel() {
        let end = Insn::ret(1);
        assert_eq!(
            reason(&[Insn::new(code::LDX_IMM, 32), Insn::new(code::LSH_X, 0), end]),
            Some(UserspaceReason::Shift)
        );
        assert_eq!(reason(&[Insn::new(code::LDX_IMM, 31), Insn::new(code::RSH_X, 0), end]), None);
        assert_eq!(reason(&[Insn::new(code::LD_MEM, 2), end]), Some(UserspaceReason::Memory));
        assert_eq!(reason(&[Insn::new(code::ST, 2), Insn::new(code::LD_MEM, 2), end]), None);
        assert_eq!(reason(&[end, Insn::new(code::JA, (-2_i32) as u32), end]), Some(UserspaceReason::Loop));
        assert_eq!(reason(&[Insn::new(code::RET_A, 0)]), Some(UserspaceReason::Return));
        assert_eq!(reason(&vec![end; 4094]), Some(UserspaceReason::Length(4097)));
        assert_eq!(reason(&vec![end; 4093]), None);
    }

    /// Generates a number, small or near a limit, and one that is not greater.
    fn bounded() -> impl Strategy<Value = (u32, u32)> {
        let number = || prop_oneof![0_u32..32, 0_u32..300, any::<u32>(), u32::MAX - 300..=u32::MAX];
        (number(), number()).prop_map(|(one, other)| (one.max(other), one.min(other)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_result_exceeds_its_bound(operation in 0_u16..0x16, k in 1_u32..32, a in bounded(), x in bounded()) {
            let arithmetic = Insn::new(operation << 3 | 4, k);
            let insns =
                [Insn::new(code::LD_IMM, a.1), Insn::new(code::LDX_IMM, x.1), arithmetic, Insn::new(code::RET_A, 0)];
            let Ok(program) = Program::new(insns.to_vec()) else { return Ok(()) };
            let mut bounds = Bounds { a: a.0, x: x.0, ..Bounds::default() };
            if step(program.ops()[2], &mut bounds).is_ok() {
                prop_assert!(program.run(&[], 0) <= bounds.a);
            }
        }
    }
}
