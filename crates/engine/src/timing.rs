//! How far from its schedule a sender is, and how much of it a sender that was held up catches up with.

use linerate_burst::Nanos;
use linerate_generate::Delays;
pub use linerate_port::{CATCH_UP, LATE};
use std::time::Duration;

/// How far from the schedule frames were handed to their queues, by the clock of the sender.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// How much later the end of the schedule became, because the sender was held up for longer than [`CATCH_UP`].
    pub shifted: Duration,
    /// How much later than due; nothing leaves before it is due.
    pub behind: Delays,
    /// By how much the gap to the frame before was longer or shorter than in the schedule.
    pub gap_error: Delays,
    last: Option<u64>,
}

impl Timing {
    /// A frame left so many nanoseconds later than it was due.
    pub(crate) fn add(&mut self, late: u64) {
        self.behind.add(late);
        if let Some(last) = self.last.replace(late) {
            self.gap_error.add(late.abs_diff(last));
        }
    }

    /// How much later all that is left of the schedule has to be due, where the next packet was due at this time.
    pub(crate) fn shift(&mut self, due: Nanos, now: Nanos) -> Option<Duration> {
        let shift = now.since(due).checked_sub(CATCH_UP).filter(|shift| !shift.is_zero())?;
        self.shifted += shift;
        Some(shift)
    }

    /// What another sender did beside this one.
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
