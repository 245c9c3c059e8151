//! Verdicts compared with a simple model.

use super::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};

/// Verdict of an inspector on a frame, and its delay.
#[derive(Clone, Copy, Debug)]
struct Script {
    flow: u64,
    /// One frame arrives per step.
    verdict: Verdict,
    /// Steps until the verdict; 0 for at once, `None` for never.
    after: Option<u64>,
}

struct Scripted {
    scripts: Vec<Script>,
    step: Arc<Mutex<u64>>,
    open: Vec<(u64, u64)>,
}

impl Inspect for Scripted {
    fn inspect(&mut self, ticket: u64, _: &Desc, _: &mut [u8]) -> Verdict {
        let script = self.scripts[ticket as usize];
        if script.after == Some(0) {
            return script.verdict;
        }
        self.open.push((ticket, *self.step.lock().unwrap()));
        Verdict::Hold
    }

    fn flow(&mut self, frame: &[u8]) -> u64 {
        frame[0].into()
    }

    fn later(&mut self, verdicts: &mut Vec<(u64, Verdict)>) {
        let step = *self.step.lock().unwrap();
        self.open.retain(|(ticket, since)| {
            let script = self.scripts[*ticket as usize];
            let is_due = script.after.is_some_and(|after| since + after <= step);
            verdicts.extend(is_due.then_some((*ticket, script.verdict)));
            !is_due
        });
    }
}

const DEADLINE: u64 = 20;

/// Returns the step and fate of each frame: it leaves with the last one of its flow that arrived before it and is
/// decided.
fn expected(scripts: &[Script], fail_open: bool) -> Vec<(u64, Outcome)> {
    let mut last: HashMap<u64, u64> = HashMap::new();
    let decide = |(at, script): (usize, &Script)| {
        let at = at as u64;
        let in_time = script.after.filter(|after| *after <= DEADLINE);
        let dropped = in_time.map_or(!fail_open, |_| script.verdict == Verdict::Drop);
        let step = at + in_time.unwrap_or(DEADLINE);
        let leaves = last.entry(script.flow).or_default();
        *leaves = step.max(*leaves);
        (*leaves, if dropped { Outcome::Dropped } else { Outcome::Passed })
    };
    scripts.iter().enumerate().map(decide).collect()
}

/// Adds one frame per step, and advances time until all are decided.
fn run(scripts: &[Script], policy: Policy) -> (Vec<(u64, u64, Outcome)>, Verdicts) {
    let step = Arc::new(Mutex::new(0));
    let inspector = Scripted { scripts: scripts.to_vec(), step: step.clone(), open: Vec::new() };
    let mut verdicts = Verdicts::new(Box::new(inspector), policy);
    let mut left = Vec::new();
    for now in 0..scripts.len() as u64 + DEADLINE + 1 {
        *step.lock().unwrap() = now;
        let mut out = |held: HeldFrame, outcome| left.push((held.number(), now, outcome));
        if let Some(script) = scripts.get(now as usize) {
            let looked = verdicts.look(&Desc::new(Nanos(0), 0, 60), &mut [script.flow as u8]);
            verdicts.enter(Nanos(now), HeldFrame::new(Desc::new(Nanos(0), 0, 60), now), looked, &mut out);
        }
        verdicts.settle(Nanos(now), false, &mut out);
    }
    (left, verdicts)
}

fn policy(fail_open: bool) -> Policy {
    Policy { fail_open, deadline: Duration::from_nanos(DEADLINE), most: 1000 }
}

fn script() -> impl Strategy<Value = Script> {
    let verdict = prop_oneof![Just(Verdict::Pass), Just(Verdict::Changed), Just(Verdict::Drop)];
    let after = prop_oneof![3 => Just(Some(0)), 2 => (1u64..30).prop_map(Some), 1 => Just(None)];
    (0u64..3, verdict, after).prop_map(|(flow, verdict, after)| Script { flow, verdict, after })
}

proptest! {
    #[test]
    fn frames_of_a_flow_keep_their_order_and_wait_within_the_limit(
        scripts in prop::collection::vec(script(), 1..120),
        fail_open: bool,
    ) {
        let (left, verdicts) = run(&scripts, policy(fail_open));
        let expected = expected(&scripts, fail_open);
        prop_assert_eq!(left.len(), scripts.len(), "every frame leaves exactly once");
        for (number, step, outcome) in &left {
            prop_assert_eq!((*step, *outcome), expected[*number as usize], "frame {}", number);
        }
        for flow in 0..3 {
            let of_flow = left.iter().map(|(number, ..)| *number).filter(|number| scripts[*number as usize].flow == flow);
            prop_assert!(of_flow.is_sorted(), "flow {}", flow);
        }
        let mut ledger = Ledger::new();
        verdicts.counters("", &mut ledger);
        prop_assert_eq!(ledger.imbalances(), []);
        prop_assert_eq!(verdicts.waiting(), 0);
        let missing = scripts.iter().filter(|script| script.after.is_none_or(|after| after > DEADLINE)).count() as u64;
        let count = if fail_open { Count::VerdictFailedOpen } else { Count::VerdictLate };
        prop_assert_eq!(ledger.total(count), missing);
        prop_assert_eq!(ledger.lost(), if fail_open { 0 } else { missing });
    }
}

#[test]
fn waiting_frames_stay_within_the_limit() {
    let held = Script { flow: 1, verdict: Verdict::Pass, after: None };
    for (fail_open, outcome) in [(true, Outcome::Passed), (false, Outcome::Dropped)] {
        let other = |flow| Script { flow, ..held };
        let (left, verdicts) = run(&[held, held, other(2), other(3)], Policy { most: 2, ..policy(fail_open) });
        // Frames of a waiting flow stay in order; on others the policy decides at once.
        assert_eq!(left[..2], [(2, 2, outcome), (3, 3, outcome)]);
        assert_eq!(left[2..], [(0, DEADLINE, outcome), (1, DEADLINE + 1, outcome)]);
        let mut ledger = Ledger::new();
        verdicts.counters("", &mut ledger);
        assert_eq!((ledger.total(Count::VerdictHeld), ledger.imbalances()), (2, vec![]));
    }
}

#[test]
fn remaining_frames_follow_the_policy_at_the_end() {
    let held = Script { flow: 1, verdict: Verdict::Pass, after: None };
    let inspector = Scripted { scripts: vec![held; 3], step: Arc::default(), open: Vec::new() };
    let mut verdicts = Verdicts::new(Box::new(inspector), policy(false));
    let mut left = Vec::new();
    for number in 0..3 {
        let looked = verdicts.look(&Desc::new(Nanos(0), 0, 60), &mut [1]);
        let held = HeldFrame::new(Desc::new(Nanos(0), 0, 60), number);
        assert!(verdicts.waits(&looked));
        verdicts.enter(Nanos(0), held, looked, &mut |_, _| panic!("it waits"));
    }
    verdicts.settle(Nanos(1), true, &mut |held: HeldFrame, outcome| left.push((held.number(), outcome)));
    assert_eq!(left, [(0, Outcome::Dropped), (1, Outcome::Dropped), (2, Outcome::Dropped)]);
}
