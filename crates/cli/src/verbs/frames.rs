//! `linerate frames`: reads frames of received streams from the memory of the process that receives them.

use super::inputs::{UserArgs, span};
use super::receive::options::DestinationArgs;
use super::receive::report::{StreamJson, summary, ticker};
use super::report_options::ShowArgs;
use super::rings::ring_name;
use crate::exit::Exit;
use crate::signals::{answer_requests, stop_on_signals};
use crate::view::ledger::{self, RunJson, is_void};
use crate::view::live::Live;
use crate::view::rates::counted;
use crate::view::terminal::{fail, print_stderr, show, show_document, shown};
use anyhow::anyhow;
use linerate_burst::text::quoted;
use linerate_engine::frame_ring::{FrameRingReader, FrameRingReport};
use linerate_engine::reception::{ReceptionProgress, ReceptionWatch};
use linerate_share::{AttachOptions, Error};
use serde::Serialize;
use std::time::Instant;

/// Options of `linerate frames`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # receive streams into shared memory
  linerate receive eth1 --tcp 10.0.0.9:5001 --share telescope
  # in another process: count, verify, or write frames
  linerate frames telescope
  linerate frames telescope --check --streams 1
  linerate frames telescope -w frames/
A frame is a fixed-size part of a stream. One process at a time reads frames,
without a copy, and releases each after use. A slow reader makes TCP senders
wait; with --udp, data is dropped when no frame is free. If a reader ends before
it releases its frames, the next one gets them.")]
pub struct Args {
    /// Name given to receive --share
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    go: DestinationArgs,
    /// Accept frames shared by a user other than root and you
    #[arg(long)]
    trust: bool,
    /// Stop after N streams have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    streams: Option<u64>,
    /// Stop after S seconds
    #[arg(short = 'T', long, value_name = "S")]
    duration: Option<f64>,
    /// Number of streams to print at the end, longest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: usize,
    /// Print one JSON document at the end (schema linerate/frames/1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    user: UserArgs,
}

/// Reads frames.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    let identity = args.user.identity(false)?;
    let attach = AttachOptions { name: "linerate frames".into(), trust: args.trust, ..AttachOptions::default() };
    ring_name("frames", &args.name)?;
    let reader = attach.frames(&args.name).map_err(|error| match error {
        Error::Absent { address } => {
            anyhow!("{address}: not shared; start linerate receive PORT --tcp A:P --share {} (a name is valid in one network namespace, a path in all)", quoted(&address))
        }
        error => error.into(),
    })?;
    let (frames, bytes) = reader.frames();
    let assumed = identity.assume()?;
    let (mut destination, made_in) = assumed.open(|| args.go.destination(bytes))?;
    let session = assumed.confine(&made_in);
    let stop = stop_on_signals(&session)?;
    if !args.show.quiet && !args.json {
        let (writer, becomes) = (reader.writer(), args.go.describe("counted only (use -w DIR to write files)"));
        print_stderr(format_args!("reading frames of {} (pid {writer})\n", shown(&args.name)));
        print_stderr(format_args!(
            "  {} of {} KiB, {}\n",
            counted(frames as u64, "frame"),
            bytes.div_ceil(1024),
            shown(&becomes)
        ));
        session.notes().iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let news = args.show.news(args.json);
    let watch = ReceptionWatch::default();
    #[cfg(feature = "serve")]
    crate::view::metrics::watch_streams(&watch);
    let live = match args.show.interval(args.json)? {
        Some(interval) => Live::every(interval, ticker(watch.clone(), None)),
        None => Live::none(),
    };
    let (shown_watch, started, rows) = (watch.clone(), Instant::now(), args.rows);
    let answers = answer_requests(move || {
        print_stderr(format_args!("so far {}", summary(&shown_watch.so_far(), started.elapsed().as_secs_f64(), rows)));
    })?;
    let name = args.name.clone();
    let took = FrameRingReader { name, reader, streams: args.streams, duration, stop, watch: watch.clone() }
        .run(&mut *destination);
    drop((live, answers, news));
    let so_far = watch.so_far();
    if args.json {
        show_document(&FramesJson::new(&args.name, &so_far, &took))?;
    } else if !args.show.quiet && !is_void(&took.run.ledger, took.run.failure.as_ref()) {
        let text = summary(&so_far, took.run.elapsed.as_secs_f64(), args.rows);
        show(ledger::run(&took.run, &text, args.show.ledger));
    }
    match &took.run.failure {
        Some(failure) => {
            fail(failure);
            Ok(Exit::Failed)
        }
        None => Ok(Exit::Done),
    }
}

/// `linerate/frames/1`.
#[derive(Serialize)]
struct FramesJson {
    schema: &'static str,
    name: String,
    seconds: f64,
    /// Streams with at least one frame.
    streams: usize,
    bytes: u64,
    frames: u64,
    /// Bytes missing in frames.
    missing: u64,
    /// Frames that a previous reader got too.
    redelivered: u64,
    /// True if the writer has ended all streams.
    whole: bool,
    by_stream: Vec<StreamJson>,
    #[serde(flatten)]
    run: RunJson,
}

impl FramesJson {
    fn new(name: &str, so_far: &ReceptionProgress, took: &FrameRingReport) -> Self {
        FramesJson {
            schema: "linerate/frames/1",
            name: name.to_owned(),
            seconds: took.run.elapsed.as_secs_f64(),
            streams: so_far.by_stream.len(),
            bytes: so_far.totals.bytes,
            frames: so_far.totals.frames,
            missing: so_far.totals.missing,
            redelivered: took.redelivered,
            whole: took.is_whole,
            by_stream: StreamJson::all(so_far),
            run: RunJson::new(&took.run),
        }
    }
}
