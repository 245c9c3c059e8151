//! Streams with received frames, by number.

use super::loss_timeout::Ages;
use super::stream::Stream;
use linerate_burst::prefer_huge_pages;

/// Streams whose memory is allocated together, 31 MiB; untouched pages take no memory.
const CHUNK: usize = 1 << 14;
/// Index entry of a stream with no frame received yet.
const NONE: u32 = u32::MAX;
/// Index entry of a stream that was forgotten; it gets no slot again.
const GONE: u32 = NONE - 1;

/// Growth of the index in entries, a sixteenth of its maximum.
const GROWTH: usize = 1 << 20;
/// Number of possible stream numbers.
pub const NUMBERS: usize = 1 << 24;

/// Returns the maximum memory for this number of streams: the index grows to the greatest possible number.
pub(super) fn most_bytes(streams: usize) -> usize {
    let streams = streams.min(NUMBERS);
    streams * size_of::<Stream>() + if streams == 0 { 0 } else { NUMBERS * size_of::<u32>() }
}

/// Slots for a limited number of streams, allocated when the first frame of a stream is received.
#[derive(Debug)]
pub(super) struct Streams {
    /// Slot of each stream, by number.
    index: Vec<u32>,
    /// Slots, in order of first arrival.
    chunks: Vec<Vec<Stream>>,
    count: usize,
    most: usize,
    /// Slots of forgotten streams.
    free: Vec<u32>,
}

impl Streams {
    pub(super) fn new(most: usize) -> Self {
        Streams { index: Vec::new(), chunks: Vec::new(), count: 0, most: most.min(GONE as usize), free: Vec::new() }
    }

    /// Returns the slot of stream `id`, allocating it for the first frame. `None` above the maximum.
    #[inline(always)]
    pub(super) fn place(&mut self, id: u32) -> Option<u32> {
        match self.index.get(id as usize) {
            Some(place) if *place < GONE => Some(*place),
            _ => self.allocate_index(id),
        }
    }

    #[cold]
    fn allocate_index(&mut self, id: u32) -> Option<u32> {
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

    /// Returns the index entry of a stream.
    fn entry(&mut self, id: u32) -> &mut u32 {
        let id = id as usize;
        if id >= self.index.len() {
            // Not doubled: that may be a lot for a forged number.
            let wanted = (id + 1).next_multiple_of(GROWTH);
            self.index.reserve_exact(wanted.saturating_sub(self.index.len()));
            self.index.resize(id + 1, NONE);
        }
        &mut self.index[id]
    }

    /// Frees the slot of a stream for others; its later frames get none.
    pub(super) fn forget(&mut self, id: u32, ages: &mut Ages) {
        let place = *self.entry(id);
        if place < GONE {
            self.at(place).close(ages);
            self.free.push(place);
        }
        *self.entry(id) = GONE;
    }

    /// Returns whether a stream was forgotten.
    pub(super) fn is_gone(&self, id: u32) -> bool {
        self.index.get(id as usize) == Some(&GONE)
    }

    /// Returns the stream in a slot.
    #[inline(always)]
    pub(super) fn at(&mut self, place: u32) -> &mut Stream {
        &mut self.chunks[place as usize / CHUNK][place as usize % CHUNK]
    }

    /// Returns the stream with a number, if a frame of it was received.
    pub(super) fn get(&self, id: u32) -> Option<&Stream> {
        let place = self.index.get(id as usize).filter(|place| **place < GONE)?;
        self.chunks.get(*place as usize / CHUNK)?.get(*place as usize % CHUNK)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.index.get(id as usize).filter(|place| **place < GONE)?;
        self.chunks.get_mut(*place as usize / CHUNK)?.get_mut(*place as usize % CHUNK)
    }

    /// Returns one more than the highest number.
    pub(super) fn end(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.count - self.free.len()
    }

    /// Returns the memory in use in bytes.
    pub(super) fn memory(&self) -> usize {
        self.count * size_of::<Stream>() + self.index.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicted_slots_are_reused_only_by_other_streams() {
        let (mut streams, mut ages) = (Streams::new(2), Ages::new());
        for id in 0..1000 {
            assert!(streams.place(id).is_some(), "stream {id}");
            streams.at(streams.index[id as usize]).next = 7;
            streams.forget(id, &mut ages);
            assert!(streams.place(id).is_none() && streams.get(id).is_none(), "a late frame of {id}");
        }
        assert!(streams.place(1000).is_some() && streams.place(1001).is_some());
        assert_eq!((streams.get(1000).unwrap().next, streams.len()), (0, 2), "reused slots are cleared");
        // No frame of these was received.
        streams.forget(5000, &mut ages);
        assert!(streams.is_gone(5000) && streams.place(1002).is_none());
    }
}
