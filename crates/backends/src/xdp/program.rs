//! The programs that run for every frame an interface receives. As C they would read:
//!
//! ```c
//! if (ctx->rx_queue_index >= QUEUES) return XDP_PASS;
//! struct queue *q = &queues[ctx->rx_queue_index];             // two cache lines a queue, shared with the process
//! if (!q->open) return XDP_PASS;
//!
//! // Hands the frame to its queue's socket:
//! if (bpf_xdp_adjust_meta(ctx, -16) == 0) { meta->time = bpf_ktime_get_tai_ns(); meta->tag = vlan_tag(ctx); }
//! else q->unstamped++;
//! long verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
//! if (verdict == XDP_REDIRECT) q->head++;
//! return verdict;
//!
//! // Writes the frame, with its desc, into the queue's segment of an area:
//! captured = q->snap ? min(length, q->snap) : length;
//! if (q->head - q->tail >= FRAMES || q->written + captured + 12 - q->freed >= BYTES) { q->full++; return XDP_DROP; }
//! descs[q->head & FRAMES - 1] = { bpf_ktime_get_tai_ns() - q->ahead, place, captured, length, ... };
//! bpf_xdp_load_bytes(ctx, 0, area + place, captured);         // a VLAN tag that the driver took out is put back meanwhile
//! q->written += align(captured);
//! q->head++;                                                  // last: from here on the process sees it
//! if (q->sleeps) { q->sleeps = 0; bpf_ringbuf_output(bell); }
//! return XDP_DROP;
//! ```
//!
//! In the driver a queue's counters need no atomic instruction: one processor at a time serves a queue. In generic
//! mode several may bring frames that count as of one queue; so nothing is written there, only handed on.

use crate::ebpf::{Alu, Assembler, Insn, Label, Reg, Size, TooFar, When, helper};
use crate::sys::area::{ALIGN, Layout};
use crate::sys::bpf::{Mode, Words};
use linerate_burst::{Desc, Flags};
use std::mem::offset_of;
use std::sync::atomic::Ordering;

/// Words of a queue: two cache lines.
const QUEUE_WORDS: usize = 16;

/// A word of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    // Written by the program:
    /// Frames handed to the socket, whether it had room for them or not, or written into the area.
    Head = 0,
    /// Frames that the driver has no room for metadata in front of: all or none.
    Unstamped,
    /// Up to which position bytes are written.
    Written,
    /// Frames that found no room.
    Full,
    /// Frames too short or too long to be written.
    Bad,
    /// Frames whose VLAN tag was put back.
    Tagged,
    /// Frames longer than the interface's MTU.
    SuperFrames,
    // Written by the process:
    /// Whether frames are to be taken.
    Open = 8,
    /// Frames that are given back.
    Tail,
    /// Up to which position bytes are given back.
    Freed,
    /// How far International Atomic Time is ahead of UTC, in nanoseconds.
    Ahead,
    /// Somebody reads what is written.
    Read,
    /// The reader sleeps, or is about to: the program wakes it, once.
    Sleeps,
    /// Most bytes of a frame that are written, without a tag that is put back; 0 for all.
    Snap,
}

impl Word {
    /// Its value for a queue.
    pub fn get(self, words: &Words, queue: u32) -> u64 {
        words.word(QUEUE_WORDS * queue as usize + self as usize).load(Ordering::Acquire)
    }

    /// Gives it a value.
    pub fn set(self, words: &Words, queue: u32, value: u64) {
        words.word(QUEUE_WORDS * queue as usize + self as usize).store(value, Ordering::Release);
    }

    /// Where it lies behind the first.
    fn at(self) -> i16 {
        8 * self as i16
    }
}

/// Offsets in `struct xdp_md` (linux/bpf.h).
const MD_DATA: i16 = 0;
const MD_DATA_META: i16 = 8;
const MD_QUEUE: i16 = 16;

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_REDIRECT: i32 = 4;
/// Bytes of metadata in front of a frame: time, then VLAN tag.
const METADATA: i32 = crate::sys::xsk_frames::METADATA as i32;
/// Frames that are written; a longer one comes in two pieces, because `bpf_xdp_load_bytes` loads no more than 0xffff bytes.
pub const SHORTEST: i32 = 14;
const PIECE: i32 = 0x8000;
const LONGEST: i32 = PIECE + 0xffff;
const _: () = assert!(LONGEST as usize + VLAN_TAG as usize <= crate::sys::area::BEHIND);
const MAC_ADDRESSES: i32 = 12;
const VLAN_TAG: i32 = 4;

/// How many words the program shares with the process.
pub fn words(queues: u32) -> usize {
    QUEUE_WORDS * queues as usize
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Where it runs.
    pub mode: Mode,
    /// The kernel's number of its function that tells the VLAN tag a card or driver has taken out of the frame
    /// (`bpf_xdp_metadata_rx_vlan_tag`), where the driver has it.
    pub vlan_tag: Option<u32>,
    /// It is told of frames in several buffers.
    pub frags: bool,
}

/// The program that hands frames to sockets, for an interface of so many queues, with its words and its sockets by descriptor.
pub fn redirecting(form: Form, queues: u32, words: i32, sockets: i32) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (redirect, unstamped) = (asm.label(), asm.label());
    let pass = begin(&mut asm, queues, words);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, -METADATA);
    asm.call(helper::ADJUST_META);
    asm.jump_if(When::Ne, Reg::R0, 0, unstamped);
    asm.mov(Reg::R9, 0);
    if let Some(id) = form.vlan_tag {
        call_vlan_tag(&mut asm, id);
    }
    asm.call(helper::TAI);
    asm.load(Size::B4, Reg::R1, Reg::R6, MD_DATA_META);
    asm.load(Size::B4, Reg::R2, Reg::R6, MD_DATA);
    asm.mov(Reg::R3, Reg::R1);
    asm.alu(Alu::Add, Reg::R3, METADATA);
    asm.jump_if(When::Gt, Reg::R3, Reg::R2, unstamped);
    asm.store(Size::B8, Reg::R1, 0, Reg::R0);
    asm.store(Size::B8, Reg::R1, 8, Reg::R9);

    asm.place(redirect);
    asm.map(Reg::R1, sockets);
    asm.mov(Reg::R2, Reg::R7);
    asm.mov(Reg::R3, XDP_PASS);
    asm.call(helper::REDIRECT_MAP);
    let out = asm.label();
    asm.jump_if(When::Ne, Reg::R0, XDP_REDIRECT, out);
    count(&mut asm, form, Word::Head);
    asm.place(out);
    asm.exit();

    asm.place(unstamped);
    count(&mut asm, form, Word::Unstamped);
    asm.jump(redirect);

    leave(&mut asm, pass, XDP_PASS);
    asm.finish()
}

/// Context, number and words of the queue into R6, R7 and R8; the label leads to where the frame is left to the host.
fn begin(asm: &mut Assembler, queues: u32, words: i32) -> Label {
    let pass = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::B4, Reg::R7, Reg::R6, MD_QUEUE);
    asm.jump_if(When::Ge, Reg::R7, queues as i32, pass);
    asm.mov(Reg::R1, Reg::R7);
    asm.alu(Alu::Mul, Reg::R1, 8 * QUEUE_WORDS as i32);
    asm.map_value(Reg::R8, words, 0);
    asm.alu(Alu::Add, Reg::R8, Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Open.at());
    asm.jump_if(When::Eq, Reg::R1, 0, pass);
    pass
}

fn leave(asm: &mut Assembler, label: Label, verdict: i32) {
    asm.place(label);
    asm.mov(Reg::R0, verdict);
    asm.exit();
}

/// Places on the stack, below what [`call_vlan_tag`] uses: bytes that the frame has, then those that are written.
const LENGTH: i16 = -16;
const POSITION: i16 = -24;
const NUMBER: i16 = -32;
const TAG: i16 = -40;

/// The program that writes frames into an area, with its words, the area and the bell by descriptor; frames longer than
/// `super_frame` are flagged.
pub fn writing(
    form: Form,
    (words, area, bell): (i32, i32, i32),
    layout: Layout,
    super_frame: u32,
) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (full, bad, drop) = (asm.label(), asm.label(), asm.label());
    let pass = begin(&mut asm, layout.queues, words);
    if let Some(id) = form.vlan_tag {
        asm.mov(Reg::R9, 0);
        call_vlan_tag(&mut asm, id);
        asm.store(Size::B8, Reg::Fp, TAG, Reg::R9);
    }
    asm.mov(Reg::R1, Reg::R6);
    asm.call(helper::BUFFER_LENGTH);
    asm.mov(Reg::R9, Reg::R0);
    asm.jump_if(When::Lt, Reg::R9, SHORTEST, bad);
    asm.jump_if(When::Gt, Reg::R9, LONGEST, bad);
    asm.store(Size::B8, Reg::Fp, LENGTH, Reg::R9);
    cut(&mut asm, bad);
    find_room(&mut asm, layout, full);
    asm.call(helper::TAI);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Ahead.at());
    asm.alu(Alu::Sub, Reg::R0, Reg::R1);
    // Where the segment and the desc begin.
    asm.alu(Alu::Mul, Reg::R7, layout.stride() as i32);
    asm.load(Size::B8, Reg::R1, Reg::Fp, NUMBER);
    asm.alu(Alu::And, Reg::R1, layout.frames as i32 - 1);
    asm.alu(Alu::Mul, Reg::R1, size_of::<Desc>() as i32);
    asm.alu(Alu::Add, Reg::R1, Reg::R7);
    asm.map_value(Reg::R2, area, layout.descs_at() as i32);
    asm.alu(Alu::Add, Reg::R2, Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::Fp, POSITION);
    asm.alu(Alu::And, Reg::R1, layout.bytes as i32 - 1);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    write_desc(&mut asm, form, super_frame);
    asm.map_value(Reg::R1, area, 0);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    match form.vlan_tag {
        None => copy(&mut asm, 0, 0, bad),
        Some(_) => copy_with_tag(&mut asm, bad),
    }
    publish(&mut asm);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Sleeps.at());
    asm.jump_if(When::Eq, Reg::R1, 0, drop);
    asm.store(Size::B8, Reg::R8, Word::Sleeps.at(), 0);
    asm.map(Reg::R1, bell);
    asm.mov(Reg::R2, Reg::Fp);
    asm.alu(Alu::Add, Reg::R2, i32::from(NUMBER));
    asm.mov(Reg::R3, 8);
    asm.mov(Reg::R4, 0);
    asm.call(helper::RING_OUTPUT);
    leave(&mut asm, drop, XDP_DROP);
    for (label, word) in [(full, Word::Full), (bad, Word::Bad)] {
        asm.place(label);
        count(&mut asm, form, word);
        asm.jump(drop);
    }
    leave(&mut asm, pass, XDP_PASS);
    asm.finish()
}

/// Leaves of R9 bytes those that are wanted.
fn cut(asm: &mut Assembler, bad: Label) {
    let whole = asm.label();
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Snap.at());
    asm.jump_if(When::Eq, Reg::R1, 0, whole);
    asm.jump_if(When::Le, Reg::R9, Reg::R1, whole);
    asm.mov(Reg::R9, Reg::R1);
    // So that the kernel can see it; the process asks for nothing else.
    asm.jump_if(When::Lt, Reg::R9, SHORTEST, bad);
    asm.jump_if(When::Gt, Reg::R9, LONGEST, bad);
    asm.place(whole);
}

/// Notes number and position of a frame of which R9 bytes are written; leads to `full` where there is no room for it and a VLAN tag. Never
/// is all room used: then nothing free could not be told from nothing used.
fn find_room(asm: &mut Assembler, layout: Layout, full: Label) {
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Head.at());
    asm.store(Size::B8, Reg::Fp, NUMBER, Reg::R1);
    asm.load(Size::B8, Reg::R2, Reg::R8, Word::Tail.at());
    asm.alu(Alu::Sub, Reg::R1, Reg::R2);
    asm.jump_if(When::Ge, Reg::R1, layout.frames as i32, full);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Written.at());
    asm.store(Size::B8, Reg::Fp, POSITION, Reg::R1);
    asm.load(Size::B8, Reg::R2, Reg::R8, Word::Freed.at());
    asm.alu(Alu::Sub, Reg::R1, Reg::R2);
    asm.alu(Alu::Add, Reg::R1, Reg::R9);
    asm.jump_if(When::Ge, Reg::R1, layout.bytes as i32 - (ALIGN as i32 + VLAN_TAG), full);
}

/// Writes the desc at R2 of a frame at offset R7, of which R9 bytes are written, whose time is R0.
fn write_desc(asm: &mut Assembler, form: Form, super_frame: u32) {
    let place = |field: usize| field as i16;
    asm.store(Size::B8, Reg::R2, place(offset_of!(Desc, time)), Reg::R0);
    asm.store(Size::B4, Reg::R2, place(offset_of!(Desc, offset)), Reg::R7);
    // Interface 0, and flags behind it.
    asm.mov(Reg::R3, 0);
    let fits = asm.label();
    asm.load(Size::B8, Reg::R4, Reg::Fp, LENGTH);
    asm.jump_if(When::Le, Reg::R4, super_frame.min(LONGEST as u32) as i32, fits);
    asm.mov(Reg::R3, i32::from(Flags::SUPER_FRAME.0) << 16);
    count(asm, form, Word::SuperFrames);
    asm.place(fits);
    asm.mov(Reg::R5, Reg::R9);
    if form.vlan_tag.is_some() {
        let plain = asm.label();
        asm.load(Size::B8, Reg::R1, Reg::Fp, TAG);
        asm.jump_if(When::Eq, Reg::R1, 0, plain);
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

/// Copies what is wanted and lies behind `from` in the frame to R7 + `to`.
fn copy(asm: &mut Assembler, from: i32, to: i32, bad: Label) {
    let (long, done) = (asm.label(), asm.label());
    let load = |asm: &mut Assembler, skip: i32| {
        asm.mov(Reg::R1, Reg::R6);
        asm.mov(Reg::R2, from + skip);
        asm.mov(Reg::R3, Reg::R7);
        asm.alu(Alu::Add, Reg::R3, to + skip);
        asm.call(helper::LOAD_BYTES);
        asm.jump_if(When::Ne, Reg::R0, 0, bad);
    };
    asm.mov(Reg::R4, Reg::R9);
    asm.jump_if(When::Gt, Reg::R4, PIECE, long);
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

/// The same from the beginning, with its tag where it had been, if there is one.
fn copy_with_tag(asm: &mut Assembler, bad: Label) {
    let (tagged, done) = (asm.label(), asm.label());
    asm.load(Size::B8, Reg::R1, Reg::Fp, TAG);
    asm.jump_if(When::Ne, Reg::R1, 0, tagged);
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
    asm.jump_if(When::Ne, Reg::R0, 0, bad);
    copy(asm, MAC_ADDRESSES, MAC_ADDRESSES + VLAN_TAG, bad);
    asm.place(done);
}

/// Moves position and number on; the process may read the frame from then on.
fn publish(asm: &mut Assembler) {
    asm.load(Size::B8, Reg::R1, Reg::Fp, POSITION);
    asm.load(Size::B8, Reg::R2, Reg::Fp, LENGTH);
    asm.alu(Alu::Add, Reg::R1, Reg::R2);
    asm.alu(Alu::Add, Reg::R1, ALIGN as i32 - 1);
    asm.alu(Alu::And, Reg::R1, -(ALIGN as i32));
    asm.store(Size::B8, Reg::R8, Word::Written.at(), Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::Fp, NUMBER);
    asm.alu(Alu::Add, Reg::R1, 1);
    if cfg!(target_arch = "x86_64") {
        // Stores are seen in their order.
        asm.store(Size::B8, Reg::R8, Word::Head.at(), Reg::R1);
    } else {
        asm.exchange(Reg::R8, Word::Head.at(), Reg::R1);
    }
}

/// Adds one to a word of the queue. Uses R1.
fn count(asm: &mut Assembler, form: Form, word: Word) {
    let at = word.at();
    if form.mode == Mode::Generic {
        asm.mov(Reg::R1, 1);
        asm.atomic_add(Reg::R8, at, Reg::R1);
    } else {
        asm.load(Size::B8, Reg::R1, Reg::R8, at);
        asm.alu(Alu::Add, Reg::R1, 1);
        asm.store(Size::B8, Reg::R8, at, Reg::R1);
    }
}

/// R9 = 1 << 32 | TPID << 16 | TCI of the tag that is not in the frame, 0 where there is none.
fn call_vlan_tag(asm: &mut Assembler, id: u32) {
    let none = asm.label();
    // int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto, u16 *vlan_tci)
    asm.store(Size::B8, Reg::Fp, -8, 0);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, Reg::Fp);
    asm.alu(Alu::Add, Reg::R2, -4);
    asm.mov(Reg::R3, Reg::Fp);
    asm.alu(Alu::Add, Reg::R3, -8);
    asm.call_kernel(id);
    asm.jump_if(When::Ne, Reg::R0, 0, none);
    asm.load(Size::B2, Reg::R9, Reg::Fp, -4);
    asm.to_be(Reg::R9, 16);
    asm.alu(Alu::Lsh, Reg::R9, 16);
    asm.load(Size::B2, Reg::R1, Reg::Fp, -8);
    asm.alu(Alu::Or, Reg::R9, Reg::R1);
    asm.mov64(Reg::R1, 1 << 32);
    asm.alu(Alu::Or, Reg::R9, Reg::R1);
    asm.place(none);
}
