//! Statistics of repeated measurements: of MRR (ten trials at the maximum load), of latencies and bursts.

/// Statistics of values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Number of values.
    pub count: usize,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub least: f64,
    /// Maximum.
    pub greatest: f64,
    /// Standard deviation of the sample; 0 for a single value.
    pub deviation: f64,
}

impl Spread {
    /// Returns the statistics of these values; `None` if empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Spread { count, mean, least, greatest, deviation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_mean_and_a_deviation() {
        let spread = Spread::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((spread.mean, spread.least, spread.greatest, spread.count), (5.0, 2.0, 9.0, 8));
        assert!((spread.deviation - (32.0f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((Spread::of(&[]), Spread::of(&[3.0]).unwrap().deviation), (None, 0.0));
    }
}
