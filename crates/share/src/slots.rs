//! Who holds which block: the writer's own truth, in private memory. Pure: it moves no bytes.
//!
//! Free blocks are used again in the order they came free, but no more than [`WARM`] of them in turn: the last one is
//! in the cache of its reader, which would have to give every line of it up again; the oldest is in no cache any more.
//! A block is free when it is closed and nobody holds it.
//! Lossless readers get every frame, so the writer may find no free block. Lossy ones get what their quota allows, and
//! all of them together hold at most half of the blocks, so they never hold the writer up, stopped or not.
//!
//! Of a reader that is evicted, the first block that it has not given back is *kept*: it may be looking at that one, and a
//! frame must not change under it. The block is free once the reader is gone. One that is stopped may never go, so there are
//! at most so many kept blocks as leave one to work with beside the half for lossy readers, and as many lossless readers at
//! a time, kept ones counted: they alone are evicted for being slow. Whoever broke the protocol is owed nothing.

mod own;

use crate::layout::READERS;
use std::collections::VecDeque;

/// Free blocks that are used in turn: more than one core's cache holds, fewer than all cores share.
const WARM: usize = 8;

/// Most blocks that are kept for readers that were evicted.
pub(crate) fn kept_blocks(slots: u32) -> u32 {
    slots - slots / 2 - 1
}

/// Most lossless readers at a time. For the second one in a ring of four blocks none would be kept beside that of the
/// first.
pub(crate) fn lossless_readers(slots: u32) -> u32 {
    kept_blocks(slots).max(2)
}

/// A block and where in it something begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Which block.
    pub slot: u32,
    /// Index of the first frame.
    pub from: u32,
}

/// What became of the frames committed since a reader came.
///
/// `committed = finished + reclaimed + outstanding + skipped_frames`, at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames committed since the reader came.
    pub committed: u64,
    /// In blocks that it gave back; of a reader that decides, also those with a verdict in blocks that it holds, or held when it left.
    pub finished: u64,
    /// In blocks that were taken back from it when it left.
    pub reclaimed: u64,
    /// In blocks that it holds.
    pub outstanding: u64,
    /// Not shown to it, because it was too slow.
    pub skipped_frames: u64,
    /// Blocks in which frames were skipped.
    pub skipped_slots: u64,
    /// Blocks that it holds.
    pub held: u32,
}

impl Tally {
    /// The reader has left: everything that it held is taken back.
    pub(crate) fn take_back(&mut self) {
        self.reclaimed = std::mem::take(&mut self.outstanding);
        self.held = 0;
    }
}

/// A reader gave back what it cannot give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("it gave back block {0}, which there is not")]
    NoSuchSlot(u64),
    #[error("it gave back block {0}, which it does not hold")]
    NotHeld(u32),
    #[error("it gave back block {0}, which is still being filled")]
    Open(u32),
}

#[derive(Debug, Default)]
struct Slot {
    /// A bit for each reader.
    holders: u64,
    frames: u32,
    /// Which block in the order of all that were ever opened: blocks come to each reader in this order.
    turn: u64,
    /// The writer needs it itself, until it releases it.
    own: bool,
}

#[derive(Debug)]
struct Reader {
    quota: u32,
    held: u32,
    /// For each block that it holds, the first frame published to it.
    from: Box<[u32]>,
    /// Frames committed before it came.
    joined: u64,
    finished: u64,
    outstanding: u64,
    skipped_frames: u64,
    skipped_slots: u64,
    /// Whether frames of the open block were skipped.
    skips: bool,
}

/// The truth about all blocks and readers.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: VecDeque<u32>,
    open: Option<u32>,
    readers: [Option<Reader>; READERS as usize],
    present: u64,
    lossy: u64,
    /// The reader that decides.
    engine: u64,
    /// Whether the writer needs each block itself after it was filled.
    keep: bool,
    /// Readers that were evicted and for which a block is kept.
    kept: u64,
    /// Blocks that a lossy reader holds.
    pinned: u32,
    committed: u64,
    /// Blocks ever opened.
    turns: u64,
}

impl Slots {
    /// All blocks free.
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

    /// Frames committed so far.
    pub(crate) fn committed(&self) -> u64 {
        self.committed
    }

    /// The block being filled.
    #[inline]
    pub(crate) fn current(&self) -> Option<u32> {
        self.open
    }

    /// Frames committed in a block since it was opened.
    pub(crate) fn frames(&self, slot: u32) -> u32 {
        self.slots[slot as usize].frames
    }

    /// Whether a block could be opened.
    pub(crate) fn any_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Bits of the readers that are there.
    #[inline]
    pub(crate) fn present(&self) -> u64 {
        self.present
    }

    /// Whether the writer waits for a reader.
    pub(crate) fn is_lossless(&self, reader: u32) -> bool {
        (self.lossy | self.engine) & bit(reader) == 0
    }

    /// A reader comes; it gets what is committed from now on. `quota`: how many blocks it may hold if it is lossy.
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

    /// Takes a free block to be filled; `None` if there is none.
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

    /// `frames` more are committed in the open block: it is published to each reader that may have it and has it not yet.
    pub(crate) fn commit(&mut self, frames: u32, mut publish: impl FnMut(u32, Place)) {
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
                publish(number, Place { slot, from });
            }
            reader.outstanding += u64::from(frames);
        }
    }

    /// The open block gets no more frames; one without any is free again.
    pub(crate) fn close(&mut self) {
        let Some(slot) = self.open.take() else { return };
        let state = &mut self.slots[slot as usize];
        state.own &= state.frames > 0;
        if state.holders == 0 && !state.own {
            self.free.push_back(slot);
        }
    }

    /// A reader gives a block back.
    pub(crate) fn give_back(&mut self, number: u32, slot: u64) -> Result<(), Violation> {
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

    /// A reader is gone: takes back all that it holds.
    pub(crate) fn leave(&mut self, number: u32) -> Tally {
        self.remove(number, None)
    }

    /// A reader is evicted: takes back all that it holds but the block that it may be looking at. Whether there is one; it
    /// is kept until [`Slots::forget`], and the number of the reader with it.
    pub(crate) fn evict(&mut self, number: u32) -> (Tally, bool) {
        let first = self.held_by(number).min_by_key(|slot| self.slots[*slot as usize].turn);
        let keep = first.filter(|_| self.kept.count_ones() < kept_blocks(self.slots.len() as u32));
        let tally = self.remove(number, keep);
        self.kept |= if keep.is_some() { bit(number) } else { 0 };
        (tally, keep.is_some())
    }

    /// A reader that was evicted is gone: the block that was kept for it is like any other.
    pub(crate) fn forget(&mut self, number: u32) {
        self.kept &= !bit(number);
        self.held_by(number).collect::<Vec<_>>().into_iter().for_each(|slot| _ = self.take_from(number, slot));
    }

    /// What became of the frames for a reader that is there.
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

    /// How many blocks a reader holds.
    #[inline]
    pub(crate) fn held(&self, number: u32) -> u32 {
        self.readers[number as usize].as_ref().map_or(0, |reader| reader.held)
    }

    /// What was not shown to a reader: frames, and blocks.
    #[inline]
    pub(crate) fn skipped(&self, number: u32) -> (u64, u64) {
        self.readers[number as usize].as_ref().map_or((0, 0), |reader| (reader.skipped_frames, reader.skipped_slots))
    }

    /// Takes back all that a reader holds but one block, which is then held by nobody that is there.
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

    /// The blocks that a reader holds.
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

    /// Ends a hold, and frees the block if that was the last one; returns how many frames of it were the reader's.
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

/// The numbers of the bits that are set.
pub(crate) fn bits(mut set: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let next = (set != 0).then(|| set.trailing_zeros())?;
        set &= set - 1;
        Some(next)
    })
}

#[cfg(test)]
mod tests;
