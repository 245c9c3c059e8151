//! `linerate generate`: one UDP template, or the replay of a capture file.

mod replay;

use crate::exit::{Exit, usage};
use crate::privileges::{Identity, drop_to};
use crate::signals::stop_on_signals;
use crate::verbs::capture::is_same_file;
use crate::view::ledger;
use crate::view::ledger::LedgerJson;
use crate::view::live::Live;
use crate::view::rates::{Rates, frames_per_second, grouped};
use linerate_burst::Ledger;
use linerate_engine::{Changes, Progress, Source, Stop, Transmit, TransmitReport};
use linerate_generate::{Pacing, Rate, UdpTemplate};
use linerate_port::inventory::is_default_route;
use linerate_port::registry::sends_into_interface;
use linerate_port::{Sent, Spec, TxOptions, open_tx};
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
  linerate generate --to eth1 --replay trace.pcap --loops 0 --shift-ips 256 --loop-delay 10ms
  linerate generate --to eth1 --replay trace.pcap --rewrite ip=10.0.0.0/8:172.16.0.0/12 --rewrite dst-mac=02:00:00:00:00:01
  linerate generate --to xdp:eth1 --to-server xdp:eth2 --split-by first-packet --replay trace.pcap
  linerate generate --to eth1 --udp --dst-ip 10.0.0.2 --size 64 --rate 100kpps --count 1000000
  linerate generate --to xdp-live:eth1 --udp --rate 5mpps --seconds 10 --src-ports 1000 --stamp
  linerate generate --to 'faulty:eth1?drop=1%&seed=7' --replay trace.pcap   faults: linerate wire --help
Rules to rewrite with; of several for one field the first that fits counts, checksums follow each change:
  mac=OLD:NEW  src-mac=NEW  dst-mac=NEW     one address; all but groups sent to; ARP follows
  ip=OLD:NEW  src-ip=...  dst-ip=...        blocks: 10.0.0.0/8:192.168.0.0/16 keeps the bits free in both; ARP, NDP too
  port=OLD:NEW  src-port=...  dst-port=...  TCP, UDP, SCTP: 80:8080, or 1000-1999:5000-5999
  vlan=push:ID[:PRIORITY]  pop  set:ID  OLD:NEW  priority:PRIORITY    the outermost tag
  ttl=N  ttl=+N  ttl=-N  ttl=floor:N        hop limits too")]
pub struct Args {
    /// The port to send to
    #[arg(long, value_name = "PORT")]
    to: String,
    /// What is about recordings alone.
    #[command(flatten)]
    recorded: replay::ReplayArgs,
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
    args.check_target(&spec)?;
    if let Some(path) = &args.recorded.replay {
        return replay::run(args, path, &spec, pacing, duration);
    }
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    let template = args.template()?;
    let mut port = open_tx(&spec, &TxOptions::default())?;
    let count = args.count.unwrap_or(if duration.is_some() { 0 } else { DEFAULT_COUNT });
    let changes = Changes { source_ports: args.src_ports, stamped: args.stamp };
    let source = Source::template_on(&mut port, &template, changes, count, pacing)?;
    drop_to(Identity::choose(args.user.as_deref())?)?;
    let progress = Progress::new();
    let live = Live::start(&progress, "sent", args.quiet || args.json);
    let report = Transmit { source, port, pacing, duration, stop, progress }.run();
    drop(live);
    args.conclude(&spec, pacing, &report)
}

impl Args {
    fn pacing(&self) -> anyhow::Result<Pacing> {
        match (self.rate, self.recorded.speed) {
            (Some(rate), _) => Ok(Pacing::Fixed(rate)),
            (None, Some(factor)) if factor.is_finite() && factor > 0.0 => Ok(Pacing::Recorded(factor)),
            (None, Some(factor)) => Err(usage(format!("--speed: {factor} is no factor above 0"))),
            (None, None) if self.udp => Ok(Pacing::Fixed(Rate::Frames(1000.0))),
            (None, None) => Ok(Pacing::Recorded(1.0)),
        }
    }

    /// Whether frames may go there.
    fn check_target(&self, spec: &Spec) -> anyhow::Result<()> {
        let (scheme, target) = spec.innermost();
        if sends_into_interface(scheme) && spec.option("netns").is_none() && !self.yes && is_default_route(target) {
            return Err(usage(format!(
                "{target} carries the default route of this machine: give --yes if frames are really to be sent there"
            )));
        }
        if scheme == "pcap" && self.recorded.replay.as_deref().is_some_and(|replay| is_same_file(replay, target)) {
            return Err(usage(format!("{target} is both replayed and written: write to another file")));
        }
        Ok(())
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
            let sent = Sent { frames: report.frames, bytes: report.bytes };
            eprint!("{}", summary(sent, report.elapsed, &report.ledger));
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
pub fn summary(sent: Sent, elapsed: Duration, ledger: &Ledger) -> String {
    let seconds = elapsed.as_secs_f64();
    let rates = Rates::new(sent.frames, sent.bytes, seconds);
    let head = format!(
        "{} frames, {} bytes sent in {seconds:.3} s: {}, {:.3} Gb/s L1\n",
        grouped(sent.frames),
        grouped(sent.bytes),
        frames_per_second(rates.mpps),
        rates.gbps_l1,
    );
    head + &ledger::print(ledger, true)
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
