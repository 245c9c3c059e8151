//! Streams that have ended: finds complete ones, and frees their memory for others.

use super::Check;
use std::collections::HashSet;

pub use super::streams::NUMBERS;

/// Progress of a stream at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamProgress {
    /// Distinct frames received.
    pub distinct: u64,
    /// One more than the highest number; `None` where frames have none.
    pub next: Option<u64>,
}

impl Check {
    /// Returns the progress of a stream at the receiver: faster than its row.
    pub fn progress(&self, id: u32) -> StreamProgress {
        if let Some(counted) = self.counted.get(&id) {
            return StreamProgress { distinct: counted.frames(), next: None };
        }
        self.streams.get(id).map_or(StreamProgress { distinct: 0, next: Some(0) }, |stream| StreamProgress {
            distinct: stream.distinct(),
            next: Some(stream.next),
        })
    }

    /// Frees the memory of these streams for others; frames of them received later are foreign.
    pub fn forget(&mut self, ids: &[u32]) {
        let counted: HashSet<u32> = ids.iter().copied().filter(|id| self.counted.remove(id).is_some()).collect();
        if !counted.is_empty() {
            self.matchers.remove(&counted);
        }
        ids.iter().for_each(|id| self.streams.forget(*id, &mut self.ages));
    }
}
