//! Tests that failures of the tester never count as results of the device, which a function simulates.

use super::account::{DirectionResult, TrialCounts, TrialResult};
use super::options::Args;
use super::plan::Plan;
use super::report::{Environment, Files, Report, SizeReport};
use super::reset::Helper;
use super::traffic::Frames;
use super::trial::{SideTask, Trials, directions};
use super::{Measurement, SizeParameters};
use clap::Parser;
use linerate_engine::Stop;
use linerate_generate::stream::StreamSet;
use linerate_measure::trial::loss_ratio;
use linerate_measure::{Goal, GoalResult, Limits, Verdict};
use serde_json::Value;
use std::cell::RefCell;

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Wrapper {
    #[command(flatten)]
    args: Args,
}

/// Simulated device: given the trial and the number of frames, a function returns the numbers of those lost by the
/// device, lost by the tester, and sent late.
struct Device<F>(Stop, RefCell<(u64, F)>);

impl<F: FnMut(u64, u64) -> (u64, u64, u64)> Trials for Device<F> {
    fn run(&self, sets: &[StreamSet], frames: &Frames, _: u64, _: Option<SideTask<'_>>) -> anyhow::Result<TrialResult> {
        let (trial, outcome) = &mut *self.1.borrow_mut();
        *trial += 1;
        let sent = sets.first().map_or(0, |set| frames.intended(set).unwrap_or(0));
        let (lost, lost_by_tester, late) = outcome(*trial, sent);
        let received = sent - lost - lost_by_tester;
        let loss_ratio = loss_ratio(sent, received);
        let lost = sent - received;
        let counts = TrialCounts {
            intended: sent,
            sent,
            late,
            received,
            lost,
            loss_ratio,
            lost_by_tester,
            ..TrialCounts::default()
        };
        let to = "mem:b".to_owned();
        Ok(TrialResult::new(vec![DirectionResult { to, counts, seconds: 1.0, ..DirectionResult::default() }]))
    }

    fn resets(&self) -> Option<&Helper> {
        None
    }

    fn stop(&self) -> &Stop {
        &self.0
    }
}

/// Runs one test on a device with a throughput of 50,000 of 100,000 frames/s; returns the report as JSON.
fn tested(
    device: impl FnMut(u64, u64) -> (u64, u64, u64),
    test: impl Fn(&mut Measurement<'_>, &SizeParameters<'_>) -> anyhow::Result<()>,
) -> Value {
    let method =
        ["--method", "rfc2544", "--short", "--repeat", "3", "--burst-limit", "0.1", "--settle", "0", "--trial", "1"];
    let args = [&["--to", "mem:a", "--check", "mem:b", "--size", "256", "--quiet"], &method[..]].concat();
    let Wrapper { args } = Wrapper::parse_from(args);
    let plan = Plan::new(&args).unwrap();
    let directions = directions(&args).unwrap();
    let mut report = Report::new(&args, &plan, &directions, Environment::find(&directions));
    let mut size = SizeReport::new(256, false, None);
    let (goal, lower) = (Goal::rfc2544_short(), Some(5e4));
    size.found(&[GoalResult { goal, lower, upper: Some(5.1e4), throughput: lower, verdict: Verdict::Regular }]);
    report.sizes.push(size);
    let bench = Device(Stop::new(), RefCell::new((0, device)));
    let files = Files::default();
    let mut measurement =
        Measurement { args: &args, plan, bench: &bench, until: None, report, files, number: 0, repeated: 0 };
    let sets = super::sets(&args, 256).unwrap();
    let limits = Limits { least: 1e3, greatest: 1e5 };
    let sized = SizeParameters { size: 256, sets: &sets, limits, tester: None, line: Some(1e9) };
    let failure = test(&mut measurement, &sized).err().map(|error| error.to_string());
    let mut found = serde_json::to_value(&measurement.report).unwrap()["sizes"][0].take();
    found["failed"] = failure.into();
    found
}

/// Returns the loss of a queue of 100 frames, drained at half the rate: it accepts bursts of 200.
fn queue(sent: u64) -> u64 {
    (sent / 2).saturating_sub(100)
}

#[test]
fn bursts_with_a_tester_failure_are_repeated() {
    let expected = tested(|_, sent| (queue(sent), 0, 0), |all, sized| all.bursts(sized));
    let third = |trial: u64, sent: u64| (queue(sent), u64::from(trial.is_multiple_of(3)), 0);
    let found = tested(third, |all, sized| all.bursts(sized));
    assert_eq!(expected["bursts"]["frames"].as_array().unwrap().len(), 3);
    assert_eq!(found["bursts"]["frames"], expected["bursts"]["frames"], "{found}");
    assert!(found["bursts"]["trials"].as_u64() > expected["bursts"]["trials"].as_u64());
    let always = tested(|_, sent| (queue(sent), 1, 0), |all, sized| all.bursts(sized));
    let bursts = &always["bursts"];
    assert!(bursts["mean"].is_null() && bursts["tester"].as_str().unwrap().contains("lost 1 packet"), "{bursts}");
    let late = tested(|_, sent| (queue(sent).max(1), 0, sent / 2), |all, sized| all.bursts(sized));
    assert!(late["bursts"]["tester"].as_str().unwrap().contains("packets late"), "{late}");
}

/// Returns the lost frames of each trial.
fn lost(found: &Value) -> Vec<u64> {
    found["trials"].as_array().unwrap().iter().map(|trial| trial["lost"].as_u64().unwrap()).collect()
}

#[test]
fn trials_with_a_tester_failure_are_repeated() {
    for fault in [|_: u64| (0, 7, 0), |sent: u64| (3, 0, sent / 50)] {
        let first = |trial: u64, sent: u64| if trial == 1 { fault(sent) } else { (5, 0, 0) };
        let found = tested(first, |all, sized| all.mrr(sized));
        assert_eq!((&found["forwarding"]["limited"], &found["forwarding"]["tester"]), (&0.into(), &Value::Null));
        assert_eq!(found["trials"].as_array().unwrap().len(), 4, "three runs and the repeated one");
        let found = tested(|_, sent| fault(sent), |all, sized| all.mrr(sized));
        assert_eq!((&found["forwarding"]["limited"], found["forwarding"]["tester"].is_string()), (&3.into(), true));
        assert_eq!(found["trials"].as_array().unwrap().len(), 12, "each run was repeated three times");
        let found = tested(|_, sent| fault(sent), |all, sized| all.latency(sized));
        let runs = found["latency"]["runs"].as_array().unwrap();
        assert!(runs.iter().all(|run| run[0]["tester"].is_string()), "{found}");
        let found = tested(first, |all, sized| all.recovery(sized));
        assert!(found["recovery"]["mean_s"].is_number() && lost(&found).len() == 4, "{found}");
        let found = tested(|_, sent| fault(sent), |all, sized| all.recovery(sized));
        assert!(found["recovery"]["mean_s"].is_null(), "all runs are limited by the tester: {found}");
        let found = tested(|_, sent| fault(sent), |all, sized| all.loss(sized));
        assert!(found["loss"].as_array().unwrap().iter().all(|step| step["tester"].is_string()), "{found}");
    }
}

/// Searches with a device that forwards 50,000 frames/s; its short queue overflows when packets arrive in bursts.
fn searched(late: impl Fn(u64) -> u64) -> Value {
    let device = |trial: u64, sent: u64| match late(trial) {
        0 => (sent.saturating_sub(50_000), 0, 0),
        late => (sent.saturating_sub(50_000).max(late), 0, late),
    };
    tested(device, |all, sized| all.search(sized))
}

#[test]
fn late_packet_loss_is_not_an_upper_bound() {
    let result = |found: &Value| found["results"][0].clone();
    let quiet = result(&searched(|_| 0));
    assert_eq!(quiet["verdict"], "regular", "{quiet}");
    let now_and_then = result(&searched(|trial| if trial.is_multiple_of(4) { 40 } else { 0 }));
    assert_eq!(now_and_then, quiet, "repeated trials are not part of the result");
    let always = result(&searched(|_| 40));
    assert_eq!(always["verdict"], "limited by the tester", "{always}");
    let held = tested(|_, sent| (0, 0, sent / 2), |all, sized| all.search(sized));
    assert_eq!(result(&held)["verdict"], "limited by the tester", "the load was not offered: {held}");
}

#[test]
fn tests_fail_if_nothing_is_received() {
    type Test = fn(&mut Measurement<'_>, &SizeParameters<'_>) -> anyhow::Result<()>;
    let tests: [Test; 7] = [
        |all, sized| all.search(sized),
        |all, sized| all.mrr(sized),
        |all, sized| all.latency(sized),
        |all, sized| all.loss(sized),
        |all, sized| all.bursts(sized),
        |all, sized| all.recovery(sized),
        |all, sized| all.soak(sized),
    ];
    for test in tests {
        let found = tested(|_, sent| (sent, 0, 0), test);
        let failed = found["failed"].as_str().unwrap_or_default();
        assert!(failed.starts_with("mem:b: nothing received; check the cabling"), "{found}");
        assert_eq!(found["trials"].as_array().unwrap().len(), 1, "{found}");
    }
    let later = tested(|trial, sent| (if trial == 1 { 0 } else { sent }, 0, 0), |all, sized| all.mrr(sized));
    assert!(later["failed"].is_null(), "loss after the first trial is a result: {later}");
}
