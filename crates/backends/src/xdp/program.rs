//! The program that runs for every frame an interface receives: stamp it and hand it to its queue's socket.
//!
//! As C it would read:
//!
//! ```c
//! if (ctx->rx_queue_index >= QUEUES) return XDP_PASS;
//! struct queue *q = &queues[ctx->rx_queue_index];             // one cache line a queue, shared with the process
//! if (!q->open) return XDP_PASS;
//! if (bpf_xdp_adjust_meta(ctx, -16) == 0) { meta->time = bpf_ktime_get_tai_ns(); meta->tag = vlan_tag(ctx); }
//! else q->unstamped++;
//! long verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
//! if (verdict == XDP_REDIRECT) q->redirected++;
//! return verdict;
//! ```
//!
//! In the driver a queue's counter needs no atomic instruction: one processor at a time serves a queue. In generic
//! mode several may bring frames that count as of one queue.

use crate::ebpf::{Alu, Assembler, Insn, Reg, Size, TooFar, When, helper};
use crate::sys::bpf::{Mode, Words};
use std::sync::atomic::Ordering;

/// Words of a queue: a cache line.
const QUEUE_WORDS: usize = 8;
/// Which of them says whether frames are to be taken, and which counts those handed to the socket.
const OPEN: usize = 0;
const REDIRECTED: usize = 1;
/// Which counts frames that the driver has no room for metadata in front of: all or none.
const UNSTAMPED: usize = 2;

/// Offsets in `struct xdp_md` (linux/bpf.h).
const MD_DATA: i16 = 0;
const MD_DATA_META: i16 = 8;
const MD_QUEUE: i16 = 16;

const XDP_PASS: i32 = 2;
const XDP_REDIRECT: i32 = 4;
/// Bytes of metadata in front of a frame: time, then VLAN tag.
const METADATA: i32 = crate::sys::xsk_frames::METADATA as i32;

/// How many words the program shares with the process.
pub fn words(queues: u32) -> usize {
    QUEUE_WORDS * queues as usize
}

/// Lets a queue's frames be taken, or no longer.
pub fn set_open(words: &Words, queue: u32, open: bool) {
    words.word(QUEUE_WORDS * queue as usize + OPEN).store(open.into(), Ordering::Release);
}

/// Frames handed to a queue's socket so far, whether it had room for them or not.
pub fn redirected(words: &Words, queue: u32) -> u64 {
    words.word(QUEUE_WORDS * queue as usize + REDIRECTED).load(Ordering::Relaxed)
}

/// Whether frames of a queue have come without metadata.
pub fn lacks_metadata(words: &Words, queue: u32) -> bool {
    words.word(QUEUE_WORDS * queue as usize + UNSTAMPED).load(Ordering::Acquire) > 0
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

/// The program for an interface of so many queues, with its words and its sockets by descriptor.
pub fn program(form: Form, queues: u32, words: i32, sockets: i32) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (pass, redirect, unstamped) = (asm.label(), asm.label(), asm.label());
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::B4, Reg::R7, Reg::R6, MD_QUEUE);
    asm.jump_if(When::Ge, Reg::R7, queues as i32, pass);
    asm.mov(Reg::R1, Reg::R7);
    asm.alu(Alu::Mul, Reg::R1, 8 * QUEUE_WORDS as i32);
    asm.map_value(Reg::R8, words, 0);
    asm.alu(Alu::Add, Reg::R8, Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::R8, 8 * OPEN as i16);
    asm.jump_if(When::Eq, Reg::R1, 0, pass);

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
    count(&mut asm, form, REDIRECTED);
    asm.place(out);
    asm.exit();

    asm.place(unstamped);
    count(&mut asm, form, UNSTAMPED);
    asm.jump(redirect);

    asm.place(pass);
    asm.mov(Reg::R0, XDP_PASS);
    asm.exit();
    asm.finish()
}

/// Adds one to a word of the queue.
fn count(asm: &mut Assembler, form: Form, word: usize) {
    let at = 8 * word as i16;
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
