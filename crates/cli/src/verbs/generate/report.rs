//! Report of streams, as text and as JSON.

use super::names::Names;
use super::{Args, is_output};
use crate::exit::Exit;
use crate::view::ledger::{self, LedgerJson};
use crate::view::rates::{Rates, counted, frames_per_second, totals};
use crate::view::streams::{self, ClockJson};
use crate::view::terminal::{fail, result, result_document, result_line};
use linerate_burst::{Count, Interface, Ledger};
use linerate_engine::ResponderReport;
use linerate_engine::check::CheckReport;
use linerate_engine::replay::{CATCH_UP, LATE, Timing};
use linerate_engine::streams::StreamsReport;
use linerate_generate::check::{CheckSummary, FrameCounts, StreamRow};
use linerate_generate::stream::StreamSet;
use linerate_generate::{Delays, Rate};
use linerate_port::{Sent, Spec};
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// Note about frames that did not wait for their due time.
pub(super) const WRITTEN_AT_ONCE: &str =
    "  written at full speed: duration and rate are computed from the timestamps\n";

/// Result of a run.
pub(super) struct Outcome<'a> {
    /// Port sent to.
    pub spec: &'a Spec,
    /// Streams sent.
    pub set: &'a StreamSet,
    /// Names of the streams.
    pub names: &'a Names,
    /// Report of the sender.
    pub sent: StreamsReport,
    /// Report of the receiver, with `--check`.
    pub received: Option<CheckReport>,
    /// Report of the answering thread.
    pub answers: ResponderReport,
    /// True if the port made the frames.
    pub live: bool,
    /// True if frames did not wait for their due time.
    pub at_once: bool,
    /// Destination of the first frames, if any.
    pub first: Option<IpAddr>,
}

impl Outcome<'_> {
    /// Prints the report and returns the exit status.
    pub(super) fn print(mut self, args: &Args) -> anyhow::Result<Exit> {
        self.sent.ledger.add_all(&self.answers.ledger);
        if let Some(asked) =
            self.asked().filter(|_| self.is_at_once() && args.out.duration.is_none() && self.sent.sent.frames > 0)
        {
            // Count the gap after the last frame too, or the rate of few frames would be too high.
            self.sent.elapsed += Duration::from_secs_f64(1.0 / asked);
        }
        let checked = self.received.take().map(|report| {
            self.sent.ledger.add_all(&report.answers.ledger);
            CheckResult::new(&self, report)
        });
        let is_taken = is_output(self.spec);
        if args.end.json {
            let document = self.json(checked.as_ref());
            if args.end.show.has_interval() {
                result_line(&document, is_taken)?;
            } else {
                result_document(&document, is_taken)?;
            }
        } else if !args.end.show.quiet {
            result(self.text(checked.as_ref(), args), is_taken);
        } else if let Some(checked) = &checked {
            // The delays are also those of a late sender.
            let late = if self.is_paced() && !self.is_at_once() { self.late() } else { String::new() };
            result(late + &checked.text(self.names), is_taken);
        }
        let failures = self.sent.failure.iter().map(ToString::to_string);
        let failures: Vec<String> =
            failures.chain(checked.iter().filter_map(|checked| checked.failure.clone())).collect();
        failures.iter().for_each(fail);
        let is_lost = self.sent.ledger.lost() > 0 || checked.as_ref().is_some_and(CheckResult::is_lossy);
        Ok(match (failures.is_empty(), args.end.lossless && is_lost) {
            (false, _) => Exit::Failed,
            (true, true) => Exit::Lost,
            (true, false) => Exit::Done,
        })
    }

    fn is_paced(&self) -> bool {
        let top = self.set.streams.iter().all(|stream| stream.rate == Rate::Top);
        self.set.rate.map_or(!top, |rate| rate != Rate::Top)
    }

    /// Returns whether frames have due times but did not wait for them.
    fn is_at_once(&self) -> bool {
        self.is_paced() && self.at_once
    }

    /// Returns the requested total rate in frames per second, if it is a single number.
    fn asked(&self) -> Option<f64> {
        let one = |rate: Rate, bytes: f64| match rate.exact_nanos(1_000_000_000, (bytes * 1e9) as u64) {
            nanos if nanos > 0.0 => Some(1e18 / nanos),
            _ => None,
        };
        let bytes = self.sent.sent.bytes as f64 / self.sent.sent.frames.max(1) as f64;
        match (self.set.rate, self.set.streams.as_slice()) {
            (Some(rate), _) => one(rate, bytes),
            (None, [stream]) if stream.shape == linerate_generate::stream::Shape::Even => one(stream.rate, bytes),
            _ => None,
        }
    }

    fn text(&self, checked: Option<&CheckResult>, args: &Args) -> String {
        let is_whole = args.end.show.ledger;
        let mut text = summary(self.sent.sent, self.sent.elapsed, self.asked(), &self.sent.ledger, is_whole);
        if self.is_at_once() {
            text += WRITTEN_AT_ONCE;
        } else if self.is_paced() {
            text += &self.timing();
        }
        match checked {
            Some(checked) => {
                text += &checked.text(self.names);
                let unsent = self.sent.ledger.total(Count::SendUnsent);
                if unsent > 0 {
                    text += &format!(
                        "  sent includes {} that did not leave the port (unsent)\n",
                        counted(unsent, "packet")
                    );
                }
                let first = self.first.filter(|_| checked.summary.counts.received == 0 && self.sent.sent.frames > 0);
                text += &first.map_or_else(String::new, |first| args.answer.advice(first));
            }
            None if self.names.len() > 1 => text += &self.names.sent(&self.sent.per_stream),
            None => {}
        }
        text
    }

    fn timing(&self) -> String {
        let (max, mean) = self.sent.behind;
        if self.live {
            let behind = format!("  behind schedule: mean {:.1} us, max {:.1} us\n", micros(mean), micros(max));
            return behind + &self.late();
        }
        timing(&self.sent.timing)
    }

    /// Returns the number of late frames, and how far the schedule was shifted; empty without any.
    fn late(&self) -> String {
        let late = if self.live { self.sent.late } else { self.sent.timing.behind.longer_than(LATE) };
        held_up(late, self.sent.timing.shifted)
    }

    fn json<'a>(&'a self, checked: Option<&'a CheckResult>) -> GenerateJson<'a> {
        let sent = &self.sent;
        let seconds = sent.elapsed.as_secs_f64();
        let (max, mean) = sent.behind;
        let is_timed = self.is_paced() && !self.at_once;
        let timed = is_timed && !self.live;
        let quantile = |delays: &Delays, part| timed.then(|| micros(delays.quantile(part)));
        let rows: HashMap<u32, &StreamRow> =
            checked.iter().flat_map(|checked| &checked.rows).map(|row| (row.stream, row)).collect();
        let by_number = self.names.by_stream(&sent.per_stream);
        let numbers = |place| self.names.numbers(place).into_iter().map(move |number| (place, number));
        let stream = |(place, number): (usize, u32)| StreamJson {
            name: self.names.get(place),
            stream: number,
            sent: by_number.get(number as usize).copied().unwrap_or(0),
            check: rows.get(&number).copied(),
        };
        GenerateJson {
            schema: "linerate/generate/1",
            record: "summary",
            port: self.spec.to_string(),
            frames: sent.sent.frames,
            bytes: sent.sent.bytes,
            seconds,
            rates: Rates::new(sent.sent.frames, sent.sent.bytes, seconds),
            requested_mpps: self.asked().map(|asked| asked / 1e6),
            generated_by: if self.live { "port" } else { "process" },
            written_at_once: self.is_at_once(),
            lateness_mean_us: (!self.is_at_once()).then(|| micros(mean)),
            lateness_max_us: (!self.is_at_once()).then(|| micros(max)),
            lateness_p50_us: quantile(&sent.timing.behind, 0.5),
            lateness_p99_us: quantile(&sent.timing.behind, 0.99),
            gap_error_p50_us: quantile(&sent.timing.gap_error, 0.5),
            gap_error_p99_us: quantile(&sent.timing.gap_error, 0.99),
            gap_error_max_us: quantile(&sent.timing.gap_error, 1.0),
            late: is_timed.then_some(sent.late),
            shifted_us: is_timed.then(|| micros(sent.timing.shifted)),
            streams: (0..sent.per_stream.len()).flat_map(numbers).map(stream).collect(),
            check: checked.map(CheckJson::new),
            failure: sent.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&sent.ledger),
        }
    }
}

/// Returns the frames sent, their rate (and the requested one, in frames per second), and the packet accounting.
pub(super) fn summary(sent: Sent, elapsed: Duration, asked: Option<f64>, ledger: &Ledger, is_whole: bool) -> String {
    let seconds = elapsed.as_secs_f64();
    let asked = asked.map_or_else(String::new, |asked| format!(" (requested {})", frames_per_second(asked / 1e6)));
    let head = totals("sent", sent.frames, sent.bytes, sent.bytes, seconds);
    head + &asked + "\n" + &ledger::print(ledger, true, is_whole)
}

/// Returns how far frames deviated from the schedule.
pub(super) fn timing(timing: &Timing) -> String {
    let Timing { behind, gap_error, shifted, .. } = timing;
    let figures = |delays: &Delays| {
        let [p50, p99, max] = [delays.quantile(0.5), delays.quantile(0.99), delays.max()].map(micros);
        format!("p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us")
    };
    format!("  behind schedule: {}\n  gap error: {} (sender's clock)\n", figures(behind), figures(gap_error))
        + &held_up(behind.longer_than(LATE), *shifted)
}

/// Returns the number of late frames, and how far the schedule was shifted.
fn held_up(late: u64, shifted: Duration) -> String {
    let mut text = String::new();
    if late > 0 {
        text +=
            &format!("  late: {} left more than {} ms after the due time\n", counted(late, "packet"), LATE.as_millis());
    }
    if !shifted.is_zero() {
        let (shifted, bound) = (shifted.as_secs_f64() * 1e3, CATCH_UP.as_millis());
        text += &format!("  delayed: the schedule was shifted by {shifted:.1} ms; at most {bound} ms are caught up\n");
    }
    text
}

pub(super) fn micros(span: Duration) -> f64 {
    span.as_secs_f64() * 1e6
}

/// Result of the check.
pub(super) struct CheckResult {
    summary: CheckSummary,
    rows: Vec<StreamRow>,
    ledger: Ledger,
    interfaces: Vec<Interface>,
    failure: Option<String>,
}

impl CheckResult {
    fn new(outcome: &Outcome<'_>, report: CheckReport) -> Self {
        let sent = outcome.names.checked_by_stream(&outcome.sent.per_stream);
        let account = report.check.report(Some(&sent));
        CheckResult {
            summary: account.summary(),
            rows: account.rows().collect(),
            ledger: report.run.ledger,
            interfaces: report.run.interfaces,
            failure: report.run.failure.map(|failure| failure.to_string()),
        }
    }

    /// Returns whether any frame was lost, damaged or stale.
    fn is_lossy(&self) -> bool {
        let FrameCounts { lost, corrupted, stale, .. } = self.summary.counts;
        lost + corrupted + stale + self.summary.damaged + self.ledger.lost() > 0
    }
}

impl CheckResult {
    fn text(&self, names: &Names) -> String {
        let mut text = names.checked(&self.summary, self.rows.clone());
        text += &streams::remarks(&self.interfaces, &self.ledger, &self.summary);
        if self.ledger.lost() > 0 {
            text += &format!("  lost by the --check port itself: {}\n", counted(self.ledger.lost(), "packet"));
            text += &ledger::print(&self.ledger, true, true);
        } else if let named = ledger::named(&self.ledger)
            && !named.is_empty()
        {
            text += &format!("  at the --check port: {named}\n");
        }
        text
    }
}

/// `linerate/generate/1`.
#[derive(Serialize)]
struct GenerateJson<'a> {
    schema: &'static str,
    record: &'static str,
    port: String,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    requested_mpps: Option<f64>,
    generated_by: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    written_at_once: bool,
    lateness_mean_us: Option<f64>,
    lateness_max_us: Option<f64>,
    lateness_p50_us: Option<f64>,
    lateness_p99_us: Option<f64>,
    gap_error_p50_us: Option<f64>,
    gap_error_p99_us: Option<f64>,
    gap_error_max_us: Option<f64>,
    /// Frames that left more than 1 ms after their due time.
    late: Option<u64>,
    /// Shift of the end of the schedule.
    shifted_us: Option<f64>,
    streams: Vec<StreamJson<'a>>,
    check: Option<CheckJson<'a>>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

#[derive(Serialize)]
struct StreamJson<'a> {
    name: &'a str,
    stream: u32,
    sent: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<&'a StreamRow>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    #[serde(flatten)]
    summary: &'a CheckSummary,
    clock: ClockJson,
    failure: Option<&'a str>,
    #[serde(rename = "ledger")]
    ledger: LedgerJson,
}

impl<'a> CheckJson<'a> {
    fn new(checked: &'a CheckResult) -> Self {
        CheckJson {
            summary: &checked.summary,
            clock: ClockJson::new(&checked.interfaces),
            failure: checked.failure.as_deref(),
            ledger: LedgerJson::new(&checked.ledger),
        }
    }
}
