//! `linerate capture`: one or several ports -> one time-ordered stream -> count, file, text.

mod beside;
mod output;
mod parts;
mod print;
mod recording;
mod report;
mod selection;
mod share;
mod trigger;

pub use self::report::summary;

use self::beside::{Beside, BesideArgs, Done};
use self::parts::{Part, PartArgs};
use self::recording::RecordingArgs;
use self::report::CaptureJson;
use self::selection::SelectionArgs;
use self::share::ShareArgs;
use self::trigger::TriggerArgs;
use super::inputs::{InputArgs, Inputs, Needs, ReceiveArgs, check_distinct, check_output, is_file, span};
use super::ports;
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::{reopen_on_hangup, stop_on_signals};
use crate::view::ledger::is_void;
use crate::view::live::{Live, answer, reopened};
use crate::view::terminal::{fail, result, result_document, shown, tell};
use linerate_burst::Sink;
use linerate_engine::{
    Capture, Captured, Consumer, Progress, ReceiveError, Received, Reopen, Selection, Sharing, Stop,
};
use linerate_index::ENDING;
use linerate_record::{Compression, Format};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

/// Options of `linerate capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # count what eth0 sees, a line a second
  linerate capture eth0
  # both ports in one file, ordered by time
  linerate capture eth0,eth1 -w both.pcapng tcp
  # some frames of a file, and another format
  linerate capture -r trace.pcap udp port 53 -w dns.pcapng
  linerate capture -r old.pcapng.gz -w new.pcap.zst
  # to people: a line a frame, as tcpdump prints them
  linerate capture eth0 --print
  linerate capture -r trace.pcap --print=link --print-bytes hex,ascii -c 3
  # with an index, for linerate find
  linerate capture eth0 -w all.pcapng --index
  # a file an hour, the last 48 of them, at most 500 GiB
  linerate capture eth0 -w kept/ -G 3600 -W 48 --keep-size 500GiB
  # what is around each question of one host
  linerate capture eth0 -w events/ --before 10 --trigger 'host 10.0.0.7'
  # to another program
  linerate capture eth0 -w - | tshark -r -
  # a file, flow records, a ring for other processes, counts
  linerate capture eth0 -w all.pcapng.zst --flows flows/ --share feed --count
  # the same, web traffic alone in the records, headers in the ring
  linerate capture eth0 -w all.pcapng.zst --flows flows/ --share feed \\
    --filter-for 'flows=tcp port 443' --slice-for share=l4
  # what a mirror port shows twice once, of some flows, the headers
  linerate capture eth0,eth1 --dedup --shard 2/8 --slice l4+64 -w part2.pcapng
Words are ports while they are scheme:target or interfaces, then filter text.
Options of packet ports, to be quoted as in 'packet:eth0?netns=mid&lanes=1':
  netns=NAME ring=128MiB block=128KiB timeout=MS lanes=N
  direction=in|out|inout (default: inout, as tcpdump; -Q sets it for all)
  stamp=software|hardware (hardware: the card says when a frame came)
'tun:NAME?address=10.98.0.1/24' is made by the run: what this host sends there
comes. 'faulty:PORT?drop=1%&seed=7' breaks PORT by plan (linerate wire --help).")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// List interfaces instead, as linerate ports does
    #[arg(short = 'D', long, exclusive = true)]
    list_ports: bool,
    /// Write frames to a file (- for standard output; DIR/ for files called by date and time): nanosecond pcap for *.pcap and -, else pcapng;
    /// compressed if .gz, .zst or .lz4 follows; for the disk to have it before a power cut, run sync FILE
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<String>,
    /// The format to write, whatever the file is called
    #[arg(long, value_name = "FORMAT")]
    format: Option<FileFormat>,
    /// Threads that compress a .zst file, this one among them (1 to 8): each makes a part of what is written at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    compress_threads: u8,
    /// A comment on the whole file, for pcapng; may be given several times
    #[arg(long = "comment", value_name = "TEXT")]
    comments: Vec<String>,
    /// Keep an index beside the file, FILE.idx, by which linerate find finds frames without reading all of it
    #[arg(long)]
    index: bool,
    #[command(flatten)]
    recording: RecordingArgs,
    #[command(flatten)]
    trigger: TriggerArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    share: ShareArgs,
    /// Copy frames with one thread or with two; the second wants a processor of its own, and helps with rounds of 512
    /// frames and more, where neither filter, shard, slice nor --dedup is this program's work
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    copy_threads: u8,
    /// How long after its time stamp a frame may show up, in milliseconds; greater means fewer late frames. Live ports wait
    /// as long, and at least 50 ms, for a pipe or a ring that brings nothing; what comes from it after that is late. It is
    /// between live ports: files are merged as they lie, and frames of one file that are out of order stay so (late)
    #[arg(long, value_name = "MS")]
    lag: Option<f64>,
    #[command(flatten)]
    beside: BesideArgs,
    #[command(flatten)]
    parts: PartArgs,
    /// Print one JSON document at the end (schema linerate/capture/1)
    #[arg(long)]
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
    /// What a file of that name is written as.
    pub(super) fn of(self, path: &str) -> anyhow::Result<Format> {
        Compression::to_write(path).map_err(usage)?;
        Ok(match self {
            FileFormat::Pcap => Format::Pcap,
            FileFormat::PcapMicros => Format::PcapMicros,
            FileFormat::Pcapng => Format::Pcapng,
        })
    }
}

/// What was asked for, checked.
struct Asked {
    inputs: Inputs,
    /// What the file gets, and the ring, if that is the same.
    write: Selection,
    share: Selection,
    flows: Selection,
    count: Selection,
    print: Selection,
    lag: Option<Duration>,
}

/// Captures.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    if args.list_ports {
        return ports::run(&ports::Args::default());
    }
    let asked = args.check()?;
    let inputs = &asked.inputs;
    let identity = args.receive.identity(inputs)?;
    let mut beside = Beside::new(&args.beside, args.write.is_some(), args.show.quiet || args.json)?;
    let (ports, mut notes) = args
        .receive
        .open(inputs, Needs { snap: args.snap(&asked), lag: asked.lag, is_merged: true, ..Needs::default() })?;
    let share = args.share.open(&identity)?.map(|(sharing, lines)| {
        notes.extend(lines);
        sharing
    });
    let assumed = identity.assume()?;
    let (mut sinks, mut folders): (Vec<Box<dyn Sink>>, _) = (Vec::new(), Vec::new());
    folders.extend(beside.open().map_err(|error| identity.explain(error))?);
    // The last to be opened: what it has before is kept where a run cannot begin.
    if let Some(path) = &args.write {
        let (writer, folder) = args.open_output(&asked, path, &identity)?;
        sinks.push(writer);
        folders.extend(folder);
    }
    let has_files = !folders.is_empty();
    folders.extend(args.share.folder()?);
    notes.extend(assumed.confine(&folders));
    let stop = Stop::new();

    if !args.show.quiet && !args.json {
        args.announce(&asked, &notes);
    }
    let progress = Progress::new();
    let is_shown = !args.json && (!args.beside.prints() || args.show.has_interval());
    let news = args.show.news(args.json);
    let live = Live::start_reading(&progress, "captured", args.show.interval(!is_shown)?, inputs.reading());
    let is_kept = args.write.is_some() || share.is_some();
    beside.start(&asked, &stop, (!is_kept).then_some(&progress)).map_err(|error| identity.explain(error))?;
    let told = reopened(args.show.quiet);
    let reopen = Reopen::new(move |became| became.map_or_else(fail, told));
    let reopening = if has_files {
        let (frames, mut records) = (reopen.clone(), beside.reopen(told));
        let both = move || {
            frames.request();
            records();
        };
        Some(reopen_on_hangup(&stop, both)?)
    } else {
        stop_on_signals(&stop).map(|()| None)?
    };
    let answers = answer(&progress, "captured", beside.so_far(inputs))?;
    let mut captures = args.captures(&asked, sinks, share, beside.is_empty());
    if let Some(first) = captures.pop_front() {
        // It is the one that writes, where there are two.
        captures.push_front(first.progress(Arc::clone(&progress)).reopen(reopen));
    }
    let mut consumers: Vec<&mut dyn Consumer> = Vec::new();
    consumers.extend(captures.iter_mut().map(|capture| capture as &mut dyn Consumer));
    consumers.extend(beside.consumers());
    let mut run = args.receive.run(inputs, ports, stop).run(&mut consumers);
    drop((live, answers, reopening, news));
    // Who read it has what was wanted, as of all that is printed.
    run.failure.take_if(|failure| args.write.as_deref() == Some("-") && has_no_reader(failure));
    let (beside, written) = beside.finish(&mut run);
    let captured: Vec<Captured> = captures.into_iter().map(Capture::done).collect();
    args.conclude(&asked, &run, &captured, &beside)?;
    let exit = args.receive.conclude(&run);
    written?;
    Ok(exit)
}

impl Args {
    fn check(&self) -> anyhow::Result<Asked> {
        if let Some(number) = self.input.stray_number().filter(|_| self.beside.counts()) {
            let hint = format!("to stop after {number} frames write -c {number} (--frames {number})");
            return Err(usage(format!(
                "{number} is no port and no filter: --count counts, and takes no number; {hint}"
            )));
        }
        let inputs = self.input.check()?;
        let there = [
            (Part::Write, self.write.is_some()),
            (Part::Share, self.share.check()?),
            (Part::Flows, !self.beside.written().is_empty()),
            (Part::Count, self.beside.counts()),
            (Part::Print, self.beside.prints()),
        ];
        let there: Vec<Part> = there.into_iter().filter(|(_, is)| *is).map(|(part, _)| part).collect();
        self.parts.check(&there, &inputs)?;
        let index = self.write.iter().filter(|_| self.index).map(|path| format!("{path}{ENDING}")).next();
        let written: Vec<&str> =
            self.write.iter().chain(&index).chain(self.beside.written()).map(String::as_str).collect();
        written.iter().try_for_each(|path| check_output(&inputs.specs, path))?;
        check_distinct(&written)?;
        self.write.as_deref().map(|path| self.format(path)).transpose()?;
        self.beside.check(self.write.as_deref())?;
        let is_zstd = |path: &str| Compression::of_path(path).0 == Some(Compression::Zstd);
        if self.compress_threads > 1 && !self.write.as_deref().is_some_and(is_zstd) {
            return Err(usage("--compress-threads means nothing here: no .zst file is written"));
        }
        self.recording.check(self.write.as_deref(), self.beside.rotate())?;
        let is_recording = |path| self.recording.is_wanted(path, self.beside.rotate());
        self.trigger.check(&inputs, self.write.as_deref().is_some_and(is_recording))?;
        let lag = self.lag.map(|ms| span("--lag", ms / 1e3)).transpose()?;
        if lag.is_some() && inputs.specs.iter().all(is_file) {
            return Err(usage("--lag means nothing for files: they are merged as they lie"));
        }
        let kept = self.selection.with(inputs.filter.clone(), inputs.frames)?;
        let of = |part, all| self.parts.selection(part, all, &self.selection);
        let is_ring = self.write.is_none() && self.share.is_wanted();
        Ok(Asked {
            write: of(if is_ring { Part::Share } else { Part::Write }, kept.clone()),
            share: of(Part::Share, kept.clone()),
            print: of(Part::Print, kept),
            flows: of(Part::Flows, inputs.selection()),
            count: of(Part::Count, inputs.selection()),
            lag,
            inputs,
        })
    }

    /// One capture for the file and the ring, or one for each where they get different frames; one that only counts where
    /// `is_alone`.
    fn captures(
        &self,
        asked: &Asked,
        sinks: Vec<Box<dyn Sink>>,
        share: Option<Sharing>,
        is_alone: bool,
    ) -> VecDeque<Capture> {
        let capture = |selection: &Selection, sinks, share| {
            Capture::new(selection.clone(), sinks).share(share).copy_by_two(self.copy_threads == 2)
        };
        match (self.write.is_some(), share) {
            (false, None) if !is_alone => VecDeque::new(),
            (true, Some(share)) if !self.parts.are_alike() => {
                [capture(&asked.write, sinks, None), capture(&asked.share, Vec::new(), Some(share)).name("share")]
                    .into()
            }
            (false, Some(share)) => [capture(&asked.share, sinks, Some(share))].into(),
            (_, share) => [capture(&asked.write, sinks, share)].into(),
        }
    }

    /// As many bytes of a frame as any consumer wants.
    fn snap(&self, asked: &Asked) -> u32 {
        let write = (self.write.is_some() || self.beside.snap(asked).is_none()).then(|| asked.write.snap());
        let share = self.share.is_wanted().then(|| asked.share.snap());
        let wanted = || [write, share, self.beside.snap(asked)].into_iter().flatten();
        if wanted().any(|snap| snap == 0) { 0 } else { wanted().max().unwrap_or(0) }
    }

    /// What a file is written as.
    fn format(&self, path: &str) -> anyhow::Result<Format> {
        match self.format {
            Some(format) => format.of(path),
            None => Format::of_path(path).map_err(|error| usage(format!("{error}, or say --format"))),
        }
    }

    fn announce(&self, asked: &Asked, notes: &[String]) {
        let to = self.write.as_deref().map(|path| format!(" -> {path}")).unwrap_or_default();
        tell(format_args!("capturing {}\n", shown(&(asked.inputs.names().join(", ") + &to))));
        for note in notes {
            tell(format_args!("  {}\n", shown(note)));
        }
    }

    fn conclude(&self, asked: &Asked, run: &Received, captured: &[Captured], beside: &Done) -> anyhow::Result<()> {
        let is_taken = self.write.as_deref() == Some("-") || self.beside.is_on_output();
        if self.json {
            result_document(&CaptureJson::new(asked, run, captured, (beside, self.parts.json())), is_taken)?;
        } else if self.show.quiet {
            result(beside.counted(&asked.inputs), is_taken);
        } else if !is_void(&run.ledger, run.failure.as_ref()) {
            let beside = beside.told(&asked.inputs, &run.ledger);
            result(summary(run, captured, asked.inputs.are_files(), &beside, self.show.ledger), is_taken);
        }
        Ok(())
    }
}

fn has_no_reader(failure: &ReceiveError) -> bool {
    matches!(failure, ReceiveError::Sink(error) if error.reason.kind() == ErrorKind::BrokenPipe)
}
