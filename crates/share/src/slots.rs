//! The holders of each block: the writer's own state, in private memory. Pure: it moves no bytes.
//!
//! Free blocks are reused in the order in which they became free, but no more than [`WARM`] of them in turn: the last
//! one is in the cache of its reader, which would have to give up every line of it again; the oldest is in no cache any
//! more. A block is free when it is closed and has no holder. Lossless readers get every frame, so the writer may find
//! no free block. Lossy ones get what their quota allows, and all of them together hold at most half of the blocks, so
//! they never block the writer, stopped or not.
//!
//! The first block that an evicted reader has not returned is *kept*: the reader may be reading it, and its frames must
//! not change. The block is free once the reader is gone. A stopped reader may never go, so the number of kept blocks
//! is limited to leave one to work with besides the half for lossy readers. The number of lossless readers has the same
//! limit, kept ones included: only they are evicted for being slow. For a reader that broke the protocol no block is
//! kept.

mod writer_blocks;

use crate::layout::READERS;
use std::collections::VecDeque;

/// Number of free blocks used in turn: more than one core's cache holds, fewer than the shared cache.
const WARM: usize = 8;

/// Returns the maximum number of blocks kept for evicted readers.
pub(crate) fn kept_blocks(slots: u32) -> u32 {
    slots - slots / 2 - 1
}

/// Returns the maximum number of lossless readers. In a ring of four blocks only one of the two can have a block kept.
pub(crate) fn lossless_readers(slots: u32) -> u32 {
    kept_blocks(slots).max(2)
}

/// A block and a position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    /// Block number.
    pub slot: u32,
    /// Index of the first frame.
    pub from: u32,
}

/// Accounting of the frames committed since a reader attached.
///
/// `committed = finished + reclaimed + outstanding + skipped_frames`, at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames committed since the reader attached.
    pub committed: u64,
    /// Frames in blocks that it returned; for an engine, also those with a verdict in blocks that it holds, or held
    /// when it detached.
    pub finished: u64,
    /// Frames in blocks reclaimed from it when it detached.
    pub reclaimed: u64,
    /// Frames in blocks that it holds.
    pub outstanding: u64,
    /// Frames that it was not shown because it was too slow.
    pub skipped_frames: u64,
    /// Blocks in which frames were skipped.
    pub skipped_slots: u64,
    /// Blocks that it holds.
    pub held: u32,
}

impl Tally {
    /// Reclaims everything that the reader held when it detached.
    pub(crate) fn take_back(&mut self) {
        self.reclaimed = std::mem::take(&mut self.outstanding);
        self.held = 0;
    }
}

/// A reader returned a block that it must not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it returned unknown block {0}")]
    NoSuchSlot(u64),
    #[error("it returned block {0}, which it does not hold")]
    NotHeld(u32),
    #[error("it returned block {0}, which is still being filled")]
    Open(u32),
}

#[derive(Debug, Default)]
struct Slot {
    /// A bit for each reader.
    holders: u64,
    frames: u32,
    /// Sequence number of its opening: readers receive blocks in this order.
    turn: u64,
    /// True if the writer needs it itself, until it releases it.
    own: bool,
}

#[derive(Debug)]
struct Reader {
    quota: u32,
    held: u32,
    /// For each held block, the first frame published to the reader.
    from: Box<[u32]>,
    /// Frames committed before it attached.
    joined: u64,
    finished: u64,
    outstanding: u64,
    skipped_frames: u64,
    skipped_slots: u64,
    /// True if frames of the open block were skipped.
    skips: bool,
}

/// The state of all blocks and readers.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    open: Option<u32>,
    readers: [Option<Reader>; READERS as usize],
    present: u64,
    lossy: u64,
    /// Bit of the engine.
    engine: u64,
    /// True if the writer keeps each block after it was filled.
    keep: bool,
    /// Evicted readers for which a block is kept.
    kept: u64,
    /// Number of blocks held by lossy readers.
    pinned: u32,
    committed: u64,
    /// Number of blocks ever opened.
    turns: u64,
}

impl Slots {
    /// Returns the state with all blocks free.
    pub(crate) fn new(slots: u32) -> Self {
        Slots {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            free: (0..slots).collect(),
            open: None,
            readers: [const { None }; READERS as usize],
            present: 0,
            lossy: 0,
            engine: 0,
            keep: false,
            kept: 0,
            pinned: 0,
            committed: 0,
            turns: 0,
        }
    }

    /// Returns the number of frames committed so far.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// Returns the block being filled.
    #[inline]
    pub(crate) fn current(&self) -> Option<u32> {
        self.open
    }

    /// Returns the number of frames committed in a block since it was opened.
    pub(crate) fn frames(&self, slot: u32) -> u32 {
        self.slots[slot as usize].frames
    }

    /// Returns whether a block could be opened.
    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Returns the bits of the attached readers.
    #[inline]
    pub(crate) fn present(&self) -> u64 {
        self.present
    }

    /// Returns whether the writer waits for a reader.
    pub(crate) fn is_lossless(&self, reader: u32) -> bool {
        (self.lossy | self.engine) & bit(reader) == 0
    }

    /// Attaches a reader; it gets the frames committed from now on. `quota`: maximum number of blocks for a lossy
    /// reader.
    pub(crate) fn join(&mut self, reader: u32, lossless: bool, quota: u32) {
        debug_assert!(self.readers[reader as usize].is_none());
        self.readers[reader as usize] = Some(Reader {
            quota,
            held: 0,
            from: vec![0; self.slots.len()].into(),
            joined: self.committed,
            finished: 0,
            outstanding: 0,
            skipped_frames: 0,
            skipped_slots: 0,
            skips: false,
        });
        self.present |= bit(reader);
        self.lossy = if lossless { self.lossy & !bit(reader) } else { self.lossy | bit(reader) };
    }

    /// Opens a free block for filling; `None` if no block is free.
    pub(crate) fn open(&mut self) -> Option<u32> {
        debug_assert!(self.open.is_none());
        let slot = self.free.remove(self.free.len().saturating_sub(WARM))?;
        self.turns += 1;
        let state = &mut self.slots[slot as usize];
        (state.frames, state.turn, state.own) = (0, self.turns, self.keep);
        self.readers.iter_mut().flatten().for_each(|reader| reader.skips = false);
        self.open = Some(slot);
        Some(slot)
    }

    /// Commits `frames` more frames in the open block and publishes it to each reader that may hold it and does not
    /// yet.
    pub(crate) fn commit(&mut self, frames: u32, mut publish: impl FnMut(u32, BlockPosition)) {
        let Some(slot) = self.open else { return };
        let from = self.slots[slot as usize].frames;
        self.slots[slot as usize].frames += frames;
        self.committed += u64::from(frames);
        for number in bits(self.present) {
            let holds = self.slots[slot as usize].holders & bit(number) != 0;
            let may = holds || self.may_hold(number, slot);
            let Some(reader) = &mut self.readers[number as usize] else { continue };
            if !may {
                reader.skipped_frames += u64::from(frames);
                reader.skipped_slots += u64::from(!std::mem::replace(&mut reader.skips, true));
                continue;
            }
            if !holds {
                let state = &mut self.slots[slot as usize];
                self.pinned += u32::from(self.lossy & bit(number) != 0 && state.holders & self.lossy == 0);
                state.holders |= bit(number);
                reader.held += 1;
                reader.from[slot as usize] = from;
                publish(number, BlockPosition { slot, from });
            }
            reader.outstanding += u64::from(frames);
        }
    }

    /// Closes the open block; an empty one is free again.
    pub(crate) fn close(&mut self) {
        let Some(slot) = self.open.take() else { return };
        let state = &mut self.slots[slot as usize];
        state.own &= state.frames > 0;
        if state.holders == 0 && !state.own {
            self.free.push_back(slot);
        }
    }

    /// Takes a block back from a reader.
    pub(crate) fn return_slot(&mut self, number: u32, slot: u64) -> Result<(), Violation> {
        let known = u32::try_from(slot).ok().filter(|slot| (*slot as usize) < self.slots.len());
        let slot = known.ok_or(Violation::NoSuchSlot(slot))?;
        if self.slots[slot as usize].holders & bit(number) == 0 {
            return Err(Violation::NotHeld(slot));
        }
        if self.open == Some(slot) {
            return Err(Violation::Open(slot));
        }
        let frames = self.take_from(number, slot);
        if let Some(reader) = &mut self.readers[number as usize] {
            reader.outstanding -= frames;
            reader.finished += frames;
        }
        Ok(())
    }

    /// Removes a reader: reclaims all blocks that it holds.
    pub(crate) fn leave(&mut self, number: u32) -> Tally {
        self.remove(number, None)
    }

    /// Evicts a reader: reclaims all blocks that it holds except the one that it may be reading. Returns whether there
    /// is one; it is kept until [`Slots::forget`], together with the number of the reader.
    pub(crate) fn evict(&mut self, number: u32) -> (Tally, bool) {
        let first = self.held_by(number).min_by_key(|slot| self.slots[*slot as usize].turn);
        let keep = first.filter(|_| self.kept.count_ones() < kept_blocks(self.slots.len() as u32));
        let tally = self.remove(number, keep);
        self.kept |= if keep.is_some() { bit(number) } else { 0 };
        (tally, keep.is_some())
    }

    /// Releases the block that was kept for an evicted reader, which is gone.
    pub(crate) fn forget(&mut self, number: u32) {
        self.kept &= !bit(number);
        self.held_by(number).collect::<Vec<_>>().into_iter().for_each(|slot| _ = self.take_from(number, slot));
    }

    /// Returns the accounting of an attached reader.
    pub(crate) fn tally(&self, number: u32) -> Tally {
        self.readers[number as usize].as_ref().map_or(Tally::default(), |reader| Tally {
            committed: self.committed - reader.joined,
            finished: reader.finished,
            reclaimed: 0,
            outstanding: reader.outstanding,
            skipped_frames: reader.skipped_frames,
            skipped_slots: reader.skipped_slots,
            held: reader.held,
        })
    }

    /// Returns the number of blocks that a reader holds.
    #[inline]
    pub(crate) fn held(&self, number: u32) -> u32 {
        self.readers[number as usize].as_ref().map_or(0, |reader| reader.held)
    }

    /// Returns the numbers of frames and of blocks that a reader was not shown.
    #[inline]
    pub(crate) fn skipped(&self, number: u32) -> (u64, u64) {
        self.readers[number as usize].as_ref().map_or((0, 0), |reader| (reader.skipped_frames, reader.skipped_slots))
    }

    /// Reclaims all blocks of a reader except `keep`, which then has no attached holder.
    fn remove(&mut self, number: u32, keep: Option<u32>) -> Tally {
        let mut tally = self.tally(number);
        tally.take_back();
        for slot in self.held_by(number).filter(|slot| Some(*slot) != keep).collect::<Vec<_>>() {
            self.take_from(number, slot);
        }
        self.readers[number as usize] = None;
        self.present &= !bit(number);
        self.lossy &= !bit(number);
        self.engine &= !bit(number);
        self.count_pinned();
        tally
    }

    /// Returns the blocks that a reader holds.
    pub(crate) fn held_by(&self, number: u32) -> impl Iterator<Item = u32> {
        let holds = move |slot: &u32| self.slots[*slot as usize].holders & bit(number) != 0;
        (0..self.slots.len() as u32).filter(holds)
    }

    fn count_pinned(&mut self) {
        self.pinned = self.slots.iter().filter(|slot| slot.holders & self.lossy != 0).count() as u32;
    }

    fn may_hold(&self, number: u32, slot: u32) -> bool {
        let lossy_holders = self.slots[slot as usize].holders & self.lossy;
        let Some(reader) = &self.readers[number as usize] else { return false };
        let room = lossy_holders != 0 || self.pinned < self.slots.len() as u32 / 2;
        let is_engine = self.engine & bit(number) != 0;
        self.is_lossless(number) || (reader.held < reader.quota && (room || is_engine))
    }

    /// Ends a hold, and frees the block if it was the last one; returns the number of the reader's frames in it.
    fn take_from(&mut self, number: u32, slot: u32) -> u64 {
        let state = &mut self.slots[slot as usize];
        let before = state.holders;
        state.holders &= !bit(number);
        self.pinned -= u32::from(before & self.lossy != 0 && state.holders & self.lossy == 0);
        if state.holders == 0 && !state.own && self.open != Some(slot) {
            self.free.push_back(slot);
        }
        let frames = state.frames;
        let Some(reader) = &mut self.readers[number as usize] else { return 0 };
        reader.held -= 1;
        u64::from(frames - reader.from[slot as usize])
    }
}

fn bit(reader: u32) -> u64 {
    1 << reader
}

/// Iterates over the numbers of the set bits.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(next)
    })
}

#[cfg(test)]
mod tests;
