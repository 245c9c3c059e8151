//! Result of a search for a goal.

use crate::chain::Target;
use crate::classify::{Class, conditional_throughput};
use crate::goal::Goal;
use crate::grid::Grid;
use crate::search::bounds;
use crate::trial::Trial;
use std::collections::BTreeMap;

/// Result for a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound, in frames per second: the result.
    pub lower: Option<f64>,
    /// The relevant upper bound.
    pub upper: Option<f64>,
    /// Rate that the lower bound forwards, by the trials that the goal does not excuse.
    pub throughput: Option<f64>,
    /// Validity of the result.
    pub verdict: Verdict,
}

/// Validity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both bounds were found, and are close enough.
    Regular,
    /// The maximum load passed: the device may forward more than was offered.
    NoUpper,
    /// The minimum load failed.
    NoLower,
    /// A bound is based on trials in which the tester was at fault.
    Tester,
    /// The search was stopped before.
    Unfinished,
}

impl Verdict {
    /// Returns the name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Regular => "regular",
            Verdict::NoUpper => "no upper bound",
            Verdict::NoLower => "no lower bound",
            Verdict::Tester => "limited by the tester",
            Verdict::Unfinished => "unfinished",
        }
    }

    /// Returns a description for users.
    pub fn sentence(self) -> &'static str {
        match self {
            Verdict::Regular => "both bounds were found",
            Verdict::NoUpper => "the maximum load passed: the device may forward more than was offered",
            Verdict::NoLower => "the minimum load failed: the rate is below the limits",
            Verdict::Tester => {
                "the tester sent too little or too late, or lost packets itself: the rate of the device is unknown"
            }
            Verdict::Unfinished => "the search ended before its bounds were close enough",
        }
    }
}

/// Evaluates the trials for the final target.
pub(crate) fn found(goal: &Goal, targets: &[Target], grid: &Grid, trials: &BTreeMap<usize, Vec<Trial>>) -> GoalResult {
    let Some(last) = targets.last() else { unreachable!("a chain has a final target") };
    let now = bounds(&last.rule, trials);
    let verdict = match (now.lower, now.upper) {
        (_, Some(upper)) if is_tester_limited(last, &trials[&upper], Class::Upper) => Verdict::Tester,
        (Some(lower), _) if is_tester_limited(last, &trials[&lower], Class::Lower) => Verdict::Tester,
        (Some(lower), Some(upper)) if upper - lower <= last.width => Verdict::Regular,
        (Some(lower), None) if lower == grid.top() => Verdict::NoUpper,
        (None, Some(0)) => Verdict::NoLower,
        _ => Verdict::Unfinished,
    };
    let throughput = now.lower.map(|place| conditional_throughput(&last.rule, grid.load(place), &trials[&place]));
    let load = |place: usize| grid.load(place);
    GoalResult { goal: goal.clone(), lower: now.lower.map(load), upper: now.upper.map(load), throughput, verdict }
}

/// Returns whether a load is such a bound only by trials in which the tester was at fault.
fn is_tester_limited(target: &Target, trials: &[Trial], class: Class) -> bool {
    let sound = trials.iter().filter(|trial| !trial.is_limited);
    trials.iter().any(|trial| trial.is_limited) && target.rule.class(sound) != class
}
