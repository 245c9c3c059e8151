//! How long a search takes, said before it begins: it is run against devices that are simulated, with their limits all over the range.

use crate::goal::{Goal, Wrong};
use crate::grid::Limits;
use crate::search::Search;
use crate::trial::Trial;

/// Devices that are tried: their limits lie at equal ratios.
const DEVICES: usize = 16;
/// A search of more trials is not looked through to its end.
const MANY: u64 = 100_000;

/// Trials and seconds of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// How many trials on most devices.
    pub trials: u64,
    /// How long, in seconds, without interruptions between trials.
    pub seconds: f64,
    /// The same on the device that takes longest, of those without noise.
    pub most_trials: u64,
    /// And how long there.
    pub most_seconds: f64,
}

/// How long a search for these goals takes, where each trial takes so many seconds more than its duration.
pub fn estimate(limits: Limits, goals: &[Goal], between: f64) -> Result<Estimate, Wrong> {
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
