//! A block: memory that frames are copied into, back to back.
//!
//! The body is a run of nanosecond pcap records: `{ ts_sec u32, ts_nsec u32, caplen u32, len u32 }` in
//! native byte order, then the frame. Behind a file header of 24 bytes it *is* a pcap file of one link type.

use crate::{Burst, Desc, Interface, MAX_FRAME, Nanos, TAIL};
use std::ops::Range;

/// Bytes of the record header in front of each frame.
pub const RECORD_HEADER: usize = 16;

/// Private memory holding frames with their descs.
#[derive(Debug)]
pub struct Block {
    memory: Vec<u8>,
    used: usize,
    descs: Vec<Desc>,
}

impl Block {
    /// Room for `bytes` of records (at least one frame of [`MAX_FRAME`]) and `frames` descs.
    ///
    /// # Panics
    /// If `bytes` is beyond the 4 GiB that a desc's offset can reach, or `frames` is 0.
    pub fn new(bytes: usize, frames: usize) -> Self {
        let bytes = bytes.max(MAX_FRAME + RECORD_HEADER);
        assert!(u32::try_from(bytes + TAIL).is_ok() && frames > 0, "a block of {bytes} bytes, {frames} frames");
        Block { memory: vec![0; bytes + TAIL], used: 0, descs: Vec::with_capacity(frames) }
    }

    /// Copies one frame to the end, with `desc`'s fields but its new offset and length. Returns false,
    /// and takes nothing, when the block has no room for it; an empty block takes any frame of
    /// [`MAX_FRAME`] bytes or less.
    #[inline]
    pub fn push(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        let start = self.used + RECORD_HEADER;
        let end = start + frame.len();
        if end + TAIL > self.memory.len() || self.descs.len() == self.descs.capacity() {
            return false;
        }
        let header = &mut self.memory[self.used..start];
        write_time(&mut header[0..8], desc.time);
        header[8..12].copy_from_slice(&(frame.len() as u32).to_ne_bytes());
        header[12..16].copy_from_slice(&desc.wire.to_ne_bytes());
        self.memory[start..end].copy_from_slice(frame);
        self.descs.push(Desc { offset: start as u32, captured: frame.len() as u32, ..*desc });
        self.used = end;
        true
    }

    /// Gives every frame the same time, in its desc and in its record.
    pub fn restamp(&mut self, time: Nanos) {
        for desc in &mut self.descs {
            desc.time = time;
            let header = desc.offset as usize - RECORD_HEADER;
            write_time(&mut self.memory[header..header + 8], time);
        }
    }

    /// The frames, as a burst.
    pub fn burst(&self) -> Burst<'_> {
        Burst::over(&self.memory, &self.descs).expect("push keeps every frame inside")
    }

    /// The descs, in the order of the frames.
    #[inline]
    pub fn descs(&self) -> &[Desc] {
        &self.descs
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.descs.len()
    }

    /// Whether there is no frame.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.descs.is_empty()
    }

    /// Empties the block; its memory stays.
    pub fn clear(&mut self) {
        self.used = 0;
        self.descs.clear();
    }

    /// A view of the block together with the interfaces its descs point to.
    pub fn view<'a>(&'a self, interfaces: &'a [Interface]) -> View<'a> {
        View { block: self, interfaces }
    }
}

/// A finished block as a sink sees it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    block: &'a Block,
    /// The interfaces that the descs point to; grows from one view to the next, never changes.
    pub interfaces: &'a [Interface],
}

impl<'a> View<'a> {
    /// The frames, as a burst.
    pub fn burst(&self) -> Burst<'a> {
        self.block.burst()
    }

    /// The frames of `range` as nanosecond pcap records, back to back, in native byte order.
    ///
    /// # Panics
    /// If the range reaches beyond the block.
    pub fn records(&self, range: Range<usize>) -> &'a [u8] {
        let descs = &self.block.descs[range];
        match (descs.first(), descs.last()) {
            (Some(first), Some(last)) => {
                &self.block.memory[first.offset as usize - RECORD_HEADER..(last.offset + last.captured) as usize]
            }
            _ => &[],
        }
    }
}

/// Seconds and nanoseconds as a pcap record holds them; its 32-bit seconds end in 2106.
#[inline]
fn write_time(record: &mut [u8], time: Nanos) {
    record[0..4].copy_from_slice(&(time.seconds().min(u32::MAX.into()) as u32).to_ne_bytes());
    record[4..8].copy_from_slice(&time.subsec().to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_a_pcap_body() {
        let mut block = Block::new(0, 8);
        let desc = Desc { wire: 9, ..Desc::new(Nanos::from_parts(7, 8), 0, 0) };
        assert!(block.push(&desc, b"hello"));
        assert!(block.push(&desc, b""));
        let records = block.view(&[]).records(0..2);
        let word = |at: usize| u32::from_ne_bytes(records[at..at + 4].try_into().unwrap());
        assert_eq!([word(0), word(4), word(8), word(12)], [7, 8, 5, 9]);
        assert_eq!(&records[16..21], b"hello");
        assert_eq!(records.len(), 37);
        assert_eq!(block.burst().frame(0), b"hello");
        assert_eq!(block.view(&[]).records(1..1), b"");
    }

    #[test]
    fn a_full_block_refuses_and_an_empty_one_takes_the_longest_frame() {
        let mut block = Block::new(0, 2);
        assert!(block.push(&Desc::new(Nanos(1), 0, 0), &vec![7; MAX_FRAME]));
        assert!(!block.push(&Desc::new(Nanos(1), 0, 0), b"x"));
        assert_eq!((block.len(), block.burst().frame(0).len()), (1, MAX_FRAME));
        block.restamp(Nanos::from_parts(3, 4));
        assert_eq!(block.burst().descs()[0].time, Nanos::from_parts(3, 4));
        assert_eq!(block.view(&[]).records(0..1)[..5], [3u32.to_ne_bytes().as_slice(), &[4]].concat());
        block.clear();
        assert!(block.push(&Desc::new(Nanos(1), 0, 0), b"x") && block.push(&Desc::new(Nanos(1), 0, 0), b"y"));
        assert!(!block.push(&Desc::new(Nanos(1), 0, 0), b"z"), "no desc left");
    }
}
