//! Service activation test of ITU-T Y.1564.

use super::account::{DirectionResult, TrialResult};
use super::plan::Plan;
use super::report::{PerformanceRow, ServiceStep, SizeReport, seconds_of};
use super::soak::{StreamCounts, by_second};
use super::traffic::{self, Frames};
use super::trial::{SideTask, TrialCounters};
use super::{Measurement, SizeParameters};
use crate::exit::usage;
use crate::signals::read_text;
use anyhow::Context;
use linerate_generate::Rate;
use linerate_generate::rate::Layer;
use linerate_generate::stream::{Mark, Order, StreamSet};
use linerate_generate::trailer::Key;
use linerate_measure::service::{Kind, Service, StepResult};
use linerate_measure::soak::{PeriodCounts, Soak};
use linerate_measure::{Limits, TrialRequest};
use serde::Deserialize;
use std::path::Path;
use std::sync::Mutex;

/// Default margin of a policer above its rates.
const MARGIN: f64 = 0.05;
/// Maximum number of services in a request.
#[cfg(feature = "serve")]
const MOST: usize = 1000;

/// Service of a file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServiceFields {
    name: String,
    packet: String,
    size: u64,
    cir: String,
    eir: Option<String>,
    loss: String,
    delay_ms: f64,
    variation_ms: f64,
    margin: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    service: Vec<ServiceFields>,
}

/// Service under test.
#[derive(Clone, Debug)]
pub(super) struct TestedService {
    pub name: String,
    packet: String,
    size: u64,
    agreed: Service,
}

/// Reads a file of services.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<TestedService>> {
    let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
    of_text(&path.display().to_string(), &text)
}

/// Parses a file of services; `name` is its name in errors.
pub(super) fn of_text(name: &str, text: &str) -> anyhow::Result<Vec<TestedService>> {
    let wrong = |what: String| usage(format!("{name}: {what}"));
    let file: File = toml::from_str(text).map_err(|error| {
        let before = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text.as_bytes()[..before].iter().filter(|byte| **byte == b'\n').count() + 1;
        wrong(format!("line {line}: {}", error.message()))
    })?;
    if file.service.is_empty() {
        return Err(wrong("no [[service]]".to_owned()));
    }
    all(name, file.service)
}

/// Parses services of a request: a list of objects with the keys of a file, or the text of a file.
#[cfg(feature = "serve")]
pub(super) fn of_json(document: &serde_json::Value) -> anyhow::Result<Vec<TestedService>> {
    let name = "services";
    if let Some(text) = document.as_str() {
        return of_text(name, text);
    }
    let written: Vec<ServiceFields> =
        Deserialize::deserialize(document).map_err(|error| usage(format!("{name}: {error}")))?;
    if !(1..=MOST).contains(&written.len()) {
        return Err(usage(format!("{name}: expected 1 to {MOST}, got {}", written.len())));
    }
    all(name, written)
}

fn all(name: &str, services: Vec<ServiceFields>) -> anyhow::Result<Vec<TestedService>> {
    let tested = |written: ServiceFields| {
        tested(&written).map_err(|what| usage(format!("{name}: service {:?}: {what}", written.name)))
    };
    services.into_iter().map(tested).collect()
}

/// Returns the duration of all steps, and of the performance test, in seconds.
pub(super) fn seconds(services: &[TestedService], plan: &Plan) -> (f64, f64) {
    let steps: usize = services.iter().map(|service| service.agreed.steps().len()).sum();
    (steps as f64 * (plan.step + plan.between()), plan.performance)
}

fn tested(written: &ServiceFields) -> Result<TestedService, String> {
    let ServiceFields { name, packet, size, cir, eir, loss, delay_ms, variation_ms, margin } = written;
    if !(64..=65_535).contains(size) {
        return Err(format!("size = {size}: expected 64 to 65535 bytes, with FCS"));
    }
    let bits = |rate: &str| match rate.parse::<Rate>() {
        Ok(Rate::Bits(bits, Layer::L2)) => Ok(bits),
        Ok(Rate::Frames(frames)) => Ok(frames * 8.0 * *size as f64),
        _ => Err(format!("{rate:?}: expected a layer 2 rate such as 20mbps, or packets such as 5kpps")),
    };
    for (what, millis) in [("delay_ms", *delay_ms), ("variation_ms", *variation_ms)] {
        if !(millis.is_finite() && millis > 0.0) {
            return Err(format!("{what} = {millis}: expected milliseconds above 0"));
        }
    }
    let part = |text: &String| super::options::percent(text);
    let agreed = Service {
        committed: bits(cir)?,
        excess: eir.as_deref().map_or(Ok(0.0), bits)?,
        loss_ratio: part(loss)?,
        delay: delay_ms / 1e3,
        variation: variation_ms / 1e3,
        margin: margin.as_ref().map_or(Ok(MARGIN), part)?,
    };
    Ok(TestedService { name: name.clone(), packet: packet.clone(), size: *size, agreed })
}

impl TestedService {
    /// Converts bits per second to frames per second.
    fn frames(&self, bits: f64) -> f64 {
        bits / (8 * self.size) as f64
    }

    /// Returns the result of one direction over a duration in seconds.
    fn seen(&self, frames: u64, way: &DirectionResult, seconds: f64) -> StepResult {
        StepResult {
            rate: (frames * 8 * self.size) as f64 / seconds,
            loss_ratio: way.counts.loss_ratio,
            delay: seconds_of(way.latency.latency_p999_ns),
            variation: seconds_of(way.latency.pdv_p999_ns),
        }
    }
}

impl Measurement<'_> {
    /// Tests each service on its own, step by step, then all services together.
    pub(super) fn services(&mut self, services: &[TestedService]) -> anyhow::Result<()> {
        if !self.is_silent() {
            crate::view::terminal::print_stderr(super::head());
        }
        for service in services {
            let sets = self.sets_of(&[service])?;
            let sized = self.sized(service.size, &service.name, &sets, service.frames(service.agreed.committed));
            for step in service.agreed.steps() {
                let ask = TrialRequest { load: service.frames(step.rate), duration: self.plan.step };
                let frames = Frames::Paced(Rate::Frames(ask.load), ask.duration);
                let Some(account) = self.trial("y1564", &sized, &frames, ask)? else { return Ok(()) };
                let row = self.step(service, step.kind, step.rate, &account);
                self.report.services.push(row);
                self.files.write(&self.report);
            }
        }
        if self.plan.performance > 0.0 && !self.is_over() { self.performance(services) } else { Ok(()) }
    }

    fn step(&self, service: &TestedService, kind: Kind, rate: f64, account: &TrialResult) -> ServiceStep {
        let seconds = self.plan.step;
        let seen: Vec<StepResult> =
            account.directions.iter().map(|way| service.seen(way.counts.received, way, seconds)).collect();
        let is_kept = seen.iter().all(|seen| service.agreed.passes(kind, seen));
        // A failure of the tester does not count against the service.
        let verdict = match (&account.tester, is_kept) {
            (Some(_), _) => "limited by the tester",
            (None, true) => "pass",
            (None, false) => "fail",
        };
        ServiceStep::new(&service.name, kind, rate, &seen, verdict)
    }

    fn performance(&mut self, services: &[TestedService]) -> anyhow::Result<()> {
        let every: Vec<&TestedService> = services.iter().collect();
        let sets = self.sets_of(&every)?;
        let load = services.iter().map(|service| service.frames(service.agreed.committed)).sum();
        let sized = self.sized(services[0].size, "all", &sets, load);
        let ask = TrialRequest { load, duration: self.plan.performance };
        let frames = Frames::Paced(Rate::Frames(load), ask.duration);
        let seconds = Mutex::new(vec![Soak::default(); services.len()]);
        let task = SideTask::looking(|looks: &TrialCounters| {
            let mut before = vec![StreamCounts::default(); services.len()];
            by_second(looks, |directions| {
                let mut seconds = seconds.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                for (id, (soak, before)) in seconds.iter_mut().zip(&mut before).enumerate() {
                    let sum = |of: fn(&StreamCounts) -> u64| {
                        directions.iter().filter_map(|way| way.get(id)).map(of).sum::<u64>()
                    };
                    let (sent, lost) = (sum(|one| one.sent), sum(|one| one.lost));
                    soak.add(PeriodCounts {
                        sent: sent.saturating_sub(before.sent),
                        lost: lost.saturating_sub(before.lost),
                        ..PeriodCounts::default()
                    });
                    (before.sent, before.lost) = (sent, before.lost.max(lost));
                }
            });
        });
        let Some(account) = self.trial_with("y1564", &sized, &frames, ask, Some(task))? else { return Ok(()) };
        let seconds = seconds.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (id, (service, soak)) in services.iter().zip(&seconds).enumerate() {
            let rows =
                account.directions.iter().filter_map(|way| way.rows.iter().find(|row| row.stream as usize == id));
            let row = PerformanceRow::new(&service.name, &service.agreed, rows, soak, account.tester.is_some());
            self.report.performance.push(row);
        }
        self.files.write(&self.report);
        Ok(())
    }

    /// Returns the streams of services, each at its committed rate.
    fn sets_of(&self, services: &[&TestedService]) -> anyhow::Result<Vec<StreamSet>> {
        let stream = |(id, service): (usize, &&TestedService)| {
            let made = |mark| traffic::stream(id as u32, &service.packet, service.size, self.args.seed, mark);
            let mut stream =
                made(Mark::Trailer).map_err(|error| usage(format!("service {:?}: {error}", service.name)))?;
            stream.name.clone_from(&service.name);
            stream.rate = Rate::Frames(service.frames(service.agreed.committed));
            Ok(stream)
        };
        let streams = services.iter().enumerate().map(stream).collect::<anyhow::Result<Vec<_>>>()?;
        let rate = (services.len() == 1).then_some(Rate::Frames(1.0));
        let set = StreamSet { streams, order: Order::Interleaved, rate, key: Key::default() };
        set.check().map_err(usage)?;
        let back = self.args.both.then(|| traffic::turned(&set));
        Ok([set].into_iter().chain(back).collect())
    }

    fn sized<'a>(&mut self, size: u64, name: &str, sets: &'a [StreamSet], load: f64) -> SizeParameters<'a> {
        let limits = Limits { least: load / 4.0, greatest: load * 2.5 };
        self.report.sizes.push(SizeReport::of_service(size, name, limits));
        SizeParameters { size, sets, limits, tester: None, line: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_parsed_and_errors_reported() {
        let folder = std::env::temp_dir().join(format!("linerate-services-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("services.toml");
        let good = "[[service]]\nname = \"voice\"\npacket = \"ip/udp\"\nsize = 128\ncir = \"2mbps\"\nloss = \"0.1%\"\n\
                    delay_ms = 10\nvariation_ms = 5\n";
        std::fs::write(&path, good).unwrap();
        let services = read(&path).unwrap();
        assert_eq!((services.len(), services[0].agreed.committed, services[0].agreed.margin), (1, 2e6, MARGIN));
        assert!((services[0].frames(2e6) - 1953.125).abs() < 1e-9);
        for (from, to, text) in [
            ("size = 128", "size = 6", "64 to 65535"),
            ("2mbps", "fast", "expected a layer 2 rate"),
            ("2mbps", "2mbpsl1", "expected a layer 2 rate"),
            ("delay_ms = 10", "delay_ms = -1", "above 0"),
            ("0.1%", "much", "percentage"),
            ("name", "nome", "nome"),
            ("[[service]]", "[service]", "services.toml"),
            ("size = 128", "size = ", "services.toml: line 4: "),
        ] {
            std::fs::write(&path, good.replace(from, to)).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(text) && !error.contains('\n'), "{to}: {error}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
