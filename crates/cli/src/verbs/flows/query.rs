//! `linerate query`: stored flow records, grouped, listed or written in another form.

use super::super::inputs::UserArgs;
use super::super::inputs::file_conflicts::check_apart;
use super::made_in;
use super::output::{ResultOptions, Tee};
use super::output_options::WriteArgs;
use super::query_options::{QueryArgs, RecordSelection};
use super::query_output;
use super::text::{ranked, undelivered, written};
use crate::exit::{Exit, usage};
use crate::privileges::{READING, folders_of};
use crate::signals::stop_on_signals;
use crate::view::ledger::LedgerJson;
use crate::view::rates::{counted, grouped, stated};
use crate::view::terminal::{fail, print_stderr, printed, result, result_line, row_line, shown};
use linerate_burst::Ledger;
use linerate_export::encode::{encode, json};
use linerate_export::fields::Part;
use linerate_meter::{Flow, FlowDistributor, Level, Records};
use linerate_port::Spec;
use linerate_query::columns::{self, Column};
use linerate_query::{Answer, Filter, Measure, Question, Scan, Store, WHOLE_THREADS, stored};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Instant;

/// Options of `linerate query`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the top destination ports by bytes
  linerate query flows/ --by resp_port
  # large flows of a network, grouped by port
  linerate query flows/ --by port 'src net 10.0.0.0/8 and bytes > 1M'
  # the records of a host in the last hour
  linerate query flows/ --since -1h host 10.1.2.3
  # bytes per 5 minutes, as a picture
  linerate query flows/ --every 5m --sum bytes --plot bytes.svg
  # part of them as CSV
  linerate query flows/ -w tcp.csv proto tcp and not flags A
Filters: docs/guide/ask.md; fields: docs/flows.md.")]
pub struct Args {
    /// Directories and Parquet files of records; then the filter of records
    #[arg(value_name = "DIR|FILE|FILTER", required = true)]
    words: Vec<String>,
    /// Filter text, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Take flows whose last packet is at this time or later, such as 2026-11-22T10:00 or -1h
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    since: Option<String>,
    /// Take flows whose first packet is before this time
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    until: Option<String>,
    #[command(flatten)]
    ask: QueryArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Reading threads [default: one per processor, at most 4]
    #[arg(help_heading = "Report", long, value_name = "N")]
    workers: Option<usize>,
    /// Print JSON lines: groups or records, then a summary (schema linerate/query/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    /// Print errors only, and results that are not written elsewhere
    #[arg(help_heading = "Report", short = 'q', long)]
    quiet: bool,
    /// Exit with status 3 if a record could not be delivered
    #[arg(help_heading = "Report", long)]
    lossless: bool,
    #[command(flatten)]
    user: UserArgs,
}

/// Directories and files of records, and the filter.
struct StoredRecords {
    places: Vec<String>,
    filter: String,
}

/// Result of a query.
struct QueryResult {
    question: Arc<Question>,
    /// The period that was asked for, as text.
    period: String,
    /// The order of records.
    sort: Option<Measure>,
    scan: Scan,
    seconds: f64,
    /// Bytes read, and bytes of all files.
    bytes: [u64; 2],
    answer: Option<Answer>,
    /// Single records, if they are not grouped.
    records: Vec<Flow>,
    ledger: Ledger,
}

/// Runs the query.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let held = &args.held()?;
    let RecordSelection { since, until, question } =
        args.ask.wanted(&held.filter, args.since.as_deref(), args.until.as_deref())?;
    let workers = args.check()?;
    let sort = args.ask.measure()?;
    let (targets, how) = (args.write.targets(), args.write.how());
    let mut files = Vec::new();
    for place in &held.places {
        files.extend(stored(Path::new(place))?);
    }
    let specs: Vec<Spec> = files.iter().filter_map(|file| Some(Spec::file(file.path.to_str()?))).collect();
    args.write.check(&specs, args.ask.csv, false)?;
    targets.iter().try_for_each(|target| check_apart(target, &held.places))?;
    let identity = args.user.identity(false)?;
    let places = folders_of(files.iter().map(|file| &*file.path));
    let assumed = identity.assume_keeping(READING)?;
    let mut drawing = assumed.open(|| args.ask.drawing())?;
    let exporters = assumed.open(|| args.write.export.exporters(targets, how))?;
    let session = assumed.confine_reading(&made_in(&exporters)?, &places);
    let stop = stop_on_signals(&session)?;
    let (is_mixed, is_silent) = (args.write.is_on_output(), args.quiet || args.json);
    if !is_silent {
        session.notes().iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let (begun, question) = (Instant::now(), Arc::new(question));
    let continues = || !stop.is_requested();
    let store = Store::new(files, since, until);
    let mut ledger = Ledger::new();
    let mut outcome = Ok(());
    let (scan, answer, records) = if targets.is_empty() {
        let list = (!question.is_of_groups()).then_some(sort.as_ref());
        let (asked, scan) = store.ask(&question, list, workers, &continues);
        let answer = asked.answer();
        let records = if list.is_some() { store.records(asked).map_err(anyhow::Error::msg)? } else { Vec::new() };
        (scan, Some(answer), records)
    } else {
        // These records have passed the filter already.
        let every = Question { filter: Filter::every(), ..(*question).clone() };
        let about = ResultOptions { top: None, question: Some(Arc::new(every)) };
        let mut tee = Tee::showing(exporters, stop.clone(), &about)?;
        let scan = store.each(&question.filter, &continues, &mut |flow| tee.take(&flow));
        let (totals, written) = tee.finish(false, &mut ledger);
        outcome = written;
        (scan, totals.answer, Vec::new())
    };
    let seconds = begun.elapsed().as_secs_f64();
    if stop.is_requested() {
        fail("stopped early: the result covers only the records read so far");
    }
    let done = QueryResult {
        question,
        period: query_output::period(since, until),
        sort,
        scan,
        seconds,
        bytes: store.bytes_read(),
        answer,
        records,
        ledger,
    };
    if let (Some(out), Some(answer)) = (&mut drawing, &done.answer) {
        query_output::draw(&args.ask.title(), &done.question, answer, out)?;
    }
    let is_shown = !args.quiet || targets.is_empty();
    if args.json {
        done.lines(held, is_mixed)?;
    } else if args.ask.csv {
        done.csv()?;
    } else if is_shown {
        result(done.text(), is_mixed);
    }
    if (args.json || args.ask.csv) && !args.quiet {
        done.note_rest();
    }
    done.scan.failures.iter().for_each(fail);
    if done.scan.failed > done.scan.failures.len() as u64 {
        fail(format_args!("{} could not be read to the end", counted(done.scan.failed, "file")));
    }
    outcome?;
    let has_lost = args.lossless && undelivered(&done.ledger) > 0;
    Ok(if done.scan.failed > 0 {
        Exit::Failed
    } else if has_lost {
        Exit::Lost
    } else {
        Exit::Done
    })
}

impl Args {
    /// Splits the words into places and filter.
    fn held(&self) -> anyhow::Result<StoredRecords> {
        let is_place = |word: &&String| Path::new(word).exists() || word.ends_with('/') || word.ends_with(".parquet");
        let (places, words) = self.words.split_at(self.words.iter().take_while(is_place).count());
        if places.is_empty() {
            return Err(usage(format!("{}: no such file or directory; DIR or FILE comes first", self.words[0])));
        }
        let is_other =
            |place: &&String| Path::new(place).is_file() && !place.to_ascii_lowercase().ends_with(".parquet");
        if let Some(other) = places.iter().find(is_other) {
            return Err(usage(format!(
                "{other}: not a .parquet file (flows -w FILE.parquet or DIR/); linerate flows reads captures, linerate collect IPFIX"
            )));
        }
        let filter = match (&self.filter, words) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter given twice: with --filter and as {word:?}; leave one out")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        Ok(StoredRecords { places: places.to_vec(), filter })
    }

    /// Refuses options without effect. Returns the number of reading threads.
    fn check(&self) -> anyhow::Result<usize> {
        let has_targets = !self.write.targets().is_empty();
        self.ask.check_shown(!self.quiet || self.json || !has_targets)?;
        if has_targets {
            let given = [
                ("--workers", self.workers.is_some(), "one thread keeps the order of records"),
                ("--csv", self.ask.csv, "-w FILE.csv writes records as CSV"),
                ("--sort", self.ask.sort().is_some() && !self.ask.is_of_groups(), "records are written in their order"),
                ("--top", self.ask.has_top() && !self.ask.is_of_groups(), "all records are written"),
            ];
            if let Some((option, _, reason)) = given.into_iter().find(|(_, is_given, _)| *is_given) {
                return Err(usage(format!("{option} has no effect with --write: {reason}")));
            }
        }
        match self.workers {
            Some(workers @ 1..=FlowDistributor::MOST) => Ok(workers),
            Some(_) => Err(usage(format!("--workers: expected 1 to {}", FlowDistributor::MOST))),
            None => Ok(available_parallelism().map_or(1, |all| all.get().min(WHOLE_THREADS))),
        }
    }
}

/// `linerate/query/1`.
#[derive(Serialize)]
struct Summary<'a> {
    schema: &'static str,
    from: &'a [String],
    filter: &'a str,
    seconds: f64,
    files: u64,
    files_skipped: u64,
    row_groups: u64,
    row_groups_skipped: u64,
    row_groups_empty: u64,
    rows: u64,
    rows_read: u64,
    absent: Vec<&'a str>,
    bytes_read: u64,
    bytes: u64,
    failures: &'a [String],
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<Json>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl QueryResult {
    /// Groups or records, then what was read for them.
    fn lines(&self, held: &StoredRecords, is_mixed: bool) -> anyhow::Result<()> {
        if let Some(answer) = self.answer.as_ref().filter(|_| self.question.is_of_groups() && !is_mixed) {
            query_output::lines(&self.question, answer)?;
        }
        for flow in &self.records {
            row_line(&RawValue::from_string(json::record(flow))?, is_mixed)?;
        }
        let asked = self.answer.as_ref().map(|answer| {
            let mut document = query_output::asked(&self.question, answer);
            // They are printed as lines.
            if let Some(document) = document.as_object_mut().filter(|_| !is_mixed) {
                document.remove("rows");
            }
            document
        });
        let Scan { files, files_passed, groups, groups_passed, groups_empty, rows, stored, .. } = &self.scan;
        let Scan { failures, failed, .. } = &self.scan;
        let summary = Summary {
            schema: "linerate/query/1",
            from: &held.places,
            filter: &held.filter,
            seconds: self.seconds,
            files: *files,
            files_skipped: *files_passed,
            row_groups: *groups,
            row_groups_skipped: *groups_passed,
            row_groups_empty: *groups_empty,
            rows: *stored,
            rows_read: *rows,
            absent: self.absent().map(|column| &*column.name).collect(),
            bytes_read: self.bytes[0],
            bytes: self.bytes[1],
            failures,
            failed: *failed,
            query: asked,
            ledger: LedgerJson::new(&self.ledger),
        };
        Ok(result_line(&summary, is_mixed)?)
    }

    fn csv(&self) -> anyhow::Result<()> {
        match &self.answer {
            Some(answer) if self.question.is_of_groups() => query_output::csv(&self.question, answer),
            // Errors of standard output are reported at the end of the run.
            _ => match encode("csv", &self.records, printed()) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
                _ => {}
            },
        }
        Ok(())
    }

    /// Notes matching records that are not listed.
    fn note_rest(&self) {
        let matched = self.answer.as_ref().map_or(0, |answer| answer.records);
        let listed = self.records.len() as u64;
        if 0 < listed && listed < matched {
            let all = counted(matched, "record");
            print_stderr(format_args!(
                "  {} of {all} listed; --top N lists more, -w FILE.csv writes all\n",
                grouped(listed)
            ));
        }
    }

    /// Returns the columns of keys, filter and sums without a value in any record.
    fn absent(&self) -> impl Iterator<Item = &'static Column> {
        let named = if self.scan.stored == 0 { BTreeSet::new() } else { self.question.named_columns() };
        named.into_iter().filter(|id| !self.scan.present.contains(id)).map(|id| &columns::all()[id])
    }

    fn text(&self) -> String {
        let Scan { files, files_passed, groups, groups_passed, groups_empty, stored, .. } = &self.scan;
        let records = self.answer.as_ref().map_or(0, |answer| answer.records);
        let mut text = format!(
            "{} of {} matched{} in {:.3} s; read {} of {}, {} of {}\n",
            grouped(records),
            counted(*stored, "record"),
            if records == 0 { &*self.period } else { "" },
            self.seconds,
            grouped(*files),
            counted(files + files_passed, "file"),
            grouped(groups - groups_passed),
            counted(*groups, "row group"),
        );
        let [read, bytes] = self.bytes;
        // The filter's columns may be read twice.
        if read < bytes {
            let part = 100.0 * read as f64 / bytes as f64;
            text += &format!("  read {} of {} bytes, {part:.1} %\n", grouped(read), grouped(bytes));
        }
        if *groups_empty > 0 {
            text += &format!("  in {} only the filter columns were read\n", counted(*groups_empty, "row group"));
        }
        for column in self.absent() {
            let option = match column.field.part.level() {
                _ if column.field.part == Part::Names => "--names",
                Level::Counters => "",
                Level::Tcp => "--level tcp",
                Level::Stats => "--level stats",
            };
            let remedy = if option.is_empty() { String::new() } else { format!(" (recorded with flows {option})") };
            text += &format!("  no record has a value of {}{remedy}\n", column.name);
        }
        if let Some(answer) = &self.answer {
            let totals = self.question.measures.iter().filter_map(|measure| {
                let whole = answer.whole(&answer.totals, measure).filter(|_| measure.has_parts())?;
                Some(stated(whole, measure.name()))
            });
            text += &format!("  {}\n", totals.collect::<Vec<_>>().join(", "));
            if self.question.is_of_groups() && records > 0 {
                text += &query_output::text(&self.question, answer);
            }
            text += &query_output::note_on_tunnels(answer);
        }
        let title = if self.sort.is_some() { "records" } else { "first records" };
        text + &written(&self.ledger) + &ranked(&self.records, title, self.sort.as_ref())
    }
}
