//! The control memory of one reader: two index rings, and the few numbers that writer and reader tell each other.
//!
//! Both sides may write all of it. The writer reads three things here: the count of returned blocks, their numbers, and
//! whether the reader sleeps; each is checked against what the writer knows by itself. It never reads what it wrote.

use crate::index::Ring;
use crate::layout::{self, MAGIC, MAJOR, Shape, mode, status};
use crate::mapping::Mapping;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// One reader's control memory.
#[derive(Debug)]
pub(crate) struct Control {
    mapping: Mapping,
    capacity: u32,
    published: usize,
    returned: usize,
}

/// One of its rings.
pub(crate) struct ControlRing<'a> {
    mapping: &'a Mapping,
    count: usize,
    entries: usize,
    capacity: u32,
}

impl Ring for ControlRing<'_> {
    #[inline]
    fn count(&self) -> &AtomicU64 {
        self.mapping.long(self.count)
    }

    #[inline]
    fn entry(&self, at: u64) -> &AtomicU64 {
        self.mapping.long(self.entries + (at as usize & (self.capacity as usize - 1)) * 8)
    }
}

impl Control {
    /// Makes one, and the descriptor to hand to the reader.
    pub fn create(shape: &Shape, reader: u32, generation: u64) -> io::Result<(Control, OwnedFd)> {
        let fd = memfd_create("linerate-control", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, shape.control_bytes() as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let control = Control::over(Mapping::new(fd.as_fd(), shape.control_bytes(), true)?, shape);
        control.mapping.populate()?;
        let mapping = &control.mapping;
        let word = |at, value| mapping.word(at).store(value, Relaxed);
        mapping.long(offset_of!(layout::Control, magic)).store(MAGIC, Relaxed);
        mapping.long(offset_of!(layout::Control, generation)).store(generation, Relaxed);
        word(offset_of!(layout::Control, major), MAJOR);
        word(offset_of!(layout::Control, reader), reader);
        word(offset_of!(layout::Control, capacity), shape.capacity());
        word(offset_of!(layout::Control, published_offset), shape.published_offset() as u32);
        word(offset_of!(layout::Control, returned_offset), shape.returned_offset() as u32);
        Ok((control, fd))
    }

    /// Maps what a writer handed over.
    pub fn open(fd: BorrowedFd<'_>, shape: &Shape, generation: u64) -> Result<Control, String> {
        let wrong = |error: rustix::io::Errno| format!("its control memory cannot be used: {error}");
        let bytes = shape.control_bytes();
        let sealed = fcntl_get_seals(fd).map_err(wrong)?.contains(SealFlags::SHRINK);
        if !sealed || fstat(fd).map_err(wrong)?.st_size != bytes as i64 {
            return Err("its control memory has the wrong size, or may be cut".into());
        }
        let mapping = Mapping::new(fd, bytes, true).map_err(|error| format!("its control memory: {error}"))?;
        let control = Control::over(mapping, shape);
        let word = |at| control.mapping.load_word(at, Relaxed);
        let rings = (
            word(offset_of!(layout::Control, capacity)),
            word(offset_of!(layout::Control, published_offset)) as usize,
            word(offset_of!(layout::Control, returned_offset)) as usize,
        );
        let own = control.mapping.load_long(offset_of!(layout::Control, generation), Relaxed);
        if rings != (control.capacity, control.published, control.returned) || own != generation {
            return Err("its control memory does not fit its arena".into());
        }
        Ok(control)
    }

    fn over(mapping: Mapping, shape: &Shape) -> Control {
        let (published, returned) = (shape.published_offset(), shape.returned_offset());
        Control { mapping, capacity: shape.capacity(), published, returned }
    }

    /// Blocks on their way to the reader: the number, and the first frame from bit 32 on.
    #[inline]
    pub fn published(&self) -> ControlRing<'_> {
        let count = offset_of!(layout::Control, published);
        ControlRing { mapping: &self.mapping, count, entries: self.published, capacity: self.capacity }
    }

    /// Blocks on their way back.
    #[inline]
    pub fn returned(&self) -> ControlRing<'_> {
        let count = offset_of!(layout::Control, returned);
        ControlRing { mapping: &self.mapping, count, entries: self.returned, capacity: self.capacity }
    }

    /// Entries of each ring.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// 1 while the reader waits to be woken.
    #[inline]
    pub fn sleeping(&self) -> &AtomicU32 {
        self.mapping.word(offset_of!(layout::Control, sleeping))
    }

    /// Tells the reader what was not shown to it: frames, and blocks.
    pub fn set_skipped(&self, frames: u64, slots: u64) {
        self.mapping.long(offset_of!(layout::Control, skipped_frames)).store(frames, Relaxed);
        self.mapping.long(offset_of!(layout::Control, skipped_slots)).store(slots, Relaxed);
    }

    /// What was not shown to the reader: frames, and blocks.
    pub fn skipped(&self) -> (u64, u64) {
        let long = |at| self.mapping.load_long(at, Relaxed);
        (long(offset_of!(layout::Control, skipped_frames)), long(offset_of!(layout::Control, skipped_slots)))
    }

    /// Tells the reader whether the writer waits for it.
    pub fn set_lossless(&self, lossless: bool) {
        let mode = if lossless { mode::LOSSLESS } else { mode::LOSSY };
        self.mapping.word(offset_of!(layout::Control, mode)).store(mode, Relaxed);
    }

    /// Whether the writer waits for the reader.
    pub fn is_lossless(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Control, mode), Relaxed) == mode::LOSSLESS
    }

    /// Tells the reader that all was taken back from it.
    pub fn set_put_out(&self) {
        self.mapping.word(offset_of!(layout::Control, status)).store(status::PUT_OUT, Release);
    }

    /// Whether all was taken back from the reader.
    #[inline]
    pub fn is_evicted(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Control, status), Acquire) == status::PUT_OUT
    }
}
