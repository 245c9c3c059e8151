//! Frames in memory that this processor does not write: bytes go there in blocks, with a list of their places.
//!
//! Who fills such frames sees the same as with any others: room, gaps, presence, the order of frames. Bytes are put into a block one
//! behind the other, or stay in a block that they lie in already, and the list says where each is to go. Whoever takes blocks
//! ([`Beyond`]) has them placed.

use super::pool::Pool;
use super::{Config, Frames, FramesError};
use crate::copy::Kernel;
use linerate_burst::pool::Piece;
use std::fmt::Debug;
use std::mem::take;
use std::ops::Range;

/// Where bytes of a block are to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// From which byte of the frame on.
    pub at: u64,
    /// Where they lie in the block.
    pub from: u32,
    /// How many.
    pub len: u32,
    /// To which frame.
    pub frame: u32,
}

/// A block and its list.
#[derive(Debug, Default)]
pub struct Batch {
    /// The memory.
    pub block: Piece,
    /// Bytes of it that are used, from its first on.
    pub used: usize,
    /// Where they are to go.
    pub list: Vec<Entry>,
}

/// Takes blocks, and has their bytes placed.
pub trait Beyond: Send + Debug {
    /// Takes a block and gives an empty one for it; waits until there is one. The first that it is given has no memory.
    fn exchange(&mut self, full: Batch) -> Batch;

    /// A finished frame goes nowhere, and is used again: what was placed in it is nothing.
    fn forget(&mut self, frame: u32);
}

impl Frames {
    /// Frames over memory of somebody else: a piece for each, of their size. [`Frame::place`](super::Frame::place) says which one a frame has.
    ///
    /// # Errors
    /// If there can be no such frames, or the pieces are others.
    pub fn over(config: &Config, pieces: Vec<Piece>) -> Result<Self, FramesError> {
        Ok(Frames::of(Pool::over(config, pieces)?))
    }

    /// Frames with no memory here: bytes go in blocks to `beyond`, and frames have a number ([`Frame::place`](super::Frame::place)) and no bytes.
    ///
    /// # Errors
    /// If there can be no such frames.
    pub fn beyond(config: &Config, beyond: Box<dyn Beyond>) -> Result<Self, FramesError> {
        Ok(Frames::of(Pool::beyond(config, beyond)?))
    }

    /// Has bytes on their way that finished frames wait for; before these are fetched. Of frames that are elsewhere.
    #[inline]
    pub fn flush(&mut self) {
        self.pool.way.flush(false);
    }

    /// Bytes of frames that are elsewhere stay where they are if they lie in this block, until the next call of
    /// [`lent`](Frames::lent), and are only noted. What is noted of a frame has to be placed before that frame is taken; a block of
    /// 4 GiB or more is not left where it is.
    pub fn lend(&mut self, block: &[u8]) {
        self.pool.way.lend(block);
    }

    /// What was noted of the block. Bytes from elsewhere go on their way first.
    pub fn lent(&mut self) -> Vec<Entry> {
        self.pool.way.flush(true);
        self.pool.way.lent()
    }
}

/// How bytes come to frames: copied, or noted.
#[derive(Debug, Default)]
pub(crate) struct Way {
    pub kernel: Kernel,
    noting: Option<Box<Noting>>,
}

/// What is noted.
#[derive(Debug)]
struct Noting {
    beyond: Box<dyn Beyond>,
    batch: Batch,
    /// The addresses of bytes that stay where they are, and what is noted of these.
    lent: Range<usize>,
    list: Vec<Entry>,
    /// A frame was finished since the last exchange.
    is_due: bool,
}

impl Way {
    pub(crate) fn of(kernel: Kernel) -> Way {
        Way { kernel, noting: None }
    }

    pub(crate) fn beyond(mut beyond: Box<dyn Beyond>) -> Way {
        let batch = beyond.exchange(Batch::default());
        let noting = Noting { beyond, batch, lent: 0..0, list: Vec::new(), is_due: false };
        Way { kernel: Kernel::default(), noting: Some(Box::new(noting)) }
    }

    pub(crate) fn is_beyond(&self) -> bool {
        self.noting.is_some()
    }

    /// Notes bytes for a frame; false where they are to be copied.
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

    /// Hands over what is noted, if a frame waits for it, or in any case.
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

impl Noting {
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
                    // Nobody gives memory any more: who takes blocks has failed, and says so where frames go.
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

/// Bytes that follow others in the block and in the frame become one entry with them.
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
