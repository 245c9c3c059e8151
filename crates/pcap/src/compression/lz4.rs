//! LZ4 frames (LZ4 Frame Format Description 1.6.4), compressed and decompressed.
//!
//! Blocks are written with at most 4 MiB, independent and with a checksum, so that a file can be ended after any of
//! them, and read from any of them. A file is one frame, without a content checksum: Wireshark 4.0 reads only the
//! first frame, and a reader that skips parts could not verify it. When reading, linked blocks, checksums of any kind,
//! several frames and skippable ones are supported; a block and its decompressed content are in memory, 8 MiB.

use super::decode::Progress;
use lz4_flex::block::{compress_into, decompress_into_with_dict, get_maximum_output_size};
use std::hash::Hasher;
use std::io::{Error, Result};
use twox_hash::XxHash32;

/// Start of a frame.
pub(super) const MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();

/// Descriptor: version 1, independent blocks with checksums, 4 MiB at most; the last byte is the second of xxh32 over
/// the two.
const DESCRIPTOR: [u8; 3] = [0x70, 0x70, 0x72];

/// End mark of a frame.
pub(super) const END: [u8; 4] = [0; 4];

/// Maximum block size.
const LARGEST: usize = 4 << 20;

/// Window of linked blocks.
const WINDOW: usize = 64 << 10;

/// Maximum ratio: lengths of 255 bytes per byte. Bounds the buffer, so highly compressed data costs no extra time.
const LARGEST_GROWTH: usize = 255;

/// Flag in the block size: the block is uncompressed.
const UNCOMPRESSED: u32 = 1 << 31;

/// Appends the compressed `piece`, after a frame header if it `begins` a frame.
pub(super) fn compress(piece: &[u8], begins: bool, out: &mut Vec<u8>) -> Result<()> {
    if begins {
        out.extend(MAGIC);
        out.extend(DESCRIPTOR);
    }
    for block in piece.chunks(LARGEST) {
        let start = out.len() + 4;
        out.resize(start + get_maximum_output_size(block.len()), 0);
        let size = compress_into(block, &mut out[start..]).map_err(Error::other)?;
        let word = if size < block.len() {
            size as u32
        } else {
            out[start..start + block.len()].copy_from_slice(block);
            block.len() as u32 | UNCOMPRESSED
        };
        out[start - 4..start].copy_from_slice(&word.to_le_bytes());
        out.truncate(start + (word & !UNCOMPRESSED) as usize);
        out.extend(XxHash32::oneshot(0, &out[start..]).to_le_bytes());
    }
    Ok(())
}

/// State of a stream of frames.
#[derive(Default)]
pub(super) struct Frames {
    frame: Option<Frame>,
    /// Bytes of a skippable frame left.
    skip: u64,
    /// True if bytes of an incomplete header were seen.
    inside: bool,
    /// Current block, and how much of it was output.
    block: Vec<u8>,
    given: usize,
    /// Window of linked blocks.
    window: Vec<u8>,
}

/// Frame header.
struct Frame {
    is_linked: bool,
    has_block_checks: bool,
    largest: usize,
    /// Content size, if present.
    size: Option<u64>,
    /// Content checksum, if present.
    check: Option<XxHash32>,
    inside: u64,
}

impl Frames {
    /// Returns whether the file must not end here.
    pub(super) fn is_inside(&self) -> bool {
        self.inside || self.frame.is_some() || self.skip > 0
    }

    /// Processes a part of the header, a block, or the rest of the output. Does nothing if more bytes are needed: a
    /// block and its size and checksum must be available together.
    pub(super) fn step(&mut self, from: &[u8], into: &mut [u8]) -> Progress {
        if self.given < self.block.len() {
            let written = into.len().min(self.block.len() - self.given);
            into[..written].copy_from_slice(&self.block[self.given..][..written]);
            self.given += written;
            return Progress { written, ..Progress::default() };
        }
        if self.skip > 0 {
            let consumed = from.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            self.skip -= consumed as u64;
            return Progress { consumed, ended: self.skip == 0, ..Progress::default() };
        }
        let done = if self.frame.is_some() { self.block(from) } else { self.head(from) };
        match done {
            Ok(Some(consumed)) => Progress { consumed, ended: !self.is_inside(), ..Progress::default() },
            Ok(None) => Progress::default(),
            Err(what) => Progress { error: Some(what), ..Progress::default() },
        }
    }

    /// Parses a frame header. Returns its length.
    fn head(&mut self, from: &[u8]) -> std::result::Result<Option<usize>, String> {
        self.inside = !from.is_empty();
        let Some((magic, rest)) = from.split_first_chunk::<4>() else { return Ok(None) };
        if let [0x50..=0x5f, 0x2a, 0x4d, 0x18] = magic {
            let Some(size) = rest.first_chunk() else { return Ok(None) };
            self.skip = u32::from_le_bytes(*size).into();
            self.inside = false;
            return Ok(Some(8));
        }
        if *magic != MAGIC {
            return Err("missing LZ4 frame magic".into());
        }
        let [flags, sizes, ..] = *rest else { return Ok(None) };
        let has = |bit: u8| flags & (1 << bit) != 0;
        let length = 2 + if has(3) { 8 } else { 0 };
        if flags >> 6 != 1 || has(1) || sizes & 0x8f != 0 || sizes >> 4 < 4 {
            return Err(format!("undefined frame flags ({flags:#04x}, {sizes:#04x})"));
        }
        if has(0) {
            return Err("frame with a dictionary is not supported".into());
        }
        let Some(check) = rest.get(length) else { return Ok(None) };
        if XxHash32::oneshot(0, &rest[..length]) >> 8 & 0xff != u32::from(*check) {
            return Err("frame header checksum mismatch".into());
        }
        self.frame = Some(Frame {
            is_linked: !has(5),
            has_block_checks: has(4),
            largest: 1 << (8 + 2 * (sizes >> 4)),
            size: if has(3) { rest[2..].first_chunk().map(|size| u64::from_le_bytes(*size)) } else { None },
            check: has(2).then(|| XxHash32::with_seed(0)),
            inside: 0,
        });
        self.window.clear();
        self.inside = false;
        Ok(Some(4 + length + 1))
    }

    /// Decompresses a block, or parses the end of the frame. Returns its length.
    fn block(&mut self, from: &[u8]) -> std::result::Result<Option<usize>, String> {
        let (Some(frame), Some(word)) = (&mut self.frame, from.first_chunk()) else { return Ok(None) };
        let word = u32::from_le_bytes(*word);
        let size = (word & !UNCOMPRESSED) as usize;
        if word == 0 {
            return self.end(&from[4..]).map(|end| end.map(|length| 4 + length));
        }
        if size > frame.largest {
            return Err(format!("block of {size} bytes exceeds the maximum of {}", frame.largest));
        }
        let length = 4 + size + if frame.has_block_checks { 4 } else { 0 };
        let Some(whole) = from.get(4..length) else { return Ok(None) };
        let (data, check) = whole.split_at(size);
        if check.first_chunk().is_some_and(|check| u32::from_le_bytes(*check) != XxHash32::oneshot(0, data)) {
            return Err("block checksum mismatch".into());
        }
        if frame.is_linked {
            self.window.extend_from_slice(&self.block[self.block.len().saturating_sub(WINDOW)..]);
            // Amortised: not moved for each of many small blocks.
            if self.window.len() > 2 * WINDOW {
                self.window.drain(..self.window.len() - WINDOW);
            }
        }
        self.given = 0;
        self.block.resize(frame.largest.min(LARGEST_GROWTH * (size + 1)), 0);
        let unpacked = if word & UNCOMPRESSED != 0 {
            self.block[..size].copy_from_slice(data);
            Ok(size)
        } else {
            let window = &self.window[self.window.len().saturating_sub(WINDOW)..];
            decompress_into_with_dict(data, &mut self.block, window)
        };
        self.block.truncate(*unpacked.as_ref().unwrap_or(&0));
        unpacked.map_err(|error| format!("invalid block: {error}"))?;
        frame.inside += self.block.len() as u64;
        if let Some(check) = &mut frame.check {
            check.write(&self.block);
        }
        Ok(Some(length))
    }

    /// Parses the end of a frame. Returns its length.
    fn end(&mut self, from: &[u8]) -> std::result::Result<Option<usize>, String> {
        let Some(frame) = &self.frame else { return Ok(None) };
        let length = if let Some(check) = &frame.check {
            let Some(stored) = from.first_chunk() else { return Ok(None) };
            if u32::from_le_bytes(*stored) != check.finish_32() {
                return Err("frame content checksum mismatch".into());
            }
            4
        } else {
            0
        };
        if frame.size.is_some_and(|size| size != frame.inside) {
            return Err(format!("frame content is {} bytes, its header gives another size", frame.inside));
        }
        self.frame = None;
        self.block.clear();
        self.given = 0;
        Ok(Some(length))
    }
}
