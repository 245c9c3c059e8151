//! The program that only counts frames.

use super::{Form, SIZES, VLAN_TAG, Word, begin, call_vlan_tag, count, leave};
use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Reg, Size, TooFar, helper};
use linerate_burst::Sizes;

/// Returns the program, for the driver and a number of queues; frames longer than `super_frame` are counted as
/// super-frames.
pub(crate) fn tallying(form: Form, queues: u32, words: i32, super_frame: u32) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let pass = begin(&mut asm, queues, words);
    asm.mov(Reg::R9, 0);
    if let Some(id) = form.vlan_tag {
        let none = asm.label();
        call_vlan_tag(&mut asm, id);
        asm.jump_if(JumpCondition::Eq, Reg::R9, 0, none);
        asm.mov(Reg::R9, VLAN_TAG);
        count(&mut asm, form, Word::Tagged);
        asm.place(none);
    }
    asm.mov(Reg::R1, Reg::R6);
    asm.call(helper::BUFFER_LENGTH);
    let fits = asm.label();
    asm.jump_if(JumpCondition::Le, Reg::R0, super_frame.min(i32::MAX as u32) as i32, fits);
    count(&mut asm, form, Word::SuperFrames);
    asm.place(fits);
    asm.alu(Alu::Add, Reg::R9, Reg::R0);
    count(&mut asm, form, Word::Head);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Bytes.at());
    asm.alu(Alu::Add, Reg::R1, Reg::R9);
    asm.store(Size::B8, Reg::R8, Word::Bytes.at(), Reg::R1);
    for (word, when) in [(Word::Least, JumpCondition::Ge), (Word::Most, JumpCondition::Le)] {
        let known = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::R8, word.at());
        asm.jump_if(when, Reg::R9, Reg::R1, known);
        asm.store(Size::B8, Reg::R8, word.at(), Reg::R9);
        asm.place(known);
    }
    // R1 steps through the buckets.
    let found = asm.label();
    asm.mov(Reg::R1, Reg::R8);
    for bound in Sizes::bounds() {
        asm.jump_if(JumpCondition::Lt, Reg::R9, bound as i32, found);
        asm.alu(Alu::Add, Reg::R1, 8);
    }
    asm.place(found);
    asm.load(Size::B8, Reg::R2, Reg::R1, 8 * SIZES as i16);
    asm.alu(Alu::Add, Reg::R2, 1);
    asm.store(Size::B8, Reg::R1, 8 * SIZES as i16, Reg::R2);
    asm.mov(Reg::R0, form.verdict());
    asm.exit();
    leave(&mut asm, pass, super::XDP_PASS);
    asm.finish()
}
