//! Plan of a measurement: repetitions and durations, and deviations from the specifications.

use super::options::{Args, Method, Test};
use super::services::{self, TestedService};
use crate::exit::usage;
use linerate_engine::check::DUPLICATES;
use linerate_measure::{Goal, Limits, estimate};
use std::time::Duration;

/// Typical preparation time of a trial in seconds.
const READY: f64 = 0.1;
/// Default ratio of the maximum to the minimum load.
pub(super) const SPAN: f64 = 1e4;
/// Duration of the halved load of a recovery, as a part of the overload.
pub(super) const AFTER: f64 = 0.5;

/// Tests, goals and durations.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub method: Method,
    pub tests: Vec<Test>,
    pub goals: Vec<Goal>,
    /// Pause between two trials.
    pub settle: Duration,
    /// Silence after which a trial ends.
    pub quiet: Duration,
    pub latency: Span,
    pub loss: Span,
    pub bursts: Span,
    pub recovery: Span,
    pub reset: Span,
    pub mrr: Span,
    pub steps: u32,
    /// Maximum length of bursts in seconds.
    pub burst_limit: f64,
    /// True if latency at parts of the result is measured.
    has_latency: bool,
    /// Duration of a step of Y.1564 in seconds.
    pub step: f64,
    /// Duration of the performance test of Y.1564 in seconds.
    pub performance: f64,
}

/// Repetitions and duration of a test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    pub times: u32,
    pub seconds: f64,
    /// Minimum of the specification.
    want: (u32, f64),
}

impl Span {
    /// Returns how the test is shorter than the specification requires, if it is.
    pub(super) fn shortened(&self) -> Option<String> {
        let (times, seconds) = self.want;
        let mut less = Vec::new();
        if self.times < times {
            less.push(format!("{} of {times} runs", self.times));
        }
        if self.seconds < seconds {
            less.push(format!("{} of {seconds} s", self.seconds));
        }
        (!less.is_empty()).then(|| format!("shortened: {}", less.join(", ")))
    }
}

impl Test {
    pub(super) fn name(self) -> &'static str {
        match self {
            Test::Throughput => "throughput",
            Test::Latency => "latency",
            Test::Loss => "loss",
            Test::BackToBack => "back-to-back",
            Test::Recovery => "recovery",
            Test::Reset => "reset",
        }
    }
}

impl Plan {
    /// Creates the plan for the options.
    pub(super) fn new(args: &Args) -> anyhow::Result<Self> {
        check(args)?;
        let goals = args.goals()?;
        let is_strict = goals.iter().any(|goal| goal.name == "rfc2544");
        let ask = &args.method;
        let trial = args.goals.trial;
        let span = |want: (u32, f64), short: (u32, f64)| {
            let (times, seconds) = if ask.short { short } else { want };
            Span { times: ask.repeat.unwrap_or(times), seconds: trial.unwrap_or(seconds), want }
        };
        let tests = match (ask.method, ask.tests.is_empty()) {
            (Method::Rfc2544, true) => {
                vec![Test::Throughput, Test::Latency, Test::Loss, Test::BackToBack, Test::Recovery]
            }
            (Method::Rfc2544, false) => {
                // All tests except the loss rate need the throughput.
                let mut tests = vec![Test::Throughput];
                tests.retain(|_| ask.tests != [Test::Loss]);
                tests.extend(ask.tests.iter().filter(|test| **test != Test::Throughput));
                tests
            }
            _ => Vec::new(),
        };
        if tests.contains(&Test::Reset) != ask.reset_with.is_some() {
            return Err(usage("--tests reset and --reset-with COMMAND need each other: the command resets the device"));
        }
        let once = |span: Span| Span { times: 1, ..span };
        Ok(Plan {
            method: ask.method,
            tests,
            settle: seconds("--settle", args.settle.unwrap_or(if is_strict { 5.0 } else { 0.5 }))?,
            quiet: Duration::from_millis(if is_strict { 2000 } else { 100 }),
            goals,
            latency: span((20, 120.0), (3, 10.0)),
            loss: once(span((1, 60.0), (1, 5.0))),
            bursts: Span { seconds: 2.0, ..span((50, 2.0), (3, 2.0)) },
            recovery: span((3, 60.0), (1, 10.0)),
            reset: span((1, 60.0), (1, 60.0)),
            mrr: span((10, 1.0), (10, 1.0)),
            steps: ask.steps.unwrap_or(10),
            burst_limit: seconds("--burst-limit", ask.burst_limit.unwrap_or(2.0))?.as_secs_f64(),
            has_latency: ask.latency,
            step: trial.unwrap_or(10.0),
            performance: seconds("--performance", ask.performance.unwrap_or(900.0))?.as_secs_f64(),
        })
    }

    /// Returns the time between the frames of two trials in seconds.
    pub(super) fn between(&self) -> f64 {
        self.settle.as_secs_f64() + (self.quiet / 4).min(DUPLICATES).as_secs_f64() + READY
    }

    /// Estimates the duration of each test for one size, in seconds, for a typical device.
    pub(super) fn estimate(&self, limits: Option<Limits>) -> anyhow::Result<Vec<(&'static str, f64)>> {
        let limits = limits.unwrap_or(Limits { least: 1.0, greatest: SPAN });
        let between = self.between();
        let search = || estimate(limits, &self.goals, between).map(|found| found.seconds).map_err(usage);
        let times = |span: Span, more: f64| f64::from(span.times) * (span.seconds + more + between);
        Ok(match self.method {
            Method::Search if self.has_latency => {
                let trial = self.goals.last().map_or(0.0, |goal| goal.final_duration);
                vec![("search", search()?), ("latency", 4.0 * (trial + between))]
            }
            Method::Search => vec![("search", search()?)],
            Method::Mrr => vec![("mrr", times(self.mrr, 0.0))],
            Method::Soak | Method::Y1564 => Vec::new(),
            Method::Rfc2544 => {
                let of = |test: &Test| {
                    Ok((
                        test.name(),
                        match test {
                            Test::Throughput => search()?,
                            Test::Latency => times(self.latency, 0.0),
                            // Typically half of the steps, and two without loss.
                            Test::Loss => f64::from(self.steps / 2 + 2) * (self.loss.seconds + between),
                            // A binary search; most bursts are short.
                            Test::BackToBack => {
                                f64::from(self.bursts.times) * 20.0 * (self.burst_limit / 8.0 + between)
                            }
                            Test::Recovery => times(self.recovery, self.recovery.seconds * AFTER),
                            Test::Reset => times(self.reset, 0.0),
                        },
                    ))
                };
                self.tests.iter().map(of).collect::<anyhow::Result<_>>()?
            }
        })
    }

    /// Estimates the duration of each test for all of `sizes` in seconds; infinite for a soak without an end.
    pub(super) fn estimate_all(
        &self,
        args: &Args,
        services: Option<&[TestedService]>,
        sizes: usize,
    ) -> anyhow::Result<Vec<(&'static str, f64)>> {
        if let Some(services) = services {
            let (steps, performance) = services::seconds(services, self);
            return Ok(vec![("configuration", steps), ("performance", performance)]);
        }
        if self.method == Method::Soak {
            return Ok(vec![("soak", args.duration.unwrap_or(f64::INFINITY))]);
        }
        Ok(self.estimate(None)?.into_iter().map(|(test, seconds)| (test, seconds * sizes as f64)).collect())
    }

    /// Returns the deviations from the specifications, by section.
    pub(super) fn deviations(&self, args: &Args) -> Vec<String> {
        let mut deviations: Vec<String> = Vec::new();
        let goals = || self.goals.iter().filter(|goal| goal.name.starts_with("rfc2544"));
        if goals().next().is_none() || !matches!(self.method, Method::Search | Method::Rfc2544) {
            return deviations;
        }
        if let Some(goal) = goals().find(|goal| goal.final_duration < 60.0) {
            let seconds = goal.final_duration;
            deviations.push(format!("RFC 2544, 24: final trials of {seconds} s are shortened (60 s or more required)"));
        }
        for (test, section, span) in [
            (Test::Latency, "26.2", self.latency),
            (Test::Loss, "26.3", self.loss),
            (Test::BackToBack, "26.4", self.bursts),
            (Test::Recovery, "26.5", self.recovery),
        ] {
            if let Some(how) = span.shortened().filter(|_| self.tests.contains(&test)) {
                deviations.push(format!("RFC 2544, {section}: {} {how}", test.name()));
            }
        }
        let learning = if args.learn { "" } else { ", no learning frames (use --learn or --gateway)" };
        deviations.push(format!("RFC 2544, 23: no routing updates{learning}"));
        if self.settle < Duration::from_secs(5) || self.quiet < Duration::from_secs(2) {
            deviations.push("RFC 2544, 23: the pauses after a trial are shorter than 2 s and 5 s".to_owned());
        }
        let sizes = args.sizes();
        if sizes != [64, 128, 256, 512, 1024, 1280, 1518] {
            deviations
                .push("RFC 2544, 9.1: the frame sizes are not those for Ethernet (use --size rfc2544)".to_owned());
        }
        if !args.both {
            deviations.push("RFC 2544, 14: one direction only (use --both)".to_owned());
        }
        deviations
    }
}

/// Checks that all options given apply to the method.
fn check(args: &Args) -> anyhow::Result<()> {
    use Method::{Mrr, Rfc2544, Search, Soak, Y1564};
    let (ask, goals, method) = (&args.method, &args.goals, args.method.method);
    let rules: [(&str, bool, &[Method]); 17] = [
        ("--tests", !ask.tests.is_empty(), &[Rfc2544]),
        ("--short", ask.short, &[Rfc2544]),
        ("--repeat", ask.repeat.is_some(), &[Rfc2544, Mrr]),
        ("--steps", ask.steps.is_some(), &[Rfc2544]),
        ("--burst-limit", ask.burst_limit.is_some(), &[Rfc2544]),
        ("--reset-with", ask.reset_with.is_some(), &[Rfc2544]),
        ("--latency", ask.latency, &[Search]),
        ("--rate", ask.rate.is_some(), &[Soak]),
        ("--max-latency", ask.max_latency.is_some(), &[Soak]),
        ("--services", ask.services.is_some(), &[Y1564]),
        ("--performance", ask.performance.is_some(), &[Y1564]),
        ("--goal", !goals.goal.is_empty(), &[Search]),
        ("--sum", goals.sum.is_some(), &[Search]),
        ("--width", goals.width.is_some(), &[Search, Rfc2544]),
        ("--trial", goals.trial.is_some(), &[Search, Rfc2544, Mrr, Y1564]),
        ("--min", args.min.is_some(), &[Search, Rfc2544]),
        // Other tests send exact numbers of frames, of all packets in turn.
        ("--streams", args.streams.is_some(), &[Search, Mrr]),
    ];
    let name = |method: Method| match method {
        Search => "search",
        Rfc2544 => "rfc2544",
        Mrr => "mrr",
        Soak => "soak",
        Y1564 => "y1564",
    };
    for (option, is_given, methods) in rules {
        if is_given && !methods.contains(&method) {
            let methods: Vec<&str> = methods.iter().map(|method| name(*method)).collect();
            let methods = methods.join(" or ");
            return Err(usage(format!("{option} needs --method {methods}; it has no effect with {}", name(method))));
        }
    }
    match method {
        Soak if ask.rate.is_none() => Err(usage("--method soak needs --rate, such as --rate 500kpps")),
        Soak if args.sizes().len() > 1 => Err(usage("--method soak needs a single --size, such as --size 256")),
        Y1564 if ask.services.is_none() => Err(usage("--method y1564 needs --services FILE")),
        Y1564 if !args.packet.is_empty() => {
            Err(usage("--packet has no effect with --method y1564: each service has its own packet"))
        }
        Rfc2544 if !goals.goal.is_empty() => {
            Err(usage("--goal has no effect with --method rfc2544: its goal is fixed"))
        }
        _ => Ok(()),
    }
}

/// Converts an option in seconds to a duration.
pub(super) fn seconds(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| usage(format!("{option} {seconds}: invalid duration")))
}
