//! Rate limit of frames injected by an engine.

use linerate_burst::Nanos;

/// Units per frame: a limit of one per second gains one unit per nanosecond.
const FRAME: u64 = 1_000_000_000;

/// Token bucket with the capacity of one second, full at the start. An engine that injects nothing for a second may
/// inject that many frames at once; in the long run the limit is not exceeded.
#[derive(Debug)]
pub(crate) struct Limit {
    a_second: u32,
    /// In units of frames.
    left: u64,
    last: Nanos,
}

impl Limit {
    pub(crate) fn new(a_second: u32) -> Self {
        Limit { a_second, left: u64::from(a_second) * FRAME, last: Nanos::ZERO }
    }

    /// Advances to the time `now`. A clock that is set back adds nothing, and nothing twice.
    #[inline]
    pub(crate) fn tick(&mut self, now: Nanos) {
        let passed = now.0.saturating_sub(self.last.0).min(FRAME);
        self.last = self.last.max(now);
        // A full bucket is 2^62 units at most, and a second adds as many.
        self.left = (self.left + passed * u64::from(self.a_second)).min(u64::from(self.a_second) * FRAME);
    }

    /// Takes a token for one frame; returns false if the bucket is empty.
    pub(crate) fn take(&mut self) -> bool {
        let is_in = self.left >= FRAME;
        self.left -= if is_in { FRAME } else { 0 };
        is_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take_all(limit: &mut Limit) -> u64 {
        (0..).take_while(|_| limit.take()).count() as u64
    }

    #[test]
    fn limit_allows_the_configured_rate_per_second() {
        for a_second in [2, 3, 7, 1000] {
            let (mut limit, begin) = (Limit::new(a_second), 1_790_000_000_000_000_000);
            limit.tick(Nanos(begin));
            assert_eq!(take_all(&mut limit), u64::from(a_second));
            // In steps that do not divide a second, for ten seconds: nothing is lost to rounding.
            let steps = (1..=10 * FRAME / 99_991).map(|step| step * 99_991).chain([10 * FRAME]);
            let took: u64 = steps.map(|passed| (limit.tick(Nanos(begin + passed)), take_all(&mut limit)).1).sum();
            assert_eq!(took, 10 * u64::from(a_second));
        }
    }

    #[test]
    fn limit_edge_cases() {
        let mut none = Limit::new(0);
        none.tick(Nanos(u64::MAX));
        assert!(!none.take());
        let mut most = Limit::new(u32::MAX);
        for now in [Nanos(FRAME), Nanos(u64::MAX), Nanos::ZERO, Nanos(u64::MAX)] {
            most.tick(now);
            assert!(most.take());
        }
        let mut one = Limit::new(1);
        let mut is_taken_at = |now| (one.tick(Nanos(now)), one.take()).1;
        // One nanosecond short of a second adds nothing, however often it is checked; going back adds nothing either.
        let taken =
            [5, 6, FRAME + 4, FRAME + 5, 3, FRAME + 5, 3, 2 * FRAME + 4, 9 * FRAME, 9 * FRAME].map(&mut is_taken_at);
        assert_eq!(taken, [true, false, false, true, false, false, false, false, true, false]);
    }
}
