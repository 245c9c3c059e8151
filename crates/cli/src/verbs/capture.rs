//! `linerate capture`: one or several ports -> one time-ordered stream -> count, file.

mod report;
mod selection;
mod share;

pub use self::report::summary;

use self::report::CaptureJson;
use self::selection::SelectionArgs;
use self::share::ShareArgs;
use super::inputs::{are_live, check_output, is_file};
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine};
use crate::signals::stop_on_signals;
use crate::view::ledger::is_void;
use crate::view::live::Live;
use crate::view::terminal::{fail, show_document, shown, tell, tell_document};
use anyhow::Context;
use linerate_backends::open_rx;
use linerate_burst::{LinkType, Sink};
use linerate_engine::{Capture, CaptureReport, Progress, Selection, Stop, Waiting};
use linerate_filter::Filter;
use linerate_port::{RxOptions, RxPort, Spec};
use linerate_record::{Format, Output, Writer};
use std::time::Duration;

/// Options of `linerate capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  linerate capture eth0                             count what eth0 sees, a line a second
  linerate capture eth0,eth1 -w both.pcapng tcp     both ports in one file, ordered by time
  linerate capture -r trace.pcap udp port 53 -w dns.pcapng
  linerate capture --from pcap:old.pcapng.gz --write new.pcap.zst
  linerate capture eth0 -w - | tshark -r -
  linerate capture eth0,eth1 --dedup --shard 2/8 --slice l4+64 -w part2.pcapng
The first argument is the ports unless -i or -r names them; the rest is filter text as tcpdump takes it.
Options of packet ports: ?netns=NAME ?ring=128MiB ?block=128KiB ?timeout=MS ?lanes=N ?direction=in|inout
faulty:PORT?drop=1%&seed=7 breaks any port by plan: linerate wire --help lists the faults")]
pub struct Args {
    /// Ports (comma between several), unless -i or -r is given; then filter text
    #[arg(value_name = "PORTS|FILTER")]
    words: Vec<String>,
    /// A port to capture from, pcap:FILE among them; may be given several times, or with commas
    #[arg(short = 'i', long = "port", visible_alias = "from", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// A capture file to read instead (- for standard input), also compressed by gzip or zstd; may be given
    /// several times
    #[arg(short = 'r', long = "read", value_name = "FILE")]
    read: Vec<String>,
    /// Write frames to a file (- for standard output): nanosecond pcap for *.pcap and -, else pcapng;
    /// compressed if .gz or .zst follows; for the disk to have it before a power cut, run sync FILE
    #[arg(short = 'w', long, value_name = "FILE")]
    write: Option<String>,
    /// The format to write, whatever the file is called
    #[arg(long, value_name = "FORMAT")]
    format: Option<FileFormat>,
    /// A comment on the whole file, for pcapng; may be given several times
    #[arg(long = "comment", value_name = "TEXT", requires = "write")]
    comments: Vec<String>,
    /// Filter text, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Stop after this many frames
    #[arg(short = 'c', long = "count", value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    share: ShareArgs,
    /// Copy frames with one thread or with two; the second wants a processor of its own, and helps with rounds of 512
    /// frames and more, where neither filter, shard, slice nor --dedup is this program's work
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    copy_threads: u8,
    /// Do not ask interfaces for frames to other hosts
    #[arg(short = 'p', long = "no-promiscuous")]
    no_promiscuous: bool,
    /// How long after its time stamp a frame may show up, in milliseconds; greater means fewer late frames. Live ports wait
    /// as long, and at least 50 ms, for a pipe or a ring that brings nothing; what comes from it after that is late. It is
    /// between live ports: files are merged as they lie, and frames of one file that are out of order stay so (late)
    #[arg(long, value_name = "MS")]
    lag: Option<f64>,
    /// End with status 3 if a frame was lost, or may have been; buffers are chosen as large as that takes
    #[arg(long)]
    lossless: bool,
    /// Let xdp: ports take frames away from this host even where it uses the interface itself
    #[arg(long)]
    take: bool,
    /// Print one JSON document at the end (schema linerate/capture/1)
    #[arg(long)]
    json: bool,
    /// No line a second, no summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Never sleep while waiting for frames: least delay, a whole core
    #[arg(long, conflicts_with = "sleep")]
    spin: bool,
    /// Always sleep while waiting for frames: least work
    #[arg(long)]
    sleep: bool,
    /// Go on as this user once ports are open; files are written with its rights (default: whoever called sudo, doas or
    /// pkexec; of root at interfaces linerate, or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
}

/// Formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum FileFormat {
    /// Classic pcap with nanosecond times; one link type
    Pcap,
    /// Classic pcap with microsecond times, for programs that know no other
    PcapMicros,
    /// pcapng: several interfaces, comments, drop counters
    Pcapng,
}

/// What was asked for, checked.
struct Asked {
    specs: Vec<Spec>,
    selection: Selection,
    duration: Option<Duration>,
    lag: Option<Duration>,
}

/// Captures.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let asked = args.check()?;
    let identity = Identity::choose(args.user.as_deref(), are_live(&asked.specs))?;
    let ports = args.open_ports(&asked)?;
    let mut notes: Vec<String> =
        ports.iter().flat_map(|port| port.notes.iter().map(|note| format!("{}: {note}", port.name))).collect();
    let share = args.share.open(&identity)?.map(|(sharing, lines)| {
        notes.extend(lines);
        sharing
    });
    identity.assume()?;
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(path) = &args.write {
        sinks.push(args.open_writer(&asked, path, &identity)?);
    }
    notes.extend(identity.note());
    notes.extend(confine(args.share.folder()?.as_slice()));
    let stop = Stop::new();
    stop_on_signals(&stop)?;

    if !args.quiet && !args.json {
        args.announce(&asked, &notes);
    }
    let progress = Progress::new();
    let live = Live::start(&progress, "captured", args.quiet || args.json);
    let report = Capture {
        ports,
        selection: asked.selection.clone(),
        sinks,
        share,
        copy_by_two: args.copy_threads == 2,
        waiting: args.waiting(),
        duration: asked.duration,
        stop,
        progress,
    }
    .run();
    drop(live);
    args.conclude(&asked, &report)
}

impl Args {
    fn check(&self) -> anyhow::Result<Asked> {
        let mut words = self.words.as_slice();
        let mut specs = Vec::new();
        for path in &self.read {
            specs.push(Spec::file(path));
        }
        let mut names: Vec<&str> = self.ports.iter().map(String::as_str).collect();
        if names.is_empty() && specs.is_empty() {
            let (ports, rest) = words.split_first().ok_or_else(|| {
                usage("which port? as in linerate capture eth0 (linerate ports lists them), or -r FILE")
            })?;
            names = ports.split(',').collect();
            words = rest;
        }
        for name in names {
            specs.push(Spec::parse(name).map_err(usage)?);
        }
        let filter = match (&self.filter, words) {
            (Some(_), [word, ..]) => {
                return Err(usage(format!("filter text is given twice: with --filter and as {word:?}")));
            }
            (Some(text), []) => text.clone(),
            (None, words) => words.join(" "),
        };
        check_filter(&filter, &specs)?;
        if let Some(path) = &self.write {
            check_output(&specs, path)?;
        }
        Ok(Asked {
            specs,
            selection: self.selection.with(filter, self.count)?,
            duration: self.seconds.map(|s| span("--seconds", s)).transpose()?,
            lag: self.lag.map(|ms| span("--lag", ms / 1e3)).transpose()?,
        })
    }

    fn open_ports(&self, asked: &Asked) -> anyhow::Result<Vec<RxPort>> {
        let options = RxOptions {
            snap: asked.selection.snap(),
            promiscuous: !self.no_promiscuous,
            lag: asked.lag,
            lanes: 0,
            lossless: self.lossless,
            take: self.take,
            filter: asked.selection.filter.clone(),
        };
        Ok(asked.specs.iter().map(|spec| open_rx(spec, &options)).collect::<Result<Vec<_>, _>>()?)
    }

    fn open_writer(&self, asked: &Asked, path: &str, identity: &Identity) -> anyhow::Result<Box<dyn Sink>> {
        let format = match self.format {
            Some(FileFormat::Pcap) => Format::Pcap,
            Some(FileFormat::PcapMicros) => Format::PcapMicros,
            Some(FileFormat::Pcapng) => Format::Pcapng,
            None => Format::of_path(path),
        };
        if format != Format::Pcapng && !self.comments.is_empty() {
            return Err(usage("pcap has no room for --comment: write pcapng, by the name of the file or --format"));
        }
        let output = Output::open(path).with_context(|| format!("cannot write {path}"));
        let output = output.map_err(|error| identity.explain(error))?;
        let mut writer = Writer::new(output, format);
        for comment in &self.comments {
            writer.comment(comment);
        }
        // So that a file opens even before there is a frame; a failure is told again with the first one. What
        // link type files have, and what they say of their sections, shows only with their first frame.
        let _ = match (asked.specs.iter().any(is_file), asked.specs.iter().all(is_file)) {
            (false, _) => writer.begin(LinkType::ETHERNET),
            (true, false) => writer.flush(),
            (true, true) => Ok(()),
        };
        Ok(Box::new(writer))
    }

    fn waiting(&self) -> Waiting {
        match (self.spin, self.sleep) {
            (true, _) => Waiting::Spin,
            (_, true) => Waiting::Sleep,
            _ => Waiting::Adaptive,
        }
    }

    fn announce(&self, asked: &Asked, notes: &[String]) {
        let ports: Vec<String> = asked.specs.iter().map(ToString::to_string).collect();
        let to = self.write.as_deref().map(|path| format!(" -> {path}")).unwrap_or_default();
        tell(format_args!("capturing {}\n", shown(&(ports.join(", ") + &to))));
        for note in notes {
            tell(format_args!("  {}\n", shown(note)));
        }
    }

    fn conclude(&self, asked: &Asked, report: &CaptureReport) -> anyhow::Result<Exit> {
        if self.json {
            let document = CaptureJson::new(asked, report);
            // Frames on standard output leave no room for anything else there.
            if self.write.as_deref() == Some("-") {
                tell_document(&document)?;
            } else {
                show_document(&document)?;
            }
        } else if !self.quiet && !is_void(&report.ledger, report.failure.as_ref()) {
            tell(summary(report));
        }
        if let Some(failure) = &report.failure {
            fail(failure);
            return Ok(Exit::Failed);
        }
        let proven = report.quiesced && report.ledger.lost() == 0 && report.ledger.imbalances().is_empty();
        Ok(if self.lossless && !proven { Exit::Lost } else { Exit::Done })
    }
}

/// Link types that filters differ on: Ethernet, IP without a link header, Linux cooked, 802.11. A text that is
/// right for none of them is right for no file.
const LINK_TYPES: [LinkType; 4] = [LinkType::ETHERNET, LinkType::RAW, LinkType(113), LinkType(105)];

/// Finds mistakes in filter text before anything is opened; which link types files have shows only later.
pub(super) fn check_filter(filter: &str, specs: &[Spec]) -> anyhow::Result<()> {
    let files_only = specs.iter().all(is_file);
    let links = if files_only { &LINK_TYPES[..] } else { &LINK_TYPES[..1] };
    let mut errors: Vec<_> = links.iter().filter_map(|link| Filter::compile(filter, link.0).err()).collect();
    if errors.len() < links.len() { Ok(()) } else { Err(usage(errors.swap_remove(0))) }
}

/// A number of seconds given as an option.
pub(super) fn span(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| usage(format!("{option}: {seconds} is no span of time")))
}
