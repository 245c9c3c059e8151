//! The control memory of one reader: two index rings, and a few numbers that writer and reader exchange.
//!
//! Both sides may write all of it. The writer reads three things here: the count of returned blocks, their numbers, and
//! whether the reader sleeps; each is checked against the writer's private state. It never reads what it wrote.

use crate::index::Ring;
use crate::layout::{
    self, ANSWER_BYTES, ANSWER_FRAME, ANSWERS, MAGIC, MAJOR, Rings, Shape, VERDICTS_LINE, mode, status,
};
use crate::mapping::Mapping;
use crate::verdicts::{Area, UNDECIDED};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// One reader's control memory.
#[derive(Debug)]
pub(crate) struct Control {
    mapping: Mapping,
    capacity: u32,
    published: usize,
    returned: usize,
    /// Shape of the blocks, for a reader that gives verdicts.
    deciding: Option<Shape>,
}

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

/// The verdicts on one block.
pub(crate) struct ControlArea<'a> {
    mapping: &'a Mapping,
    base: usize,
    frames: u32,
}

impl Area for ControlArea<'_> {
    #[inline]
    fn looked(&self) -> &AtomicU32 {
        self.mapping.word(self.base)
    }

    #[inline]
    fn later(&self) -> &AtomicU32 {
        self.mapping.word(self.base + 4)
    }

    #[inline]
    fn byte(&self, frame: u32) -> &AtomicU8 {
        assert!(frame < self.frames);
        self.mapping.byte(self.base + VERDICTS_LINE + frame as usize)
    }
}

impl Control {
    /// Creates one, and the descriptor to send to the reader; with `deciding` it has room for verdicts on blocks of
    /// that shape.
    pub(crate) fn create(
        slots: u32,
        reader: u32,
        generation: u64,
        deciding: Option<Shape>,
    ) -> io::Result<(Control, OwnedFd)> {
        let (rings, bytes) = (Rings(slots), Control::bytes(slots, deciding));
        let fd = memfd_create("linerate-control", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let control = Control::over(Mapping::new(fd.as_fd(), bytes, true)?, rings, deciding);
        control.mapping.populate()?;
        let mapping = &control.mapping;
        let word = |at, value| mapping.word(at).store(value, Relaxed);
        mapping.long(offset_of!(layout::Control, magic)).store(MAGIC, Relaxed);
        mapping.long(offset_of!(layout::Control, generation)).store(generation, Relaxed);
        word(offset_of!(layout::Control, major), MAJOR);
        word(offset_of!(layout::Control, reader), reader);
        word(offset_of!(layout::Control, capacity), rings.capacity());
        word(offset_of!(layout::Control, published_offset), rings.published_offset() as u32);
        word(offset_of!(layout::Control, returned_offset), rings.returned_offset() as u32);
        if let Some(shape) = &deciding {
            for (at, value) in Control::deciding(shape) {
                word(at, value);
            }
            (0..slots).for_each(|slot| control.reset(slot));
        }
        Ok((control, fd))
    }

    /// Returns the offsets and sizes of verdicts and answers, as recorded in the control memory.
    fn deciding(shape: &Shape) -> [(usize, u32); 5] {
        [
            (offset_of!(layout::Control, verdicts_offset), shape.verdicts(0) as u32),
            (offset_of!(layout::Control, verdict_bytes), shape.verdict_bytes() as u32),
            (offset_of!(layout::Control, answers_offset), shape.answers_offset() as u32),
            (offset_of!(layout::Control, answers), ANSWERS),
            (offset_of!(layout::Control, answer_bytes), ANSWER_BYTES as u32),
        ]
    }

    /// Maps the memory received from a writer.
    pub(crate) fn open(
        fd: BorrowedFd<'_>,
        slots: u32,
        generation: u64,
        deciding: Option<Shape>,
    ) -> Result<Control, String> {
        let wrong = |error: rustix::io::Errno| format!("its control memory is not usable: {error}");
        let (rings, bytes) = (Rings(slots), Control::bytes(slots, deciding));
        let sealed = fcntl_get_seals(fd).map_err(wrong)?.contains(SealFlags::SHRINK);
        if !sealed || fstat(fd).map_err(wrong)?.st_size != bytes as i64 {
            return Err("its control memory has the wrong size, or may be truncated".into());
        }
        let mapping = Mapping::new(fd, bytes, true).map_err(|error| format!("its control memory: {error}"))?;
        let control = Control::over(mapping, rings, deciding);
        let word = |at| control.mapping.load_word(at, Relaxed);
        let said = (
            word(offset_of!(layout::Control, capacity)),
            word(offset_of!(layout::Control, published_offset)) as usize,
            word(offset_of!(layout::Control, returned_offset)) as usize,
        );
        let own = control.mapping.load_long(offset_of!(layout::Control, generation), Relaxed);
        let is_deciding =
            deciding.is_none_or(|shape| Control::deciding(&shape).iter().all(|(at, value)| word(*at) == *value));
        if said != (control.capacity, control.published, control.returned) || own != generation || !is_deciding {
            return Err("its control memory does not match its arena".into());
        }
        Ok(control)
    }

    fn bytes(slots: u32, deciding: Option<Shape>) -> usize {
        deciding.map_or(Rings(slots).control_bytes(), |shape| shape.deciding_bytes())
    }

    fn over(mapping: Mapping, rings: Rings, deciding: Option<Shape>) -> Control {
        let (published, returned) = (rings.published_offset(), rings.returned_offset());
        Control { mapping, capacity: rings.capacity(), published, returned, deciding }
    }

    /// Returns the verdicts on a block.
    ///
    /// # Panics
    /// If this reader does not give verdicts, or the block does not exist.
    #[inline]
    pub(crate) fn verdicts(&self, slot: u32) -> ControlArea<'_> {
        let shape = self.deciding.as_ref().expect("a reader that decides");
        assert!(slot < shape.slots);
        ControlArea { mapping: &self.mapping, base: shape.verdicts(slot), frames: shape.layout.frames() as u32 }
    }

    /// Marks all frames of a block as undecided.
    ///
    /// # Panics
    /// Those of [`Control::verdicts`].
    pub(crate) fn reset(&self, slot: u32) {
        const ALL: u64 = u64::from_ne_bytes([UNDECIDED; 8]);
        let ControlArea { base, frames, .. } = self.verdicts(slot);
        self.mapping.long(base).store(0, Relaxed);
        let bytes = (frames as usize).next_multiple_of(VERDICTS_LINE);
        for at in (0..bytes).step_by(8) {
            self.mapping.long(base + VERDICTS_LINE + at).store(ALL, Relaxed);
        }
    }

    /// Returns the ring of blocks for the reader: the number, and the first frame from bit 32 on.
    #[inline]
    pub(crate) fn published(&self) -> ControlRing<'_> {
        let count = offset_of!(layout::Control, published);
        ControlRing { mapping: &self.mapping, count, entries: self.published, capacity: self.capacity }
    }

    /// Returns the ring of blocks that the reader returns.
    #[inline]
    pub(crate) fn returned(&self) -> ControlRing<'_> {
        let count = offset_of!(layout::Control, returned);
        ControlRing { mapping: &self.mapping, count, entries: self.returned, capacity: self.capacity }
    }

    /// Returns the number of entries of each ring.
    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the word that is 1 while the reader waits to be woken.
    #[inline]
    pub(crate) fn sleeping(&self) -> &AtomicU32 {
        self.mapping.word(offset_of!(layout::Control, sleeping))
    }

    /// Returns the number of answers ever given.
    pub(crate) fn answering(&self) -> u64 {
        self.mapping.load_long(offset_of!(layout::Control, answering), Acquire)
    }

    /// Returns the number of answers handled.
    pub(crate) fn answered(&self) -> u64 {
        self.mapping.load_long(offset_of!(layout::Control, answered), Acquire)
    }

    /// Publishes the number of answers handled to the reader.
    pub(crate) fn set_answered(&self, answers: u64) {
        self.mapping.long(offset_of!(layout::Control, answered)).store(answers, Release);
    }

    /// Stores answer number `at`, counted from the first ever given, and counts it.
    ///
    /// # Panics
    /// Those of [`Control::verdicts`], and if it is too long.
    pub(crate) fn put_answer(&self, at: u64, words: [u32; 5], bytes: &[u8]) {
        assert!(bytes.len() <= ANSWER_FRAME);
        let base = self.answer_base(at);
        for (index, word) in words.into_iter().enumerate() {
            self.mapping.word(base + index * 4).store(word, Relaxed);
        }
        self.mapping.store_bytes(base + VERDICTS_LINE, bytes);
        self.mapping.long(offset_of!(layout::Control, answering)).store(at + 1, Release);
    }

    /// Returns answer number `at`; the last word is its length. If that is too long no bytes are returned.
    ///
    /// # Panics
    /// Those of [`Control::verdicts`].
    pub(crate) fn answer(&self, at: u64) -> ([u32; 5], Vec<u8>) {
        let base = self.answer_base(at);
        let words = std::array::from_fn(|index| self.mapping.load_word(base + index * 4, Relaxed));
        let length = words[4] as usize;
        let mut bytes = vec![0; if length <= ANSWER_FRAME { length } else { 0 }];
        self.mapping.load_bytes(base + VERDICTS_LINE, &mut bytes);
        (words, bytes)
    }

    fn answer_base(&self, at: u64) -> usize {
        let shape = self.deciding.as_ref().expect("a reader that decides");
        shape.answers_offset() + (at % u64::from(ANSWERS)) as usize * ANSWER_BYTES
    }

    /// Publishes the numbers of skipped frames and blocks to the reader.
    pub(crate) fn set_skipped(&self, frames: u64, slots: u64) {
        self.mapping.long(offset_of!(layout::Control, skipped_frames)).store(frames, Relaxed);
        self.mapping.long(offset_of!(layout::Control, skipped_slots)).store(slots, Relaxed);
    }

    /// Returns the numbers of frames and blocks that this reader was not shown.
    pub(crate) fn skipped(&self) -> (u64, u64) {
        let long = |at| self.mapping.load_long(at, Relaxed);
        (long(offset_of!(layout::Control, skipped_frames)), long(offset_of!(layout::Control, skipped_slots)))
    }

    /// Publishes to the reader whether the writer waits for it.
    pub(crate) fn set_lossless(&self, lossless: bool) {
        let mode = if lossless { mode::LOSSLESS } else { mode::LOSSY };
        self.mapping.word(offset_of!(layout::Control, mode)).store(mode, Relaxed);
    }

    /// Returns whether the writer waits for the reader.
    pub(crate) fn is_lossless(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Control, mode), Relaxed) == mode::LOSSLESS
    }

    /// Publishes to the reader that it was evicted.
    pub(crate) fn set_evicted(&self) {
        self.mapping.word(offset_of!(layout::Control, status)).store(status::EVICTED, Release);
    }

    /// Publishes to the reader that nothing more will be published.
    pub(crate) fn set_ended(&self) {
        self.mapping.word(offset_of!(layout::Control, status)).store(status::ENDED, Release);
    }

    /// Returns whether nothing more will be published. Load it before looking for the last entry.
    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Control, status), Acquire) == status::ENDED
    }

    /// Returns whether the reader was evicted.
    #[inline]
    pub(crate) fn is_evicted(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Control, status), Acquire) == status::EVICTED
    }
}
