//! Estimate of a search's duration, before it starts: it is run against simulated devices with limits over the whole
//! range.

use crate::goal::{Goal, GoalError};
use crate::grid::Limits;
use crate::search::Search;
use crate::trial::Trial;

/// Simulated devices: their limits are at equal ratios.
const DEVICES: usize = 16;
/// A search with more trials is not simulated to its end.
const MANY: u64 = 100_000;

/// Estimated trials and duration of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Number of trials on most devices.
    pub trials: u64,
    /// Duration in seconds, without pauses between trials.
    pub seconds: f64,
    /// Number of trials on the slowest device without noise.
    pub most_trials: u64,
    /// Duration there in seconds.
    pub most_seconds: f64,
}

/// Estimates a search for these goals, if each trial takes `between` seconds more than its duration.
pub fn estimate(limits: Limits, goals: &[Goal], between: f64) -> Result<Estimate, GoalError> {
    let mut runs = Vec::new();
    for device in 0..DEVICES {
        let share = (device as f64 + 0.37) / DEVICES as f64;
        let limit = limits.least * (limits.greatest / limits.least).powf(share);
        let mut search = Search::new(limits, goals)?;
        let (mut trials, mut seconds) = (0, 0.0);
        while let Some(ask) = search.next_trial() {
            search.add(Trial::new(ask, (1.0 - limit / ask.load).max(0.0)));
            trials += 1;
            seconds += ask.duration + between;
            if trials > MANY {
                break;
            }
        }
        runs.push((trials, seconds));
    }
    runs.sort_by(|one, other| one.1.total_cmp(&other.1));
    let (trials, seconds) = runs[DEVICES / 2];
    let (most_trials, most_seconds) = runs[DEVICES - 1];
    Ok(Estimate { trials, seconds, most_trials, most_seconds })
}
