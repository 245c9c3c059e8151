//! `linerate flows`: flow records of packets.

pub mod collect;
mod json;
mod largest_flows;
mod memory;
mod options;
mod output;
mod output_options;
#[cfg(feature = "parquet")]
pub mod query;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "used only by queries of stored records"))]
mod query_options;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "used only by queries of stored records"))]
mod query_output;
mod text;
mod timeouts;
mod workers;

pub(super) use self::json::FlowsJson;
pub(super) use self::memory::free as free_memory;
pub use self::options::Level;
pub(super) use self::options::MeterArgs;
pub(super) use self::output::{Tee, Totals};
pub(super) use self::output_options::{ExportArgs, WriteFormat};
#[cfg(any(feature = "serve", feature = "tui"))]
pub(super) use self::query_output::name as group_name;
pub(super) use self::query_output::period;
#[cfg(any(feature = "serve", feature = "tui"))]
pub(super) use self::text::protocol;
pub(super) use self::text::{so_far, summary};

use self::json::SummaryJson;
use self::output_options::WriteArgs;
use self::query_options::QueryArgs;
use super::inputs::{InputArgs, InputRequirements, ReceiveArgs, listed};
use super::report_options::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::stop_or_reopen;
use crate::view::ledger::{self, is_void};
use crate::view::live::{Live, answer, reopened};
use crate::view::terminal::{is_watched, print_stderr, result, result_line, shown};
use linerate_engine::{MeterConsumer, Progress};
use linerate_export::fields::Part;
use linerate_export::{Exporter, Format};
use linerate_meter::Config;
use linerate_query::{Question, columns};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options of `linerate flows`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # top flows and totals of eth0, until Ctrl-C
  linerate flows eth0
  # JSON lines, in a file and on standard output
  linerate flows -r trace.pcap -w flows.jsonl.zst
  linerate flows -r trace.pcap -w - udp
  # Parquet files by date and hour, for linerate query, DuckDB, ClickHouse, ...
  linerate flows eth0 -w flows/
  # the same, and JSON lines to watch
  linerate flows eth0 -w flows/ -w - | jq
  # to an IPFIX collector, and as CSV
  linerate flows eth0 -w ipfix+udp://192.0.2.9:4739 -w flows.csv.gz
  # to Kafka and ClickHouse, each record once; batches wait in the spool
  linerate flows eth0 -w kafka://192.0.2.8/flows --ship spool=/var/spool/flows
  linerate flows eth0 -w clickhouse://192.0.2.7/flows --ship spool=/tmp/spool
  # IPFIX over TLS
  linerate flows eth0 -w ipfix+tls://192.0.2.9:4740 --tls ca=ca.pem
  # top senders by network; ports over time as a picture
  linerate flows eth0 -T 60 --by orig_address/24 --top 20
  linerate flows -r trace.pcap --by resp_port --every 5m --plot ports.svg
  # the speed of metering
  linerate flows eth0 -w null -T 10
  # with the names of sites (TLS SNI, DNS, ...)
  linerate flows eth0 --names all -w flows/
  # four threads; UDP flows end after 10 s
  linerate flows eth0 --workers 4 --idle udp=10
A record holds both directions. Times are packet timestamps, so a capture file
gives the same records as live traffic. linerate query reads stored records,
linerate collect receives those of other exporters. Fields: docs/flows.md.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    meter: MeterArgs,
    #[command(flatten)]
    ask: QueryArgs,
    /// Print the summary as one JSON document (schema linerate/flows/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Runs the metering.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    args.input.refuse_records()?;
    let inputs = args.input.check()?;
    let how = args.write.how();
    let usual = if args.is_of_connections(how.format) { Level::Tcp } else { Level::Counters };
    let mut config = args.meter.config(usual)?;
    let identity = args.receive.identity(&inputs)?;
    args.write.check(&inputs.specs, args.ask.csv, false)?;
    let about = args.ask.shown(args.is_shown())?;
    about.question.iter().try_for_each(|question| refuse_missing(question, &config))?;
    let meters = args.meter.meters(&mut config, args.show.quiet)?;
    let snap = if inputs.filter.is_empty() { args.meter.snap() } else { 0 };
    let (ports, mut notes) =
        args.receive.open(&inputs, InputRequirements { snap, is_merged: true, ..InputRequirements::default() })?;
    let assumed = identity.assume()?;
    let observed = Arc::default();
    let exporters = assumed.open(|| args.write.export.exporters_of(args.write.targets(), how, &observed))?;
    let mut drawing = assumed.open(|| args.ask.drawing())?;
    let folders = made_in(&exporters)?;
    let session = assumed.confine(&folders);
    let (stop, hangup) = stop_or_reopen(&session, !folders.is_empty())?;
    notes.extend_from_slice(session.notes());

    for exporter in exporters.iter().filter(|_| !args.show.quiet) {
        warn_of_unwritten(&**exporter, &config);
    }
    // Keeps records on standard output apart from the summary.
    let is_mixed = args.write.is_on_output();
    let is_silent = args.show.quiet || args.json || is_mixed;
    if !is_silent {
        print_stderr(format_args!("metering {}: {}", shown(&listed(&inputs.names())), args.meter.describe(&config)));
        notes.iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let progress = Progress::new();
    let interval = args.show.interval(is_silent || !is_watched() && !args.show.has_interval())?;
    let news = args.show.news(is_silent);
    let live = Live::start_reading(&progress, "metered", interval, inputs.reading());
    let records = Tee::showing(exporters, stop.clone(), &about).map_err(|error| identity.explain(error))?;
    let mut metering =
        MeterConsumer::new(meters, inputs.selection(), records).progress(Arc::clone(&progress)).observed(observed);
    let (written, report) = (metering.records(), reopened(args.show.quiet));
    let reopen = move || locked(&written).reopen(report);
    let reopening = hangup.map(|hangup| hangup.reopen(reopen)).transpose()?;
    let finished = metering.records();
    let answers = answer(&progress, "metered", move || so_far(&finished))?;
    let mut run = args.receive.run(&inputs, ports, stop).run(&mut [&mut metering]);
    drop((live, answers, reopening, news));
    let (metered, records) = metering.done();
    let (mut totals, written) = records.finish(run.failure.is_some(), &mut run.ledger);
    args.ask.order(&mut totals);
    let found = about.question.as_deref().zip(totals.answer.as_ref());
    if let (Some(out), Some((question, found))) = (&mut drawing, found) {
        query_output::draw(&args.ask.title(), question, found, out)?;
    }
    let is_asked = args.is_shown();
    if args.json {
        let asked = found.map(|(question, found)| query_output::asked(question, found));
        result_line(&SummaryJson::new(&inputs, &metered, &totals, &run, asked), is_mixed)?;
    } else if let Some((question, found)) = found.filter(|_| args.ask.csv) {
        query_output::csv(question, found);
    } else if is_asked && !is_void(&run.ledger, run.failure.as_ref()) {
        let text = match found {
            Some((question, found)) => query_output::text(question, found),
            None => text::top_flows(&totals.top),
        };
        let text = text::summary_of((&metered, &totals), &run.ledger, inputs.are_files(), &text);
        result(ledger::run(&run, &text, args.show.ledger), is_mixed);
    }
    let exit = args.receive.conclude(&run);
    written?;
    let has_lost = args.receive.lossless && text::undelivered(&run.ledger) > 0;
    Ok(if has_lost && run.failure.is_none() { Exit::Lost } else { exit })
}

impl Args {
    /// Returns whether a format needs the state of TCP connections.
    fn is_of_connections(&self, format: Option<&'static Format>) -> bool {
        let by_name = |target: &String| match target.contains("://") {
            true => false,
            false => Format::of_path(target, None).is_ok_and(|(format, _)| format.is_of_connections()),
        };
        format.map_or_else(|| self.write.write.iter().any(by_name), Format::is_of_connections)
    }

    /// Returns whether the summary is shown.
    fn is_shown(&self) -> bool {
        !self.show.quiet || self.json || self.write.targets().is_empty()
    }
}

/// Locks the consumer of records; the run waits until it is unlocked.
pub(super) fn locked(records: &Mutex<Tee>) -> MutexGuard<'_, Tee> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the directories in which exporters create files.
pub(super) fn made_in(exporters: &[Box<dyn Exporter>]) -> std::io::Result<Vec<OwnedFd>> {
    let folders: Vec<_> = exporters.iter().map(|exporter| exporter.made_in()).collect::<Result<_, _>>()?;
    Ok(folders.into_iter().flatten().collect())
}

/// Refuses groups and sums of fields that no record will have.
fn refuse_missing(question: &Question, config: &Config) -> anyhow::Result<()> {
    for column in question.named_columns().into_iter().map(|id| &columns::all()[id]) {
        let option = match column.field.part {
            Part::Names if config.names.is_empty() => "--names all",
            part if part.level() == linerate_meter::Level::Tcp && config.level < part.level() => "--level tcp",
            part if config.level < part.level() => "--level stats",
            _ => continue,
        };
        return Err(usage(format!("--by, --sum, --sort: {} needs {option}: no record has it", column.name)));
    }
    Ok(())
}

/// Prints notes on fields that the format cannot store.
fn warn_of_unwritten(exporter: &dyn Exporter, config: &Config) {
    let note = |text: std::fmt::Arguments<'_>| print_stderr(format_args!("note: {text}\n"));
    let ((format, most), level) = (exporter.format(), config.level);
    if !config.names.is_empty() && most < linerate_meter::Level::Stats {
        note(format_args!("--names: {format} cannot store names; use JSON lines, Parquet, CSV or --ipfix full"));
    }
    if level > most {
        let name = |level| format!("{level:?}").to_lowercase();
        let (asked, enough) = (name(level), name(most));
        note(format_args!(
            "--level {asked}: {format} cannot store its fields; --level {enough} writes the same with less memory and time"
        ));
    }
}
