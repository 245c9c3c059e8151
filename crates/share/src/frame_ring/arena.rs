//! The memory of frames: header, table, bitmaps, gaps, and the frames themselves. Written only by the writer.

use super::layout::{Entry, Header, MAGIC, Shape, flag, state};
use super::metadata::{Ending, FrameMetadata};
use crate::error::Error;
use crate::layout::{BYTE_ORDER, HUGE, MAJOR, MINOR, PAGE};
use crate::mapping::Mapping;
use crate::pages::{self, Pages};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use std::any::Any;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Number and memory of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Frames, 1 to 32,768.
    pub frames: u32,
    /// Bytes per frame.
    pub frame_bytes: usize,
    /// Bytes per bit of the bitmaps.
    pub granule: u32,
    /// Use huge pages if available.
    pub huge: bool,
}

/// A new arena, for the writer.
pub(super) struct NewFrameArena {
    pub arena: Arena,
    pub pieces: Vec<OwnedBytes>,
    /// For readers.
    pub fd: OwnedFd,
    pub notes: Vec<String>,
}

/// The memory, mapped by its writer or by a reader.
#[derive(Debug)]
pub(super) struct Arena {
    mapping: Arc<Mapping>,
    shape: Shape,
    generation: u64,
}

impl Arena {
    /// Creates it, with every page populated.
    pub(super) fn create(options: &Options, now: Nanos) -> Result<NewFrameArena, Error> {
        let shape = Shape::of(options)?;
        let memory = crate::Options { huge: options.huge, ..crate::Options::default() };
        let Pages { mapping, fd, page, notes } = pages::make(&memory, shape.bytes)?;
        let generation = RandomState::new().build_hasher().finish();
        for (at, value) in shape.words() {
            mapping.word(at).store(value, Relaxed);
        }
        for (at, value) in shape.longs() {
            mapping.long(at).store(value, Relaxed);
        }
        mapping.word(offset_of!(Header, minor)).store(MINOR, Relaxed);
        mapping.word(offset_of!(Header, page_bytes)).store(page as u32, Relaxed);
        mapping.word(offset_of!(Header, writer)).store(std::process::id(), Relaxed);
        mapping.long(offset_of!(Header, generation)).store(generation, Relaxed);
        mapping.long(offset_of!(Header, start)).store(now.0, Relaxed);
        mapping.long(offset_of!(Header, heartbeat)).store(now.0, Relaxed);
        let Shape { frames_offset, stride, frames, frame_bytes, .. } = shape;
        let (mapping, pieces) = mapping.into_pieces(frames_offset, stride, frames as usize, frame_bytes);
        Ok(NewFrameArena { arena: Arena { mapping, shape, generation }, pieces, fd, notes })
    }

    /// Maps the memory received from a writer. Every number in it is checked for consistency.
    pub(super) fn open(fd: BorrowedFd<'_>) -> Result<Arena, String> {
        let wrong = |error: rustix::io::Errno| format!("its memory is not usable: {error}");
        let size = fstat(fd).map_err(wrong)?.st_size;
        let bytes = usize::try_from(size).ok().filter(|bytes| *bytes >= 2 * HUGE && bytes.is_multiple_of(HUGE));
        let bytes = bytes.ok_or("its memory has an invalid size")?;
        if !fcntl_get_seals(fd).map_err(wrong)?.contains(SealFlags::SHRINK) {
            return Err("its memory may be truncated while it is read".into());
        }
        let mapping = Mapping::new(fd, bytes, false).map_err(|error| format!("mapping its memory failed: {error}"))?;
        let word = |at| mapping.load_word(at, Relaxed);
        let long = |at| mapping.load_long(at, Relaxed);
        if (long(offset_of!(Header, magic)), word(offset_of!(Header, byte_order))) != (MAGIC, BYTE_ORDER) {
            return Err("its memory has no frame ring header".into());
        }
        let major = word(offset_of!(Header, major));
        if major != MAJOR {
            return Err(format!("its memory has format version {major}; this program supports {MAJOR}"));
        }
        let options = Options {
            frames: word(offset_of!(Header, frames)),
            frame_bytes: usize::try_from(long(offset_of!(Header, frame_bytes))).unwrap_or(usize::MAX),
            granule: word(offset_of!(Header, granule)),
            huge: false,
        };
        let shape = Shape::of(&options).map_err(|error| error.to_string())?;
        let fits = shape.words().iter().all(|(at, value)| word(*at) == *value)
            && shape.longs().iter().all(|(at, value)| long(*at) == *value)
            && shape.bytes == bytes;
        if !fits {
            return Err("its memory does not have the layout of version 1".into());
        }
        let generation = long(offset_of!(Header, generation));
        Ok(Arena { mapping: Arc::new(mapping), shape, generation })
    }

    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns a number that is unique to this memory.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Records that the writer is alive.
    pub(super) fn update_heartbeat(&self, now: Nanos) {
        self.mapping.long(offset_of!(Header, heartbeat)).store(now.0, Relaxed);
    }

    /// Returns the time at which the writer was last active, by its clock.
    pub(super) fn heartbeat(&self) -> Nanos {
        Nanos(self.mapping.load_long(offset_of!(Header, heartbeat), Relaxed))
    }

    pub(super) fn writer(&self) -> u32 {
        self.mapping.load_word(offset_of!(Header, writer), Relaxed)
    }

    /// Fills an entry of the table; those below the number of frames have memory, the others none.
    pub(super) fn write(&self, entry: u32, about: &FrameMetadata, gaps: &[Range<u64>], bitmap: &[u64]) {
        let base = self.shape.entry(entry);
        let has_memory = entry < self.shape.frames;
        let listed = if has_memory { self.write_gaps(entry, gaps, bitmap) } else { 0 };
        let coarse = if listed < gaps.len() { flag::COARSE } else { 0 };
        let memory = if has_memory { self.shape.frame(entry) as u64 } else { 0 };
        let longs = [
            (offset_of!(Entry, id), about.id),
            (offset_of!(Entry, number), about.number),
            (offset_of!(Entry, offset), about.offset),
            (offset_of!(Entry, len), about.len),
            (offset_of!(Entry, missing), about.missing),
            (offset_of!(Entry, first), about.first.0),
            (offset_of!(Entry, last), about.last.0),
            (offset_of!(Entry, memory), memory),
        ];
        let words = [
            (offset_of!(Entry, stream), about.stream),
            (offset_of!(Entry, ending), Ending::number(about.ending)),
            (offset_of!(Entry, crc32c), about.crc32c.unwrap_or_default()),
            (offset_of!(Entry, flags), coarse | if about.crc32c.is_some() { flag::CRC } else { 0 }),
            (offset_of!(Entry, repeated), about.repeated),
            (offset_of!(Entry, late), about.late),
            (offset_of!(Entry, gaps), listed as u32),
            (offset_of!(Entry, offered), about.offered),
            (offset_of!(Entry, family), if about.from.is_ipv4() { 4 } else { 6 }),
            (offset_of!(Entry, from_port), about.from.port().into()),
            (offset_of!(Entry, to_port), about.to.port().into()),
        ];
        longs.iter().for_each(|(at, value)| self.mapping.long(base + at).store(*value, Relaxed));
        words.iter().for_each(|(at, value)| self.mapping.word(base + at).store(*value, Relaxed));
        self.mapping.store_bytes(base + offset_of!(Entry, from), &octets(about.from.ip()));
        self.mapping.store_bytes(base + offset_of!(Entry, to), &octets(about.to.ip()));
        self.mapping.word(base + offset_of!(Entry, state)).store(state::FINISHED, Release);
    }

    /// Sets the number of readers that a frame was handed to.
    pub(super) fn set_offered(&self, entry: u32, offered: u32) {
        self.mapping.word(self.shape.entry(entry) + offset_of!(Entry, offered)).store(offered, Relaxed);
    }

    /// Marks a frame as the writer's.
    pub(super) fn set_free(&self, entry: u32) {
        self.mapping.word(self.shape.entry(entry) + offset_of!(Entry, state)).store(state::FREE, Relaxed);
    }

    /// Reads an entry and its gaps; each number is copied out once and checked.
    pub(super) fn read(&self, entry: u32) -> Result<(FrameMetadata, Vec<Range<u64>>), &'static str> {
        let base = self.shape.entry(entry);
        let long = |at: usize| self.mapping.load_long(base + at, Relaxed);
        let word = |at: usize| self.mapping.load_word(base + at, Relaxed);
        if self.mapping.load_word(base + offset_of!(Entry, state), Acquire) != state::FINISHED {
            return Err("a frame was handed over unfinished");
        }
        let has_memory = entry < self.shape.frames;
        let (len, memory) = (long(offset_of!(Entry, len)), long(offset_of!(Entry, memory)));
        let (most, own) = if has_memory { (self.shape.frame_bytes, self.shape.frame(entry)) } else { (0, 0) };
        if memory != own as u64 || len > most as u64 {
            return Err("a frame is not at the position of its entry");
        }
        let v4 = match word(offset_of!(Entry, family)) {
            4 => true,
            6 => false,
            _ => return Err("the addresses of a stream are neither IPv4 nor IPv6"),
        };
        let end = |at: usize, port: usize| {
            let mut octets = [0; 16];
            self.mapping.load_bytes(base + at, &mut octets);
            SocketAddr::new(address(octets, v4), word(port) as u16)
        };
        let flags = word(offset_of!(Entry, flags));
        let about = FrameMetadata {
            id: long(offset_of!(Entry, id)),
            stream: word(offset_of!(Entry, stream)),
            from: end(offset_of!(Entry, from), offset_of!(Entry, from_port)),
            to: end(offset_of!(Entry, to), offset_of!(Entry, to_port)),
            number: long(offset_of!(Entry, number)),
            offset: long(offset_of!(Entry, offset)),
            len,
            missing: long(offset_of!(Entry, missing)),
            crc32c: (flags & flag::CRC != 0).then(|| word(offset_of!(Entry, crc32c))),
            first: Nanos(long(offset_of!(Entry, first))),
            last: Nanos(long(offset_of!(Entry, last))),
            repeated: word(offset_of!(Entry, repeated)),
            late: word(offset_of!(Entry, late)),
            ending: Ending::of(word(offset_of!(Entry, ending)))?,
            offered: word(offset_of!(Entry, offered)),
            is_coarse: flags & flag::COARSE != 0,
        };
        let gaps = if has_memory { self.read_gaps(entry, word(offset_of!(Entry, gaps)), len)? } else { Vec::new() };
        let listed: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        // The last gap of a coarse list is too long.
        let fits = if about.is_coarse { about.missing <= listed } else { about.missing == listed };
        if fits { Ok((about, gaps)) } else { Err("the gaps of a frame do not add up to its missing bytes") }
    }

    /// Returns the memory of an entry, which the reader holds until `lent` is dropped.
    pub(super) fn lend(&self, entry: u32, lent: Arc<dyn Any + Send + Sync>) -> OwnedBytes {
        let has_memory = entry < self.shape.frames;
        let (at, bytes) = if has_memory { (self.shape.frame(entry), self.shape.frame_bytes) } else { (0, 0) };
        self.mapping.lend(at, bytes, lent)
    }

    /// Writes as many gaps as there is room for, the last entry covering all the rest; returns their number.
    fn write_gaps(&self, frame: u32, gaps: &[Range<u64>], bitmap: &[u64]) -> usize {
        let (base, room) = (self.shape.gaps(frame), self.shape.gap_room);
        let listed = gaps.len().min(room);
        for (place, gap) in gaps[..listed].iter().enumerate() {
            let is_rest = place + 1 == room && gaps.len() > room;
            let end = if is_rest { gaps.last().map_or(gap.end, |last| last.end) } else { gap.end };
            self.mapping.long(base + place * 16).store(gap.start, Relaxed);
            self.mapping.long(base + place * 16 + 8).store(end, Relaxed);
        }
        let words = self.shape.bitmap_bytes / 8;
        for place in 0..words {
            let word = bitmap.get(place).copied().unwrap_or_default();
            self.mapping.long(self.shape.bitmap(frame) + place * 8).store(word, Relaxed);
        }
        listed
    }

    fn read_gaps(&self, frame: u32, listed: u32, len: u64) -> Result<Vec<Range<u64>>, &'static str> {
        let base = self.shape.gaps(frame);
        if listed as usize > self.shape.gap_room {
            return Err("a frame has more gaps than the list can hold");
        }
        let (mut gaps, mut before) = (Vec::with_capacity(listed as usize), 0);
        for place in 0..listed as usize {
            let start = self.mapping.load_long(base + place * 16, Relaxed);
            let end = self.mapping.load_long(base + place * 16 + 8, Relaxed);
            if start < before || start >= end || end > len {
                return Err("the gaps of a frame are out of order");
            }
            before = end;
            gaps.push(start..end);
        }
        Ok(gaps)
    }
}

impl Shape {
    /// Returns the header fields that follow from the shape: those of 32 bits, and of 64 below.
    fn words(&self) -> [(usize, u32); 9] {
        [
            (offset_of!(Header, byte_order), BYTE_ORDER),
            (offset_of!(Header, major), MAJOR),
            (offset_of!(Header, header_bytes), PAGE as u32),
            (offset_of!(Header, entries), self.entries),
            (offset_of!(Header, frames), self.frames),
            (offset_of!(Header, granule), self.granule),
            (offset_of!(Header, bitmap_bytes), self.bitmap_bytes as u32),
            (offset_of!(Header, gap_room), self.gap_room as u32),
            (offset_of!(Header, entry_bytes), size_of::<Entry>() as u32),
        ]
    }

    fn longs(&self) -> [(usize, u64); 8] {
        [
            (offset_of!(Header, magic), MAGIC),
            (offset_of!(Header, frame_bytes), self.frame_bytes as u64),
            (offset_of!(Header, stride), self.stride as u64),
            (offset_of!(Header, frames_offset), self.frames_offset as u64),
            (offset_of!(Header, arena_bytes), self.bytes as u64),
            (offset_of!(Header, entries_offset), Shape::ENTRIES as u64),
            (offset_of!(Header, bitmaps_offset), self.bitmaps_offset as u64),
            (offset_of!(Header, gaps_offset), self.gaps_offset as u64),
        ]
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    let mut octets = [0; 16];
    match ip {
        IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => octets = ip.octets(),
    }
    octets
}

fn address(octets: [u8; 16], v4: bool) -> IpAddr {
    let [a, b, c, d, ..] = octets;
    if v4 { [a, b, c, d].into() } else { octets.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;

    fn some() -> FrameMetadata {
        let from = "10.0.0.1:9".parse().expect("an address");
        FrameMetadata {
            id: 1,
            stream: 2,
            from,
            to: from,
            number: 0,
            offset: 0,
            len: 5000,
            missing: 30,
            crc32c: None,
            first: Nanos(1),
            last: Nanos(2),
            repeated: 0,
            late: 0,
            ending: None,
            offered: 0,
            is_coarse: false,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// A writer that is wrong anywhere is rejected, or presents a frame within its memory.
        #[test]
        fn any_writer_values_are_rejected_or_within_bounds(at in 0usize..2200, value: u64, small in 0u64..10_000, is_small: bool) {
            let options = Options { frames: 2, frame_bytes: 10_000, granule: 4096, huge: false };
            let NewFrameArena { arena, fd, .. } = Arena::create(&options, Nanos(1)).unwrap();
            arena.write(1, &some(), &[0..10, 100..120], &[1]);
            let reader = Arena::open(fd.as_fd()).unwrap();
            prop_assert_eq!(reader.read(1), Ok((some(), vec![0..10, 100..120])));
            // The header, the table, and the gaps of frame 1.
            let place = match at * 8 {
                place @ 0..4096 => place,
                place @ 4096..8704 => place,
                place => arena.shape.gaps(1) + (place - 8704) % 32,
            };
            arena.mapping.long(place).store(if is_small { small } else { value }, Relaxed);
            let _ = Arena::open(fd.as_fd());
            for entry in 0..arena.shape.entries {
                if let Ok((about, gaps)) = reader.read(entry) {
                    prop_assert!(about.len <= 10_000);
                    prop_assert!(gaps.iter().all(|gap| gap.start < gap.end && gap.end <= about.len));
                    prop_assert!(gaps.windows(2).all(|pair| pair[0].end <= pair[1].start));
                    prop_assert!(reader.lend(entry, Arc::new(())).len() as u64 >= about.len);
                }
            }
        }
    }

    #[test]
    fn each_invalid_header_field_is_rejected() {
        let options = Options { frames: 2, frame_bytes: 10_000, granule: 4096, huge: false };
        let NewFrameArena { arena, fd, .. } = Arena::create(&options, Nanos(1)).unwrap();
        // One more byte per frame, or per bit, is a valid ring of the same layout; 4 GiB more per frame are not.
        for place in [0, 8, 12, 20, 24, 28, 36, 40, 48, 56, 68, 72, 100, 104, 112, 120] {
            let word = arena.mapping.word(place);
            let right = word.fetch_add(1, Relaxed);
            assert!(Arena::open(fd.as_fd()).is_err(), "the number at {place}");
            word.store(right, Relaxed);
            Arena::open(fd.as_fd()).unwrap();
        }
    }
}
