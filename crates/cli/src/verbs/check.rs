//! `linerate check`: loss, order, damage and latency of packets that generate sends.

use super::count::CountedPorts;
use super::inputs::{InputArgs, InputRequirements, ReceiveArgs};
use super::report_options::ShowArgs;
use crate::exit::Exit;
use crate::signals::{ProgressHandler, answer_requests, stop_on_signals};
use crate::view::ledger::{self, LedgerJson};
use crate::view::live::Live;
use crate::view::rates::{format_nonzero, frames_per_second, grouped};
use crate::view::streams::{self as view, ClockJson};
use crate::view::terminal::{print_stderr, result_line, show, show_line};
use linerate_engine::check::{CheckCounters, CheckProgress};
use linerate_engine::{CheckConsumer, CheckReport, CheckWatch, Stop};
use linerate_generate::check::{Check, CheckSummary, Options, Report, StreamRow, Totals};
use linerate_generate::trailer::Key;
use serde::Serialize;
use std::time::Duration;

const SCHEMA: &str = "linerate/check/1";

/// Options of `linerate check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # loss and latency of the streams that generate sends to eth1, at eth2
  linerate check eth2
  linerate generate --to eth1 --stamp -k ip/udp --rate 100kpps -T 60
  # until 1 M packets, as JSON
  linerate check eth2 -c 1M --json
  # of a capture file
  linerate check -r trace.pcap
generate --check PORT sends and checks in one run. Packets carry stream, number
and time in a trailer of 16 bytes (docs/trailer.md).")]
#[command(mut_arg("lossless", |arg| arg.help(
    "Exit with status 3 if a test packet was or may have been lost, or none was found; use the largest buffers"
)))]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Key of the trailers, as given to the sender
    #[arg(help_heading = "Streams", long, value_name = "K")]
    key: Option<Key>,
    /// Streams to show, those with most losses first; or all
    #[arg(help_heading = "Streams", long, value_name = "N", default_value = "10", value_parser = rows)]
    rows: Rows,
    /// Maximum number of streams, 2 KiB each; packets of others are only counted
    #[arg(help_heading = "Streams", long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    max_streams: u32,
    /// Print JSON lines (schema linerate/check/1): one per interval, and a summary
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Runs the check.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let inputs = args.input.check()?;
    let interval = args.show.interval(false)?;
    let identity = args.receive.identity(&inputs)?;
    let (ports, mut notes) =
        args.receive.open(&inputs, InputRequirements { tests: true, ..InputRequirements::default() })?;
    let session = identity.assume()?.confine(&[]);
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());
    let options = Options { streams: args.max_streams as usize, ..Options::default() };
    if !args.show.quiet && !args.json {
        super::count::announce("checking", &CountedPorts::new(&inputs.specs), &notes);
        announce(&options);
    }
    let receive = args.receive.run(&inputs, ports, stop);
    let watch = CheckWatch::new();
    let live = start_live(args, interval, &watch, &receive.stop);
    let (answers, news) = (answer(args, &watch)?, args.show.news(args.json));
    let check = Check::new(args.key.unwrap_or_default(), options);
    let report = CheckConsumer::new(check, inputs.selection()).watch(watch).run(receive);
    drop((live, answers, news));
    conclude(args, &report, !inputs.filter.is_empty())
}

/// Streams to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    /// At most this number: those with most losses first, then those with most packets.
    First(usize),
    All,
}

/// Reads `--rows`.
fn rows(text: &str) -> Result<Rows, String> {
    match text {
        "all" => Ok(Rows::All),
        number => number.parse().map(Rows::First).map_err(|_| "expected a number of streams, or all".to_owned()),
    }
}

/// Prints the maximum memory of streams.
fn announce(options: &Options) {
    print_stderr(format_args!(
        "  up to {} streams (--max-streams), at most {} MiB\n",
        grouped(options.streams as u64),
        grouped(options.most_bytes().div_ceil(1 << 20) as u64)
    ));
}

/// Shows the progress of each interval.
fn start_live(args: &Args, interval: Option<Duration>, watch: &CheckWatch, stop: &Stop) -> Live {
    let Some(interval) = interval else { return Live::none() };
    let (watch, stop, json) = (watch.clone(), stop.clone(), args.json);
    let mut before = CheckCounters::default();
    Live::every(interval, move || {
        let now = watch.look();
        if now.elapsed <= before.elapsed {
            return;
        }
        if json {
            if !show_line(&IntervalJson::new(&before, &now)).unwrap_or_default() {
                stop.request();
            }
        } else {
            print_stderr(line(&before, &now) + "\n");
        }
        before = now;
    })
}

/// Prints the results so far on request.
fn answer(args: &Args, watch: &CheckWatch) -> anyhow::Result<ProgressHandler> {
    let (watch, json, most) = (watch.clone(), args.json, args.rows);
    answer_requests(move || {
        let Some(CheckProgress { summary, rows }) = watch.so_far(None) else { return };
        if json {
            // Numbers and names always have a JSON form.
            let _ = show_line(&SoFarJson { schema: SCHEMA, record: "so_far", summary: &summary });
        } else {
            print_stderr(format_args!("so far\n{}", view::rows(&summary, &most.of(rows), |id| id.to_string())));
        }
    })
}

/// Prints the results of all streams. Returns the exit status.
fn conclude(args: &Args, report: &CheckReport, is_filtered: bool) -> anyhow::Result<Exit> {
    let streams = report.check.report(None);
    if args.json {
        print_json(args, report, &streams)?;
    } else if !ledger::is_void(&report.run.ledger, report.run.failure.as_ref()) {
        show(text(args, report, &streams, is_filtered));
    }
    Ok(match args.receive.conclude(&report.run) {
        Exit::Done if args.receive.lossless && !is_complete(&streams.summary()) => Exit::Lost,
        exit => exit,
    })
}

/// Returns whether test packets arrived, and all of them.
fn is_complete(summary: &CheckSummary) -> bool {
    summary.counts.received > 0 && summary.counts.lost == 0
}

impl Rows {
    /// Returns the rows to show.
    fn of(self, all: Vec<StreamRow>) -> Vec<StreamRow> {
        match self {
            Rows::First(most) => view::first(all, most),
            Rows::All => all,
        }
    }
}

/// Results so far, printed on request.
#[derive(Serialize)]
struct SoFarJson<'a> {
    schema: &'static str,
    record: &'static str,
    #[serde(flatten)]
    summary: &'a CheckSummary,
}

#[derive(Serialize)]
struct IntervalJson {
    schema: &'static str,
    record: &'static str,
    elapsed_seconds: f64,
    seconds: f64,
    streams: u64,
    received: u64,
    bytes: u64,
    missing: i64,
    lost: i64,
    duplicated: u64,
    reordered: u64,
    corrupted: u64,
    damaged: u64,
    foreign: u64,
    lost_by_port: u64,
}

impl IntervalJson {
    /// Returns the difference of two readings; `missing` and `lost` fall if packets arrive late.
    fn new(before: &CheckCounters, now: &CheckCounters) -> Self {
        let gain = |of: fn(&Totals) -> u64| of(&now.totals).saturating_sub(of(&before.totals));
        IntervalJson {
            schema: SCHEMA,
            record: "interval",
            elapsed_seconds: now.elapsed.as_secs_f64(),
            seconds: now.elapsed.saturating_sub(before.elapsed).as_secs_f64(),
            streams: now.streams,
            received: gain(|totals| totals.received + totals.counted),
            bytes: gain(|totals| totals.bytes),
            missing: now.totals.missing as i64 - before.totals.missing as i64,
            lost: now.totals.lost as i64 - before.totals.lost as i64,
            duplicated: gain(|totals| totals.duplicated),
            reordered: gain(|totals| totals.reordered),
            corrupted: gain(|totals| totals.corrupted),
            damaged: gain(|totals| totals.damaged),
            foreign: gain(Totals::foreign),
            lost_by_port: now.lost_by_port.saturating_sub(before.lost_by_port),
        }
    }
}

#[derive(Serialize)]
struct StreamJson<'a> {
    schema: &'static str,
    record: &'static str,
    #[serde(flatten)]
    row: &'a StreamRow,
}

#[derive(Serialize)]
struct SummaryJson {
    schema: &'static str,
    record: &'static str,
    elapsed_seconds: f64,
    #[serde(flatten)]
    summary: CheckSummary,
    clock: ClockJson,
    quiesced: bool,
    events: Vec<String>,
    failure: Option<String>,
    /// Packet accounting of the ports.
    ledger: LedgerJson,
}

fn print_json(args: &Args, report: &CheckReport, streams: &Report<'_>) -> anyhow::Result<()> {
    for row in &args.rows.of(streams.rows().collect()) {
        show_line(&StreamJson { schema: SCHEMA, record: "stream", row })?;
    }
    let summary = SummaryJson {
        schema: SCHEMA,
        record: "summary",
        elapsed_seconds: report.run.elapsed.as_secs_f64(),
        summary: streams.summary(),
        clock: ClockJson::new(&report.run.interfaces),
        quiesced: report.run.quiesced,
        events: report.run.events.clone(),
        failure: report.run.failure.as_ref().map(ToString::to_string),
        ledger: LedgerJson::new(&report.run.ledger),
    };
    Ok(result_line(&summary, false)?)
}

fn line(before: &CheckCounters, now: &CheckCounters) -> String {
    let (totals, earlier) = (&now.totals, &before.totals);
    let seconds = now.elapsed.saturating_sub(before.elapsed).as_secs_f64();
    let ours = |totals: &Totals| totals.received + totals.counted;
    let rate = frames_per_second((ours(totals) - ours(earlier)) as f64 / seconds / 1e6);
    let more = format_nonzero(&[
        (totals.duplicated, "duplicated"),
        (totals.reordered, "reordered"),
        (totals.corrupted, "corrupted"),
        (totals.damaged, "damaged"),
        (totals.foreign(), "foreign"),
    ]);
    let (seconds, received, lost) = (now.elapsed.as_secs(), grouped(ours(totals)), grouped(totals.lost));
    format!("{seconds:>4} s {received:>13} received {rate:>16} {lost:>9} lost{more}")
}

fn text(args: &Args, report: &CheckReport, streams: &Report<'_>, is_filtered: bool) -> String {
    let summary = streams.summary();
    let rows = view::rows(&summary, &args.rows.of(streams.rows().collect()), |id| id.to_string());
    let mut remarks = view::remarks(&report.run.interfaces, &report.run.ledger, &summary);
    if is_filtered && summary.counts.lost > 0 {
        remarks += "  packets that the filter rejects count as lost\n";
    }
    if summary.counts.received == 0 {
        remarks +=
            "  nothing was checked: generate sends trailers with --stamp or --check, and with a --key of its own\n";
    }
    ledger::checked(&report.run, &(rows + &remarks), args.show.ledger)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_parsed() {
        assert_eq!((rows("all"), rows("7")), (Ok(Rows::All), Ok(Rows::First(7))));
        assert!(rows("some").is_err());
    }
}
