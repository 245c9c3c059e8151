//! Keys made and merged by vectors, if the processor has AVX-512.
//!
//! Unsafe because vector loads and stores take pointers, and because the instructions may be used only if the processor
//! has them. Each function equals the one of the same name in `keys`.
#![allow(unsafe_code)]

use crate::keys;
use linerate_burst::{Desc, FrameIndex};

/// The fastest implementation for this processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    /// True only if AVX-512 was detected.
    vectors: bool,
}

impl Kernel {
    /// Detects the processor's features.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Self {
        Kernel { vectors: is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") }
    }

    /// Returns the portable kernel: this kind of processor has no vector implementation.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Self {
        Kernel::PORTABLE
    }

    /// The portable implementation.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    pub(crate) const PORTABLE: Kernel = Kernel { vectors: false };

    /// [`keys::ascending`]; `keys` is as long as `descs`.
    #[inline]
    pub(crate) fn ascending(self, descs: &[Desc], base: u64, floor: u64, tag: u64, keys: &mut [u64]) -> bool {
        assert_eq!(descs.len(), keys.len(), "a key for each desc");
        #[cfg(target_arch = "x86_64")]
        if self.vectors {
            // SAFETY: the processor has the instructions, and both rows are equally long.
            return unsafe { avx512::ascending(descs, base, floor, tag, keys) };
        }
        keys::ascending(descs, base, floor, tag, keys)
    }

    /// [`keys::merge`]; both rows end with the padding described there.
    #[inline]
    pub(crate) fn merge(self, a: &[u64], b: &[u64], out: &mut [u64]) {
        assert!(
            a.len() >= keys::PADDING && b.len() >= keys::PADDING && out.len().is_multiple_of(keys::PADDING),
            "rows without padding"
        );
        #[cfg(target_arch = "x86_64")]
        if self.vectors {
            // SAFETY: the processor has the instructions, and the lengths are asserted above.
            return unsafe { avx512::merge(a, b, out) };
        }
        keys::merge(a, b, out);
    }

    /// [`keys::append`].
    #[inline]
    pub(crate) fn append(self, keys: &[u64], picks: &mut Vec<FrameIndex>) {
        #[cfg(target_arch = "x86_64")]
        if self.vectors {
            // SAFETY: the processor has the instructions.
            return unsafe { avx512::append(keys, picks) };
        }
        keys::append(keys, picks);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::keys;
    use linerate_burst::{Desc, FrameIndex};
    use std::arch::x86_64::*;
    use std::hint::select_unpredictable;

    /// Keys in one vector.
    const WIDE: usize = 8;
    /// Keys merged in one step: two vectors, to hide the latency of the first one's results.
    const STEP: usize = 2 * WIDE;
    const _: () = assert!(STEP == keys::PADDING);

    type Pair = [__m512i; 2];

    /// # Safety
    /// The processor has these features; `keys` is as long as `descs`.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn ascending(descs: &[Desc], base: u64, floor: u64, tag: u64, keys: &mut [u64]) -> bool {
        let whole = descs.len() / WIDE * WIDE;
        let (bases, most) = (splat(base), splat(u32::MAX.into()));
        // Each vector of memory holds two descs; times are their elements 0 and 4.
        let low = _mm512_set_epi64(0, 0, 0, 0, 12, 8, 4, 0);
        let high = _mm512_set_epi64(12, 8, 4, 0, 0, 0, 0, 0);
        let mut tags = _mm512_add_epi64(splat(tag), _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0));
        let mut before = splat(floor);
        let mut back = 0;
        for at in (0..whole).step_by(WIDE) {
            // SAFETY: descs `at` to `at + 8` are 4 vectors of memory, their keys are one; a desc has no padding.
            let times = unsafe {
                let memory = descs.as_ptr().add(at).cast::<__m512i>();
                _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(AHEAD).cast());
                _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(AHEAD + 1).cast());
                _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(AHEAD + 2).cast());
                _mm_prefetch::<_MM_HINT_T0>(memory.wrapping_add(AHEAD + 3).cast());
                let [a, b, c, d] = [0, 1, 2, 3].map(|number| _mm512_loadu_si512(memory.add(number)));
                _mm512_mask_blend_epi64(
                    0xf0,
                    _mm512_permutex2var_epi64(a, low, b),
                    _mm512_permutex2var_epi64(c, high, d),
                )
            };
            back |= _mm512_cmplt_epu64_mask(times, _mm512_alignr_epi64::<7>(times, before));
            before = times;
            let spans = _mm512_min_epu64(_mm512_sub_epi64(times, bases), most);
            let row = _mm512_or_si512(_mm512_slli_epi64::<32>(spans), tags);
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(keys.as_mut_ptr().add(at).cast(), row) };
            tags = _mm512_add_epi64(tags, splat(2 * WIDE as u64));
        }
        let floor = if whole > 0 { descs[whole - 1].time.0 } else { floor };
        back == 0 && keys::ascending(&descs[whole..], base, floor, tag + 2 * whole as u64, &mut keys[whole..])
    }

    /// Prefetch distance in vectors.
    const AHEAD: usize = 64;

    /// # Safety
    /// The processor has these features; `a` and `b` have 16 keys at least, `out` a multiple of that.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn merge(a: &[u64], b: &[u64], out: &mut [u64]) {
        // Only padding follows these ends.
        let (a_end, b_end) = (a.len() - STEP, b.len() - STEP);
        let (mut i, mut j) = (STEP.min(a_end), STEP.min(b_end));
        // SAFETY: `i` and `j` leave 16 keys to read in their rows, and `out` is written in whole steps.
        unsafe {
            let (mut next, first) = (load(a.as_ptr()), load(b.as_ptr()));
            let mut greater = turned(first, [[15, 14, 13, 12, 11, 10, 9, 8], [7, 6, 5, 4, 3, 2, 1, 0]]);
            for out in out.chunks_exact_mut(STEP) {
                let (lower, rest) = halves(next, greater);
                greater = rest;
                store(lower, out.as_mut_ptr());
                // Keys read and not yet written are in `greater`, so the row with the lower head is read next.
                let (x, y) = (a.as_ptr().add(i), b.as_ptr().add(j));
                let first = *x <= *y;
                next = load(select_unpredictable(first, x, y));
                i = (i + select_unpredictable(first, STEP, 0)).min(a_end);
                j = (j + select_unpredictable(first, 0, STEP)).min(b_end);
            }
        }
    }

    /// # Safety
    /// The processor has these features.
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn append(keys: &[u64], picks: &mut Vec<FrameIndex>) {
        keys::append(keys, picks);
    }

    /// Splits an ascending and a descending pair into the lower half, ascending, and the greater half, descending: a
    /// bitonic merge (Batcher, Sorting networks and their applications, 1968).
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn halves(up: Pair, down: Pair) -> (Pair, Pair) {
        let low = bitonic([_mm512_min_epu64(up[0], down[0]), _mm512_min_epu64(up[1], down[1])]);
        let high = bitonic([_mm512_max_epu64(up[0], down[0]), _mm512_max_epu64(up[1], down[1])]);
        (
            turned(low, [[0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]]),
            turned(high, [[15, 7, 14, 6, 11, 3, 10, 2], [13, 5, 12, 4, 9, 1, 8, 0]]),
        )
    }

    /// Sorts 16 keys that go up and then down, in permuted positions: keys 0 2 8 10 4 6 12 14, then 1 3 9 11 5 7 13 15.
    /// Between two comparisons keys move as little as is needed to align partners.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn bitonic(row: Pair) -> Pair {
        let [a, b] = [_mm512_min_epu64(row[0], row[1]), _mm512_max_epu64(row[0], row[1])];
        let [a, b] = [_mm512_shuffle_i64x2::<0x44>(a, b), _mm512_shuffle_i64x2::<0xee>(a, b)];
        let [a, b] = [_mm512_min_epu64(a, b), _mm512_max_epu64(a, b)];
        let [a, b] = [_mm512_shuffle_i64x2::<0x88>(a, b), _mm512_shuffle_i64x2::<0xdd>(a, b)];
        let [a, b] = [_mm512_min_epu64(a, b), _mm512_max_epu64(a, b)];
        let [a, b] = [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)];
        [_mm512_min_epu64(a, b), _mm512_max_epu64(a, b)]
    }

    /// Permutes the keys to these positions; 8 to 15 refer to the second vector.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn turned(pair: Pair, places: [[i64; 8]; 2]) -> Pair {
        places.map(|[a, b, c, d, e, f, g, h]| {
            _mm512_permutex2var_epi64(pair[0], _mm512_setr_epi64(a, b, c, d, e, f, g, h), pair[1])
        })
    }

    /// # Safety
    /// 16 keys can be read there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    unsafe fn load(from: *const u64) -> Pair {
        // SAFETY: by the contract of this function.
        unsafe { [_mm512_loadu_si512(from.cast()), _mm512_loadu_si512(from.add(WIDE).cast())] }
    }

    /// # Safety
    /// 16 keys can be written there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    unsafe fn store(pair: Pair, to: *mut u64) {
        // SAFETY: by the contract of this function.
        unsafe {
            _mm512_storeu_si512(to.cast(), pair[0]);
            _mm512_storeu_si512(to.add(WIDE).cast(), pair[1]);
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl")]
    fn splat(value: u64) -> __m512i {
        _mm512_set1_epi64(value as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Nanos;

    /// A small generator (xorshift64; Marsaglia, Journal of Statistical Software 8, 2003).
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state >> 8
    }

    fn vectors() -> Option<Kernel> {
        let kernel = Kernel::detect();
        if !kernel.vectors {
            eprintln!("skipped: this processor has no AVX-512");
        }
        kernel.vectors.then_some(kernel)
    }

    #[test]
    fn rows_of_every_length_merge_in_sorted_order() {
        let mut state = 1;
        for kernel in [Some(Kernel::PORTABLE), vectors()].into_iter().flatten() {
            for (a, b) in (0..80).flat_map(|a| (0..80).map(move |b| (a, b))) {
                // Few values, so that some are equal; then many.
                for most in [3, 40, u64::MAX] {
                    let mut row = |count| {
                        let mut row: Vec<u64> = (0..count).map(|_| random(&mut state) % most).collect();
                        row.sort_unstable();
                        row
                    };
                    let (a, b) = (row(a), row(b));
                    let mut expected = [&a[..], &b[..]].concat();
                    expected.sort_unstable();
                    // The valid keys are followed by greater keys, or by none.
                    let pad =
                        |row: Vec<u64>| [row, vec![most; most as usize % 2], vec![keys::NONE; keys::PADDING]].concat();
                    let mut out = vec![7; expected.len().next_multiple_of(keys::PADDING)];
                    kernel.merge(&pad(a), &pad(b), &mut out);
                    assert_eq!(out[..expected.len()], expected);
                }
            }
        }
    }

    #[test]
    fn vector_keys_equal_portable_keys() {
        let Some(kernel) = vectors() else { return };
        let base = 1 << 60;
        for count in 0..40usize {
            // Each time in turn goes back, or stays, or is the first beyond the span of keys.
            for place in 0..=count {
                for (step, far) in [(0, 0), (5, 0), (5, 1 << 33)] {
                    let mut time = base + 100;
                    let mut descs: Vec<Desc> = Vec::new();
                    for number in 0..count {
                        time += if number == place { far } else { step };
                        descs.push(Desc::new(Nanos(time), 1, 2));
                    }
                    if far == 0 && place < count {
                        descs[place].time.0 -= 6;
                    }
                    let (mut ours, mut theirs) = (vec![0; count], vec![0; count]);
                    let tag = keys::tag(127, 1000);
                    let in_order = keys::ascending(&descs, base, base + 100, tag, &mut theirs);
                    assert_eq!(kernel.ascending(&descs, base, base + 100, tag, &mut ours), in_order, "{count} {place}");
                    assert_eq!(in_order, far > 0 || place == count);
                    assert!(!in_order || ours == theirs, "{count} {place}");
                }
            }
        }
    }
}
