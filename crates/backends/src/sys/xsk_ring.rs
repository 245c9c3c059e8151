//! The rings between an AF_XDP socket and its process: one writer, one reader, positions that only increase
//! (linux/if_xdp.h; Documentation/networking/af_xdp.rst).
//!
//! Unsafe because the rings are memory that the kernel reads and writes. The rule that makes it sound: entries between
//! the two positions are the reader's, the others the writer's; positions are published by release and read by acquire.
#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Offsets of the parts of a ring in its mapping (`struct xdp_ring_offset`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offsets {
    /// Position of the writer.
    pub producer: u64,
    /// Position of the reader.
    pub consumer: u64,
    /// The entries.
    pub entries: u64,
    /// `XDP_RING_NEED_WAKEUP`.
    pub flags: u64,
}

/// A ring of entries of 8 or 16 bytes.
#[derive(Debug)]
struct MappedRing<T> {
    base: *mut u8,
    mapped: usize,
    offsets: Offsets,
    size: u32,
    entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value; the other side is the kernel.
unsafe impl<T: Send> Send for MappedRing<T> {}

impl<T: Copy> MappedRing<T> {
    fn new(fd: BorrowedFd<'_>, page: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        assert!(size.is_power_of_two());
        let mapped = offsets.entries as usize + size as usize * size_of::<T>();
        // SAFETY: a new mapping of the socket's ring, at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page as libc::off_t,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedRing { base: base.cast(), mapped, offsets, size, entry: PhantomData })
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        assert!(offset as usize + 4 <= self.mapped);
        // SAFETY: inside the mapping (just checked), aligned as the kernel lays it out, accessed by atomics.
        unsafe { AtomicU32::from_ptr(self.base.add(offset as usize).cast()) }
    }

    #[inline]
    fn entry(&self, position: u32) -> *mut T {
        let index = (position & (self.size - 1)) as usize;
        // SAFETY: `index` is below `size`, so the entry lies inside the mapping.
        unsafe { self.base.add(self.offsets.entries as usize).cast::<T>().add(index) }
    }

    fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T> Drop for MappedRing<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; entries are only ever copied.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

/// A ring that this process writes: fill and send.
#[derive(Debug)]
pub(crate) struct Producer<T> {
    ring: MappedRing<T>,
    /// Entries written, published or not.
    written: u32,
    /// The reader's position when last seen.
    read: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps a ring of `size` entries.
    pub(crate) fn new(fd: BorrowedFd<'_>, page: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        Ok(Producer { ring: MappedRing::new(fd, page, offsets, size)?, written: 0, read: 0 })
    }

    /// Returns the number of entries that can be written now.
    pub(crate) fn free(&mut self) -> u32 {
        self.read = self.ring.word(self.ring.offsets.consumer).load(Ordering::Acquire);
        self.ring.size.saturating_sub(self.written.wrapping_sub(self.read))
    }

    /// Returns the number of entries written that the kernel has not taken yet.
    pub(crate) fn waiting(&mut self) -> u32 {
        self.ring.size - self.free()
    }

    /// Writes an entry; visible after [`Producer::publish`].
    ///
    /// # Panics
    /// If the ring is full: call [`Producer::free`] first.
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if self.written.wrapping_sub(self.read) >= self.ring.size {
            assert!(self.free() > 0, "pushed into a full ring");
        }
        // SAFETY: an entry between the reader's position and a ring further is the writer's.
        unsafe { self.ring.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
    }

    /// Publishes written entries to the kernel.
    pub(crate) fn publish(&mut self) {
        self.ring.word(self.ring.offsets.producer).store(self.written, Ordering::Release);
    }

    /// Returns whether the kernel waits for a notification.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that this process reads: receive and completion.
#[derive(Debug)]
pub(crate) struct Consumer<T> {
    ring: MappedRing<T>,
    /// Entries read, released or not.
    read: u32,
    /// The writer's position when last seen.
    written: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps a ring of `size` entries.
    pub(crate) fn new(fd: BorrowedFd<'_>, page: u64, offsets: Offsets, size: u32) -> io::Result<Self> {
        Ok(Consumer { ring: MappedRing::new(fd, page, offsets, size)?, read: 0, written: 0 })
    }

    /// Polls for entries; returns the number that can be read now.
    pub(crate) fn look(&mut self) -> u32 {
        self.written = self.ring.word(self.ring.offsets.producer).load(Ordering::Acquire);
        // A number above the ring's size is never valid: ignore it.
        if self.written.wrapping_sub(self.read) > self.ring.size {
            self.written = self.read;
        }
        self.written.wrapping_sub(self.read)
    }

    /// Returns the entry after `ahead` others.
    ///
    /// # Panics
    /// If it is not ready.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> T {
        assert!(ahead < self.written.wrapping_sub(self.read), "read beyond what is ready");
        // SAFETY: an entry between the two positions is the reader's; entries are integers, valid with any bytes.
        unsafe { self.ring.entry(self.read.wrapping_add(ahead)).read() }
    }

    /// Consumes the first entries; visible to the kernel after [`Consumer::release`].
    #[inline]
    pub(crate) fn advance(&mut self, entries: u32) {
        debug_assert!(entries <= self.written.wrapping_sub(self.read));
        self.read = self.read.wrapping_add(entries);
    }

    /// Releases consumed entries to the kernel.
    pub(crate) fn release(&mut self) {
        self.ring.word(self.ring.offsets.consumer).store(self.read, Ordering::Release);
    }
}
