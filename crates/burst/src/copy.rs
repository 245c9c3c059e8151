//! Copying frames out of many lanes into one block, in the order of a merge.
//!
//! Unsafe because it copies whole vectors. They are *written* past the end of a frame: every block has [`TAIL`] bytes
//! after its end, and bytes written after a frame are overwritten by the next frame. Nothing is *read* past the end of
//! a frame: the kernel or another process may be writing there (the next chunk of an AF_XDP memory, the next record of
//! a shared block), and a read that races with a write is undefined behaviour even if its result is discarded.
#![allow(unsafe_code)]

use crate::cpu::prefetch_address as prefetch;
use crate::memory::BlockPart;
use crate::slot::{Layout, RECORD_HEADER};
use crate::{Burst, Desc, Flags, FrameIndex, Nanos, TAIL};

/// Completes descs while their frames are copied.
pub trait FinishDesc {
    /// May change the desc, truncate the frame by a smaller `captured`, or omit it by returning false. Implementations
    /// should be `#[inline(always)]`: this is the hottest loop.
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool;
}

/// Leaves descs as they are.
impl FinishDesc for () {
    #[inline(always)]
    fn finish(&mut self, _: &mut Desc, _: &[u8], _: FrameIndex) -> bool {
        true
    }
}

/// Result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopyResult {
    /// Picks handled, copied or omitted.
    pub picks: usize,
    /// Frames in the block.
    pub frames: usize,
    /// Offset of the next record.
    pub next: usize,
}

/// Returns the number of leading `picks` whose frames certainly fit into `room` bytes, and the bytes of their records.
pub(crate) fn fit(lanes: &[Burst<'_>], picks: &[FrameIndex], room: usize) -> (usize, usize) {
    let mut bytes = 0;
    for (index, pick) in picks.iter().enumerate() {
        let with = bytes + RECORD_HEADER + lanes[pick.lane()].descs()[pick.index()].stored() as usize;
        if with > room {
            return (index, bytes);
        }
        bytes = with;
    }
    (picks.len(), bytes)
}

/// Copies the frames that `picks` name into a stretch of a block, while there is room. `finish` may change a desc,
/// truncate the frame by a smaller `captured`, or omit it.
#[inline]
pub(crate) fn gather(
    stretch: &mut BlockPart<'_>,
    lanes: &[Burst<'_>],
    picks: &[FrameIndex],
    finish: &mut impl FinishDesc,
) -> CopyResult {
    let dense = lanes.iter().all(Burst::is_dense);
    #[cfg(target_arch = "x86_64")]
    if MaskedTail::is_there() {
        // SAFETY: the processor has what the functions need.
        return unsafe {
            match dense {
                true => gather_avx512::<false>(stretch, lanes, picks, finish),
                false => gather_avx512::<true>(stretch, lanes, picks, finish),
            }
        };
    }
    match dense {
        true => gather_anywhere::<false, OverlappingTail>(stretch, lanes, picks, finish),
        false => gather_anywhere::<true, OverlappingTail>(stretch, lanes, picks, finish),
    }
}

/// The same loop, compiled for 64-byte vectors: a short frame is one load and one store.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
fn gather_avx512<const PREFETCH: bool>(
    stretch: &mut BlockPart<'_>,
    lanes: &[Burst<'_>],
    picks: &[FrameIndex],
    finish: &mut impl FinishDesc,
) -> CopyResult {
    gather_anywhere::<PREFETCH, MaskedTail>(stretch, lanes, picks, finish)
}

#[inline(always)]
fn gather_anywhere<const PREFETCH: bool, C: Copying>(
    stretch: &mut BlockPart<'_>,
    lanes: &[Burst<'_>],
    picks: &[FrameIndex],
    finish: &mut impl FinishDesc,
) -> CopyResult {
    let base = stretch.base();
    let ((mut frames, most), (mut at, end)) = (stretch.frames(), stretch.records());
    // Records that end before this may be written past their end.
    let end = end.saturating_sub(TAIL);
    let mut clock = Clock::default();
    for (index, pick) in picks.iter().enumerate() {
        if PREFETCH {
            if let Some(far) = picks.get(index + 2 * AHEAD) {
                lanes[far.lane()].prefetch_desc(far.index());
            }
            if let Some(ahead) = picks.get(index + AHEAD) {
                lanes[ahead.lane()].prefetch_whole(ahead.index());
            }
        }
        let burst = &lanes[pick.lane()];
        let source = &burst.descs()[pick.index()];
        let present = source.stored();
        if at + RECORD_HEADER + present as usize > end || frames == most {
            return CopyResult { picks: index, frames, next: at };
        }
        let frame = burst.frame(pick.index());
        if !PREFETCH {
            prefetch((&raw const *source).wrapping_add(DENSE_AHEAD / size_of::<Desc>()).cast());
        }
        // SAFETY: there is room for one more desc, which is not read before it is committed.
        let desc = unsafe {
            let place = base.add(Layout::DESCS).cast::<Desc>().add(frames);
            place.write(*source);
            &mut *place
        };
        if !finish.finish(desc, frame, *pick) {
            continue;
        }
        let captured = desc.captured.min(source.captured);
        (desc.captured, desc.offset) = (captured, (at + RECORD_HEADER) as u32);
        let (stored, wire) = match desc.flags.intersects(Flags::FCS) {
            // Never more than is present, even if `finish` changed the flags.
            true => (desc.stored().min(present), desc.wire.saturating_add(desc.fcs())),
            false => (captured, desc.wire),
        };
        let header = clock.header(desc.time, stored, wire);
        let stored = stored as usize;
        // SAFETY: there is room for a record with all of the frame and TAIL bytes after it; the frame lies elsewhere,
        // since slices of this memory cannot coexist with `&mut`.
        unsafe {
            let record = base.add(at);
            prefetch_to_write(record.wrapping_add(WRITE_AHEAD));
            record.cast::<[u8; RECORD_HEADER]>().write_unaligned(header);
            C::copy::<PREFETCH>(frame.as_ptr(), record.add(RECORD_HEADER), stored);
        }
        at += RECORD_HEADER + stored;
        frames += 1;
    }
    CopyResult { picks: picks.len(), frames, next: at }
}

/// Prefetch distance in picks: enough to hide a miss, few enough to stay in the first-level cache.
const AHEAD: usize = 16;
/// Prefetch distance for writes to the block, in bytes.
const WRITE_AHEAD: usize = 512;
/// Prefetch distance for dense frames and their descs, in bytes: the hardware prefetcher finds the next lines, but does
/// not cross a page.
const DENSE_AHEAD: usize = 1024;
/// Bytes copied at a time.
const VECTOR: usize = 64;

/// A method of copying the bytes of one frame.
trait Copying {
    /// Copies `length` bytes. No byte after them is read; up to 63 bytes after them are written.
    ///
    /// # Safety
    /// `length` bytes are readable at `from`, they and [`TAIL`] more are writable at `to`, and the two do not overlap.
    unsafe fn copy<const PREFETCH: bool>(from: *const u8, to: *mut u8, length: usize);
}

/// Loads the last vector under a mask, which excludes bytes after the frame from the access.
#[cfg(target_arch = "x86_64")]
struct MaskedTail;

#[cfg(target_arch = "x86_64")]
impl MaskedTail {
    fn is_there() -> bool {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("bmi2")
    }
}

#[cfg(target_arch = "x86_64")]
impl Copying for MaskedTail {
    #[inline(always)]
    unsafe fn copy<const PREFETCH: bool>(from: *const u8, to: *mut u8, length: usize) {
        use std::arch::x86_64::{_bzhi_u64, _mm512_loadu_epi8, _mm512_maskz_loadu_epi8, _mm512_storeu_epi8};
        const { assert!(TAIL >= VECTOR) };
        let mut done = 0;
        // SAFETY: only called if the processor has these instructions. Whole vectors are read below `length`, of the
        // last one only the masked bytes; TAIL bytes may be written after them.
        unsafe {
            while length - done > VECTOR {
                if !PREFETCH {
                    prefetch(from.wrapping_add(done + DENSE_AHEAD));
                }
                _mm512_storeu_epi8(to.add(done).cast(), _mm512_loadu_epi8(from.add(done).cast()));
                done += VECTOR;
            }
            if !PREFETCH {
                prefetch(from.wrapping_add(done + DENSE_AHEAD));
            }
            let mask = _bzhi_u64(u64::MAX, (length - done) as u32);
            _mm512_storeu_epi8(to.add(done).cast(), _mm512_maskz_loadu_epi8(mask, from.add(done).cast()));
        }
    }
}

/// Lets the last vector end at the end of the frame, over bytes copied before.
struct OverlappingTail;

impl Copying for OverlappingTail {
    #[inline(always)]
    unsafe fn copy<const PREFETCH: bool>(from: *const u8, to: *mut u8, length: usize) {
        /// Copies `N` bytes.
        #[inline(always)]
        unsafe fn some<const N: usize>(from: *const u8, to: *mut u8, at: usize) {
            // SAFETY: by the contract of `copy`.
            unsafe { to.add(at).cast::<[u8; N]>().write_unaligned(from.add(at).cast::<[u8; N]>().read_unaligned()) };
        }
        const HALF: usize = VECTOR / 2;
        const QUARTER: usize = VECTOR / 4;
        // SAFETY: all reads and writes lie below `length`.
        unsafe {
            if length >= VECTOR {
                let mut done = 0;
                while length - done > VECTOR {
                    if !PREFETCH {
                        prefetch(from.wrapping_add(done + DENSE_AHEAD));
                    }
                    some::<VECTOR>(from, to, done);
                    done += VECTOR;
                }
                if !PREFETCH {
                    prefetch(from.wrapping_add(done + DENSE_AHEAD));
                }
                return some::<VECTOR>(from, to, length - VECTOR);
            }
            if !PREFETCH {
                prefetch(from.wrapping_add(DENSE_AHEAD));
            }
            if length >= HALF {
                some::<HALF>(from, to, 0);
                some::<HALF>(from, to, length - HALF);
            } else if length >= QUARTER {
                some::<QUARTER>(from, to, 0);
                some::<QUARTER>(from, to, length - QUARTER);
            } else {
                std::ptr::copy_nonoverlapping(from, to, length);
            }
        }
    }
}

/// Prefetches a cache line that will be written; harmless for any pointer.
#[inline(always)]
fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Splits times into seconds and nanoseconds, with a division only when a new second begins.
#[derive(Default)]
struct Clock {
    second: u64,
    begins: u64,
}

impl Clock {
    /// Returns a record's header: seconds, nanoseconds, stored and wire length. Its 32-bit seconds end in 2106.
    #[inline(always)]
    fn header(&mut self, time: Nanos, stored: u32, wire: u32) -> [u8; RECORD_HEADER] {
        const SECOND: u64 = 1_000_000_000;
        let mut within = time.0.wrapping_sub(self.begins);
        if within >= SECOND {
            let second = time.0 / SECOND;
            within = time.0 - second * SECOND;
            self.second = second.min(u32::MAX.into());
            // Capped at 2106: the last second of `u64` time is short, and the wrapping difference of time 0 to it would
            // match.
            self.begins = self.second * SECOND;
        }
        crate::slot::record_header(self.second as u32, within as u32, stored, wire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    /// Returns a page with no mapping after it: a read past its end faults.
    fn page_at_the_edge() -> *mut u8 {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping of two pages, of which the second is given up.
        unsafe {
            let map = mmap_anonymous(std::ptr::null_mut(), 2 * PAGE, access, flags).unwrap();
            munmap(map.wrapping_byte_add(PAGE), PAGE).unwrap();
            map.cast()
        }
    }

    const PAGE: usize = 4096;

    fn copies<C: Copying>(page: *mut u8) {
        for length in (0..=300).chain([1514, 4000, PAGE]) {
            let mut to = vec![0xee; length + 2 * TAIL];
            // SAFETY: the last bytes of the page, and room for TAIL bytes more.
            let from = unsafe {
                let from = page.add(PAGE - length);
                (0..length).for_each(|at| from.add(at).write((at * 7 + length) as u8));
                C::copy::<true>(from, to.as_mut_ptr(), length);
                C::copy::<false>(from, to.as_mut_ptr(), length);
                std::slice::from_raw_parts(from, length)
            };
            assert!(to[..length] == *from, "{length} bytes differ");
            assert!(to[length + TAIL..].iter().all(|byte| *byte == 0xee), "written too far after {length} bytes");
        }
    }

    #[test]
    fn no_byte_after_a_frame_is_read() {
        let page = page_at_the_edge();
        copies::<OverlappingTail>(page);
        #[cfg(target_arch = "x86_64")]
        if MaskedTail::is_there() {
            copies::<MaskedTail>(page);
        }
        // SAFETY: mapped above, and no longer used.
        unsafe { munmap(page.cast(), PAGE).unwrap() };
    }
}
