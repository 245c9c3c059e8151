//! `linerate demo`: send, capture, merge and compare on this machine, without a network card.
//!
//! Two hosts replay the two halves of a capture into a sensor with two ports, which captures both, merges
//! them by time and writes one file. Then the file is compared with the sent packets, one by one.

mod compare;
pub mod testbed;
mod work_files;

use self::compare::{Comparison, Expected, compare};
use self::testbed::{PARTS, Stage};
use self::work_files::{WorkFile, Workplace};
use crate::exit::Exit;
use crate::privileges::Session;
use crate::signals::stop_on_signals;
use crate::verbs::{capture, generate};
use crate::view::ledger;
use crate::view::live::Live;
use crate::view::rates::{Rates, counted, grouped};
use crate::view::table::table;
use crate::view::terminal::{is_watched, print_stderr, show, show_document, shown};
use anyhow::bail;
use linerate_backends::pcap::Recording;
use linerate_backends::{open_rx, open_tx};
use linerate_burst::Count;
use linerate_engine::{
    Capture, CaptureTotals, Edits, Progress, Receive, RecordingMemory, Replay, ReplayReport, RunReport, Selection, Stop,
};
use linerate_generate::{Pacing, Rate, Split};
use linerate_pcap::{Format, Writer};
use linerate_port::{RxOptions, Spec, TxOptions};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::time::{Duration, Instant};

/// Options of `linerate demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # run the demonstration (about ten seconds)
  linerate demo
  # in memory, without network namespaces; keep the capture files
  linerate demo --memory --keep captured
  # replay your own capture
  linerate demo --replay trace.pcap")]
pub struct Args {
    /// Capture file to replay [default: $LINERATE_CORPUS/real-mix.pcap, else generated packets]
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Keep the capture files in this directory
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
    /// Use memory instead of network namespaces [default without root]
    #[arg(long)]
    memory: bool,
    /// Print the whole packet accounting of each run
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Print one JSON document (schema linerate/demo/1)
    #[arg(long)]
    json: bool,
}

/// Duration of the timed replay, in seconds.
const TIMED_SECONDS: f64 = 4.0;
/// Passes over the recording at maximum rate.
const TOP_LOOPS: u64 = 10;
/// Lag of the sensor's merge, long enough for a busy machine.
const LAG: Duration = Duration::from_millis(10);

/// A replay of the demonstration.
struct Act {
    name: &'static str,
    pacing: Pacing,
    loops: u64,
}

/// Result of a replay.
struct Outcome {
    sent: Vec<ReplayReport>,
    run: RunReport,
    captured: CaptureTotals,
    compared: Comparison,
}

/// Runs the demonstration.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let started = Instant::now();
    let stop = stop_on_signals(&Session::keeping("it handles only its own packets, in a temporary lab"))?;
    let workplace = Workplace::new(args.keep.as_deref())?;
    let made = workplace.file("made.pcap")?;
    let recording = testbed::found(args.replay.as_deref()).map_or_else(|| testbed::made(made.path.clone()), Ok)?;
    let expected = Expected::read(&recording.path)?;
    let stage = Stage::set(args.memory)?;
    if !args.json {
        let (stage, origin) = (stage.describe(), &recording.origin);
        print_stderr(format_args!(
            "{}\nreplaying {}: {}\n\n",
            shown(&stage),
            shown(origin),
            counted(expected.frames(), "packet")
        ));
    }
    let factor = (expected.seconds() / TIMED_SECONDS).max(1.0);
    let acts = [
        Act { name: "timed", pacing: Pacing::Recorded(factor), loops: 1 },
        Act { name: "max rate", pacing: Pacing::Fixed(Rate::Top), loops: TOP_LOOPS },
    ];
    let mut outcomes = Vec::new();
    for act in &acts {
        let file = workplace.file(&format!("{}.pcapng", act.name.replace(' ', "-")))?;
        let (sent, run, captured) = perform(act, &stage, &recording.path, &file, &stop, args.json)?;
        if stop.is_requested() {
            bail!("interrupted");
        }
        let late = run.ledger.total(Count::Late);
        let compared = compare(&file.path, &expected, act.loops, &stage.interfaces(), late)?;
        outcomes.push(Outcome { sent, run, captured, compared });
    }
    drop(stage);
    report(args, &acts, &outcomes, started.elapsed(), &workplace)
}

fn perform(
    act: &Act,
    stage: &Stage,
    recording: &Path,
    file: &WorkFile,
    interrupt: &Stop,
    quiet: bool,
) -> anyhow::Result<(Vec<ReplayReport>, RunReport, CaptureTotals)> {
    let options = RxOptions { promiscuous: true, lag: Some(LAG), ..RxOptions::default() };
    let ports = stage.sensor().iter().map(|spec| open_rx(spec, &options)).collect::<Result<Vec<_>, _>>()?;
    let output = file.output()?;
    let senders =
        stage.senders().into_iter().enumerate().map(|(part, spec)| sender(act, &spec, part, recording, interrupt));
    let senders = senders.collect::<anyhow::Result<Vec<_>>>()?;
    let (stop, progress) = (Stop::new(), Progress::new());
    let live = Live::start(&progress, "captured", (!quiet && is_watched()).then_some(Duration::from_secs(1)));
    let mut capture = Capture::new(Selection::default(), vec![Box::new(Writer::new(output, Format::Pcapng))]);
    capture = capture.progress(progress);
    let receive = Receive { stop: stop.clone(), ..Receive::all(ports) };
    let outcome = std::thread::scope(|scope| {
        let sensor = scope.spawn(|| receive.run(&mut [&mut capture]));
        let running: Vec<_> = senders.into_iter().map(|sender| scope.spawn(|| sender.run())).collect();
        let sent = running.into_iter().map(|thread| thread.join().expect("sender panicked")).collect();
        // The last packets are still in flight to the sensor.
        std::thread::sleep(2 * LAG);
        stop.request();
        (sent, sensor.join().expect("sensor panicked"))
    });
    drop(live);
    Ok((outcome.0, outcome.1, capture.done()))
}

fn sender(act: &Act, spec: &Spec, part: usize, recording: &Path, stop: &Stop) -> anyhow::Result<Replay> {
    let recording = Recording::open(&recording.to_string_lossy())?;
    Ok(Replay {
        open: Box::new(move || recording.port()),
        memory: RecordingMemory::IfSmall,
        loops: act.loops,
        loop_gap: None,
        edits: Edits { split: Split { index: part as u32, of: PARTS as u32 }, ..Edits::default() },
        ports: vec![open_tx(spec, &TxOptions::default())?],
        pacing: act.pacing,
        at_once: false,
        packets: None,
        duration: None,
        stop: stop.clone(),
        progress: Progress::new(),
    })
}

fn report(
    args: &Args,
    acts: &[Act],
    outcomes: &[Outcome],
    elapsed: Duration,
    workplace: &Workplace,
) -> anyhow::Result<Exit> {
    let rows: Vec<Row> = acts.iter().zip(outcomes).map(|(act, outcome)| Row::new(act, outcome)).collect();
    let good = rows.iter().all(|row| row.ok);
    if args.json {
        let document = DemoJson { schema: "linerate/demo/1", ok: good, seconds: elapsed.as_secs_f64(), acts: rows };
        show_document(&document)?;
        return Ok(if good { Exit::Done } else { Exit::Failed });
    }
    let mut lines = table(&["replay", "sent", "captured", "equal", "lost", "late", "seconds", "rate", "L1"], 1);
    for row in &rows {
        lines.add_row([
            row.act.clone(),
            grouped(row.sent),
            grouped(row.captured),
            grouped(row.equal),
            grouped(row.lost),
            grouped(row.late),
            format!("{:.2}", row.seconds),
            row.rates.frames(),
            row.rates.l1(),
        ]);
    }
    show(format_args!("{lines}\n\n"));
    for (act, outcome) in acts.iter().zip(outcomes) {
        if args.verbose || !Row::new(act, outcome).ok {
            print_details(act, outcome);
        }
    }
    if let Some(outcome) = outcomes.last().filter(|_| !args.verbose && good) {
        let ledger = ledger::print(&outcome.run.ledger, outcome.run.quiesced, args.verbose);
        show(format_args!("packet accounting of the last capture:\n{ledger}"));
    }
    if let Workplace::Kept(path, _) = workplace {
        show(format_args!("\nfiles kept in {}\n", shown(&path.to_string_lossy())));
    }
    let sent: u64 = rows.iter().map(|row| row.sent).sum();
    let captured: u64 = rows.iter().map(|row| row.captured).sum();
    let lost: u64 = rows.iter().map(|row| row.lost).sum();
    let relation = if good { "sent = captured" } else { "sent and captured DIFFER" };
    show(format_args!(
        "\n{relation}, {} lost: {} packets sent, {} captured, compared byte by byte in order, {:.1} s\n",
        grouped(lost),
        grouped(sent),
        grouped(captured),
        elapsed.as_secs_f64()
    ));
    Ok(if good { Exit::Done } else { Exit::Failed })
}

fn print_details(act: &Act, outcome: &Outcome) {
    show(format_args!("{}:\n", act.name));
    for sent in &outcome.sent {
        show(generate::replay::summary(act.pacing, sent, true));
    }
    show(capture::summary(&outcome.run, from_ref(&outcome.captured), false, "", true));
    for difference in &outcome.compared.differences {
        show(format_args!("  DIFFERENCE: {}\n", shown(difference)));
    }
    show("\n");
}

/// A line of the table.
#[derive(Serialize)]
struct Row {
    act: String,
    ok: bool,
    sent: u64,
    captured: u64,
    equal: u64,
    foreign: u64,
    lost: u64,
    late: u64,
    out_of_order: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    differences: Vec<String>,
}

impl Row {
    fn new(act: &Act, outcome: &Outcome) -> Self {
        let sent: u64 = outcome.sent.iter().map(|report| report.sent.frames).sum();
        let bytes: u64 = outcome.sent.iter().map(|report| report.sent.bytes).sum();
        let seconds = outcome.sent.iter().map(|report| report.elapsed.as_secs_f64()).fold(0.0, f64::max);
        let mut differences = outcome.compared.differences.clone();
        differences.extend(outcome.sent.iter().filter_map(|report| report.failure.as_ref().map(ToString::to_string)));
        differences.extend(outcome.run.failure.as_ref().map(ToString::to_string));
        differences.extend(outcome.run.ledger.imbalances().iter().map(ToString::to_string));
        let compared = &outcome.compared;
        let lost = sent.saturating_sub(compared.equal);
        Row {
            act: act.name.to_owned(),
            ok: differences.is_empty() && lost == 0 && compared.equal == compared.captured && sent > 0,
            sent,
            captured: compared.captured,
            equal: compared.equal,
            foreign: compared.foreign,
            lost,
            late: outcome.run.ledger.total(Count::Late),
            out_of_order: compared.out_of_order,
            seconds,
            rates: Rates::new(sent, bytes, seconds),
            differences,
        }
    }
}

/// `linerate/demo/1`.
#[derive(Serialize)]
struct DemoJson {
    schema: &'static str,
    ok: bool,
    seconds: f64,
    acts: Vec<Row>,
}
