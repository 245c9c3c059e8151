//! Rings of a switch whose readers decide about frames, and the processing of frames that return.
//!
//! ```text
//! rule ── inspect ──> ring ──> engine
//!  └── remaining actions, stored per block ────────┐
//! ports <── remaining actions <── back, in order <─┴── verdict, or the policy
//! ```
//!
//! Frames of flows with a permanent verdict bypass the ring, once none of theirs is pending there.

use super::counts::SwitchCounts;
use super::output::SwitchOutput;
use super::{CHUNK, SwitchBurst};
use crate::capture::share::Sharing;
use crate::consumer::{Round, RunEnd, RunStart};
use crate::error::ReceiveError;
use crate::inline::Policy;
use crate::inline::decide::FramePosition;
use crate::inline::output::Exits;
use crate::inline::verdict_ring::{OfferOutcome, UnusedFrames, VerdictRing};
use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_switch::{Action, Inspect, PortNo, RemainingActions, RingNo, Switch};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// A ring of a switch, and its policy for missing verdicts.
pub struct EngineRing {
    /// Name in rules.
    pub name: String,
    /// The ring.
    pub sharing: Sharing,
    /// Policy for frames without a verdict.
    pub policy: Policy,
}

pub(super) struct Engine {
    name: String,
    pub asking: VerdictRing<ReturnQueue>,
    /// Counters of frames that returned.
    pub counts: SwitchCounts,
}

/// Frames that wait for verdicts, and those that return.
#[derive(Default)]
pub(super) struct ReturnQueue {
    /// For each block from `first` on, the remaining actions of its frames, by the first frame to which they apply.
    plans: VecDeque<Vec<(u32, Plan)>>,
    first: u64,
    back: VecDeque<ReturnedFrames>,
    /// Buffer for replaced and injected frames; allocated with the first one.
    own: Option<Block>,
    /// Number of the current engine, and how many of its frames were processed since the last query.
    engine: u64,
    own_gone: u64,
    /// Number of frames that returned, and of those injected by the engine.
    returned: u64,
    injected: u64,
    /// Number of those that exceeded the limit, which do not return.
    beyond: u64,
}

/// Remaining actions of a frame.
#[derive(Clone)]
struct Plan {
    actions: Arc<[Action]>,
    from: usize,
}

/// Frames to be processed further.
struct ReturnedFrames {
    in_port: PortNo,
    plan: Plan,
    what: ReturnedKind,
}

enum ReturnedKind {
    /// Adjacent frames of a block.
    Run { block: u64, frames: Range<u32> },
    /// A replaced or injected frame, and the number of its engine.
    Own(Vec<u8>, u64),
}

/// All rings except the one that frames return from.
pub(super) struct OtherEngines<'a> {
    pub before: &'a mut [Engine],
    pub after: &'a mut [Engine],
}

/// Outputs of frames that return.
pub(super) struct ReturnOutputs<'a> {
    pub outlets: &'a mut [SwitchOutput],
    pub counts: &'a mut SwitchCounts,
    pub others: OtherEngines<'a>,
    pub waits: bool,
    pub now: Nanos,
}

impl OtherEngines<'_> {
    pub(super) fn get(&mut self, ring: RingNo) -> Option<&mut Engine> {
        let (ring, own) = (usize::from(ring), self.before.len());
        if ring < own { self.before.get_mut(ring) } else { self.after.get_mut(ring.checked_sub(own + 1)?) }
    }
}

impl Plan {
    fn is(&self, other: &Plan) -> bool {
        Arc::ptr_eq(&self.actions, &other.actions) && self.from == other.from
    }
}

impl Engine {
    pub(super) fn new(ring: EngineRing) -> Self {
        let EngineRing { name, sharing, policy } = ring;
        Engine {
            name,
            asking: VerdictRing::new(sharing, policy, ReturnQueue::default(), 1),
            counts: SwitchCounts::default(),
        }
    }

    pub(super) fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        self.asking.begin(start)
    }

    /// Starts a round: applies the verdicts since the last one.
    pub(super) fn round(&mut self, round: &Round<'_>, give_up: bool) -> Result<(), ReceiveError> {
        let blocks = self.asking.onward.blocks.first;
        let returning = &mut self.asking.onward.exits;
        while returning.first < blocks && !returning.plans.is_empty() {
            returning.plans.pop_front();
            returning.first += 1;
        }
        self.asking.round(round, give_up)
    }

    /// Copies a frame into the ring for a verdict.
    pub(super) fn offer(&mut self, now: Nanos, desc: &Desc, inspect: &Inspect<'_>) -> OfferOutcome {
        let may_skip = self.asking.onward.exits.back.is_empty();
        let offered = self.asking.offer(now, inspect.in_port, desc, inspect.bytes, may_skip);
        if let OfferOutcome::Taken(Some(place)) = offered {
            self.asking.onward.exits.plan(place, inspect.rest);
        }
        offered
    }

    /// Returns whether a frame is pending.
    pub(super) fn is_busy(&self) -> bool {
        self.asking.is_busy() || !self.asking.onward.exits.back.is_empty()
    }

    pub(super) fn add_counters(&self, ledger: &mut Ledger) {
        self.asking.onward.tallies().iter().for_each(|tally| tally.counters(&self.name, ledger));
        let returning = &self.asking.onward.exits;
        let account = ledger.account(Stage::Switch, &self.name);
        account.add(Count::SwitchReceived, returning.beyond).add(Count::SwitchInjectLimit, returning.beyond);
        self.counts.add_to(account.add(Count::SwitchInjected, returning.injected));
    }

    /// Ends the ring. Counters are added by [`Engine::add_counters`].
    pub(super) fn finish(&mut self, end: &mut RunEnd<'_>) {
        let died = self.asking.onward.exits.returned.saturating_sub(self.counts.known());
        self.counts.received = self.counts.known() + died;
        if died > 0 {
            end.ledger.account(Stage::Switch, &self.name).add(Count::SwitchDied, died);
        }
        self.asking.onward.tallies().iter().for_each(|tally| tally.close(&self.name, end.ledger));
        self.asking.finish(&self.name, end);
    }
}

impl ReturnQueue {
    /// Stores the remaining actions of a frame.
    fn plan(&mut self, place: FramePosition, rest: RemainingActions<'_>) {
        if self.plans.is_empty() {
            self.first = place.block;
        }
        while self.first + self.plans.len() as u64 <= place.block {
            self.plans.push_back(Vec::new());
        }
        let Some(plans) = self.plans.back_mut() else { return };
        let is_same = |(_, plan): &(u32, Plan)| Arc::ptr_eq(&plan.actions, rest.actions) && plan.from == rest.from;
        if !plans.last().is_some_and(is_same) {
            plans.push((place.frame, Plan { actions: rest.actions.clone(), from: rest.from }));
        }
    }

    /// Returns the remaining actions of a frame.
    fn plan_of(&self, place: FramePosition) -> Plan {
        let plans = place.block.checked_sub(self.first).and_then(|at| self.plans.get(at as usize));
        let plan = plans.and_then(|plans| {
            let behind = plans.partition_point(|(first, _)| *first <= place.frame);
            Some(&plans.get(behind.checked_sub(1)?)?.1)
        });
        plan.cloned().unwrap_or_else(|| Plan { actions: Arc::from([]), from: 0 })
    }

    /// Applies the remaining actions to frames that returned, until a port is full that lanes wait for.
    pub(super) fn go_on<'r>(
        &mut self,
        switch: &mut Switch,
        onto: ReturnOutputs<'_>,
        burst_of: &dyn Fn(u64) -> Burst<'r>,
        done: &mut UnusedFrames,
    ) {
        let ReturnOutputs { outlets, counts, others, waits, now } = onto;
        while let Some(ReturnedFrames { in_port, plan, what }) = self.back.front_mut() {
            if waits && outlets.iter().any(SwitchOutput::is_full) {
                return;
            }
            let burst = match &*what {
                ReturnedKind::Run { block, frames } => {
                    let end = frames.end.min(frames.start + CHUNK as u32);
                    burst_of(*block).slice(frames.start as usize..end as usize)
                }
                ReturnedKind::Own(bytes, _) => {
                    let own = self.own.get_or_insert_with(|| Block::new(0, 1));
                    own.clear();
                    own.push(&Desc::new(now, 0, bytes.len() as u32), bytes);
                    own.burst()
                }
            };
            let others = OtherEngines { before: &mut *others.before, after: &mut *others.after };
            let mut turn = SwitchBurst { outlets, counts, engines: others, burst, map: None, waits, now };
            for index in 0..burst.len() {
                burst.prefetch((index + 8).min(burst.len() - 1));
                turn.counts.received += 1;
                let at = (now, *in_port, index);
                switch.resume(at, burst.frame(index), (&plan.actions, plan.from), &mut turn);
            }
            outlets.iter_mut().for_each(|outlet| outlet.end_burst(burst, waits));
            let is_done = match what {
                ReturnedKind::Run { block, frames } => {
                    done.push((*block, burst.len() as u32));
                    frames.start += burst.len() as u32;
                    frames.start >= frames.end
                }
                ReturnedKind::Own(_, engine) => {
                    self.own_gone += u64::from(*engine == self.engine);
                    true
                }
            };
            if is_done {
                self.back.pop_front();
            }
        }
    }
}

impl Exits for ReturnQueue {
    fn pass(&mut self, in_port: u16, place: FramePosition) {
        self.returned += 1;
        let plan = self.plan_of(place);
        if let Some(ReturnedFrames { in_port: before, plan: same, what: ReturnedKind::Run { block, frames } }) =
            self.back.back_mut()
            && (*before, *block, frames.end) == (in_port, place.block, place.frame)
            && same.is(&plan)
        {
            frames.end += 1;
            return;
        }
        let what = ReturnedKind::Run { block: place.block, frames: place.frame..place.frame + 1 };
        self.back.push_back(ReturnedFrames { in_port, plan, what });
    }

    fn replace(&mut self, in_port: u16, place: FramePosition, bytes: Vec<u8>) {
        self.returned += 1;
        let plan = self.plan_of(place);
        self.back.push_back(ReturnedFrames { in_port, plan, what: ReturnedKind::Own(bytes, self.engine) });
    }

    /// A frame injected backwards leaves by the port that the other frame arrived by.
    fn inject(&mut self, in_port: u16, place: FramePosition, back: bool, bytes: Vec<u8>) {
        (self.returned, self.injected) = (self.returned + 1, self.injected + 1);
        let plan = if back { Plan { actions: Arc::from([Action::InPort]), from: 0 } } else { self.plan_of(place) };
        self.back.push_back(ReturnedFrames { in_port, plan, what: ReturnedKind::Own(bytes, self.engine) });
    }

    fn refuse(&mut self, _: u16, _: bool) {
        (self.injected, self.beyond) = (self.injected + 1, self.beyond + 1);
    }

    fn take_own(&mut self) -> u64 {
        std::mem::take(&mut self.own_gone)
    }

    fn discard_own(&mut self) {
        (self.engine, self.own_gone) = (self.engine + 1, 0);
    }
}
