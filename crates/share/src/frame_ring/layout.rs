//! Layout of the memory of frames: the format of `docs/frame-ring.md`. As in [`crate::layout`] the structs only define
//! offsets.

use super::arena::Options;
use crate::error::Error;
use crate::layout::{HUGE, PAGE};

/// Magic number of the memory.
pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"LRFRAMES");

/// Maximum number of frames: each has an entry of the table; further entries are for notices without memory.
pub(super) const MOST_FRAMES: u32 = 1 << 15;
/// Maximum bytes per frame.
pub(super) const MOST_BYTES: u64 = 64 << 30;
/// Capacity of a frame's gap list: one entry per this many bytes, within these limits.
const GAP_EVERY: u64 = 1024;
const GAPS: (u64, u64) = (64, 4096);
/// Entries for notices that a stream ended where no frame begins.
const NEWS: u32 = 16;

/// The first page.
#[repr(C)]
pub(super) struct Header {
    pub magic: u64,
    pub byte_order: u32,
    pub major: u32,
    pub minor: u32,
    pub header_bytes: u32,
    pub entries: u32,
    pub frames: u32,
    pub frame_bytes: u64,
    pub stride: u64,
    pub frames_offset: u64,
    pub arena_bytes: u64,
    pub granule: u32,
    pub bitmap_bytes: u32,
    pub gap_room: u32,
    pub page_bytes: u32,
    pub generation: u64,
    pub start: u64,
    pub writer: u32,
    pub entry_bytes: u32,
    pub entries_offset: u64,
    pub bitmaps_offset: u64,
    pub gaps_offset: u64,
    pub reserved: [u32; 32],

    /// Fields from here on change while the ring exists.
    pub heartbeat: u64,
}

/// An entry of the table.
#[repr(C)]
pub(super) struct Entry {
    pub id: u64,
    pub stream: u32,
    pub ending: u32,
    pub number: u64,
    pub offset: u64,
    pub len: u64,
    pub missing: u64,
    pub first: u64,
    pub last: u64,
    /// Offset from the start of the memory; 0: none.
    pub memory: u64,
    pub crc32c: u32,
    pub flags: u32,
    pub repeated: u32,
    pub late: u32,
    pub gaps: u32,
    pub offered: u32,
    pub state: u32,
    pub family: u32,
    pub from_port: u32,
    pub to_port: u32,
    pub from: [u8; 16],
    pub to: [u8; 16],
    pub reserved: [u64; 14],
}

/// Values of [`Entry::flags`], to be added.
pub(super) mod flag {
    /// The CRC-32C field is valid.
    pub(crate) const CRC: u32 = 1;
    /// More gaps exist than are listed.
    pub(crate) const COARSE: u32 = 2;
}

/// Values of [`Entry::state`].
pub(super) mod state {
    /// Owned by the writer.
    pub(crate) const FREE: u32 = 0;
    /// Finished: waits for a reader, or is held by one.
    pub(crate) const FINISHED: u32 = 1;
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Header, frame_bytes) == 32 && offset_of!(Header, granule) == 64);
    assert!(offset_of!(Header, generation) == 80 && offset_of!(Header, entries_offset) == 104);
    assert!(offset_of!(Header, reserved) == 128 && offset_of!(Header, heartbeat) == 256);
    assert!(offset_of!(Entry, memory) == 64 && offset_of!(Entry, gaps) == 88 && offset_of!(Entry, from) == 112);
    assert!(offset_of!(Entry, to) == 128 && offset_of!(Entry, reserved) == 144);
    assert!(size_of::<Entry>() == 256);
};

/// Sizes and offsets of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub frames: u32,
    pub entries: u32,
    pub frame_bytes: usize,
    pub granule: u32,
    pub stride: usize,
    pub bitmap_bytes: usize,
    pub gap_room: usize,
    pub bitmaps_offset: usize,
    pub gaps_offset: usize,
    pub frames_offset: usize,
    pub bytes: usize,
}

impl Shape {
    /// Offset of the table.
    pub(super) const ENTRIES: usize = PAGE;

    /// Returns the shape for these options.
    pub(super) fn of(options: &Options) -> Result<Shape, Error> {
        let Options { frames, frame_bytes, granule, .. } = *options;
        if !(1..=MOST_FRAMES).contains(&frames) {
            return Err(Error::Invalid(format!("invalid number of frames {frames}; expected 1 to {MOST_FRAMES}")));
        }
        if !(1..=MOST_BYTES).contains(&(frame_bytes as u64)) || granule == 0 {
            return Err(Error::Invalid(format!("invalid frame size {frame_bytes}; expected 1 byte to 64 GiB")));
        }
        let entries = frames + frames.max(NEWS);
        let stride = frame_bytes.next_multiple_of(PAGE);
        let bitmap_bytes = frame_bytes.div_ceil(granule as usize).div_ceil(64) * 8;
        let gap_room = (frame_bytes as u64 / GAP_EVERY).clamp(GAPS.0, GAPS.1) as usize;
        let bitmaps_offset = (Shape::ENTRIES + entries as usize * size_of::<Entry>()).next_multiple_of(PAGE);
        let gaps_offset = (bitmaps_offset + frames as usize * bitmap_bytes).next_multiple_of(PAGE);
        let frames_offset = (gaps_offset + frames as usize * gap_room * 16).next_multiple_of(HUGE);
        let whole = (frames as usize).checked_mul(stride).and_then(|all| all.checked_add(frames_offset));
        let bytes = whole.filter(|bytes| *bytes <= 16 << 40).ok_or_else(|| {
            Error::Invalid(format!("{frames} frames of {frame_bytes} bytes exceed the limit of 16 TiB"))
        })?;
        let bytes = bytes.next_multiple_of(HUGE);
        Ok(Shape {
            frames,
            entries,
            frame_bytes,
            granule,
            stride,
            bitmap_bytes,
            gap_room,
            bitmaps_offset,
            gaps_offset,
            frames_offset,
            bytes,
        })
    }

    /// Returns the offset of an entry of the table.
    pub(super) fn entry(&self, entry: u32) -> usize {
        Shape::ENTRIES + entry as usize * size_of::<Entry>()
    }

    /// Returns the offset of a frame.
    pub(super) fn frame(&self, frame: u32) -> usize {
        self.frames_offset + frame as usize * self.stride
    }

    /// Returns the offset of its bitmap.
    pub(super) fn bitmap(&self, frame: u32) -> usize {
        self.bitmaps_offset + frame as usize * self.bitmap_bytes
    }

    /// Returns the offset of its gap list.
    pub(super) fn gaps(&self, frame: u32) -> usize {
        self.gaps_offset + frame as usize * self.gap_room * 16
    }
}
