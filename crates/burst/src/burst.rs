//! A burst: a run of frames with their descs in one memory.
//!
//! The memory of a burst may belong to a kernel ring or to another process, which write elsewhere in it at the same
//! time; a plain `&[u8]` over all of it would be undefined behaviour. So base and length are private and only the bytes
//! of frames that the reader owns become slices.
#![allow(unsafe_code)]

use crate::cpu::prefetch_address;
use crate::{Desc, Flags, TAIL};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

/// A run of frames with their descs, borrowed from the owner of the memory.
///
/// Every frame lies inside the memory and is followed by [`TAIL`] mapped bytes: checked once when the burst is made,
/// never again. The bytes of frames belong to the holder of the burst. Those after a frame do not: the kernel or
/// another process may be writing there, so they are never read, not even to discard them. They are mapped for the sake
/// of prefetches, and for masked loads.
#[derive(Clone, Copy)]
pub struct Burst<'a> {
    base: *const u8,
    descs: &'a [Desc],
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a burst reads only the bytes of its frames, which are not written while it lives (the contract of `from_raw`,
// or the shared borrow of `over`), so any thread may hold or share it.
unsafe impl Send for Burst<'_> {}
// SAFETY: as above.
unsafe impl Sync for Burst<'_> {}

/// A desc that points outside its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MisplacedDesc {
    /// Index of the first such desc.
    pub index: usize,
}

impl fmt::Display for MisplacedDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "desc {} points outside its memory; a frame must be followed by {TAIL} mapped bytes", self.index)
    }
}

impl std::error::Error for MisplacedDesc {}

impl<'a> Burst<'a> {
    /// A burst without frames.
    pub const EMPTY: Burst<'static> = Burst { base: std::ptr::null(), descs: &[], memory: PhantomData };

    /// Returns a burst of frames in plain memory, after checking that each lies inside and is followed by [`TAIL`]
    /// bytes.
    ///
    /// # Errors
    /// The index of the first desc for which this does not hold.
    pub fn over(memory: &'a [u8], descs: &'a [Desc]) -> Result<Self, MisplacedDesc> {
        // One pass without branches: the greatest end of a frame, and whether any has an FCS.
        let (mut end, mut flags) = (0, Flags::NONE);
        for desc in descs {
            end = end.max(u64::from(desc.offset) + u64::from(desc.captured));
            flags |= desc.flags;
        }
        // An FCS lies after its frame, which needs a closer look; so does the search for the desc that does not fit.
        let is_to_be_looked_at = flags.intersects(Flags::FCS) || end + TAIL as u64 > memory.len() as u64;
        if is_to_be_looked_at && let Some(index) = descs.iter().position(|desc| !fits(desc, memory.len())) {
            return Err(MisplacedDesc { index });
        }
        Ok(Burst { base: memory.as_ptr(), descs, memory: PhantomData })
    }

    /// Returns a burst of frames in memory that others may be writing outside these frames.
    ///
    /// # Safety
    /// For all of `'a`: each desc's `offset..offset + stored()` from `base` is initialised memory of one allocation
    /// that is not written by anyone, and the [`TAIL`] bytes after it are mapped.
    pub unsafe fn from_raw(base: *const u8, descs: &'a [Desc]) -> Self {
        Burst { base, descs, memory: PhantomData }
    }

    /// Returns the number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.descs.len()
    }

    /// Returns whether the burst has no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.descs.is_empty()
    }

    /// Returns the sum of the captured lengths.
    pub fn bytes(&self) -> u64 {
        self.descs.iter().map(|desc| u64::from(desc.captured)).sum()
    }

    /// Returns the descs, in the order of the frames.
    #[inline]
    pub fn descs(&self) -> &'a [Desc] {
        self.descs
    }

    /// Returns the bytes of frame `index`.
    ///
    /// # Panics
    /// If the burst has no frame `index`.
    #[inline]
    pub fn frame(&self, index: usize) -> &'a [u8] {
        self.bytes_of(&self.descs[index])
    }

    /// Returns the bytes of frame `index`, with its FCS if it has one.
    ///
    /// # Panics
    /// If the burst has no frame `index`.
    #[inline]
    pub fn stored(&self, index: usize) -> &'a [u8] {
        let desc = &self.descs[index];
        self.bytes_of(&Desc { captured: desc.stored(), ..*desc })
    }

    /// Iterates over the descs with their frames.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'a Desc, &'a [u8])> + use<'a> {
        let burst = *self;
        self.descs.iter().map(move |desc| (desc, burst.bytes_of(desc)))
    }

    /// Returns a burst of the frames of `range`.
    ///
    /// # Panics
    /// If the range exceeds the burst.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Burst<'a> {
        Burst { descs: &self.descs[range], ..*self }
    }

    /// Returns the same frames with `offset` nanoseconds added to their times; `descs` is the buffer for the changed
    /// descs.
    pub fn shifted<'b>(&self, offset: i64, descs: &'b mut Vec<Desc>) -> Burst<'b>
    where
        'a: 'b,
    {
        descs.clear();
        let shift = |desc: &Desc| Desc { time: desc.time.shifted(offset), ..*desc };
        descs.extend(self.descs.iter().map(shift));
        Burst { base: self.base, descs, memory: PhantomData }
    }

    /// Returns whether frames lie one after the other with little between, judged by a few samples: the hardware
    /// prefetcher then finds the next one.
    pub fn is_dense(&self) -> bool {
        let step = (self.descs.len() / 8).max(1);
        let mut samples = self.descs.iter().step_by(step);
        let Some(mut last) = samples.next() else { return true };
        samples.all(|desc| {
            let apart = desc.offset.checked_sub(last.offset);
            let longest = last.captured.max(desc.captured) as usize + BETWEEN;
            last = desc;
            apart.is_some_and(|apart| apart as usize <= step * longest)
        })
    }

    /// Prefetches a desc that will be read soon; harmless for any `index`.
    #[inline(always)]
    pub fn prefetch_desc(&self, index: usize) {
        prefetch_address(self.descs.as_ptr().wrapping_add(index).cast());
    }

    /// Prefetches the beginning of frame `index`, which will be read soon.
    ///
    /// # Panics
    /// If the burst has no frame `index`.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        self.prefetch_lines(index, 2);
    }

    /// Prefetches frame `index`, which will be copied soon, up to 1,536 bytes: the work per frame is too long for the
    /// processor to reach the misses of the next frame early enough by itself.
    ///
    /// # Panics
    /// If the burst has no frame `index`.
    #[inline(always)]
    pub fn prefetch_whole(&self, index: usize) {
        self.prefetch_lines(index, (self.descs[index].captured as usize).div_ceil(LINE).min(AHEAD_LINES));
    }

    #[inline(always)]
    fn prefetch_lines(&self, index: usize, lines: usize) {
        let frame = self.base.wrapping_add(self.descs[index].offset as usize);
        (0..lines).for_each(|line| prefetch_address(frame.wrapping_add(line * LINE)));
    }

    #[inline]
    fn bytes_of(&self, desc: &Desc) -> &'a [u8] {
        // SAFETY: `desc` has the range of one of `self.descs`, or its stored one; these lie inside readable memory that
        // is not written for 'a: checked by `over`, promised to `from_raw`.
        unsafe { std::slice::from_raw_parts(self.base.add(desc.offset as usize), desc.captured as usize) }
    }
}

impl fmt::Debug for Burst<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Burst").field("descs", &self.descs).finish_non_exhaustive()
    }
}

/// Bytes of a cache line, and lines of a frame that are prefetched.
const LINE: usize = 64;
const AHEAD_LINES: usize = 24;

/// Most bytes between dense frames, such as the headers of a kernel ring.
const BETWEEN: usize = 192;

fn fits(desc: &Desc, length: usize) -> bool {
    desc.offset as usize + desc.stored() as usize + TAIL <= length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    #[test]
    fn frames_are_returned_as_stored() {
        let mut memory = vec![0u8; 10 + TAIL];
        memory[2..6].copy_from_slice(b"abcd");
        let descs = [Desc::new(Nanos(1), 2, 3), Desc::new(Nanos(2), 4, 2), Desc::new(Nanos(3), 10, 0)];
        let burst = Burst::over(&memory, &descs).unwrap();
        let frames: Vec<&[u8]> = burst.iter().map(|(_, frame)| frame).collect();
        assert_eq!(frames, [&b"abc"[..], b"cd", b""]);
        assert_eq!(burst.slice(1..2).frame(0), b"cd");
    }

    #[test]
    fn desc_outside_its_memory_is_rejected() {
        let memory = vec![0u8; 100];
        for (offset, length) in [(36, 1), (100, 0), (0, 37), (u32::MAX, u32::MAX)] {
            let descs = [Desc::new(Nanos(1), 0, 36), Desc::new(Nanos(1), offset, length)];
            assert_eq!(Burst::over(&memory, &descs).unwrap_err(), MisplacedDesc { index: 1 });
        }
    }

    #[test]
    fn the_empty_burst_is_empty() {
        assert!(Burst::EMPTY.is_empty());
        assert_eq!(Burst::EMPTY.iter().count(), 0);
    }
}
