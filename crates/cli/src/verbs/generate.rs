//! `linerate generate`, first form: replay of a capture file, or one UDP template.

use crate::exit::{Exit, usage};
use crate::privileges::{Identity, drop_to};
use crate::signals::stop_on_signals;
use crate::verbs::capture::is_same_file;
use crate::view::ledger;
use crate::view::ledger::LedgerJson;
use crate::view::live::Live;
use crate::view::rates::{Rates, frames_per_second, grouped};
use linerate_engine::{Changes, Progress, Source, Stop, Transmit, TransmitReport};
use linerate_generate::{Pacing, Rate, Split, UdpTemplate};
use linerate_port::backends::pcap::Recording;
use linerate_port::inventory::is_default_route;
use linerate_port::registry::sends_into_interface;
use linerate_port::{Spec, TxOptions, open_tx};
use linerate_wire::MacAddr;
use serde::Serialize;
use std::net::IpAddr;
use std::time::Duration;

/// Frames a template sends where nothing says how many: enough to see, too few to hurt.
const DEFAULT_COUNT: u64 = 1000;

/// Options of `linerate generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  linerate generate --to eth1 --replay trace.pcap              with the gaps it was recorded with
  linerate generate --to eth1 --replay trace.pcap --speed 10   ten times as fast
  linerate generate --to eth1 --replay trace.pcap --rate top --loops 5
  linerate generate --to eth1 --udp --dst-ip 10.0.0.2 --size 64 --rate 100kpps --count 1000000
  linerate generate --to xdp-live:eth1 --udp --rate 5mpps --seconds 10 --src-ports 1000 --stamp
  linerate generate --to 'faulty:eth1?drop=1%&seed=7' --replay trace.pcap   faults: linerate wire --help")]
pub struct Args {
    /// The port to send to
    #[arg(long, value_name = "PORT")]
    to: String,
    /// Replay a capture file (- for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "udp", required_unless_present = "udp")]
    replay: Option<String>,
    /// How many times to replay it; 0 without end
    #[arg(long, value_name = "N", default_value_t = 1, requires = "replay")]
    loops: u64,
    /// Divide the recorded gaps by this factor
    #[arg(long, value_name = "FACTOR", conflicts_with = "rate", requires = "replay")]
    speed: Option<f64>,
    /// Send only one part of the recording, as in 0/2; each source MAC address belongs to one part
    #[arg(long, value_name = "PART/PARTS", requires = "replay")]
    split: Option<Split>,
    /// Repeat one UDP frame
    #[arg(long)]
    udp: bool,
    /// Send at this rate: 250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1, top
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Stop after this many frames of the UDP template; 0 without end [default: 1000, or none with --seconds]
    #[arg(short = 'c', long, value_name = "N", requires = "udp")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Frame size with FCS, in bytes: 64 means 60 sent
    #[arg(long, value_name = "BYTES", default_value_t = 64, requires = "udp")]
    size: usize,
    /// Source MAC address
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:01", requires = "udp")]
    src_mac: MacAddr,
    /// Destination MAC address
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02", requires = "udp")]
    dst_mac: MacAddr,
    /// Source address, IPv4 or IPv6
    #[arg(long, value_name = "IP", default_value = "198.18.0.1", requires = "udp")]
    src_ip: IpAddr,
    /// Destination address, of the same family
    #[arg(long, value_name = "IP", default_value = "198.18.0.2", requires = "udp")]
    dst_ip: IpAddr,
    /// Source port
    #[arg(long, value_name = "PORT", default_value_t = 49152, requires = "udp")]
    src_port: u16,
    /// Use so many source ports in turn, from --src-port on
    #[arg(long, value_name = "N", default_value_t = 1, requires = "udp")]
    src_ports: u16,
    /// End each payload with a trailer of 16 bytes: stream, the frame's number, the time it was made, a check
    #[arg(long, requires = "udp")]
    stamp: bool,
    /// Destination port (default: discard)
    #[arg(long, value_name = "PORT", default_value_t = 9, requires = "udp")]
    dst_port: u16,
    /// Send into the interface of the default route too
    #[arg(long)]
    yes: bool,
    /// End with status 3 if a frame could not be sent
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end (schema linerate/generate/1)
    #[arg(long)]
    json: bool,
    /// No line a second, no summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Go on as this user once ports and files are open (default: whoever called sudo)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
}

/// Sends.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.to).map_err(usage)?;
    let pacing = args.pacing()?;
    let duration = args
        .seconds
        .map(|s| Duration::try_from_secs_f64(s).map_err(|_| usage(format!("--seconds: {s} is no span of time"))))
        .transpose()?;
    let (scheme, target) = spec.innermost();
    if sends_into_interface(scheme) && spec.option("netns").is_none() && !args.yes && is_default_route(target) {
        return Err(usage(format!(
            "{target} carries the default route of this machine: give --yes if frames are really to be sent there"
        )));
    }
    if scheme == "pcap" && args.replay.as_deref().is_some_and(|replay| is_same_file(replay, target)) {
        return Err(usage(format!("{target} is both replayed and written: write to another file")));
    }
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    let (recording, template) = (args.recording()?, args.template()?);
    let mut port = open_tx(&spec, &TxOptions::default())?;
    let source = match recording {
        Some(source) => source,
        None => {
            let count = args.count.unwrap_or(if duration.is_some() { 0 } else { DEFAULT_COUNT });
            let changes = Changes { source_ports: args.src_ports, stamped: args.stamp };
            Source::template_on(&mut port, &template, changes, count, pacing)?
        }
    };
    drop_to(Identity::choose(args.user.as_deref())?)?;
    let progress = Progress::new();
    let live = Live::start(&progress, "sent", args.quiet || args.json);
    let report = Transmit { source, port, pacing, duration, stop, progress }.run();
    drop(live);
    args.conclude(&spec, pacing, &report)
}

impl Args {
    fn pacing(&self) -> anyhow::Result<Pacing> {
        match (self.rate, self.speed) {
            (Some(rate), _) => Ok(Pacing::Fixed(rate)),
            (None, Some(factor)) if factor.is_finite() && factor > 0.0 => Ok(Pacing::Recorded(factor)),
            (None, Some(factor)) => Err(usage(format!("--speed: {factor} is no factor above 0"))),
            (None, None) if self.udp => Ok(Pacing::Fixed(Rate::Frames(1000.0))),
            (None, None) => Ok(Pacing::Recorded(1.0)),
        }
    }

    fn recording(&self) -> anyhow::Result<Option<Source>> {
        let Some(path) = &self.replay else { return Ok(None) };
        if path == "-" && self.loops != 1 {
            return Err(usage("standard input can be replayed only once: leave --loops out"));
        }
        // Opened once: after privileges are gone it might not open again.
        let recording = Recording::open(path)?;
        let open = Box::new(move || recording.port());
        Ok(Some(Source::replay(open, self.loops, self.split.unwrap_or(Split::WHOLE))?))
    }

    fn template(&self) -> anyhow::Result<UdpTemplate> {
        UdpTemplate::new(
            (self.src_mac, self.dst_mac),
            (self.src_ip, self.dst_ip),
            (self.src_port, self.dst_port),
            self.size,
        )
        .map_err(usage)
    }

    fn conclude(&self, spec: &Spec, pacing: Pacing, report: &TransmitReport) -> anyhow::Result<Exit> {
        let seconds = report.elapsed.as_secs_f64();
        let rates = Rates::new(report.frames, report.bytes, seconds);
        if self.json {
            let document = GenerateJson {
                schema: "linerate/generate/1",
                port: spec.to_string(),
                frames: report.frames,
                bytes: report.bytes,
                seconds,
                rates,
                behind_max_us: report.late.max.as_secs_f64() * 1e6,
                behind_mean_us: report.late.mean().as_secs_f64() * 1e6,
                failure: report.failure.as_ref().map(ToString::to_string),
                ledger: LedgerJson::new(&report.ledger),
            };
            println!("{}", serde_json::to_string_pretty(&document)?);
        } else if !self.quiet {
            eprint!("{}", summary(report));
            if pacing != Pacing::Fixed(Rate::Top) {
                let (max, mean) = (report.late.max.as_secs_f64() * 1e6, report.late.mean().as_secs_f64() * 1e6);
                eprintln!("  behind schedule: {mean:.1} us on average, {max:.1} us at most");
            }
        }
        if let Some(failure) = &report.failure {
            eprintln!("linerate: {failure}");
            return Ok(Exit::Failed);
        }
        Ok(if self.lossless && report.ledger.lost() > 0 { Exit::Lost } else { Exit::Done })
    }
}

/// The summary at the end, for people.
pub fn summary(report: &TransmitReport) -> String {
    let seconds = report.elapsed.as_secs_f64();
    let rates = Rates::new(report.frames, report.bytes, seconds);
    let head = format!(
        "{} frames, {} bytes sent in {seconds:.3} s: {}, {:.3} Gb/s L1\n",
        grouped(report.frames),
        grouped(report.bytes),
        frames_per_second(rates.mpps),
        rates.gbps_l1,
    );
    head + &ledger::print(&report.ledger, true)
}

/// `linerate/generate/1`.
#[derive(Serialize)]
struct GenerateJson {
    schema: &'static str,
    port: String,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    behind_max_us: f64,
    behind_mean_us: f64,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}
