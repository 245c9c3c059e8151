//! A place that checks its calls.

use linerate_burst::Nanos;
use linerate_transport::stream_memory::{Ending, Ends, Payload, Place, StreamId};
use std::collections::BTreeMap;

/// One stream, as received.
#[derive(Debug)]
pub(super) struct Stream {
    pub ends: Ends,
    pub bytes: Vec<u8>,
    pub is_there: Vec<bool>,
    pub edge: u64,
    pub room: u64,
    pub ending: Option<Ending>,
}

/// Memory for streams.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub streams: BTreeMap<StreamId, Stream>,
    /// Room of each stream beyond its start.
    pub room: u64,
    /// Bytes read straight into place.
    pub read: Vec<u8>,
    pub is_full: bool,
}

impl Memory {
    pub(super) fn new(room: u64) -> Self {
        Memory { room, ..Memory::default() }
    }

    /// The only stream.
    pub(super) fn one(&self) -> &Stream {
        assert_eq!(self.streams.len(), 1);
        self.streams.values().next().unwrap()
    }

    pub(super) fn one_mut(&mut self) -> &mut Stream {
        assert_eq!(self.streams.len(), 1);
        self.streams.values_mut().next().unwrap()
    }
}

impl Place for Memory {
    fn begin(&mut self, stream: StreamId, ends: &Ends, _: Nanos) -> bool {
        if self.is_full {
            return false;
        }
        let new =
            Stream { ends: *ends, bytes: Vec::new(), is_there: Vec::new(), edge: 0, room: self.room, ending: None };
        assert!(self.streams.insert(stream, new).is_none(), "{stream} started twice");
        true
    }

    fn first_room(&self) -> u64 {
        self.room
    }

    fn room(&self, stream: StreamId) -> u64 {
        self.streams[&stream].room
    }

    fn place(&mut self, stream: StreamId, offset: u64, payload: Payload<'_>, _: Nanos) {
        let stream = self.streams.get_mut(&stream).expect("a known stream");
        let end = offset + payload.len() as u64;
        assert!(end <= stream.room, "{end} is beyond the room of {}", stream.room);
        assert!(!payload.is_empty() && stream.ending.is_none());
        let end = end as usize;
        if stream.bytes.len() < end {
            stream.bytes.resize(end, 0);
            stream.is_there.resize(end, false);
        }
        let bytes = match payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Read { from, len } => &self.read[from..from + len],
        };
        let range = offset as usize..end;
        assert!(stream.is_there[range.clone()].iter().all(|there| !there), "{range:?} stored twice");
        stream.is_there[range.clone()].fill(true);
        stream.bytes[range].copy_from_slice(bytes);
    }

    fn advance(&mut self, stream: StreamId, edge: u64, _: Nanos) {
        let stream = self.streams.get_mut(&stream).expect("a known stream");
        assert!(edge > stream.edge && stream.ending.is_none(), "edge went from {} to {edge}", stream.edge);
        assert!(stream.is_there[stream.edge as usize..edge as usize].iter().all(|there| *there), "past a gap");
        stream.edge = edge;
    }

    fn end(&mut self, stream: StreamId, ending: Ending, _: Nanos) {
        let stream = self.streams.get_mut(&stream).expect("a known stream");
        assert!(stream.ending.is_none(), "it ended twice");
        if ending == Ending::Complete {
            assert_eq!(stream.edge as usize, stream.bytes.len());
        }
        stream.ending = Some(ending);
    }
}
