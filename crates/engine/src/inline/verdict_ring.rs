//! Ring between frames and the engine that decides about them, independent of their source and output.

use super::decide::{Decisions, Fate, FramePosition, PolicyReason};
use super::events::ReportCount;
use super::flow_verdicts::FlowVerdicts;
use super::output::{Exits, FrameOutput, Taken};
use super::policy::Policy;
use super::tally::FateCounts;
use super::verdicts::fate;
use crate::capture::share::{SharedRing, Sharing};
use crate::consumer::{Round, RunEnd, RunStart};
use crate::error::ReceiveError;
use linerate_burst::{Block, Burst, CommitState, Count, Desc, Flags, Nanos, Stage};
use linerate_headers::Link;
use linerate_headers::flow::locate_inner;
use linerate_share::EngineState;

/// Pending frames of a ring, with their state.
pub(crate) struct VerdictRing<E> {
    sharing: Option<Sharing>,
    pub(super) ring: Option<SharedRing>,
    pub onward: FrameOutput<E>,
    pub(super) decisions: Decisions,
    pub(super) listed: FlowVerdicts,
    pub(super) engines: u64,
    /// True if an engine was attached at the last check.
    pub(super) is_decided: bool,
    pub(super) news: ReportCount,
    fresh: Vec<UncommittedFrame>,
    pub(super) newest: Nanos,
    /// Watermark: later frames are not older.
    complete: Nanos,
    /// Reused allocation.
    done: UnusedFrames,
}

/// Blocks, and the number of unused frames of each.
pub(crate) type UnusedFrames = Vec<(u64, u32)>;

/// A frame that was copied but not committed.
struct UncommittedFrame {
    frame: u32,
    way: u16,
    hash: u32,
    known: Option<Fate>,
}

impl UncommittedFrame {
    /// Creates the state of a frame: `said` is the verdict on its flow, `past` its fate if it bypasses the engine.
    #[inline]
    fn new(frame: u32, way: u16, desc: &Desc, said: Option<Fate>, past: Option<Fate>, tally: &mut FateCounts) -> Self {
        let is_unfit = desc.is_truncated() || desc.flags.contains(Flags::SUPER_FRAME);
        let said = said.filter(|_| !is_unfit);
        tally.received += 1;
        tally.listed += u64::from(said.is_some());
        let known = if is_unfit { Some(Fate::Unfit) } else { said.or(past) };
        UncommittedFrame { frame, way, hash: desc.hash, known }
    }
}

/// Outcome of offering a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferOutcome {
    /// The frame is in the ring, at this position; `None` without a free block.
    Taken(Option<FramePosition>),
    /// Its flow has a verdict, and no pending frames.
    Known(Fate),
}

impl<E: Exits> VerdictRing<E> {
    /// Creates the ring, with an account for each of `ways` directions or one for all.
    pub(crate) fn new(sharing: Sharing, policy: Policy, exits: E, ways: usize) -> Self {
        VerdictRing {
            sharing: Some(sharing),
            ring: None,
            onward: FrameOutput::new(exits, ways, policy.inject_limit),
            decisions: Decisions::new(policy),
            listed: FlowVerdicts::default(),
            engines: 0,
            is_decided: false,
            news: ReportCount::default(),
            fresh: Vec::new(),
            newest: Nanos::ZERO,
            complete: Nanos::ZERO,
            done: UnusedFrames::new(),
        }
    }

    /// Starts the run.
    pub(crate) fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        let Some(sharing) = self.sharing.take() else { return Ok(()) };
        let opened = SharedRing::open(sharing, start.stop.clone(), start.duration).map_err(ReceiveError::Acceptor);
        let mut ring = opened?;
        ring.writer().hold_blocks();
        self.ring = Some(ring);
        Ok(())
    }

    /// Starts a round: applies the verdicts since the last one.
    pub(crate) fn round(&mut self, round: &Round<'_>, give_up: bool) -> Result<(), ReceiveError> {
        let known = self.ring.as_mut().map_or(Ok(()), |ring| {
            ring.tick(round.now);
            ring.writer().set_interfaces(round.interfaces)
        });
        self.complete = round.complete;
        self.onward.limit.tick(round.now);
        self.receive_verdicts(round.now);
        self.settle(round.now, give_up);
        known.map_err(ReceiveError::Share)
    }

    /// Returns the block to be filled, with its state.
    pub(crate) fn block(&mut self) -> Option<(&mut Block, &mut CommitState)> {
        self.ring.as_mut()?.block()
    }

    /// Adds frames that were copied into the block, after the first `before`.
    pub(crate) fn filled(&mut self, now: Nanos, way: u16, before: usize) {
        let VerdictRing { ring: Some(ring), onward, decisions, listed, fresh, .. } = self else { return };
        let past = decisions.past();
        let Some((block, state)) = ring.block() else { return };
        let burst = block.burst().slice(before..block.len());
        let tally = onward.tally(way);
        for (frame, (desc, bytes)) in (before as u32..).zip(burst.iter()) {
            let said = listed.fate(now, desc, bytes);
            state.late += u32::from(desc.flags.contains(Flags::LATE));
            fresh.push(UncommittedFrame::new(frame, way, desc, said, past, tally));
        }
        state.last_time = state.last_time.max(self.newest);
        if !burst.is_empty() {
            self.open();
        }
    }

    /// Registers the block when it has its first frames.
    fn open(&mut self) {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return };
        if !std::mem::replace(&mut onward.blocks.is_open, true) {
            let slot = ring.writer().current_slot().unwrap_or_default();
            onward.blocks.all.push_back(Taken { slot, ..Taken::default() });
            decisions.turn();
        }
    }

    /// Copies a single Ethernet frame into the ring. With `may_skip` frames of decided flows bypass it.
    pub(crate) fn offer(&mut self, now: Nanos, way: u16, desc: &Desc, bytes: &[u8], may_skip: bool) -> OfferOutcome {
        let located = locate_inner(Link::Ethernet, bytes);
        let length = bytes.len() as u32;
        let (l3, l4, hash) = (located.l3, located.l4, located.hash);
        let mut desc = Desc { captured: length, wire: length, l3, l4, hash, ..*desc };
        if desc.time < self.newest {
            desc.flags |= Flags::LATE;
        }
        self.newest = self.newest.max(desc.time);
        let said = match self.listed.find(now, &desc, bytes) {
            Some(entry) if may_skip && entry.is_clear(&self.decisions) => return OfferOutcome::Known(entry.fate),
            entry => entry.map(|entry| entry.fate),
        };
        for _ in 0..2 {
            let newest = self.newest;
            let Some((block, state)) = self.block() else { break };
            let frame = block.len() as u32;
            if block.push(&desc, bytes) {
                state.late += u32::from(desc.flags.contains(Flags::LATE));
                state.last_time = state.last_time.max(newest);
                self.open();
                let past = self.decisions.past();
                let tally = self.onward.tally(way);
                self.fresh.push(UncommittedFrame::new(frame, way, &desc, said, past, tally));
                let place = FramePosition { block: self.decisions.newest(), frame };
                if said.is_some() {
                    self.listed.find(now, &desc, bytes).into_iter().for_each(|entry| entry.ahead = Some(place));
                }
                return OfferOutcome::Taken(Some(place));
            }
            self.commit(now);
            self.turn();
        }
        let tally = self.onward.tally(way);
        (tally.received, tally.no_block) = (tally.received + 1, tally.no_block + 1);
        OfferOutcome::Taken(None)
    }

    /// Starts another block with the next frame.
    pub(crate) fn turn(&mut self) {
        self.ring.iter_mut().for_each(SharedRing::turn);
        self.onward.blocks.is_open = false;
    }

    /// Shows the copied frames to the engine, and outputs those that it is not shown or not asked about.
    pub(crate) fn commit(&mut self, now: Nanos) {
        let VerdictRing { ring: Some(ring), onward, decisions, fresh, .. } = self else { return };
        let slot = onward.blocks.all.back().map(|taken| taken.slot).filter(|_| !fresh.is_empty());
        for one in fresh.iter().filter(|one| one.known.is_some()) {
            slot.into_iter().for_each(|slot| ring.writer().settle(slot, one.frame));
        }
        // All interfaces were checked before: this cannot fail.
        let _ = ring.commit(&[], self.complete);
        let Some(slot) = slot else { return };
        let writer = ring.writer();
        let from = writer.engine_from(slot);
        let unseen = match writer.deciding() {
            EngineState::Attached => decisions.fate_of_slow(PolicyReason::Overload),
            _ => decisions.fate_of_dead(),
        };
        let mut out = |place: FramePosition, way: u16, fate: Fate| onward.route(place, way, fate);
        for UncommittedFrame { frame, way, hash, known } in fresh.drain(..) {
            let is_shown = from.is_some_and(|from| from <= frame);
            let known = known.or((!is_shown).then_some(unseen));
            decisions.arrive(now, (way, hash), known, &mut out);
        }
    }

    /// Returns whether a frame is pending.
    pub(crate) fn is_busy(&self) -> bool {
        self.decisions.is_busy()
    }

    /// Sends frames that are to go: `send` receives the output and the frames of each block, and reports how many
    /// frames of which blocks are unused now.
    pub(crate) fn send<R>(
        &mut self,
        send: impl for<'r> FnOnce(&mut E, &dyn Fn(u64) -> Burst<'r>, &mut UnusedFrames) -> R,
    ) -> Option<R> {
        let VerdictRing { ring: Some(ring), onward, done, .. } = self else { return None };
        let FrameOutput { exits, blocks, .. } = onward;
        let writer = &*ring.writer();
        let (first, all) = (blocks.first, &blocks.all);
        let burst = |block: u64| {
            let taken = block.checked_sub(first).and_then(|at| all.get(at as usize));
            taken.map_or(Burst::EMPTY, |taken| writer.filled(taken.slot).burst())
        };
        let result = send(exits, &burst, done);
        for (block, frames) in done.drain(..) {
            blocks.at(block).into_iter().for_each(|taken| taken.unsent -= frames);
        }
        Some(result)
    }

    /// Releases blocks of which all frames are gone.
    pub(crate) fn release(&mut self) {
        let VerdictRing { ring: Some(ring), onward, decisions, .. } = self else { return };
        let writer = ring.writer();
        for at in 0..onward.blocks.all.len() {
            let blocks = &mut onward.blocks;
            let is_open = blocks.is_open && at + 1 == blocks.all.len();
            let taken = &mut blocks.all[at];
            if is_open || taken.is_released || taken.unsent > 0 || !decisions.is_done(blocks.first + at as u64) {
                continue;
            }
            // Until the engine has returned the block it may still write a late verdict.
            if taken.overdue.is_empty() || writer.engine_from(taken.slot).is_none() {
                let (slot, overdue) = (taken.slot, std::mem::take(&mut taken.overdue));
                taken.is_released = true;
                for (frame, way) in overdue {
                    onward.tally(way).late += u64::from(fate(writer.verdict(slot, frame)).is_some());
                }
                writer.release(slot);
            }
        }
        let blocks = &mut onward.blocks;
        while blocks.all.front().is_some_and(|taken| taken.is_released) {
            blocks.all.pop_front();
            blocks.first += 1;
        }
    }

    /// Records the total of frames lost upstream.
    pub(crate) fn record_losses(&mut self, lost: u64) {
        self.ring.iter_mut().for_each(|ring| ring.record_losses(lost));
    }

    /// Ends the ring: adds the counters that belong to no direction.
    pub(crate) fn finish(&mut self, name: &str, end: &mut RunEnd<'_>) {
        let account = end.ledger.account(Stage::Verdict, name);
        account.add(Count::InlineEngines, self.engines).add(Count::InlineUnlisted, self.listed.refused);
        account.add(Count::InlineUnused, self.onward.answers.unused);
        if let Some(ring) = self.ring.take() {
            let (events, failure) = ring.finish(end.ledger);
            end.events.extend(events);
            failure.into_iter().for_each(|failure| end.fail(failure));
        }
    }
}
