//! A block: memory that frames are copied into, back to back.
//!
//! Its body is a run of nanosecond pcap records: `{ ts_sec u32, ts_nsec u32, caplen u32, len u32 }` in native byte
//! order, then the frame. After a file header of 24 bytes it *is* a pcap file of one link type. A block in shared
//! memory is filled like any other; [`Block::commit`] makes its frames so far visible to readers.

pub use crate::slot::RECORD_HEADER;

use crate::copy::{self, CopyResult, FinishDesc};
use crate::memory::Memory;
use crate::slot::Layout;
use crate::{Burst, Desc, Flags, FrameIndex, Helper, Interface, LinkType, Nanos, TAIL};
use std::ops::Range;

/// Bytes of a block that hands frames to another thread or to a file.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Frames of such a block.
pub const BLOCK_FRAMES: usize = 8192;

/// Number of picks sampled to estimate how many fit.
const SAMPLE: usize = 64;

/// Frames with their descs, in memory that only this process writes.
#[derive(Debug)]
pub struct Block {
    memory: Memory,
    /// Offset of the next record.
    next: usize,
    frames: usize,
}

/// State that is published with the committed frames of a shared block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitState {
    /// Greatest time of a frame.
    pub last_time: Nanos,
    /// Horizon: no later frame is older than this, except those flagged late.
    pub horizon: Nanos,
    /// Frames lost upstream since the stream started.
    pub drops: u64,
    /// Frames of this block flagged late.
    pub late: u32,
    /// Duplicate frames removed.
    pub duplicates: u32,
    /// Frames of this block that were truncated on request.
    pub sliced: u32,
    /// True if frames of more than one link type are present.
    pub mixed: bool,
}

impl Block {
    /// Allocates a block for `bytes` of records (at least one frame of [`crate::MAX_FRAME`]) and `frames` descs.
    ///
    /// # Panics
    /// If `bytes` exceeds the 4 GiB that a desc's offset can reach, or `frames` is 0.
    pub fn new(bytes: usize, frames: usize) -> Self {
        let layout = Layout::of(bytes, frames);
        Block::over(Memory::private(layout.unwrap_or_else(|| panic!("a block of {bytes} bytes, {frames} frames"))))
    }

    /// Returns an empty block in this memory.
    pub fn over(memory: Memory) -> Self {
        let mut block = Block { next: memory.layout().body(), memory, frames: 0 };
        block.open(0, 0);
        block
    }

    /// Appends a copy of one frame, with `desc`'s fields except for the new offset and length. Returns false, without a
    /// copy, if the block has no room for it; an empty block has room for any frame of up to [`crate::MAX_FRAME`]
    /// bytes. An FCS is cut off.
    #[inline]
    pub fn push(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        let flags = if desc.fcs() == 0 { desc.flags } else { desc.flags | Flags::FCS_CUT };
        self.append(&Desc { captured: frame.len() as u32, flags, ..*desc }, frame)
    }

    /// Appends frame `index` of a burst with its FCS, which [`push`](Block::push) cuts off; `desc` may differ from the
    /// burst's desc in all but the lengths.
    ///
    /// # Panics
    /// If the burst has no frame `index`.
    pub fn push_stored(&mut self, desc: &Desc, burst: Burst<'_>, index: usize) -> bool {
        let (source, stored) = (&burst.descs()[index], burst.stored(index));
        let flags = desc.flags.without(Flags::FCS) | Flags(source.flags.0 & Flags::FCS.0);
        self.append(&Desc { captured: source.captured, wire: source.wire, flags, ..*desc }, stored)
    }

    #[inline]
    fn append(&mut self, desc: &Desc, stored: &[u8]) -> bool {
        let start = self.next + RECORD_HEADER;
        let end = start + stored.len();
        let layout = self.memory.layout();
        if end + TAIL > layout.bytes() || self.frames == layout.frames() {
            return false;
        }
        let desc = Desc { offset: start as u32, ..*desc };
        self.memory.write(self.frames, self.next, &desc, stored);
        self.frames += 1;
        self.next = end;
        true
    }

    /// Copies the frames that `picks` name, in that order, from the bursts that `lanes` present. `finish` completes
    /// each desc, or omits its frame. Returns the number of picks handled: fewer than given if the block has no room
    /// for the next frame.
    ///
    /// # Panics
    /// If a pick names a frame that does not exist.
    #[inline]
    pub fn gather(&mut self, lanes: &[Burst<'_>], picks: &[FrameIndex], finish: &mut impl FinishDesc) -> usize {
        let mut stretch = self.memory.stretch(self.frames, self.next);
        let copied = copy::gather(&mut stretch, lanes, picks, finish);
        (self.frames, self.next) = (copied.frames, copied.next);
        copied.picks
    }

    /// [`Block::gather`] by two threads: each copies a part of the picks to their final position. `finish` runs in both
    /// threads and should keep every frame whole; otherwise fewer picks are handled per call.
    ///
    /// # Panics
    /// If a pick names a frame that does not exist.
    pub fn gather_with_helper(
        &mut self,
        helper: &mut Helper,
        lanes: &[Burst<'_>],
        picks: &[FrameIndex],
        finish: &(impl FinishDesc + Clone + Send),
    ) -> usize {
        let stretch = self.memory.stretch(self.frames, self.next);
        let (frames, room) = stretch.room();
        // The number that is likely to fit, estimated from a sample.
        let (few, bytes) = copy::fit(lanes, &picks[..picks.len().min(SAMPLE)], usize::MAX);
        let likely = picks.len().min(room * few / bytes.max(1)).min(frames);
        let (count, bytes) = copy::fit(lanes, &picks[..helper.share(likely)], room);
        let (mut front, mut back) = stretch.split(count, bytes);
        let (ahead, behind) = picks.split_at(count);
        let (mut finish, mut finish_behind) = (finish.clone(), finish.clone());
        let (mut here, mut there) = (CopyResult::default(), CopyResult::default());
        helper.join(|| here = copy::gather(&mut front, lanes, ahead, &mut finish), &mut || {
            there = copy::gather(&mut back, lanes, behind, &mut finish_behind)
        });
        let border = (self.frames + count, self.next + bytes);
        (self.frames, self.next) = (here.frames, here.next);
        // Not copied above: whole vectors would have been written across the border.
        for pick in &ahead[here.picks..] {
            let lane = &lanes[pick.lane()];
            let (mut desc, frame) = (lane.descs()[pick.index()], lane.frame(pick.index()));
            if finish.finish(&mut desc, frame, *pick) {
                desc.captured = desc.captured.min(frame.len() as u32);
                let stored = lane.stored(pick.index());
                self.append(&desc, &stored[..stored.len().min(desc.stored() as usize)]);
            }
        }
        if (self.frames, self.next) != border {
            return count;
        }
        (self.frames, self.next) = (there.frames, there.next);
        count + there.picks
    }

    /// Sets the time of every frame, in its desc and in its record.
    pub fn restamp(&mut self, time: Nanos) {
        for index in 0..self.frames {
            self.memory.restamp(index, time);
        }
    }

    /// Returns the frames as a burst.
    #[inline]
    pub fn burst(&self) -> Burst<'_> {
        self.memory.burst(self.frames)
    }

    /// Returns the descs, in the order of the frames.
    #[inline]
    pub fn descs(&self) -> &[Desc] {
        self.memory.descs(self.frames)
    }

    /// Returns the number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Returns whether the block holds no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Empties the block and keeps its memory.
    pub fn clear(&mut self) {
        self.next = self.memory.layout().body();
        self.frames = 0;
    }

    /// Empties the block and makes it block `sequence` of a stream in which its first frame has index `first_index`. No
    /// reader may hold it.
    pub fn open(&mut self, sequence: u64, first_index: u64) {
        self.clear();
        self.memory.open(sequence, first_index);
    }

    /// Records the time of the first frame and the link type, before the first commit.
    pub fn begin(&mut self, link: LinkType) {
        let first = self.descs().first().map_or(Nanos::ZERO, |desc| desc.time);
        self.memory.begin(first, link);
    }

    /// Makes all frames so far visible to readers of shared memory.
    pub fn commit(&mut self, state: &CommitState) {
        let used = self.next - self.memory.layout().body();
        self.memory.commit(self.frames as u32, used as u32, state);
    }

    /// Marks the block as complete for readers of shared memory: no more frames will follow.
    pub fn close(&mut self) {
        self.memory.close();
    }

    /// Returns a view of the frames from `first` on, with the interfaces that their descs refer to.
    ///
    /// # Panics
    /// If the block has fewer frames.
    pub fn view<'a>(&'a self, first: usize, interfaces: &'a [Interface]) -> View<'a> {
        assert!(first <= self.frames, "frame {first} of {}", self.frames);
        View { block: self, first, end: self.frames, interfaces }
    }
}

/// A run of frames of a block, as passed to a sink.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    block: &'a Block,
    first: usize,
    end: usize,
    /// The interfaces that the descs refer to; the list grows from one view to the next, entries never change.
    pub interfaces: &'a [Interface],
}

impl<'a> View<'a> {
    /// Returns the frames as a burst.
    pub fn burst(&self) -> Burst<'a> {
        self.block.burst().slice(self.first..self.end)
    }

    /// Returns a part of the frames.
    ///
    /// # Panics
    /// If the range exceeds the view.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.end - self.first, "frames {range:?}");
        View { first: self.first + range.start, end: self.first + range.end, ..*self }
    }

    /// Returns the frames of `range` as nanosecond pcap records, back to back, in native byte order.
    ///
    /// # Panics
    /// If the range exceeds the view.
    pub fn records(&self, range: Range<usize>) -> &'a [u8] {
        let descs = &self.block.descs()[self.first..self.end][range];
        match (descs.first(), descs.last()) {
            (Some(first), Some(last)) => {
                let end = last.offset as usize + last.stored() as usize;
                self.block.memory.bytes(first.offset as usize - RECORD_HEADER, end)
            }
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MAX_FRAME;

    #[test]
    fn records_are_a_pcap_body() {
        let mut block = Block::new(0, 8);
        let desc = Desc { wire: 9, ..Desc::new(Nanos::from_parts(7, 8), 0, 0) };
        assert!(block.push(&desc, b"hello"));
        assert!(block.push(&desc, b""));
        let records = block.view(0, &[]).records(0..2);
        let word = |at: usize| u32::from_ne_bytes(records[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [7, 8, 5, 9]);
        assert_eq!(&records[16..21], b"hello");
        assert_eq!(records.len(), 37);
        assert_eq!(block.burst().frame(0), b"hello");
        assert_eq!(block.view(0, &[]).records(1..1), b"");
        assert_eq!((block.view(1, &[]).records(0..1).len(), block.view(1, &[]).burst().len()), (16, 1));
        let (first, none) = (block.view(0, &[]).slice(0..1), block.view(1, &[]).slice(1..1));
        assert_eq!((first.burst().frame(0), first.burst().len(), first.records(0..1).len()), (&b"hello"[..], 1, 21));
        assert_eq!((none.burst().len(), first.slice(1..1).burst().len()), (0, 0));
    }

    /// The record and the next block have the FCS, the frame itself does not; a truncated frame loses it.
    #[test]
    fn fcs_is_between_frame_and_next_record() {
        let memory = [&b"frameFCS!next"[..], &[0; TAIL]].concat();
        let fcs = |offset| Desc { flags: Flags::FCS_4, ..Desc::new(Nanos(1), offset, 5) };
        let descs = [fcs(0), Desc { captured: 3, ..fcs(0) }, Desc::new(Nanos(2), 9, 4)];
        let burst = Burst::over(&memory, &descs).unwrap();
        let mut gathered = Block::new(0, 8);
        let picks = [0, 1, 2].map(|index| FrameIndex::new(0, index));
        assert_eq!(gathered.gather(&[burst], &picks, &mut ()), 3);
        let mut pushed = Block::new(0, 8);
        assert!((0..3).all(|index| pushed.push_stored(&descs[index], burst, index)));
        for block in [gathered, pushed] {
            let records = block.view(0, &[]).records(0..3);
            let lengths = |at: usize| [8, 12].map(|word| records[at + word]);
            assert_eq!((lengths(0), &records[16..25], lengths(25)), ([9, 9], &b"frameFCS!"[..], [3, 9]));
            assert_eq!((&records[41..44], lengths(44), &records[60..]), (&b"fra"[..], [4, 4], &b"next"[..]));
            assert_eq!((block.burst().frame(0), block.burst().stored(0)), (&b"frame"[..], &b"frameFCS!"[..]));
        }
        let mut plain = Block::new(0, 8);
        assert!(plain.push(&descs[0], b"frame") && plain.descs()[0].flags == Flags::FCS_4 | Flags::FCS_CUT);
    }

    #[test]
    fn full_block_rejects_and_empty_block_accepts_the_longest_frame() {
        let mut block = Block::new(0, 2);
        assert!(block.push(&Desc::new(Nanos(1), 0, 0), &vec![7; MAX_FRAME]));
        assert!(!block.push(&Desc::new(Nanos(1), 0, 0), &[0; 5000]));
        assert_eq!((block.len(), block.burst().frame(0).len()), (1, MAX_FRAME));
        block.restamp(Nanos::from_parts(3, 4));
        assert_eq!(block.burst().descs()[0].time, Nanos::from_parts(3, 4));
        assert_eq!(block.view(0, &[]).records(0..1)[..5], [3u32.to_ne_bytes().as_slice(), &[4]].concat());
        block.clear();
        assert!(block.push(&Desc::new(Nanos(1), 0, 0), b"x") && block.push(&Desc::new(Nanos(1), 0, 0), b"y"));
        assert!(!block.push(&Desc::new(Nanos(1), 0, 0), b"z"), "no desc left");
    }
}
