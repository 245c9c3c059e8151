//! The memory layout of a block: header, descs, records; the same in private and in shared memory.
//!
//! ```text
//! 0       header, 128 bytes: line 0 is written once, line 1 grows
//! 128     descs, ascending: one per frame that the block may hold
//! body    at a multiple of 4096: nanosecond pcap records back to back
//! ```

use crate::desc::Desc;
use crate::{MAX_FRAME, TAIL};

/// Bytes of the record header in front of each frame.
pub const RECORD_HEADER: usize = 16;

/// Returns the header of a nanosecond pcap record: seconds, nanoseconds, captured and wire length.
#[inline(always)]
pub(crate) fn record_header(seconds: u32, nanos: u32, captured: u32, wire: u32) -> [u8; RECORD_HEADER] {
    let words = [seconds, nanos, captured, wire].map(u32::to_ne_bytes);
    let mut header = [0; RECORD_HEADER];
    for (word, place) in words.iter().zip(header.chunks_exact_mut(4)) {
        place.copy_from_slice(word);
    }
    header
}

/// The header of a block; all numbers in native byte order.
#[derive(Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u16,
    /// Bytes of this header.
    pub header_bytes: u16,
    /// Number of the block in its stream, without gaps.
    pub sequence: u64,
    /// Time of the first frame, in UTC nanoseconds.
    pub first_time: u64,
    /// Index of the first frame in the stream.
    pub first_index: u64,
    /// Offset of the descs.
    pub descs: u32,
    /// Offset of the records.
    pub body: u32,
    /// Link type of the first frame (`LINKTYPE_*`).
    pub link: u16,
    /// [`MIXED`].
    pub flags: u16,
    /// Reserved: 0.
    pub reserved: [u32; 5],

    /// Frames visible to readers; stored last, with release ordering.
    pub committed: u32,
    /// Bytes of records.
    pub used: u32,
    /// Greatest time of a frame.
    pub last_time: u64,
    /// Horizon: no frame after the committed ones is older than this, except those flagged late.
    pub horizon: u64,
    /// Frames lost upstream since the stream started.
    pub drops: u64,
    /// Frames of this block flagged late.
    pub late: u32,
    /// Duplicate frames removed.
    pub duplicates: u32,
    /// Frames of this block that were truncated on request.
    pub sliced: u32,
    /// 1 once no more frames will follow; stored with release ordering.
    pub closed: u32,
    /// Reserved: 0.
    pub reserved_line: [u32; 4],
}

impl Header {
    /// Returns the header of a block without frames.
    pub fn of(layout: &Layout, sequence: u64, first_index: u64) -> Header {
        Header {
            magic: MAGIC,
            version: VERSION,
            header_bytes: size_of::<Header>() as u16,
            sequence,
            first_time: 0,
            first_index,
            descs: Layout::DESCS as u32,
            body: layout.body as u32,
            link: 0,
            flags: 0,
            reserved: [0; 5],
            committed: 0,
            used: 0,
            last_time: 0,
            horizon: 0,
            drops: 0,
            late: 0,
            duplicates: 0,
            sliced: 0,
            closed: 0,
            reserved_line: [0; 4],
        }
    }
}

/// `LRB1`, in the byte order of the machine.
pub const MAGIC: u32 = u32::from_le_bytes(*b"LRB1");
/// Version of this layout.
pub const VERSION: u16 = 1;
/// Header flag: the block has frames of more than one link type; each frame's interface gives its own.
pub const MIXED: u16 = 1;

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(std::mem::offset_of!(Header, sequence) == 8);
    assert!(std::mem::offset_of!(Header, descs) == 32);
    assert!(std::mem::offset_of!(Header, link) == 40);
    assert!(std::mem::offset_of!(Header, committed) == 64);
    assert!(std::mem::offset_of!(Header, last_time) == 72);
    assert!(std::mem::offset_of!(Header, closed) == 108);
};

/// The positions of the parts of a block. Blocks are written at these positions, so only the checked constructors below
/// can make a layout.
///
/// ```compile_fail,E0451
/// linerate_burst::Layout { bytes: 64, frames: 1 << 20, body: 0 };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    bytes: usize,
    frames: usize,
    body: usize,
}

impl Layout {
    /// Offset of the descs.
    pub const DESCS: usize = size_of::<Header>();
    /// Alignment of the records.
    pub const ALIGN: usize = 4096;
    /// Bytes of the smallest block that fits frames of any length.
    pub const LEAST: usize = 512 << 10;

    /// Returns the layout of a block for at least `records` bytes of records and `frames` frames, and for at least one
    /// frame of [`MAX_FRAME`]; `None` if 32-bit offsets cannot reach all of it, or if `frames` is 0.
    pub fn of(records: usize, frames: usize) -> Option<Layout> {
        let descs = frames.checked_mul(size_of::<Desc>())?;
        let body = Layout::DESCS.checked_add(descs)?.checked_next_multiple_of(Layout::ALIGN)?;
        let records = records.max(MAX_FRAME + RECORD_HEADER);
        let bytes = body.checked_add(records)?.checked_add(TAIL)?.checked_next_multiple_of(Layout::ALIGN)?;
        (frames > 0 && u32::try_from(bytes).is_ok()).then_some(Layout { bytes, frames, body })
    }

    /// Returns a layout that another process declared; `None` if its parts overlap, are misaligned, or have no room for
    /// a frame of [`MAX_FRAME`].
    pub fn declared(bytes: usize, frames: usize, body: usize) -> Option<Layout> {
        let descs = frames.checked_mul(size_of::<Desc>())?.checked_add(Layout::DESCS)?;
        let end = body.checked_add(RECORD_HEADER + MAX_FRAME + TAIL)?;
        let lie_apart = frames > 0 && descs <= body && end <= bytes && u32::try_from(bytes).is_ok();
        let aligned = body.is_multiple_of(Layout::ALIGN) && bytes.is_multiple_of(Layout::ALIGN);
        (lie_apart && aligned).then_some(Layout { bytes, frames, body })
    }

    /// Returns the bytes of the whole block.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the maximum number of frames.
    #[inline]
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Returns the offset of the records.
    #[inline]
    pub fn body(&self) -> usize {
        self.body
    }

    /// Returns the layout of a block of exactly `bytes` with enough descs for frames of 60 bytes; `None` unless that is
    /// a multiple of 4096, at least [`Layout::LEAST`], and within the reach of 32-bit offsets.
    pub fn slot(bytes: usize) -> Option<Layout> {
        if bytes < Layout::LEAST || !bytes.is_multiple_of(Layout::ALIGN) || u32::try_from(bytes).is_err() {
            return None;
        }
        let one = size_of::<Desc>() + RECORD_HEADER + 60;
        let frames = (bytes - Layout::DESCS - TAIL) / one;
        let body = (Layout::DESCS + frames * size_of::<Desc>()).next_multiple_of(Layout::ALIGN);
        Some(Layout { bytes, frames, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_of_short_frames_has_a_desc_for_each() {
        for bytes in [Layout::LEAST, 1 << 20, 4 << 20] {
            let layout = Layout::slot(bytes).unwrap();
            let records = layout.bytes - layout.body - TAIL;
            assert!(layout.frames * (RECORD_HEADER + 60) >= records && records >= MAX_FRAME + RECORD_HEADER);
            assert_eq!((layout.body % Layout::ALIGN, layout.bytes), (0, bytes));
        }
        assert_eq!([0, 4096, (1 << 20) + 1, 8 << 30].map(Layout::slot), [None; 4]);
    }

    #[test]
    fn impossible_layout_is_none() {
        let Layout { bytes, frames, body } = Layout::slot(1 << 20).unwrap();
        assert_eq!(Layout::declared(bytes, frames, body), Layout::slot(1 << 20));
        let least = body + RECORD_HEADER + MAX_FRAME + TAIL;
        for (bytes, frames, body) in [
            (64, 1 << 20, 0),
            (bytes, 0, body),
            (bytes, (body - Layout::DESCS) / 32 + 1, body),
            (bytes, usize::MAX, body),
            (bytes, 1, body + 1),
            (bytes, 1, usize::MAX - 4095),
            (bytes - 1, frames, body),
            (least / Layout::ALIGN * Layout::ALIGN, frames, body),
            (1 << 32, frames, body),
        ] {
            assert_eq!(Layout::declared(bytes, frames, body), None, "{bytes} {frames} {body}");
        }
    }

    #[test]
    fn a_block_holds_what_was_requested() {
        let layout = Layout::of(1 << 20, 100).unwrap();
        assert!(layout.bytes - layout.body >= (1 << 20) + TAIL && layout.body >= Layout::DESCS + 3200);
        assert_eq!((Layout::of(5, 0), Layout::of(usize::MAX, 1), Layout::of(1, usize::MAX)), (None, None, None));
        assert_eq!(Layout::of(1 << 32, 1), None);
    }
}
