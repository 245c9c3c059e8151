//! Histogram of latencies, to a thirtieth.

/// Buckets per octave.
const STEPS: usize = 1 << STEP_BITS;
const STEP_BITS: u32 = 4;
/// Width of the smallest buckets: 4 ns.
const UNIT_BITS: u32 = 2;
/// Octaves after the first [`STEPS`] buckets of the smallest width.
const OCTAVES: usize = 25;
pub(super) const BUCKETS: usize = STEPS * (OCTAVES + 1);
/// Latencies of at least this many nanoseconds (2.1 s) are counted in the last bucket.
pub const LIMIT: u64 = 1 << (OCTAVES as u32 + STEP_BITS + UNIT_BITS);

/// Counts in buckets that grow with their values: each octave has 16. So a value taken from the middle of a bucket is
/// wrong by at most 1/32 (3.1 %), or 2 ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Histogram([u32; BUCKETS]);

/// Returns the bucket of a number of nanoseconds; negative ones belong to the first bucket.
#[inline(always)]
pub(super) fn bucket(nanos: i64) -> usize {
    let units = (nanos.max(0) as u64).min(LIMIT - 1) >> UNIT_BITS;
    let octave = (units >> STEP_BITS).checked_ilog2().map_or(0, |octave| octave + 1);
    // From the second octave on the leading bit is the 16 that each octave before it has.
    let shift = octave.saturating_sub(1);
    ((units >> shift) as usize + shift as usize * STEPS).min(BUCKETS - 1)
}

/// Returns the middle of a bucket in nanoseconds.
fn middle(bucket: usize) -> u64 {
    let shift = (bucket / STEPS).saturating_sub(1);
    let first = ((bucket - shift * STEPS) as u64) << shift;
    let width = 1 << shift << UNIT_BITS;
    (first << UNIT_BITS) + width / 2
}

impl Histogram {
    pub(super) const EMPTY: Histogram = Histogram([0; BUCKETS]);

    /// Counts one value in a bucket.
    #[inline(always)]
    pub(super) fn add(&mut self, bucket: usize) {
        let count = &mut self.0[bucket];
        *count += 1;
        if *count == u32::MAX {
            self.halve();
        }
    }

    /// Returns a reference to a bucket, for prefetching.
    #[inline(always)]
    pub(super) fn place(&self, bucket: usize) -> &u32 {
        &self.0[bucket]
    }

    /// Returns the number of values, unless a bucket was ever full.
    #[cfg(test)]
    pub(super) fn total(&self) -> u64 {
        self.0.iter().map(|count| u64::from(*count)).sum()
    }

    /// Halves all counts: shares stay the same, and there is room again.
    #[cold]
    fn halve(&mut self) {
        self.0.iter_mut().for_each(|count| *count = count.div_ceil(2));
    }
}

/// Sum of several histograms.
#[derive(Clone, Debug)]
pub(super) struct Sums(Vec<u64>);

impl Sums {
    pub(super) fn new() -> Self {
        Sums(vec![0; BUCKETS])
    }

    pub(super) fn add(&mut self, histogram: &Histogram) {
        self.0.iter_mut().zip(histogram.0).for_each(|(sum, count)| *sum += u64::from(count));
    }

    /// Returns the mean, to 3.1 %, given the extremes `least` and `most`; `None` if empty, or if values are below 0.
    pub(super) fn mean(&self, (least, most): (i64, i64)) -> Option<i64> {
        let total: u64 = self.0.iter().sum();
        let sum: f64 = self.0.iter().enumerate().map(|(bucket, count)| middle(bucket) as f64 * *count as f64).sum();
        (total > 0 && least >= 0).then(|| ((sum / total as f64) as i64).clamp(least, most.max(least)))
    }

    /// Returns the quantile of each share (ascending, of 1) in nanoseconds, given the extremes `least` and `most`:
    /// above [`LIMIT`] it is the maximum. `None` below 0, where buckets have no resolution, and if the histogram is
    /// empty.
    pub(super) fn quantiles<const N: usize>(&self, shares: [f64; N], (least, most): (i64, i64)) -> [Option<i64>; N] {
        let total: u64 = self.0.iter().sum();
        let mut buckets = self.0.iter().enumerate();
        let (mut below, mut last) = (0, 0);
        shares.map(|share| {
            let rank = ((total as f64 * share).ceil() as u64).clamp(1, total.max(1));
            while below < rank {
                let (bucket, count) = buckets.next()?;
                (below, last) = (below + count, bucket);
            }
            match last {
                0 if least < 0 => None,
                last if last == BUCKETS - 1 => Some(most),
                last => Some((middle(last) as i64).clamp(least, most.max(least))),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_contiguous() {
        let mut last = 0;
        for nanos in 0..1 << 16 {
            let at = bucket(nanos);
            assert!(at == last || at == last + 1, "{nanos} ns: bucket {at} after {last}");
            last = at;
        }
        assert_eq!((bucket(LIMIT as i64 - 1), bucket(i64::MAX), bucket(i64::MIN)), (BUCKETS - 1, BUCKETS - 1, 0));
    }

    #[test]
    fn a_full_bucket_keeps_its_share() {
        let mut histogram = Histogram::EMPTY;
        histogram.0[7] = u32::MAX - 1;
        histogram.0[9] = u32::MAX / 2;
        histogram.add(7);
        assert_eq!((histogram.0[7], histogram.0[9]), (1 << 31, 1 << 30));
    }

    proptest! {
        #[test]
        fn values_are_accurate_to_a_thirtieth(nanos in prop_oneof![0u64..3000, 0u64..LIMIT]) {
            let found = middle(bucket(nanos as i64));
            prop_assert!(found.abs_diff(nanos) as f64 <= (nanos as f64 / 32.0).max(2.0), "{nanos} ns reads as {found}");
        }

        #[test]
        fn quantiles_match_the_sorted_list(mut values in prop::collection::vec(0u64..1 << 20, 1..300)) {
            let (mut histogram, mut sums) = (Histogram::EMPTY, Sums::new());
            values.iter().for_each(|nanos| histogram.add(bucket(*nanos as i64)));
            sums.add(&histogram);
            values.sort_unstable();
            let shares = [0.5, 0.9, 0.99, 0.999];
            let (least, most) = (values[0] as i64, values[values.len() - 1] as i64);
            for (share, found) in shares.into_iter().zip(sums.quantiles(shares, (least, most))) {
                let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
                let middle = middle(bucket(values[rank - 1] as i64)) as i64;
                prop_assert_eq!(found, Some(middle.clamp(least, most)));
            }
        }
    }

    #[test]
    fn only_extremes_are_exact_beyond_the_buckets() {
        assert_eq!(Sums::new().quantiles([0.5, 0.9], (0, 0)), [None, None]);
        let (mut histogram, mut sums) = (Histogram::EMPTY, Sums::new());
        [-5_000_000, 1000, 9_000_000_000].into_iter().for_each(|nanos| histogram.add(bucket(nanos)));
        sums.add(&histogram);
        let found = sums.quantiles([0.3, 0.6, 1.0], (-5_000_000, 9_000_000_000));
        assert_eq!(found, [None, Some(middle(bucket(1000)) as i64), Some(9_000_000_000)]);
    }
}
