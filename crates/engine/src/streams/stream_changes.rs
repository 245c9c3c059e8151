//! Streams that are added and removed: their totals, and those about to be removed.

use crate::transmit::{StreamSlots, StreamTotals};
use linerate_burst::Desc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time after which the last frames of a removed stream have left, since a port may always have frames of others
/// queued.
const LEFT: Duration = Duration::from_secs(1);

/// A sender's view of streams that are added and removed.
pub(super) struct StreamArrivals {
    places: Arc<StreamSlots>,
    sending: Vec<Option<Arc<StreamTotals>>>,
    /// Streams whose last frame was taken, and the time since when there are any.
    leaving: Vec<u32>,
    since: Option<Instant>,
}

impl StreamArrivals {
    pub(super) fn new(places: Arc<StreamSlots>) -> Self {
        StreamArrivals { places, sending: Vec::new(), leaving: Vec::new(), since: None }
    }

    /// Adds the stream at a place.
    pub(super) fn begin(&mut self, place: u32) {
        let at = place as usize;
        self.sending.resize(self.sending.len().max(at + 1), None);
        self.sending[at] = self.places.at(place);
    }

    /// Records frames of a stream that were taken; `late` returns the delay after the due time in nanoseconds.
    pub(super) fn sent(&self, place: u32, frames: &[Desc], late: impl Fn(&Desc) -> u64) {
        if let Some(Some(sending)) = self.sending.get(place as usize) {
            sending.add(frames, late);
        }
    }

    /// Ends streams: their last frames were taken, or they were stopped.
    pub(super) fn end(&mut self, places: impl Iterator<Item = u32>) {
        self.leaving.extend(places);
        self.since = self.since.filter(|_| !self.leaving.is_empty()).or_else(|| Some(Instant::now()));
    }

    /// Returns whether a stream is about to be removed.
    pub(super) fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns whether they have waited long enough for their last frames.
    pub(super) fn is_late(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LEFT)
    }

    /// Removes them: all frames that were taken have left.
    pub(super) fn remove_finished(&mut self) {
        self.leaving.iter().for_each(|place| self.sending[*place as usize] = None);
        self.places.leave(self.leaving.drain(..));
        self.since = None;
    }
}
