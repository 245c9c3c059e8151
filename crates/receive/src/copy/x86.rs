//! Copies past the cache, and CRC-32C, by instructions of x86-64.
//!
//! Unsafe as all instructions named one by one are. Lengths and bounds are those of slices; what is stored past the cache lies in whole,
//! aligned lines of a slice that is borrowed to be written. Such stores are seen by their own thread as any other; before another
//! thread may look there has to be a [`fence`].
#![allow(unsafe_code)]

use std::arch::asm;
use std::arch::x86_64::*;

/// A cache line.
const LINE: usize = 64;
/// Lines at a time.
const LINES: usize = 4;
const BLOCK: usize = LINES * LINE;

/// What of this there is on the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Set {
    /// Bytes one by one, which the processor makes lines of.
    Repeat,
    /// Vectors of 32 bytes past the cache.
    Avx2,
    /// Whole lines past the cache.
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

/// Copies, if the processor can.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub(super) fn copy(set: Set, to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len());
    match set {
        Set::Repeat => repeat(to, from),
        // SAFETY: the processor has what the function needs.
        Set::Avx2 if set.is_there() => unsafe { past_the_cache_avx2(to, from) },
        // SAFETY: as above.
        Set::Avx512 if set.is_there() => unsafe { past_the_cache_avx512(to, from) },
        Set::Avx2 | Set::Avx512 => to.copy_from_slice(from),
    }
}

/// What was stored before, past the cache as well, is seen before anything that is stored behind this.
#[inline]
pub(super) fn fence() {
    // SAFETY: SSE is part of x86-64.
    unsafe { _mm_sfence() }
}

fn repeat(to: &mut [u8], from: &[u8]) {
    // SAFETY: as many bytes as both slices have; they do not overlap, as one is borrowed to be written. The direction flag is clear
    // between functions.
    unsafe {
        asm!("rep movsb", inout("rcx") to.len() => _, inout("rdi") to.as_mut_ptr() => _, inout("rsi") from.as_ptr() => _,
            options(nostack, preserves_flags));
    }
}

/// The parts in front of the first whole line and behind the last one are copied in the usual way; what is between is returned.
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
        // SAFETY: a line of each slice, the first at a multiple of its length.
        unsafe { _mm512_stream_si512(to.as_mut_ptr().cast(), _mm512_loadu_si512(from.as_ptr().cast())) };
    }
}

#[target_feature(enable = "avx2")]
fn past_the_cache_avx2(to: &mut [u8], from: &[u8]) {
    let (to, from) = lines(to, from);
    for (to, from) in to.iter_mut().zip(from) {
        // SAFETY: a line of each slice, the first at a multiple of its length; two vectors are a line.
        unsafe {
            let (to, from) = (to.as_mut_ptr().cast::<__m256i>(), from.as_ptr().cast::<__m256i>());
            let (low, high) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
            _mm256_stream_si256(to, low);
            _mm256_stream_si256(to.add(1), high);
        }
    }
}

/// Whether there are instructions for the checksum, and whether they fold lines.
pub(super) fn sums() -> (bool, bool) {
    let words = is_x86_feature_detected!("sse4.2");
    (words, words && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq"))
}

/// Goes on with a remainder over `bytes`, if the processor can.
#[inline]
pub(super) fn sum(remainder: u32, bytes: &[u8]) -> Option<u32> {
    match sums() {
        // SAFETY: the processor has what the function needs.
        (_, true) if bytes.len() >= LINE => Some(unsafe { fold::<false>(remainder, &mut [], bytes) }),
        // SAFETY: as above.
        (true, _) => Some(unsafe { words(remainder, bytes) }),
        _ => None,
    }
}

/// Copies whole lines past the cache and goes on with a remainder, in one pass, if the processor can.
#[inline]
pub(super) fn copy_summed(remainder: u32, to: &mut [u8], from: &[u8]) -> Option<u32> {
    assert_eq!(to.len(), from.len());
    if !sums().1 {
        return None;
    }
    let head = to.as_ptr().align_offset(LINE).min(to.len());
    let ((to_head, to), (from_head, from)) = (to.split_at_mut(head), from.split_at(head));
    to_head.copy_from_slice(from_head);
    // SAFETY: the processor has what the functions need.
    Some(unsafe { fold::<true>(words(remainder, from_head), to, from) })
}

/// Eight bytes at a time.
#[target_feature(enable = "sse4.2")]
fn words(remainder: u32, bytes: &[u8]) -> u32 {
    let (words, tail) = bytes.as_chunks();
    let remainder = words.iter().fold(u64::from(remainder), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    tail.iter().fold(remainder as u32, |sum, byte| _mm_crc32_u8(sum, *byte))
}

/// Multiplies a line by what carries it over so many bytes, and adds the line that lies there.
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn carry(sum: __m512i, over: __m512i, line: __m512i) -> __m512i {
    let (low, high) = (_mm512_clmulepi64_epi128::<0x00>(sum, over), _mm512_clmulepi64_epi128::<0x11>(sum, over));
    // All three added.
    _mm512_ternarylogic_epi64::<0x96>(low, high, line)
}

/// What carries the two halves of 128 bits over so many bytes. In this form, the lowest bit of which is the highest power, the lower half
/// has 64 powers more than the upper.
const fn carrier(bytes: u64) -> [u64; 2] {
    [power(8 * bytes + 32) << 1, power(8 * bytes - 32) << 1]
}

/// The remainder of x to this power.
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

/// Goes on with a remainder over `from`, and copies it to `to`, whose address is a multiple of a line, if that is asked for.
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
        // SAFETY: `at` and a line more are no more than `whole`, which both slices have; what is stored begins at a multiple of a line.
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
    // SAFETY: a line of memory.
    unsafe { _mm512_storeu_si512(folded.as_mut_ptr().cast(), sum) };
    words(words(0, &folded), tail)
}

#[target_feature(enable = "avx512f")]
fn carrier_of(halves: [u64; 2]) -> __m512i {
    _mm512_broadcast_i32x4(_mm_set_epi64x(halves[1] as i64, halves[0] as i64))
}
