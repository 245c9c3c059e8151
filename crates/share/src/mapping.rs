//! Memory shared by several processes: a mapped file descriptor, whose numbers are read and written individually.
//!
//! Unsafe because of the mapping itself. Other processes write here at any time, so there is never a reference to plain
//! bytes: numbers are atomics, and larger data is copied out number by number. Only the bytes of committed frames are
//! borrowed in place, by [`crate::frames`].
#![allow(unsafe_code)]

use crate::layout::PAGE;
use linerate_burst::pool::OwnedBytes;
use linerate_burst::{Block, Desc, Layout, Memory};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A mapping of a whole file, which is sealed against shrinking.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value, and everything in it is accessed by atomics, except frames, whose rule is
// in `frames.rs`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file, for writing too if `writable`. The kernel chooses the address: an address of our own
    /// would have to be reserved, and mapping over it (`MAP_FIXED`) may fail after having released it to other threads.
    pub(crate) fn new(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<Self> {
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ | write, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0");
        Ok(Mapping { base, bytes, writable })
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns its address in this process, to find it in the kernel's reports.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Returns a number for writing.
    ///
    /// # Panics
    /// If it exceeds the mapping or is misaligned, or the mapping is read-only.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(self.writable);
        // SAFETY: `at` has checked it, and every access is atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Returns a number for writing, like [`Mapping::word`].
    #[inline]
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(self.writable);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// Returns a byte for writing, like [`Mapping::word`].
    #[inline]
    pub(crate) fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(self.writable);
        // SAFETY: as for `word`.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }
    }

    /// Loads a number.
    ///
    /// # Panics
    /// If it exceeds the mapping or is misaligned.
    #[inline]
    pub(crate) fn load_word(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as for `word`; it is only loaded, which read-only memory allows.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }.load(order)
    }

    /// Loads a number, like [`Mapping::load_word`].
    #[inline]
    pub(crate) fn load_long(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as for `load_word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }.load(order)
    }

    /// Copies descs out, each number once.
    ///
    /// # Panics
    /// If they exceed the mapping or are not aligned to 8.
    #[inline]
    pub(crate) fn load_descs(&self, offset: usize, count: usize) -> impl Iterator<Item = Desc> {
        assert!(offset.is_multiple_of(8) && offset <= self.bytes);
        assert!(count <= (self.bytes - offset) / size_of::<Desc>());
        (0..count).map(move |index| {
            let first = self.base.as_ptr().wrapping_add(offset + index * size_of::<Desc>()).cast::<u64>();
            // SAFETY: all four numbers lie inside, as checked above; they are loaded as atomics.
            let words = [0, 1, 2, 3].map(|at| unsafe { AtomicU64::from_ptr(first.add(at)) }.load(Ordering::Relaxed));
            // SAFETY: a desc is plain data of 32 bytes, and every bit pattern is valid.
            unsafe { std::mem::transmute::<[u64; 4], Desc>(words) }
        })
    }

    /// Copies bytes out, one by one.
    ///
    /// # Panics
    /// If they exceed the mapping.
    pub(crate) fn load_bytes(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.bytes && into.len() <= self.bytes - offset);
        for (at, byte) in into.iter_mut().enumerate() {
            // SAFETY: inside, as just checked.
            *byte = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset + at)) }.load(Ordering::Relaxed);
        }
    }

    /// Writes bytes, one by one.
    ///
    /// # Panics
    /// If they exceed the mapping, or it is read-only.
    pub(crate) fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable && offset <= self.bytes && bytes.len() <= self.bytes - offset);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: inside and writable, as just checked.
            unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset + at)) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// Consumes a mapping whose blocks have not been taken; returns the block at each position from `offset` on.
    ///
    /// # Panics
    /// If they exceed the mapping, or it is read-only.
    pub(crate) fn into_blocks(self, offset: usize, count: usize, layout: Layout) -> (Arc<Mapping>, Vec<Block>) {
        assert!(self.writable && offset.is_multiple_of(PAGE) && layout.bytes().is_multiple_of(PAGE));
        assert!(offset + count * layout.bytes() <= self.bytes);
        let mapping = Arc::new(self);
        let block = |slot: usize| {
            let base = mapping.at(offset + slot * layout.bytes(), layout.bytes());
            let base = NonNull::new(base).expect("the base is not null");
            // SAFETY: inside the mapping, which the block keeps alive; this function is called once for a mapping, which
            // it consumes, so no other block has these bytes, and other processes can only read them.
            Block::over(unsafe { Memory::shared(base, layout, mapping.clone()) })
        };
        let blocks = (0..count).map(block).collect();
        (mapping, blocks)
    }

    /// Consumes a mapping whose pieces have not been taken; returns `count` of them of `bytes` each, one every `stride`
    /// from `offset` on.
    ///
    /// # Panics
    /// If they exceed the mapping or overlap, or it is read-only.
    pub(crate) fn into_pieces(
        self,
        offset: usize,
        stride: usize,
        count: usize,
        bytes: usize,
    ) -> (Arc<Mapping>, Vec<OwnedBytes>) {
        assert!(self.writable && bytes <= stride && offset + count * stride <= self.bytes);
        let mapping = Arc::new(self);
        let piece = |index: usize| {
            // SAFETY: inside the mapping, which the piece keeps alive; this function is called once for a mapping, which it
            // consumes, so no other piece has these bytes, and other processes can only read them.
            unsafe { OwnedBytes::shared(mapping.base.add(offset + index * stride), bytes, true, mapping.clone()) }
        };
        let pieces = (0..count).map(piece).collect();
        (mapping, pieces)
    }

    /// Returns bytes that another process has written and leaves untouched until `lent` is dropped, which must keep
    /// this mapping alive. The limits that `frames.rs` states for a hostile writer apply here too.
    ///
    /// # Panics
    /// If they exceed the mapping.
    pub(crate) fn lend(&self, offset: usize, bytes: usize, lent: Arc<dyn Any + Send + Sync>) -> OwnedBytes {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: inside the mapping, which callers keep alive by `lent`; it is never written through the piece.
        unsafe { OwnedBytes::shared(self.base.add(offset), bytes, false, lent) }
    }

    /// Populates every page, so that its first access does not fault.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let advice = if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        match self.advise(advice) {
            // Not supported before Linux 5.14.
            Err(Errno::INVAL) => {
                for offset in (0..self.bytes).step_by(PAGE) {
                    match self.writable {
                        true => _ = self.word(offset).fetch_or(0, Ordering::Relaxed),
                        false => _ = self.load_word(offset, Ordering::Relaxed),
                    }
                }
                Ok(())
            }
            result => Ok(result?),
        }
    }

    /// Asks for transparent huge pages.
    pub(crate) fn request_huge_pages(&self) {
        // Best effort: nothing depends on it.
        let _ = self.advise(Advice::LinuxHugepage);
    }

    /// Locks every page in memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: the mapping itself; its contents do not change.
        Ok(unsafe { rustix::mm::mlock(self.base.as_ptr().cast(), self.bytes) }?)
    }

    /// Allocates pages that are not yet present from one NUMA node, 0 to 1023.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        /// `MPOL_BIND` (linux/mempolicy.h).
        const BIND: libc::c_int = 2;
        let mut nodes = [0u64; 16];
        let bits = nodes.len() * 64;
        let place = nodes.get_mut(node as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *place = 1 << (node % 64);
        // SAFETY: the mapping itself, and a mask with the given number of bits (the kernel ignores the last one).
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), self.bytes, BIND, nodes.as_ptr(), bits + 1, 0u32)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the mapping itself; none of the advice in use changes its contents.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) }
    }

    /// Returns the address of `bytes` bytes, aligned for their size up to 8.
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset && offset.is_multiple_of(bytes.min(8)));
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; all borrows from it have ended.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
