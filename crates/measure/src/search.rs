//! One search for several goals: selects the next load.

use crate::chain::{Target, chain};
use crate::classify::{Class, Rule};
use crate::goal::{Goal, GoalError};
use crate::grid::{Grid, Limits};
use crate::outcome::{GoalResult, found};
use crate::trial::{Trial, TrialRequest};
use std::collections::BTreeMap;

/// A search: request the next trial, add its result, until no trial is left.
#[derive(Clone, Debug)]
pub struct Search {
    grid: Grid,
    aims: Vec<GoalProgress>,
    trials: BTreeMap<usize, Vec<Trial>>,
    /// Initial trials, and their results.
    begun: Vec<Trial>,
    /// Index of the load that was requested last.
    asked: Option<usize>,
}

/// Progress towards a goal.
#[derive(Clone, Debug)]
struct GoalProgress {
    goal: Goal,
    targets: Vec<Target>,
    /// Current target. The last one is never completed: trials for another goal may contradict its result.
    at: usize,
    /// Size of the last steps outwards, down and up, and their loads, until these are decided.
    reach: [Option<(usize, usize)>; 2],
}

/// Indices of the relevant lower and upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The greatest lower bound below the upper one.
    pub lower: Option<usize>,
    /// The least upper bound.
    pub upper: Option<usize>,
}

/// A trial requested by a goal.
struct TrialProposal {
    place: usize,
    duration: f64,
    width: usize,
}

/// Number of initial trials, besides those requested by goals.
const BEGINNING: usize = 3;

impl Search {
    /// Creates a search for these goals between these loads.
    pub fn new(limits: Limits, goals: &[Goal]) -> Result<Self, GoalError> {
        if goals.is_empty() {
            return Err(GoalError("no goal; at least one is required".to_owned()));
        }
        goals.iter().try_for_each(Goal::check)?;
        let grid = Grid::new(limits, goals)?;
        let aim =
            |goal: &Goal| GoalProgress { goal: goal.clone(), targets: chain(goal, &grid), at: 0, reach: [None; 2] };
        let aims = goals.iter().map(aim).collect();
        Ok(Search { grid, aims, trials: BTreeMap::new(), begun: Vec::new(), asked: None })
    }

    /// Returns the next trial; `None` once all goals are done. Repeated calls before [`Search::add`] return the same
    /// one.
    pub fn next_trial(&mut self) -> Option<TrialRequest> {
        let (place, duration) = match self.initial_trial() {
            Some(begin) => begin,
            None => {
                let Search { grid, aims, trials, .. } = self;
                let wanted = aims.iter_mut().filter_map(|aim| aim.wants(grid, trials));
                // An upper bound at a low load makes higher ones irrelevant; at the same load the longer trial counts
                // for both.
                let key = |wanted: &TrialProposal| {
                    (wanted.place, std::cmp::Reverse((wanted.duration * 1e6) as u64), std::cmp::Reverse(wanted.width))
                };
                let next = wanted.min_by_key(key)?;
                (next.place, next.duration)
            }
        };
        self.asked = Some(place);
        Some(TrialRequest { load: self.grid.load(place), duration })
    }

    /// Adds the result of the trial that was requested last.
    pub fn add(&mut self, trial: Trial) {
        let Some(place) = self.asked.take() else { return };
        let mut trial = trial;
        if !(0.0..=1.0).contains(&trial.loss) {
            // An invalid loss ratio is counted as total loss.
            trial.loss = 1.0;
        }
        if !(trial.effective.is_finite() && trial.effective > 0.0) {
            trial.effective = trial.duration;
        }
        if self.is_initial() {
            self.begun.push(trial);
        }
        self.trials.entry(place).or_default().push(trial);
    }

    /// Returns the current result of each goal, in their order.
    pub fn found(&self) -> Vec<GoalResult> {
        self.aims.iter().map(|aim| found(&aim.goal, &aim.targets, &self.grid, &self.trials)).collect()
    }

    /// Returns whether no trial is left.
    pub fn is_done(&self) -> bool {
        !self.is_initial() && self.aims.iter().all(|aim| aim.is_done(self.grid.top(), &self.trials))
    }

    /// Returns the maximum number of trials, for any results.
    pub fn most_trials(&self) -> u64 {
        let loads = self.grid.top() as u64 + 1;
        let targets = self.aims.iter().flat_map(|aim| &aim.targets);
        let of_load: u64 = targets.map(|target| (target.rule.sum / target.duration).ceil() as u64 + 1).sum();
        loads.saturating_mul(of_load).saturating_add(BEGINNING as u64)
    }

    fn is_initial(&self) -> bool {
        self.begun.len() < BEGINNING && !self.begun.first().is_some_and(|first| first.loss <= self.least_loss())
    }

    fn least_loss(&self) -> f64 {
        self.aims.iter().map(|aim| aim.goal.loss_ratio).fold(f64::INFINITY, f64::min)
    }

    /// Returns the initial trial: the maximum load, then the rate that it forwards, then the rate that this forwards,
    /// or a width above.
    fn initial_trial(&self) -> Option<(usize, f64)> {
        if !self.is_initial() {
            return None;
        }
        let first = self.aims.iter().map(|aim| &aim.targets[0]);
        let duration = first.clone().map(|target| target.duration).fold(f64::INFINITY, f64::min);
        let width = first.map(|target| target.width).min().unwrap_or(1);
        let allowed = 1.0 - self.least_loss();
        let grid = &self.grid;
        let place = match self.begun.as_slice() {
            [] => grid.top(),
            [first] => grid.below(first.forwarded() / allowed),
            [_, second, ..] if second.loss > self.least_loss() => grid.below(second.forwarded() / allowed),
            [_, second, ..] => (grid.below(second.load) + width).min(grid.top()),
        };
        Some((place, duration))
    }
}

/// Returns the bounds for a rule, from the trials.
pub(crate) fn bounds(rule: &Rule, trials: &BTreeMap<usize, Vec<Trial>>) -> Bounds {
    let mut bounds = Bounds::default();
    for (place, trials) in trials {
        match rule.class(trials) {
            Class::Lower => bounds.lower = Some(*place),
            Class::Upper => {
                bounds.upper = Some(*place);
                break;
            }
            Class::Undecided => {}
        }
    }
    bounds
}

impl GoalProgress {
    /// Returns the trial that it needs, if it is not done.
    fn wants(&mut self, grid: &Grid, trials: &BTreeMap<usize, Vec<Trial>>) -> Option<TrialProposal> {
        loop {
            let target = *self.targets.get(self.at)?;
            let now = bounds(&target.rule, trials);
            if is_bounded(&target, now, grid.top()) {
                if self.at + 1 == self.targets.len() {
                    return None;
                }
                self.at += 1;
                self.reach = [None; 2];
                continue;
            }
            let before =
                self.at.checked_sub(1).map(|at| (self.targets[at].width, bounds(&self.targets[at].rule, trials)));
            let place = self.place(&target, now, before, grid.top());
            return Some(TrialProposal { place, duration: target.duration, width: target.width });
        }
    }

    fn is_done(&self, top: usize, trials: &BTreeMap<usize, Vec<Trial>>) -> bool {
        let target = &self.targets[self.at];
        self.at + 1 == self.targets.len() && is_bounded(target, bounds(&target.rule, trials), top)
    }

    /// Returns the next load: between the bounds of the previous target, then at them, then outwards from the known
    /// bound, then bisecting.
    fn place(&mut self, target: &Target, now: Bounds, before: Option<(usize, Bounds)>, top: usize) -> usize {
        let is_between =
            |place: usize| now.lower.is_none_or(|lower| lower < place) && now.upper.is_none_or(|upper| place < upper);
        if let Some((_, Bounds { lower: Some(lower), upper: Some(upper) })) = before {
            let (width, middle) = (upper - lower, lower + target.width);
            let is_open = now.lower.is_none() || now.upper.is_none();
            if is_open && width > target.width && width <= 2 * target.width && is_between(middle) {
                return middle;
            }
        }
        let before = before.map(|(_, bounds)| bounds).unwrap_or_default();
        if let Some(place) = [before.lower, before.upper].into_iter().flatten().find(|place| is_between(*place)) {
            return place;
        }
        match now {
            Bounds { lower: Some(lower), upper: Some(upper) } => lower + part(upper - lower, target.width),
            Bounds { lower: None, upper: Some(upper) } => self.reach(0, target, upper, top),
            Bounds { lower: Some(lower), upper: None } => self.reach(1, target, lower, top),
            Bounds { lower: None, upper: None } => top,
        }
    }

    /// Steps outwards from a bound, twice as far each time; the same load until it is decided, which moves the bound.
    fn reach(&mut self, way: usize, target: &Target, from: usize, top: usize) -> usize {
        let step = match self.reach[way] {
            Some((bound, step)) if bound == from => step,
            Some((_, step)) => step.saturating_mul(2),
            None => target.width,
        };
        self.reach[way] = Some((from, step));
        // Keeps at least a width from the limits.
        match way {
            0 => Some(from.saturating_sub(step)).filter(|place| *place >= target.width).unwrap_or(0),
            _ => Some(from.saturating_add(step)).filter(|place| place + target.width <= top).unwrap_or(top),
        }
    }
}

/// Returns whether a target has its bounds, or cannot get them.
fn is_bounded(target: &Target, bounds: Bounds, top: usize) -> bool {
    match bounds {
        Bounds { lower: Some(lower), upper: Some(upper) } => upper - lower <= target.width,
        Bounds { lower: None, upper: Some(upper) } => upper == 0,
        Bounds { lower: Some(lower), upper: None } => lower == top,
        Bounds { lower: None, upper: None } => false,
    }
}

/// Returns the distance from the lower bound to try: so that one of the remaining sides is a power of two of widths.
fn part(distance: usize, width: usize) -> usize {
    let mut power = width;
    while power.saturating_mul(2) < distance {
        power *= 2;
    }
    power
}
