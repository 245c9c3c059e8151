//! Progress of a reception, for another thread; and the state of its streams.

use super::Protocol;
use linerate_burst::Nanos;
use linerate_transport::frames::Frame;
use linerate_transport::stream_memory::{Ending, Ends, StreamId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of ended streams with their own entry; all are counted.
const MOST_TOLD: usize = 10_000;

/// Lets another thread read the progress.
#[derive(Clone, Debug, Default)]
pub struct ReceptionWatch(Arc<Mutex<ReceptionProgress>>);

/// Totals of a reception.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Number of streams started.
    pub streams: u64,
    /// Bytes of streams up to their edges, in frames that are finished or not.
    pub bytes: u64,
    /// Number of open streams.
    pub open: u64,
    /// Number of ended streams.
    pub ended: u64,
    /// Number of finished frames.
    pub frames: u64,
    /// Bytes missing in these frames.
    pub missing: u64,
}

/// Progress of a reception.
#[derive(Clone, Debug, Default)]
pub struct ReceptionProgress {
    /// Totals.
    pub totals: Totals,
    /// State of each of the first 10,000 streams with a finished frame.
    pub by_stream: BTreeMap<StreamId, StreamProgress>,
    /// Bytes received in finished frames.
    finished_bytes: u64,
}

/// Progress of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamProgress {
    /// Endpoints.
    pub ends: Ends,
    /// Bytes received in finished frames.
    pub bytes: u64,
    /// Bytes missing between these.
    pub missing: u64,
    /// Time of the first and of the last of them.
    pub first: Nanos,
    /// See `first`.
    pub last: Nanos,
    /// Ending, if it has ended.
    pub ending: Option<Ending>,
}

impl ReceptionWatch {
    /// Returns the progress so far.
    pub fn so_far(&self) -> ReceptionProgress {
        self.lock().clone()
    }

    /// Returns only the totals.
    pub fn totals(&self) -> Totals {
        self.lock().totals
    }

    pub(super) fn finished(&self, frame: &Frame) {
        let ReceptionProgress { totals, by_stream, finished_bytes } = &mut *self.lock();
        let meta = &frame.meta;
        *finished_bytes += meta.len as u64 - meta.missing;
        totals.frames += 1;
        totals.missing += meta.missing;
        totals.ended += u64::from(meta.ending.is_some());
        if by_stream.len() >= MOST_TOLD && !by_stream.contains_key(&meta.stream) {
            return;
        }
        let new =
            StreamProgress { ends: meta.ends, bytes: 0, missing: 0, first: meta.first, last: meta.last, ending: None };
        let stream = by_stream.entry(meta.stream).or_insert(new);
        stream.bytes += meta.len as u64 - meta.missing;
        stream.missing += meta.missing;
        stream.last = stream.last.max(meta.last);
        stream.ending = meta.ending;
    }

    /// Adds a frame that another process received: streams are counted with their first frame.
    pub(crate) fn taken(&self, frame: &Frame) {
        self.finished(frame);
        let ReceptionProgress { totals, by_stream, finished_bytes } = &mut *self.lock();
        totals.streams = (by_stream.len() as u64).max(totals.ended);
        (totals.bytes, totals.open) = (*finished_bytes, totals.streams - totals.ended);
    }

    pub(super) fn settle(&self, protocol: &Protocol) {
        let totals = &mut self.lock().totals;
        (totals.open, totals.streams, totals.bytes) = protocol.streams();
    }

    fn lock(&self) -> MutexGuard<'_, ReceptionProgress> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
