//! How far a reception is, for another thread; and what became of its streams.

use super::Protocol;
use linerate_burst::Nanos;
use linerate_receive::frames::Frame;
use linerate_receive::place::{Ending, Ends, StreamId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many streams that have ended are told one by one; all are counted.
const MOST_TOLD: usize = 10_000;

/// To be asked how far it is.
#[derive(Clone, Debug, Default)]
pub struct ReceptionWatch(Arc<Mutex<SoFar>>);

/// What was received in all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Streams that began.
    pub streams: u64,
    /// Bytes of streams up to their edges, in frames that are finished or not.
    pub bytes: u64,
    /// Streams that are open.
    pub open: u64,
    /// Streams that have ended.
    pub ended: u64,
    /// Frames that were finished.
    pub frames: u64,
    /// Bytes in these that did not come.
    pub missing: u64,
}

/// What was received.
#[derive(Clone, Debug, Default)]
pub struct SoFar {
    /// In all.
    pub totals: Totals,
    /// What became of each stream that has finished a frame; of the first 10,000.
    pub by_stream: BTreeMap<StreamId, StreamSoFar>,
    /// Bytes that came, in frames that are finished.
    finished_bytes: u64,
}

/// What was received of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamSoFar {
    /// Between whom.
    pub ends: Ends,
    /// Bytes that came, in frames that are finished.
    pub bytes: u64,
    /// Bytes between these that did not come.
    pub missing: u64,
    /// When the first of them came, and the last.
    pub first: Nanos,
    /// See `first`.
    pub last: Nanos,
    /// How it ended, if it has.
    pub ending: Option<Ending>,
}

impl ReceptionWatch {
    /// What was received so far.
    pub fn so_far(&self) -> SoFar {
        self.lock().clone()
    }

    /// The same in all alone.
    pub fn totals(&self) -> Totals {
        self.lock().totals
    }

    pub(super) fn finished(&self, frame: &Frame) {
        let SoFar { totals, by_stream, finished_bytes } = &mut *self.lock();
        let meta = &frame.meta;
        *finished_bytes += meta.len as u64 - meta.missing;
        totals.frames += 1;
        totals.missing += meta.missing;
        totals.ended += u64::from(meta.ending.is_some());
        if by_stream.len() >= MOST_TOLD && !by_stream.contains_key(&meta.stream) {
            return;
        }
        let new =
            StreamSoFar { ends: meta.ends, bytes: 0, missing: 0, first: meta.first, last: meta.last, ending: None };
        let stream = by_stream.entry(meta.stream).or_insert(new);
        stream.bytes += meta.len as u64 - meta.missing;
        stream.missing += meta.missing;
        stream.last = stream.last.max(meta.last);
        stream.ending = meta.ending;
    }

    /// The same of a frame that another process received: streams are those of which one came.
    pub(crate) fn taken(&self, frame: &Frame) {
        self.finished(frame);
        let SoFar { totals, by_stream, finished_bytes } = &mut *self.lock();
        totals.streams = (by_stream.len() as u64).max(totals.ended);
        (totals.bytes, totals.open) = (*finished_bytes, totals.streams - totals.ended);
    }

    pub(super) fn settle(&self, protocol: &Protocol) {
        let SoFar { totals, finished_bytes, .. } = &mut *self.lock();
        let (open, begun, bytes) = protocol.streams();
        (totals.open, totals.streams, totals.bytes) = (open, begun, bytes.unwrap_or(*finished_bytes));
    }

    fn lock(&self) -> MutexGuard<'_, SoFar> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
