//! The memory shared by the two ends of a memif connection: mapped regions, and the rings in them.
//!
//! Both ends have all of it mapped writable, so the peer may change any byte at any time: no reference to it ever
//! exists. Numbers are loaded and stored as atomics, each once; bytes of frames are copied out, or in, and only the
//! copy is parsed. Each access is checked against the mapping here, whatever a descriptor contains.
//!
//! Unsafe because of that: mapped memory is accessed by pointers.
#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Bytes of a ring before its descriptors.
pub(crate) const HEADER: usize = 128;
/// Bytes of a descriptor.
pub(crate) const DESC: usize = 16;
/// First word of a ring.
pub(crate) const COOKIE: u32 = 0x03E3_1F20;
/// Maximum descriptors of a ring, as a power of two: positions have 16 bits, and no peer accepts more.
pub(crate) const MOST_LOG2: u8 = 14;
/// Flag of a descriptor: the frame continues in the next one.
pub(crate) const NEXT: u16 = 1;
/// Flag of a ring: its reader is awake, and needs no notification.
const MASK: u16 = 1;
/// Offsets in a ring's header.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
/// Bytes up to which a frame is copied with constant length, where there is room.
const SHORT: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// [`NEXT`] or 0.
    pub flags: u16,
    /// Index of its region.
    pub region: u16,
    /// Number of its bytes, or the room of an empty buffer.
    pub length: u32,
    /// Offset of its bytes.
    pub offset: u32,
}

/// A file mapped by both ends.
#[derive(Debug)]
pub(crate) struct Region {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value; its contents are accessed by atomics and by copies, as in other processes.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps the first `bytes` of a file. The caller has made sure that the file cannot be truncated.
    pub(crate) fn map(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<Region> {
        let bytes = usize::try_from(bytes).ok().filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, fd, 0) }?;
        Ok(Region { base: base.cast(), bytes })
    }

    /// Returns whether `length` bytes from an offset are inside.
    #[inline]
    pub(crate) fn has(&self, offset: u32, length: u32) -> bool {
        // In 64 bits: the sum of two 32-bit numbers may overflow.
        u64::from(offset) + u64::from(length) <= self.bytes as u64
    }

    /// Copies up to `length` bytes out, as far as `to` has room. Bytes that the peer changes concurrently are old or
    /// new.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub(crate) fn copy_out(&self, offset: u32, length: usize, to: &mut [u8]) {
        let (at, length) = (offset as usize, length.min(to.len()));
        assert!(at <= self.bytes && length <= self.bytes - at);
        // SAFETY: inside the mapping, and inside `to`, which is our own memory; the constant length fits both.
        unsafe {
            if length <= SHORT && self.bytes - at >= SHORT && to.len() >= SHORT {
                ptr::copy_nonoverlapping(self.base.add(at), to.as_mut_ptr(), SHORT);
            } else {
                ptr::copy_nonoverlapping(self.base.add(at), to.as_mut_ptr(), length);
            }
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// If they are not inside.
    #[inline]
    pub(crate) fn copy_in(&self, offset: u32, from: &[u8]) {
        let at = offset as usize;
        assert!(at <= self.bytes && from.len() <= self.bytes - at);
        // SAFETY: inside the mapping, as just checked; `from` does not overlap it, since no reference to it is ever
        // made.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.base.add(at), from.len()) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `map`; rings keep their region alive.
        let _ = unsafe { munmap(self.base.cast(), self.bytes) };
    }
}

/// A ring in a region.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    /// Keeps the region mapped.
    _region: Arc<Region>,
    base: *mut u8,
    /// Number of its descriptors, less one.
    mask: u16,
}

// SAFETY: as for its region, which it keeps alive.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Returns the bytes of a ring with 2^`log2` descriptors.
    pub(crate) fn bytes(log2: u8) -> usize {
        HEADER + (DESC << log2)
    }

    /// Opens a ring; `None` if it is not inside, or not aligned to 64 bits.
    pub(crate) fn new(region: &Arc<Region>, offset: u32, log2: u8) -> Option<Ring> {
        let at = offset as usize;
        let fits = (1..=MOST_LOG2).contains(&log2) && at.is_multiple_of(8);
        if !fits || at > region.bytes || Ring::bytes(log2) > region.bytes - at {
            return None;
        }
        // SAFETY: inside the mapping, as just checked.
        let base = unsafe { region.base.add(at) };
        Some(Ring { _region: Arc::clone(region), base, mask: (1 << log2) - 1 })
    }

    /// Returns the number of descriptors.
    #[inline]
    pub(crate) fn size(&self) -> u16 {
        self.mask + 1
    }

    /// Initialises a ring: masked and empty.
    pub(crate) fn prepare(&self) {
        // SAFETY: inside the ring, aligned, and accessed as an atomic by all.
        unsafe { AtomicU32::from_ptr(self.base.cast()) }.store(COOKIE, Relaxed);
        self.set_masked(true);
        self.set_head(0);
        self.set_tail(0);
    }

    /// Returns whether it starts with the cookie.
    pub(crate) fn is_ring(&self) -> bool {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.base.cast()) }.load(Relaxed) == COOKIE
    }

    /// Returns the client's position: slots before it are written, or have room.
    #[inline]
    pub(crate) fn head(&self) -> u16 {
        self.half(HEAD).load(Acquire)
    }

    /// See [`Ring::head`].
    #[inline]
    pub(crate) fn set_head(&self, position: u16) {
        self.half(HEAD).store(position, Release);
    }

    /// Returns the server's position.
    #[inline]
    pub(crate) fn tail(&self) -> u16 {
        self.half(TAIL).load(Acquire)
    }

    /// See [`Ring::tail`].
    #[inline]
    pub(crate) fn set_tail(&self, position: u16) {
        self.half(TAIL).store(position, Release);
    }

    /// Returns whether its reader needs no notification.
    #[inline]
    pub(crate) fn is_masked(&self) -> bool {
        self.half(FLAGS).load(Relaxed) & MASK != 0
    }

    /// See [`Ring::is_masked`].
    pub(crate) fn set_masked(&self, masked: bool) {
        self.half(FLAGS).store(if masked { MASK } else { 0 }, Relaxed);
    }

    /// Returns the index of a position in the ring.
    #[inline]
    pub(crate) fn index(&self, position: u16) -> usize {
        usize::from(position & self.mask)
    }

    /// Returns the descriptor at a position, loaded once.
    #[inline]
    pub(crate) fn slot(&self, position: u16) -> Slot {
        let [first, second] = self.words(position).map(|word| word.load(Relaxed).to_ne_bytes());
        let half = |at: usize| u16::from_ne_bytes([first[at], first[at + 1]]);
        let word = |bytes: &[u8; 8], at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Slot { flags: half(0), region: half(2), length: word(&first, 4), offset: word(&second, 0) }
    }

    /// Writes the descriptor at a position.
    #[inline]
    pub(crate) fn set_slot(&self, position: u16, slot: Slot) {
        let [first, second] = self.words(position);
        first.store(Ring::first(slot), Relaxed);
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&slot.offset.to_ne_bytes());
        second.store(u64::from_ne_bytes(bytes), Relaxed);
    }

    /// Writes the descriptor at a position except for its offset.
    #[inline]
    pub(crate) fn set_length(&self, position: u16, slot: Slot) {
        self.words(position)[0].store(Ring::first(slot), Relaxed);
    }

    /// Encodes flags, region and length.
    #[inline]
    fn first(slot: Slot) -> u64 {
        let mut bytes = [0; 8];
        bytes[..2].copy_from_slice(&slot.flags.to_ne_bytes());
        bytes[2..4].copy_from_slice(&slot.region.to_ne_bytes());
        bytes[4..].copy_from_slice(&slot.length.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    }

    #[inline]
    fn words(&self, position: u16) -> [&AtomicU64; 2] {
        // SAFETY: `new` has checked that all descriptors are inside, at multiples of 8; all accesses to them are
        // atomic.
        unsafe {
            let first = self.base.add(HEADER + DESC * self.index(position)).cast::<u64>();
            [AtomicU64::from_ptr(first), AtomicU64::from_ptr(first.add(1))]
        }
    }

    #[inline]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: inside the header of the ring, aligned, and accessed as an atomic by all.
        unsafe { AtomicU16::from_ptr(self.base.add(at).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::os::fd::AsFd;

    fn region(bytes: u64) -> Arc<Region> {
        let fd = memfd_create("memif test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, bytes).unwrap();
        Arc::new(Region::map(fd.as_fd(), bytes).unwrap())
    }

    #[test]
    fn a_ring_has_the_layout_of_the_protocol() {
        let region = region(8192);
        let ring = Ring::new(&region, 64, 4).unwrap();
        ring.prepare();
        ring.set_head(0x1234);
        ring.set_tail(0x5678);
        let slot = Slot { flags: 1, region: 2, length: 3, offset: 4 };
        ring.set_slot(17, slot);
        assert_eq!((ring.slot(1), ring.slot(17), ring.size(), ring.is_ring()), (slot, slot, 16, true));
        let mut bytes = [0; 200];
        region.copy_out(64, 200, &mut bytes);
        assert_eq!(bytes[..8], [0x20, 0x1f, 0xe3, 0x03, 1, 0, 0x34, 0x12]);
        assert_eq!(bytes[64..66], [0x78, 0x56]);
        assert_eq!(bytes[144..160], [1, 0, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        ring.set_length(1, Slot { length: 9, ..slot });
        assert_eq!(ring.slot(1), Slot { length: 9, ..slot });
    }

    #[test]
    fn rings_outside_the_region_are_rejected() {
        let region = region(4096);
        for (offset, log2) in [(0, 0), (0, 15), (4, 1), (4096 - 128, 1), (u32::MAX - 7, 1), (4096, 1), (0, 8)] {
            assert!(Ring::new(&region, offset, log2).is_none(), "{offset} {log2}");
        }
        assert!(Ring::new(&region, 4096 - 160, 1).is_some());
        assert!(region.has(4095, 1) && region.has(4096, 0) && !region.has(4096, 1) && !region.has(u32::MAX, u32::MAX));
        let copied = std::panic::catch_unwind(|| region.copy_out(4090, 7, &mut [0; 64]));
        assert!(copied.is_err(), "copied from beyond the end");
        assert!(Region::map(memfd_create("empty", MemfdFlags::CLOEXEC).unwrap().as_fd(), u64::MAX).is_err());
    }

    #[test]
    fn short_frames_at_the_end_are_copied_exactly() {
        let region = region(4096);
        region.copy_in(4094, &[7, 8]);
        let mut to = [0; 64];
        region.copy_out(4094, 2, &mut to);
        assert_eq!(to[..3], [7, 8, 0]);
    }
}
