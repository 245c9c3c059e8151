//! Non-temporal copies and CRC-32C with x86-64 instructions.
//!
//! Unsafe because of intrinsics. Lengths and bounds are those of slices; non-temporal stores go to whole, aligned
//! lines of a mutably borrowed slice. Their own thread sees such stores as usual; before another thread may read them,
//! a [`fence`] is required.
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

/// Size of a cache line.
const LINE: usize = 64;
/// Cache lines per step.
const LINES: usize = 4;
const BLOCK: usize = LINES * LINE;

/// Instruction sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// `rep movsb`, which the processor turns into line stores.
    Repeat,
    /// 32-byte non-temporal stores.
    Avx2,
    /// Non-temporal stores of whole cache lines.
    Avx512,
}

impl Set {
    pub(super) fn is_there(self) -> bool {
        match self {
            Set::Repeat => true,
            Set::Avx2 => is_x86_feature_detected!("avx2"),
            Set::Avx512 => is_x86_feature_detected!("avx512f"),
        }
    }
}

/// Copies, if the processor has the instructions.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(super) fn copy(set: Set, to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    match set {
        Set::Repeat => repeat(to, from),
        // SAFETY: the processor has the instructions that the function needs.
        Set::Avx2 if set.is_there() => unsafe { past_the_cache_avx2(to, from) },
        // SAFETY: as above.
        Set::Avx512 if set.is_there() => unsafe { past_the_cache_avx512(to, from) },
        Set::Avx2 | Set::Avx512 => to.copy_from_slice(from),
    }
}

/// Orders earlier stores, non-temporal ones included, before any later store.
#[inline]
pub(super) fn fence() {
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() }
}

fn repeat(to: &mut [u8], from: &[u8]) {
    // SAFETY: both slices have as many bytes; they do not overlap, as one is borrowed mutably. The direction flag is
    // clear between functions.
    unsafe {
        asm!("rep movsb", inout("rcx") to.len() => _, inout("rdi") to.as_mut_ptr() => _, inout("rsi") from.as_ptr() => _,
            options(nostack, preserves_flags));
    }
}

/// Copies the parts before the first and after the last whole line normally, and returns the lines between.
fn lines<'a, 'b>(to: &'a mut [u8], from: &'b [u8]) -> (&'a mut [[u8; LINE]], &'b [[u8; LINE]]) {
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let ((to_head, to), (from_head, from)) = (to.split_at_mut(head), from.split_at(head));
    to_head.copy_from_slice(from_head);
    let ((to, to_tail), (from, from_tail)) = (to.as_chunks_mut(), from.as_chunks());
    to_tail.copy_from_slice(from_tail);
    (to, from)
}

#[target_feature(enable = "avx512f")]
fn past_the_cache_avx512(to: &mut [u8], from: &[u8]) {
    let (to, from) = lines(to, from);
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: one line of each slice; the destination is aligned to a line.
        unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), _mm512_loadu_si512(from.as_ptr().cast())) };
    }
}

#[target_feature(enable = "avx2")]
fn past_the_cache_avx2(to: &mut [u8], from: &[u8]) {
    let (to, from) = lines(to, from);
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: one line of each slice; the destination is aligned to a line; two vectors are a line.
        unsafe {
            let (to, from) = (to.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
            let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
}

/// Returns whether CRC instructions are available, and whether they can fold lines.
pub(super) fn sums() -> (bool, bool) {
    let words = is_x86_feature_detected!("sse4.2");
    (words, words && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq"))
}

/// Continues a remainder over `bytes`, if the processor can.
#[inline]
pub(super) fn sum(remainder: u32, bytes: &[u8]) -> Option<u32> {
    match sums() {
        // SAFETY: the processor has the instructions that the function needs.
        (_, true) if bytes.len() >= LINE => Some(unsafe { fold::<false>(remainder, &mut [], bytes) }),
        // SAFETY: as above.
        (true, _) => Some(unsafe { words(remainder, bytes) }),
        _ => None,
    }
}

/// Copies with non-temporal stores and continues a remainder, in one pass, if the processor can.
#[inline]
pub(super) fn copy_summed(remainder: u32, to: &mut [u8], from: &[u8]) -> Option<u32> {
    assert_eq!(to.len(), from.len());
    if !sums().1 {
        return None;
    }
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let ((to_head, to), (from_head, from)) = (to.split_at_mut(head), from.split_at(head));
    to_head.copy_from_slice(from_head);
    // SAFETY: the processor has the instructions that the functions need.
    Some(unsafe { fold::<true>(words(remainder, from_head), to, from) })
}

/// Continues a remainder, eight bytes at a time.
#[target_feature(enable = "sse4.2")]
fn words(remainder: u32, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks();
    let remainder = words.iter().fold(u64::from(remainder), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    tail.iter().fold(remainder as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

/// Advances a line by the distance of the factor `over` and adds `line` (folding).
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn carry(sum: __m512i, over: __m512i, line: __m512i) -> __m512i {
    let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(sum, over), _mm512_clmulepi64_epi128::<0x11>(sum, over));
    // XOR of all three.
    _mm512_ternarylogic_epi64::<0x96>(low, high, line)
}

/// Returns the folding factors of the two halves of 128 bits for a distance in bytes. In this representation the
/// lowest bit is the highest power, so the lower half has 64 powers more than the upper.
const fn carrier(bytes: u64) -> [u64; 2] {
    [power(8 * bytes + 32) << 1, power(8 * bytes - 32) << 1]
}

/// Returns the remainder of x to this power.
const fn power(exponent: u64) -> u64 {
    let (mut remainder, mut step) = (0x8000_0000_u32, 0);
    while step < exponent {
        remainder = remainder >> 1 ^ if remainder & 1 == 1 { 0x82f6_3b78 } else { 0 };
        step += 1;
    }
    remainder as u64
}

const OVER_A_LINE: [u64; 2] = carrier(LINE as u64);
const OVER_A_BLOCK: [u64; 2] = carrier(BLOCK as u64);

/// Continues a remainder over `from`; with `COPY` also copies it to `to`, which must be aligned to a line.
#[target_feature(enable = "avx512f,vpclmulqdq,sse4.2")]
fn fold<const COPY: bool>(remainder: u32, to: &mut [u8], from: &[u8]) -> u32 {
    let whole = from.len() / LINE * LINE;
    let (lines, tail) = from.split_at(whole);
    let (to_lines, to_tail) = if COPY { to.split_at_mut(whole) } else { (to, Default::default()) };
    if COPY {
        to_tail.copy_from_slice(tail);
    }
    let (source, place) = (lines.as_ptr(), to_lines.as_mut_ptr());
    let line = |at: usize| {
        // SAFETY: `at` plus a line is at most `whole`, which both slices have; stores are aligned to a line.
        unsafe {
            let bytes = _mm512_loadu_si512(source.add(at).cast());
            if COPY {
                _mm512_stream_si512(place.add(at).cast(), bytes);
            }
            bytes
        }
    };
    if whole == 0 {
        return words(remainder, tail);
    }
    let over_a_line = carrier_of(OVER_A_LINE);
    let first = _mm512_xor_si512(line(0), _mm512_zextsi128_si512(_mm_cvtsi32_si128(remainder as i32)));
    let (mut sum, mut at) = (first, LINE);
    if whole >= BLOCK {
        let over_a_block = carrier_of(OVER_A_BLOCK);
        let mut sums = [first, line(LINE), line(2 * LINE), line(3 * LINE)];
        at = BLOCK;
        while at + BLOCK <= whole {
            for (index, sum) in sums.iter_mut().enumerate() {
                *sum = carry(*sum, over_a_block, line(at + index * LINE));
            }
            at += BLOCK;
        }
        sum = sums[1..].iter().fold(sums[0], |sum, next| carry(sum, over_a_line, *next));
    }
    while at < whole {
        sum = carry(sum, over_a_line, line(at));
        at += LINE;
    }
    let mut folded = [0_u8; LINE];
    // SAFETY: `folded` is a line of memory.
    unsafe { _mm512_storeu_si512(folded.as_mut_ptr().cast(), sum) };
    words(words(0, &folded), tail)
}

#[target_feature(enable = "avx512f")]
fn carrier_of(halves: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(halves[1] as i64, halves[0] as i64))
}
