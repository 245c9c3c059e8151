//! Verdicts: the fate of each frame between two ports.
//!
//! An inspector examines every frame, may change it, and returns a verdict at once or later. Frames of a flow keep
//! their order: later frames wait for one without a verdict, whatever their own verdicts. No frame waits longer than
//! the policy allows, which also defines its fate then.
//!
//! ```text
//!  frame ── inspect ──> pass, drop ──> done, unless one of its flow waits
//!              └──────> hold ──> waits ── verdict or timeout ──> done, with the frames that waited for it
//! ```

use linerate_burst::{Count, Desc, Ledger, Nanos, Stage};
use linerate_port::HeldFrame;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Verdict of an inspector on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Forward it.
    Pass,
    /// Forward it with changed bytes.
    Changed,
    /// Drop it.
    Drop,
    /// Hold it; a later verdict follows.
    Hold,
}

/// Inspects frames.
pub trait Inspect: Send {
    /// Inspects a frame, which it may change in place. A later verdict refers to it by `ticket`.
    fn inspect(&mut self, ticket: u64, desc: &Desc, frame: &mut [u8]) -> Verdict;

    /// Returns the flow of a frame: frames of a flow keep their order. By default all are of one flow.
    fn flow(&mut self, _frame: &[u8]) -> u64 {
        0
    }

    /// Returns later verdicts on held frames; called once per round.
    fn later(&mut self, _verdicts: &mut Vec<(u64, Verdict)>) {}
}

/// Policy for frames without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// True to pass them (fail-open), false to drop them (fail-closed).
    pub fail_open: bool,
    /// Longest time that a frame may wait.
    pub deadline: Duration,
    /// Maximum number of waiting frames; the policy applies at once to those beyond.
    pub most: usize,
}

impl Default for Policy {
    /// Returns fail-closed, after a tenth of a second, 1,024 frames.
    fn default() -> Self {
        Policy { fail_open: false, deadline: Duration::from_millis(100), most: 1024 }
    }
}

/// Immediate verdict on a frame.
pub(crate) struct ImmediateVerdict {
    ticket: u64,
    verdict: Verdict,
    flow: u64,
}

/// Fate of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Dropped,
}

/// Frames that wait, and the accounts of all.
pub(crate) struct Verdicts {
    inspector: Box<dyn Inspect>,
    policy: Policy,
    /// Frames of each flow with a frame without a verdict, in their order.
    flows: HashMap<u64, VecDeque<WaitingFrame>>,
    /// Ticket, flow and deadline of frames without a verdict; some have one by now.
    deadlines: VecDeque<(u64, u64, Nanos)>,
    waiting: usize,
    tickets: u64,
    said: Vec<(u64, Verdict)>,
    /// Flow of each ticket without a verdict.
    open: HashMap<u64, u64>,
    counts: VerdictCounts,
}

struct WaitingFrame {
    ticket: u64,
    held: HeldFrame,
    decision: Option<Decision>,
}

/// Decision about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Given(Verdict),
    /// No verdict in time: the policy applies.
    TimedOut,
}

#[derive(Clone, Copy, Default)]
struct VerdictCounts {
    received: u64,
    passed: u64,
    dropped: u64,
    changed: u64,
    held: u64,
    failed_open: u64,
    failed_closed: u64,
    /// Number of verdicts on frames that do not wait for one.
    unknown: u64,
}

impl Verdicts {
    pub(crate) fn new(inspector: Box<dyn Inspect>, policy: Policy) -> Self {
        Verdicts {
            inspector,
            policy,
            flows: HashMap::new(),
            deadlines: VecDeque::new(),
            waiting: 0,
            tickets: 0,
            said: Vec::new(),
            open: HashMap::new(),
            counts: VerdictCounts::default(),
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Passes the bytes of a frame to the inspector.
    pub(crate) fn look(&mut self, desc: &Desc, frame: &mut [u8]) -> ImmediateVerdict {
        self.counts.received += 1;
        let ticket = self.tickets;
        self.tickets += 1;
        let verdict = self.inspector.inspect(ticket, desc, frame);
        let flow = if self.waiting > 0 || verdict == Verdict::Hold { self.inspector.flow(frame) } else { 0 };
        ImmediateVerdict { ticket, verdict, flow }
    }

    /// Returns whether that frame will wait.
    pub(crate) fn waits(&self, looked: &ImmediateVerdict) -> bool {
        looked.verdict == Verdict::Hold || self.waiting > 0 && self.flows.contains_key(&looked.flow)
    }

    /// Passes that frame to `out`, or lets it wait.
    pub(crate) fn enter(
        &mut self,
        now: Nanos,
        held: HeldFrame,
        looked: ImmediateVerdict,
        out: &mut impl FnMut(HeldFrame, Outcome),
    ) {
        let ImmediateVerdict { ticket, verdict, flow } = looked;
        let decision = match verdict {
            Verdict::Hold if self.waiting >= self.policy.most => Some(Decision::TimedOut),
            Verdict::Hold => None,
            verdict => Some(Decision::Given(verdict)),
        };
        match (decision, self.flows.get_mut(&flow).filter(|_| self.waiting > 0)) {
            (Some(decision), None) => return self.counts.go(held, decision, self.policy, out),
            (Some(_), Some(queue)) => queue.push_back(WaitingFrame { ticket, held, decision }),
            (None, _) => {
                self.counts.held += 1;
                self.open.insert(ticket, flow);
                self.deadlines.push_back((ticket, flow, now.after(self.policy.deadline)));
                self.flows.entry(flow).or_default().push_back(WaitingFrame { ticket, held, decision });
            }
        }
        self.waiting += 1;
    }

    /// Applies later verdicts, and the policy to frames after their deadline, or to all at the end.
    pub(crate) fn settle(&mut self, now: Nanos, is_over: bool, out: &mut impl FnMut(HeldFrame, Outcome)) {
        let mut said = std::mem::take(&mut self.said);
        self.inspector.later(&mut said);
        for (ticket, verdict) in said.drain(..) {
            match self.open.get(&ticket).copied() {
                Some(flow) if verdict != Verdict::Hold => self.decide(ticket, flow, Decision::Given(verdict), out),
                _ => self.counts.unknown += 1,
            }
        }
        self.said = said;
        while let Some(&(ticket, flow, _)) = self.deadlines.front().filter(|(.., until)| is_over || *until <= now) {
            self.deadlines.pop_front();
            if self.open.contains_key(&ticket) {
                self.decide(ticket, flow, Decision::TimedOut, out);
            }
        }
    }

    /// Records a verdict, and outputs the flow's frames as far as theirs are known.
    fn decide(&mut self, ticket: u64, flow: u64, decision: Decision, out: &mut impl FnMut(HeldFrame, Outcome)) {
        self.open.remove(&ticket);
        let Some(queue) = self.flows.get_mut(&flow) else { return };
        if let Ok(at) = queue.binary_search_by_key(&ticket, |waiting| waiting.ticket) {
            queue[at].decision = Some(decision);
        }
        while let Some(decision) = queue.front().and_then(|first| first.decision) {
            let Some(first) = queue.pop_front() else { break };
            self.waiting -= 1;
            self.counts.go(first.held, decision, self.policy, out);
        }
        if queue.is_empty() {
            self.flows.remove(&flow);
        }
    }

    /// Adds the rest of `given` frames as dropped without a verdict; returns the number that passed.
    pub(crate) fn give_up(&mut self, given: u64) -> u64 {
        let counts = &mut self.counts;
        counts.received = given;
        counts.failed_closed = given - counts.passed - counts.dropped;
        counts.passed
    }

    /// Adds to the account of the direction with this name.
    pub(crate) fn counters(&self, name: &str, ledger: &mut Ledger) {
        let VerdictCounts { received, passed, dropped, changed, held, failed_open, failed_closed, unknown } =
            self.counts;
        let account = ledger.account(Stage::Verdict, name);
        account.add(Count::VerdictReceived, received).add(Count::VerdictPassed, passed);
        account.add(Count::VerdictDropped, dropped).add(Count::VerdictLate, failed_closed);
        account.add(Count::VerdictChanged, changed).add(Count::VerdictHeld, held);
        account.add(Count::VerdictFailedOpen, failed_open).add(Count::VerdictUnknown, unknown);
    }
}

impl VerdictCounts {
    fn go(&mut self, held: HeldFrame, decision: Decision, policy: Policy, out: &mut impl FnMut(HeldFrame, Outcome)) {
        let (count, outcome) = match decision {
            Decision::Given(Verdict::Drop) => (&mut self.dropped, Outcome::Dropped),
            Decision::TimedOut if !policy.fail_open => (&mut self.failed_closed, Outcome::Dropped),
            _ => (&mut self.passed, Outcome::Passed),
        };
        *count += 1;
        self.changed += u64::from(decision == Decision::Given(Verdict::Changed));
        self.failed_open += u64::from(decision == Decision::TimedOut && policy.fail_open);
        out(held, outcome);
    }
}

#[cfg(test)]
mod tests;
