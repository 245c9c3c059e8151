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
#![forbid(unsafe_code)]

use linerate_burst::{Desc, Horizon, Nanos};

/// What one lane has ready.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Frames not emitted yet, as the lane showed them.
    pub descs: &'a [Desc],
    /// How far the lane is complete behind them.
    pub horizon: Horizon,
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
    late: u64,
    frames: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lane {
    /// The greatest time this lane has shown in frames that were emitted.
    newest: Nanos,
    /// How many frames of the round's input are emitted.
    done: usize,
    /// Time of the lane's head or bound, [`ENDED`] where nothing can come.
    key: u64,
    /// Whether `key` is that of a frame that is there.
    is_head: bool,
}

/// Above every time a frame can rank with.
const ENDED: u64 = u64::MAX;

impl Merge {
    /// A merge of `lanes` inputs.
    pub fn new(lanes: usize) -> Self {
        Merge { lanes: vec![Lane::default(); lanes], emitted: Nanos::ZERO, late: 0, frames: 0 }
    }

    /// Appends to `runs` everything the rule allows to be emitted now, in order. The caller consumes from
    /// each lane as many frames as its runs hold before the next round.
    ///
    /// # Panics
    /// If the number of inputs is not that of the lanes.
    pub fn round(&mut self, inputs: &[Input<'_>], runs: &mut Vec<Run>) {
        assert_eq!(inputs.len(), self.lanes.len(), "one input a lane");
        for (lane, input) in self.lanes.iter_mut().zip(inputs) {
            lane.done = 0;
            lane.look(input);
        }
        while let Some((winner, limit)) = self.winner() {
            self.emit(winner, limit, &inputs[winner], runs);
        }
    }

    /// Like `round`, as picks.
    pub fn order(&mut self, inputs: &[Input<'_>], picks: &mut Vec<linerate_burst::Pick>) {
        let mut runs = Vec::new();
        self.round(inputs, &mut runs);
        for run in runs {
            for index in run.first..run.first + run.count {
                let pick = linerate_burst::Pick::new(run.lane, index);
                picks.push(if run.late { pick.late() } else { pick });
            }
        }
    }

    /// Frames of a lane emitted in the last round.
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

    /// The lane whose head ranks lowest, and the greatest key it may emit up to; `None` when the lowest
    /// rank belongs to no frame that is there.
    #[inline]
    fn winner(&self) -> Option<(usize, u64)> {
        let (mut winner, mut least, mut second, mut second_lane) = (0, ENDED, ENDED, 0);
        for (index, lane) in self.lanes.iter().enumerate() {
            if lane.key < least {
                (second, second_lane) = (least, winner);
                (winner, least) = (index, lane.key);
            } else if lane.key < second {
                (second, second_lane) = (lane.key, index);
            }
        }
        if least == ENDED || !self.lanes[winner].is_head {
            return None;
        }
        // A frame with the key of the second lane goes first only if its lane comes first.
        Some((winner, if winner < second_lane || second == ENDED { second } else { second - 1 }))
    }

    fn emit(&mut self, winner: usize, limit: u64, input: &Input<'_>, runs: &mut Vec<Run>) {
        let lane = &mut self.lanes[winner];
        let mut run = Run { lane: winner, first: lane.done, count: 0, late: false };
        while lane.is_head && lane.key <= limit {
            let time = input.descs[lane.done].time;
            let late = time < self.emitted;
            if late != run.late {
                push(runs, run);
                run = Run { lane: winner, first: lane.done, count: 0, late };
            }
            run.count += 1;
            self.frames += 1;
            self.late += u64::from(late);
            self.emitted = self.emitted.max(time);
            lane.newest = lane.newest.max(time);
            lane.done += 1;
            lane.look(input);
        }
        push(runs, run);
    }
}

impl Lane {
    /// Sets the key to that of the next frame, or of the horizon where there is none.
    #[inline]
    fn look(&mut self, input: &Input<'_>) {
        let (time, is_head) = match input.descs.get(self.done) {
            Some(desc) => (desc.time, true),
            None => (input.horizon.time(), false),
        };
        self.is_head = is_head;
        self.key = match input.horizon {
            Horizon::Ended if !is_head => ENDED,
            // A frame stamped with the very end of time must still come out.
            _ => time.max(self.newest).0.min(ENDED - 1),
        };
    }
}

fn push(runs: &mut Vec<Run>, run: Run) {
    if run.count > 0 {
        runs.push(run);
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
        assert_eq!(order(&[(&[u64::MAX], Horizon::Ended), (&[u64::MAX], Horizon::Ended)]).len(), 2);
    }
}
