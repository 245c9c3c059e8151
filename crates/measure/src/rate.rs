//! Frame loss rate by load: RFC 2544, section 26.3. From the maximum load down, in equal steps, until two consecutive
//! trials have no loss.

use crate::trial::TrialRequest;

/// Consecutive trials without loss that end it.
const CLEAN: usize = 2;

/// A series from the maximum load down.
#[derive(Clone, Debug)]
pub struct LossRate {
    greatest: f64,
    duration: f64,
    steps: u32,
    /// Load relative to the maximum, and its loss ratio.
    rows: Vec<(f64, f64)>,
}

impl LossRate {
    /// Creates a series of `steps` steps from the maximum to 0: at least 10, as in the section.
    pub fn new(greatest: f64, duration: f64, steps: u32) -> Self {
        LossRate { greatest, duration, steps: steps.max(10), rows: Vec::new() }
    }

    /// Returns the next trial; `None` when done.
    pub fn next_trial(&self) -> Option<TrialRequest> {
        let is_clean = self.rows.len() >= CLEAN && self.rows.iter().rev().take(CLEAN).all(|(_, loss)| *loss == 0.0);
        let left = self.steps.saturating_sub(self.rows.len() as u32);
        (left > 0 && !is_clean).then(|| TrialRequest {
            load: self.greatest * f64::from(left) / f64::from(self.steps),
            duration: self.duration,
        })
    }

    /// Adds the loss ratio of the trial.
    pub fn add(&mut self, loss: f64) {
        if let Some(ask) = self.next_trial() {
            self.rows.push((ask.load / self.greatest, loss));
        }
    }

    /// Returns the results, the maximum load first.
    pub fn rows(&self) -> &[(f64, f64)] {
        &self.rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(limit: f64) -> Vec<(f64, f64)> {
        let mut method = LossRate::new(1e6, 60.0, 10);
        while let Some(ask) = method.next_trial() {
            method.add((1.0 - limit / ask.load).max(0.0));
        }
        method.rows().to_vec()
    }

    #[test]
    fn rate_decreases_until_two_trials_are_clean() {
        let rows = run(0.65e6);
        let loads: Vec<f64> = rows.iter().map(|row| (row.0 * 10.0).round()).collect();
        assert_eq!(loads, [10.0, 9.0, 8.0, 7.0, 6.0, 5.0]);
        assert!((rows[0].1 - 0.35).abs() < 1e-9 && rows[4].1 == 0.0 && rows[5].1 == 0.0);
        assert_eq!((run(1e7).len(), run(0.0).len()), (2, 10), "a fine device, and a broken one");
    }
}
