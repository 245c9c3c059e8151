//! The order rule, a run at a time: the reference for every faster implementation.

use crate::{Input, Merge, Run};
use linerate_burst::{Desc, FrameIndex, Horizon, Nanos};

/// Above every time of a rank.
pub(crate) const ENDED: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// Greatest time of the lane's emitted frames.
    pub newest: Nanos,
    /// Number of frames of the round's input that are emitted.
    pub done: usize,
    /// Time of the lane's head or bound, [`ENDED`] if no frame can follow.
    pub key: u64,
    /// True if `key` belongs to a frame that is present.
    pub is_head: bool,
    /// True if that frame is above the ceiling; then its key is meaningless.
    pub is_ahead: bool,
}

impl Lane {
    /// Sets the key to that of the next frame, or of the horizon if no frame is left. Returns whether that frame is
    /// ahead.
    #[inline]
    pub(crate) fn look(&mut self, input: &Input<'_>, ceiling: Nanos) -> bool {
        let (time, is_head) = match input.descs.get(self.done) {
            Some(desc) => (desc.time, true),
            None => (input.horizon.time(), false),
        };
        (self.is_head, self.is_ahead) = (is_head, is_head && time > ceiling);
        self.key = match input.horizon {
            Horizon::Ended if !is_head => ENDED,
            // A frame with the greatest possible time must still be emitted.
            _ => time.max(self.newest).0.min(ENDED - 1),
        };
        self.is_ahead
    }
}

/// A receiver of frames in their order.
pub(crate) trait Output {
    fn run(&mut self, run: Run);
}

impl Output for Vec<Run> {
    #[inline]
    fn run(&mut self, run: Run) {
        self.push(run);
    }
}

impl Output for Vec<FrameIndex> {
    #[inline]
    fn run(&mut self, run: Run) {
        let picks = (run.first..run.first + run.count).map(|index| FrameIndex::new(run.lane, index));
        if run.late { self.extend(picks.map(FrameIndex::late)) } else { self.extend(picks) }
    }
}

impl Merge {
    /// Examines the heads of a new round.
    pub(crate) fn start(&mut self, inputs: &[Input<'_>]) {
        assert_eq!(inputs.len(), self.lanes.len(), "one input a lane");
        for lane in &mut self.lanes {
            lane.done = 0;
        }
        self.look(inputs);
    }

    /// Examines the heads again.
    pub(crate) fn look(&mut self, inputs: &[Input<'_>]) {
        self.ahead_waits = false;
        for (lane, input) in self.lanes.iter_mut().zip(inputs) {
            self.ahead_waits |= lane.look(&input.shown(), self.ceiling);
        }
    }

    /// Returns the next lane, like [`Merge::winner`], after emitting all heads that are ahead.
    #[inline]
    pub(crate) fn next(&mut self, inputs: &[Input<'_>], output: &mut impl Output) -> Option<(usize, u64)> {
        if self.ahead_waits {
            self.emit_ahead(inputs, output);
        }
        self.winner()
    }

    /// Emits heads that are above the ceiling until none is left.
    #[cold]
    pub(crate) fn emit_ahead(&mut self, inputs: &[Input<'_>], output: &mut impl Output) {
        let time = |lane: usize, done: usize| inputs[lane].descs[done].time;
        loop {
            let heads = self.lanes.iter().enumerate().filter(|(_, lane)| lane.is_ahead);
            let Some((number, first)) =
                heads.map(|(number, lane)| (number, lane.done)).min_by_key(|(n, done)| time(*n, *done))
            else {
                break;
            };
            let lane = &mut self.lanes[number];
            lane.done += 1;
            lane.look(&inputs[number].shown(), self.ceiling);
            (self.frames, self.late, self.ahead) = (self.frames + 1, self.late + 1, self.ahead + 1);
            output.run(Run { lane: number, first, count: 1, late: true });
        }
        self.ahead_waits = false;
    }

    /// Forgets all times above the ceiling.
    #[cold]
    pub(crate) fn rebase(&mut self) {
        for lane in &mut self.lanes {
            if lane.newest > self.ceiling {
                lane.newest = Nanos::ZERO;
            }
        }
        self.emitted = self.lanes.iter().map(|lane| lane.newest).max().unwrap_or_default();
    }

    /// Returns the lane whose head ranks lowest, and the greatest key it may emit up to; `None` if the lowest rank
    /// belongs to no frame that is present.
    #[inline]
    pub(crate) fn winner(&self) -> Option<(usize, u64)> {
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

    /// Emits the frames of `winner` whose keys are not above `limit`.
    #[inline]
    pub(crate) fn emit(&mut self, winner: usize, limit: u64, input: &Input<'_>, output: &mut impl Output) {
        let input = &input.shown();
        // Keys end below ENDED, times do not.
        let last = if limit == ENDED - 1 { ENDED } else { limit }.min(self.ceiling.0);
        let lane = &mut self.lanes[winner];
        while lane.is_head && lane.key <= limit && !lane.is_ahead {
            let first = lane.done;
            let (mut count, mut latest) = ascending(&input.descs[first..], self.emitted.0, last);
            let late = count == 0;
            if late {
                (count, latest) = (1, input.descs[first].time.0);
                self.late += 1;
            }
            lane.newest = lane.newest.max(Nanos(latest));
            self.emitted = self.emitted.max(Nanos(latest));
            self.frames += count as u64;
            lane.done += count;
            self.ahead_waits |= lane.look(input, self.ceiling);
            output.run(Run { lane: winner, first, count, late });
        }
    }
}

/// Returns the number of leading times of `descs` that do not go back, from `least` to `most`; and the last of them.
#[inline]
fn ascending(descs: &[Desc], least: u64, most: u64) -> (usize, u64) {
    let mut latest = least;
    for (count, desc) in descs.iter().enumerate() {
        if !(latest..=most).contains(&desc.time.0) {
            return (count, latest);
        }
        latest = desc.time.0;
    }
    (descs.len(), latest)
}
