//! Verdicts: what becomes of each frame on its way from one port to another.
//!
//! An inspector looks at every frame, may change it, and says at once or later whether it passes. Frames of a flow keep their order:
//! behind one that waits for its verdict wait those that come later, whatever was said of them. Nobody waits longer than the policy
//! allows; what happens then was said before the run.
//!
//! ```text
//!  frame ── inspect ──> pass, drop ──> gone on, unless one of its flow waits
//!              └──────> hold ──> waits ── verdict, or the time is up ──> gone on, and what waited behind it
//! ```

use linerate_burst::{Count, Desc, Ledger, Nanos, Stage};
use linerate_port::Held;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What an inspector says of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Pass,
    /// It goes on with other bytes than it came with.
    Changed,
    /// It does not.
    Drop,
    /// That will be said later.
    Hold,
}

/// Looks at frames.
pub trait Inspect: Send {
    /// Looks at a frame, which it may change in place. `ticket` is what a later verdict names it by.
    fn inspect(&mut self, ticket: u64, desc: &Desc, frame: &mut [u8]) -> Verdict;

    /// What flow a frame belongs to: those of one keep their order. All are of one flow unless it is told.
    fn flow(&mut self, _frame: &[u8]) -> u64 {
        0
    }

    /// Later verdicts, of frames that it has held; called once every round.
    fn later(&mut self, _verdicts: &mut Vec<(u64, Verdict)>) {}
}

/// What becomes of frames whose verdict does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// They pass (fail open), or are dropped (fail closed).
    pub fail_open: bool,
    /// How long a frame may wait.
    pub deadline: Duration,
    /// How many may wait at a time; beyond that the policy holds at once.
    pub most: usize,
}

impl Default for Policy {
    /// Fail closed, after a tenth of a second, 1,024 frames.
    fn default() -> Self {
        Policy { fail_open: false, deadline: Duration::from_millis(100), most: 1024 }
    }
}

/// What the inspector said of a frame at once.
pub(crate) struct Looked {
    ticket: u64,
    verdict: Verdict,
    flow: u64,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Dropped,
}

/// Frames that wait, and the account of all.
pub(crate) struct Verdicts {
    inspector: Box<dyn Inspect>,
    policy: Policy,
    /// Frames of each flow that has one without a verdict, in their order.
    flows: HashMap<u64, VecDeque<Waiting>>,
    /// Ticket, flow, and when its time is up, of frames without a verdict; some have one by now.
    deadlines: VecDeque<(u64, u64, Nanos)>,
    waiting: usize,
    tickets: u64,
    said: Vec<(u64, Verdict)>,
    /// The flow of each ticket without a verdict.
    open: HashMap<u64, u64>,
    counts: Counts,
}

struct Waiting {
    ticket: u64,
    held: Held,
    decision: Option<Decision>,
}

/// What is to be done with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Said(Verdict),
    /// Nobody has said anything in time: as the policy has it.
    Unsaid,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    passed: u64,
    dropped: u64,
    changed: u64,
    held: u64,
    failed_open: u64,
    failed_closed: u64,
    /// Verdicts for frames that wait for none.
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
            counts: Counts::default(),
        }
    }

    /// Frames that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Has the inspector look at the bytes of a frame that has come.
    pub(crate) fn look(&mut self, desc: &Desc, frame: &mut [u8]) -> Looked {
        self.counts.received += 1;
        let ticket = self.tickets;
        self.tickets += 1;
        let verdict = self.inspector.inspect(ticket, desc, frame);
        let flow = if self.waiting > 0 || verdict == Verdict::Hold { self.inspector.flow(frame) } else { 0 };
        Looked { ticket, verdict, flow }
    }

    /// Whether that frame will wait.
    pub(crate) fn waits(&self, looked: &Looked) -> bool {
        looked.verdict == Verdict::Hold || self.waiting > 0 && self.flows.contains_key(&looked.flow)
    }

    /// That frame goes on or away (`out` takes it then), or waits.
    pub(crate) fn enter(&mut self, now: Nanos, held: Held, looked: Looked, out: &mut impl FnMut(Held, Outcome)) {
        let Looked { ticket, verdict, flow } = looked;
        let decision = match verdict {
            Verdict::Hold if self.waiting >= self.policy.most => Some(Decision::Unsaid),
            Verdict::Hold => None,
            verdict => Some(Decision::Said(verdict)),
        };
        match (decision, self.flows.get_mut(&flow).filter(|_| self.waiting > 0)) {
            (Some(decision), None) => return self.counts.go(held, decision, self.policy, out),
            (Some(_), Some(queue)) => queue.push_back(Waiting { ticket, held, decision }),
            (None, _) => {
                self.counts.held += 1;
                self.open.insert(ticket, flow);
                self.deadlines.push_back((ticket, flow, now.after(self.policy.deadline)));
                self.flows.entry(flow).or_default().push_back(Waiting { ticket, held, decision });
            }
        }
        self.waiting += 1;
    }

    /// Takes later verdicts, and applies the policy to whom nobody has given one in time, or to all at the end.
    pub(crate) fn settle(&mut self, now: Nanos, is_over: bool, out: &mut impl FnMut(Held, Outcome)) {
        let mut said = std::mem::take(&mut self.said);
        self.inspector.later(&mut said);
        for (ticket, verdict) in said.drain(..) {
            match self.open.get(&ticket).copied() {
                Some(flow) if verdict != Verdict::Hold => self.decide(ticket, flow, Decision::Said(verdict), out),
                _ => self.counts.unknown += 1,
            }
        }
        self.said = said;
        while let Some(&(ticket, flow, _)) = self.deadlines.front().filter(|(.., until)| is_over || *until <= now) {
            self.deadlines.pop_front();
            if self.open.contains_key(&ticket) {
                self.decide(ticket, flow, Decision::Unsaid, out);
            }
        }
    }

    /// Notes a verdict, and lets go of the flow's frames as far as theirs are known.
    fn decide(&mut self, ticket: u64, flow: u64, decision: Decision, out: &mut impl FnMut(Held, Outcome)) {
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

    /// Of so many frames nobody is asked about those left any more; how many had passed.
    pub(crate) fn give_up(&mut self, given: u64) -> u64 {
        let counts = &mut self.counts;
        counts.received = given;
        counts.failed_closed = given - counts.passed - counts.dropped;
        counts.passed
    }

    /// Adds to the account of the way with this name.
    pub(crate) fn counters(&self, name: &str, ledger: &mut Ledger) {
        let Counts { received, passed, dropped, changed, held, failed_open, failed_closed, unknown } = self.counts;
        let account = ledger.account(Stage::Verdict, name);
        account.add(Count::VerdictReceived, received).add(Count::VerdictPassed, passed);
        account.add(Count::VerdictDropped, dropped).add(Count::VerdictLate, failed_closed);
        account.add(Count::VerdictChanged, changed).add(Count::VerdictHeld, held);
        account.add(Count::VerdictFailedOpen, failed_open).add(Count::VerdictUnknown, unknown);
    }
}

impl Counts {
    fn go(&mut self, held: Held, decision: Decision, policy: Policy, out: &mut impl FnMut(Held, Outcome)) {
        let (count, outcome) = match decision {
            Decision::Said(Verdict::Drop) => (&mut self.dropped, Outcome::Dropped),
            Decision::Unsaid if !policy.fail_open => (&mut self.failed_closed, Outcome::Dropped),
            _ => (&mut self.passed, Outcome::Passed),
        };
        *count += 1;
        self.changed += u64::from(decision == Decision::Said(Verdict::Changed));
        self.failed_open += u64::from(decision == Decision::Unsaid && policy.fail_open);
        out(held, outcome);
    }
}

#[cfg(test)]
mod tests;
