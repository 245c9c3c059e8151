//! Histogram of durations: each bucket is a sixteenth of its value wide.

use std::time::Duration;

/// Steps within each power of two: results are too large by at most one step.
const STEPS: u64 = 16;
const BUCKETS: usize = (64 - 3) * STEPS as usize;

/// Distribution of durations. Adding takes a few nanoseconds, independent of the contents; the memory is constant.
#[derive(Clone, Debug)]
pub struct Delays {
    counts: Box<[u64; BUCKETS]>,
    total: u64,
    sum: u128,
    max: u64,
}

impl Delays {
    /// Creates an empty distribution.
    pub fn new() -> Self {
        Delays { counts: Box::new([0; BUCKETS]), total: 0, sum: 0, max: 0 }
    }

    /// Counts one duration in nanoseconds.
    #[inline]
    pub fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
        self.sum += u128::from(nanos);
        self.max = self.max.max(nanos);
    }

    /// Adds the counts of another distribution.
    pub fn merge(&mut self, other: &Delays) {
        self.counts.iter_mut().zip(other.counts.iter()).for_each(|(own, other)| *own += other);
        self.total += other.total;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// Returns the number of durations above `limit`: exact, or without those up to a sixteenth above it.
    pub fn longer_than(&self, limit: Duration) -> u64 {
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(limit) + 1..].iter().sum()
    }

    /// Returns the maximum.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the mean.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum / u128::from(self.total.max(1))) as u64)
    }

    /// Returns the quantile `part`, from 0 to 1: exact, or up to a sixteenth too large.
    pub fn quantile(&self, part: f64) -> Duration {
        let wanted = ((self.total as f64 * part).ceil() as u64).clamp(1, self.total.max(1));
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        Duration::from_nanos(found.map_or(0, last).min(self.max))
    }
}

impl Default for Delays {
    fn default() -> Self {
        Delays::new()
    }
}

/// Returns the bucket of a duration: one per value below 16, above that one per upper five bits.
#[inline]
fn bucket(nanos: u64) -> usize {
    let shift = (nanos | STEPS).ilog2() - STEPS.ilog2();
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// Returns the largest duration in a bucket.
fn last(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = bucket / STEPS - 1;
    let first = bucket % STEPS + STEPS;
    (first << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_time_has_its_bucket() {
        assert_eq!((bucket(0), bucket(15), bucket(16), bucket(31), bucket(32)), (0, 15, 16, 31, 32));
        assert_eq!((bucket(u64::MAX), last(bucket(u64::MAX))), (BUCKETS - 1, u64::MAX));
        assert_eq!(Delays::new().quantile(0.5), Duration::ZERO);
    }

    proptest! {
        #[test]
        fn quantiles_match_the_sorted_times(
            mut times in proptest::collection::vec(prop_oneof![0u64..100, 0u64..1 << 40], 1..200), part in 0.0f64..=1.0,
        ) {
            let mut delays = Delays::new();
            times.iter().for_each(|time| delays.add(*time));
            times.sort_unstable();
            let rank = ((times.len() as f64 * part).ceil() as usize).clamp(1, times.len());
            let (exact, found) = (times[rank - 1], delays.quantile(part).as_nanos() as u64);
            prop_assert!(found >= exact && found <= exact + exact / STEPS, "{found} for {exact}");
            prop_assert_eq!(delays.quantile(1.0), delays.max());
            let longer = delays.longer_than(Duration::from_nanos(exact));
            let count = |limit: u64| times.iter().filter(|time| **time > limit).count() as u64;
            prop_assert!((count(exact + exact / STEPS)..=count(exact)).contains(&longer), "{longer} longer than {exact}");
            prop_assert_eq!(delays.max().as_nanos() as u64, times[times.len() - 1]);
            prop_assert_eq!(delays.mean().as_nanos() as u64, times.iter().sum::<u64>() / times.len() as u64);
        }
    }
}
