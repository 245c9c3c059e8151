//! Records that are stored already: asked about, listed, written in another form.

use super::super::inputs::Held;
use super::answer;
use super::asking::Wanted;
use super::output::{Shown, Tee};
use super::text::{ranked, undelivered, written};
use super::{Args, Written, made_in};
use crate::exit::{Exit, usage};
use crate::privileges::{READING, read_places};
use crate::signals::stop_on_signals;
use crate::view::ledger::LedgerJson;
use crate::view::rates::{counted, grouped, stated};
use crate::view::terminal::{fail, printed, result, result_line, shown, tell};
use linerate_burst::Ledger;
use linerate_engine::Stop;
use linerate_meter::{Flow, Records};
use linerate_port::Spec;
use linerate_query::{Answer, Filter, Measure, Question, Scan, Store, stored};
use linerate_records::encode::json;
use linerate_records::{Format, encode, export};
use serde::Serialize;
use serde_json::Value as Json;
use serde_json::value::RawValue;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// What came of it.
struct Done {
    question: Arc<Question>,
    /// The order of records.
    sort: Option<Measure>,
    scan: Scan,
    seconds: f64,
    /// That were read, and all.
    bytes: [u64; 2],
    answer: Option<Answer>,
    /// Records themselves, where none are put together.
    records: Vec<Flow>,
    ledger: Ledger,
}

/// Asks.
pub(super) fn run(args: &Args, held: &Held) -> anyhow::Result<Exit> {
    let Wanted { since, until, question } = args.ask.wanted(&held.filter)?;
    let workers = refuse(args)?;
    let sort = args.ask.sort().map(Measure::one).transpose().map_err(|error| usage(format!("--sort: {error}")))?;
    let format = args.format.as_deref().and_then(Format::named);
    let how = Written { format, compression: args.compression() };
    let mut files = Vec::new();
    for place in &held.places {
        files.extend(stored(Path::new(place))?);
    }
    let specs: Vec<Spec> = files.iter().filter_map(|file| Some(Spec::file(file.path.to_str()?))).collect();
    args.check_places(&specs, how, false)?;
    args.targets().iter().try_for_each(|target| is_apart(target, &held.places))?;
    let identity = args.receive.identity_of(false)?;
    let places = read_places(files.iter().map(|file| &*file.path));
    let assumed = identity.assume_keeping(READING)?;
    let mut drawing = args.ask.drawing().map_err(|error| identity.explain(error))?;
    let exporters = args.meter.exporters(args.targets(), how).map_err(|error| identity.explain(error))?;
    let notes = assumed.confine_reading(&made_in(&exporters)?, &places);
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    let (is_mixed, is_silent) = (args.write.iter().any(|target| target == "-"), args.show.quiet || args.json);
    if !is_silent {
        notes.iter().for_each(|note| tell(format_args!("  {}\n", shown(note))));
    }
    let (begun, question) = (Instant::now(), Arc::new(question));
    let goes_on = || !stop.is_requested();
    let store = Store::new(files, since, until);
    let mut ledger = Ledger::new();
    let mut outcome = Ok(());
    let (scan, answer, records) = if args.targets().is_empty() {
        let list = (!question.is_of_groups()).then_some(sort.as_ref());
        let (asked, scan) = store.ask(&question, list, workers, &goes_on);
        let answer = asked.answer();
        let records = if list.is_some() { store.records(asked).map_err(anyhow::Error::msg)? } else { Vec::new() };
        (scan, Some(answer), records)
    } else {
        // Those that come have passed the filter already.
        let every = Question { filter: Filter::every(), ..(*question).clone() };
        let about = Shown { top: None, question: Some(Arc::new(every)) };
        let mut tee = Tee::showing(exporters, stop.clone(), &about)?;
        let scan = store.each(&question.filter, &goes_on, &mut |flow| tee.take(&flow));
        let (totals, written) = tee.finish(false, &mut ledger);
        outcome = written;
        (scan, totals.answer, Vec::new())
    };
    let seconds = begun.elapsed().as_secs_f64();
    if stop.is_requested() {
        fail("stopped before the end of what is stored: this is of what was read");
    }
    let done = Done { question, sort, scan, seconds, bytes: store.bytes_read(), answer, records, ledger };
    if let (Some(out), Some(answer)) = (&mut drawing, &done.answer) {
        answer::draw(&args.ask.title(), &done.question, answer, out)?;
    }
    let is_shown = !args.show.quiet || args.targets().is_empty();
    if args.json {
        done.lines(held, is_mixed)?;
    } else if args.ask.csv {
        done.csv()?;
    } else if is_shown {
        result(done.text(), is_mixed);
    }
    done.scan.failures.iter().for_each(fail);
    if done.scan.failed > done.scan.failures.len() as u64 {
        fail(format_args!("{} could not be read to the end", counted(done.scan.failed, "file")));
    }
    outcome?;
    let has_lost = args.receive.lossless && undelivered(&done.ledger) > 0;
    Ok(if done.scan.failed > 0 {
        Exit::Failed
    } else if has_lost {
        Exit::Lost
    } else {
        Exit::Done
    })
}

/// Refuses what would change nothing; how many threads there are.
fn refuse(args: &Args) -> anyhow::Result<usize> {
    let workers = args.meter.readers()?;
    args.ask.check_shown(args.is_shown())?;
    let mut of_frames = args.meter.of_frames().filter(|option| *option != "--workers");
    let option = of_frames.next().or(args.receive.of_ports());
    let shown = [("--ledger", args.show.ledger), ("--metrics", args.show.has_metrics())];
    let option = option.or(shown.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option));
    if let Some(option) = option {
        return Err(usage(format!("{option} means nothing here: records are stored, and no frame is metered")));
    }
    if !args.targets().is_empty() {
        let given = [
            ("--workers", args.meter.workers()? > 1, "records are written in their order, by one thread"),
            ("--csv", args.ask.csv, "-w FILE.csv writes records as CSV"),
            ("--sort", args.ask.sort().is_some() && !args.ask.is_of_groups(), "all are written, in their order"),
            ("--top", args.ask.has_top() && !args.ask.is_of_groups(), "all are written"),
        ];
        if let Some((option, _, reason)) = given.into_iter().find(|(_, is_given, _)| *is_given) {
            return Err(usage(format!("{option} means nothing beside --write: {reason}")));
        }
    }
    Ok(workers)
}

/// Refuses to write into what is read.
fn is_apart(target: &str, places: &[String]) -> anyhow::Result<()> {
    let real = |path: &str| Path::new(path).canonicalize().ok();
    if export::is_collector(target) || target == "-" {
        return Ok(());
    }
    let Some(own) = real(target) else { return Ok(()) };
    match places
        .iter()
        .find(|place| real(place).is_some_and(|place| own == place || own.starts_with(place) && own.is_dir()))
    {
        Some(place) => Err(usage(format!("{target} is in {place}, which is read: write to another place"))),
        None => Ok(()),
    }
}

/// `linerate/flows-asked/1`.
#[derive(Serialize)]
struct Summary<'a> {
    schema: &'static str,
    from: &'a [String],
    filter: &'a str,
    seconds: f64,
    files: u64,
    files_passed_over: u64,
    row_groups: u64,
    row_groups_passed_over: u64,
    row_groups_empty: u64,
    rows_read: u64,
    bytes_read: u64,
    bytes: u64,
    failures: &'a [String],
    failed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<Json>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl Done {
    /// Groups or records, then what was read for them.
    fn lines(&self, held: &Held, is_mixed: bool) -> anyhow::Result<()> {
        if let Some(answer) = self.answer.as_ref().filter(|_| self.question.is_of_groups() && !is_mixed) {
            answer::lines(&self.question, answer)?;
        }
        for flow in &self.records {
            result_line(&RawValue::from_string(json::record(flow))?, is_mixed)?;
        }
        let asked = self.answer.as_ref().map(|answer| {
            let mut document = answer::asked(&self.question, answer);
            // They stand in lines of their own.
            if let Some(document) = document.as_object_mut().filter(|_| !is_mixed) {
                document.remove("rows");
            }
            document
        });
        let Scan { files, files_passed, groups, groups_passed, groups_empty, rows, failures, failed } = &self.scan;
        let summary = Summary {
            schema: "linerate/flows-asked/1",
            from: &held.places,
            filter: &held.filter,
            seconds: self.seconds,
            files: *files,
            files_passed_over: *files_passed,
            row_groups: *groups,
            row_groups_passed_over: *groups_passed,
            row_groups_empty: *groups_empty,
            rows_read: *rows,
            bytes_read: self.bytes[0],
            bytes: self.bytes[1],
            failures,
            failed: *failed,
            asked,
            ledger: LedgerJson::new(&self.ledger),
        };
        Ok(result_line(&summary, is_mixed)?)
    }

    fn csv(&self) -> anyhow::Result<()> {
        match &self.answer {
            Some(answer) if self.question.is_of_groups() => answer::csv(&self.question, answer),
            // Why standard output takes no more is told where all ends that is printed there.
            _ => match encode("csv", &self.records, printed()) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error.into()),
                _ => {}
            },
        }
        Ok(())
    }

    fn text(&self) -> String {
        let Scan { files, files_passed, groups, groups_passed, groups_empty, rows, .. } = &self.scan;
        let records = self.answer.as_ref().map_or(0, |answer| answer.records);
        let mut text = format!(
            "{} of {} that were read, in {:.3} s: {} of {}, {} of {}\n",
            counted(records, "record"),
            grouped(*rows),
            self.seconds,
            grouped(*files),
            counted(files + files_passed, "file"),
            grouped(groups - groups_passed),
            counted(*groups, "row group"),
        );
        let [read, bytes] = self.bytes;
        let part = if read > bytes {
            "some of them twice".to_owned()
        } else {
            format!("{:.1} %", 100.0 * read as f64 / bytes.max(1) as f64)
        };
        text += &format!("  {} of {} bytes of the files, {part}\n", grouped(read), grouped(bytes));
        if *groups_empty > 0 {
            text += &format!("  of {} row groups only what the filter asks for was read\n", grouped(*groups_empty));
        }
        if let Some(answer) = &self.answer {
            let told = self.question.measures.iter().filter_map(|measure| {
                let whole = answer.whole(&answer.totals, measure).filter(|_| measure.has_parts())?;
                Some(stated(whole, measure.name()))
            });
            text += &format!("  {}\n", told.collect::<Vec<_>>().join(", "));
            if self.question.is_of_groups() && records > 0 {
                text += &answer::text(&self.question, answer);
            }
            text += &answer::note_on_tunnels(answer);
        }
        text + &written(&self.ledger) + &ranked(&self.records, "records", self.sort.as_ref())
    }
}
