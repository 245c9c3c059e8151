//! Report of a measurement: as JSON, from which all other forms are made, as text, and as files.

mod environment;
mod files;
mod html;
mod notes;
mod sections;
mod soak_services;
mod tests;

pub(super) use self::environment::Environment;
pub(super) use self::files::Files;
pub(super) use self::soak_services::{Minute, PerformanceRow, ServiceStep, SoakTest, seconds_of, soak_line};
pub(super) use self::tests::{
    Bursts, Forwarding, LatencyRun, LatencyTest, LoadLatency, LossRow, Recovery, RecoveryRun, Reset, ResetRun,
};

use self::notes::queue_excess;
use super::account::TrialResult;
use super::options::{Args, Method};
use super::plan::Plan;
use super::trial::Direction;
use crate::view::rates::{bits_per_second, grouped};
use crate::view::table::table;
use linerate_generate::rate::{FCS, L1_OVERHEAD};
use linerate_measure::{Goal, GoalResult, Limits, TrialRequest, Verdict};
use serde::Serialize;

/// `linerate/measure/1`.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    schema: &'static str,
    version: &'static str,
    /// Command line; empty for a measurement of a server.
    pub command: String,
    /// Name of the device under test.
    device: Option<String>,
    /// `running`, `done`, `interrupted`, `time is over` or `failed`.
    pub state: &'static str,
    method: &'static str,
    tests: Vec<&'static str>,
    to: String,
    check: String,
    bidirectional: bool,
    packets: Vec<String>,
    seed: u64,
    load: &'static str,
    goals: Vec<GoalJson>,
    settle_s: f64,
    quiet_s: f64,
    deviations: Vec<String>,
    environment: Environment,
    /// Estimated duration; 0 if unknown.
    pub estimated_s: f64,
    /// Duration so far.
    pub seconds: f64,
    /// Report of each size, or service, that was started.
    pub sizes: Vec<SizeReport>,
    /// Sizes that were not measured, because the run ended before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sizes_left: Vec<u64>,
    /// Steps of the service configuration test.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStep>,
    /// Performance test with all services together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub performance: Vec<PerformanceRow>,
    /// True if the user stopped the run.
    #[serde(skip)]
    pub is_interrupted: bool,
    /// Failure, if any.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct GoalJson {
    name: &'static str,
    loss_ratio: f64,
    exceed_ratio: f64,
    width: f64,
    initial_trial_s: f64,
    final_trial_s: f64,
    duration_sum_s: f64,
}

/// Report of one frame size.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct SizeReport {
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<String>,
    /// `trailer`, or `count` if frames have no room for one; they have no latencies then.
    mark: &'static str,
    min_load: f64,
    max_load: f64,
    /// Line rate in frames per second.
    line_rate: Option<f64>,
    /// Maximum rate of the tester in frames per second.
    tester: Option<f64>,
    estimated_s: f64,
    pub trials: Vec<Row>,
    results: Vec<ResultJson>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub at_loads: Vec<LoadLatency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<LatencyTest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loss: Vec<LossRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_shortened: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bursts: Option<Bursts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset: Option<Reset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soak: Option<SoakTest>,
    /// Skipped tests, with reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// Trial and its result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    trial: usize,
    test: &'static str,
    offered: f64,
    duration_s: f64,
    #[serde(flatten)]
    account: TrialResult,
}

#[derive(Clone, Debug, Serialize)]
struct ResultJson {
    goal: &'static str,
    verdict: &'static str,
    why: &'static str,
    /// Relevant lower bound in frames per second.
    lower: Option<f64>,
    upper: Option<f64>,
    conditional_throughput: Option<f64>,
    gbps_l1: Option<f64>,
    gbps_l2: Option<f64>,
    latency_p50_ns: Option<i64>,
    latency_p99_ns: Option<i64>,
    /// Part of the rate that a queue of the device may have added.
    queue_excess: Option<f64>,
}

impl Report {
    /// Creates an empty report.
    pub(super) fn new(args: &Args, plan: &Plan, directions: &[Direction], environment: Environment) -> Self {
        let usual = if args.ipv6 { super::traffic::USUAL_IP6 } else { super::traffic::USUAL };
        let packets = match &args.streams {
            Some(path) => vec![format!("streams of {}", path.display())],
            None if args.packet.is_empty() => vec![usual.to_owned()],
            None => args.packet.clone(),
        };
        let has_goals = matches!(plan.method, Method::Search | Method::Rfc2544);
        let is_service = plan.method == Method::Y1564;
        let method = match plan.method {
            Method::Search => "search",
            Method::Rfc2544 => "rfc2544",
            Method::Mrr => "mrr",
            Method::Soak => "soak",
            Method::Y1564 => "y1564",
        };
        Report {
            schema: "linerate/measure/1",
            version: env!("CARGO_PKG_VERSION"),
            command: String::new(),
            device: args.device.clone(),
            state: "running",
            method,
            tests: plan.tests.iter().map(|test| test.name()).collect(),
            to: directions[0].from.to_string(),
            check: directions[0].to.to_string(),
            bidirectional: args.both,
            packets: if is_service { Vec::new() } else { packets },
            seed: args.seed,
            load: match args.both {
                true => "packets/s over all packets, per direction; loss over both directions",
                false => "packets/s over all packets, in one direction",
            },
            goals: plan.goals.iter().filter(|_| has_goals).map(GoalJson::from).collect(),
            settle_s: plan.settle.as_secs_f64(),
            quiet_s: plan.quiet.as_secs_f64(),
            deviations: plan.deviations(args),
            environment,
            estimated_s: 0.0,
            seconds: 0.0,
            sizes: Vec::new(),
            sizes_left: Vec::new(),
            services: Vec::new(),
            performance: Vec::new(),
            is_interrupted: false,
            failure: None,
        }
    }

    /// Returns whether no trial has finished.
    pub(super) fn is_empty(&self) -> bool {
        self.sizes.iter().all(|size| size.trials.is_empty())
    }

    /// Returns whether a search, a test or a size was left when the run ended.
    pub(super) fn is_unfinished(&self) -> bool {
        let is_open = |(_, result): (&SizeReport, &ResultJson)| result.verdict == Verdict::Unfinished.name();
        self.results().any(is_open)
            || !self.sizes_left.is_empty()
            || self.sizes.iter().any(|size| !size.skipped.is_empty())
    }

    /// Returns the results in one line.
    fn summary(&self) -> String {
        let found = self.results().filter_map(|(size, result)| {
            let (frames, gbps) = (result.lower?, result.gbps_l1?);
            let verdict = if result.verdict == "regular" { String::new() } else { format!(" ({})", result.verdict) };
            let rate = format!("{} packets/s, {}", grouped(frames.round() as u64), bits_per_second(gbps));
            Some(format!("{} bytes, {}: {rate}{verdict}", size.size, result.goal))
        });
        let found: Vec<String> = found.collect();
        let forwarded = self.sizes.iter().filter_map(|size| {
            let mean = size.forwarding.as_ref()?.mean;
            Some(format!("{} bytes: {} packets/s forwarded", size.size, grouped(mean.round() as u64)))
        });
        let soaked = self.sizes.iter().filter_map(|size| Some(format!("load {}", size.soak.as_ref()?.verdict)));
        let steps = self.services.iter().map(|step| step.verdict);
        let verdicts: Vec<&str> = steps.chain(self.performance.iter().map(|row| row.verdict)).collect();
        let passed = verdicts.iter().filter(|verdict| **verdict == "pass").count();
        let services = (!verdicts.is_empty()).then(|| format!("{passed} of {} service steps passed", verdicts.len()));
        let all: Vec<String> = found.into_iter().chain(forwarded).chain(soaked).chain(services).collect();
        match &self.failure {
            Some(failure) => format!("failed: {failure}"),
            None => all.join("; "),
        }
    }

    /// Returns the results as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for section in sections::sections(self) {
            let mut rows = table(&section.heads, section.numbers);
            section.left.iter().for_each(|column| rows.set_left(*column));
            section.rows.into_iter().for_each(|row| rows.add_row(row));
            text += &format!("{}\n{rows}\n", section.title);
        }
        if self.state != "done" {
            text += &format!("  {}\n", self.state);
        }
        self.remarks().iter().for_each(|remark| text += &format!("  {remark}\n"));
        text
    }

    fn results(&self) -> impl Iterator<Item = (&SizeReport, &ResultJson)> {
        self.sizes.iter().flat_map(|size| size.results.iter().map(move |result| (size, result)))
    }
}

impl From<&Goal> for GoalJson {
    fn from(goal: &Goal) -> Self {
        let Goal { name, loss_ratio, exceed_ratio, width, initial_duration, final_duration, duration_sum } = *goal;
        GoalJson {
            name,
            loss_ratio,
            exceed_ratio,
            width,
            initial_trial_s: initial_duration,
            final_trial_s: final_duration,
            duration_sum_s: duration_sum,
        }
    }
}

impl SizeReport {
    /// Creates an empty report of a size.
    pub(super) fn new(size: u64, is_counted: bool, line: Option<f64>) -> Self {
        let mark = if is_counted { "count" } else { "trailer" };
        SizeReport { size, mark, line_rate: line, ..SizeReport::default() }
    }

    /// Creates an empty report of a service.
    pub(super) fn of_service(size: u64, name: &str, limits: Limits) -> Self {
        let Limits { least: min_load, greatest: max_load } = limits;
        SizeReport { service: Some(name.to_owned()), min_load, max_load, ..SizeReport::new(size, false, None) }
    }

    /// Sets what is known before the first trial.
    pub(super) fn begin(&mut self, limits: Limits, tester: Option<f64>, estimated_s: f64) {
        (self.min_load, self.max_load) = (limits.least, limits.greatest);
        (self.tester, self.estimated_s) = (tester, estimated_s);
    }

    /// Sets the results so far.
    pub(super) fn found(&mut self, found: &[GoalResult]) {
        self.results = found.iter().map(|found| self.result(found)).collect();
    }

    /// Returns the result of a goal.
    pub(super) fn lower_of(&self, goal: &str) -> Option<f64> {
        self.results.iter().find(|result| result.goal == goal)?.lower
    }

    /// Returns the result of the first goal.
    pub(super) fn throughput(&self) -> Option<f64> {
        self.results.first()?.lower
    }

    fn result(&self, found: &GoalResult) -> ResultJson {
        let at_result = self.trials.iter().rev().find(|row| Some(row.offered) == found.lower);
        let delay = at_result.map(|row| &row.account.latency);
        let [p50, p99] = [delay.and_then(|delay| delay.latency_p50_ns), delay.and_then(|delay| delay.latency_p99_ns)];
        let gbps = |extra: u64| found.lower.map(|frames| frames * (8 * (self.size - FCS + extra)) as f64 / 1e9);
        ResultJson {
            goal: found.goal.name,
            verdict: found.verdict.name(),
            why: found.verdict.sentence(),
            lower: found.lower,
            upper: found.upper,
            conditional_throughput: found.throughput,
            gbps_l1: gbps(L1_OVERHEAD),
            gbps_l2: gbps(FCS),
            latency_p50_ns: p50,
            latency_p99_ns: p99,
            queue_excess: at_result.and_then(|row| Some(queue_excess(p50?, p99?, row.duration_s))),
        }
    }
}

impl Row {
    pub(super) fn new(trial: usize, test: &'static str, ask: TrialRequest, account: TrialResult) -> Self {
        Row { trial, test, offered: ask.load, duration_s: ask.duration, account }
    }
}

/// Returns the table head of the lines of trials.
pub(super) fn head() -> String {
    format!(
        "{:>6}{:>6} {:<12}{:>12}{:>8}{:>12}{:>10}{:>9}\n",
        "size", "trial", "test", "packets/s", "s", "lost", "loss %", "p99 us"
    )
}

/// Returns the line of a trial.
pub(super) fn line(size: u64, row: &Row) -> String {
    let Row { trial, test, offered, duration_s, account } = row;
    let p99 =
        account.latency.latency_p99_ns.map_or_else(|| "-".to_owned(), |nanos| format!("{:.1}", nanos as f64 / 1e3));
    let mut line = format!(
        "{size:>6}{trial:>6} {test:<12}{:>12}{duration_s:>8.2}{:>12}{:>10.4}{p99:>9}\n",
        grouped(offered.round() as u64),
        // Frames that the tester did not send count as lost, as in the ratio.
        grouped(account.counts.lost + account.counts.unsent),
        account.counts.loss_ratio * 100.0,
    );
    if let Some(own) = &account.tester {
        line += &format!("            tester: {own}\n");
    }
    line
}

/// Formats seconds as hours, minutes and seconds.
pub(super) fn clock(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
