//! The order rule at speed: whole runs if lanes bring runs, chunks if they alternate.

use crate::chunks::ChunkEnd;
use crate::{Input, Merge};
use linerate_burst::FrameIndex;

/// The choice between runs and chunks, based on the last frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PathChoice {
    /// True if lanes bring runs rather than alternate.
    runs: bool,
    /// Frames emitted since the last decision.
    frames: usize,
    /// Number of lane changes within them.
    changes: usize,
}

/// Number of frames per decision.
const SAMPLE: usize = 256;
/// Below this average length, runs are ordered faster by chunks (measured with 2 to 64 lanes); plus one for every 16
/// lanes.
const SHORT: usize = 3;
/// Above this average length, runs are emitted faster whole.
const LONG: usize = 5;
/// A round with fewer frames per lane ends before a chunk would pay.
const ROUND: usize = 4;

impl PathChoice {
    /// Counts `frames` in `changes` runs, and decides again after enough of them.
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
    pub(crate) fn fast(&mut self, inputs: &[Input<'_>], picks: &mut Vec<FrameIndex>) {
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

    /// Emits until lanes seem to alternate; returns whether nothing is left.
    fn by_runs(&mut self, inputs: &[Input<'_>], picks: &mut Vec<FrameIndex>) -> bool {
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

    /// Emits until lanes seem to bring runs; returns whether nothing is left.
    fn by_chunks(&mut self, inputs: &[Input<'_>], picks: &mut Vec<FrameIndex>) -> bool {
        if self.ahead_waits {
            self.emit_ahead(inputs, picks);
        }
        let mut end = if self.start_chunks() { ChunkEnd::More } else { ChunkEnd::Span };
        while end == ChunkEnd::More && !self.pace.runs {
            let before = picks.len();
            end = self.chunk(inputs, picks);
            let sample = &picks[before..picks.len().min(before + SAMPLE)];
            let changes = sample.windows(2).filter(|pair| pair[0].lane() != pair[1].lane()).count();
            self.pace.take(sample.len(), changes, inputs.len());
        }
        if end == ChunkEnd::Round {
            return true;
        }
        if end != ChunkEnd::Ahead {
            // Times too far apart for keys, or lanes bring runs: continue with the rule for at least one sample.
            self.pace = PathChoice { runs: true, ..PathChoice::default() };
        }
        self.look(inputs);
        false
    }
}
