//! Merges many lanes into one stream in time order.
//!
//! # The order rule
//!
//! A lane is one input of the merge: one queue of one port. The *rank* of a frame is (time, lane), where time is the
//! greatest time its lane has shown so far: a frame that is older than one before it in the same lane stays after that
//! one. The head of a lane is emitted only if it ranks below (bound, lane) of every other lane, where bound is that
//! lane's head or, if it has none, the lane's horizon (the time before which it is complete). So an idle lane never
//! delays the others for longer than its horizon lags, and frames of equal time are emitted in the order of the lanes.
//!
//! A frame older than one already emitted is *late*: it is emitted at once, flagged and counted, and its time is never
//! rewritten. Output times do not go back except in frames flagged late. The output equals a stable sort of all frames
//! by rank.
//!
//! # The ceiling
//!
//! If lanes bring live frames, the caller has a clock, and no correct timestamp is later than it: the *ceiling*
//! ([`Merge::set_ceiling`]). A frame above it is *ahead*: its time does not determine its position. It is emitted as
//! soon as it is the head of its lane, the oldest first if there are several, flagged late and counted; its time
//! affects neither its lane nor the emitted time. So one frame with a wrong time delays no others.
//!
//! When the ceiling drops below times that lanes have shown, the clock was set back, and the merge is *rebased*: it
//! forgets those times, since frames of the new time would otherwise rank after them until the clock has caught up. So
//! output times go back once when the clock does. Without a ceiling (files) none of this happens.
//!
//! # Implementation
//!
//! `rule` implements the rule literally, a run of one lane at a time. If lanes alternate, [`Merge::order`] uses
//! `chunks` instead: the frames of a lane become ascending numbers (`keys`: time, lane and index in one), which are
//! merged without a branch per frame, by vectors if the processor has them (`kernel`, the only unsafe file).
//!
//! A round works on whole bursts and yields runs of one lane, so that virtual calls are paid per round; or picks, one
//! per frame, which is faster. If lanes bring runs, the rule emits them whole. If they alternate, up to 512 frames of
//! each lane become ascending numbers (time since a base, lane, index, late bit: one `u64`):
//!
//! ```text
//!  lane 0   shows 1 3 4 8   ┐                      ┐ merged in pairs by a bitonic
//!  lane 1   shows 2 5 9     ├ below 6: 1 3 4 | 2 5 ┘ network, 16 keys a step   ──> 1 2 3 4 5
//!  lane 2   is complete to 6┘
//! ```
//!
//! The merge does not branch per frame. The choice depends on how often the lane changed recently. Lateness is known
//! before the merge: a late frame is older than the greatest time before it in its lane, or than the emitted time. The
//! portable form is the oracle of the vectors, the rule that of both. The tests are 100,000 seeded schedules, and
//! planted bugs that the same check must catch. A file that is out of order within itself stays so except as the rule
//! prescribes.
#![deny(unsafe_code)]

mod chunks;
mod fast;
mod kernel;
mod keys;
mod rule;

use crate::chunks::Chunks;
use crate::fast::PathChoice;
use crate::rule::Lane;
use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};

/// The frames that one lane has ready.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Frames not emitted yet, as presented by the lane.
    pub descs: &'a [Desc],
    /// Horizon of the lane after them.
    pub horizon: Horizon,
}

impl<'a> Input<'a> {
    /// Returns the part that an order can name; its horizon is then the first frame omitted.
    #[inline]
    fn shown(&self) -> Input<'a> {
        match self.descs.get(FrameIndex::MAX_FRAMES) {
            None => *self,
            Some(next) => Input { descs: &self.descs[..FrameIndex::MAX_FRAMES], horizon: Horizon::At(next.time) },
        }
    }
}

/// Consecutive frames of one lane in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Lane of the frames.
    pub lane: usize,
    /// Index of the first frame in the lane's input.
    pub first: usize,
    /// Number of frames.
    pub count: usize,
    /// True if the frames are older than one emitted before them.
    pub late: bool,
}

/// The state of a merge between rounds.
#[derive(Clone, Debug)]
pub struct Merge {
    lanes: Vec<Lane>,
    /// Greatest time emitted so far.
    emitted: Nanos,
    /// Greatest time that can be correct.
    ceiling: Nanos,
    /// True if a head may be above it.
    ahead_waits: bool,
    late: u64,
    ahead: u64,
    frames: u64,
    pace: PathChoice,
    chunks: Chunks,
}

impl Merge {
    /// Returns a merge of `lanes` inputs.
    ///
    /// # Panics
    /// If there are more than [`FrameIndex::MAX_LANES`].
    pub fn new(lanes: usize) -> Self {
        assert!(lanes <= FrameIndex::MAX_LANES, "{lanes} lanes exceed the limit of {}", FrameIndex::MAX_LANES);
        Merge {
            lanes: vec![Lane::default(); lanes],
            emitted: Nanos::ZERO,
            ceiling: Nanos::MAX,
            ahead_waits: false,
            late: 0,
            ahead: 0,
            frames: 0,
            pace: PathChoice::default(),
            chunks: Chunks::new(lanes),
        }
    }

    /// Sets the time after which no timestamp is correct; [`Nanos::MAX`] for none. Times above it are forgotten.
    pub fn set_ceiling(&mut self, ceiling: Nanos) {
        self.ceiling = ceiling;
        // `emitted` is never below a time that any lane has shown.
        if self.emitted > ceiling {
            self.rebase();
        }
    }

    /// Appends to `runs` all frames that the rule allows to be emitted now, in order. The caller consumes from each
    /// lane as many frames as its runs hold before the next round. This implements the rule literally; [`Merge::order`]
    /// does the same faster.
    ///
    /// # Panics
    /// If the number of inputs differs from the number of lanes.
    pub fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        self.start(inputs);
        while let Some((winner, limit)) = self.next(inputs, runs) {
            self.emit(winner, limit, &inputs[winner], runs);
        }
    }

    /// Appends to `picks` all frames that the rule allows to be emitted now, in order: those of [`Merge::round`], one
    /// by one. The caller consumes [`Merge::taken`] frames from each lane before the next round. At most
    /// [`FrameIndex::MAX_FRAMES`] frames per lane are considered.
    ///
    /// # Panics
    /// If the number of inputs differs from the number of lanes.
    pub fn order(&mut self, inputs: &[Input<'_>], picks: &mut Vec<FrameIndex>) {
        self.start(inputs);
        self.fast(inputs, picks);
    }

    /// Returns the number of frames of `lane` emitted in the last round.
    ///
    /// # Panics
    /// If the lane does not exist.
    pub fn taken(&self, lane: usize) -> usize {
        self.lanes[lane].done
    }

    /// Returns the number of frames emitted so far.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the number of late ones among them.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of those that were ahead of the ceiling.
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
    fn equal_times_are_emitted_in_lane_order() {
        let out = order(&[(&[1, 5], Horizon::Ended), (&[1, 5], Horizon::Ended)]);
        assert_eq!(out, [(0, 0, false), (1, 0, false), (0, 1, false), (1, 1, false)]);
    }

    #[test]
    fn an_idle_lane_delays_frames_that_it_could_still_precede() {
        // Lane 0 may still bring a frame of time 5, which would go before lane 1's.
        let out = order(&[(&[], Horizon::At(Nanos(5))), (&[4, 5, 6], Horizon::Ended)]);
        assert_eq!(out, [(1, 0, false)]);
        // Lane 1's could not go before lane 0's.
        let out = order(&[(&[4, 5, 6], Horizon::Ended), (&[], Horizon::At(Nanos(5)))]);
        assert_eq!(out, [(0, 0, false), (0, 1, false)]);
    }

    #[test]
    fn out_of_order_frame_keeps_its_place_and_is_late() {
        let out = order(&[(&[3, 1, 4], Horizon::Ended), (&[2, 3], Horizon::Ended)]);
        assert_eq!(out, [(1, 0, false), (0, 0, false), (0, 1, true), (1, 1, false), (0, 2, false)]);
    }

    #[test]
    fn the_greatest_time_is_emitted_too() {
        let out = order(&[(&[u64::MAX], Horizon::Ended), (&[u64::MAX], Horizon::Ended)]);
        assert_eq!(out, [(0, 0, false), (1, 0, false)]);
    }

    #[test]
    fn out_of_order_frame_does_not_move_the_lane_back() {
        let mut merge = Merge::new(2);
        let (held, promised) = (descs(&[7, 6]), descs(&[7]));
        let idle = |time| Input { descs: &[], horizon: Horizon::At(Nanos(time)) };
        let mut runs = Vec::new();
        merge.round(&[idle(9), Input { descs: &held, horizon: Horizon::At(Nanos(5)) }], &mut runs);
        assert_eq!(runs.iter().map(|run| run.count).sum::<usize>(), 2);
        // Lane 0 violates its horizon; lane 1 is complete up to 7 despite its lower horizon.
        runs.clear();
        merge.round(&[Input { descs: &promised, horizon: Horizon::Ended }, idle(5)], &mut runs);
        assert_eq!(runs, [Run { lane: 0, first: 0, count: 1, late: false }]);
    }
}
