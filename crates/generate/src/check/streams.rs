//! The streams that frames came of, by their numbers.

use super::ages::Ages;
use super::stream::Stream;
use linerate_burst::prefer_huge_pages;

/// Streams whose memory is asked for together, 31 MiB; where nothing was written yet there is none.
const CHUNK: usize = 1 << 14;
/// In the index: no frame of this stream came yet.
const NONE: u32 = u32::MAX;
/// In the index: this stream was forgotten, and gets no place again.
const GONE: u32 = NONE - 1;

/// The list of places grows by so many at a time, a sixteenth of all.
const GROWTH: usize = 1 << 20;
/// All numbers that a stream can have.
pub const NUMBERS: usize = 1 << 24;

/// The most memory for so many streams: a list of their places grows to the greatest number there is.
pub(super) fn most_bytes(streams: usize) -> usize {
    let streams = streams.min(NUMBERS);
    streams * size_of::<Stream>() + if streams == 0 { 0 } else { NUMBERS * size_of::<u32>() }
}

/// Memory for a stream when its first frame comes, for so many at most.
#[derive(Debug)]
pub(super) struct Streams {
    /// The place of each stream, by its number.
    index: Vec<u32>,
    /// The places, in the order in which streams came.
    chunks: Vec<Vec<Stream>>,
    count: usize,
    most: usize,
    /// Places of streams that were forgotten.
    free: Vec<u32>,
}

impl Streams {
    /// None yet.
    pub(super) fn new(most: usize) -> Self {
        Streams { index: Vec::new(), chunks: Vec::new(), count: 0, most: most.min(GONE as usize), free: Vec::new() }
    }

    /// The place of stream `id`, whose first frame this may be. `None` where there would be too many.
    #[inline(always)]
    pub(super) fn place(&mut self, id: u32) -> Option<u32> {
        match self.index.get(id as usize) {
            Some(place) if *place < GONE => Some(*place),
            _ => self.new_place(id),
        }
    }

    #[cold]
    fn new_place(&mut self, id: u32) -> Option<u32> {
        if self.is_gone(id) {
            return None;
        }
        let place = if let Some(place) = self.free.pop() {
            *self.at(place) = Stream::NEW;
            place
        } else {
            if self.count == self.most {
                return None;
            }
            if self.count.is_multiple_of(CHUNK) {
                let mut chunk = Vec::with_capacity(CHUNK);
                prefer_huge_pages(chunk.spare_capacity_mut());
                self.chunks.push(chunk);
            }
            self.chunks.last_mut()?.push(Stream::NEW);
            self.count += 1;
            self.count as u32 - 1
        };
        *self.entry(id) = place;
        Some(place)
    }

    /// What the index has of a number.
    fn entry(&mut self, id: u32) -> &mut u32 {
        let id = id as usize;
        if id >= self.index.len() {
            // Not twice as much: that may be a lot, for a number that a stranger made up.
            let wanted = (id + 1).next_multiple_of(GROWTH);
            self.index.reserve_exact(wanted.saturating_sub(self.index.len()));
            self.index.resize(id + 1, NONE);
        }
        &mut self.index[id]
    }

    /// The place of a stream is another's from now on, and no frame of it gets one again.
    pub(super) fn forget(&mut self, id: u32, ages: &mut Ages) {
        let place = *self.entry(id);
        if place < GONE {
            self.at(place).close(ages);
            self.free.push(place);
        }
        *self.entry(id) = GONE;
    }

    /// Whether a stream was forgotten.
    pub(super) fn is_gone(&self, id: u32) -> bool {
        self.index.get(id as usize) == Some(&GONE)
    }

    /// The stream at a place.
    #[inline(always)]
    pub(super) fn at(&mut self, place: u32) -> &mut Stream {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// The stream with a number, if a frame of it came.
    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        let place = self.index.get(id as usize).filter(|place| **place < GONE)?;
        self.chunks.get(*place as usize / CHUNK)?.get(*place as usize % CHUNK)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.index.get(id as usize).filter(|place| **place < GONE)?;
        self.chunks.get_mut(*place as usize / CHUNK)?.get_mut(*place as usize % CHUNK)
    }

    /// One more than the highest number.
    pub(super) fn end(&self) -> usize {
        self.index.len()
    }

    /// How many streams there are.
    pub(super) fn len(&self) -> usize {
        self.count - self.free.len()
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> usize {
        self.count * size_of::<Stream>() + self.index.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_those_that_are_forgotten_are_others_and_not_their_own_again() {
        let (mut streams, mut ages) = (Streams::new(2), Ages::new());
        for id in 0..1000 {
            assert!(streams.place(id).is_some(), "stream {id}");
            streams.at(streams.index[id as usize]).next = 7;
            streams.forget(id, &mut ages);
            assert!(streams.place(id).is_none() && streams.get(id).is_none(), "a late frame of {id}");
        }
        assert!(streams.place(1000).is_some() && streams.place(1001).is_some());
        assert_eq!((streams.get(1000).unwrap().next, streams.len()), (0, 2), "nothing is left of the one before");
        // Of these nothing has come.
        streams.forget(5000, &mut ages);
        assert!(streams.is_gone(5000) && streams.place(1002).is_none());
    }
}
