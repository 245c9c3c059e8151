//! Report of streams, as text and as JSON.

use super::{Args, is_output};
use crate::exit::Exit;
use crate::view::ledger::{self, LedgerJson};
use crate::view::rates::{Rates, counted, frames_per_second, grouped, totals};
use crate::view::streams::{self, ClockJson};
use crate::view::table::table;
use crate::view::terminal::{fail, result, result_document, result_line};
use linerate_burst::{Interface, Ledger};
use linerate_engine::AnsweringReport;
use linerate_engine::check::CheckReport;
use linerate_engine::replay::{CATCH_UP, LATE, Timing};
use linerate_engine::streams::{Control, StreamsReport};
use linerate_generate::check::{FrameCounts, StreamRow, Summary};
use linerate_generate::stream::StreamSet;
use linerate_generate::{Delays, Rate};
use linerate_port::{Sent, Spec};
use serde::Serialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of streams shown; of more, those with the greatest loss.
const SHOWN: usize = 16;

/// Note about frames that did not wait for their due time.
pub(super) const WRITTEN_AT_ONCE: &str =
    "  written at full speed: duration and rate are computed from the timestamps\n";

/// Names of streams, in the order of their set.
#[derive(Clone, Debug)]
pub(super) struct Names(Arc<[(u32, String)]>, Option<Control>);

impl Names {
    /// Takes the names of a set.
    pub(super) fn of(set: &StreamSet, control: Option<Control>) -> Self {
        Names(set.streams.iter().map(|stream| (stream.id, stream.name.clone())).collect(), control)
    }

    /// Returns the name of the stream at an index of the set.
    pub(super) fn get(&self, place: usize) -> &str {
        self.0.get(place).map_or("", |(_, name)| name)
    }

    /// Returns the numbers of the stream at an index of the set: several if it was restarted.
    pub(super) fn numbers(&self, place: usize) -> Vec<u32> {
        match &self.1 {
            Some(control) => control.numbers_of(place),
            None => self.0.get(place).map(|(id, _)| *id).into_iter().collect(),
        }
    }

    /// Returns the name of a stream by its number.
    fn of_stream(&self, id: u32) -> String {
        // A restarted stream has another number.
        let place = self.1.as_ref().and_then(|control| control.place_of(id));
        let known = place.and_then(|place| self.0.get(place)).or_else(|| self.0.iter().find(|(known, _)| *known == id));
        known.map_or_else(|| id.to_string(), |(_, name)| name.clone())
    }

    /// Converts frames by index in the set to frames by stream number.
    pub(super) fn by_stream(&self, frames: &[u64]) -> Vec<u64> {
        if let Some(control) = &self.1 {
            return control.by_number(frames);
        }
        let most = self.0.iter().map(|(id, _)| *id as usize + 1).max().unwrap_or_default();
        let mut by_stream = vec![0; most];
        self.0.iter().zip(frames).for_each(|((id, _), frames)| by_stream[*id as usize] = *frames);
        by_stream
    }

    /// Returns a table of the frames sent per stream, most first.
    pub(super) fn sent(&self, frames: &[u64]) -> String {
        let mut rows = table(&["stream", "sent"], 1);
        let mut order: Vec<(usize, u64)> = frames.iter().copied().enumerate().collect();
        order.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
        for (place, frames) in order.iter().take(SHOWN) {
            rows.add_row([self.get(*place).to_owned(), grouped(*frames)]);
        }
        let more = order.len().saturating_sub(SHOWN);
        format!("{rows}\n{}", if more > 0 { format!("  and {} more\n", grouped(more as u64)) } else { String::new() })
    }

    /// Returns the result of the check as text.
    pub(super) fn checked(&self, summary: &Summary, rows: Vec<StreamRow>) -> String {
        let FrameCounts { sent, received, lost, .. } = summary.counts;
        let sent = sent.unwrap_or_default();
        let mut text =
            format!("{} of {} received, {} lost\n", grouped(received), counted(sent, "packet"), grouped(lost));
        if received == 0 && sent > 0 {
            text += "  nothing received: check that the link between the --to and --check ports is up\n";
        }
        text + &streams::rows(summary, &streams::first(rows, SHOWN), |id| self.of_stream(id))
    }

    /// Returns the number of streams.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

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
    pub answers: AnsweringReport,
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
            Checked::new(&self, report)
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
        }
        let failures = self.sent.failure.iter().map(ToString::to_string);
        let failures: Vec<String> =
            failures.chain(checked.iter().filter_map(|checked| checked.failure.clone())).collect();
        failures.iter().for_each(fail);
        let is_lost = self.sent.ledger.lost() > 0 || checked.as_ref().is_some_and(Checked::is_lossy);
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

    fn text(&self, checked: Option<&Checked>, args: &Args) -> String {
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
            return behind + &held_up(self.sent.late, self.sent.timing.shifted);
        }
        timing(&self.sent.timing)
    }

    fn json<'a>(&'a self, checked: Option<&'a Checked>) -> GenerateJson<'a> {
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
            asked_mpps: self.asked().map(|asked| asked / 1e6),
            made_by: if self.live { "port" } else { "process" },
            written_at_once: self.is_at_once(),
            behind_mean_us: (!self.is_at_once()).then(|| micros(mean)),
            behind_max_us: (!self.is_at_once()).then(|| micros(max)),
            behind_p50_us: quantile(&sent.timing.behind, 0.5),
            behind_p99_us: quantile(&sent.timing.behind, 0.99),
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
pub(super) struct Checked {
    summary: Summary,
    rows: Vec<StreamRow>,
    ledger: Ledger,
    interfaces: Vec<Interface>,
    failure: Option<String>,
}

impl Checked {
    fn new(outcome: &Outcome<'_>, report: CheckReport) -> Self {
        let sent = outcome.names.by_stream(&outcome.sent.per_stream);
        let account = report.check.report(Some(&sent));
        Checked {
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

impl Checked {
    fn text(&self, names: &Names) -> String {
        let mut text = names.checked(&self.summary, self.rows.clone());
        text += &streams::remarks(&self.interfaces, &self.ledger, &self.summary);
        if self.ledger.lost() > 0 {
            text += &format!("  lost by the --check port itself: {}\n", counted(self.ledger.lost(), "packet"));
            text += &ledger::print(&self.ledger, true, true);
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
    asked_mpps: Option<f64>,
    made_by: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    written_at_once: bool,
    behind_mean_us: Option<f64>,
    behind_max_us: Option<f64>,
    behind_p50_us: Option<f64>,
    behind_p99_us: Option<f64>,
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
    summary: &'a Summary,
    clock: ClockJson,
    failure: Option<&'a str>,
    #[serde(rename = "ledger")]
    ledger: LedgerJson,
}

impl<'a> CheckJson<'a> {
    fn new(checked: &'a Checked) -> Self {
        CheckJson {
            summary: &checked.summary,
            clock: ClockJson::new(&checked.interfaces),
            failure: checked.failure.as_deref(),
            ledger: LedgerJson::new(&checked.ledger),
        }
    }
}
