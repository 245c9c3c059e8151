//! Chunks: the frames that lanes present, as keys, merged up to the point where they are complete.

use crate::kernel::Kernel;
use crate::keys::{self, PADDING};
use crate::{Input, Merge};
use linerate_burst::{FrameIndex, Horizon, Nanos};
use std::mem;
use std::ops::Range;

/// Maximum number of keys held per lane.
const HELD: usize = 512;
/// Number of keys held per lane in rounds that emit few frames and leave many, as while a horizon advances slowly.
const FEW: usize = 64;
/// Keys of a lane in a row, with padding.
const LANE: usize = HELD + PADDING;
/// The lanes' keys, and buffers to merge them in.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    kernel: Kernel,
    lanes: Vec<LaneKeys>,
    /// Keys of all lanes, each followed by padding.
    keys: Vec<u64>,
    merged: Vec<u64>,
    room: Vec<u64>,
    /// Ranges of keys to merge; each ascends.
    parts: Vec<Range<usize>>,
    /// Time that keys are relative to.
    base: u64,
    /// Number of keys that a lane is filled up to once it holds less than half of them.
    level: usize,
}

#[derive(Clone, Debug, Default)]
struct LaneKeys {
    /// The range of [`Chunks::keys`] not emitted yet.
    keys: Range<usize>,
    /// Frames of the input converted to keys.
    read: usize,
    /// Greatest time of the lane in frames converted to keys.
    newest: u64,
    /// True if some of the keys may be of late frames.
    late: bool,
}

/// The reason why a chunk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkEnd {
    /// More can be emitted.
    More,
    /// Nothing more can be emitted in this round.
    Round,
    /// The next frame, if any, is beyond the time span of keys.
    Span,
    /// The next frame of a lane is above the ceiling.
    Ahead,
}

impl LaneKeys {
    /// Returns whether there are frames and yet no keys: the first frame is above the ceiling.
    #[inline]
    fn is_above_ceiling(&self, input: &Input<'_>) -> bool {
        self.keys.is_empty() && self.read < input.descs.len()
    }
}

impl Chunks {
    pub(crate) fn new(lanes: usize) -> Self {
        Chunks {
            kernel: Kernel::detect(),
            lanes: vec![LaneKeys::default(); lanes],
            keys: Vec::new(),
            merged: Vec::new(),
            room: Vec::new(),
            parts: Vec::with_capacity(lanes),
            base: 0,
            level: FEW,
        }
    }
}

impl Merge {
    /// Discards all keys; the next chunk starts with the frames after those emitted. Returns false if keys cannot
    /// represent their time.
    pub(crate) fn start_chunks(&mut self) -> bool {
        let Chunks { lanes: held, keys, merged, room, base, .. } = &mut self.chunks;
        let least = self.lanes.iter().filter(|lane| lane.is_head).map(|lane| lane.key).min().unwrap_or(0);
        // A horizon before all frames has the key 0, which no frame has.
        *base = least.saturating_sub(1);
        for (number, (held, lane)) in held.iter_mut().zip(&self.lanes).enumerate() {
            *held =
                LaneKeys { keys: number * LANE..number * LANE, read: lane.done, newest: lane.newest.0, late: false };
        }
        for row in [keys, merged, room] {
            // Each merge writes whole steps of PADDING keys.
            row.resize(self.lanes.len() * (LANE + PADDING), 0);
        }
        *base < u64::MAX - (1 << 33)
    }

    /// Emits all complete frames among those held as keys.
    pub(crate) fn chunk(&mut self, inputs: &[Input<'_>], picks: &mut Vec<FrameIndex>) -> ChunkEnd {
        let chunks = &mut self.chunks;
        // Limits up to which the held keys, and the horizons, are complete.
        let (mut held, mut horizon) = (keys::NONE, keys::NONE);
        let mut late = false;
        for (lane, input) in inputs.iter().enumerate() {
            let input = &input.shown();
            late |= chunks.fill(lane, input, (self.emitted.0, self.ceiling.0));
            if chunks.lanes[lane].is_above_ceiling(input) {
                return ChunkEnd::Ahead;
            }
            match chunks.more(lane, input) {
                Some(key) => held = held.min(key),
                None => horizon = horizon.min(chunks.horizon(lane, input)),
            }
        }
        let cut = held.min(horizon).min(keys::LAST);
        for (lane, held) in self.lanes.iter_mut().zip(&mut chunks.lanes) {
            let keys = &chunks.keys[held.keys.clone()];
            let count = keys.partition_point(|key| *key <= cut);
            if count > 0 {
                lane.newest = Nanos(keys::rank(keys[count - 1], chunks.base));
                lane.done += count;
                chunks.parts.push(held.keys.start..held.keys.start + count);
                held.keys.start += count;
            }
        }
        let (kernel, base) = (chunks.kernel, chunks.base);
        let row = chunks.merge();
        if let Some(last) = row.last() {
            self.emitted = self.emitted.max(Nanos(keys::rank(*last, base)));
        }
        self.frames += row.len() as u64;
        self.late += if late { row.iter().map(|key| key & 1).sum() } else { 0 };
        kernel.append(row, picks);
        let end = match cut {
            _ if horizon == cut => ChunkEnd::Round,
            keys::LAST => ChunkEnd::Span,
            _ => ChunkEnd::More,
        };
        let most = self.lanes.iter().map(|lane| lane.done).max().unwrap_or(0);
        chunks.level = if end == ChunkEnd::More { HELD } else { (2 * most).clamp(FEW, HELD) };
        end
    }
}

impl Chunks {
    /// Converts more frames of a lane that holds few keys; returns whether some of its keys may be late.
    fn fill(&mut self, lane: usize, input: &Input<'_>, (emitted, ceiling): (u64, u64)) -> bool {
        let held = &mut self.lanes[lane];
        if held.keys.len() >= self.level / 2 || held.read == input.descs.len() {
            return held.late;
        }
        let start = lane * LANE;
        let kept = held.keys.len();
        self.keys.copy_within(held.keys.clone(), start);
        let descs = &input.descs[held.read..];
        let descs = &descs[..descs.len().min(self.level - kept)];
        held.keys = start..start + kept + descs.len();
        self.keys[held.keys.end..held.keys.end + PADDING].fill(keys::NONE);
        let keys = &mut self.keys[start + kept..held.keys.end];
        let tag = keys::tag(lane, held.read);
        let floor = held.newest.max(emitted);
        held.late &= kept > 0;
        let last = descs.last().map_or(held.newest, |desc| desc.time.0);
        if self.kernel.ascending(descs, self.base, floor, tag, keys) && last <= ceiling {
            held.newest = last;
            held.read += descs.len();
        } else {
            let made = keys::any(descs, self.base, (emitted, ceiling), &mut held.newest, tag, keys);
            held.keys.end = start + kept + made;
            self.keys[held.keys.end..held.keys.end + PADDING].fill(keys::NONE);
            held.read += made;
            held.late = true;
        }
        held.late
    }

    /// Returns the last key of a lane that presents more frames.
    fn more(&self, lane: usize, input: &Input<'_>) -> Option<u64> {
        let held = &self.lanes[lane];
        if held.read < input.descs.len() { Some(self.keys[held.keys.end - 1]) } else { None }
    }

    /// Returns the greatest key that no later frame of a lane can precede; all frames that it presents must be keys
    /// already.
    fn horizon(&self, lane: usize, input: &Input<'_>) -> u64 {
        match input.horizon {
            Horizon::Ended => keys::NONE,
            Horizon::At(time) => match time.0.max(self.lanes[lane].newest) {
                rank if rank < self.base => 0,
                rank => keys::bound(rank, self.base, lane),
            },
        }
    }

    /// Merges the parts, and clears them.
    fn merge(&mut self) -> &[u64] {
        let mut is_merged = false;
        while self.parts.len() > 1 {
            let source = if is_merged { &self.merged } else { &self.keys };
            let pairs = self.parts.len().div_ceil(2);
            let mut at = 0;
            for pair in 0..pairs {
                let a = self.parts[2 * pair].clone();
                let b = self.parts.get(2 * pair + 1).cloned().unwrap_or(a.end..a.end);
                let count = a.len() + b.len();
                let room = &mut self.room[at..at + count.next_multiple_of(PADDING)];
                self.kernel.merge(&source[a.start..a.end + PADDING], &source[b.start..b.end + PADDING], room);
                self.room[at + count..at + count + PADDING].fill(keys::NONE);
                self.parts[pair] = at..at + count;
                at += count + PADDING;
            }
            self.parts.truncate(pairs);
            mem::swap(&mut self.merged, &mut self.room);
            is_merged = true;
        }
        let source = if is_merged { &self.merged } else { &self.keys };
        self.parts.pop().map_or(&[], |part| &source[part])
    }
}
