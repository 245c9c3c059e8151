//! The streams that frames came of, by their numbers.

use super::stream::Stream;
use linerate_burst::prefer_huge_pages;

/// Streams whose memory is asked for together, 31 MiB; where nothing was written yet there is none.
const CHUNK: usize = 1 << 14;
/// In the index: no frame of this stream came yet.
const NONE: u32 = u32::MAX;

/// The list of places grows by so many at a time, a sixteenth of all.
const GROWTH: usize = 1 << 20;
/// All numbers that a stream can have.
const NUMBERS: usize = 1 << 24;

/// The most memory for so many streams: a list of their places grows to the greatest number there is.
pub fn most_bytes(streams: usize) -> usize {
    let streams = streams.min(NUMBERS);
    streams * size_of::<Stream>() + if streams == 0 { 0 } else { NUMBERS * size_of::<u32>() }
}

/// Memory for a stream when its first frame comes, for so many at most.
#[derive(Debug)]
pub struct Streams {
    /// The place of each stream, by its number.
    index: Vec<u32>,
    /// The places, in the order in which streams came.
    chunks: Vec<Vec<Stream>>,
    count: usize,
    most: usize,
}

impl Streams {
    /// None yet.
    pub fn new(most: usize) -> Self {
        Streams { index: Vec::new(), chunks: Vec::new(), count: 0, most: most.min(NONE as usize) }
    }

    /// The place of stream `id`, whose first frame this may be. `None` where there would be too many.
    #[inline(always)]
    pub fn place(&mut self, id: u32) -> Option<u32> {
        match self.index.get(id as usize) {
            Some(place) if *place != NONE => Some(*place),
            _ => self.new_place(id),
        }
    }

    #[cold]
    fn new_place(&mut self, id: u32) -> Option<u32> {
        if self.count == self.most {
            return None;
        }
        if self.count.is_multiple_of(CHUNK) {
            let mut chunk = Vec::with_capacity(CHUNK);
            prefer_huge_pages(chunk.spare_capacity_mut());
            self.chunks.push(chunk);
        }
        self.chunks.last_mut()?.push(Stream::NEW);
        let id = id as usize;
        if id >= self.index.len() {
            // Not twice as much: that may be a lot, for a number that a stranger made up.
            let wanted = (id + 1).next_multiple_of(GROWTH);
            self.index.reserve_exact(wanted.saturating_sub(self.index.len()));
            self.index.resize(id + 1, NONE);
        }
        self.index[id] = self.count as u32;
        self.count += 1;
        Some(self.index[id])
    }

    /// The stream at a place.
    #[inline(always)]
    pub fn at(&mut self, place: u32) -> &mut Stream {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// The stream with a number, if a frame of it came.
    pub fn get(&self, id: u32) -> Option<&Stream> {
        let place = self.index.get(id as usize).filter(|place| **place != NONE)?;
        self.chunks.get(*place as usize / CHUNK)?.get(*place as usize % CHUNK)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.index.get(id as usize).filter(|place| **place != NONE)?;
        self.chunks.get_mut(*place as usize / CHUNK)?.get_mut(*place as usize % CHUNK)
    }

    /// One more than the highest number.
    pub fn end(&self) -> usize {
        self.index.len()
    }

    /// How many streams there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        self.count * size_of::<Stream>() + self.index.capacity() * size_of::<u32>()
    }
}
