//! The one place that reads a clock.

use linerate_burst::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// UTC now (`CLOCK_REALTIME`, the clock of AF_PACKET's stamps); a time before 1970 reads as 0.
#[inline]
pub fn now() -> Nanos {
    let time = clock_gettime(ClockId::Realtime);
    Nanos::from_parts(u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0))
}
