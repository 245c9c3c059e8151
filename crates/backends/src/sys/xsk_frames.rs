//! The receiving side of an AF_XDP socket: chunks owned by this process, and the frames shown from them.
//!
//! Unsafe because frames are read where the kernel put them. The guarantee that no shown frame is in a released chunk
//! rests on the private fields here and nowhere else.
#![allow(unsafe_code)]

use super::multi_buffer::JoinedArea;
use super::xsk_memory::Memory;
use super::xsk_ring::{Consumer, Producer};
use linerate_burst::{Burst, Desc, Flags, MAX_FRAME, Nanos};
use std::sync::Arc;

/// Maximum frames shown at a time, and the number below which more are added.
const SHOWN: usize = 1024;
const REFILL: usize = 256;
/// Prefetch distance in frames.
const PREFETCH: u32 = 8;
/// Bytes before a frame that the XDP program writes: time, then VLAN tag.
pub(crate) const METADATA: u64 = 16;
/// Flag in the word of the VLAN tag: the frame has one.
const TAGGED: u64 = 1 << 32;
const VLAN_TAG: u32 = 4;
const MAC_ADDRESSES: usize = 12;

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameCounts {
    /// Frames of several chunks that were joined.
    pub joined: u64,
    /// Frames that are too long to be joined, or have an invalid descriptor.
    pub bad: u64,
    /// Frames without a timestamp, which got the read time.
    pub unstamped: u64,
    /// Frames whose VLAN tag was restored.
    pub vlan_restored: u64,
    /// Frames longer than the interface's MTU.
    pub super_frames: u64,
}

/// Parameters to interpret frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameParams {
    /// Offset to subtract from a stamp to get UTC, modulo 2^64.
    pub ahead: u64,
    /// Time of frames without a stamp.
    pub now: Nanos,
    /// True if frames have metadata in front. (Before the first use of a chunk it reads as 0: no stamp.)
    pub stamped: bool,
    /// Length above which frames are super-frames.
    pub super_frame: u32,
}

/// The receive ring read in order: frames are shown, consumed, and their chunks released.
pub(crate) struct XskFrames {
    memory: Arc<Memory>,
    receive: Consumer<libc::xdp_desc>,
    fill: Producer<u64>,
    /// Frames walked; those before `consumed` are consumed.
    descs: Vec<Desc>,
    consumed: usize,
    joined: JoinedArea,
    counts: FrameCounts,
}

impl XskFrames {
    /// Gives the first `chunks` chunks of the memory to the kernel, and joins frames in the area after all chunks.
    pub(crate) fn new(
        memory: Arc<Memory>,
        receive: Consumer<libc::xdp_desc>,
        fill: Producer<u64>,
        chunks: u32,
    ) -> Self {
        let joined = JoinedArea::new(memory.chunk_bytes(), memory.own_bytes());
        let mut frames = XskFrames {
            receive,
            fill,
            descs: Vec::with_capacity(SHOWN),
            consumed: 0,
            joined,
            counts: FrameCounts::default(),
            memory,
        };
        for chunk in 0..chunks {
            frames.fill.push(u64::from(chunk) * u64::from(frames.memory.chunk()));
        }
        frames.fill.publish();
        frames
    }

    /// Shows more frames if few are left; returns whether the ring has no more.
    pub(crate) fn refill(&mut self, reading: &FrameParams) -> bool {
        if self.descs.len() - self.consumed >= REFILL {
            return false;
        }
        self.descs.drain(..self.consumed);
        self.consumed = 0;
        let ready = self.receive.look();
        let mut taken = 0;
        for ahead in 0..ready.min(PREFETCH) {
            self.memory.prefetch(self.receive.peek(ahead).addr);
        }
        while taken < ready && self.descs.len() < SHOWN {
            let entries = match self.receive.peek(taken) {
                entry if entry.options & libc::XDP_PKT_CONTD == 0 => {
                    if taken + PREFETCH < ready {
                        self.memory.prefetch(self.receive.peek(taken + PREFETCH).addr);
                    }
                    self.show(entry, reading);
                    1
                }
                first => match self.join(first, taken, ready, reading) {
                    Some(entries) => entries,
                    None => break,
                },
            };
            taken += entries;
        }
        self.receive.advance(taken);
        self.receive.release();
        taken == ready
    }

    /// Returns the descs of the frames shown.
    pub(crate) fn descs(&self) -> &[Desc] {
        &self.descs[self.consumed..]
    }

    /// Returns the frames shown.
    pub(crate) fn shown(&self) -> Burst<'_> {
        // SAFETY: each desc not consumed is inside a chunk that was returned in the receive ring and has not been put
        // into the fill ring since (only `consume` does that), or in a part of the joined area that is held until
        // `consume` frees it.
        unsafe { self.memory.burst(self.descs()) }
    }

    /// Consumes the first frames shown.
    ///
    /// # Panics
    /// If fewer are shown.
    pub(crate) fn consume(&mut self, frames: usize) {
        assert!(frames <= self.descs().len(), "{frames} frames consumed, {} shown", self.descs().len());
        for index in self.consumed..self.consumed + frames {
            let desc = self.descs[index];
            if desc.flags.contains(Flags::JOINED) {
                self.joined.free_oldest();
            } else {
                self.return_chunk(desc.offset.into());
            }
        }
        self.consumed += frames;
        self.fill.publish();
    }

    /// Returns whether the kernel waits for a notification of new chunks in the fill ring.
    pub(crate) fn needs_wakeup(&self) -> bool {
        self.fill.needs_wakeup()
    }

    pub(crate) fn counts(&self) -> FrameCounts {
        self.counts
    }

    /// Puts the chunk of an address into the fill ring, which has room for every chunk.
    fn return_chunk(&mut self, address: u64) {
        self.fill.push(address & !u64::from(self.memory.chunk() - 1));
    }

    /// Shows a frame of one chunk.
    #[inline]
    fn show(&mut self, entry: libc::xdp_desc, reading: &FrameParams) {
        if !self.memory.holds(entry.addr, entry.len) {
            self.counts.bad += 1;
            return;
        }
        let (time, tag) = self.stamp(entry.addr, reading);
        self.finish(Desc::new(time, entry.addr as u32, entry.len), tag, reading);
    }

    /// Shows a frame of several chunks, copied together; returns the number of its entries, `None` while it cannot be
    /// shown.
    fn join(&mut self, first: libc::xdp_desc, at: u32, ready: u32, reading: &FrameParams) -> Option<u32> {
        let mut entries = 1;
        let mut length = first.len as usize;
        let mut sound = self.memory.holds(first.addr, first.len);
        while self.receive.peek(at + entries - 1).options & libc::XDP_PKT_CONTD != 0 {
            if at + entries == ready {
                return None;
            }
            let part = self.receive.peek(at + entries);
            sound &= self.memory.holds(part.addr, part.len);
            length = length.saturating_add(part.len as usize);
            entries += 1;
        }
        // Room for a VLAN tag before the frame.
        let room = length.saturating_add(VLAN_TAG as usize);
        if sound && room <= MAX_FRAME && self.joined.fits(room) {
            let start = self.joined.take(room)? + VLAN_TAG as usize;
            let (time, tag) = self.stamp(first.addr, reading);
            let mut desc = Desc::new(time, start as u32, length as u32);
            desc.flags |= Flags::JOINED;
            self.copy_parts(at, entries, start);
            self.counts.joined += 1;
            self.finish(desc, tag, reading);
        } else {
            self.counts.bad += 1;
        }
        for part in at..at + entries {
            let address = self.receive.peek(part).addr;
            if self.memory.holds(address, 0) {
                self.return_chunk(address);
            }
        }
        self.fill.publish();
        Some(entries)
    }

    /// Copies the parts of a frame, each checked to be inside its chunk, to `start`.
    fn copy_parts(&mut self, at: u32, entries: u32, mut start: usize) {
        for part in at..at + entries {
            let part = self.receive.peek(part);
            let length = part.len as usize;
            // SAFETY: chunks returned in the receive ring are ours, and the joined area has allocated these bytes only
            // here; the two do not overlap.
            let (from, to) =
                unsafe { (self.memory.bytes_mut(part.addr as usize, length), self.memory.bytes_mut(start, length)) };
            to.copy_from_slice(from);
            start += length;
        }
    }

    /// Reads the data that the XDP program wrote before a frame: its time, and its VLAN tag or 0. It is only read:
    /// a cache line that this processor has written costs the next frame more than one it has read.
    #[inline]
    fn stamp(&mut self, address: u64, reading: &FrameParams) -> (Nanos, u64) {
        // SAFETY: the chunk was returned in the receive ring and has not been released.
        let words = if reading.stamped { unsafe { self.memory.words_before(address) } } else { [0; 2] };
        let [time, tag] = words;
        if time == 0 {
            self.counts.unstamped += 1;
            return (reading.now, tag);
        }
        (Nanos(time.wrapping_sub(reading.ahead)), tag)
    }

    #[inline]
    fn finish(&mut self, mut desc: Desc, tag: u64, reading: &FrameParams) {
        if desc.wire > reading.super_frame {
            desc.flags |= Flags::SUPER_FRAME;
            self.counts.super_frames += 1;
        }
        if tag & TAGGED != 0 {
            self.restore_vlan(&mut desc, tag as u32);
        }
        self.descs.push(desc);
    }

    /// Moves the two MAC addresses forward by four bytes and writes the tag after them.
    fn restore_vlan(&mut self, desc: &mut Desc, tag: u32) {
        let headroom = desc.flags.contains(Flags::JOINED) || desc.offset & (self.memory.chunk() - 1) >= VLAN_TAG;
        if (desc.captured as usize) < MAC_ADDRESSES || !headroom {
            return;
        }
        desc.offset -= VLAN_TAG;
        desc.captured += VLAN_TAG;
        desc.wire += VLAN_TAG;
        desc.flags |= Flags::VLAN_RESTORED;
        self.counts.vlan_restored += 1;
        // SAFETY: the frame is ours, and so are the bytes before it: a chunk starts with the headroom that the
        // kernel leaves, the joined area with room for a tag.
        let room = unsafe { self.memory.bytes_mut(desc.offset as usize, VLAN_TAG as usize + MAC_ADDRESSES) };
        room.copy_within(VLAN_TAG as usize.., 0);
        room[MAC_ADDRESSES..].copy_from_slice(&tag.to_be_bytes());
    }
}
