//! A block: memory that frames are copied into, back to back.
//!
//! The body is a run of nanosecond pcap records: `{ ts_sec u32, ts_nsec u32, caplen u32, len u32 }` in
//! native byte order, then the frame. Behind a file header of 24 bytes it *is* a pcap file of one link type.
//! A block in shared memory is filled like any other; [`Block::commit`] lets readers see what it holds so far.

pub use crate::slot::RECORD_HEADER;

use crate::copy::{self, Copied, Finish};
use crate::memory::Memory;
use crate::slot::Layout;
use crate::{Burst, Desc, Flags, Helper, Interface, LinkType, Nanos, Pick, TAIL};
use std::ops::Range;

/// Bytes of a block in which frames go to another thread or into a file.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Frames of it.
pub const BLOCK_FRAMES: usize = 8192;

/// Picks looked at to tell how many fit.
const SAMPLE: usize = 64;

/// Frames with their descs, in memory that this process alone writes.
#[derive(Debug)]
pub struct Block {
    memory: Memory,
    /// Where the next record goes.
    next: usize,
    frames: usize,
}

/// What readers of a shared block are told beside the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The greatest time of a frame.
    pub last_time: Nanos,
    /// No frame still to come is older than this, but for those flagged late.
    pub horizon: Nanos,
    /// Frames lost on the way here since the stream began.
    pub drops: u64,
    /// Frames of this block flagged late.
    pub late: u32,
    /// Frames left out because they came a second time.
    pub duplicates: u32,
    /// Frames of this block that were cut.
    pub sliced: u32,
    /// Whether frames of more than one link type are there.
    pub mixed: bool,
}

impl Block {
    /// Room for `bytes` of records (at least one frame of [`crate::MAX_FRAME`]) and `frames` descs.
    ///
    /// # Panics
    /// If `bytes` is beyond the 4 GiB that a desc's offset can reach, or `frames` is 0.
    pub fn new(bytes: usize, frames: usize) -> Self {
        let layout = Layout::of(bytes, frames);
        Block::over(Memory::private(layout.unwrap_or_else(|| panic!("a block of {bytes} bytes, {frames} frames"))))
    }

    /// An empty block in this memory.
    pub fn over(memory: Memory) -> Self {
        let mut block = Block { next: memory.layout().body(), memory, frames: 0 };
        block.open(0, 0);
        block
    }

    /// Copies one frame to the end, with `desc`'s fields but its new offset and length. Returns false,
    /// and takes nothing, when the block has no room for it; an empty block takes any frame of
    /// [`crate::MAX_FRAME`] bytes or less. An FCS is cut off.
    #[inline]
    pub fn push(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        let flags = if desc.fcs() == 0 { desc.flags } else { desc.flags | Flags::FCS_CUT };
        self.append(&Desc { captured: frame.len() as u32, flags, ..*desc }, frame)
    }

    /// Copies frame `index` of a burst with its FCS, as [`push`](Block::push) does without; `desc` may differ from that of the
    /// burst in what does not concern lengths.
    ///
    /// # Panics
    /// If there is no frame `index`.
    pub fn push_stored(&mut self, desc: &Desc, burst: Burst<'_>, index: usize) -> bool {
        let (source, stored) = (&burst.descs()[index], burst.stored(index));
        let flags = desc.flags.without(Flags::FCS) | Flags(source.flags.0 & Flags::FCS.0);
        self.append(&Desc { captured: source.captured, wire: source.wire, flags, ..*desc }, stored)
    }

    /// Copies what is stored of a frame to the end.
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

    /// Copies the frames that `picks` name, in that order, out of what `lanes` show. `finish` completes each
    /// desc, or leaves its frame out. Returns how many picks are done
    /// with; fewer than there are when the block has no room for the next frame.
    ///
    /// # Panics
    /// If a pick names a frame that is not there.
    #[inline]
    pub fn gather(&mut self, lanes: &[Burst<'_>], picks: &[Pick], finish: &mut impl Finish) -> usize {
        let mut stretch = self.memory.stretch(self.frames, self.next);
        let copied = copy::gather(&mut stretch, lanes, picks, finish);
        (self.frames, self.next) = (copied.frames, copied.next);
        copied.picks
    }

    /// [`Block::gather`] by two threads: each copies a part of the picks to where they will have their place. `finish`
    /// works in both threads and is to keep every frame whole; if it does not, less is done with.
    ///
    /// # Panics
    /// If a pick names a frame that is not there.
    pub fn gather_beside(
        &mut self,
        helper: &mut Helper,
        lanes: &[Burst<'_>],
        picks: &[Pick],
        finish: &(impl Finish + Clone + Send),
    ) -> usize {
        let stretch = self.memory.stretch(self.frames, self.next);
        let (frames, room) = stretch.room();
        // Of what will fit, so far as a few of them tell.
        let (few, bytes) = copy::fit(lanes, &picks[..picks.len().min(SAMPLE)], usize::MAX);
        let likely = picks.len().min(room * few / bytes.max(1)).min(frames);
        let (count, bytes) = copy::fit(lanes, &picks[..helper.share(likely)], room);
        let (mut front, mut back) = stretch.split(count, bytes);
        let (ahead, behind) = picks.split_at(count);
        let (mut finish, mut finish_behind) = (finish.clone(), finish.clone());
        let (mut here, mut there) = (Copied::default(), Copied::default());
        helper.beside(|| here = copy::gather(&mut front, lanes, ahead, &mut finish), &mut || {
            there = copy::gather(&mut back, lanes, behind, &mut finish_behind)
        });
        let border = (self.frames + count, self.next + bytes);
        (self.frames, self.next) = (here.frames, here.next);
        // The vectors of these would have reached over the border.
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

    /// Gives every frame the same time, in its desc and in its record.
    pub fn restamp(&mut self, time: Nanos) {
        for index in 0..self.frames {
            self.memory.restamp(index, time);
        }
    }

    /// The frames, as a burst.
    #[inline]
    pub fn burst(&self) -> Burst<'_> {
        self.memory.burst(self.frames)
    }

    /// The descs, in the order of the frames.
    #[inline]
    pub fn descs(&self) -> &[Desc] {
        self.memory.descs(self.frames)
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames
    }

    /// Whether there is no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Empties the block; its memory stays.
    pub fn clear(&mut self) {
        self.next = self.memory.layout().body();
        self.frames = 0;
    }

    /// Empties the block and makes it number `sequence` of a stream in which its first frame will have the
    /// index `first_index`. Nobody may be reading it.
    pub fn open(&mut self, sequence: u64, first_index: u64) {
        self.clear();
        self.memory.open(sequence, first_index);
    }

    /// Says of what link type the frames are, before the first commit.
    pub fn begin(&mut self, link: LinkType) {
        let first = self.descs().first().map_or(Nanos::ZERO, |desc| desc.time);
        self.memory.begin(first, link);
    }

    /// Lets readers of shared memory see all frames so far.
    pub fn commit(&mut self, state: &Committed) {
        let used = self.next - self.memory.layout().body();
        self.memory.commit(self.frames as u32, used as u32, state);
    }

    /// Tells readers of shared memory that no more frames will come.
    pub fn close(&mut self) {
        self.memory.close();
    }

    /// A view of the frames from `first` on, together with the interfaces their descs point to.
    ///
    /// # Panics
    /// If there are fewer frames.
    pub fn view<'a>(&'a self, first: usize, interfaces: &'a [Interface]) -> View<'a> {
        assert!(first <= self.frames, "frame {first} of {}", self.frames);
        View { block: self, first, end: self.frames, interfaces }
    }
}

/// Frames of a block as a sink sees them.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    block: &'a Block,
    first: usize,
    end: usize,
    /// The interfaces that the descs point to; grows from one view to the next, never changes.
    pub interfaces: &'a [Interface],
}

impl<'a> View<'a> {
    /// The frames, as a burst.
    pub fn burst(&self) -> Burst<'a> {
        self.block.burst().slice(self.first..self.end)
    }

    /// Some of the frames.
    ///
    /// # Panics
    /// If the range reaches beyond the view.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        assert!(range.start <= range.end && range.end <= self.end - self.first, "frames {range:?}");
        View { first: self.first + range.start, end: self.first + range.end, ..*self }
    }

    /// The frames of `range` as nanosecond pcap records, back to back, in native byte order.
    ///
    /// # Panics
    /// If the range reaches beyond the view.
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

    /// The record and the next block have it, the frame itself has not; a frame that is cut loses it.
    #[test]
    fn an_fcs_lies_between_frame_and_next_record() {
        let memory = [&b"frameFCS!next"[..], &[0; TAIL]].concat();
        let fcs = |offset| Desc { flags: Flags::FCS_4, ..Desc::new(Nanos(1), offset, 5) };
        let descs = [fcs(0), Desc { captured: 3, ..fcs(0) }, Desc::new(Nanos(2), 9, 4)];
        let burst = Burst::over(&memory, &descs).unwrap();
        let mut gathered = Block::new(0, 8);
        let picks = [0, 1, 2].map(|index| Pick::new(0, index));
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
    fn a_full_block_refuses_and_an_empty_one_takes_the_longest_frame() {
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
