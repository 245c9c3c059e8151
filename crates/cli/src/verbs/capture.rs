//! `linerate capture`: one or several ports -> one time-ordered stream -> file, ring, flows, statistics, text.

mod about;
mod analysis;
mod files;
mod output;
mod parts;
mod recording;
mod report;
mod selection;
mod share;
mod trigger;

pub use self::report::summary;

pub use self::files::{CONVERT, CONVERT_HELP, MERGE_HELP, PRINT, PRINT_HELP, arranged, shown as listed};

use self::analysis::{Analysis, AnalysisArgs, AnalysisResult};
use self::parts::{OutputKind, PartArgs};
use self::recording::RecordingArgs;
use self::report::CaptureJson;
use self::selection::SelectionArgs;
use self::share::ShareArgs;
use self::trigger::TriggerArgs;
use super::inputs::{
    self, InputArgs, InputRequirements, Inputs, ReceiveArgs, check_distinct, check_output, is_file, span,
};
use super::ports;
use super::report_options::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::stop_or_reopen;
use crate::view::ledger::is_void;
use crate::view::live::{Live, answer, reopened};
use crate::view::terminal::{fail, print_stderr, result, result_document, shown};
use clap::ArgAction;
use linerate_burst::Sink;
use linerate_engine::{
    Capture, CaptureTotals, Consumer, Progress, ReceiveError, ReopenRequest, RunReport, Selection, Sharing,
};
use linerate_index::ENDING;
use linerate_pcap::{Compression, Format};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// Options of `linerate capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # two interfaces into one file, in order of time
  linerate capture eth0,eth1 -w both.pcapng tcp
  # print packets, as tcpdump does
  linerate capture eth0 -n port 53
  linerate capture -r trace.pcap -c 3 -e -X
  # with an index for linerate find
  linerate capture eth0 -w all.pcapng --index
  # a file per hour, the last 48 files, at most 500 GiB
  linerate capture eth0 -w kept/ -G 3600 -W 48 --keep-size 500GiB
  # 10 s before and after each packet of a host
  linerate capture eth0 -w events/ --before 10 --trigger 'host 10.0.0.7'
  # into another program
  linerate capture eth0 -w - | tshark -r -
  # a file, flow records, a ring for other processes, and statistics
  linerate capture eth0 -w all.pcapng.zst --flows flows/ --share feed --stats
  # the same, but only web traffic in the records and headers in the ring
  linerate capture eth0 -w all.pcapng.zst --flows flows/ --share feed \\
    --filter-for 'flows=tcp port 443' --slice-for share=l4
  # headers of every eighth flow, without the duplicates of a mirror port
  linerate capture eth0,eth1 --dedup --shard 2/8 --slice l4+64 -w part2.pcapng
Leading arguments that name interfaces are ports; the rest is the filter.
Options of packet ports (quote them), such as 'packet:eth0?netns=mid&lanes=1':
  netns=NAME ring=128MiB block=128KiB timeout=MS lanes=N
  direction=in|out|inout (default: inout; -Q sets it for all ports)
  stamp=software|hardware (hardware: timestamps of the card)
'tun:NAME?address=10.98.0.1/24' creates an interface for what this host sends;
'faulty:PORT?drop=1%&seed=7' adds faults to PORT (linerate bridge --help).")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// List interfaces and exit, like linerate ports
    #[arg(help_heading = "Input", short = 'D', long, exclusive = true)]
    list_ports: bool,
    /// List the link types of the ports and exit
    #[arg(help_heading = "Input", short = 'L', long)]
    list_link_types: bool,
    /// Print the compiled filter and exit: -d as text, -dd as C, -ddd as numbers
    #[arg(help_heading = "Input", short = 'd', action = ArgAction::Count)]
    dump_filter: u8,
    /// Print only the number of packets
    #[arg(help_heading = "Report", long, conflicts_with_all = ["write", "share", "flows", "stats", "print", "json"])]
    count: bool,
    /// Write packets to FILE, - (standard output) or DIR/ (files named by date and time): pcapng, or nanosecond pcap for
    /// .pcap, .cap and -; compressed if .gz, .zst or .lz4 follows
    #[arg(help_heading = "Output", short = 'w', long, value_name = "FILE")]
    write: Option<String>,
    /// Format, instead of that of the file name
    #[arg(help_heading = "Output", long, value_name = "FORMAT")]
    format: Option<FileFormat>,
    /// Threads that compress a .zst file (1 to 8)
    #[arg(help_heading = "Output", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    compress_threads: u8,
    /// Comment on the whole file (pcapng); repeatable
    #[arg(help_heading = "Output", long = "comment", value_name = "TEXT")]
    comments: Vec<String>,
    /// Write an index FILE.idx, so that linerate find reads only a part of the file
    #[arg(help_heading = "Output", long)]
    index: bool,
    #[command(flatten)]
    recording: RecordingArgs,
    #[command(flatten)]
    trigger: TriggerArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    share: ShareArgs,
    /// Copying threads, 1 or 2; the second needs a core of its own and helps only without user-space filter, shard,
    /// slice and dedup
    #[arg(help_heading = "Merge", long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    copy_threads: u8,
    /// Reordering window between live ports: packets that arrive more than MS milliseconds after their timestamp count
    /// as late
    #[arg(help_heading = "Merge", long, value_name = "MS")]
    lag: Option<f64>,
    #[command(flatten)]
    analysis: AnalysisArgs,
    #[command(flatten)]
    parts: PartArgs,
    /// Print one JSON document at the end (schema linerate/capture/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// Formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileFormat {
    /// Classic pcap with nanosecond times; one link type
    Pcap,
    /// Classic pcap with microsecond times, for programs that know no other
    PcapMicros,
    /// pcapng: several interfaces, comments, drop counters
    Pcapng,
}

impl FileFormat {
    /// Returns the format of a file of that name.
    pub(super) fn of(self, path: &str) -> anyhow::Result<Format> {
        Compression::to_write(path).map_err(usage)?;
        Ok(match self {
            FileFormat::Pcap => Format::Pcap,
            FileFormat::PcapMicros => Format::PcapMicros,
            FileFormat::Pcapng => Format::Pcapng,
        })
    }
}

/// Checked options.
struct CaptureOptions {
    inputs: Inputs,
    /// Selection of the file, and of the ring if both are the same.
    write: Selection,
    share: Selection,
    flows: Selection,
    count: Selection,
    print: Selection,
    lag: Option<Duration>,
}

/// Runs the capture.
pub fn run(mut args: Args) -> anyhow::Result<Exit> {
    if args.list_ports {
        return ports::run(&ports::Args::default());
    }
    let has_output = args.write.is_some() || args.share.is_wanted() || args.analysis.has_output() || args.json;
    args.analysis.print.print_unless(has_output || args.count || args.dump_filter > 0 || args.list_link_types);
    args.analysis.print.unverified = args.input.tcpdump.leaves_checksums();
    if args.dump_filter > 0 {
        args.input.filter_only();
    }
    let args = &args;
    let asked = args.check()?;
    if args.list_link_types {
        return about::link_types(&asked.inputs);
    }
    if args.dump_filter > 0 {
        return about::dump_filter(&asked.inputs, args.dump_filter);
    }
    let inputs = &asked.inputs;
    let identity = args.receive.identity(inputs)?;
    let mut analysis = Analysis::new(&args.analysis, args.write.is_some(), args.is_silent())?;
    let (ports, mut notes) = args.receive.open(
        inputs,
        InputRequirements { snap: args.snap(&asked), lag: asked.lag, is_merged: true, ..InputRequirements::default() },
    )?;
    let share = args.share.open(&identity)?.map(|(sharing, lines)| {
        notes.extend(lines);
        sharing
    });
    let assumed = identity.assume()?;
    let (mut sinks, mut folders): (Vec<Box<dyn Sink>>, _) = (Vec::new(), Vec::new());
    folders.extend(assumed.open(|| analysis.open())?);
    // Opened last: an existing file is kept if the run cannot start.
    if let Some(path) = &args.write {
        let (writer, folder) = assumed.open(|| args.open_output(&asked, path))?;
        sinks.push(writer);
        folders.extend(folder);
    }
    let has_files = !folders.is_empty();
    folders.extend(args.share.folder()?);
    let session = assumed.confine(&folders);
    let (stop, hangup) = stop_or_reopen(&session, has_files)?;
    notes.extend_from_slice(session.notes());

    if !args.is_silent() {
        args.announce(&asked, &notes);
    }
    let progress = Progress::new();
    let is_shown = !args.json && !args.count && (!args.analysis.prints() || args.show.has_interval());
    let news = args.show.news(args.json || args.count);
    let live = Live::start_reading(&progress, inputs.done(), args.show.interval(!is_shown)?, inputs.reading());
    let is_kept = args.write.is_some() || share.is_some();
    let detail = (args.show.ledger, args.show.quiet);
    analysis.start(&asked, detail, &stop, (!is_kept).then_some(&progress)).map_err(|error| identity.explain(error))?;
    let report = reopened(args.show.quiet);
    let reopen = ReopenRequest::new(move |became| became.map_or_else(fail, report));
    let (frames, mut records) = (reopen.clone(), analysis.reopen(report));
    let both = move || {
        frames.request();
        records();
    };
    let reopening = hangup.map(|hangup| hangup.reopen(both)).transpose()?;
    let answers = answer(&progress, inputs.done(), analysis.so_far(inputs))?;
    let mut captures = args.captures(&asked, sinks, share, analysis.is_empty());
    if let Some(first) = captures.pop_front() {
        // If there are two, the first one writes.
        captures.push_front(first.progress(Arc::clone(&progress)).reopen(reopen));
    }
    let mut consumers: Vec<&mut dyn Consumer> = Vec::new();
    consumers.extend(captures.iter_mut().map(|capture| capture as &mut dyn Consumer));
    consumers.extend(analysis.consumers());
    let mut run = args.receive.run(inputs, ports, stop).run(&mut consumers);
    drop((live, answers, reopening, news));
    // A reader that closes the pipe has all it wanted, as with printed output.
    run.failure.take_if(|failure| args.write.as_deref() == Some("-") && has_no_reader(failure));
    let (done, written) = analysis.finish(&mut run);
    let captured: Vec<CaptureTotals> = captures.into_iter().map(Capture::done).collect();
    args.conclude(&asked, &run, &captured, &done)?;
    let exit = args.receive.conclude(&run);
    written?;
    Ok(exit)
}

impl Args {
    /// Returns whether nothing is printed before the end.
    fn is_silent(&self) -> bool {
        self.show.quiet || self.json || self.count
    }

    fn check(&self) -> anyhow::Result<CaptureOptions> {
        if let Some(number) = self.input.misplaced_number().filter(|_| self.count) {
            return Err(usage(format!("{number}: --count takes no number; -c {number} stops after {number} packets")));
        }
        let inputs = self.input.check()?;
        let there = [
            (OutputKind::Write, self.write.is_some()),
            (OutputKind::Share, self.share.check()?),
            (OutputKind::Flows, !self.analysis.written().is_empty()),
            (OutputKind::Stats, self.analysis.counts()),
            (OutputKind::Print, self.analysis.prints()),
        ];
        let there: Vec<OutputKind> = there.into_iter().filter(|(_, is)| *is).map(|(part, _)| part).collect();
        self.parts.check(&there, &inputs)?;
        let index = self.write.iter().filter(|_| self.index).map(|path| format!("{path}{ENDING}")).next();
        let written: Vec<&str> =
            self.write.iter().chain(&index).chain(self.analysis.written()).map(String::as_str).collect();
        written.iter().try_for_each(|path| check_output(&inputs.specs, path))?;
        check_distinct(&written)?;
        self.write.as_deref().map(|path| self.format(path)).transpose()?;
        self.analysis.check(self.write.as_deref())?;
        let is_zstd = |path: &str| Compression::of_path(path).0 == Some(Compression::Zstd);
        if self.compress_threads > 1 && !self.write.as_deref().is_some_and(is_zstd) {
            return Err(usage("--compress-threads needs --write FILE.zst: no .zst file is written"));
        }
        self.recording.check(self.write.as_deref(), self.analysis.rotate())?;
        let is_recording = |path| self.recording.is_wanted(path, self.analysis.rotate());
        self.trigger.check(&inputs, self.write.as_deref().is_some_and(is_recording))?;
        let lag = self.lag.map(|ms| span("--lag", ms / 1e3)).transpose()?;
        if lag.is_some() && inputs.specs.iter().all(is_file) {
            return Err(usage("--lag has no effect with files: they are merged in full"));
        }
        let kept = self.selection.with(inputs.filter.clone(), inputs.frames)?;
        let of = |part, all| self.parts.selection(part, all, &self.selection);
        let is_ring = self.write.is_none() && self.share.is_wanted();
        Ok(CaptureOptions {
            write: of(if is_ring { OutputKind::Share } else { OutputKind::Write }, kept.clone()),
            share: of(OutputKind::Share, kept.clone()),
            print: of(OutputKind::Print, kept),
            flows: of(OutputKind::Flows, inputs.selection()),
            count: of(OutputKind::Stats, inputs.selection()),
            lag,
            inputs,
        })
    }

    /// Returns one capture for the file and the ring, or one for each if their selections differ; one that only counts
    /// if `is_only`.
    fn captures(
        &self,
        asked: &CaptureOptions,
        sinks: Vec<Box<dyn Sink>>,
        share: Option<Sharing>,
        is_only: bool,
    ) -> VecDeque<Capture> {
        let capture = |selection: &Selection, sinks, share| {
            Capture::new(selection.clone(), sinks).share(share).copy_with_helper(self.copy_threads == 2)
        };
        match (self.write.is_some(), share) {
            (false, None) if !is_only => VecDeque::new(),
            (true, Some(share)) if !self.parts.are_alike() => {
                [capture(&asked.write, sinks, None), capture(&asked.share, Vec::new(), Some(share)).name("share")]
                    .into()
            }
            (false, Some(share)) => [capture(&asked.share, sinks, Some(share))].into(),
            (_, share) => [capture(&asked.write, sinks, share)].into(),
        }
    }

    /// Returns the maximum number of bytes of a packet that any consumer needs.
    fn snap(&self, asked: &CaptureOptions) -> u32 {
        let write = (self.write.is_some() || self.analysis.snap(asked).is_none()).then(|| asked.write.snap());
        let share = self.share.is_wanted().then(|| asked.share.snap());
        let wanted = || [write, share, self.analysis.snap(asked)].into_iter().flatten();
        if wanted().any(|snap| snap == 0) { 0 } else { wanted().max().unwrap_or(0) }
    }

    /// Returns the format of the output file.
    fn format(&self, path: &str) -> anyhow::Result<Format> {
        match self.format {
            Some(format) => format.of(path),
            None => Format::of_path(path).map_err(|error| usage(format!("{error}; use another name or --format"))),
        }
    }

    fn announce(&self, asked: &CaptureOptions, notes: &[String]) {
        let to = self.write.as_deref().map(|path| format!(" -> {path}")).unwrap_or_default();
        let doing = if asked.inputs.are_files() { "reading" } else { "capturing" };
        print_stderr(format_args!("{doing} {}\n", shown(&(inputs::listed(&asked.inputs.names()) + &to))));
        for note in notes {
            print_stderr(format_args!("  {}\n", shown(note)));
        }
    }

    fn conclude(
        &self,
        asked: &CaptureOptions,
        run: &RunReport,
        captured: &[CaptureTotals],
        done: &AnalysisResult,
    ) -> anyhow::Result<()> {
        let is_taken = self.write.as_deref() == Some("-") || self.analysis.is_on_output();
        if self.json {
            result_document(&CaptureJson::new(asked, run, captured, (done, self.parts.json())), is_taken)?;
        } else if self.count {
            result(format_args!("{}\n", captured.iter().map(|captured| captured.frames).sum::<u64>()), false);
        } else if self.show.quiet {
            result(done.counted(&asked.inputs), is_taken);
        } else if !is_void(&run.ledger, run.failure.as_ref()) {
            let more = done.text(&asked.inputs, &run.ledger);
            result(summary(run, captured, asked.inputs.are_files(), &more, self.show.ledger), is_taken);
        }
        Ok(())
    }
}

fn has_no_reader(failure: &ReceiveError) -> bool {
    matches!(failure, ReceiveError::Sink(error) if error.reason.kind() == ErrorKind::BrokenPipe)
}
