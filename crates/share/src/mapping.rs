//! Memory that several processes see: a file descriptor mapped, numbers in it read and written one by one.
//!
//! Unsafe because of the mapping itself. Other processes write here at any time, so there is never a reference to plain
//! bytes: numbers are atomics, and whatever is larger is copied out number by number. Only the bytes of committed
//! frames are handed out as they lie, by [`crate::frames`].
#![allow(unsafe_code)]

use crate::layout::PAGE;
use linerate_burst::pool::Piece;
use linerate_burst::{Block, Desc, Layout, Memory};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::any::Any;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// One mapping of a whole file, which is sealed against growing shorter.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to this value, and everything in it is accessed by atomics, but for frames, whose rule is
// told in `frames.rs`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a file, to be written too where that is asked for. Where is the kernel's choice: a place of our own
    /// would have to be reserved, and mapping over it (`MAP_FIXED`) may fail after having given it up to other threads.
    pub(crate) fn new(fd: BorrowedFd<'_>, bytes: usize, writable: bool) -> io::Result<Self> {
        let write = if writable { ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: a new mapping at a place of the kernel's choice.
        let base = unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ | write, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at 0");
        Ok(Mapping { base, bytes, writable })
    }

    /// Bytes of it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it lies in this process, for the kernel's reports about it.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// A number to be written.
    ///
    /// # Panics
    /// If it does not lie inside at a multiple of its size, or the mapping is for reading alone.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(self.writable);
        // SAFETY: `at` has checked it, and everybody accesses it as an atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// See [`Mapping::word`].
    #[inline]
    pub(crate) fn long(&self, offset: usize) -> &AtomicU64 {
        assert!(self.writable);
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// A byte to be written. See [`Mapping::word`].
    #[inline]
    pub(crate) fn byte(&self, offset: usize) -> &AtomicU8 {
        assert!(self.writable);
        // SAFETY: as for `word`.
        unsafe { AtomicU8::from_ptr(self.at(offset, 1)) }
    }

    /// A number as it is now.
    ///
    /// # Panics
    /// If it does not lie inside at a multiple of its size.
    #[inline]
    pub(crate) fn load_word(&self, offset: usize, order: Ordering) -> u32 {
        // SAFETY: as for `word`; it is only loaded, which memory for reading alone allows.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }.load(order)
    }

    /// See [`Mapping::load_word`].
    #[inline]
    pub(crate) fn load_long(&self, offset: usize, order: Ordering) -> u64 {
        // SAFETY: as for `load_word`.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }.load(order)
    }

    /// Descs, each copied out once.
    ///
    /// # Panics
    /// If they do not lie inside at a multiple of 8.
    #[inline]
    pub(crate) fn load_descs(&self, offset: usize, count: usize) -> impl Iterator<Item = Desc> {
        assert!(offset.is_multiple_of(8) && offset <= self.bytes);
        assert!(count <= (self.bytes - offset) / size_of::<Desc>());
        (0..count).map(move |index| {
            let first = self.base.as_ptr().wrapping_add(offset + index * size_of::<Desc>()).cast::<u64>();
            // SAFETY: all four numbers lie inside, as checked above; they are loaded as atomics.
            let words = [0, 1, 2, 3].map(|at| unsafe { AtomicU64::from_ptr(first.add(at)) }.load(Ordering::Relaxed));
            // SAFETY: a desc is plain data of 32 bytes, of which every pattern of bits is one.
            unsafe { std::mem::transmute::<[u64; 4], Desc>(words) }
        })
    }

    /// Bytes, copied out one by one.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn load_bytes(&self, offset: usize, into: &mut [u8]) {
        assert!(offset <= self.bytes && into.len() <= self.bytes - offset);
        for (at, byte) in into.iter_mut().enumerate() {
            // SAFETY: inside, as just checked.
            *byte = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset + at)) }.load(Ordering::Relaxed);
        }
    }

    /// Bytes, written one by one.
    ///
    /// # Panics
    /// If they do not lie inside, or the mapping is for reading alone.
    pub(crate) fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        assert!(self.writable && offset <= self.bytes && bytes.len() <= self.bytes - offset);
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: inside and writable, as just checked.
            unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset + at)) }.store(*byte, Ordering::Relaxed);
        }
    }

    /// Consumes a mapping that nobody has read blocks from yet: each block at its place, from `offset` on.
    ///
    /// # Panics
    /// If they do not lie inside, or the mapping is for reading alone.
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

    /// Consumes a mapping that nobody has pieces of yet: `count` of them of `bytes` each, one every `stride` from `offset` on.
    ///
    /// # Panics
    /// If they do not lie inside or overlap, or the mapping is for reading alone.
    pub(crate) fn into_pieces(
        self,
        offset: usize,
        stride: usize,
        count: usize,
        bytes: usize,
    ) -> (Arc<Mapping>, Vec<Piece>) {
        assert!(self.writable && bytes <= stride && offset + count * stride <= self.bytes);
        let mapping = Arc::new(self);
        let piece = |index: usize| {
            // SAFETY: inside the mapping, which the piece keeps alive; this function is called once for a mapping, which it
            // consumes, so no other piece has these bytes, and other processes can only read them.
            unsafe { Piece::shared(mapping.base.add(offset + index * stride), bytes, true, mapping.clone()) }
        };
        let pieces = (0..count).map(piece).collect();
        (mapping, pieces)
    }

    /// Bytes that another process has written and leaves alone until `lent` is dropped, which keeps this mapping. What is said in
    /// `frames.rs` of a hostile writer holds here too.
    ///
    /// # Panics
    /// If they do not lie inside.
    pub(crate) fn lend(&self, offset: usize, bytes: usize, lent: Arc<dyn Any + Send + Sync>) -> Piece {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: inside the mapping, which `lent` keeps alive, as all who call this see to; it is never written through the piece.
        unsafe { Piece::shared(self.base.add(offset), bytes, false, lent) }
    }

    /// Has every page there, so that none has to be found when it is first touched.
    pub(crate) fn populate(&self) -> io::Result<()> {
        let advice = if self.writable { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        match self.advise(advice) {
            // Before Linux 5.14.
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

    /// Asks for huge pages where the system has none reserved.
    pub(crate) fn ask_for_huge_pages(&self) {
        // Nothing depends on it.
        let _ = self.advise(Advice::LinuxHugepage);
    }

    /// Keeps every page in memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: the mapping itself; its contents do not change.
        Ok(unsafe { rustix::mm::mlock(self.base.as_ptr().cast(), self.bytes) }?)
    }

    /// Has all pages that are not there yet come from one NUMA node, 0 to 1023.
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        /// `MPOL_BIND` (linux/mempolicy.h).
        const BIND: libc::c_int = 2;
        let mut nodes = [0u64; 16];
        let bits = nodes.len() * 64;
        let place = nodes.get_mut(node as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *place = 1 << (node % 64);
        // SAFETY: the mapping itself, and a mask of as many bits as is said (the kernel leaves the last one out).
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), self.bytes, BIND, nodes.as_ptr(), bits + 1, 0u32)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn advise(&self, advice: Advice) -> Result<(), Errno> {
        // SAFETY: the mapping itself; none of the advices in use changes what it holds.
        unsafe { rustix::mm::madvise(self.base.as_ptr().cast(), self.bytes, advice) }
    }

    /// The address of `bytes` bytes, each number of which may be accessed as such.
    #[inline]
    pub(crate) fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset && offset.is_multiple_of(bytes.min(8)));
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; whoever borrows from it has gone.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
