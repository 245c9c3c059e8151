//! The memory of a block.
//!
//! Unsafe because the memory may be shared with other processes, which read the committed part of it while this process
//! writes after it: no reference may ever cover bytes that are being written. So the base is private, and only bytes
//! that are written and no longer change are returned as slices.
#![allow(unsafe_code)]

use crate::block::CommitState;
use crate::slot::{Header, Layout, MIXED, RECORD_HEADER, record_header};
use crate::{Burst, Desc, LinkType, Nanos, TAIL};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, offset_of};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

/// Private pages, requested as huge pages before the first is touched.
struct Pages {
    map: NonNull<std::ffi::c_void>,
    bytes: usize,
}

// SAFETY: the pages are not accessed through this value.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps `bytes` from a multiple of [`HUGE_PAGE`] on; `None` if the system has no memory.
    fn new(bytes: usize) -> Option<Pages> {
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE)?.checked_add(HUGE_PAGE)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }.ok()?;
        // SAFETY: just mapped. The advice changes only the size of its pages; if it is refused the memory is only
        // slower.
        let _ = unsafe { madvise(map, bytes, Advice::LinuxHugepage) };
        Some(Pages { map: NonNull::new(map)?, bytes })
    }

    fn base(&self) -> NonNull<u8> {
        let start = self.map.as_ptr() as usize;
        // SAFETY: the mapping is one huge page longer than the part in use.
        unsafe { self.map.cast::<u8>().add(start.next_multiple_of(HUGE_PAGE) - start) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; every user held this value.
        let _ = unsafe { munmap(self.map.as_ptr(), self.bytes) };
    }
}

/// Returns an empty vector with room for `capacity` values: in huge pages, if the system has them, and with its pages
/// populated in advance. If the system refuses either, the vector is only slower.
pub fn resident<T>(capacity: usize) -> Vec<T> {
    let mut room: Vec<T> = Vec::with_capacity(capacity);
    let spare = room.spare_capacity_mut();
    prefer_huge_pages(spare);
    let first = spare.as_mut_ptr().addr().next_multiple_of(PAGE);
    let end = (spare.as_mut_ptr().addr() + size_of_val(spare)) / PAGE * PAGE;
    if first < end {
        let start = spare.as_mut_ptr().with_addr(first);
        // SAFETY: whole pages inside an allocation that this vector owns; the advice does not change their contents.
        let _ = unsafe { madvise(start.cast(), end - first, Advice::LinuxPopulateWrite) };
    }
    room
}

/// Zeroed memory with the layout of one block, which only this process writes.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// The owner of the memory; `None` for an allocation of its own.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the memory is written only through `&mut self`, and slices returned through `&self` are not written while
// they live; the owner of shared memory is `Send + Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The smallest page.
const PAGE: usize = 4096;

/// Size of a huge page: with pages of 4 KiB, TLB misses cost a third of a copy.
const HUGE_PAGE: usize = 2 << 20;

/// Advises the kernel to back large, not yet written memory with huge pages: random access then has fewer TLB misses.
pub fn prefer_huge_pages<T>(room: &mut [MaybeUninit<T>]) {
    let start = room.as_mut_ptr().addr().next_multiple_of(HUGE_PAGE);
    let end = (room.as_mut_ptr().addr() + size_of_val(room)) / HUGE_PAGE * HUGE_PAGE;
    if start < end {
        let first = room.as_mut_ptr().with_addr(start);
        // SAFETY: the pages lie inside `room`, and the advice does not change their contents; if refused they are only
        // slower.
        let _ = unsafe { madvise(first.cast(), end - start, Advice::LinuxHugepage) };
    }
}

impl Memory {
    /// Allocates memory of this process; in huge pages if it is large enough and the system has them.
    pub fn private(layout: Layout) -> Self {
        let owner = if layout.bytes() >= HUGE_PAGE { Pages::new(layout.bytes()) } else { None };
        if let Some(pages) = owner {
            return Memory { base: pages.base(), layout, owner: Some(Arc::new(pages)) };
        }
        let memory = Memory::allocation(layout);
        // SAFETY: a layout is never empty.
        let base = unsafe { alloc_zeroed(memory) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(memory) };
        Memory { base, layout, owner: None }
    }

    /// Wraps memory that other processes may read.
    ///
    /// # Safety
    /// `layout.bytes()` bytes from `base` on, which is a multiple of 64, are mapped, readable and writable as long as
    /// `owner` lives, and only this value writes there.
    pub unsafe fn shared(base: NonNull<u8>, layout: Layout, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Memory { base, layout, owner: Some(owner) }
    }

    /// Returns the layout of its parts.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the stretch after its first `frames` frames, the records of which end at `next`.
    ///
    /// # Panics
    /// If they do not lie inside.
    #[inline]
    pub(crate) fn stretch(&mut self, frames: usize, next: usize) -> BlockPart<'_> {
        let (bytes, most, body) = (self.layout.bytes(), self.layout.frames(), self.layout.body());
        assert!(frames <= most && body <= next && next + TAIL <= bytes);
        BlockPart { base: self.base.as_ptr(), frames, most, next, end: bytes, memory: PhantomData }
    }

    fn allocation(layout: Layout) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(layout.bytes(), Layout::ALIGN).expect("a layout fits 32 bits")
    }

    /// Returns the first `frames` descs, which are written.
    #[inline]
    pub(crate) fn descs(&self, frames: usize) -> &[Desc] {
        debug_assert!(frames <= self.layout.frames());
        // SAFETY: the layout has room for this many descs, every bit pattern is a valid desc, the memory was zeroed,
        // and it is written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(Layout::DESCS).cast(), frames) }
    }

    /// Returns the first `frames` frames.
    #[inline]
    pub(crate) fn burst(&self, frames: usize) -> Burst<'_> {
        // SAFETY: every desc was written by `write`, which keeps frames and the bytes after them inside, and they are
        // written only through `&mut self`.
        unsafe { Burst::from_raw(self.base.as_ptr(), self.descs(frames)) }
    }

    /// Returns the bytes from `start` to `end`.
    ///
    /// # Panics
    /// If the range exceeds the records.
    #[inline]
    pub(crate) fn bytes(&self, start: usize, end: usize) -> &[u8] {
        assert!(self.layout.body() <= start && start <= end && end <= self.layout.bytes());
        // SAFETY: inside, initialised (it was zeroed), and written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(start), end - start) }
    }

    /// Writes the record header and the frame at `start`, and desc `index`.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub(crate) fn write(&mut self, index: usize, start: usize, desc: &Desc, frame: &[u8]) {
        let header = record_header_of(desc);
        let end = start + header.len() + frame.len();
        assert!(index < self.layout.frames() && self.layout.body() <= start && end + TAIL <= self.layout.bytes());
        // SAFETY: the asserted limits hold for record and desc; the frame lies elsewhere, since slices of this memory
        // cannot coexist with `&mut self`.
        unsafe {
            let record = self.base.as_ptr().add(start);
            record.cast::<[u8; 16]>().write_unaligned(header);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), record.add(header.len()), frame.len());
            self.base.as_ptr().add(Layout::DESCS).cast::<Desc>().add(index).write(*desc);
        }
    }

    /// Sets the time of desc `index` and of its record.
    pub(crate) fn restamp(&mut self, index: usize, time: Nanos) {
        let desc = Desc { time, ..self.descs(index + 1)[index] };
        let header = record_header_of(&desc);
        // SAFETY: the desc was written by `write`, with its record in front of its frame.
        unsafe {
            self.base.as_ptr().add(desc.offset as usize - header.len()).cast::<[u8; 16]>().write_unaligned(header);
            self.base.as_ptr().add(Layout::DESCS).cast::<Desc>().add(index).write(desc);
        }
    }

    /// Writes the header of an empty block; no reader may have access to the block.
    pub(crate) fn open(&mut self, sequence: u64, first_index: u64) {
        let header = Header::of(&self.layout, sequence, first_index);
        // SAFETY: the header lies at the base, which is aligned, and no other process reads it.
        unsafe { self.base.cast::<Header>().write(header) };
    }

    /// Stores the time of the first frame and the link type; before the first commit.
    pub(crate) fn begin(&mut self, first_time: Nanos, link: LinkType) {
        // SAFETY: inside the header, and readers do not read these fields before they see a committed frame.
        unsafe {
            let header = self.base.cast::<Header>().as_ptr();
            (&raw mut (*header).first_time).write(first_time.0);
            (&raw mut (*header).link).write(link.0);
        }
    }

    /// Makes the first `frames` frames visible to readers, with the state that belongs to them.
    pub(crate) fn commit(&mut self, frames: u32, used: u32, state: &CommitState) {
        self.word(offset_of!(Header, used)).store(used, Relaxed);
        self.long(offset_of!(Header, last_time)).store(state.last_time.0, Relaxed);
        self.long(offset_of!(Header, horizon)).store(state.horizon.0, Relaxed);
        self.long(offset_of!(Header, drops)).store(state.drops, Relaxed);
        self.word(offset_of!(Header, late)).store(state.late, Relaxed);
        self.word(offset_of!(Header, duplicates)).store(state.duplicates, Relaxed);
        self.word(offset_of!(Header, sliced)).store(state.sliced, Relaxed);
        self.half(offset_of!(Header, flags)).store(if state.mixed { MIXED } else { 0 }, Relaxed);
        self.word(offset_of!(Header, committed)).store(frames, Release);
    }

    /// Marks the block as complete for readers.
    pub(crate) fn close(&mut self) {
        self.word(offset_of!(Header, closed)).store(1, Release);
    }

    #[inline]
    fn half(&mut self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the header, aligned, and accessed only as an atomic while readers have access.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn word(&mut self, offset: usize) -> &AtomicU32 {
        // SAFETY: as for `half`.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    #[inline]
    fn long(&mut self, offset: usize) -> &AtomicU64 {
        // SAFETY: as for `half`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

/// A part of a block that is being filled. Stretches of one block do not overlap, so each may be filled by its own
/// thread.
#[derive(Debug)]
pub(crate) struct BlockPart<'a> {
    base: *mut u8,
    frames: usize,
    most: usize,
    next: usize,
    end: usize,
    memory: PhantomData<&'a mut Memory>,
}

// SAFETY: like the memory it belongs to, of which only it writes its part.
unsafe impl Send for BlockPart<'_> {}

impl<'a> BlockPart<'a> {
    /// Splits off a first stretch for `frames` frames with `bytes` of records; returns it and the rest.
    ///
    /// # Panics
    /// If there is not enough room.
    pub(crate) fn split(self, frames: usize, bytes: usize) -> (BlockPart<'a>, BlockPart<'a>) {
        let (most, end) = (self.frames + frames, self.next + bytes);
        assert!(most <= self.most && end + TAIL <= self.end);
        (BlockPart { most, end, ..self }, BlockPart { frames: most, next: end, ..self })
    }

    /// Returns the number of frames and of record bytes that still fit.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.most - self.frames, self.end.saturating_sub(self.next + TAIL))
    }

    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the number of the first frame and the end of the range of frames that fit.
    #[inline]
    pub(crate) fn frames(&self) -> (usize, usize) {
        (self.frames, self.most)
    }

    /// Returns the start of the records, and the end of their memory; the last [`TAIL`] bytes of it belong to no
    /// record.
    #[inline]
    pub(crate) fn records(&self) -> (usize, usize) {
        (self.next, self.end)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owner.is_none() {
            // SAFETY: allocated by `private` with this layout.
            unsafe { dealloc(self.base.as_ptr(), Memory::allocation(self.layout)) }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("layout", &self.layout).finish_non_exhaustive()
    }
}

#[inline]
fn record_header_of(desc: &Desc) -> [u8; RECORD_HEADER] {
    let seconds = desc.time.seconds().min(u32::MAX.into()) as u32;
    record_header(seconds, desc.time.subsec(), desc.stored(), desc.wire.saturating_add(desc.fcs()))
}
