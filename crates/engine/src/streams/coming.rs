//! Streams that come and go: what each has sent, and who is about to leave.

use crate::transmit::{Places, Sending};
use linerate_burst::Desc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A port may always have frames of others on their way: those of who leaves have left by then.
const LEFT: Duration = Duration::from_secs(1);

/// What a sender knows of streams that come and go.
pub(super) struct Coming {
    places: Arc<Places>,
    sending: Vec<Option<Arc<Sending>>>,
    /// Those whose last frame was taken, and since when there are any.
    leaving: Vec<u32>,
    since: Option<Instant>,
}

impl Coming {
    pub(super) fn new(places: Arc<Places>) -> Self {
        Coming { places, sending: Vec::new(), leaving: Vec::new(), since: None }
    }

    /// Somebody has begun at a place.
    pub(super) fn begin(&mut self, place: u32) {
        let at = place as usize;
        self.sending.resize(self.sending.len().max(at + 1), None);
        self.sending[at] = self.places.at(place);
    }

    /// Frames of a stream were taken, each so many nanoseconds after it was due.
    pub(super) fn sent(&self, place: u32, frames: &[Desc], late: impl Fn(&Desc) -> u64) {
        if let Some(Some(sending)) = self.sending.get(place as usize) {
            sending.add(frames, late);
        }
    }

    /// The last frames of these were taken, or nothing more of them is to be.
    pub(super) fn end(&mut self, places: impl Iterator<Item = u32>) {
        self.leaving.extend(places);
        self.since = self.since.filter(|_| !self.leaving.is_empty()).or_else(|| Some(Instant::now()));
    }

    /// Whether somebody is about to leave.
    pub(super) fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether they have waited for their last frames for long enough.
    pub(super) fn is_late(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= LEFT)
    }

    /// All that was taken has left.
    pub(super) fn see_off(&mut self) {
        self.leaving.iter().for_each(|place| self.sending[*place as usize] = None);
        self.places.leave(self.leaving.drain(..));
        self.since = None;
    }
}
