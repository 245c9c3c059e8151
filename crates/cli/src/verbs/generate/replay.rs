//! `linerate replay`: sends a capture file on schedule, unchanged or rewritten.

use super::report::{self, WRITTEN_AT_ONCE, micros};
use super::stream_run::open_tx;
use super::{EndArgs, TargetArgs, has_no_reader, is_output, preflight};
use crate::exit::{Exit, usage};
use crate::signals::{opening, stop_on_signals};
use crate::verbs::inputs::{check_output, is_file};
use crate::verbs::units::{count, seconds};
use crate::view::ledger::LedgerJson;
use crate::view::live::{Live, answer};
use crate::view::rates::{self, Rates};
use crate::view::terminal::{fail, result, result_document, shown};
use linerate_backends::REGISTRY;
use linerate_backends::pcap::Recording;
use linerate_engine::Progress;
use linerate_engine::replay::{Edits, LATE, RecordingMemory, Replay, ReplayReport, SMALL};
use linerate_generate::rate::RequestedRate;
use linerate_generate::rewrite::{Rule, Shift};
use linerate_generate::{Pacing, Rate, Rewriting, Split, SplitBy};
use linerate_port::{Spec, TxOptions};
use serde::Serialize;
use std::time::Duration;

/// Options of `linerate replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # with the recorded gaps; ten times as fast; as fast as possible, five times
  linerate replay trace.pcap --to eth1
  linerate replay trace.pcap --to eth1 --speed 10
  linerate replay trace.pcap --to eth1 --rate max --loops 5
  # in a loop, with other addresses each time
  linerate replay trace.pcap --to eth1 --loops 0 --shift-ips 256
  # rewritten
  linerate replay trace.pcap --to eth1 \\
    --rewrite ip=10.0.0.0/8:172.16.0.0/12 --rewrite dst-mac=02:00:00:00:00:01
  # into a file, with other addresses
  linerate replay trace.pcap --to pcap:other.pcap \\
    --rewrite ip=10.0.0.0/8:10.9.0.0/16
  # clients at one port, servers at the other
  linerate replay trace.pcap --to xdp:eth1 --to-server xdp:eth2
Rules of --rewrite; the first match per field applies, checksums are updated:
  mac=OLD:NEW src-mac=NEW dst-mac=NEW    one address, except groups; ARP too
  ip=OLD:NEW src-ip=... dst-ip=...       blocks: 10.0.0.0/8:192.168.0.0/16 keeps
                                         the host bits; ARP, NDP too
  port=OLD:NEW src-port=... dst-port=... TCP, UDP, SCTP: 80:8080, 1-9:5001-5009
  vlan=push:ID[:PRIORITY] pop set:ID OLD:NEW priority:PRIORITY    outermost tag
  ttl=N ttl=+N ttl=-N ttl=floor:N        hop limits too")]
#[command(mut_arg("rate", |rate| rate.help("Rate in place of the recorded gaps: 250kpps, 10gbps (layer 2), 10gbpsl1, \
    50% of line rate, or max [default: as recorded]")))]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/replay/1)")))]
#[command(mut_arg("lossless", |arg| arg.help("Exit with status 3 if a packet could not be sent")))]
pub struct Args {
    /// Capture file to send (- for standard input), also compressed by gzip, zstd or lz4
    #[arg(value_name = "FILE", required_unless_present = "read")]
    file: Option<String>,
    /// Capture file to send, instead of the argument
    #[arg(short = 'r', long, value_name = "FILE", conflicts_with = "file")]
    read: Option<String>,
    #[command(flatten)]
    out: TargetArgs,
    #[command(flatten)]
    recorded: ReplayArgs,
    #[command(flatten)]
    end: EndArgs,
}

/// Options for sending a capture file.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Replay")]
struct ReplayArgs {
    /// Stop after N packets; 0 for no limit
    #[arg(short = 'c', long, value_name = "N", value_parser = count)]
    packets: Option<u64>,
    /// Send the file N times; 0 for no limit
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = count)]
    loops: u64,
    /// Time between the last packet of a loop and the first of the next, such as 10ms [default: the mean gap]
    #[arg(long, value_name = "TIME", value_parser = span)]
    loop_delay: Option<Duration>,
    /// Divide the recorded gaps by this factor
    #[arg(long, value_name = "FACTOR", conflicts_with = "rate")]
    speed: Option<f64>,
    /// Load the whole file first [default: for files up to 256 MiB; others are read ahead]
    #[arg(long)]
    preload: bool,
    /// Send part PART of PARTS, such as 0/2; each source MAC address belongs to one part
    #[arg(long, value_name = "PART/PARTS")]
    split: Option<Split>,
    /// Send the packets of servers to this port and those of clients to --to, in recorded order
    #[arg(long, value_name = "PORT")]
    to_server: Option<String>,
    /// Classify clients by first-packet, port, mac=MAC,... or ip=BLOCK,... [default: first-packet]
    #[arg(long, value_name = "HOW")]
    split_by: Option<SplitBy>,
    /// Rewrite packets, such as ip=10.0.0.0/8:192.168.0.0/16 (rules below); repeatable
    #[arg(long, value_name = "RULE")]
    rewrite: Vec<Rule>,
    /// Rewrite packets in tunnels too
    #[arg(long)]
    rewrite_inner: bool,
    /// Add N to all IP addresses in each further loop; only the last BITS bits change [default BITS: 24]
    #[arg(long, value_name = "N[/BITS]")]
    shift_ips: Option<Shift>,
    /// Recompute all checksums [default: wrong ones stay wrong]
    #[arg(long)]
    fix_checksums: bool,
    /// Pad truncated packets with zeros [default: they are not sent]
    #[arg(long)]
    pad: bool,
}

/// Runs `linerate replay`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let path = args.file.as_deref().or(args.read.as_deref()).unwrap_or("-");
    let spec = &Spec::parse(&args.out.to).map_err(usage)?;
    let duration = args.out.duration()?;
    let recorded = &args.recorded;
    if args.end.json && args.end.show.has_interval() {
        return Err(usage("--interval has no effect with --json: replay prints one document at the end"));
    }
    let interval = args.end.interval()?;
    let pacing = recorded.pacing(args.out.rate, args.out.line, spec)?;
    let specs: Vec<Spec> = std::iter::once(Ok(spec.clone()))
        .chain(recorded.to_server.iter().map(|server| Spec::parse(server).map_err(usage)))
        .collect::<Result<_, _>>()?;
    for spec in &specs {
        preflight::check_route(spec, args.end.yes)?;
        if let Some(target) = REGISTRY.file(spec) {
            check_output([&Spec::file(path)], &target)?;
        }
        if is_file(spec) && specs.iter().filter(|other| *other == spec).count() > 1 {
            return Err(usage(format!("{spec} is given twice; --to and --to-server need two files")));
        }
    }
    if path == "-" && recorded.loops != 1 {
        return Err(usage("--loops needs a file: standard input can be read only once"));
    }
    // Opened once: after privileges are dropped it might not open again.
    let recording = opening(path, || Recording::open(path))?;
    let identity = args.end.identity(&specs)?;
    let options = TxOptions { owner: identity.owner(), ..TxOptions::default() };
    let open = |spec: &Spec| open_tx(spec, &options).map_err(|error| identity.explain(error));
    let early = specs.iter().map(|spec| (!is_file(spec)).then(|| open(spec)).transpose());
    let early = early.collect::<Result<Vec<_>, _>>()?;
    let assumed = identity.assume()?;
    let ports = specs.iter().zip(early).map(|(spec, port)| port.map_or_else(|| open(spec), Ok));
    let ports = ports.collect::<Result<Vec<_>, _>>()?;
    let session = args.end.confine(assumed, &specs, None)?;
    let stop = stop_on_signals(&session)?;
    let progress = Progress::new();
    let news = args.end.show.news(args.end.json);
    let live = Live::start(&progress, "sent", interval);
    let answers = answer(&progress, "sent", String::new)?;
    let mut report = Replay {
        open: Box::new(move || recording.port()),
        memory: recorded.memory(path),
        loops: recorded.loops,
        loop_gap: recorded.loop_delay,
        edits: recorded.edits(),
        ports,
        pacing,
        at_once: !specs.iter().any(|spec| REGISTRY.leaves_when_sent(spec, &options)),
        packets: recorded.packets.filter(|packets| *packets > 0),
        duration,
        stop,
        progress,
    }
    .run();
    drop((live, answers, news));
    report.failure.take_if(|failure| specs.iter().any(|spec| has_no_reader(spec, failure)));
    conclude(args, &specs, pacing, &report)
}

impl ReplayArgs {
    fn pacing(&self, rate: Option<RequestedRate>, line: Option<f64>, spec: &Spec) -> anyhow::Result<Pacing> {
        match (rate, self.speed.unwrap_or(1.0)) {
            (Some(asked), _) => {
                Ok(Pacing::Fixed(preflight::rate_on(asked, line, preflight::interface(spec).as_ref())?))
            }
            (None, factor) if factor.is_finite() && factor > 0.0 => Ok(Pacing::Recorded(factor)),
            (None, factor) => Err(usage(format!("--speed {factor}: expected a factor above 0, such as 10 or 0.5"))),
        }
    }

    /// Returns how much of the file to load: never all of a pipe, and a large file is recognised by its size.
    fn memory(&self, path: &str) -> RecordingMemory {
        let size = std::fs::metadata(if path == "-" { "/dev/stdin" } else { path });
        let size = size.ok().filter(|data| data.is_file()).map(|data| data.len());
        match size {
            _ if self.preload => RecordingMemory::Whole,
            Some(size) if size <= SMALL => RecordingMemory::IfSmall,
            _ => RecordingMemory::Ahead,
        }
    }

    fn edits(&self) -> Edits {
        let rewriting = Rewriting {
            rules: self.rewrite.clone(),
            shift: self.shift_ips,
            inner: self.rewrite_inner,
            fix_checksums: self.fix_checksums,
        };
        let split_by = self.to_server.as_ref().map(|_| self.split_by.clone().unwrap_or(SplitBy::First));
        Edits { split: self.split.unwrap_or(Split::WHOLE), pad: self.pad, rewriting, split_by }
    }
}

/// Parses a duration with a unit: `250us`, `10ms`, `1.5s`.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let has_unit = text.ends_with(|c: char| c.is_ascii_alphabetic());
    let seconds = Some(text).filter(|_| has_unit).and_then(|text| seconds(text).ok());
    let wrong = || "invalid duration; expected a number with a unit, such as 250us, 10ms, 5m".to_owned();
    seconds.map(Duration::from_secs_f64).ok_or_else(wrong)
}

fn conclude(args: &Args, specs: &[Spec], pacing: Pacing, report: &ReplayReport) -> anyhow::Result<Exit> {
    let is_taken = specs.iter().any(is_output);
    if args.end.json {
        result_document(&ReplayJson::new(specs, report), is_taken)?;
    } else if !args.end.show.quiet {
        result(summary(pacing, report, args.end.show.ledger), is_taken);
    }
    if let Some(failure) = &report.failure {
        fail(failure);
        return Ok(Exit::Failed);
    }
    Ok(if args.end.lossless && report.ledger.lost() > 0 { Exit::Lost } else { Exit::Done })
}

/// Returns the final summary as text.
pub fn summary(pacing: Pacing, replayed: &ReplayReport, is_whole: bool) -> String {
    let mut text = report::summary(replayed.sent, replayed.elapsed, None, &replayed.ledger, is_whole);
    if let [_, _, ..] = &replayed.ports[..] {
        for (name, sent) in &replayed.ports {
            let name = shown(name);
            text += &format!(
                "  {name}: {}, {}\n",
                rates::counted(sent.frames, "packet"),
                rates::counted(sent.bytes, "byte")
            );
        }
    }
    if let Some(rewritten) = replayed.rewritten {
        text += &format!("  {} rewritten\n", rates::counted(rewritten, "packet"));
    }
    if replayed.padded > 0 {
        text += &format!("  {} truncated in the file, padded with zeros\n", rates::counted(replayed.padded, "packet"));
    }
    if replayed.starved > 0 {
        text +=
            &format!("  reading was too slow: the send queue ran empty {}\n", rates::counted(replayed.starved, "time"));
    }
    if replayed.at_once {
        text += WRITTEN_AT_ONCE;
    } else if pacing != Pacing::Fixed(Rate::Top) {
        text += &report::timing(&replayed.timing);
    }
    text
}

/// `linerate/replay/1`.
#[derive(Serialize)]
struct ReplayJson {
    schema: &'static str,
    port: String,
    ports: Vec<PortJson>,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    loops: u64,
    padded: u64,
    rewritten: Option<u64>,
    starved: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    written_at_once: bool,
    lateness_mean_us: Option<f64>,
    lateness_p50_us: Option<f64>,
    lateness_p99_us: Option<f64>,
    lateness_max_us: Option<f64>,
    gap_error_p50_us: Option<f64>,
    gap_error_p99_us: Option<f64>,
    gap_error_max_us: Option<f64>,
    late: Option<u64>,
    shifted_us: Option<f64>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

/// Packets of one port.
#[derive(Serialize)]
struct PortJson {
    port: String,
    frames: u64,
    bytes: u64,
}

impl ReplayJson {
    fn new(specs: &[Spec], report: &ReplayReport) -> Self {
        let seconds = report.elapsed.as_secs_f64();
        let (behind, gap) = (&report.timing.behind, &report.timing.gap_error);
        let timed = |span| (!report.at_once).then(|| micros(span));
        let port = |(spec, (_, sent)): (&Spec, &(String, linerate_port::Sent))| PortJson {
            port: spec.to_string(),
            frames: sent.frames,
            bytes: sent.bytes,
        };
        ReplayJson {
            schema: "linerate/replay/1",
            port: specs.first().map(Spec::to_string).unwrap_or_default(),
            ports: specs.iter().zip(&report.ports).map(port).collect(),
            frames: report.sent.frames,
            bytes: report.sent.bytes,
            seconds,
            rates: Rates::new(report.sent.frames, report.sent.bytes, seconds),
            loops: report.passes,
            padded: report.padded,
            rewritten: report.rewritten,
            starved: report.starved,
            written_at_once: report.at_once,
            lateness_mean_us: timed(behind.mean()),
            lateness_p50_us: timed(behind.quantile(0.5)),
            lateness_p99_us: timed(behind.quantile(0.99)),
            lateness_max_us: timed(behind.max()),
            gap_error_p50_us: timed(gap.quantile(0.5)),
            gap_error_p99_us: timed(gap.quantile(0.99)),
            gap_error_max_us: timed(gap.max()),
            late: (!report.at_once).then(|| behind.longer_than(LATE)),
            shifted_us: timed(report.timing.shifted),
            failure: report.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&report.ledger),
        }
    }
}
