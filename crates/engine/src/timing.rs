//! Deviation of a sender from its schedule, and the limit for catching up after a delay.

use linerate_burst::Nanos;
use linerate_generate::Delays;
pub use linerate_port::{CATCH_UP, LATE};
use std::time::Duration;

/// Deviation from the schedule of frames submitted to their queues, by the clock of the sender.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Shift of the end of the schedule, caused by delays longer than [`CATCH_UP`].
    pub shifted: Duration,
    /// Delay after the due time; nothing leaves before it is due.
    pub behind: Delays,
    /// Deviation of the gap to the previous frame from the schedule.
    pub gap_error: Delays,
    last: Option<u64>,
}

impl Timing {
    /// Records a frame that left this many nanoseconds after it was due.
    pub(crate) fn add(&mut self, late: u64) {
        self.behind.add(late);
        if let Some(last) = self.last.replace(late) {
            self.gap_error.add(late.abs_diff(last));
        }
    }

    /// Returns by how much the rest of the schedule must be shifted, given that the next packet was due at `due`.
    pub(crate) fn shift(&mut self, due: Nanos, now: Nanos) -> Option<Duration> {
        let shift = now.since(due).checked_sub(CATCH_UP).filter(|shift| !shift.is_zero())?;
        self.shifted += shift;
        Some(shift)
    }

    /// Adds the deviations of another sender.
    pub(crate) fn merge(&mut self, other: &Timing) {
        self.shifted = self.shifted.max(other.shifted);
        self.behind.merge(&other.behind);
        self.gap_error.merge(&other.gap_error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_catches_up_within_a_bound() {
        let ms = |ms: u64| Nanos(1_000_000 * ms);
        let mut timing = Timing::default();
        assert_eq!(timing.shift(ms(500), ms(400)), None, "it is not due yet");
        assert_eq!(timing.shift(ms(500), ms(600)), None);
        assert_eq!(timing.shift(ms(500), ms(2600)), Some(Duration::from_secs(2)));
        assert_eq!(timing.shift(ms(3000), ms(3101)), Some(Duration::from_millis(1)));
        let mut other = Timing::default();
        other.merge(&timing);
        assert_eq!((timing.shifted, other.shifted), (Duration::from_millis(2001), Duration::from_millis(2001)));
    }
}
