//! The memory of a block: the place where frames are copied to.
//!
//! Unsafe because the memory may be shared with other processes, which read the committed part of it while
//! this one writes behind it: no reference may ever cover what is being written. So the base is private, and
//! everything handed out is a slice of what is written and stays as it is.
#![allow(unsafe_code)]

use crate::block::Committed;
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

/// Pages of this process alone, asked for as huge ones before the first is touched.
struct Pages {
    map: NonNull<std::ffi::c_void>,
    bytes: usize,
}

// SAFETY: nobody reaches the pages through this value.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `bytes` from a multiple of [`HUGE_PAGE`] on; `None` where the system has none.
    fn new(bytes: usize) -> Option<Pages> {
        let bytes = bytes.checked_next_multiple_of(HUGE_PAGE)?.checked_add(HUGE_PAGE)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping, wherever there is room.
        let map = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }.ok()?;
        // SAFETY: what was just mapped. The advice changes nothing but the size of its pages; where it is not taken the
        // memory is as good, only slower.
        let _ = unsafe { madvise(map, bytes, Advice::LinuxHugepage) };
        Some(Pages { map: NonNull::new(map)?, bytes })
    }

    fn base(&self) -> NonNull<u8> {
        let start = self.map.as_ptr() as usize;
        // SAFETY: the mapping is longer by one huge page than what is used of it.
        unsafe { self.map.cast::<u8>().add(start.next_multiple_of(HUGE_PAGE) - start) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; whoever used it held this value.
        let _ = unsafe { munmap(self.map.as_ptr(), self.bytes) };
    }
}

/// An empty vector with room for `capacity` values: in huge pages, if the system has them, and with its pages there
/// before they are needed. Where the system refuses either the vector is as good, only slower.
pub fn resident<T>(capacity: usize) -> Vec<T> {
    let mut room: Vec<T> = Vec::with_capacity(capacity);
    let spare = room.spare_capacity_mut();
    prefer_huge_pages(spare);
    let first = spare.as_mut_ptr().addr().next_multiple_of(PAGE);
    let end = (spare.as_mut_ptr().addr() + size_of_val(spare)) / PAGE * PAGE;
    if first < end {
        let start = spare.as_mut_ptr().with_addr(first);
        // SAFETY: whole pages inside of an allocation that this vector owns; the advice changes nothing that they hold.
        let _ = unsafe { madvise(start.cast(), end - first, Advice::LinuxPopulateWrite) };
    }
    room
}

/// Zeroed memory with the layout of one block, which this process alone writes.
pub struct Memory {
    base: NonNull<u8>,
    layout: Layout,
    /// Who owns the memory; `None` for an allocation of its own.
    owner: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the memory is written through `&mut self` alone, and what is handed out through `&self` is not
// written while it lives; the owner of shared memory is `Send + Sync`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// The smallest page.
const PAGE: usize = 4096;

/// Translations for frames in pages of 4 KiB miss often enough to cost a third of a copy.
const HUGE_PAGE: usize = 2 << 20;

/// Asks the kernel to put huge pages behind memory that is large and not written yet: random access to it then misses fewer
/// address translations.
pub fn prefer_huge_pages<T>(room: &mut [MaybeUninit<T>]) {
    let start = room.as_mut_ptr().addr().next_multiple_of(HUGE_PAGE);
    let end = (room.as_mut_ptr().addr() + size_of_val(room)) / HUGE_PAGE * HUGE_PAGE;
    if start < end {
        let first = room.as_mut_ptr().with_addr(start);
        // SAFETY: the pages lie inside of `room`, and the advice changes nothing in them. Without it they are just slower.
        let _ = unsafe { madvise(first.cast(), end - start, Advice::LinuxHugepage) };
    }
}

impl Memory {
    /// Memory of this process alone; in huge pages where that is worth it and the system has them.
    pub fn private(layout: Layout) -> Self {
        let owner = if layout.bytes() >= HUGE_PAGE { Pages::new(layout.bytes()) } else { None };
        if let Some(pages) = owner {
            return Memory { base: pages.base(), layout, owner: Some(Arc::new(pages)) };
        }
        let memory = Memory::allocation(layout);
        // SAFETY: a layout has more than no bytes.
        let base = unsafe { alloc_zeroed(memory) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(memory) };
        Memory { base, layout, owner: None }
    }

    /// Memory that others may read.
    ///
    /// # Safety
    /// `layout.bytes()` bytes from `base` on, which is a multiple of 64, are mapped, readable and writable as long as
    /// `owner` lives, and nobody but this value writes there.
    pub unsafe fn shared(base: NonNull<u8>, layout: Layout, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Memory { base, layout, owner: Some(owner) }
    }

    /// Where its parts lie.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// All that lies behind its first `frames` frames, the records of which end at `next`.
    ///
    /// # Panics
    /// If they do not lie inside.
    #[inline]
    pub(crate) fn stretch(&mut self, frames: usize, next: usize) -> Stretch<'_> {
        let (bytes, most, body) = (self.layout.bytes(), self.layout.frames(), self.layout.body());
        assert!(frames <= most && body <= next && next + TAIL <= bytes);
        Stretch { base: self.base.as_ptr(), frames, most, next, end: bytes, memory: PhantomData }
    }

    fn allocation(layout: Layout) -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(layout.bytes(), Layout::ALIGN).expect("a layout fits 32 bits")
    }

    /// The first `frames` descs, which are written.
    #[inline]
    pub(crate) fn descs(&self, frames: usize) -> &[Desc] {
        debug_assert!(frames <= self.layout.frames());
        // SAFETY: the layout has room for so many descs, every pattern of bits is one, the memory began zeroed, and
        // it is written through `&mut self` alone.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(Layout::DESCS).cast(), frames) }
    }

    /// The first `frames` frames.
    #[inline]
    pub(crate) fn burst(&self, frames: usize) -> Burst<'_> {
        // SAFETY: every desc was written by `write`, which keeps frames and the bytes behind them inside, and they are
        // written through `&mut self` alone.
        unsafe { Burst::from_raw(self.base.as_ptr(), self.descs(frames)) }
    }

    /// The bytes from `start` to `end`.
    ///
    /// # Panics
    /// If they are not all records.
    #[inline]
    pub(crate) fn bytes(&self, start: usize, end: usize) -> &[u8] {
        assert!(self.layout.body() <= start && start <= end && end <= self.layout.bytes());
        // SAFETY: inside, initialised (it began zeroed), and written through `&mut self` alone.
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
        // SAFETY: the asserted limits hold record and desc; the frame lies elsewhere, since what is handed out of this
        // memory cannot live beside `&mut self`.
        unsafe {
            let record = self.base.as_ptr().add(start);
            record.cast::<[u8; 16]>().write_unaligned(header);
            std::ptr::copy_nonoverlapping(frame.as_ptr(), record.add(header.len()), frame.len());
            self.base.as_ptr().add(Layout::DESCS).cast::<Desc>().add(index).write(*desc);
        }
    }

    /// Changes the time of desc `index` and of its record.
    pub(crate) fn restamp(&mut self, index: usize, time: Nanos) {
        let desc = Desc { time, ..self.descs(index + 1)[index] };
        let header = record_header_of(&desc);
        // SAFETY: the desc was written by `write`, with its record in front of its frame.
        unsafe {
            self.base.as_ptr().add(desc.offset as usize - header.len()).cast::<[u8; 16]>().write_unaligned(header);
            self.base.as_ptr().add(Layout::DESCS).cast::<Desc>().add(index).write(desc);
        }
    }

    /// Writes the header anew, for a block of no frames; no reader may know of the block.
    pub(crate) fn open(&mut self, sequence: u64, first_index: u64) {
        let header = Header::of(&self.layout, sequence, first_index);
        // SAFETY: the header lies at the base, which is aligned, and nobody else looks.
        unsafe { self.base.cast::<Header>().write(header) };
    }

    /// Says when the first frame was seen, and what it is; before the first commit.
    pub(crate) fn begin(&mut self, first_time: Nanos, link: LinkType) {
        // SAFETY: inside the header, and no reader looks there before it sees a committed frame.
        unsafe {
            let header = self.base.cast::<Header>().as_ptr();
            (&raw mut (*header).first_time).write(first_time.0);
            (&raw mut (*header).link).write(link.0);
        }
    }

    /// Lets readers see the first `frames` frames, and what is to know about them.
    pub(crate) fn commit(&mut self, frames: u32, used: u32, state: &Committed) {
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

    /// Tells readers that no more frames will come.
    pub(crate) fn close(&mut self) {
        self.word(offset_of!(Header, closed)).store(1, Release);
    }

    #[inline]
    fn half(&mut self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside the header, aligned, and accessed as an atomic by everybody while readers look.
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

/// A stretch of a block that is being filled. Stretches of one block do not overlap, so that each may have a thread of its own.
#[derive(Debug)]
pub(crate) struct Stretch<'a> {
    base: *mut u8,
    frames: usize,
    most: usize,
    next: usize,
    end: usize,
    memory: PhantomData<&'a mut Memory>,
}

// SAFETY: like the memory it belongs to, of which it alone writes its part.
unsafe impl Send for Stretch<'_> {}

impl<'a> Stretch<'a> {
    /// A first one for so many frames, the records of which have so many bytes, and the rest.
    ///
    /// # Panics
    /// If there is no room for so many.
    pub(crate) fn split(self, frames: usize, bytes: usize) -> (Stretch<'a>, Stretch<'a>) {
        let (most, end) = (self.frames + frames, self.next + bytes);
        assert!(most <= self.most && end + TAIL <= self.end);
        (Stretch { most, end, ..self }, Stretch { frames: most, next: end, ..self })
    }

    /// So many frames, with so many bytes of records, fit at most.
    pub(crate) fn room(&self) -> (usize, usize) {
        (self.most - self.frames, self.end.saturating_sub(self.next + TAIL))
    }

    /// The memory of the block.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// The numbers of the first frame and of the one behind the last that there is room for.
    #[inline]
    pub(crate) fn frames(&self) -> (usize, usize) {
        (self.frames, self.most)
    }

    /// Where the records begin, and the end of their memory; the last [`TAIL`] bytes of it belong to no record.
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
