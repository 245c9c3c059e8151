//! LZ4 frames (LZ4 Frame Format Description 1.6.4), made and read.
//!
//! What is written is blocks of 4 MiB at most, each whole in itself and with its checksum, so that a file can be ended behind any of
//! them, and read from any of them on. A file is one frame, without a checksum of its content: Wireshark 4.0 reads the first
//! frame alone, and who leaves parts out could not check all of it. What is read may be linked blocks, have checksums of any kind, and several frames, skippable ones among them; a block and
//! what it is decompressed to are in memory, 8 MiB.

use super::decode::Progress;
use lz4_flex::block::{compress_into, decompress_into_with_dict, get_maximum_output_size};
use std::hash::Hasher;
use std::io::{Error, Result};
use twox_hash::XxHash32;

/// What a frame begins with.
pub(super) const MAGIC: [u8; 4] = 0x184d_2204u32.to_le_bytes();

/// Of a frame: version 1, independent blocks with checksums, 4 MiB at most; the last byte is the second of xxh32 over the two.
const DESCRIPTOR: [u8; 3] = [0x70, 0x70, 0x72];

/// Ends a frame.
pub(super) const END: [u8; 4] = [0; 4];

/// The most bytes of a block.
const LARGEST: usize = 4 << 20;

/// How far linked blocks look back.
const WINDOW: usize = 64 << 10;

/// What a byte of a block can stand for at most, by lengths of 255 bytes a byte: what is compressed to nothing takes no time.
const LARGEST_GROWTH: usize = 255;

/// Says of a block's size that the block is as it was.
const AS_IT_WAS: u32 = 1 << 31;

/// Adds what stands for `piece`, behind the head of a frame if it `begins` one.
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
            block.len() as u32 | AS_IT_WAS
        };
        out[start - 4..start].copy_from_slice(&word.to_le_bytes());
        out.truncate(start + (word & !AS_IT_WAS) as usize);
        out.extend(XxHash32::oneshot(0, &out[start..]).to_le_bytes());
    }
    Ok(())
}

/// Where a stream of frames is.
#[derive(Default)]
pub(super) struct Frames {
    frame: Option<Frame>,
    /// Bytes of a skippable frame that are still to come.
    skip: u64,
    /// Whether there are bytes of what has not begun for certain.
    inside: bool,
    /// The block under way, and how much of it was handed out.
    block: Vec<u8>,
    given: usize,
    /// What linked blocks look back to.
    window: Vec<u8>,
}

/// What the head of a frame says.
struct Frame {
    is_linked: bool,
    has_block_checks: bool,
    largest: usize,
    /// Bytes inside, if that is said.
    size: Option<u64>,
    /// Over all that is inside, if there is one at the end.
    check: Option<XxHash32>,
    inside: u64,
}

impl Frames {
    /// Whether the end of the file would be in the middle of something.
    pub(super) fn is_inside(&self) -> bool {
        self.inside || self.frame.is_some() || self.skip > 0
    }

    /// Goes on by a part of the head, a block, or what is left to be handed out. Nothing happens where more bytes are needed, of
    /// which a block and what stands around it have to be there together.
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

    /// Reads the head of a frame; how long it is.
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
            return Err("no frame begins here".into());
        }
        let [flags, sizes, ..] = *rest else { return Ok(None) };
        let has = |bit: u8| flags & (1 << bit) != 0;
        let length = 2 + if has(3) { 8 } else { 0 };
        if flags >> 6 != 1 || has(1) || sizes & 0x8f != 0 || sizes >> 4 < 4 {
            return Err(format!("a frame of a kind that nobody has defined ({flags:#04x}, {sizes:#04x})"));
        }
        if has(0) {
            return Err("the frame needs a dictionary".into());
        }
        let Some(check) = rest.get(length) else { return Ok(None) };
        if XxHash32::oneshot(0, &rest[..length]) >> 8 & 0xff != u32::from(*check) {
            return Err("the head of a frame is damaged".into());
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

    /// Decompresses a block, or reads the end of the frame; how long it is.
    fn block(&mut self, from: &[u8]) -> std::result::Result<Option<usize>, String> {
        let (Some(frame), Some(word)) = (&mut self.frame, from.first_chunk()) else { return Ok(None) };
        let word = u32::from_le_bytes(*word);
        let size = (word & !AS_IT_WAS) as usize;
        if word == 0 {
            return self.end(&from[4..]).map(|end| end.map(|length| 4 + length));
        }
        if size > frame.largest {
            return Err(format!("a block of {size} bytes, where {} are the most", frame.largest));
        }
        let length = 4 + size + if frame.has_block_checks { 4 } else { 0 };
        let Some(whole) = from.get(4..length) else { return Ok(None) };
        let (data, check) = whole.split_at(size);
        if check.first_chunk().is_some_and(|check| u32::from_le_bytes(*check) != XxHash32::oneshot(0, data)) {
            return Err("a block is damaged: its checksum is another".into());
        }
        if frame.is_linked {
            self.window.extend_from_slice(&self.block[self.block.len().saturating_sub(WINDOW)..]);
            // Not moved for each of many small blocks.
            if self.window.len() > 2 * WINDOW {
                self.window.drain(..self.window.len() - WINDOW);
            }
        }
        self.given = 0;
        self.block.resize(frame.largest.min(LARGEST_GROWTH * (size + 1)), 0);
        let unpacked = if word & AS_IT_WAS != 0 {
            self.block[..size].copy_from_slice(data);
            Ok(size)
        } else {
            let window = &self.window[self.window.len().saturating_sub(WINDOW)..];
            decompress_into_with_dict(data, &mut self.block, window)
        };
        self.block.truncate(*unpacked.as_ref().unwrap_or(&0));
        unpacked.map_err(|error| format!("a block is damaged: {error}"))?;
        frame.inside += self.block.len() as u64;
        if let Some(check) = &mut frame.check {
            check.write(&self.block);
        }
        Ok(Some(length))
    }

    /// Reads what stands behind the last block; how long it is.
    fn end(&mut self, from: &[u8]) -> std::result::Result<Option<usize>, String> {
        let Some(frame) = &self.frame else { return Ok(None) };
        let length = if let Some(check) = &frame.check {
            let Some(said) = from.first_chunk() else { return Ok(None) };
            if u32::from_le_bytes(*said) != check.finish_32() {
                return Err("the frame is damaged: its checksum is another".into());
            }
            4
        } else {
            0
        };
        if frame.size.is_some_and(|size| size != frame.inside) {
            return Err(format!("the frame holds {} bytes and says otherwise", frame.inside));
        }
        self.frame = None;
        self.block.clear();
        self.given = 0;
        Ok(Some(length))
    }
}
