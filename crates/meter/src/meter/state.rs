//! State and counters of a meter.

use super::Meter;
use crate::counts::Counts;
use crate::time::PacketTime;
use linerate_burst::Nanos;

impl Meter {
    /// Returns the packet time.
    pub fn time(&self) -> &PacketTime {
        &self.clock.time
    }

    /// Returns the number of records examined so far for expiry.
    pub fn looked_at(&self) -> u64 {
        self.clock.looked
    }

    /// Returns the counters so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of open flows.
    pub fn flows(&self) -> u64 {
        self.flows
    }

    /// Returns the greatest time of a frame so far.
    pub fn latest(&self) -> Nanos {
        self.clock.time.latest()
    }
}
