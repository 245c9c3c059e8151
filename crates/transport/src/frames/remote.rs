//! Frames in memory that this processor does not write: bytes are sent there in blocks, with a list of destinations.
//!
//! For the code that fills such frames they look like any others: room, gaps, presence, the order of frames. Bytes are
//! appended to a block, or stay in a block that already holds them, and the list has the destination of each. The
//! receiver of blocks ([`RemoteMemory`]) places them.

use super::pool::Pool;
use super::{Config, Frames, FramesError};
use crate::copy::Kernel;
use linerate_burst::pool::OwnedBytes;
use std::fmt::Debug;
use std::mem::take;
use std::ops::Range;

/// Destination of bytes in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Offset in the frame.
    pub at: u64,
    /// Offset in the block.
    pub from: u32,
    /// Number of bytes.
    pub len: u32,
    /// Frame number.
    pub frame: u32,
}

/// A block and its list.
#[derive(Debug, Default)]
pub struct Batch {
    /// Memory.
    pub block: OwnedBytes,
    /// Bytes used, from the start.
    pub used: usize,
    /// Destinations.
    pub list: Vec<Entry>,
}

/// Receives blocks, and has their bytes placed.
pub trait RemoteMemory: Send + Debug {
    /// Takes a full block and returns an empty one; waits until one is available. The first block passed has no
    /// memory.
    fn exchange(&mut self, full: Batch) -> Batch;

    /// Discards a finished frame, which is reused: bytes placed in it are void.
    fn forget(&mut self, frame: u32);
}

impl Frames {
    /// Creates frames over external memory: one piece of the frame size each. [`Frame::place`](super::Frame::place)
    /// returns the index of a frame's piece.
    ///
    /// # Errors
    /// If the configuration is invalid, or the pieces do not match it.
    pub fn over(config: &Config, pieces: Vec<OwnedBytes>) -> Result<Self, FramesError> {
        Ok(Frames::of(Pool::over(config, pieces)?))
    }

    /// Creates frames with no local memory: bytes are passed to `beyond` in blocks; frames have a number
    /// ([`Frame::place`](super::Frame::place)) and no bytes.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn beyond(config: &Config, beyond: Box<dyn RemoteMemory>) -> Result<Self, FramesError> {
        Ok(Frames::of(Pool::beyond(config, beyond)?))
    }

    /// Flushes the bytes that finished frames wait for. Call it before fetching these. For frames that are elsewhere.
    #[inline]
    pub fn flush(&mut self) {
        self.pool.way.flush(false);
    }

    /// Lends a block until the next call of [`lent`](Frames::lent): bytes for frames elsewhere that lie in it are not
    /// copied but only listed. They must be placed before their frame is fetched. A block of 4 GiB or more is not
    /// lent.
    pub fn lend(&mut self, block: &[u8]) {
        self.pool.way.lend(block);
    }

    /// Returns the list of the lent block. Bytes from elsewhere are flushed first.
    pub fn lent(&mut self) -> Vec<Entry> {
        self.pool.way.flush(true);
        self.pool.way.lent()
    }
}

/// Path of bytes into frames: copied, or listed for a [`RemoteMemory`].
#[derive(Debug, Default)]
pub(crate) struct CopyPath {
    pub kernel: Kernel,
    noting: Option<Box<DeferredCopies>>,
}

#[derive(Debug)]
struct DeferredCopies {
    beyond: Box<dyn RemoteMemory>,
    batch: Batch,
    /// Addresses of the lent block, and the list of its bytes.
    lent: Range<usize>,
    list: Vec<Entry>,
    /// A frame was finished since the last exchange.
    is_due: bool,
}

impl CopyPath {
    pub(crate) fn of(kernel: Kernel) -> CopyPath {
        CopyPath { kernel, noting: None }
    }

    pub(crate) fn beyond(mut beyond: Box<dyn RemoteMemory>) -> CopyPath {
        let batch = beyond.exchange(Batch::default());
        let noting = DeferredCopies { beyond, batch, lent: 0..0, list: Vec::new(), is_due: false };
        CopyPath { kernel: Kernel::default(), noting: Some(Box::new(noting)) }
    }

    pub(crate) fn is_beyond(&self) -> bool {
        self.noting.is_some()
    }

    /// Lists bytes for a frame; false if they must be copied.
    #[inline]
    pub(crate) fn note(&mut self, frame: Option<u32>, at: u64, bytes: &[u8]) -> bool {
        match (&mut self.noting, frame) {
            (Some(noting), Some(frame)) => {
                noting.note(frame, at, bytes);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn finished(&mut self) {
        self.noting.iter_mut().for_each(|noting| noting.is_due = true);
    }

    /// Passes on the batch, if a finished frame waits for it or `any`.
    pub(crate) fn flush(&mut self, any: bool) {
        if let Some(noting) = &mut self.noting
            && (noting.is_due || any)
        {
            noting.is_due = false;
            noting.exchange();
        }
    }

    pub(crate) fn forget(&mut self, frame: Option<u32>) {
        self.flush(true);
        if let (Some(noting), Some(frame)) = (&mut self.noting, frame) {
            noting.beyond.forget(frame);
        }
    }

    pub(crate) fn lend(&mut self, bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        self.noting
            .iter_mut()
            .for_each(|noting| noting.lent = start..start + u32::try_from(bytes.len()).map_or(0, |len| len as usize));
    }

    pub(crate) fn lent(&mut self) -> Vec<Entry> {
        self.noting.as_mut().map_or_else(Vec::new, |noting| {
            noting.lent = 0..0;
            take(&mut noting.list)
        })
    }
}

impl DeferredCopies {
    fn note(&mut self, frame: u32, mut at: u64, mut bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        if self.lent.start <= start && start + bytes.len() <= self.lent.end {
            let from = (start - self.lent.start) as u32;
            return push(&mut self.list, Entry { at, from, len: bytes.len() as u32, frame });
        }
        while !bytes.is_empty() {
            let Batch { block, used, list } = &mut self.batch;
            let room = block.bytes_mut().get_mut(*used..).unwrap_or_default();
            let count = room.len().min(bytes.len());
            if count == 0 {
                let had = self.batch.used;
                self.exchange();
                if had == 0 {
                    // No memory any more: the receiver of blocks has failed, and reports it to the sink of frames.
                    return;
                }
                continue;
            }
            let (now, rest) = bytes.split_at(count);
            room[..count].copy_from_slice(now);
            push(list, Entry { at, from: *used as u32, len: count as u32, frame });
            *used += count;
            (at, bytes) = (at + count as u64, rest);
        }
    }

    fn exchange(&mut self) {
        if self.batch.used > 0 {
            self.batch = self.beyond.exchange(take(&mut self.batch));
        }
    }
}

/// Merges bytes that are adjacent to the last entry in both block and frame.
fn push(list: &mut Vec<Entry>, new: Entry) {
    match list.last_mut() {
        Some(last)
            if last.frame == new.frame
                && last.at + u64::from(last.len) == new.at
                && last.from.checked_add(last.len) == Some(new.from)
                && last.len.checked_add(new.len).is_some() =>
        {
            last.len += new.len;
        }
        _ => list.push(new),
    }
}
