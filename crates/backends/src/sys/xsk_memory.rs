//! The memory of an AF_XDP socket: chunks exchanged between kernel and process, an area of our own after them where
//! frames of several chunks are joined, and a page that stays zero.
//!
//! Unsafe because the kernel writes the chunks it was given. The rule that makes it sound: a chunk is the kernel's from
//! the moment its address is put into the fill or the send ring until it is returned in the receive or the completion
//! ring, and ours otherwise.
#![allow(unsafe_code)]

use linerate_burst::{Burst, Desc, TAIL, prefetch_address};
use std::{io, ptr, slice};

const HUGE_PAGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// One mapping, laid out as: chunks, area of our own, page of zeros.
#[derive(Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    mapped: usize,
    chunk: u32,
    chunks: u32,
    own: usize,
}

// SAFETY: the mapping belongs to this value; access to its bytes is governed by the ownership of chunks.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps `chunks` chunks of `chunk` bytes (2048 or 4096) and `own` bytes after them.
    pub(crate) fn new(chunk: u32, chunks: u32, own: usize) -> io::Result<Self> {
        const { assert!(TAIL <= PAGE) };
        let bytes = chunk as usize * chunks as usize + own;
        if u32::try_from(bytes).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 4 GiB of receive memory for a queue"));
        }
        let mapped = (bytes + PAGE).next_multiple_of(HUGE_PAGE);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // Fewer TLB misses if the system grants huge pages; nothing depends on it.
        // SAFETY: the mapping just made.
        unsafe { libc::madvise(base, mapped, libc::MADV_HUGEPAGE) };
        Ok(Memory { base: base.cast(), mapped, chunk, chunks, own })
    }

    /// Returns the start of the chunks.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the bytes of a chunk.
    pub(crate) fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Returns the bytes of all chunks.
    pub(crate) fn chunk_bytes(&self) -> usize {
        self.chunk as usize * self.chunks as usize
    }

    /// Returns the bytes of the area of our own, which starts after the chunks.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own
    }

    /// Returns whether a chunk holds `length` bytes at `address`.
    pub(crate) fn holds(&self, address: u64, length: u32) -> bool {
        let within = address & u64::from(self.chunk - 1);
        address < self.chunk_bytes() as u64 && within + u64::from(length) <= u64::from(self.chunk)
    }

    /// Returns the two 64-bit words before `address`; 0 if the chunk does not include them.
    ///
    /// # Safety
    /// The chunk is ours.
    #[inline]
    pub(crate) unsafe fn words_before(&self, address: u64) -> [u64; 2] {
        let bytes = size_of::<[u64; 2]>();
        if address & u64::from(self.chunk - 1) < bytes as u64 || !self.holds(address, 0) {
            return [0; 2];
        }
        // SAFETY: inside the chunk (just checked), which is ours, so it is not written.
        unsafe { self.base.add(address as usize - bytes).cast::<[u64; 2]>().read_unaligned() }
    }

    /// Returns bytes of the mapping to write to.
    ///
    /// # Panics
    /// If they are not inside.
    ///
    /// # Safety
    /// The bytes are ours, and no other reference to them is alive.
    #[expect(clippy::mut_from_ref, reason = "write access is governed by the ownership of chunks")]
    pub(crate) unsafe fn bytes_mut(&self, offset: usize, length: usize) -> &mut [u8] {
        assert!(offset + length <= self.chunk_bytes() + self.own);
        // SAFETY: inside the mapping (just checked); the rest is the caller's promise.
        unsafe { slice::from_raw_parts_mut(self.base.add(offset), length) }
    }

    /// Prefetches the cache line at an address.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        prefetch_address(self.base.wrapping_add(address as usize));
    }

    /// Returns frames of this memory as a burst.
    ///
    /// # Safety
    /// Each desc's frame is inside the chunks or the area of our own, and is not written for `'a`.
    pub(crate) unsafe fn burst<'a>(&'a self, descs: &'a [Desc]) -> Burst<'a> {
        // SAFETY: the caller's guarantee; a page follows the last byte of any frame.
        unsafe { Burst::from_raw(self.base, descs) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`. The kernel keeps its own references to pages while it needs them.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}
