//! Many ports -> rules -> many ports.
//!
//! ```text
//!  lanes ──> switch ──> unchanged: a run of frames in place ──> port
//!                ├────> changed, or out of order: block of the port ─^
//!                └────> needs a verdict: ring, and back for the rest of the actions (`engines`)
//! ```
//!
//! Adjacent frames that leave a port unchanged are passed on in place. All others are copied into blocks of that port,
//! as are frames that the port does not take at once. A port whose blocks are full drops frames with a counter, or, on
//! request, the lanes wait for it. Rules change between two bursts, so that no frame is lost by it.

mod counts;
mod engines;
mod output;

pub use self::engines::EngineRing;

use self::counts::SwitchCounts;
use self::engines::{Engine, OtherEngines, ReturnOutputs};
use self::output::SwitchOutput;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::Progress;
use crate::egress::STOP_LIMIT;
use crate::error::ReceiveError;
use crate::inline::decide::Fate;
use crate::inline::verdict_ring::OfferOutcome;
use linerate_burst::{Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_port::{Sent, TxPort};
use linerate_switch::{Inspect, InspectOutcome, Outputs, PortNo, Reason, Switch};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of frames processed before ports are checked for space, if lanes wait.
const CHUNK: usize = 256;

/// A task for a running switch, executed between two bursts.
pub type Task = Box<dyn FnOnce(&mut RunningSwitch<'_>) + Send>;

/// A running switch.
pub struct RunningSwitch<'a> {
    /// The switch.
    pub switch: &'a mut Switch,
    /// Time, UTC.
    pub now: Nanos,
    /// Counters of its ports, from port 1 on.
    pub ports: Vec<PortCounts>,
}

/// Counters of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounts {
    /// Port name as the user wrote it.
    pub name: String,
    /// Totals received.
    pub received: Sent,
    /// Totals sent.
    pub sent: Sent,
    /// Frames dropped because its buffers were full.
    pub full: u64,
    /// Frames dropped because it was down.
    pub down: u64,
}

/// Queue of tasks for a running switch.
#[derive(Clone, Default)]
pub struct Tasks {
    tasks: Arc<Mutex<VecDeque<Task>>>,
    are_there: Arc<AtomicBool>,
}

impl Tasks {
    /// Adds a task, which the thread of the run executes soon.
    pub fn push(&self, task: Task) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push_back(task);
        self.are_there.store(true, Ordering::Release);
    }

    fn take(&self) -> VecDeque<Task> {
        if !self.are_there.load(Ordering::Relaxed) || !self.are_there.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A switch and its ports. It holds frames, so it must be the only consumer.
pub struct SwitchConsumer {
    switch: Switch,
    ports: Ports,
    /// Rings whose readers decide about frames, by their numbers in rules.
    engines: Vec<Engine>,
    /// Port of each lane.
    lanes: Vec<PortNo>,
    /// Port number of each receiving port.
    numbers: Vec<PortNo>,
    /// True if lanes wait for full ports.
    waits: bool,
    tasks: Tasks,
    progress: Arc<Progress>,
    now: Nanos,
}

/// Outputs for copies, and counters of frames.
struct Ports {
    outlets: Vec<SwitchOutput>,
    received: Vec<Sent>,
    counts: SwitchCounts,
}

/// A burst being processed.
struct SwitchBurst<'a, 'b> {
    outlets: &'a mut [SwitchOutput],
    counts: &'a mut SwitchCounts,
    engines: OtherEngines<'a>,
    burst: Burst<'b>,
    /// Index of each interface of the burst in the list of all, if it differs.
    map: Option<&'b [u16]>,
    waits: bool,
    now: Nanos,
}

impl SwitchConsumer {
    /// Creates a switch; `to` are its ports from 1 on, `from` is the number of each receiving port. With `waits` lanes
    /// wait for full ports, which then drop nothing.
    pub fn new(switch: Switch, to: Vec<TxPort>, from: Vec<PortNo>, waits: bool, progress: Arc<Progress>) -> Self {
        let received = vec![Sent::default(); to.len()];
        let outlets = to.into_iter().map(SwitchOutput::new).collect();
        let ports = Ports { outlets, received, counts: SwitchCounts::default() };
        let (tasks, lanes, engines) = (Tasks::default(), Vec::new(), Vec::new());
        SwitchConsumer { switch, ports, engines, lanes, numbers: from, waits, tasks, progress, now: Nanos::ZERO }
    }

    /// Adds these rings, in the order of their numbers in rules.
    pub fn with_engines(mut self, rings: Vec<EngineRing>) -> Self {
        self.engines = rings.into_iter().map(Engine::new).collect();
        self
    }

    /// Returns the queue of tasks, for use while it runs.
    pub fn tasks(&self) -> Tasks {
        self.tasks.clone()
    }

    /// Returns the switch.
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Returns the time of the last burst.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the counters of each port.
    pub fn ports(&self) -> Vec<PortCounts> {
        self.ports.counts()
    }

    fn do_tasks(&mut self) {
        for task in self.tasks.take() {
            task(&mut RunningSwitch { switch: &mut self.switch, now: self.now, ports: self.ports.counts() });
        }
    }

    /// Processes frames of a lane; returns how many are done with.
    fn take_lane(&mut self, in_port: PortNo, burst: Burst<'_>, map: &[u16]) -> usize {
        let mut done = 0;
        while done < burst.len() {
            if self.waits && self.ports.outlets.iter().any(SwitchOutput::is_full) {
                break;
            }
            let end = burst.len().min(done + CHUNK);
            let part = burst.slice(done..end);
            // Truncated frames are dropped; those between them are processed together.
            let mut from = 0;
            for (index, desc) in part.descs().iter().enumerate() {
                if desc.is_truncated() {
                    self.take_whole(in_port, part.slice(from..index), map);
                    from = index + 1;
                    self.ports.cut(in_port, desc);
                }
            }
            self.take_whole(in_port, part.slice(from..part.len()), map);
            done = end;
        }
        done
    }

    fn take_whole(&mut self, in_port: PortNo, burst: Burst<'_>, map: &[u16]) {
        let SwitchConsumer { switch, ports: Ports { outlets, received, counts }, engines, waits, now, .. } = self;
        counts.received += burst.len() as u64;
        received[usize::from(in_port) - 1].add(burst);
        let engines = OtherEngines { before: engines, after: &mut [] };
        let mut turn = SwitchBurst { outlets, counts, engines, burst, map: Some(map), waits: *waits, now: *now };
        switch.burst(*now, in_port, burst, &mut turn);
        outlets.iter_mut().for_each(|outlet| outlet.end_burst(burst, *waits));
    }

    /// Applies the remaining actions to frames returned by engines.
    fn take_back(&mut self, give_up: bool) {
        let SwitchConsumer { switch, ports: Ports { outlets, .. }, engines, waits, now, .. } = self;
        let (now, waits) = (*now, *waits && !give_up);
        for at in 0..engines.len() {
            let (before, rest) = engines.split_at_mut(at);
            let [Engine { asking, counts, .. }, after @ ..] = rest else { return };
            let onto = ReturnOutputs { outlets, counts, others: OtherEngines { before, after }, waits, now };
            asking.send(|back, burst_of, done| back.go_on(switch, onto, burst_of, done));
            asking.release();
        }
    }

    /// Shows the copied frames to engines.
    fn commit(&mut self) {
        self.engines.iter_mut().for_each(|engine| engine.asking.commit(self.now));
    }
}

impl Outputs for SwitchBurst<'_, '_> {
    #[inline]
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], as_it_came: bool) {
        self.counts.copies += 1;
        let Some(outlet) = self.outlets.get_mut(usize::from(port) - 1) else { return };
        if as_it_came {
            outlet.extend(index, self.burst, self.waits)
        } else {
            outlet.copy(self.burst, index, bytes, self.waits)
        }
    }

    #[inline]
    fn inspect(&mut self, index: usize, inspect: Inspect<'_>) -> InspectOutcome {
        let Some(engine) = self.engines.get(inspect.ring) else { return InspectOutcome::Blocked };
        let desc = &self.burst.descs()[index];
        let interface = self.map.map(|map| map.get(usize::from(desc.interface)).copied().unwrap_or_default());
        let desc = Desc { interface: interface.unwrap_or(desc.interface), ..*desc };
        match engine.offer(self.now, &desc, &inspect) {
            OfferOutcome::Taken(_) => {
                self.counts.inspected += 1;
                InspectOutcome::Taken
            }
            OfferOutcome::Known(Fate::Passed) => {
                self.counts.skipped += 1;
                InspectOutcome::Passes
            }
            OfferOutcome::Known(_) => InspectOutcome::Blocked,
        }
    }

    #[inline]
    fn done(&mut self, _: usize, copies: Result<u32, Reason>) {
        match copies {
            Ok(_) => self.counts.switched += 1,
            Err(reason) => self.counts.by_reason[reason as usize] += 1,
        }
    }
}

impl Ports {
    /// Records a truncated frame.
    fn cut(&mut self, in_port: PortNo, desc: &Desc) {
        self.counts.received += 1;
        self.counts.truncated += 1;
        let received = &mut self.received[usize::from(in_port) - 1];
        *received = Sent { frames: received.frames + 1, bytes: received.bytes + u64::from(desc.captured) };
    }

    fn counts(&self) -> Vec<PortCounts> {
        self.outlets.iter().zip(&self.received).map(|(outlet, received)| outlet.counts(*received)).collect()
    }

    fn add_counters(&self, ledger: &mut Ledger) {
        self.counts.add_to(ledger.account(Stage::Switch, ""));
        self.outlets.iter().for_each(|outlet| outlet.add_counters(ledger));
    }
}

impl Consumer for SwitchConsumer {
    fn name(&self) -> &'static str {
        "switch"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn is_sole(&self) -> bool {
        true
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        self.lanes = start.lanes.iter().map(|(port, _)| self.numbers[*port]).collect();
        self.engines.iter_mut().try_for_each(|engine| engine.begin(start))
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        self.now = round.now;
        self.do_tasks();
        let give_up = round.draining.is_some_and(|since| since > STOP_LIMIT);
        let begun: Result<Vec<()>, _> = self.engines.iter_mut().map(|engine| engine.round(round, give_up)).collect();
        self.take_back(give_up);
        for lane in 0..round.bursts.len() {
            let burst = round.bursts[lane];
            let done = self.take_lane(self.lanes[lane], burst, round.maps[lane]);
            round.leave(lane, burst.len() - done);
        }
        self.commit();
        self.take_back(give_up);
        let mut is_busy = round.has_left() || self.engines.iter().any(Engine::is_busy);
        for outlet in &mut self.ports.outlets {
            is_busy |= outlet.go_on(round.now, give_up);
            outlet.update_progress(&self.progress);
        }
        if is_busy {
            round.keep_busy();
        }
        begun.map(|_| ())
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        self.switch.expire(self.now);
        let mut ledger = look.queues();
        self.counters(&mut ledger);
        let lost = ledger.lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.engines.iter_mut().for_each(|engine| engine.asking.record_losses(lost));
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.ports.add_counters(ledger);
        self.engines.iter().for_each(|engine| engine.add_counters(ledger));
        let (hits, misses) = self.switch.lookups();
        let learned = self.switch.learned();
        let account = ledger.account(Stage::Switch, "");
        account.add(Count::SwitchCached, hits).add(Count::SwitchLookups, misses);
        account.add(Count::SwitchLearned, learned.new).add(Count::SwitchMoved, learned.moved);
        account.add(Count::SwitchEvicted, learned.evicted);
    }

    fn demand(&self) -> Demand {
        if self.ports.outlets.iter().any(SwitchOutput::has_failed) { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        self.do_tasks();
        if end.died.is_some() {
            let known = self.ports.counts.known();
            let died = end.given.saturating_sub(known);
            self.ports.counts.received = known + died;
            end.ledger.account(Stage::Switch, "").add(Count::SwitchDied, died);
        } else {
            self.take_back(true);
        }
        self.engines.iter_mut().for_each(|engine| engine.finish(end));
        for outlet in &mut self.ports.outlets {
            if let Some(failure) = outlet.finish(end.ledger, end.events) {
                end.fail(failure);
            }
        }
        self.counters(end.ledger);
    }
}
