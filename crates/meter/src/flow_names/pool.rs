//! Buffers of incomplete messages. When full, the oldest buffer is evicted.

use linerate_names::Stream;
use linerate_names::protocol::Reads;
use linerate_names::quic::ConnectionId;
use std::collections::BTreeMap;

/// Maximum memory of all buffers: 4 KiB and a bit for each byte, up to four times as much for a hello of that length.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// Overhead of each: itself, and its entries in both trees, whose nodes are at least half full.
const EACH: usize = 2 * (size_of::<StreamBuffer>() + size_of::<u64>() + 2 * size_of::<(u32, usize)>());

#[derive(Default)]
pub(super) struct Pool {
    /// Ordered by creation.
    held: BTreeMap<u64, StreamBuffer>,
    numbers: BTreeMap<(u32, usize), u64>,
    next: u64,
    bytes: usize,
    /// Number of evicted buffers.
    pub full: u64,
}

struct StreamBuffer {
    flow: (u32, usize),
    stream: Stream,
    source: Source,
    /// Accounted memory in bytes.
    bytes: usize,
}

/// Source of a buffer's bytes.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Segments of TCP between these ports, and the progress of their parser.
    Tcp([u16; 2], Reads),
    /// CRYPTO frames of QUIC, whose keys are derived from this id.
    Quic(ConnectionId),
}

impl Pool {
    /// Creates the buffer of a direction that has none.
    pub(super) fn keep(&mut self, record: u32, side: usize, stream: Stream, source: Source) {
        let flow = (record, side);
        self.held.insert(self.next, StreamBuffer { flow, stream, source, bytes: EACH });
        self.numbers.insert(flow, self.next);
        self.bytes += EACH;
        self.next += 1;
        self.settle(record, side);
    }

    /// Adds bytes to a TCP stream; returns its contiguous bytes and the progress of the parser.
    pub(super) fn put(&mut self, record: u32, side: usize, offset: usize, bytes: &[u8]) -> Option<(&[u8], &mut Reads)> {
        self.stream(record, side)?.put(offset, bytes);
        self.settle(record, side);
        self.tcp(record, side).map(|(stream, _, reads)| (stream, reads))
    }

    /// Returns the contiguous bytes of a TCP stream, its ports, and the progress of the parser.
    pub(super) fn tcp(&mut self, record: u32, side: usize) -> Option<(&[u8], [u16; 2], &mut Reads)> {
        let held = self.held.get_mut(self.numbers.get(&(record, side))?)?;
        let Source::Tcp(ports, reads) = &mut held.source else { return None };
        Some((held.stream.ready(), *ports, reads))
    }

    /// Returns the stream of a direction.
    pub(super) fn stream(&mut self, record: u32, side: usize) -> Option<&mut Stream> {
        self.held.get_mut(self.numbers.get(&(record, side))?).map(|held| &mut held.stream)
    }

    /// Returns the connection id from which its keys are derived.
    pub(super) fn id(&self, record: u32, side: usize) -> Option<ConnectionId> {
        match self.held.get(self.numbers.get(&(record, side))?)?.source {
            Source::Quic(id) => Some(id),
            Source::Tcp(..) => None,
        }
    }

    /// Accounts for a stream that may have grown.
    pub(super) fn settle(&mut self, record: u32, side: usize) {
        let Some(held) = self.numbers.get(&(record, side)).and_then(|number| self.held.get_mut(number)) else { return };
        let bytes = held.stream.memory() + EACH;
        self.bytes = self.bytes + bytes - held.bytes;
        held.bytes = bytes;
    }

    /// Drops the buffer of a direction.
    pub(super) fn drop(&mut self, record: u32, side: usize) {
        if let Some(held) = self.numbers.remove(&(record, side)).and_then(|number| self.held.remove(&number)) {
            self.bytes -= held.bytes;
        }
    }

    /// Returns the oldest buffer if one has to be evicted because the pool is full.
    pub(super) fn evict(&mut self) -> Option<(u32, usize)> {
        let flow = self.held.first_key_value().filter(|_| self.bytes > MOST_BYTES)?.1.flow;
        self.full += 1;
        Some(flow)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entry_is_evicted_and_memory_is_bounded() {
        let (mut pool, mut gone) = (Pool::default(), Vec::new());
        for record in 0..9000 {
            let mut stream = Stream::default();
            stream.put(0, b"x");
            pool.keep(record, record as usize % 2, stream, Source::Tcp([0; 2], Reads::default()));
            while let Some((record, side)) = pool.evict() {
                pool.drop(record, side);
                gone.push(record);
            }
            assert!(pool.bytes <= MOST_BYTES);
        }
        assert_eq!((gone.len() as u64, &gone[..3]), (pool.full, &[0, 1, 2][..]));
        assert!((3000..4000).contains(&pool.held.len()), "{} buffers", pool.held.len());
        assert_eq!(pool.put(8999, 1, 1, b"yz").map(|(ready, _)| ready), Some(&b"xyz"[..]));
        assert!(pool.put(0, 0, 1, b"yz").is_none(), "evicted");
        (0..9000).for_each(|record| pool.drop(record, record as usize % 2));
        assert_eq!((pool.bytes, pool.held.len(), pool.numbers.len()), (0, 0, 0));
    }
}
