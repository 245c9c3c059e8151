//! `linerate collect`: flow records of other exporters, IPFIX and NetFlow v9, from a socket or from files.

use super::super::inputs::{UserArgs, span};
use super::super::report_options::ShowArgs;
use super::output::{Tee, Totals};
use super::output_options::WriteArgs;
use super::query_options::QueryArgs;
use super::query_output;
use super::text::{lost, top_flows, undelivered, written};
use super::{locked, made_in};
use crate::exit::{Exit, usage};
use crate::signals::{ProgressHandler, answer_requests, stop_or_reopen};
use crate::view::ledger::LedgerJson;
use crate::view::live::{Live, reopened};
use crate::view::rates::{counted, grouped};
use crate::view::terminal::{fail, is_watched, print_stderr, result, result_line, shown};
use linerate_burst::{Count, Ledger, Stage};
use linerate_engine::metrics::{MetricsSource, source};
use linerate_export::encode::json;
use linerate_export::ipfix::{Collector, CollectorCounters, Limits, Listener, read_file};
use linerate_meter::{Flow, Records};
use linerate_port::Spec;
use linerate_query::Question;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Options of `linerate collect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # records of routers in Parquet files by date and hour
  linerate collect ipfix://:4739 -w flows/
  # top flows of the next minute
  linerate collect ipfix://:4739 -T 1m
  # over TLS, as JSON lines
  linerate collect ipfix+tls://:4740 --tls cert=a.pem,key=a.key -w -
  # a file of IPFIX as CSV
  linerate collect records.ipfix -w records.csv")]
pub struct Args {
    /// Address to listen at, ipfix://[HOST]:PORT (UDP and TCP, also NetFlow v9) or ipfix+tls://[HOST]:PORT, or files of
    /// IPFIX
    #[arg(value_name = "URL|FILE", required = true)]
    from: Vec<String>,
    /// Stop after S seconds, or 500ms, 5m, 1h
    #[arg(short = 'T', long = "duration", value_name = "S")]
    duration: Option<f64>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    ask: QueryArgs,
    /// Print one JSON document at the end (schema linerate/collect/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    /// Exit with status 3 if a record was lost
    #[arg(help_heading = "Report", long)]
    lossless: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    user: UserArgs,
}

/// Sources of records.
struct RecordSources {
    /// `HOST:PORT`, and whether by TLS.
    listen: Option<(String, bool)>,
    files: Vec<String>,
    duration: Option<Duration>,
}

/// Result of a run.
struct CollectResult {
    from: Vec<String>,
    found: CollectorCounters,
    seconds: f64,
    totals: Totals,
    ledger: Ledger,
}

/// Collects until stopped, or to the end of files.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let from = args.sources()?;
    let (targets, how) = (args.write.targets(), args.write.how());
    let specs: Vec<Spec> = from.files.iter().map(|path| Spec::file(path)).collect();
    args.write.check(&specs, args.ask.csv, from.listen.as_ref().is_some_and(|(_, is_secure)| *is_secure))?;
    let about = args.ask.shown(!args.show.quiet || args.json || targets.is_empty())?;
    let mut collector = Collector::new(Limits::default(), args.write.export.enterprise()?);
    if !args.show.quiet {
        collector = collector.with_notify(|text| fail(shown(&text)));
    }
    let identity = args.user.identity(from.listen.is_some())?;
    let mut listener = match &from.listen {
        Some((at, true)) => Some(Listener::bind_secure(at, &args.write.export.tls_files()?, |text| fail(shown(&text)))),
        Some((at, false)) => Some(Listener::bind(at)),
        None => None,
    }
    .transpose()
    .map_err(|error| match error.kind() {
        ErrorKind::InvalidInput => usage(error),
        _ => error.into(),
    })?;
    let scheme = if matches!(from.listen, Some((_, true))) { "ipfix+tls" } else { "ipfix" };
    let assumed = identity.assume()?;
    let exporters = assumed.open(|| args.write.export.exporters(targets, how))?;
    let mut drawing = assumed.open(|| args.ask.drawing())?;
    let folders = made_in(&exporters)?;
    let session = assumed.confine(&folders);
    let (stop, hangup) = stop_or_reopen(&session, !folders.is_empty())?;
    let is_mixed = args.write.is_on_output();
    let names: Vec<String> = match &listener {
        Some(listener) => vec![format!("{scheme}://{}", listener.address()?)],
        None => Vec::new(),
    };
    let names: Vec<String> = names.into_iter().chain(from.files.iter().cloned()).collect();
    let is_silent = args.show.quiet || args.json || is_mixed;
    if !is_silent {
        print_stderr(format_args!("collecting from {}\n", shown(&names.join(", "))));
        session.notes().iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let records =
        Arc::new(Mutex::new(Tee::showing(exporters, stop.clone(), &about).map_err(|error| identity.explain(error))?));
    let (written, report) = (Arc::clone(&records), reopened(args.show.quiet));
    let reopen = move || locked(&written).reopen(report);
    let reopening = hangup.map(|hangup| hangup.reopen(reopen)).transpose()?;
    let begun = Instant::now();
    let seen = Arc::new(Mutex::new(CollectorCounters::default()));
    let progress = CollectProgress::start(args, is_silent, &names.join(", "), &seen)?;
    let mut continues = |collector: &Collector| {
        *lock(&seen) = collector.found();
        !stop.is_requested() && from.duration.is_none_or(|most| begun.elapsed() < most)
    };
    let mut out = |flow: &Flow| locked(&records).take(flow);
    let mut read = || {
        for (number, path) in from.files.iter().enumerate() {
            read_file(path, number as u64, &mut collector, &mut out, &mut continues)?;
        }
        listener.as_mut().map_or(Ok(()), |listener| listener.run(&mut collector, &mut out, &mut continues))
    };
    let failure = read().err();
    drop((reopening, progress));
    let found = collector.found();
    let mut ledger = account(&names.join(", "), found);
    let records = std::mem::replace(&mut *locked(&records), Tee::start(Vec::new(), stop.clone())?);
    let (mut totals, written) = records.finish(failure.is_some(), &mut ledger);
    args.ask.order(&mut totals);
    let question = about.question.as_deref();
    if let (Some(out), Some((question, found))) = (&mut drawing, question.zip(totals.answer.as_ref())) {
        query_output::draw(&args.ask.title(), question, found, out)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let done = CollectResult { from: names, found, seconds, totals, ledger };
    if let Some(failure) = &failure {
        fail(failure);
    }
    if args.json {
        result_line(&done.json(question), is_mixed)?;
    } else if let Some((question, found)) = question.zip(done.totals.answer.as_ref()).filter(|_| args.ask.csv) {
        query_output::csv(question, found);
    } else if !args.show.quiet || targets.is_empty() {
        result(done.text(question), is_mixed);
    }
    written?;
    let has_lost = found.lost + found.lost_messages + found.unknown > 0 || undelivered(&done.ledger) > 0;
    Ok(match failure {
        Some(_) => Exit::Failed,
        None if args.lossless && has_lost => Exit::Lost,
        None => Exit::Done,
    })
}

impl Args {
    /// Splits the arguments into addresses and files.
    fn sources(&self) -> anyhow::Result<RecordSources> {
        let listen = |name: &String| {
            let plain = name.strip_prefix("ipfix://").map(|at| (at.to_owned(), false));
            plain.or_else(|| name.strip_prefix("ipfix+tls://").map(|at| (at.to_owned(), true)))
        };
        if let Some(other) = self.from.iter().find(|name| listen(name).is_none() && name.contains("://")) {
            return Err(usage(format!(
                "{other}: unsupported; expected ipfix://HOST:PORT (IPFIX and NetFlow v9, UDP and TCP), \
                 ipfix+tls://HOST:PORT or FILE"
            )));
        }
        let mut listening: Vec<(String, bool)> = self.from.iter().filter_map(listen).collect();
        if listening.len() > 1 {
            return Err(usage("at most one address to listen at, such as ipfix://:4739"));
        }
        let files: Vec<String> = self.from.iter().filter(|name| listen(name).is_none()).cloned().collect();
        if let Some(missing) = files.iter().find(|file| !Path::new(file).exists()) {
            let filter =
                if files.len() > 1 { "; to filter records, write them (-w DIR/) and use linerate query" } else { "" };
            let is_address = missing.rsplit(':').next().is_some_and(|port| port.parse::<u16>().is_ok());
            if is_address {
                let at = if missing.contains(':') { missing.clone() } else { format!(":{missing}") };
                return Err(usage(format!("{missing}: no such file; ipfix://{at} listens at an address")));
            }
            anyhow::bail!("{missing}: no such file{filter}");
        }
        let duration = self.duration.map(|seconds| span("--duration", seconds)).transpose()?;
        Ok(RecordSources { listen: listening.pop(), files, duration })
    }
}

/// Progress reports, until dropped.
struct CollectProgress {
    _live: Live,
    _answers: ProgressHandler,
    _news: crate::verbs::report_options::Background,
    _metrics: MetricsSource,
}

impl CollectProgress {
    fn start(
        args: &Args,
        is_silent: bool,
        subject: &str,
        seen: &Arc<Mutex<CollectorCounters>>,
    ) -> anyhow::Result<Self> {
        let interval = args.show.interval(is_silent || !is_watched() && !args.show.has_interval())?;
        let news = args.show.news(is_silent);
        let (own, begun, mut before) = (Arc::clone(seen), Instant::now(), (Instant::now(), 0));
        let live = interval.map_or_else(Live::none, |interval| {
            Live::every(interval, move || {
                let (now, found) = (Instant::now(), *lock(&own));
                let rate = (found.records - before.1) as f64 / now.duration_since(before.0).as_secs_f64().max(1e-3);
                before = (now, found.records);
                print_stderr(format_args!(
                    "{:>4} s  {}\n",
                    begun.elapsed().as_secs(),
                    so_far(found, Some(rate as u64))
                ));
            })
        });
        let own = Arc::clone(seen);
        let answers =
            answer_requests(move || print_stderr(format_args!("so far {}\n", so_far(*lock(&own), None).trim_start())))?;
        let (own, subject) = (Arc::clone(seen), subject.to_owned());
        let metrics = source(move |ledger| ledger.add_all(&account(&subject, *lock(&own))));
        Ok(CollectProgress { _live: live, _answers: answers, _news: news, _metrics: metrics })
    }
}

/// Formats a line of progress.
fn so_far(found: CollectorCounters, rate: Option<u64>) -> String {
    let rate = rate.map_or_else(String::new, |rate| format!("  {:>11}/s", grouped(rate)));
    let mut text = format!("{:>13} records{rate}  {} exporters", grouped(found.records), grouped(found.sessions));
    for (count, number) in notes(found).into_iter().skip(3).filter(|(_, number)| *number > 0) {
        text += &format!("  {} {}", grouped(number), count.name());
    }
    text
}

fn lock(seen: &Mutex<CollectorCounters>) -> MutexGuard<'_, CollectorCounters> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

fn account(subject: &str, found: CollectorCounters) -> Ledger {
    let mut ledger = Ledger::new();
    let account = ledger.account(Stage::Collect, subject);
    account.add(Count::CollectReceived, found.records).add(Count::Collected, found.records);
    for (count, number) in notes(found) {
        account.add(count, number);
    }
    ledger
}

fn notes(found: CollectorCounters) -> [(Count, u64); 10] {
    [
        (Count::CollectSessions, found.sessions),
        (Count::CollectMessages, found.messages),
        (Count::CollectOthers, found.others),
        (Count::CollectMalformed, found.malformed),
        (Count::CollectRefused, found.refused),
        (Count::CollectUnknown, found.unknown),
        (Count::CollectUnread, found.unread),
        (Count::CollectNoRoom, found.no_room),
        (Count::CollectMissing, found.lost),
        (Count::CollectMissingMessages, found.lost_messages),
    ]
}

/// `linerate/collect/1`.
#[derive(Serialize)]
struct CollectJson<'a> {
    schema: &'static str,
    from: &'a [String],
    exporters: u64,
    seconds: f64,
    records: u64,
    flows: u64,
    messages: u64,
    other_records: u64,
    malformed: u64,
    unknown_template: u64,
    missing_records: u64,
    missing_messages: u64,
    sampling: u64,
    records_written: u64,
    records_lost: u64,
    top: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<serde_json::Value>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl CollectResult {
    fn json(&self, question: Option<&Question>) -> CollectJson<'_> {
        let CollectResult { from, found, seconds, totals, ledger } = self;
        CollectJson {
            schema: "linerate/collect/1",
            from,
            exporters: found.sessions,
            seconds: *seconds,
            records: found.records,
            flows: totals.flows,
            messages: found.messages,
            other_records: found.others,
            malformed: found.malformed,
            unknown_template: found.unknown,
            missing_records: found.lost,
            missing_messages: found.lost_messages,
            sampling: found.sampling,
            records_written: ledger.total(Count::Exported),
            records_lost: lost(ledger),
            top: totals.top.iter().filter_map(|flow| RawValue::from_string(json::record(flow)).ok()).collect(),
            query: question.zip(totals.answer.as_ref()).map(|(question, found)| query_output::asked(question, found)),
            ledger: LedgerJson::new(ledger),
        }
    }

    fn text(&self, question: Option<&Question>) -> String {
        let CollectResult { found, seconds, totals, ledger, .. } = self;
        let mut text = format!(
            "{} in {} of {} in {seconds:.3} s\n",
            counted(found.records, "record"),
            counted(found.messages, "message"),
            counted(found.sessions, "exporter")
        );
        for (count, number) in notes(*found).into_iter().skip(2).filter(|(_, number)| *number > 0) {
            text += &format!("  {} {}: {}\n", grouped(number), count.name(), count.sentence());
        }
        if found.sampling > 1 {
            let sampling = grouped(found.sampling);
            text += &format!("  an exporter sampled 1 of {sampling} packets; counts are not scaled up\n");
        }
        text + &written(ledger)
            + &match question.zip(totals.answer.as_ref()) {
                Some((question, found)) => query_output::text(question, found),
                None => top_flows(&totals.top),
            }
    }
}
