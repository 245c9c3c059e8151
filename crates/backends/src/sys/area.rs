//! Memory that XDP programs write frames into, used in place: the only value of an array map, mapped.
//!
//! Each queue has a segment: two rings of bytes of frames, then a ring of descs. The program writes a frame into the
//! first ring if it has room, else into the second one: while the reader keeps up, all frames are in a ring so small
//! that it stays in the caches; the large one is for the time that it does not. Byte positions and frame numbers only
//! increase; the range between the process's and the program's position belongs to the process, the rest to the
//! program. A frame that starts before the end of a ring extends beyond it into a reserved area, so that frames are
//! contiguous and packed.
//!
//! ```text
//!  | warm bytes ....... | guard | bytes ................. | guard | descs ............ |   next queue ...   | aside
//!      ^ freed  ^ written          ^ freed    ^ written             ^ tail     ^ head
//! ```
//!
//! The memory of a ring is reused in order, so a frame held for long would block all: it is moved aside, to a chunk
//! after all segments.
//!
//! Unsafe because frames and descs are read where the kernel put them. The guarantee that no frame is written while it
//! is shown or held rests on the private fields here and nowhere else.
#![allow(unsafe_code)]

use super::bpf::{F_MMAPABLE, Map, MapKind};
use linerate_burst::{Burst, Desc};
use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of the first ring of a segment, if the second one is at least twice as large.
const WARM: u32 = 2 << 20;
/// Bytes after the last offset at which a frame may start: more than the longest frame.
pub(crate) const BEHIND: usize = 128 << 10;
/// Alignment of frames.
pub(crate) const ALIGN: usize = 8;
/// Maximum frames shown at a time.
const SHOWN: usize = 2048;
/// Chunks for frames that were moved aside, and bytes of each.
const ASIDE: usize = 1024;
const ASIDE_BYTES: usize = 4096;
/// Flag in the number of a frame: it is in a chunk aside.
const IS_ASIDE: u64 = 1 << 63;

/// Division of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Number of segments.
    pub queues: u32,
    /// Descs of a segment: a power of two.
    pub frames: u32,
    /// Bytes of the second ring of a segment in which frames may start: a power of two.
    pub bytes: u32,
}

/// A ring of bytes of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteRing {
    /// Offset from the start of the segment.
    pub start: u32,
    /// Bytes in which frames may start: a power of two.
    pub bytes: u32,
}

impl Layout {
    /// Returns the distance of segments.
    pub(crate) fn stride(&self) -> usize {
        self.descs_at() + self.frames as usize * size_of::<Desc>()
    }

    /// Returns the rings of a segment, in the order in which they are filled.
    pub(crate) fn rings(&self) -> [ByteRing; 2] {
        let warm = WARM.min(self.bytes / 2);
        [ByteRing { start: 0, bytes: warm }, ByteRing { start: warm + BEHIND as u32, bytes: self.bytes }]
    }

    /// Returns the offset of the descs of a segment.
    pub(crate) fn descs_at(&self) -> usize {
        let [_, last] = self.rings();
        (last.start + last.bytes) as usize + BEHIND
    }

    /// Returns the total size.
    pub(crate) fn total(&self) -> usize {
        self.segments() + ASIDE * ASIDE_BYTES
    }

    fn segments(&self) -> usize {
        self.stride() * self.queues as usize
    }
}

/// The memory of a port: one map, one mapping.
#[derive(Debug)]
pub(crate) struct Area {
    map: Map,
    base: *mut u8,
    layout: Layout,
    /// Queue of the frame in each chunk aside.
    aside: Mutex<Vec<Option<u32>>>,
}

// SAFETY: the mapping belongs to this value; access to its bytes is governed by the positions of each segment.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Creates an area, all zero.
    pub(crate) fn new(layout: Layout) -> io::Result<Self> {
        assert!(layout.frames.is_power_of_two() && layout.bytes.is_power_of_two());
        if i32::try_from(layout.total()).is_err() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "more than 2 GiB of receive memory for a port"));
        }
        let map = Map::create(MapKind::Array, layout.total(), 1, F_MMAPABLE)?;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                layout.total(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                map.raw(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Area { map, base: base.cast(), layout, aside: Mutex::new(vec![None; ASIDE]) })
    }

    /// Returns the descriptor of the map for instructions.
    pub(crate) fn raw(&self) -> i32 {
        self.map.raw()
    }

    /// Returns its division.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    fn aside(&self) -> MutexGuard<'_, Vec<Option<u32>>> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies bytes of a held frame; bytes that a program overwrites concurrently are old or new.
    ///
    /// # Panics
    /// If they reach beyond the end.
    pub(crate) fn copy_out(&self, at: usize, to: &mut [u8]) {
        assert!(at <= self.layout.total() && to.len() <= self.layout.total() - at);
        // SAFETY: inside the mapping (just checked); no reference is made to it, and `to` does not overlap it.
        unsafe { ptr::copy_nonoverlapping(self.base.add(at), to.as_mut_ptr(), to.len()) };
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; bursts borrow a segment, which borrows this, so none is left.
        unsafe { libc::munmap(self.base.cast(), self.layout.total()) };
    }
}

/// The reader of one segment.
#[derive(Debug)]
pub(crate) struct Segment {
    area: Arc<Area>,
    queue: u32,
    /// Frames before this are released.
    tail: u64,
    /// Frames before this are consumed.
    next: u64,
    /// Frames before this are written.
    head: u64,
    /// Bytes of each ring before this position are released.
    freed: [u64; 2],
    /// Position up to which the second ring is written, by frames before `head`.
    spilled: u64,
    /// Offset of the segment.
    start: u64,
    rings: [ByteRing; 2],
    /// State of each consumed frame from `tail` on, true if held; empty if none is.
    states: VecDeque<bool>,
    held: usize,
}

impl Segment {
    /// Reads a queue's segment from this frame and this position on. It must be the only reader.
    pub(crate) fn new(area: Arc<Area>, queue: u32, (tail, freed): (u64, [u64; 2])) -> Self {
        assert!(queue < area.layout.queues);
        Segment {
            queue,
            tail,
            next: tail,
            head: tail,
            freed,
            spilled: freed[1],
            start: area.layout.stride() as u64 * u64::from(queue),
            rings: area.layout.rings(),
            area,
            states: VecDeque::new(),
            held: 0,
        }
    }

    /// Sets the number of frames written by the program, and the position up to which the second ring was written, read
    /// afterwards. A number beyond the room is ignored.
    pub(crate) fn set_head(&mut self, head: u64, spilled: u64) {
        if head >= self.head && head - self.tail <= u64::from(self.area.layout.frames) {
            (self.head, self.spilled) = (head, spilled);
        }
    }

    /// Returns the reader's position: number of the next frame to be released, and the positions up to which bytes of
    /// the rings are released.
    pub(crate) fn position(&self) -> (u64, [u64; 2]) {
        (self.tail, self.freed)
    }

    /// Returns the memory.
    pub(crate) fn area(&self) -> &Arc<Area> {
        &self.area
    }

    /// Returns the number before which frames have been seen.
    pub(crate) fn seen(&self) -> u64 {
        self.head
    }

    /// Returns the number of frames that are written and not consumed.
    pub(crate) fn waiting(&self) -> usize {
        (self.head - self.next) as usize
    }

    /// Returns the descs of the frames shown: as many as are contiguous.
    pub(crate) fn descs(&self) -> &[Desc] {
        let frames = u64::from(self.area.layout.frames);
        let first = self.next & (frames - 1);
        let shown = (self.head - self.next).min(frames - first).min(SHOWN as u64) as usize;
        // SAFETY: inside the ring of descs of this segment; the program has written those between tail and head, and writes
        // them again only when the tail has passed them. Descs are integers, valid with any bytes, aligned as the ring is.
        unsafe { slice::from_raw_parts(self.desc_at(self.next), shown) }
    }

    /// Returns the frames shown.
    pub(crate) fn shown(&self) -> Burst<'_> {
        // SAFETY: the program keeps each frame inside its segment, does not write those between tail and head, and the
        // mapping continues after a segment's bytes with its descs. Those not consumed are lent out only here.
        unsafe { Burst::from_raw(self.area.base, self.descs()) }
    }

    /// Consumes the first frames shown.
    ///
    /// # Panics
    /// If fewer are shown.
    pub(crate) fn consume(&mut self, frames: usize) {
        self.hold(frames, &[], &mut |_, _| {});
    }

    /// Returns the number of further frames that can be held.
    pub(crate) fn spare(&self) -> usize {
        (self.area.layout.frames as usize / 2).saturating_sub(self.held)
    }

    /// Consumes the first frames shown, and holds those at ascending `indices`: `each` gets their descs and numbers.
    /// Stops before the first that cannot be held; returns the number of frames consumed or held.
    ///
    /// # Panics
    /// If fewer are shown, or an index is not below `frames`.
    pub(crate) fn hold(&mut self, frames: usize, indices: &[u32], each: &mut impl FnMut(Desc, u64)) -> usize {
        let shown = self.descs().len();
        assert!(frames <= shown, "{frames} frames consumed, {shown} shown");
        let (indices, beyond) = indices.split_at(self.spare().min(indices.len()));
        let frames = beyond.first().map_or(frames, |index| *index as usize);
        let mut first = 0;
        for index in indices.iter().map(|index| *index as usize) {
            assert!((first..frames).contains(&index), "indices ascend and are below {frames}");
            self.states.resize(self.states.len() + (index - first), false);
            self.states.push_back(true);
            self.held += 1;
            each(self.descs()[index], self.next + index as u64);
            first = index + 1;
        }
        if !self.states.is_empty() {
            self.states.resize(self.states.len() + (frames - first), false);
        }
        self.next += frames as u64;
        self.settle();
        frames
    }

    /// Moves a held frame aside; returns its new desc and number. `None` without room, or if it is aside already.
    pub(crate) fn keep(&mut self, number: u64, desc: &Desc) -> Option<(Desc, u64)> {
        let length = self.bytes_mut(number, desc).len();
        if length == 0 || length > ASIDE_BYTES || number & IS_ASIDE != 0 {
            return None;
        }
        let mut aside = self.area.aside();
        let chunk = aside.iter().position(Option::is_none)?;
        aside[chunk] = Some(self.queue);
        drop(aside);
        let at = self.area.layout.segments() + chunk * ASIDE_BYTES;
        // SAFETY: both inside the mapping: the frame is held, and the chunk has just been taken; they do not overlap.
        unsafe {
            ptr::copy_nonoverlapping(self.area.base.add(desc.offset as usize), self.area.base.add(at), length);
        }
        self.release(number);
        Some((Desc { offset: at as u32, ..*desc }, IS_ASIDE | chunk as u64))
    }

    /// Releases a held frame; other numbers are ignored.
    pub(crate) fn release(&mut self, number: u64) {
        if number & IS_ASIDE != 0 {
            let mut aside = self.area.aside();
            let owner = aside.get_mut((number ^ IS_ASIDE) as usize).filter(|owner| **owner == Some(self.queue));
            return owner.into_iter().for_each(|owner| *owner = None);
        }
        if let Some(at) = self.at(number) {
            self.states[at] = false;
            self.held -= 1;
            self.settle();
        }
    }

    /// Returns the bytes of a held frame, if `desc` is inside it.
    pub(crate) fn bytes_mut(&mut self, number: u64, desc: &Desc) -> &mut [u8] {
        let Some((start, end)) = self.place(number) else { return &mut [] };
        let (from, to) = (desc.offset as usize, desc.offset as usize + desc.captured as usize);
        if from < start || to > end {
            return &mut [];
        }
        // SAFETY: inside the mapping, as the program keeps each frame; it does not write it before it is released, and
        // a held frame is not shown again. A chunk aside has one frame of one queue. Other slices of it borrow this
        // value as this one does.
        unsafe { slice::from_raw_parts_mut(self.area.base.add(from), to - from) }
    }

    /// Returns the range of a held frame.
    fn place(&self, number: u64) -> Option<(usize, usize)> {
        if number & IS_ASIDE != 0 {
            let chunk = (number ^ IS_ASIDE) as usize;
            let start = self.area.layout.segments() + chunk * ASIDE_BYTES;
            return (*self.area.aside().get(chunk)? == Some(self.queue)).then_some((start, start + ASIDE_BYTES));
        }
        self.at(number)?;
        // SAFETY: a desc of the ring, written by the program and not released.
        let whole = unsafe { *self.desc_at(number) };
        Some((whole.offset as usize, whole.offset as usize + whole.captured as usize))
    }

    /// Returns the index of a held frame's state.
    fn at(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.tail)?).ok()?;
        self.states.get(at).copied().unwrap_or_default().then_some(at)
    }

    /// Releases consumed frames that are not held, from the oldest on.
    fn settle(&mut self) {
        let done = self.states.iter().take_while(|is_held| !**is_held).count();
        self.states.drain(..done);
        let tail = if self.states.is_empty() { self.next } else { self.tail + done as u64 };
        self.release_before(tail);
    }

    /// Releases all frames before this one.
    fn release_before(&mut self, tail: u64) {
        if tail == self.tail {
            return;
        }
        // The last frame of a ring releases those before it.
        let first = if self.spilled == self.freed[1] { tail - 1 } else { self.tail };
        for number in first..tail {
            // SAFETY: a desc of the ring, written by the program and not released.
            let desc = unsafe { *self.desc_at(number) };
            let start = u64::from(desc.offset) - self.start;
            let ring = usize::from(start >= u64::from(self.rings[1].start));
            let (freed, ByteRing { start: begin, bytes }) = (&mut self.freed[ring], self.rings[ring]);
            let end = start - u64::from(begin) + u64::from(desc.captured).next_multiple_of(ALIGN as u64);
            // Never a whole turn of the ring: the program leaves at least one byte free.
            *freed += end.wrapping_sub(*freed) & (u64::from(bytes) - 1);
        }
        self.tail = tail;
    }

    fn desc_at(&self, number: u64) -> *const Desc {
        let layout = self.area.layout;
        let index = (number & (u64::from(layout.frames) - 1)) as usize;
        let at = layout.stride() * self.queue as usize + layout.descs_at() + index * size_of::<Desc>();
        debug_assert!(at + size_of::<Desc>() <= layout.total());
        // SAFETY: inside the mapping: the index is below the number of descs of a segment.
        unsafe { self.area.base.add(at).cast() }
    }
}
