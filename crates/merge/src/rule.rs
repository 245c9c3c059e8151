//! The order rule, a run at a time: what every faster way must equal.

use crate::{Input, Merge, Run};
use linerate_burst::{Desc, Horizon, Nanos, Pick};

/// Above every time a frame can rank with.
pub(crate) const ENDED: u64 = u64::MAX;

/// One lane between rounds, and within one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lane {
    /// The greatest time this lane has shown in frames that were emitted.
    pub newest: Nanos,
    /// How many frames of the round's input are emitted.
    pub done: usize,
    /// Time of the lane's head or bound, [`ENDED`] where nothing can come.
    pub key: u64,
    /// Whether `key` is that of a frame that is there.
    pub is_head: bool,
}

impl Lane {
    /// Sets the key to that of the next frame, or of the horizon where there is none.
    #[inline]
    pub fn look(&mut self, input: &Input<'_>) {
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

/// What takes frames in their order.
pub(crate) trait Output {
    fn run(&mut self, run: Run);
}

impl Output for Vec<Run> {
    #[inline]
    fn run(&mut self, run: Run) {
        self.push(run);
    }
}

impl Output for Vec<Pick> {
    #[inline]
    fn run(&mut self, run: Run) {
        let picks = (run.first..run.first + run.count).map(|index| Pick::new(run.lane, index));
        if run.late { self.extend(picks.map(Pick::late)) } else { self.extend(picks) }
    }
}

impl Merge {
    /// Looks at the heads of a new round.
    pub(crate) fn start(&mut self, inputs: &[Input<'_>]) {
        assert_eq!(inputs.len(), self.lanes.len(), "one input a lane");
        for (lane, input) in self.lanes.iter_mut().zip(inputs) {
            lane.done = 0;
            lane.look(&input.shown());
        }
    }

    /// The lane whose head ranks lowest, and the greatest key it may emit up to; `None` when the lowest
    /// rank belongs to no frame that is there.
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
        let last = if limit == ENDED - 1 { ENDED } else { limit };
        let lane = &mut self.lanes[winner];
        while lane.is_head && lane.key <= limit {
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
            lane.look(input);
            output.run(Run { lane: winner, first, count, late });
        }
    }
}

/// How many times at the start of `descs` do not go back, from `least` to `most`; and the last of them.
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
