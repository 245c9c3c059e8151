//! Intermediate targets of a goal, which are wider and shorter: loads far from the result are not measured for long.

use crate::classify::Rule;
use crate::goal::Goal;
use crate::grid::Grid;

/// Targets before the final one.
const PRECEDING: usize = 2;

/// A goal, or an intermediate target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// Rule for judging loads.
    pub rule: Rule,
    /// Maximum distance of its bounds, in steps of the grid.
    pub width: usize,
    /// Duration of its trials.
    pub duration: f64,
}

/// Returns the targets of a goal, the final one last: each with half the width of the previous one, and durations that
/// grow by equal ratios from the initial one to the sum of the goal.
pub fn chain(goal: &Goal, grid: &Grid) -> Vec<Target> {
    let last = Target { rule: Rule::from(goal), width: grid.steps(goal.width), duration: goal.final_duration };
    let first = goal.initial_duration.min(goal.final_duration);
    let target = |number: usize| {
        let sum = first * (goal.duration_sum / first).powf(number as f64 / PRECEDING as f64);
        let duration = goal.final_duration.min(sum);
        let width = last.width << (PRECEDING - number);
        Target { rule: Rule { full: duration, sum, ..last.rule }, width: width.min(grid.top().max(1)), duration }
    };
    (0..PRECEDING).map(target).chain([last]).collect()
}
