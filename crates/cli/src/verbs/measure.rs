//! `linerate measure`: benchmarks a device between two ports.

mod account;
mod bursts;
#[cfg(test)]
mod faults;
mod options;
mod plan;
mod privileges;
mod recovery;
mod repeat;
mod report;
pub mod reset;
mod rfc2544;
mod search;
#[cfg(feature = "serve")]
pub mod server;
mod services;
mod soak;
mod traffic;
mod trial;

pub use self::options::Args;
use self::options::{Method, Test};
use self::plan::{Plan, SPAN, seconds};
use self::report::{Files, Report, SizeReport, clock, head};
use self::reset::Helper;
use self::traffic::Frames;
use self::trial::{PortTrials, Trials};
use crate::exit::{Exit, usage};
use crate::signals::stop_on_signals;
use crate::verbs::generate::preflight;
use crate::verbs::inputs::are_live;
use crate::view::rates::{counted, grouped};
use crate::view::terminal::{fail, print_stderr, show, show_report, shown};
use anyhow::Context;
use linerate_generate::Rate;
use linerate_generate::rate::RequestedRate;
use linerate_generate::stream::{Mark, StreamSet};
use linerate_measure::Limits;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default duration of the warm-up in seconds, which measures what the tester can send.
const FIRST: f64 = 1.0;
/// Maximum load as a part of what the tester can send.
const OF_TESTER: f64 = 0.95;
/// Minimum number of frames in the shortest trial at the minimum load.
const FEWEST: f64 = 10.0;
/// Interval at which the end of the run is polled during pauses.
const NAP: Duration = Duration::from_millis(20);

/// Running measurement.
struct Measurement<'a> {
    args: &'a Args,
    plan: Plan,
    bench: &'a dyn Trials,
    until: Option<Instant>,
    report: Report,
    files: Files<'a>,
    number: u64,
    /// Repeated trials of the current size.
    repeated: u32,
}

/// Parameters of one frame size.
struct SizeParameters<'a> {
    size: u64,
    /// Streams of each direction.
    sets: &'a [StreamSet],
    limits: Limits,
    /// Maximum rate of the tester in frames per second, measured by the warm-up.
    tester: Option<f64>,
    line: Option<f64>,
}

/// Runs `linerate measure`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let plan = Plan::new(args)?;
    let directions = trial::directions(args)?;
    let (to, check) = (&directions[0].from, &directions[0].to);
    let duration = args.duration.map(|limit| seconds("--duration", limit)).transpose()?;
    let found = preflight::interface(to);
    let services = args.method.services.as_deref().map(services::read).transpose()?;
    let mean = args.streams.as_deref().map(traffic::of_file).transpose()?.as_ref().map(traffic::mean_size);
    let sizes = if services.is_some() { Vec::new() } else { mean.map_or_else(|| args.sizes(), |mean| vec![mean]) };
    let sets = sizes.iter().map(|size| sets(args, *size)).collect::<anyhow::Result<Vec<_>>>()?;
    let longest = sets.iter().flatten().flat_map(|set| &set.streams).flat_map(|stream| &stream.variants);
    preflight::check_length(found.as_ref(), longest.map(|variant| variant.frame.len()).max().unwrap_or_default())?;
    if args.dry_run {
        show(estimate_line(&plan.estimate_all(args, services.as_deref(), sizes.len())?, sizes.len()));
        return Ok(Exit::Done);
    }
    let identity = args.end.user.identity(are_live([to, check]))?;
    let files = Files::create(&args.end.write, &identity)?;
    let resets = args.method.reset_with.as_deref().map(Helper::start).transpose();
    let resets = resets.context("--reset-with: cannot start a shell")?.map(Arc::new);
    let session = privileges::drop_rights(args, &identity, &directions)?;
    let stop = stop_on_signals(&session)?;
    let mut report = Report::new(args, &plan, &directions, report::Environment::find(&directions));
    report.command = std::env::args().map(quoted).collect::<Vec<_>>().join(" ");
    let (take, threads, learn, quiet) = (args.take, args.threads, args.learn, plan.quiet);
    let bench = PortTrials { directions, take, threads, learn, quiet, stop: &stop, resets };
    let until = duration.map(|duration| Instant::now() + duration);
    let mut measurement = Measurement { args, plan, bench: &bench, until, report, files, number: 0, repeated: 0 };
    let line = args.line.or(preflight::line_of(found.as_ref()));
    let _metrics = args.end.serve_metrics(&identity)?;
    measurement.run(services.as_deref(), &sizes, &sets, line)?;
    measurement.conclude()
}

/// Returns the estimated duration of all tests as a line.
fn estimate_line(tests: &[(&str, f64)], sizes: usize) -> String {
    let all: f64 = tests.iter().map(|(_, seconds)| seconds).sum();
    if all.is_infinite() {
        return "runs until Ctrl-C at one load\n".to_owned();
    }
    let of = if sizes == 0 { String::new() } else { format!(" for {}", counted(sizes as u64, "size")) };
    let each: Vec<String> = tests.iter().map(|(test, seconds)| format!("{test} {}", clock(*seconds))).collect();
    format!("estimated duration {}{of}: {}\n", clock(all), each.join(", "))
}

/// Returns the streams of each direction.
fn sets(args: &Args, size: u64) -> anyhow::Result<Vec<StreamSet>> {
    let usual = [if args.ipv6 { traffic::USUAL_IP6 } else { traffic::USUAL }.to_owned()];
    let texts = if args.packet.is_empty() { &usual[..] } else { &args.packet };
    let set = match &args.streams {
        Some(path) => traffic::of_file(path)?,
        None => traffic::streams(texts, size, args.seed)?,
    };
    let back = args.both.then(|| traffic::turned(&set));
    Ok([set].into_iter().chain(back).collect())
}

impl Measurement<'_> {
    /// Measures services, or all sizes in turn; keeps the report up to date.
    fn run(
        &mut self,
        services: Option<&[services::TestedService]>,
        sizes: &[u64],
        sets: &[Vec<StreamSet>],
        line: Option<f64>,
    ) -> anyhow::Result<()> {
        let estimates = self.plan.estimate_all(self.args, services, sizes.len())?;
        self.report.estimated_s = estimates.iter().map(|(_, seconds)| seconds).filter(|all| all.is_finite()).sum();
        if !self.is_silent() {
            print_stderr(format_args!("{}", estimate_line(&estimates, sizes.len())));
        }
        let started = Instant::now();
        if let Some(services) = services {
            let result = self.services(services);
            self.end(started, result)?;
        }
        for (at, (size, sets)) in sizes.iter().zip(sets).enumerate() {
            self.report.sizes_left = sizes[at..].to_vec();
            let result = self.size(*size, sets, line);
            self.end(started, result)?;
            if self.report.failure.is_some() || self.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// Updates the report with the result so far.
    fn end(&mut self, started: Instant, result: anyhow::Result<()>) -> anyhow::Result<()> {
        self.report.seconds = started.elapsed().as_secs_f64();
        if let Err(error) = result {
            if self.report.is_empty() {
                return Err(error);
            }
            self.report.failure = Some(format!("{error:#}"));
        }
        self.report.is_interrupted = self.bench.stop().is_requested();
        self.files.write(&self.report);
        Ok(())
    }

    /// Runs the method with frames of one size.
    fn size(&mut self, size: u64, sets: &[StreamSet], line: Option<f64>) -> anyhow::Result<()> {
        let is_counted = sets[0].streams.iter().any(|stream| stream.mark == Mark::Count);
        self.report.sizes.push(SizeReport::new(size, is_counted, line.map(|line| traffic::of_line(line, size))));
        self.repeated = 0;
        let Some((limits, tester)) = self.limits(size, sets, line)? else { return Ok(()) };
        let estimates = self.plan.estimate(Some(limits))?;
        self.report.sizes_left.remove(0);
        if let Some(last) = self.report.sizes.last_mut() {
            last.begin(limits, tester, estimates.iter().map(|(_, seconds)| seconds).sum());
        }
        let sized = SizeParameters { size, sets, limits, tester, line };
        self.announce(size, limits, tester, &estimates);
        match self.plan.method {
            Method::Search => self.search(&sized).and_then(|()| self.latency_at_loads(&sized)),
            Method::Mrr => self.mrr(&sized),
            Method::Soak => self.soak(&sized),
            Method::Rfc2544 => self.rfc2544(&sized),
            Method::Y1564 => Ok(()),
        }
    }

    fn rfc2544(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        for test in self.plan.tests.clone() {
            if self.is_over() {
                self.known().skipped.push(format!("{}: not measured", test.name()));
                continue;
            }
            match test {
                Test::Throughput => self.search(sized)?,
                Test::Latency => self.latency(sized)?,
                Test::Loss => self.loss(sized)?,
                Test::BackToBack => self.bursts(sized)?,
                Test::Recovery => self.recovery(sized)?,
                Test::Reset => self.reset(sized)?,
            }
        }
        Ok(())
    }

    /// Returns the limits of the load, and the maximum rate of the tester as measured by a warm-up trial; `None` if it
    /// was interrupted.
    fn limits(
        &mut self,
        size: u64,
        sets: &[StreamSet],
        line: Option<f64>,
    ) -> anyhow::Result<Option<(Limits, Option<f64>)>> {
        let asked = self.args.max.map(|max| frames("--max", max, line, size)).transpose()?;
        let soaked = self.args.method.rate.map(|rate| frames("--rate", rate, line, size)).transpose()?;
        let asked = asked.or(soaked);
        let least = self.args.min.map(|min| frames("--min", min, line, size)).transpose()?;
        let warm_up = self.args.warm_up.unwrap_or(if asked.is_some() { 0.0 } else { FIRST });
        let warm_up = seconds("--warm-up", warm_up)?.as_secs_f64();
        if asked.is_none() && warm_up == 0.0 {
            return Err(usage("--warm-up 0 needs --max: without a warm-up the maximum rate of the tester is unknown"));
        }
        let mut sent = None;
        if warm_up > 0.0 {
            let rate = asked.map_or(Rate::Top, Rate::Frames);
            self.number += 1;
            let account = self.bench.run(sets, &Frames::Paced(rate, warm_up), self.number, None)?;
            if let Some(failure) = account.failure.clone().or_else(|| account.nothing_arrived()) {
                anyhow::bail!(failure);
            }
            if self.is_over() {
                return Ok(None);
            }
            // The slower direction limits both.
            let slowest = account.directions.iter().map(|way| way.counts.sent as f64 / way.seconds.max(1e-3));
            sent = Some(slowest.fold(f64::INFINITY, f64::min)).filter(|_| asked.is_none());
            self.rest();
        }
        let ours = sent.map(|sent| OF_TESTER * sent);
        let line = line.map(|line| traffic::of_line(line, size));
        let usual = || [ours, line].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let greatest = asked.unwrap_or_else(usual);
        let shortest = self.plan.goals.iter().map(|goal| goal.initial_duration).fold(f64::INFINITY, f64::min);
        let least = least.unwrap_or((greatest / SPAN).max(FEWEST / shortest).min(greatest / 2.0));
        let limits = Limits { least, greatest };
        limits.check().map_err(usage)?;
        Ok(Some((limits, sent)))
    }

    /// Returns the report of the current size.
    fn known(&mut self) -> &mut SizeReport {
        let last = self.report.sizes.len() - 1;
        &mut self.report.sizes[last]
    }

    /// Pauses, so that the device settles.
    fn rest(&self) {
        let started = Instant::now();
        while started.elapsed() < self.plan.settle && !self.bench.stop().is_requested() {
            std::thread::sleep(NAP.min(self.plan.settle));
        }
    }

    fn is_over(&self) -> bool {
        self.bench.stop().is_requested() || self.until.is_some_and(|until| Instant::now() >= until)
    }

    fn is_silent(&self) -> bool {
        self.args.end.is_silent()
    }

    fn announce(&self, size: u64, limits: Limits, tester: Option<f64>, estimates: &[(&str, f64)]) {
        if self.is_silent() {
            return;
        }
        let Limits { least, greatest } = limits;
        let round = |frames: f64| grouped(frames.round() as u64);
        let own = tester.map_or_else(String::new, |tester| format!("; tester maximum {}", round(tester)));
        let all: f64 = estimates.iter().map(|(_, seconds)| seconds).sum();
        let about = if all > 0.0 { format!(", estimated {}", clock(all)) } else { String::new() };
        // A soak has one load.
        let from = if self.plan.method == Method::Soak { String::new() } else { round(least) + " to " };
        print_stderr(format_args!("{size} bytes: {from}{} packets/s{about}{own}\n{}", round(greatest), head()));
    }

    /// Returns the state for the report.
    fn state(&self) -> &'static str {
        let is_timed_out = self.until.is_some_and(|until| Instant::now() >= until);
        let Measurement { args, report, .. } = self;
        match (&report.failure, report.is_interrupted, is_timed_out) {
            (Some(_), ..) => "failed",
            (None, true, _) if args.method.method != Method::Soak || args.duration.is_some() => "interrupted",
            (None, false, true) if report.is_unfinished() => "time is over",
            _ => "done",
        }
    }

    fn conclude(mut self) -> anyhow::Result<Exit> {
        self.report.state = self.state();
        self.files.write(&self.report);
        let Measurement { args, report, files, .. } = &self;
        if args.end.json {
            show_report(report)?;
        } else {
            show(report.text());
        }
        let failures: Vec<&str> = report.failure.as_deref().into_iter().chain(files.failures()).collect();
        failures.iter().for_each(|failure| fail(shown(failure)));
        let is_good = failures.is_empty() && !matches!(report.state, "failed" | "interrupted");
        Ok(if is_good { Exit::Done } else { Exit::Failed })
    }
}

/// Quotes a word of a command line for a shell, if needed.
fn quoted(word: String) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./:=,%@+".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Converts a rate to frames per second.
fn frames(option: &str, asked: RequestedRate, line: Option<f64>, size: u64) -> anyhow::Result<f64> {
    match asked.on_line(line) {
        Some(Rate::Frames(frames)) => Ok(frames),
        Some(rate @ Rate::Bits(..)) => Ok(1e9 / rate.exact_nanos(1, size - 4)),
        Some(Rate::Top) => Err(usage(format!("{option}: expected a rate, such as 1mpps or 50%"))),
        None => Err(usage(format!("{option}: a percentage needs the line rate; use --line, such as --line 10gbps"))),
    }
}
