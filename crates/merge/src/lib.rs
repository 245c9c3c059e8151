//! Many lanes, one stream in time order.
//!
//! # The order rule
//!
//! A lane is one input of the merge: one queue of one port. The *rank* of a frame is (time, lane), where
//! time is the greatest time its lane has shown so far: a frame that is older than one before it in the
//! same lane stays behind that one. The head of a lane is emitted only if it ranks below (bound, lane) of
//! every other lane, where bound is that lane's head or, if it has none, the time before which the lane is
//! complete (its horizon). So an idle lane never holds the others up for longer than its horizon lags, and
//! frames of equal time come out in the order of the lanes.
//!
//! A frame older than what was already emitted is *late*: it is emitted at once, flagged and counted, and
//! its time is never rewritten. Output times do not go back except in frames flagged late. The output
//! equals a stable sort of all frames by rank.
//!
//! # A clock above it
//!
//! Where lanes bring frames of now, whoever merges has a clock, and no honest frame is later than that: the *ceiling*
//! ([`Merge::set_ceiling`]). A frame above it is *ahead*: its time says nothing about its place. It is emitted as soon
//! as it is the head of its lane, the oldest first where there are several, flagged late and counted; neither its lane
//! nor what was emitted goes by its time. So one frame of a wrong time holds up nobody.
//!
//! When the ceiling sinks below what lanes have shown, the clock was set back, and the merge is *rebased*: it forgets what was
//! above, since frames of the new time would otherwise rank behind it until the clock is there again. So output times go
//! back once where the clock did. Without a ceiling (files) nothing of this happens.
//!
//! # How
//!
//! `rule` is the rule as it is read, a run of one lane at a time. Where lanes alternate, [`Merge::order`] takes
//! `chunks` instead: what a lane shows becomes ascending numbers (`keys`: time, lane and index in one), which are merged
//! without a branch a frame, by vectors where the processor has them (`kernel`, the one unsafe file).
//!
//! A round works on whole bursts and yields runs of one lane, so that virtual calls are paid per round; or picks, a frame each.
//! Picks come faster. Where lanes bring runs, the rule emits them whole. Where they alternate, up to 512 frames of each lane become
//! ascending numbers (time since a base, lane, index, late bit: one `u64`):
//!
//! ```text
//!  lane 0   shows 1 3 4 8   ┐                      ┐ merged in pairs by a bitonic
//!  lane 1   shows 2 5 9     ├ below 6: 1 3 4 | 2 5 ┘ network, 16 keys a step   ──> 1 2 3 4 5
//!  lane 2   is complete to 6┘
//! ```
//!
//! There is no branch a frame. Which way is taken depends on how often the lane changed lately. Whether a frame is late is known
//! before the merge: it is older than the greatest time before it in its lane, or than what was emitted. The portable form is the
//! oracle of the vectors, the rule that of both. The tests are 100,000 seeded schedules, and planted bugs that the same check must
//! catch. A file that is out of order within itself stays so but for what the rule says.
#![deny(unsafe_code)]

mod chunks;
mod fast;
mod kernel;
mod keys;
mod rule;

use crate::chunks::Chunks;
use crate::fast::Pace;
use crate::rule::Lane;
use linerate_burst::{Desc, Horizon, Nanos, Pick};

/// What one lane has ready.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Frames not emitted yet, as the lane showed them.
    pub descs: &'a [Desc],
    /// How far the lane is complete behind them.
    pub horizon: Horizon,
}

impl<'a> Input<'a> {
    /// The part of it that an order can name; the horizon of that part is the first frame left out.
    #[inline]
    fn shown(&self) -> Input<'a> {
        match self.descs.get(Pick::MAX_FRAMES) {
            None => *self,
            Some(next) => Input { descs: &self.descs[..Pick::MAX_FRAMES], horizon: Horizon::At(next.time) },
        }
    }
}

/// Frames of one lane that follow each other in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which lane.
    pub lane: usize,
    /// Index of the first frame in the lane's input.
    pub first: usize,
    /// How many frames.
    pub count: usize,
    /// Whether these frames are older than what was emitted before them.
    pub late: bool,
}

/// The state of a merge between rounds.
#[derive(Clone, Debug)]
pub struct Merge {
    lanes: Vec<Lane>,
    /// The greatest time emitted so far.
    emitted: Nanos,
    /// Above every time that can be right.
    ceiling: Nanos,
    /// Whether a head may be above it.
    ahead_waits: bool,
    late: u64,
    ahead: u64,
    frames: u64,
    pace: Pace,
    chunks: Chunks,
}

impl Merge {
    /// A merge of `lanes` inputs.
    ///
    /// # Panics
    /// If there are more than [`Pick::MAX_LANES`].
    pub fn new(lanes: usize) -> Self {
        assert!(lanes <= Pick::MAX_LANES, "{lanes} lanes, a merge takes {} at most", Pick::MAX_LANES);
        Merge {
            lanes: vec![Lane::default(); lanes],
            emitted: Nanos::ZERO,
            ceiling: Nanos::MAX,
            ahead_waits: false,
            late: 0,
            ahead: 0,
            frames: 0,
            pace: Pace::default(),
            chunks: Chunks::new(lanes),
        }
    }

    /// From now on no frame that is later than `ceiling` is of a right time; [`Nanos::MAX`] for any. What was above it is
    /// forgotten.
    pub fn set_ceiling(&mut self, ceiling: Nanos) {
        self.ceiling = ceiling;
        // It is never below what any lane has shown.
        if self.emitted > ceiling {
            self.rebase();
        }
    }

    /// Appends to `runs` everything the rule allows to be emitted now, in order. The caller consumes from
    /// each lane as many frames as its runs hold before the next round. This is the rule as it is read;
    /// [`Merge::order`] does the same faster.
    ///
    /// # Panics
    /// If the number of inputs is not that of the lanes.
    pub fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        self.start(inputs);
        while let Some((winner, limit)) = self.next(inputs, runs) {
            self.emit(winner, limit, &inputs[winner], runs);
        }
    }

    /// Appends to `picks` everything the rule allows to be emitted now, in order: what [`Merge::round`] would, a frame at a
    /// time. The caller consumes [`Merge::taken`] frames from each lane before the next round. Of a lane
    /// that shows more than [`Pick::MAX_FRAMES`] frames, only as many are looked at.
    ///
    /// # Panics
    /// If the number of inputs is not that of the lanes.
    pub fn order(&mut self, inputs: &[Input<'_>], picks: &mut Vec<Pick>) {
        self.start(inputs);
        self.fast(inputs, picks);
    }

    /// Frames of `lane` emitted in the last round.
    ///
    /// # Panics
    /// If there is no such lane.
    pub fn taken(&self, lane: usize) -> usize {
        self.lanes[lane].done
    }

    /// Frames emitted so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// How many of them were late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// How many of those were ahead of the ceiling.
    pub fn ahead(&self) -> u64 {
        self.ahead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descs(times: &[u64]) -> Vec<Desc> {
        times.iter().map(|time| Desc::new(Nanos(*time), 0, 0)).collect()
    }

    fn order(inputs: &[(&[u64], Horizon)]) -> Vec<(usize, usize, bool)> {
        let held: Vec<_> = inputs.iter().map(|(times, horizon)| (descs(times), *horizon)).collect();
        let inputs: Vec<_> = held.iter().map(|(descs, horizon)| Input { descs, horizon: *horizon }).collect();
        let mut runs = Vec::new();
        Merge::new(inputs.len()).round(&inputs, &mut runs);
        runs.iter().flat_map(|run| (0..run.count).map(|index| (run.lane, run.first + index, run.late))).collect()
    }

    #[test]
    fn equal_times_come_out_in_the_order_of_the_lanes() {
        let out = order(&[(&[1, 5], Horizon::Ended), (&[1, 5], Horizon::Ended)]);
        assert_eq!(out, [(0, 0, false), (1, 0, false), (0, 1, false), (1, 1, false)]);
    }

    #[test]
    fn an_idle_lane_holds_back_what_it_could_still_precede() {
        // Lane 0 may still bring a frame of time 5, which would go before lane 1's.
        let out = order(&[(&[], Horizon::At(Nanos(5))), (&[4, 5, 6], Horizon::Ended)]);
        assert_eq!(out, [(1, 0, false)]);
        // Lane 1's could not go before lane 0's.
        let out = order(&[(&[4, 5, 6], Horizon::Ended), (&[], Horizon::At(Nanos(5)))]);
        assert_eq!(out, [(0, 0, false), (0, 1, false)]);
    }

    #[test]
    fn a_frame_older_than_its_predecessor_stays_behind_it_and_is_late() {
        let out = order(&[(&[3, 1, 4], Horizon::Ended), (&[2, 3], Horizon::Ended)]);
        assert_eq!(out, [(1, 0, false), (0, 0, false), (0, 1, true), (1, 1, false), (0, 2, false)]);
    }

    #[test]
    fn the_end_of_time_comes_out_too() {
        let out = order(&[(&[u64::MAX], Horizon::Ended), (&[u64::MAX], Horizon::Ended)]);
        assert_eq!(out, [(0, 0, false), (1, 0, false)]);
    }

    #[test]
    fn a_frame_that_went_back_does_not_take_its_lane_back() {
        let mut merge = Merge::new(2);
        let (held, promised) = (descs(&[7, 6]), descs(&[7]));
        let idle = |time| Input { descs: &[], horizon: Horizon::At(Nanos(time)) };
        let mut runs = Vec::new();
        merge.round(&[idle(9), Input { descs: &held, horizon: Horizon::At(Nanos(5)) }], &mut runs);
        assert_eq!(runs.iter().map(|run| run.count).sum::<usize>(), 2);
        // Lane 0 breaks its promise; lane 1 is complete up to 7 whatever its horizon says.
        runs.clear();
        merge.round(&[Input { descs: &promised, horizon: Horizon::Ended }, idle(5)], &mut runs);
        assert_eq!(runs, [Run { lane: 0, first: 0, count: 1, late: false }]);
    }
}
