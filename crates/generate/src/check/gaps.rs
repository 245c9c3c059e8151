//! Deviation of the gaps between frames from the expected gap.

use crate::Delays;

/// Gaps between frames that are expected to be equal.
#[derive(Clone, Debug)]
pub(super) struct Gaps {
    /// Expected gap in nanoseconds.
    pub wanted: f64,
    /// Absolute errors of the gaps.
    pub errors: Delays,
    last: Option<u64>,
}

impl Gaps {
    pub(super) fn new(wanted: f64) -> Self {
        Gaps { wanted, errors: Delays::new(), last: None }
    }

    /// Adds a frame with its receive time in nanoseconds.
    #[inline]
    pub(super) fn add(&mut self, time: u64) {
        if let Some(last) = self.last.replace(time) {
            let gap = time.wrapping_sub(last) as i64;
            self.errors.add((gap as f64 - self.wanted).abs() as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn gaps_are_compared_with_the_schedule() {
        let mut gaps = Gaps::new(100.0);
        [1000, 1100, 1190, 1310, 1300].into_iter().for_each(|time| gaps.add(time));
        assert_eq!((gaps.errors.count(), gaps.errors.max()), (4, Duration::from_nanos(110)));
        assert_eq!(gaps.errors.quantile(0.5), Duration::from_nanos(10));
    }
}
