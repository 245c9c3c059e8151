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
//! if (!tag && !filter(ctx)) { q->filtered++; return XDP_DROP; }   // a frame without its tag is judged when it is back
//! captured = q->snap ? min(length, q->snap) : length;
//! if (q->head - q->tail >= FRAMES || q->written + captured + 12 - q->freed >= BYTES) { q->full++; return XDP_DROP; }
//! descs[q->head & FRAMES - 1] = { bpf_ktime_get_tai_ns() - q->ahead, place, captured, length, ... };
//! bpf_xdp_load_bytes(ctx, 0, area + place, captured);         // a VLAN tag that the driver took out is put back meanwhile
//! q->written += align(captured);
//! q->head++;                                                  // last: from here on the process sees it
//! if (q->sleeps) { q->sleeps = 0; bpf_ringbuf_output(bell); }
//! return XDP_DROP;                                            // or XDP_PASS: the host gets it too
//!
//! // Counts the frame, where nobody wants more of it:
//! q->head++; q->bytes += length; q->sizes[bucket(length)]++;  // and the least and the greatest length
//! return XDP_DROP;                                            // or XDP_PASS
//! ```
//!
//! In the driver a queue's counters need no atomic instruction: one processor at a time serves a queue. In generic
//! mode several may bring frames that count as of one queue; so nothing is written there, only handed on.

mod tallying;
mod writing;

pub(super) use self::tallying::tallying;
pub(super) use self::writing::{SHORTEST, writing};

use crate::ebpf::{Alu, Assembler, Insn, Label, Reg, Size, TooFar, When, helper};
use crate::sys::bpf::{Mode, Words};
use linerate_burst::Sizes;
use std::sync::atomic::Ordering;

/// Words of a queue: four cache lines.
const QUEUE_WORDS: usize = 32;
/// Among them, frames by size: those of each bucket.
const SIZES: usize = 24;
const VLAN_TAG: i32 = 4;

/// A word of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    // Written by the program:
    /// Frames handed to the socket, whether it had room for them or not, or written into the area, or counted.
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
    /// Frames that the filter did not let pass.
    Filtered,
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
    // Written by a program that counts alone:
    /// Bytes of its frames.
    Bytes = 16,
    /// The length of the shortest.
    Least,
    /// The length of the longest.
    Most,
}

impl Word {
    /// Its value for a queue.
    pub(super) fn get(self, words: &Words, queue: u32) -> u64 {
        words.word(QUEUE_WORDS * queue as usize + self as usize).load(Ordering::Acquire)
    }

    /// Gives it a value.
    pub(super) fn set(self, words: &Words, queue: u32, value: u64) {
        words.word(QUEUE_WORDS * queue as usize + self as usize).store(value, Ordering::Release);
    }

    /// Makes it 1 where it is 0; whether it was.
    pub(super) fn take(self, words: &Words, queue: u32) -> bool {
        let word = words.word(QUEUE_WORDS * queue as usize + self as usize);
        word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Where it lies behind the first.
    fn at(self) -> i16 {
        8 * self as i16
    }
}

/// Frames by size, of a queue.
pub(super) fn sizes(words: &Words, queue: u32) -> [u64; Sizes::BUCKETS] {
    std::array::from_fn(|bucket| words.word(QUEUE_WORDS * queue as usize + SIZES + bucket).load(Ordering::Acquire))
}

/// Offsets in `struct xdp_md` (linux/bpf.h).
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_DATA_META: i16 = 8;
const MD_QUEUE: i16 = 16;

const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;
const XDP_REDIRECT: i32 = 4;
/// Bytes of metadata in front of a frame: time, then VLAN tag.
const METADATA: i32 = crate::sys::xsk_frames::METADATA as i32;
/// How many words the program shares with the process.
pub(super) fn words(queues: u32) -> usize {
    QUEUE_WORDS * queues as usize
}

/// What a program is made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    /// Where it runs.
    pub mode: Mode,
    /// The kernel's number of its function that tells the VLAN tag a card or driver has taken out of the frame
    /// (`bpf_xdp_metadata_rx_vlan_tag`), where the driver has it.
    pub vlan_tag: Option<u32>,
    /// It is told of frames in several buffers.
    pub frags: bool,
    /// The host gets the frames too.
    pub passes: bool,
}

impl Form {
    /// What becomes of a frame that was written, counted or refused.
    fn verdict(self) -> i32 {
        if self.passes { XDP_PASS } else { XDP_DROP }
    }
}

/// The program that hands frames to sockets, for an interface of so many queues, with its words and its sockets by descriptor.
pub(super) fn redirecting(form: Form, queues: u32, words: i32, sockets: i32) -> Result<Vec<Insn>, TooFar> {
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
