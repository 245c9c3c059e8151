//! `linerate flows`: a record of every conversation.

#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "what only stored records are asked for"))]
mod answer;
#[cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "what only stored records are asked for"))]
mod asking;
mod collect;
mod heaviest;
mod json;
mod memory;
mod options;
mod output;
#[cfg(feature = "parquet")]
mod stored;
#[cfg(not(feature = "parquet"))]
mod stored {
    /// Nobody reads Parquet here.
    pub(super) fn run(_: &super::Args, held: &super::super::inputs::Held) -> anyhow::Result<crate::exit::Exit> {
        Err(crate::exit::usage(format!("{}: this program was built without Parquet", held.places.join(", "))))
    }
}
mod text;
mod timeouts;
mod workers;

#[cfg(any(feature = "serve", feature = "tui"))]
pub(super) use self::answer::name as group_name;
pub(super) use self::json::FlowsJson;
pub(super) use self::memory::free as free_memory;
pub use self::options::Level;
pub(super) use self::options::{MeterArgs, Written};
pub(super) use self::output::{Tee, Totals};
#[cfg(any(feature = "serve", feature = "tui"))]
pub(super) use self::text::protocol;
pub(super) use self::text::{so_far, summary};

use self::asking::AskArgs;
use self::json::SummaryJson;
use super::inputs::{InputArgs, Needs, ReceiveArgs, check_distinct, check_output};
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::{reopen_on_hangup, stop_on_signals};
use crate::view::ledger::{self, is_void};
use crate::view::live::{Live, answer, reopened};
use crate::view::terminal::{fail, is_watched, result, result_line, shown, tell};
use clap::builder::PossibleValuesParser;
use linerate_engine::{Metering, Progress, Stop};
use linerate_meter::Config;
use linerate_port::Spec;
use linerate_query::{Key, Question};
use linerate_record::Compression;
use linerate_records::fields::Part;
use linerate_records::{Exporter, Field, Format, fields};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options of `linerate flows`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # top flows and totals of what eth0 receives, until Ctrl-C
  linerate flows eth0
  # a JSON line for each flow, in a file and on standard output
  linerate flows -r trace.pcap -w flows.jsonl.zst
  linerate flows -r trace.pcap -w - udp
  # Parquet files by date and hour, for DuckDB, ClickHouse, ...
  linerate flows eth0 -w flows/
  # the same, and JSON lines to watch
  linerate flows eth0 -w flows/ -w - | jq
  # to a collector of IPFIX, and as CSV
  linerate flows eth0 -w ipfix+udp://192.0.2.9:4739 -w flows.csv.gz
  # to a broker and to a database, each record once; batches wait in the folder
  linerate flows eth0 -w kafka://192.0.2.8/flows --ship spool=/var/spool/flows
  linerate flows eth0 -w clickhouse://192.0.2.7/flows --ship spool=/tmp/spool
  # the same over TLS, and a collector of it
  linerate flows eth0 -w ipfix+tls://192.0.2.9:4740 --tls ca=ca.pem
  linerate flows --from ipfix+tls://:4740 --tls cert=a.pem,key=a.key -w flows/
  # what routers and others send, in a folder
  linerate flows --from ipfix://:4739 -w flows/
  # who sends most, by network; how much of which port every 5 minutes
  linerate flows eth0 -t 60 --by orig_address/24 --top 20
  linerate flows -r trace.pcap --by resp_port --every 5m --plot ports.svg
  # the same of stored records; single ones; some of them in another form
  linerate flows --from flows/ 'src net 10.0.0.0/8 and bytes > 1M' --by port
  linerate flows --from flows/ --since -1h host 10.1.2.3
  linerate flows --from flows/ -w tcp.csv proto tcp and not flags A
  # how fast it is
  linerate flows eth0 -w null -t 10
  # the sites behind the addresses
  linerate flows eth0 --names all -w flows/
  # four threads share the flows; those of UDP end after 10 s
  linerate flows eth0 --workers 4 --idle udp=10
A record holds both directions. Times are those of the frames, so that a file gives the same records as the wire did.
docs/flows.md says what each field means, docs/guide/ask.md how to ask for it.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Where records go: null, - for standard output, a file (its ending says the format: .jsonl, .csv, .parquet, .log and .tsv of Zeek, .ipfix), a folder, by date and hour, or a
    /// collector, as ipfix+udp://HOST:4739, ipfix+tcp://HOST, ipfix+tls://HOST:4740 or netflow9+udp://HOST, or kafka://HOST:9092/TOPIC,
    /// clickhouse://USER@HOST:8123/TABLE, kafka+tls://, clickhouse+https:// (with --ship spool=DIR); may be given several times
    #[arg(short = 'w', long, value_name = "null|-|FILE|DIR/|URL", default_value = "null")]
    write: Vec<String>,
    /// What records are written as, whatever the names say (default: of a folder parquet, else jsonl)
    #[arg(long, value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
    /// How lines are compressed where a name does not say it by .gz, .zst or .lz4
    #[arg(long, value_parser = PossibleValuesParser::new(["gzip", "zstd", "lz4"]))]
    compress: Option<String>,
    #[command(flatten)]
    meter: MeterArgs,
    #[command(flatten)]
    ask: AskArgs,
    /// Print the summary as one JSON document (schema linerate/flows/1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Meters.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if let Some(held) = args.input.held()? {
        return stored::run(args, &held);
    }
    if let Some(from) = args.input.collected()? {
        return collect::run(args, &from);
    }
    let inputs = args.input.check()?;
    let format = args.format.as_deref().and_then(Format::named);
    let usual = if args.is_of_connections(format) { Level::Tcp } else { Level::Counters };
    let mut config = args.meter.config(usual)?;
    let identity = args.receive.identity(&inputs)?;
    let how = Written { format, compression: args.compression() };
    args.check_places(&inputs.specs, how, false)?;
    let about = args.ask.shown(args.is_shown())?;
    about.question.iter().try_for_each(|question| refuse_unsaid(question, &config))?;
    let meters = args.meter.meters(&mut config, args.show.quiet)?;
    let snap = if inputs.filter.is_empty() { args.meter.snap() } else { 0 };
    let (ports, mut notes) = args.receive.open(&inputs, Needs { snap, is_merged: true, ..Needs::default() })?;
    let assumed = identity.assume()?;
    let observed = Arc::default();
    let exporters = args.meter.exporters_of(args.targets(), how, &observed).map_err(|error| identity.explain(error))?;
    let mut drawing = args.ask.drawing().map_err(|error| identity.explain(error))?;
    let folders = made_in(&exporters)?;
    notes.extend(assumed.confine(&folders));
    let stop = Stop::new();

    for exporter in exporters.iter().filter(|_| !args.show.quiet) {
        tell_what_is_not_written(&**exporter, &config);
    }
    // Records on standard output are not to be mixed with a summary.
    let is_mixed = args.write.iter().any(|target| target == "-");
    let is_silent = args.show.quiet || args.json || is_mixed;
    if !is_silent {
        tell(format_args!("metering {}: {}", shown(&inputs.names().join(", ")), args.meter.describe(&config)));
        notes.iter().for_each(|note| tell(format_args!("  {}\n", shown(note))));
    }
    let progress = Progress::new();
    let interval = args.show.interval(is_silent || !is_watched() && !args.show.has_interval())?;
    let news = args.show.news(is_silent);
    let live = Live::start_reading(&progress, "metered", interval, inputs.reading());
    let records = Tee::showing(exporters, stop.clone(), &about).map_err(|error| identity.explain(error))?;
    let mut metering =
        Metering::new(meters, inputs.selection(), records).progress(Arc::clone(&progress)).observed(observed);
    let reopening = if folders.is_empty() {
        stop_on_signals(&stop).map(|()| None)?
    } else {
        let (written, told) = (metering.records(), reopened(args.show.quiet));
        Some(reopen_on_hangup(&stop, move || locked(&written).reopen(told))?)
    };
    let finished = metering.records();
    let answers = answer(&progress, "metered", move || so_far(&finished))?;
    let mut run = args.receive.run(&inputs, ports, stop).run(&mut [&mut metering]);
    drop((live, answers, reopening, news));
    let (metered, records) = metering.done();
    let (mut totals, written) = records.finish(run.failure.is_some(), &mut run.ledger);
    args.order(&mut totals);
    let found = about.question.as_deref().zip(totals.answer.as_ref());
    if let (Some(out), Some((question, found))) = (&mut drawing, found) {
        answer::draw(&args.ask.title(), question, found, out)?;
    }
    let is_asked = args.is_shown();
    if args.json {
        let asked = found.map(|(question, found)| answer::asked(question, found));
        result_line(&SummaryJson::new(&inputs, &metered, &totals, &run, asked), is_mixed)?;
    } else if let Some((question, found)) = found.filter(|_| args.ask.csv) {
        answer::csv(question, found);
    } else if is_asked && !is_void(&run.ledger, run.failure.as_ref()) {
        let text = match found {
            Some((question, found)) => answer::text(question, found),
            None => text::talkers(&totals.top),
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
    /// Whether something is written that says what became of connections of TCP.
    fn is_of_connections(&self, format: Option<&'static Format>) -> bool {
        let by_name = |target: &String| match target.contains("://") {
            true => false,
            false => Format::of_path(target, None).is_ok_and(|(format, _)| format.is_of_connections()),
        };
        format.map_or_else(|| self.write.iter().any(by_name), Format::is_of_connections)
    }

    /// Where records are written: nowhere for `null` alone.
    fn targets(&self) -> &[String] {
        if self.write == ["null"] { &[] } else { &self.write }
    }

    /// Whether the summary is shown.
    fn is_shown(&self) -> bool {
        !self.show.quiet || self.json || self.targets().is_empty()
    }

    /// Puts the flows that are shown in the order that was asked for.
    fn order(&self, totals: &mut Totals) {
        if self.ask.sort() == Some("packets") && totals.answer.is_none() {
            totals.top = totals.top_packets.clone();
        }
    }

    fn compression(&self) -> Option<Compression> {
        let all = [Compression::Gzip, Compression::Zstd, Compression::Lz4];
        self.compress.as_deref().and_then(|name| all.into_iter().find(|compression| compression.name() == name))
    }

    /// Refuses places that cannot be meant; `listens` says that others connect to us by TLS.
    fn check_places(&self, specs: &[Spec], how: Written, listens: bool) -> anyhow::Result<()> {
        let targets = self.targets();
        for (option, is_given) in [("--format", self.format.is_some()), ("--compress", self.compress.is_some())] {
            if targets.is_empty() && is_given {
                return Err(usage(format!(
                    "{option}: nothing is written; name a file or folder with --write, or - for standard output"
                )));
            }
        }
        if targets.iter().any(|target| target == "null") {
            return Err(usage("--write null: writes nothing, and something else is to be written: leave one out"));
        }
        if self.ask.csv && targets.iter().any(|target| target == "-") {
            return Err(usage("--csv and --write - are both for standard output: write records elsewhere"));
        }
        targets.iter().try_for_each(|target| check_output(specs, target))?;
        self.meter.check_beside(targets, how, false, listens)?;
        check_distinct(targets)
    }
}

/// Who takes records, to be looked at or asked for something: the run waits meanwhile.
pub(super) fn locked(records: &Mutex<Tee>) -> MutexGuard<'_, Tee> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folders that they make files in.
pub(super) fn made_in(exporters: &[Box<dyn Exporter>]) -> std::io::Result<Vec<OwnedFd>> {
    let folders: Vec<_> = exporters.iter().map(|exporter| exporter.made_in()).collect::<Result<_, _>>()?;
    Ok(folders.into_iter().flatten().collect())
}

/// Refuses groups by what no record will have.
fn refuse_unsaid(question: &Question, config: &Config) -> anyhow::Result<()> {
    for Key { name, .. } in &question.keys {
        let is_it =
            |field: &&Field| [0, 1].iter().any(|side| field.path_of(*side).replace('.', "_") == name.replace('.', "_"));
        let Some(field) = fields().find(is_it) else { continue };
        let option = match field.part {
            Part::Names if config.names.is_empty() => "--names all",
            part if part.level() == linerate_meter::Level::Tcp && config.level < part.level() => "--level tcp",
            part if config.level < part.level() => "--level stats",
            _ => continue,
        };
        return Err(usage(format!("--by {name} means nothing without {option}: no record has it")));
    }
    Ok(())
}

/// Says so if more is asked for than is written.
fn tell_what_is_not_written(exporter: &dyn Exporter, config: &Config) {
    let ((format, most), level) = (exporter.format(), config.level);
    if !config.names.is_empty() && most < linerate_meter::Level::Stats {
        fail(format_args!(
            "--names: {format} has no place for names; --write flows.jsonl has, and Parquet, CSV, --ipfix full"
        ));
    }
    if level > most {
        let name = |level| format!("{level:?}").to_lowercase();
        let (asked, enough) = (name(level), name(most));
        fail(format_args!(
            "--level {asked}: {format} has no place for what it adds; --level {enough} writes the same, for less memory and time"
        ));
    }
}
