//! The programs that run for every frame an interface receives. In C:
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
//! if (!tag && !filter(ctx)) { q->filtered++; return XDP_DROP; }   // without its tag: in the process
//! captured = q->snap ? min(length, q->snap) : length;
//! struct ring *r = has_room(q->warm, captured) ? q->warm : q->large;
//! if (q->head - q->tail >= FRAMES || !has_room(r, captured)) { q->full++; return XDP_DROP; }
//! descs[q->head & FRAMES - 1] = { bpf_ktime_get_tai_ns() - q->ahead, place, captured, length, ... };
//! bpf_xdp_load_bytes(ctx, 0, area + place, captured);         // a VLAN tag stripped by the driver is restored here
//! r->written += align(captured);
//! q->head++;                                                  // last: from here on the process sees it
//! if (q->sleeps) { q->sleeps = 0; bpf_ringbuf_output(bell); }
//! return XDP_DROP;                                            // or XDP_PASS: the host receives it too
//!
//! // Only counts the frame:
//! q->head++; q->bytes += length; q->sizes[bucket(length)]++;  // and minimum and maximum length
//! return XDP_DROP;                                            // or XDP_PASS
//! ```
//!
//! In the driver a queue's counters need no atomic instruction: one processor at a time serves a queue. In generic mode
//! several may process frames of one queue; therefore nothing is written there, only handed on.

mod tallying;
mod writing;

pub(super) use self::tallying::tallying;
pub(super) use self::writing::{SHORTEST, writing};

use crate::ebpf::{Alu, Assembler, Insn, JumpCondition, Label, Reg, Size, TooFar, helper};
use crate::program_clock::ProgramClock;
use crate::sys::bpf::{Mode, Words};
use linerate_burst::Sizes;
use std::sync::atomic::Ordering;

/// Words per queue: four cache lines.
const QUEUE_WORDS: usize = 32;
/// First of the words that count frames by size, one per bucket.
const SIZES: usize = 24;
const VLAN_TAG: i32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    // Written by the program:
    /// Frames handed to the socket, including those it had no room for, or written into the area, or counted.
    Head = 0,
    /// Frames without room for metadata in front: all or none, depending on the driver.
    Unstamped,
    /// Position up to which bytes of the first ring are written.
    Written,
    /// Frames dropped for lack of room.
    Full,
    /// Frames too short or too long to be written.
    Bad,
    /// Frames whose VLAN tag was restored.
    Tagged,
    /// Frames longer than the interface's MTU.
    SuperFrames,
    /// Frames that did not match the filter.
    Filtered,
    // Written by the process:
    /// True if frames are taken.
    Open = 8,
    /// Frames that the reader has released.
    Tail,
    /// Position up to which bytes of the first ring are released.
    Freed,
    /// Offset of International Atomic Time from UTC, in nanoseconds.
    Ahead,
    /// True if the queue has a reader.
    Read,
    /// Set by a reader before it sleeps: the program wakes it, once.
    Sleeps,
    /// Maximum bytes of a frame that are written, without a restored tag; 0 for all.
    Snap,
    /// Position up to which bytes of the second ring are released.
    SpillFreed,
    // Written by a counting program only:
    Bytes = 16,
    /// Length of the shortest frame.
    Least,
    /// Length of the longest frame.
    Most,
    // Written by a program that writes frames:
    /// Position up to which bytes of the second ring are written.
    Spilled,
}

impl Word {
    /// Positions in the rings of a segment.
    pub(super) const WRITTEN: [Word; 2] = [Word::Written, Word::Spilled];
    pub(super) const FREED: [Word; 2] = [Word::Freed, Word::SpillFreed];

    /// Returns the word of a queue.
    pub(super) fn get(self, words: &Words, queue: u32) -> u64 {
        words.word(QUEUE_WORDS * queue as usize + self as usize).load(Ordering::Acquire)
    }

    /// Returns the sum of all queues.
    pub(super) fn total(self, words: &Words) -> u64 {
        (0..words.len() / QUEUE_WORDS).map(|queue| self.get(words, queue as u32)).sum()
    }

    /// Writes the word of a queue.
    pub(super) fn set(self, words: &Words, queue: u32, value: u64) {
        words.word(QUEUE_WORDS * queue as usize + self as usize).store(value, Ordering::Release);
    }

    /// Sets it from 0 to 1; returns whether it was 0.
    pub(super) fn take(self, words: &Words, queue: u32) -> bool {
        let word = words.word(QUEUE_WORDS * queue as usize + self as usize);
        word.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Returns its offset from the first word.
    fn at(self) -> i16 {
        8 * self as i16
    }
}

/// Returns the frames of a queue by size.
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
/// Bytes of metadata before a frame: time, then VLAN tag.
const METADATA: i32 = crate::sys::xsk_frames::METADATA as i32;
/// Returns the number of words shared with the process.
pub(super) fn words(queues: u32) -> usize {
    QUEUE_WORDS * queues as usize
}

/// Form of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    pub mode: Mode,
    /// Kernel function number of `bpf_xdp_metadata_rx_vlan_tag`, which reports the VLAN tag that a card or driver has
    /// stripped, if the driver supports it.
    pub vlan_tag: Option<u32>,
    /// True if it accepts frames in several buffers.
    pub frags: bool,
    /// Clock of timestamps.
    pub clock: ProgramClock,
    /// True if the host receives the frames too.
    pub passes: bool,
}

impl Form {
    /// Returns the verdict on a frame that was written, counted or dropped.
    fn verdict(self) -> i32 {
        if self.passes { XDP_PASS } else { XDP_DROP }
    }
}

/// Returns the program that hands frames to sockets, for a number of queues, with the descriptors of its words and its
/// sockets.
pub(super) fn redirecting(form: Form, queues: u32, words: i32, sockets: i32) -> Result<Vec<Insn>, TooFar> {
    let mut asm = Assembler::new();
    let (redirect, unstamped) = (asm.label(), asm.label());
    let pass = begin(&mut asm, queues, words);
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, -METADATA);
    asm.call(helper::ADJUST_META);
    asm.jump_if(JumpCondition::Ne, Reg::R0, 0, unstamped);
    asm.mov(Reg::R9, 0);
    if let Some(id) = form.vlan_tag {
        call_vlan_tag(&mut asm, id);
    }
    asm.call(form.clock.helper());
    asm.load(Size::B4, Reg::R1, Reg::R6, MD_DATA_META);
    asm.load(Size::B4, Reg::R2, Reg::R6, MD_DATA);
    asm.mov(Reg::R3, Reg::R1);
    asm.alu(Alu::Add, Reg::R3, METADATA);
    asm.jump_if(JumpCondition::Gt, Reg::R3, Reg::R2, unstamped);
    asm.store(Size::B8, Reg::R1, 0, Reg::R0);
    asm.store(Size::B8, Reg::R1, 8, Reg::R9);

    asm.place(redirect);
    asm.map(Reg::R1, sockets);
    asm.mov(Reg::R2, Reg::R7);
    asm.mov(Reg::R3, XDP_PASS);
    asm.call(helper::REDIRECT_MAP);
    let out = asm.label();
    asm.jump_if(JumpCondition::Ne, Reg::R0, XDP_REDIRECT, out);
    count(&mut asm, form, Word::Head);
    asm.place(out);
    asm.exit();

    asm.place(unstamped);
    count(&mut asm, form, Word::Unstamped);
    asm.jump(redirect);

    leave(&mut asm, pass, XDP_PASS);
    asm.finish()
}

/// Loads context, number and words of the queue into R6, R7 and R8; returns the label that passes a frame to the host.
fn begin(asm: &mut Assembler, queues: u32, words: i32) -> Label {
    let pass = asm.label();
    asm.mov(Reg::R6, Reg::R1);
    asm.load(Size::B4, Reg::R7, Reg::R6, MD_QUEUE);
    asm.jump_if(JumpCondition::Ge, Reg::R7, queues as i32, pass);
    asm.mov(Reg::R1, Reg::R7);
    asm.alu(Alu::Mul, Reg::R1, 8 * QUEUE_WORDS as i32);
    asm.map_value(Reg::R8, words, 0);
    asm.alu(Alu::Add, Reg::R8, Reg::R1);
    asm.load(Size::B8, Reg::R1, Reg::R8, Word::Open.at());
    asm.jump_if(JumpCondition::Eq, Reg::R1, 0, pass);
    pass
}

fn leave(asm: &mut Assembler, label: Label, verdict: i32) {
    asm.place(label);
    asm.mov(Reg::R0, verdict);
    asm.exit();
}

/// Increments a word of the queue. Uses R1.
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

/// R9 = 1 << 32 | TPID << 16 | TCI of a stripped tag, 0 without one.
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
    asm.jump_if(JumpCondition::Ne, Reg::R0, 0, none);
    asm.load(Size::B2, Reg::R9, Reg::Fp, -4);
    asm.to_be(Reg::R9, 16);
    asm.alu(Alu::Lsh, Reg::R9, 16);
    asm.load(Size::B2, Reg::R1, Reg::Fp, -8);
    asm.alu(Alu::Or, Reg::R9, Reg::R1);
    asm.mov64(Reg::R1, 1 << 32);
    asm.alu(Alu::Or, Reg::R9, Reg::R1);
    asm.place(none);
}
