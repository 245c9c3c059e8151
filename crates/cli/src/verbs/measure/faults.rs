//! What the tester itself did not do is no figure of a device, whatever the test: against a device that is a function.

use super::account::{Account, Counts, Way};
use super::options::Args;
use super::plan::Plan;
use super::report::{Environment, Files, Report, SizeReport};
use super::reset::Helper;
use super::traffic::Frames;
use super::trial::{Beside, Trials, directions};
use super::{Measurement, Sized};
use clap::Parser;
use linerate_engine::Stop;
use linerate_generate::stream::StreamSet;
use linerate_measure::trial::loss_ratio;
use linerate_measure::{Found, Goal, Limits, Verdict};
use std::cell::RefCell;

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Alone {
    #[command(flatten)]
    args: Args,
}

/// Of so many frames, in which trial, the device loses some and the tester others.
struct Device<F>(Stop, RefCell<(u64, F)>);

impl<F: FnMut(u64, u64) -> (u64, u64)> Trials for Device<F> {
    fn run(&self, sets: &[StreamSet], frames: &Frames, _: u64, _: Option<Beside<'_>>) -> anyhow::Result<Account> {
        let (trial, came) = &mut *self.1.borrow_mut();
        *trial += 1;
        let sent = sets.first().map_or(0, |set| frames.intended(set).unwrap_or(0));
        let (lost, lost_by_tester) = came(*trial, sent);
        let received = sent - lost - lost_by_tester;
        let loss_ratio = loss_ratio(sent, received);
        let lost = sent - received;
        let counts = Counts { intended: sent, sent, received, lost, loss_ratio, lost_by_tester, ..Counts::default() };
        Ok(Account::new(vec![Way { counts, seconds: 1.0, ..Way::default() }]))
    }

    fn resets(&self) -> Option<&Helper> {
        None
    }

    fn stop(&self) -> &Stop {
        &self.0
    }
}

/// One test on a device with a throughput of 50,000 of 100,000 frames/s, as a document.
fn tested(
    device: impl FnMut(u64, u64) -> (u64, u64),
    test: impl Fn(&mut Measurement<'_>, &Sized<'_>) -> anyhow::Result<()>,
) -> serde_json::Value {
    let method = ["--method", "rfc2544", "--short", "--repeat", "3", "--burst-limit", "0.1", "--settle", "0"];
    let args = [&["--to", "mem:a", "--check", "mem:b", "--size", "256", "--quiet"], &method[..]].concat();
    let Alone { args } = Alone::parse_from(args);
    let plan = Plan::new(&args).unwrap();
    let directions = directions(&args).unwrap();
    let mut report = Report::new(&args, &plan, &directions, Environment::find(&directions));
    let mut size = SizeReport::new(256, false, None);
    let (goal, lower) = (Goal::rfc2544_short(), Some(5e4));
    size.found(&[Found { goal, lower, upper: Some(5.1e4), throughput: lower, verdict: Verdict::Regular }]);
    report.sizes.push(size);
    let bench = Device(Stop::new(), RefCell::new((0, device)));
    let files = Files::default();
    let mut measurement = Measurement { args: &args, plan, bench: &bench, until: None, report, files, number: 0 };
    let sets = super::sets(&args, 256).unwrap();
    let limits = Limits { least: 1e3, greatest: 1e5 };
    let sized = Sized { size: 256, sets: &sets, limits, tester: None, line: Some(1e9) };
    test(&mut measurement, &sized).unwrap();
    serde_json::to_value(&measurement.report).unwrap()["sizes"][0].take()
}

/// A queue of 100 frames that is drained at half the rate takes bursts of 200.
fn queue(sent: u64) -> u64 {
    (sent / 2).saturating_sub(100)
}

#[test]
fn a_burst_that_the_tester_lost_a_part_of_is_sent_again() {
    let alone = tested(|_, sent| (queue(sent), 0), |all, sized| all.bursts(sized));
    let third = |trial: u64, sent: u64| (queue(sent), u64::from(trial.is_multiple_of(3)));
    let found = tested(third, |all, sized| all.bursts(sized));
    assert_eq!(alone["bursts"]["frames"].as_array().unwrap().len(), 3);
    assert_eq!(found["bursts"]["frames"], alone["bursts"]["frames"], "{found}");
    assert!(found["bursts"]["trials"].as_u64() > alone["bursts"]["trials"].as_u64());
    let always = tested(|_, sent| (queue(sent), 1), |all, sized| all.bursts(sized));
    let bursts = &always["bursts"];
    assert!(bursts["mean"].is_null() && bursts["tester"].as_str().unwrap().contains("lost 1 frames"), "{bursts}");
}

#[test]
fn other_tests_say_where_the_tester_was_at_fault() {
    let first = |trial: u64, _: u64| (5, u64::from(trial == 1) * 7);
    let found = tested(first, |all, sized| all.mrr(sized));
    assert_eq!((&found["forwarding"]["limited"], found["forwarding"]["tester"].is_string()), (&1.into(), true));
    let found = tested(first, |all, sized| all.latency(sized));
    let is_named = |run: &serde_json::Value| run[0]["tester"].is_string();
    let runs = found["latency"]["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(is_named).collect::<Vec<_>>(), [true, false, false]);
    let found = tested(first, |all, sized| all.recovery(sized));
    let runs = found["recovery"]["runs"].as_array().unwrap();
    assert_eq!(runs.iter().map(is_named).collect::<Vec<_>>(), [true, false, false]);
    assert!(found["recovery"]["mean_s"].is_number());
    let found = tested(|_, _| (0, 1), |all, sized| all.recovery(sized));
    assert!(found["recovery"]["mean_s"].is_null(), "no run is of the device alone: {found}");
}
