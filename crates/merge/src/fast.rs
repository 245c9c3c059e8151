//! The order rule at speed: whole runs where lanes bring runs, chunks where they alternate.

use crate::chunks::End;
use crate::{Input, Merge};
use linerate_burst::Pick;

/// What the last frames looked like, and so how the next are ordered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Whether lanes bring runs, not frames in turn.
    runs: bool,
    /// Frames emitted since this was judged last.
    frames: usize,
    /// How often the lane changed within them.
    changes: usize,
}

/// Frames to judge by.
const SAMPLE: usize = 256;
/// Runs of fewer frames on average are better ordered by chunks (measured with 2 to 64 lanes); one more for every 16 lanes.
const SHORT: usize = 3;
/// Runs of more are better emitted whole.
const LONG: usize = 5;
/// A round that shows fewer frames a lane is over before a chunk would pay.
const ROUND: usize = 4;

impl Pace {
    /// Takes so many frames of so many runs; what is better may change with it.
    fn take(&mut self, frames: usize, changes: usize, lanes: usize) {
        self.frames += frames;
        self.changes += changes;
        if self.frames >= SAMPLE {
            let limit = lanes / 16 + if self.runs { SHORT } else { LONG };
            self.runs = self.frames > limit * self.changes;
            (self.frames, self.changes) = (0, 0);
        }
    }
}

impl Merge {
    /// Emits everything that can be emitted in this round.
    pub(crate) fn fast(&mut self, inputs: &[Input<'_>], picks: &mut Vec<Pick>) {
        let shown: usize = inputs.iter().map(|input| input.descs.len()).sum();
        if inputs.len() == 1 || shown < ROUND * inputs.len() {
            while let Some((winner, limit)) = self.next(inputs, picks) {
                self.emit(winner, limit, &inputs[winner], picks);
            }
            return;
        }
        loop {
            let done = if self.pace.runs { self.by_runs(inputs, picks) } else { self.by_chunks(inputs, picks) };
            if done {
                return;
            }
        }
    }

    /// Emits until lanes seem to alternate; whether nothing is left.
    fn by_runs(&mut self, inputs: &[Input<'_>], picks: &mut Vec<Pick>) -> bool {
        while let Some((winner, limit)) = self.next(inputs, picks) {
            let before = picks.len();
            self.emit(winner, limit, &inputs[winner], picks);
            self.pace.take(picks.len() - before, 1, inputs.len());
            if !self.pace.runs {
                return false;
            }
        }
        true
    }

    /// Emits until lanes seem to bring runs; whether nothing is left.
    fn by_chunks(&mut self, inputs: &[Input<'_>], picks: &mut Vec<Pick>) -> bool {
        if self.ahead_waits {
            self.emit_ahead(inputs, picks);
        }
        let mut end = if self.start_chunks() { End::More } else { End::Span };
        while end == End::More && !self.pace.runs {
            let before = picks.len();
            end = self.chunk(inputs, picks);
            let sample = &picks[before..picks.len().min(before + SAMPLE)];
            let changes = sample.windows(2).filter(|pair| pair[0].lane() != pair[1].lane()).count();
            self.pace.take(sample.len(), changes, inputs.len());
        }
        if end == End::Round {
            return true;
        }
        if end != End::Ahead {
            // Too far apart for keys, or too much alike: the rule goes on, for a while at least.
            self.pace = Pace { runs: true, ..Pace::default() };
        }
        self.look(inputs);
        false
    }
}
