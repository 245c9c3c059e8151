//! Prefetches and vector comparisons, which Rust has no portable functions for.
//!
//! Unsafe because intrinsics are; nothing here reads or writes memory beyond its arguments.
#![allow(unsafe_code)]

/// Prefetches the cache line in which `place` starts and which will soon be read or written.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    prefetch_address(std::ptr::from_ref(place).cast());
}

/// [`prefetch`] of the cache line at an address; harmless for any address.
#[inline(always)]
pub fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// [`prefetch`] into the second-level cache, which accepts many more requests at a time: for large numbers of
/// prefetches that would delay urgent loads.
#[inline(always)]
pub fn prefetch_many<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(std::ptr::from_ref(place).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Returns a bit for each of sixteen bytes that equals `byte`, the lowest bit for the first.
#[inline(always)]
pub fn match_mask(byte: u8, bytes: [u8; 16]) -> u16 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE2 is part of x86-64.
    unsafe {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        let low = i64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let high = i64::from_le_bytes([i, j, k, l, m, n, o, p]);
        let equal = _mm_cmpeq_epi8(_mm_set_epi64x(high, low), _mm_set1_epi8(byte as i8));
        _mm_movemask_epi8(equal) as u16
    }
    #[cfg(not(target_arch = "x86_64"))]
    bit_by_bit(byte, bytes)
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn bit_by_bit(byte: u8, bytes: [u8; 16]) -> u16 {
    bytes.iter().rev().fold(0, |places, found| places << 1 | u16::from(*found == byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_masks_match_a_bitwise_search() {
        for (byte, other) in [(0, 1), (1, 0), (0x80, 0x7f), (0xff, 0)] {
            for pattern in 0..=u16::MAX {
                let bytes = std::array::from_fn(|place| if pattern >> place & 1 != 0 { byte } else { other });
                assert_eq!(match_mask(byte, bytes), pattern);
                assert_eq!(bit_by_bit(byte, bytes), pattern);
            }
        }
    }
}
