//! Measurements of `linerate serve`, at its open ports.
//!
//! Fields of the request have the names of the options, and are parsed and checked like them. Options that need
//! privileges or other ports are not available: files, commands from clients, the maximum rate of the tester.

use super::account::{DirectionResult, SentFrames, TrialResult, late_after};
use super::options::{Args, Method};
use super::plan::Plan;
use super::report::{Environment, Files, Report};
use super::reset::Helper;
use super::services::{self, TestedService};
use super::soak::LONGEST;
use super::traffic::Frames;
use super::trial::{Direction, DirectionCounters, FEW, SideTask, TrialCounters, Trials};
use super::{Measurement, sets};
use anyhow::{anyhow, bail};
use clap::Parser;
use linerate_engine::Stop;
use linerate_generate::Rate;
use linerate_generate::check::LiveRow;
use linerate_generate::rate::RequestedRate;
use linerate_generate::stream::{Order, StreamSet};
use linerate_measure::trial::loss_ratio;
use linerate_port::Spec;
use linerate_serve::tester;
use linerate_serve::{Bench, Measurer};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Supported options.
const OPTIONS: &[&str] = &[
    "to",
    "check",
    "device",
    "both",
    "packet",
    "ipv6",
    "size",
    "seed",
    "method",
    "tests",
    "short",
    "repeat",
    "steps",
    "latency",
    "goal",
    "trial",
    "sum",
    "width",
    "loss",
    "exceed",
    "max",
    "min",
    "line",
    "settle",
    "duration",
    "burst-limit",
    "rate",
    "max-latency",
    "performance",
    "services",
];
/// Maximum values: seconds of a trial, of a burst (RFC 9004, section 4), of the performance test; repetitions.
const MOST: [(&str, f64); 4] =
    [("trial", 86_400.0), ("burst-limit", 30.0), ("performance", LONGEST), ("repeat", 1000.0)];
/// Placeholder for the reset command in reports: clients must not see it.
const OWN_COMMAND: &str = "the command of the server";
/// A sender that takes longer than the schedule by this factor could not send at the load.
const SLOW: f64 = 1.001;
/// Tolerance for delays of a busy host, on top of [`SLOW`].
const SLACK: Duration = Duration::from_millis(5);

/// Measurements of a server.
#[derive(Default)]
pub struct ServedMeasurements {
    /// Shell that resets the device, if the server has a command for it.
    pub resets: Option<Arc<Helper>>,
}

/// Parsed request.
struct MeasureRequest {
    args: Args,
    services: Option<Vec<TestedService>>,
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct Wrapper {
    #[command(flatten)]
    args: Args,
}

impl Measurer for ServedMeasurements {
    fn estimate(&self, asked: &Value) -> Result<Value, String> {
        let MeasureRequest { args, services } = read(asked, self.resets.is_some())?;
        let estimate = || Plan::new(&args)?.estimate_all(&args, services.as_deref(), args.sizes().len());
        let mut tests = estimate().map_err(|error| format!("{error:#}"))?;
        if args.method.method == Method::Soak {
            tests.iter_mut().for_each(|(_, seconds)| *seconds = seconds.min(LONGEST));
        }
        let seconds: f64 = tests.iter().map(|(_, seconds)| seconds).sum();
        let row = |(test, seconds): &(&str, f64)| json!({"test": test, "seconds": seconds});
        Ok(json!({"seconds": seconds, "tests": tests.iter().map(row).collect::<Vec<_>>()}))
    }

    fn measure(
        &self,
        asked: &Value,
        bench: &Bench,
        notify: &mut (dyn FnMut(String, String) + Send),
    ) -> Result<(), String> {
        let request = read(asked, self.resets.is_some())?;
        measure(request, self.resets.clone(), bench, notify).map_err(|error| format!("{error:#}"))
    }
}

/// Parses a request.
fn read(asked: &Value, can_reset: bool) -> Result<MeasureRequest, String> {
    let Some(fields) = asked.as_object() else { return Err("expected an object".to_owned()) };
    let mut words = vec!["--quiet".to_owned()];
    for (name, most) in MOST {
        let number = fields.get(name).and_then(|value| value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()));
        if number.is_some_and(|number| number > most || number.is_nan()) {
            return Err(format!("{name}: at most {most} on a server"));
        }
    }
    let is_reset = |value: &Value| value.as_str().is_some_and(|text| text.split(',').any(|test| test == "reset"));
    let tests = &asked["tests"];
    if is_reset(tests) || tests.as_array().is_some_and(|tests| tests.iter().any(is_reset)) {
        if !can_reset {
            return Err("tests: reset needs a command; start linerate serve with --reset-with COMMAND".to_owned());
        }
        words.push(format!("--reset-with={OWN_COMMAND}"));
    }
    let services = fields.get("services").filter(|services| !is_empty(services)).map(services::of_json);
    let services = services.transpose().map_err(|error| format!("{error:#}"))?;
    for (name, value) in fields {
        if name == "services" {
            // The content is in the request: no file is read.
            words.extend(services.is_some().then(|| "--services=services".to_owned()));
            continue;
        }
        if !OPTIONS.contains(&name.as_str()) {
            return Err(format!("{name}: unknown field; expected one of {}", OPTIONS.join(", ")));
        }
        let one = |value: &Value| match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            _ => Err(format!("{name}: expected a string or a number")),
        };
        match value {
            Value::Bool(false) => {}
            value if is_empty(value) => {}
            Value::Bool(true) => words.push(format!("--{name}")),
            Value::Array(values) => {
                for value in values {
                    words.push(format!("--{name}={}", one(value)?));
                }
            }
            value => words.push(format!("--{name}={}", one(value)?)),
        }
    }
    let args = Wrapper::try_parse_from(words).map_err(|error| one_line(&error))?.args;
    Plan::new(&args).map_err(|error| format!("{error:#}"))?;
    if services.is_none() {
        sets(&args, *args.sizes().iter().max().unwrap_or(&64)).map_err(|error| format!("{error:#}"))?;
    }
    Ok(MeasureRequest { args, services })
}

/// Returns whether a field is empty, as in a form, and therefore ignored.
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty())
}

/// Returns an error about options in one line.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ").replacen("error: ", "", 1)
}

fn measure(
    request: MeasureRequest,
    resets: Option<Arc<Helper>>,
    bench: &Bench,
    notify: &mut (dyn FnMut(String, String) + Send),
) -> anyhow::Result<()> {
    let MeasureRequest { mut args, services } = request;
    let line = args.line.or(bench.line_of(&args.to));
    let has_load = matches!(args.method.method, Method::Soak | Method::Y1564);
    if args.max.is_none() && !has_load {
        if line.is_none() {
            bail!("max: needed, because the line rate is unknown; set the maximum rate to offer, such as 100kpps");
        }
        args.max = Some(RequestedRate::OfLine(1.0));
    }
    let plan = Plan::new(&args)?;
    let sizes = if services.is_some() { Vec::new() } else { args.sizes() };
    let sets = sizes.iter().map(|size| sets(&args, *size)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut directions = Vec::new();
    for (from, to) in [(&args.to, &args.check), (&args.check, &args.to)].into_iter().take(if args.both { 2 } else { 1 })
    {
        let spec = |name: &String| Spec::parse(&bench.spec_of(name)).map_err(|error| anyhow!("{error}"));
        directions.push(Direction { from: spec(from)?, to: spec(to)?, answer: args.answer.clone() });
    }
    let report = Report::new(&args, &plan, &directions, Environment::find(&directions));
    let at = ServerTrials { bench, ports: (args.to.clone(), args.check.clone()), quiet: plan.quiet, resets };
    let until = args.duration.map(|seconds| super::seconds("duration", seconds)).transpose()?;
    let until = until.map(|duration| std::time::Instant::now() + duration);
    let mut measurement = Measurement {
        args: &args,
        plan,
        bench: &at,
        until,
        report,
        files: Files::for_receiver(notify),
        number: 0,
        repeated: 0,
    };
    measurement.run(services.as_deref(), &sizes, &sets, line)?;
    measurement.report.state = measurement.state();
    measurement.files.write(&measurement.report);
    match measurement.report.failure.take() {
        Some(failure) => Err(anyhow!(failure)),
        None => Ok(()),
    }
}

/// Trials at the ports of a server.
struct ServerTrials<'a> {
    bench: &'a Bench,
    ports: (String, String),
    quiet: Duration,
    resets: Option<Arc<Helper>>,
}

impl DirectionCounters for tester::TrialView {
    fn sent(&self) -> Vec<u64> {
        tester::TrialView::sent(self)
    }

    fn live(&self, aged: Vec<u64>) -> Vec<LiveRow> {
        tester::TrialView::live(self, &aged)
    }

    fn ours(&self) -> u64 {
        tester::TrialView::ours(self)
    }
}

impl Trials for ServerTrials<'_> {
    fn run(
        &self,
        sets: &[StreamSet],
        frames: &Frames,
        _: u64,
        task: Option<SideTask<'_>>,
    ) -> anyhow::Result<TrialResult> {
        let Some(seconds) = frames.seconds().filter(|_| is_here(frames)) else {
            bail!("max: needed on a server; set the maximum rate to offer, such as 100kpps")
        };
        let (to, check) = &self.ports;
        let way = |(set, (tx, rx)): (&StreamSet, (&String, &String))| tester::TrialDirection {
            tx: tx.clone(),
            rx: rx.clone(),
            set: timed(set, frames),
            seconds,
            late_after: late_after(frames.load(set)),
        };
        let directions: Vec<tester::TrialDirection> = sets.iter().zip([(to, check), (check, to)]).map(way).collect();
        let task = task.map(|task| -> tester::TrialObserver<'_> {
            Box::new(move |directions, is_sent| {
                let boxed = |way| -> Box<dyn DirectionCounters> { Box::new(way) };
                (task.does)(&TrialCounters { directions: directions.into_iter().map(boxed).collect(), is_sent });
            })
        });
        let results = self.bench.trial(&directions, self.quiet, task).map_err(|failure| anyhow!(failure))?;
        let mut accounts = Vec::new();
        for (way, result) in directions.iter().zip(&results) {
            let sent: u64 = result.sent.iter().sum();
            let made = SentFrames {
                per_stream: &result.sent,
                frames: sent,
                check: &result.check,
                elapsed: result.elapsed,
                lateness_p99_us: None,
                late: result.late,
                losses: result.losses.clone(),
                lost_by_tester: result.losses.values().sum(),
                failure: result.failure.clone(),
            };
            let intended = frames.intended(&way.set).map(|intended| (intended, seconds));
            let per_stream = way.set.streams.len() <= FEW;
            let mut account = DirectionResult::new(intended, &way.set, &made, per_stream);
            let part = sent.saturating_sub(1) as f64 / frames.intended(&way.set).unwrap_or(1).max(1) as f64;
            let due = Duration::from_secs_f64(seconds * part.min(1.0));
            if result.elapsed > due.mul_f64(SLOW) + SLACK {
                // Frames that left after the scheduled end were not sent at this load.
                let part = due.as_secs_f64() / result.elapsed.as_secs_f64();
                let late = sent - ((sent as f64 * part) as u64).min(sent);
                let counts = &mut account.counts;
                counts.sent -= late;
                counts.unsent += late;
                counts.received = counts.received.saturating_sub(late);
                counts.loss_ratio = loss_ratio(counts.sent + counts.unsent, counts.received);
            }
            (account.from, account.to) = (self.bench.spec_of(&way.tx), self.bench.spec_of(&way.rx));
            accounts.push(account);
        }
        Ok(TrialResult::new(accounts))
    }

    fn stop(&self) -> &Stop {
        &self.bench.stop
    }

    fn resets(&self) -> Option<&Helper> {
        self.resets.as_deref()
    }
}

/// Returns whether a server can send these frames: each stream needs a rate.
fn is_here(frames: &Frames) -> bool {
    matches!(frames, Frames::Paced(Rate::Frames(_), _) | Frames::Phases(_) | Frames::Burst(_, Rate::Frames(_)))
}

/// Returns the streams, each with a rate, a number of frames and a start time.
fn timed(set: &StreamSet, frames: &Frames) -> StreamSet {
    let mut set = frames.of(set);
    match frames {
        Frames::Phases(phases) => {
            let mut start = 0.0;
            for (stream, phase) in set.streams.iter_mut().zip(phases) {
                stream.span.start = (start * 1e9_f64).round() as u64;
                start += phase.seconds();
            }
            set.order = Order::Interleaved;
        }
        Frames::Burst(..) => {}
        // Services have rates of their own.
        Frames::Paced(_, seconds) if set.rate.is_none() => {
            for stream in &mut set.streams {
                if let Rate::Frames(load) = stream.rate {
                    stream.count = Some(((load * seconds).ceil() as u64).max(1));
                }
            }
        }
        _ => {
            let (streams, all) = (set.streams.len() as u64, frames.intended(&set).unwrap_or(0));
            for (at, stream) in (0..).zip(&mut set.streams) {
                if let Frames::Paced(Rate::Frames(load), _) = frames {
                    stream.rate = Rate::Frames(load / streams as f64);
                }
                stream.count = Some((all / streams + u64::from(at < all % streams)).max(1));
            }
        }
    }
    set.rate = None;
    set
}
