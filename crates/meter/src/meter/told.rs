//! What a meter tells of itself.

use super::Meter;
use crate::counts::Counts;
use crate::time::PacketTime;
use linerate_burst::Nanos;

impl Meter {
    /// What time it is.
    pub fn time(&self) -> &PacketTime {
        &self.clock.time
    }

    /// How many records were looked at so far for those that have ended.
    pub fn looked_at(&self) -> u64 {
        self.clock.looked
    }

    /// What was counted so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Flows there are.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// The greatest time of a frame so far.
    pub fn latest(&self) -> Nanos {
        self.clock.time.latest()
    }
}
