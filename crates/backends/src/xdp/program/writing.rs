//! The program that writes frames into an area.

use super::{Form, MD_DATA, MD_DATA_END, VLAN_TAG, Word, XDP_PASS, begin, call_vlan_tag, count, leave};
use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Label, Reg, Size, TooFar, helper};
use crate::sys::area::{ALIGN, Layout};
use crate::xdp::filtering::{self, FilterContext};
use linerate_burst::{Desc, Flags};
use linerate_filter::Program as Filter;
use std::mem::offset_of;

/// Shortest frame that is written: one with a header.
pub(crate) const SHORTEST: i32 = 14;
/// Longest frame; a frame longer than a piece is copied in two, because `bpf_xdp_load_bytes` loads at most 0xffff
/// bytes.
const PIECE: i32 = 0x8000;
const LONGEST: i32 = PIECE + 0xffff;
const _: () = assert!(LONGEST as usize + VLAN_TAG as usize <= crate::sys::area::BEHIND);
const MAC_ADDRESSES: i32 = 12;

/// Stack offsets, below those of [`call_vlan_tag`]: first the bytes of the frame, then those that are written.
const LENGTH: i16 = -16;
const POSITION: i16 = -24;
const NUMBER: i16 = -32;
const TAG: i16 = -40;
/// Offset of the frame in its segment.
const PLACE: i16 = -48;

/// Returns the program that writes frames into an area, with the descriptors of its words, the area and the bell;
/// frames longer than `super_frame` are flagged. Frames that do not match the filter are only counted.
pub(crate) fn writing(
    form: Form,
    (words, area, bell): (i32, i32, i32),
    layout: Layout,
    super_frame: u32,
    filter: Option<&Filter>,
) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (full, bad, drop, refused) = (asm.label(), asm.label(), asm.label(), asm.label());
    let pass = begin(&mut asm, layout.queues, words);
    if let Some(id) = form.vlan_tag {
        asm.mov(Reg::R9, 0);
        call_vlan_tag(&mut asm, id);
        asm.store(Size::B8, Reg::Fp, TAG, Reg::R9);
    }
    asm.mov(Reg::R1, Reg::R6);
    asm.call(helper::BUFFER_LENGTH);
    asm.mov(Reg::R9, Reg::R0);
    asm.jump_if(JumpCondition::Lt, Reg::R9, SHORTEST, bad);
    asm.jump_if(JumpCondition::Gt, Reg::R9, LONGEST, bad);
    asm.store(Size::B8, Reg::Fp, LENGTH, Reg::R9);
    let whole = asm.label();
    if let Some(filter) = filter {
        if form.vlan_tag.is_some() {
            asm.load(Size::B8, Reg::R1, Reg::Fp, TAG);
            asm.jump_if(JumpCondition::Ne, Reg::R1, 0, whole);
        }
        let around = FilterContext {
            context: Reg::R6,
            bounds: (MD_DATA, MD_DATA_END),
            length: LENGTH,
            frags: form.frags,
            refused,
        };
        filtering::filter(&mut asm, filter, around);
    }
    cut(&mut asm, bad);
    asm.place(whole);
    find_room(&mut asm, layout, full);
    asm.call(form.clock.helper());
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Ahead.at());
    asm.alu(Alu::Sub, Reg::R0, Reg::R1);
    // Offsets of the segment and the desc.
    asm.alu(Alu::Mul, Reg::R7, layout.stride() as i32);
    asm.load(Size::B8, Reg::R1, Reg::Fp, NUMBER);
    asm.alu(Alu::And, Reg::R1, layout.frames as i32 - 1);
    asm.alu(Alu::Mul, Reg::R1, size_of::<Desc>() as i32);
    asm.alu(Alu::Add, Reg::R1, Reg::R7);
    asm.map_value(Reg::R2, area, layout.descs_at() as i32);
    asm.alu(Alu::Add, Reg::R2, Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::Fp, PLACE);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    write_desc(&mut asm, form, super_frame);
    asm.map_value(Reg::R1, area, 0);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    match form.vlan_tag {
        None => copy(&mut asm, 0, 0, bad),
        Some(_) => copy_with_tag(&mut asm, bad),
    }
    publish(&mut asm, layout);
    wake(&mut asm, bell, drop);
    leave(&mut asm, drop, form.verdict());
    let filtered = filter.map(|_| (refused, Word::Filtered));
    for (label, word) in [(full, Word::Full), (bad, Word::Bad)].into_iter().chain(filtered) {
        asm.place(label);
        count(&mut asm, form, word);
        asm.jump(drop);
    }
    leave(&mut asm, pass, XDP_PASS);
    asm.finish()
}

/// Wakes a sleeping reader; jumps to `drop` if it is awake.
fn wake(asm: &mut Assembler, bell: i32, drop: Label) {
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Sleeps.at());
    asm.jump_if(JumpCondition::Eq, Reg::R1, 0, drop);
    asm.store(Size::B8, Reg::R8, Word::Sleeps.at(), 0);
    asm.map(Reg::R1, bell);
    asm.mov(Reg::R2, Reg::Fp);
    asm.alu(Alu::Add, Reg::R2, i32::from(NUMBER));
    asm.mov(Reg::R3, 8);
    asm.mov(Reg::R4, 0);
    asm.call(helper::RING_OUTPUT);
}

/// Truncates R9 bytes to the snap length.
fn cut(asm: &mut Assembler, bad: Label) {
    let whole = asm.label();
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Snap.at());
    asm.jump_if(JumpCondition::Eq, Reg::R1, 0, whole);
    asm.jump_if(JumpCondition::Le, Reg::R9, Reg::R1, whole);
    asm.mov(Reg::R9, Reg::R1);
    // For the verifier; the process requests no other length.
    asm.jump_if(JumpCondition::Lt, Reg::R9, SHORTEST, bad);
    asm.jump_if(JumpCondition::Gt, Reg::R9, LONGEST, bad);
    asm.place(whole);
}

/// Stores number, position and place of a frame of which R9 bytes are written, in the first ring with room for it and a
/// VLAN tag; jumps to `full` if none has. One alignment unit always stays free, to distinguish full from empty.
fn find_room(asm: &mut Assembler, layout: Layout, full: Label) {
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Head.at());
    asm.store(Size::B8, Reg::Fp, NUMBER, Reg::R1);
    asm.load(Size::B8, Reg::R2, Reg::R8, Word::Tail.at());
    asm.alu(Alu::Sub, Reg::R1, Reg::R2);
    asm.jump_if(JumpCondition::Ge, Reg::R1, layout.frames as i32, full);
    let (spill, found) = (asm.label(), asm.label());
    let rings = layout.rings().into_iter().zip([spill, full]);
    for (number, (ring, without_room)) in rings.enumerate() {
        asm.load(Size::B8, Reg::R1, Reg::R8, Word::WRITTEN[number].at());
        asm.load(Size::B8, Reg::R2, Reg::R8, Word::FREED[number].at());
        asm.mov(Reg::R3, Reg::R1);
        asm.alu(Alu::Sub, Reg::R3, Reg::R2);
        asm.alu(Alu::Add, Reg::R3, Reg::R9);
        asm.jump_if(JumpCondition::Ge, Reg::R3, ring.bytes as i32 - (ALIGN as i32 + VLAN_TAG), without_room);
        asm.store(Size::B8, Reg::Fp, POSITION, Reg::R1);
        asm.alu(Alu::And, Reg::R1, ring.bytes as i32 - 1);
        asm.alu(Alu::Add, Reg::R1, ring.start as i32);
        asm.store(Size::B8, Reg::Fp, PLACE, Reg::R1);
        if number == 0 {
            asm.jump(found);
            asm.place(spill);
        }
    }
    asm.place(found);
}

/// Writes the desc at R2 of a frame at offset R7, with R9 bytes written and time R0.
fn write_desc(asm: &mut Assembler, form: Form, super_frame: u32) {
    let place = |field: usize| field as i16;
    asm.store(Size::B8, Reg::R2, place(offset_of!(Desc, time)), Reg::R0);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, offset)), Reg::R7);
    // Interface 0, followed by the flags.
    asm.mov(Reg::R3, 0);
    let fits = asm.label();
    asm.load(Size::B8, Reg::R4, Reg::Fp, LENGTH);
    asm.jump_if(JumpCondition::Le, Reg::R4, super_frame.min(LONGEST as u32) as i32, fits);
    asm.mov(Reg::R3, i32::from(Flags::SUPER_FRAME.0) << 16);
    count(asm, form, Word::SuperFrames);
    asm.place(fits);
    asm.mov(Reg::R5, Reg::R9);
    if form.vlan_tag.is_some() {
        let plain = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::Fp, TAG);
        asm.jump_if(JumpCondition::Eq, Reg::R1, 0, plain);
        asm.alu(Alu::Add, Reg::R4, VLAN_TAG);
        asm.alu(Alu::Add, Reg::R5, VLAN_TAG);
        asm.alu(Alu::Or, Reg::R3, i32::from(Flags::VLAN_RESTORED.0) << 16);
        count(asm, form, Word::Tagged);
        asm.place(plain);
    }
    asm.store(Size::B8, Reg::Fp, LENGTH, Reg::R5);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, captured)), Reg::R5);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, wire)), Reg::R4);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, interface)), Reg::R3);
    let layers = i32::from(u16::from_le_bytes([Desc::NO_LAYER; 2]));
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, l3)), layers);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, hash)), 0);
}

/// Copies the wanted bytes from offset `from` of the frame to R7 + `to`.
fn copy(asm: &mut Assembler, from: i32, to: i32, bad: Label) {
    let (long, done) = (asm.label(), asm.label());
    let load = |asm: &mut Assembler, skip: i32| {
        asm.mov(Reg::R1, Reg::R6);
        asm.mov(Reg::R2, from + skip);
        asm.mov(Reg::R3, Reg::R7);
        asm.alu(Alu::Add, Reg::R3, to + skip);
        asm.call(helper::LOAD_BYTES);
        asm.jump_if(JumpCondition::Ne, Reg::R0, 0, bad);
    };
    asm.mov(Reg::R4, Reg::R9);
    asm.jump_if(JumpCondition::Gt, Reg::R4, PIECE, long);
    asm.alu(Alu::Sub, Reg::R4, from);
    load(asm, 0);
    asm.jump(done);
    asm.place(long);
    asm.mov(Reg::R4, PIECE - from);
    load(asm, 0);
    asm.mov(Reg::R4, Reg::R9);
    asm.alu(Alu::Sub, Reg::R4, PIECE);
    load(asm, PIECE - from);
    asm.place(done);
}

/// Copies a frame from its start, and inserts its tag where it was, if it has one.
fn copy_with_tag(asm: &mut Assembler, bad: Label) {
    let (tagged, done) = (asm.label(), asm.label());
    asm.load(Size::B8, Reg::R1, Reg::Fp, TAG);
    asm.jump_if(JumpCondition::Ne, Reg::R1, 0, tagged);
    copy(asm, 0, 0, bad);
    asm.jump(done);
    asm.place(tagged);
    asm.to_be(Reg::R1, 32);
    asm.store(Size::B4, Reg::R7, MAC_ADDRESSES as i16, Reg::R1);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, 0);
    asm.mov(Reg::R3, Reg::R7);
    asm.mov(Reg::R4, MAC_ADDRESSES);
    asm.call(helper::LOAD_BYTES);
    asm.jump_if(JumpCondition::Ne, Reg::R0, 0, bad);
    copy(asm, MAC_ADDRESSES, MAC_ADDRESSES + VLAN_TAG, bad);
    asm.place(done);
}

/// Advances position and number; the process may read the frame from then on.
fn publish(asm: &mut Assembler, layout: Layout) {
    asm.load(Size::B8, Reg::R1, Reg::Fp, POSITION);
    asm.load(Size::B8, Reg::R2, Reg::Fp, LENGTH);
    asm.alu(Alu::Add, Reg::R1, Reg::R2);
    asm.alu(Alu::Add, Reg::R1, ALIGN as i32 - 1);
    asm.alu(Alu::And, Reg::R1, -(ALIGN as i32));
    let (spilled, done) = (asm.label(), asm.label());
    let [_, spill] = layout.rings();
    asm.load(Size::B8, Reg::R2, Reg::Fp, PLACE);
    asm.jump_if(JumpCondition::Ge, Reg::R2, spill.start as i32, spilled);
    asm.store(Size::B8, Reg::R8, Word::Written.at(), Reg::R1);
    asm.jump(done);
    asm.place(spilled);
    asm.store(Size::B8, Reg::R8, Word::Spilled.at(), Reg::R1);
    asm.place(done);
    asm.load(Size::B8, Reg::R1, Reg::Fp, NUMBER);
    asm.alu(Alu::Add, Reg::R1, 1);
    if cfg!(target_arch = "x86_64") {
        // Stores are visible in program order.
        asm.store(Size::B8, Reg::R8, Word::Head.at(), Reg::R1);
    } else {
        asm.exchange(Reg::R8, Word::Head.at(), Reg::R1);
    }
}
