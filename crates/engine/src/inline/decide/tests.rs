//! Decisions compared with a simple model.

use super::super::policy::FailMode;
use super::*;
use proptest::prelude::*;

/// Behaviour of an engine on a frame: it inspects frames in order, and not earlier than `look_after` steps after their
/// arrival; its verdict follows at once, or `hold` steps later.
#[derive(Clone, Copy, Debug)]
struct Script {
    flow: u32,
    way: u16,
    look_after: u64,
    hold: Option<u64>,
    passes: bool,
    /// True if the engine is not asked.
    unfit: bool,
}

const HOLD: u64 = 40;
const BUDGET: u64 = 16;
/// Number of frames in a block.
const BLOCK: u32 = 7;

fn policy(on_death: FailMode, on_overload: FailMode, release: ReleaseOrder) -> Policy {
    let (hold, budget) = (Duration::from_nanos(HOLD), Duration::from_nanos(BUDGET));
    Policy { on_death, on_overload, hold, budget, release, ..Policy::default() }
}

/// Model: each round verdicts are applied, then timeouts, then a frame arrives.
struct Naive {
    policy: Policy,
    scripts: Vec<Script>,
    arrived: Vec<u64>,
    /// Time at which a frame was inspected, and its fate once known.
    looked: Vec<Option<u64>>,
    fates: Vec<Option<Fate>>,
    gone: Vec<bool>,
}

impl Naive {
    /// Releases frames with a known fate whose predecessors in the flow, inspected before them, are gone.
    fn release(&mut self, now: u64, out: &mut Vec<(usize, Fate, u64)>) {
        for at in 0..self.arrived.len() {
            let Some(fate) = self.fates[at].filter(|_| !self.gone[at] && self.is_passed(at)) else { continue };
            let waits = |before: &usize| !self.gone[*before] && self.is_with(*before, at);
            if !(0..at).any(|before| waits(&before)) {
                self.gone[at] = true;
                out.push((at, fate, now));
            }
        }
    }

    /// Returns whether the engine has inspected the frame and all before it, or they are decided otherwise.
    fn is_passed(&self, at: usize) -> bool {
        (0..=at).all(|before| self.looked[before].is_some() || self.fates[before].is_some())
    }

    fn is_with(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.scripts[one], &self.scripts[other]);
        one.way == other.way && (self.policy.release == ReleaseOrder::ByArrival || one.flow == other.flow)
    }
}

fn script() -> impl Strategy<Value = Script> {
    let hold = prop_oneof![6 => Just(None), 3 => (1u64..60).prop_map(Some)];
    let look = prop_oneof![8 => 0u64..3, 1 => 0u64..30];
    (0u32..3, 0u16..2, look, hold, any::<bool>(), prop::bool::weighted(0.1))
        .prop_map(|(flow, way, look_after, hold, passes, unfit)| Script { flow, way, look_after, hold, passes, unfit })
}

fn fail() -> impl Strategy<Value = FailMode> {
    prop_oneof![Just(FailMode::Open), Just(FailMode::Closed)]
}

fn release() -> impl Strategy<Value = ReleaseOrder> {
    prop_oneof![Just(ReleaseOrder::ByFlow), Just(ReleaseOrder::ByArrival)]
}

fn said(script: &Script) -> Fate {
    if script.passes { Fate::Passed } else { Fate::Blocked }
}

fn number(place: FramePosition) -> usize {
    (place.block * u64::from(BLOCK)) as usize + place.frame as usize
}

fn place(number: usize) -> FramePosition {
    FramePosition { block: number as u64 / u64::from(BLOCK), frame: (number % BLOCK as usize) as u32 }
}

proptest! {
    /// Per step: verdicts, timeouts, a frame. The engine dies at some step, with all pending verdicts.
    #[test]
    fn frames_leave_once_in_order_and_follow_the_policy(
        scripts in prop::collection::vec(script(), 1..80),
        (on_death, on_overload, release) in (fail(), fail(), release()),
        dies in prop::option::of(0u64..90),
    ) {
        let policy = policy(on_death, on_overload, release);
        let mut decisions = Decisions::new(policy);
        let none = vec![None; scripts.len()];
        let mut naive = Naive {
            policy, scripts: scripts.clone(), arrived: Vec::new(), looked: none.clone(),
            fates: vec![None; scripts.len()], gone: vec![false; scripts.len()],
        };
        let (mut got, mut expected) = (Vec::new(), Vec::new());
        let end = scripts.len() as u64 + HOLD + BUDGET + 2;
        for now in 0..end {
            let mut out = |place: FramePosition, _: u16, fate| got.push((number(place), fate, now));
            let is_dead = dies.is_some_and(|dies| dies <= now);
            if !is_dead {
                // Verdicts on held frames are applied first, then frames are inspected.
                for (at, script) in scripts.iter().enumerate().take(naive.arrived.len()) {
                    let due = naive.looked[at].zip(script.hold).is_some_and(|(looked, hold)| looked + hold <= now);
                    if due && naive.fates[at].is_none() {
                        prop_assert!(decisions.apply_verdict(place(at), said(script), &mut out));
                        naive.fates[at] = Some(said(script));
                    }
                }
                while let Some(next) = decisions.next() {
                    let at = number(next);
                    if naive.arrived[at] + scripts[at].look_after > now {
                        break;
                    }
                    naive.looked[at] = Some(now);
                    naive.fates[at] = scripts[at].hold.is_none().then(|| said(&scripts[at]));
                    decisions.look(naive.fates[at], &mut out);
                }
                decisions.settle(Nanos(now), &mut out);
                for at in 0..naive.arrived.len() {
                    let age = now - naive.arrived[at];
                    let limit = if naive.looked[at].is_some() { HOLD } else { BUDGET };
                    if naive.fates[at].is_none() && age >= limit {
                        let why = if limit == HOLD { PolicyReason::Held } else { PolicyReason::Overload };
                        naive.fates[at] = Some(Fate::Policy(on_overload, why));
                    }
                }
            } else if dies == Some(now) {
                decisions.give_up(decisions.fate_of_dead(), &mut out);
                for at in 0..naive.arrived.len() {
                    naive.fates[at].get_or_insert(Fate::Policy(on_death, PolicyReason::Death));
                }
            }
            naive.release(now, &mut expected);
            let at = now as usize;
            if let Some(script) = scripts.get(at) {
                if at.is_multiple_of(BLOCK as usize) {
                    decisions.turn();
                }
                let dead = is_dead.then_some(Fate::Policy(on_death, PolicyReason::Death));
                let known = script.unfit.then_some(Fate::Unfit).or(decisions.past()).or(dead);
                let overtakes = decisions.past().is_some();
                naive.arrived.push(now);
                naive.fates[at] = known;
                decisions.arrive(Nanos(now), (script.way, script.flow), known, &mut out);
                if overtakes && naive.fates[at].is_some() && got.last().is_some_and(|(last, ..)| *last == at) {
                    // It bypassed frames of other flows.
                    prop_assert!((0..at).all(|before| naive.gone[before] || !naive.is_with(before, at)), "{}", at);
                    naive.gone[at] = true;
                    expected.push((at, known.unwrap(), now));
                }
            }
            naive.release(now, &mut expected);
        }
        let mut numbers: Vec<usize> = got.iter().map(|(at, ..)| *at).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..scripts.len()).collect::<Vec<_>>(), "each goes once");
        for (one, (at, fate, _)) in got.iter().enumerate() {
            prop_assert_eq!(Some(*fate), naive.fates[*at], "frame {}", at);
            let overtaken = got[one + 1..].iter().find(|(later, ..)| later < at && naive.is_with(*later, *at));
            prop_assert_eq!(overtaken, None, "frame {} overtook one of its flow", at);
        }
        got.sort_unstable_by_key(|(at, ..)| *at);
        expected.sort_unstable_by_key(|(at, ..)| *at);
        prop_assert_eq!(got, expected);
        prop_assert!(!decisions.is_busy());
    }
}

/// A frame that is held for long does not affect those of other flows: blocks after it are released, except its own.
#[test]
fn held_frame_keeps_only_its_block() {
    let mut decisions = Decisions::new(policy(FailMode::Closed, FailMode::Closed, ReleaseOrder::ByFlow));
    let mut gone = 0;
    let mut out = |_: FramePosition, _: u16, _: Fate| gone += 1;
    for block in 0..1000 {
        decisions.turn();
        for frame in 0..100 {
            let is_first = block == 0 && frame == 0;
            decisions.arrive(Nanos(0), (0, if is_first { 1 } else { 2 }), None, &mut out);
            decisions.look((!is_first).then_some(Fate::Passed), &mut out);
        }
    }
    let kept: usize = decisions.batches.iter().map(|batch| batch.frames.len()).sum();
    assert!(kept <= 300, "{kept} frames are remembered");
    assert!(decisions.apply_verdict(FramePosition { block: 0, frame: 0 }, Fate::Passed, &mut out));
    decisions.turn();
    assert_eq!((gone, decisions.batches.len()), (100_000, 2));
}

/// The number of held frames is bounded; the policy is applied to those beyond.
#[test]
fn the_number_of_held_frames_is_bounded() {
    let mut decisions = Decisions::new(policy(FailMode::Closed, FailMode::Open, ReleaseOrder::ByFlow));
    let mut out = Vec::new();
    decisions.turn();
    for frame in 0..MOST_HELD as u32 + 5 {
        decisions.arrive(Nanos(0), (0, frame + 1), None, &mut |place, _, fate| out.push((place.frame, fate)));
        decisions.look(None, &mut |place, _, fate| out.push((place.frame, fate)));
    }
    let beyond = MOST_HELD as u32..MOST_HELD as u32 + 5;
    assert!(out.iter().map(|(frame, _)| *frame).eq(beyond));
    assert!(out.iter().all(|(_, fate)| *fate == Fate::Policy(FailMode::Open, PolicyReason::Held)));
}
