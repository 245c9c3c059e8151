//! Grid of loads: equal ratios between minimum and maximum, so fine that the width of each goal is an integer number of
//! steps.

use crate::goal::{Goal, GoalError};

/// Steps are not wider than a width, and an integer number of them makes at least this part of it.
const EXACT: f64 = 0.99;
/// Maximum subdivision: widths that fit none of the grids are made a little smaller.
const FINEST: usize = 64;
/// Maximum number of points.
const MOST: f64 = 1e8;

/// Limits of the search, in frames per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Minimum load: at least some frames in the shortest trial.
    pub least: f64,
    /// Maximum load that the tester can offer.
    pub greatest: f64,
}

/// Loads, indexed from 0 to [`Grid::top`].
#[derive(Clone, Debug)]
pub struct Grid {
    limits: Limits,
    top: usize,
}

impl Limits {
    /// Returns the first error, if any.
    pub fn check(&self) -> Result<(), GoalError> {
        let Limits { least, greatest } = *self;
        if !(least.is_finite() && greatest.is_finite() && least > 0.0 && greatest > least) {
            let text = format!("invalid rates: the lowest, {least} packets/s, is not below the highest, {greatest}");
            return Err(GoalError(text));
        }
        Ok(())
    }
}

/// Returns the distance of the bounds of a width, as a logarithm.
fn logarithm(width: f64) -> f64 {
    -(1.0 - width).ln()
}

impl Grid {
    /// Creates the coarsest grid for these goals.
    pub fn new(limits: Limits, goals: &[Goal]) -> Result<Self, GoalError> {
        limits.check()?;
        let span = (limits.greatest / limits.least).ln();
        let widths: Vec<f64> = goals.iter().map(|goal| logarithm(goal.width)).collect();
        let narrowest = widths.iter().copied().fold(f64::INFINITY, f64::min);
        let coarsest = (span / narrowest).ceil().max(1.0);
        if coarsest * FINEST as f64 > MOST {
            return Err(GoalError("widths too small for the load limits".to_owned()));
        }
        let fits = |top: usize| {
            let step = span / top as f64;
            widths.iter().all(|width| (width / step * (1.0 + 1e-12)).floor() * step >= EXACT * width.min(span))
        };
        let coarsest = coarsest as usize;
        let top = (coarsest..=coarsest.saturating_mul(FINEST)).take(1 << 20).find(|top| fits(*top));
        Ok(Grid { limits, top: top.unwrap_or(coarsest * FINEST) })
    }

    /// Returns the index of the maximum load.
    pub fn top(&self) -> usize {
        self.top
    }

    /// Returns the load at an index.
    pub fn load(&self, place: usize) -> f64 {
        let Limits { least, greatest } = self.limits;
        match place {
            0 => least,
            place if place >= self.top => greatest,
            place => least * (greatest / least).powf(place as f64 / self.top as f64),
        }
    }

    /// Returns the greatest index whose load is at most `load`; 0 for loads below all.
    pub fn below(&self, load: f64) -> usize {
        let Limits { least, greatest } = self.limits;
        if load <= least || !load.is_finite() {
            return 0;
        }
        let place = (load / least).ln() / (greatest / least).ln() * self.top as f64;
        ((place + 1e-9).floor() as usize).min(self.top)
    }

    /// Returns the number of steps of this width, at least one.
    pub fn steps(&self, width: f64) -> usize {
        let step = (self.limits.greatest / self.limits.least).ln() / self.top as f64;
        ((logarithm(width) / step * (1.0 + 1e-12)).floor() as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn loads_rise_within_their_limits_and_widths_are_kept(
            least in 1.0f64..1e5, factor in 1.001f64..1e5, widths in prop::collection::vec(0.0005f64..0.2, 1..4),
        ) {
            let limits = Limits { least, greatest: least * factor };
            let goals: Vec<Goal> = widths.iter().map(|width| Goal { width: *width, ..Goal::ndr() }).collect();
            let grid = Grid::new(limits, &goals).unwrap();
            prop_assert_eq!(grid.load(0), limits.least);
            prop_assert_eq!(grid.load(grid.top()), limits.greatest);
            for goal in &goals {
                let steps = grid.steps(goal.width).min(grid.top());
                for place in [0, (grid.top() - steps) / 2, grid.top() - steps] {
                    let width = 1.0 - grid.load(place) / grid.load(place + steps);
                    prop_assert!(width <= goal.width * (1.0 + 1e-9), "{width} of {}", goal.width);
                }
            }
            for place in [0, grid.top() / 3, grid.top()] {
                prop_assert_eq!(grid.below(grid.load(place)), place);
            }
        }
    }
}
