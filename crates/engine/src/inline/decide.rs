//! Decision about each frame between two ports while an engine inspects them: pure. Input are frames, verdicts and the
//! time; output are the frames to be sent or dropped, each once.
//!
//! ```text
//!  arrive ── open ──────> line ── look ──> decided ──> gone, unless one of its flow waits before it
//!     └── known (policy,  (in order)  └──> held ── verdict or timeout ──> gone, with the frames that waited for it
//!         flow listed)
//! ```
//!
//! Frames not yet inspected are in one line, in order of arrival, since that is the order of inspection: for them no
//! state is kept per flow. Only flows with a held frame have a queue of their own. The amortised cost of a frame does
//! not depend on the number of held ones.

mod fate;

pub(crate) use self::fate::{Fate, FramePosition, PolicyReason};

use super::policy::{Policy, ReleaseOrder};
use linerate_burst::Nanos;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Maximum number of held frames; the overload policy is applied at once to those beyond.
pub(crate) const MOST_HELD: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameState {
    Open,
    Known(Fate),
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    arrived: Nanos,
    flow: u64,
    way: u16,
    state: FrameState,
}

/// Frames of a block.
#[derive(Debug, Default)]
struct Batch {
    frames: Vec<Frame>,
    /// Number of frames that are not gone.
    left: usize,
}

/// All pending frames.
#[derive(Debug)]
pub(crate) struct Decisions {
    policy: Policy,
    /// Blocks from the first one with a frame that is not gone, to the last one.
    batches: VecDeque<Batch>,
    first: u64,
    /// First frame that was not inspected.
    line: FramePosition,
    /// For each flow with a held frame, the inspected frames from that one on, in order.
    waiting: HashMap<u64, VecDeque<FramePosition>>,
    /// Held frames, in order; some are decided by now.
    held: VecDeque<FramePosition>,
    held_now: usize,
    /// While the engine lags: flows of frames that it has not inspected; new frames of other flows bypass it.
    behind: Option<HashSet<u64>>,
    /// Reused allocations.
    spare: Vec<Vec<Frame>>,
}

impl Decisions {
    pub(crate) fn new(policy: Policy) -> Self {
        Decisions {
            policy,
            batches: VecDeque::new(),
            first: 0,
            line: FramePosition { block: 0, frame: 0 },
            waiting: HashMap::new(),
            held: VecDeque::new(),
            held_now: 0,
            behind: None,
            spare: Vec::new(),
        }
    }

    /// Starts the next block.
    pub(crate) fn turn(&mut self) {
        let frames = self.spare.pop().unwrap_or_default();
        self.batches.push_back(Batch { frames, left: 0 });
        self.forget();
        self.advance(&mut |_, _, _| {});
    }

    /// Adds a frame of a direction; `known` is its fate if the engine is not asked. `out` receives frames that go.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        now: Nanos,
        (way, hash): (u16, u32),
        known: Option<Fate>,
        out: &mut impl FnMut(FramePosition, u16, Fate),
    ) {
        let flow = match self.policy.release {
            ReleaseOrder::ByFlow => u64::from(hash) << 16 | u64::from(way),
            ReleaseOrder::ByArrival => way.into(),
        };
        let block = self.first + self.batches.len() as u64 - 1;
        let Some(batch) = self.batches.back_mut() else { return };
        let place = FramePosition { block, frame: batch.frames.len() as u32 };
        let state = known.map_or(FrameState::Open, FrameState::Known);
        batch.frames.push(Frame { arrived: now, flow, way, state });
        batch.left += 1;
        if let Some(behind) = &mut self.behind {
            let waits = self.waiting.contains_key(&flow);
            match known {
                Some(fate) if place != self.line && !waits && !behind.contains(&flow) => self.go(place, fate, out),
                // It waits in the line, and so do later frames of its flow.
                _ => _ = behind.insert(flow),
            }
        }
        if known.is_some() {
            self.advance(out);
        }
    }

    /// Returns the next frame to be inspected.
    #[inline]
    pub(crate) fn next(&self) -> Option<FramePosition> {
        (self.frame(self.line)?.state == FrameState::Open).then_some(self.line)
    }

    /// Marks that frame as inspected, with its fate or as held.
    #[inline]
    pub(crate) fn look(&mut self, fate: Option<Fate>, out: &mut impl FnMut(FramePosition, u16, Fate)) {
        let place = self.line;
        let full = (self.held_now >= MOST_HELD).then(|| self.fate_of_slow(PolicyReason::Held));
        match (fate.or(full), self.frame_mut(place)) {
            (_, None) => return,
            (Some(fate), Some(frame)) => frame.state = FrameState::Known(fate),
            (None, Some(frame)) => {
                let flow = frame.flow;
                self.waiting.entry(flow).or_default().push_back(place);
                self.held.push_back(place);
                self.held_now += 1;
                self.line.frame += 1;
            }
        }
        self.advance(out);
    }

    /// Sets the fate of a held frame; returns whether it was held.
    pub(crate) fn apply_verdict(
        &mut self,
        place: FramePosition,
        fate: Fate,
        out: &mut impl FnMut(FramePosition, u16, Fate),
    ) -> bool {
        if !self.is_held(place) {
            return false;
        }
        self.held_now -= 1;
        let Some(frame) = self.frame_mut(place) else { return false };
        frame.state = FrameState::Known(fate);
        let flow = frame.flow;
        let Some(mut queue) = self.waiting.remove(&flow) else { return false };
        while let Some(&first) = queue.front() {
            let Some(FrameState::Known(fate)) = self.frame(first).map(|frame| frame.state) else { break };
            queue.pop_front();
            self.go(first, fate, out);
        }
        if !queue.is_empty() {
            self.waiting.insert(flow, queue);
        }
        true
    }

    pub(crate) fn is_held(&self, place: FramePosition) -> bool {
        place < self.line && self.frame(place).is_some_and(|frame| frame.state == FrameState::Open)
    }

    /// Returns whether a frame is gone: sent or dropped.
    pub(crate) fn is_gone(&self, place: FramePosition) -> bool {
        self.frame(place).is_none_or(|frame| frame.state == FrameState::Gone)
    }

    /// Returns whether a frame has arrived and is gone.
    pub(crate) fn is_through(&self, place: FramePosition) -> bool {
        let last = self.first + self.batches.len() as u64;
        let has_come = place.block + 1 < last || self.frame(place).is_some();
        has_come && self.is_gone(place)
    }

    /// Returns whether all frames up to the end of a block are gone.
    pub(crate) fn is_clear(&self, block: u64) -> bool {
        let blocks = (block + 1).saturating_sub(self.first).try_into().unwrap_or(usize::MAX);
        self.batches.iter().take(blocks).all(|batch| batch.left == 0)
    }

    /// Returns the block being filled.
    pub(crate) fn newest(&self) -> u64 {
        (self.first + self.batches.len() as u64).saturating_sub(1)
    }

    /// Returns whether a held frame also delays those of other flows.
    pub(crate) fn is_by_arrival(&self) -> bool {
        self.policy.release == ReleaseOrder::ByArrival
    }

    /// Returns the direction of a frame.
    pub(crate) fn way(&self, place: FramePosition) -> u16 {
        self.frame(place).map_or(0, |frame| frame.way)
    }

    /// Returns the held frames, in order.
    pub(crate) fn held(&self) -> impl Iterator<Item = FramePosition> {
        self.held.iter().copied().filter(|place| self.is_held(*place))
    }

    /// Applies the policy to frames whose timeout has expired.
    pub(crate) fn settle(&mut self, now: Nanos, out: &mut impl FnMut(FramePosition, u16, Fate)) {
        while let Some(&place) = self.held.front() {
            if self.is_held(place) {
                if self.age(place, now) < self.policy.hold {
                    break;
                }
                self.apply_verdict(place, self.fate_of_slow(PolicyReason::Held), out);
            }
            self.held.pop_front();
        }
        if self.held.len() > 2 * self.held_now + MOST_HELD {
            let held: VecDeque<FramePosition> = self.held().collect();
            self.held = held;
        }
        while let Some(place) = self.next().filter(|place| self.age(*place, now) >= self.policy.budget) {
            debug_assert_eq!(place, self.line);
            self.look(Some(self.fate_of_slow(PolicyReason::Overload)), out);
        }
        self.update_lag(now);
    }

    /// Returns the fate of new frames if they bypass the engine.
    pub(crate) fn past(&self) -> Option<Fate> {
        self.behind.as_ref().map(|_| self.fate_of_slow(PolicyReason::Overload))
    }

    /// Returns the fate of a frame for which the engine is too slow.
    pub(crate) fn fate_of_slow(&self, why: PolicyReason) -> Fate {
        Fate::Policy(self.policy.on_overload, why)
    }

    /// Returns the fate of a frame without an engine.
    pub(crate) fn fate_of_dead(&self) -> Fate {
        Fate::Policy(self.policy.on_death, PolicyReason::Death)
    }

    /// Decides all pending frames without an engine, in order of arrival.
    pub(crate) fn give_up(&mut self, fate_of_open: Fate, out: &mut impl FnMut(FramePosition, u16, Fate)) {
        for at in 0..self.batches.len() {
            for frame in 0..self.batches[at].frames.len() as u32 {
                let place = FramePosition { block: self.first + at as u64, frame };
                match self.frame(place).map(|frame| frame.state) {
                    Some(FrameState::Open) => self.go(place, fate_of_open, out),
                    Some(FrameState::Known(fate)) => self.go(place, fate, out),
                    _ => {}
                }
            }
        }
        self.waiting.clear();
        self.held.clear();
        (self.held_now, self.behind) = (0, None);
        self.advance(out);
    }

    /// Returns whether a frame is pending.
    pub(crate) fn is_busy(&self) -> bool {
        self.next().is_some() || self.held_now > 0
    }

    /// Returns whether `more` frames could exceed the maximum of held ones.
    pub(crate) fn is_crowded(&self, more: u32) -> bool {
        self.held_now + more as usize > MOST_HELD
    }

    /// Returns whether a block has a frame without a decision.
    pub(crate) fn is_open(&self, block: u64) -> bool {
        let batch = block.checked_sub(self.first).and_then(|at| self.batches.get(at as usize));
        batch.is_some_and(|batch| batch.left > 0 && batch.frames.iter().any(|frame| frame.state == FrameState::Open))
    }

    /// Returns whether all frames of a block are gone.
    pub(crate) fn is_done(&self, block: u64) -> bool {
        let Some(at) = block.checked_sub(self.first) else { return true };
        self.batches.get(at as usize).is_none_or(|batch| batch.left == 0)
    }

    /// Removes frames with a known fate from the line.
    #[inline]
    fn advance(&mut self, out: &mut impl FnMut(FramePosition, u16, Fate)) {
        loop {
            let place = self.line;
            match self.frame(place).copied() {
                Some(Frame { state: FrameState::Open, .. }) => return,
                Some(Frame { state: FrameState::Gone, .. }) => {}
                Some(Frame { state: FrameState::Known(fate), flow, .. }) => {
                    let queue = if self.held_now > 0 { self.waiting.get_mut(&flow) } else { None };
                    match queue {
                        Some(queue) => queue.push_back(place),
                        None => self.go(place, fate, out),
                    }
                }
                None => {
                    // The line continues in the next block, if there is one.
                    if place.block + 1 >= self.first + self.batches.len() as u64 {
                        return;
                    }
                    self.line = FramePosition { block: place.block + 1, frame: 0 };
                    continue;
                }
            }
            self.line.frame += 1;
        }
    }

    /// Updates whether the engine lags: from half of the budget on, until a quarter of it.
    fn update_lag(&mut self, now: Nanos) {
        let age = self.next().map(|place| self.age(place, now));
        match (age, &self.behind) {
            (None, _) => self.behind = None,
            (Some(age), Some(_)) if age < self.policy.budget / 4 => self.behind = None,
            (Some(age), None) if age >= self.policy.budget / 2 => {
                let at = (self.line.block - self.first) as usize;
                let rest = self.batches.iter().enumerate().skip(at).flat_map(|(block, batch)| {
                    let begin = if block == at { self.line.frame as usize } else { 0 };
                    batch.frames.iter().skip(begin).filter(|frame| frame.state != FrameState::Gone)
                });
                self.behind = Some(rest.map(|frame| frame.flow).collect());
            }
            _ => {}
        }
    }

    #[inline]
    fn go(&mut self, place: FramePosition, fate: Fate, out: &mut impl FnMut(FramePosition, u16, Fate)) {
        let at = (place.block - self.first) as usize;
        let batch = &mut self.batches[at];
        let frame = &mut batch.frames[place.frame as usize];
        frame.state = FrameState::Gone;
        let way = frame.way;
        batch.left -= 1;
        out(place, way, fate);
    }

    /// Removes blocks before the first pending frame.
    fn forget(&mut self) {
        while self.batches.len() > 1 && self.batches[0].left == 0 && self.line.block > self.first {
            if let Some(mut batch) = self.batches.pop_front() {
                batch.frames.clear();
                self.spare.truncate(8);
                self.spare.push(batch.frames);
            }
            self.first += 1;
        }
        // Of blocks after a held frame only the fact that all frames are gone is kept.
        for at in 1..self.batches.len().saturating_sub(1) {
            let is_behind = self.first + (at as u64) < self.line.block;
            if is_behind && self.batches[at].left == 0 {
                self.batches[at].frames = Vec::new();
            }
        }
    }

    fn age(&self, place: FramePosition, now: Nanos) -> Duration {
        self.frame(place).map_or(Duration::ZERO, |frame| now.since(frame.arrived))
    }

    #[inline]
    fn frame(&self, place: FramePosition) -> Option<&Frame> {
        let at = place.block.checked_sub(self.first)?;
        self.batches.get(at as usize)?.frames.get(place.frame as usize)
    }

    #[inline]
    fn frame_mut(&mut self, place: FramePosition) -> Option<&mut Frame> {
        let at = place.block.checked_sub(self.first)?;
        self.batches.get_mut(at as usize)?.frames.get_mut(place.frame as usize)
    }
}

#[cfg(test)]
mod tests;
