//! What a search has found for a goal.

use crate::chain::Target;
use crate::classify::{Class, conditional_throughput};
use crate::goal::Goal;
use crate::grid::Grid;
use crate::search::bounds;
use crate::trial::Trial;
use std::collections::BTreeMap;

/// What is known of a goal.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The goal.
    pub goal: Goal,
    /// The relevant lower bound, in frames a second: the result.
    pub lower: Option<f64>,
    /// The relevant upper bound.
    pub upper: Option<f64>,
    /// What the lower bound forwards, by the trials that the goal does not excuse.
    pub throughput: Option<f64>,
    /// Whether that is a result.
    pub verdict: Verdict,
}

/// Whether bounds are a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both bounds are there, and near enough.
    Regular,
    /// The greatest load holds: the device may do more than was offered.
    NoUpper,
    /// The least load does not hold.
    NoLower,
    /// A bound rests on trials in which the tester was at fault.
    Tester,
    /// The search was ended before.
    Unfinished,
}

impl Verdict {
    /// For documents.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Regular => "regular",
            Verdict::NoUpper => "no upper bound",
            Verdict::NoLower => "no lower bound",
            Verdict::Tester => "limited by the tester",
            Verdict::Unfinished => "unfinished",
        }
    }

    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            Verdict::Regular => "both bounds were found",
            Verdict::NoUpper => "the greatest load held: the device may do more than was offered",
            Verdict::NoLower => "the least load did not hold: there is no such rate within the limits",
            Verdict::Tester => {
                "the tester sent too little or too late, or lost packets itself: what the device does is not known"
            }
            Verdict::Unfinished => "the search ended before its bounds were near enough",
        }
    }
}

/// What the trials say for the final target.
pub(crate) fn found(goal: &Goal, targets: &[Target], grid: &Grid, trials: &BTreeMap<usize, Vec<Trial>>) -> Found {
    let Some(last) = targets.last() else { unreachable!("a chain has a final target") };
    let now = bounds(&last.rule, trials);
    let verdict = match (now.lower, now.upper) {
        (_, Some(upper)) if is_testers(last, &trials[&upper], Class::Upper) => Verdict::Tester,
        (Some(lower), _) if is_testers(last, &trials[&lower], Class::Lower) => Verdict::Tester,
        (Some(lower), Some(upper)) if upper - lower <= last.width => Verdict::Regular,
        (Some(lower), None) if lower == grid.top() => Verdict::NoUpper,
        (None, Some(0)) => Verdict::NoLower,
        _ => Verdict::Unfinished,
    };
    let throughput = now.lower.map(|place| conditional_throughput(&last.rule, grid.load(place), &trials[&place]));
    let load = |place: usize| grid.load(place);
    Found { goal: goal.clone(), lower: now.lower.map(load), upper: now.upper.map(load), throughput, verdict }
}

/// Whether a load is such a bound only by trials in which the tester was at fault.
fn is_testers(target: &Target, trials: &[Trial], class: Class) -> bool {
    let sound = trials.iter().filter(|trial| !trial.is_limited);
    trials.iter().any(|trial| trial.is_limited) && target.rule.class(sound) != class
}
