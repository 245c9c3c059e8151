//! `linerate generate`: streams of packets; `linerate replay`: capture files.

pub(super) mod answer;
pub(super) mod control;
mod hosts;
mod names;
pub(super) mod preflight;
pub mod replay;
mod report;
mod screen;
mod stream_options;
pub mod stream_run;
#[cfg(feature = "tui")]
mod table;

use self::answer::AnswerArgs;
use crate::exit::{Exit, usage};
use crate::privileges::{DroppedPrivileges, Identity, Session, socket_folder};
use crate::verbs::inputs::{UserArgs, are_live};
use crate::verbs::report_options::ShowArgs;
use crate::verbs::units::count;
use crate::view::terminal::{print_stderr, shown};
use clap::builder::RangedU64ValueParser;
use linerate_backends::REGISTRY;
use linerate_generate::Rate;
use linerate_generate::rate::RequestedRate;
use linerate_port::{PortError, Spec, Target};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `linerate generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # all addresses of a block, IMIX sizes, at 50 % of line rate
  linerate generate --to eth1 --size imix --rate 50% \\
    -k 'ip(dst=10.0.0.1..10.0.255.255)/udp(dport=53)'
  # with a check that every packet is received (docs/streams.md)
  linerate generate --to eth1 --check eth2 --streams mix.toml -T 60
  # at the maximum rate
  linerate generate --to xdp-live:eth1 --check xdp:eth2 --rate max -T 10 \\
    -k 'udp(sport=random(1024..65535))'
  # to a file; and the first packets, decoded
  linerate generate --to pcap:x.pcap -k 'vlan(id=1..9)/ip/tcp(flags=syn)' -c 100
  linerate generate --to pcap:x.pcap -k 'vlan(id=1..100)/ip/tcp' --dry-run 3
  # one UDP datagram, through a router
  linerate generate --to eth1 --udp --src-ip 10.9.0.7 --dst-ip 10.9.1.2 \\
    --gateway 10.9.0.1 --answer
  # through a router between two ports: 10.60.0.1 at eth1, 10.60.1.1 at eth2
  linerate generate --to eth1 --check eth2 --answer \\
    --gateway 10.60.0.1,10.60.1.1 \\
    -k 'ip(src=10.60.0.2,dst=10.60.1.2)/udp'
  # with faults: linerate bridge --help
  linerate generate --to 'faulty:eth1?drop=1%&seed=7' --udp")]
pub struct Args {
    #[command(flatten)]
    out: TargetArgs,
    /// Receive on this port and check every packet of every stream
    #[arg(long, value_name = "PORT")]
    check: Option<String>,
    /// With --check xdp:PORT: divert packets from this host even if it uses the interface
    #[arg(long)]
    take: bool,
    /// Number of sending threads, with one TX queue each; the rate is shared
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
    /// Prebuild N packets per stream and cycle through them
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "check")]
    keep: Option<u64>,
    /// Accept commands of linerate ctl PATH: rate, pause, resume, stop, start (socket for its owner only)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Send nothing: print the first N packets, layer by layer, with the fields that vary
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", value_parser = count)]
    dry_run: Option<u64>,
    #[command(flatten)]
    what: stream_options::StreamArgs,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    end: EndArgs,
}

/// Options of the port to send to and the rate.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    /// Port to send to; files and pipes (pcap:FILE, pcap:-) are written at full speed, the rate sets their timestamps
    #[arg(long, value_name = "PORT")]
    to: String,
    /// Rate, such as 250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1, 50% of line rate, or max; several packets share it
    /// [default: 1000pps, that of the stream file, or as recorded]
    #[arg(long, value_name = "RATE")]
    rate: Option<RequestedRate>,
    /// Line rate that percentages refer to, such as 10gbps [default: the link speed]
    #[arg(long, value_name = "RATE", value_parser = line)]
    line: Option<f64>,
    /// Stop after S seconds (up to 0.1 s later if behind schedule), or 500ms, 5m, 1h; in files, S seconds of timestamps
    #[arg(short = 'T', long = "duration", value_name = "S")]
    duration: Option<f64>,
}

/// Options about limits and reports.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Run and report")]
pub struct EndArgs {
    /// Send even if the interface carries the default route
    #[arg(long)]
    yes: bool,
    /// Exit with status 3 if a packet could not be sent, or was not received at --check
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end (schema linerate/generate/1), with --interval JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    #[command(flatten)]
    user: UserArgs,
}

/// Runs `linerate generate`.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.out.to).map_err(usage)?;
    preflight::check_route(&spec, args.end.yes || args.dry_run.is_some())?;
    if !args.what.is_given() {
        return Err(usage(
            "no packets given; use --packet, --streams FILE or --udp (linerate replay sends a capture file)",
        ));
    }
    stream_run::run(args, &spec, args.out.duration()?)
}

impl TargetArgs {
    /// Returns the duration of the run, if limited.
    fn duration(&self) -> anyhow::Result<Option<Duration>> {
        self.duration.map(|seconds| span("--duration", seconds)).transpose()
    }
}

impl EndArgs {
    /// Returns the user to run as once these ports are open.
    fn identity<'a>(&self, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<Identity> {
        self.user.identity(are_live(specs))
    }

    /// Drops the rights that the run does not need, and prints the notes about it.
    fn confine<'a>(
        &self,
        assumed: DroppedPrivileges<'_>,
        specs: impl IntoIterator<Item = &'a Spec>,
        control: Option<&Path>,
    ) -> anyhow::Result<Session> {
        let ports = specs.into_iter().filter_map(|spec| REGISTRY.innermost(spec).ok());
        let rings = ports.filter(|(backend, _)| matches!(backend.target, Target::Ring));
        let mut folders = rings.map(|(_, ring)| socket_folder(&ring.target)).collect::<Result<Vec<_>, _>>()?;
        folders.push(control.map(control::ControlListener::folder).transpose()?.flatten());
        let session = assumed.confine(&folders.into_iter().flatten().collect::<Vec<_>>());
        for note in session.notes().iter().filter(|_| !self.show.quiet && !self.json) {
            print_stderr(format_args!("{}\n", shown(note)));
        }
        Ok(session)
    }

    /// Returns whether to show the interactive table instead of progress lines: at a terminal with a keyboard.
    fn wants_table(&self) -> bool {
        cfg!(feature = "tui") && !self.show.quiet && !self.json && !self.show.has_interval() && is_at_terminal()
    }

    /// Returns the progress interval; JSON has none by default.
    fn interval(&self) -> anyhow::Result<Option<Duration>> {
        self.show.interval(self.json && !self.show.has_interval())
    }
}

/// Returns whether the failure only means that the reader of standard output closed it.
fn has_no_reader(spec: &Spec, failure: &PortError) -> bool {
    matches!(failure, PortError::Unread { .. }) && REGISTRY.file(spec).as_deref() == Some("-")
}

#[cfg(feature = "tui")]
fn is_at_terminal() -> bool {
    crate::view::terminal::keyboard_and_screen(true).is_some()
}

#[cfg(not(feature = "tui"))]
fn is_at_terminal() -> bool {
    false
}

/// Returns whether packets go to standard output, which then carries nothing else.
fn is_output(spec: &Spec) -> bool {
    REGISTRY.file(spec).as_deref() == Some("-")
}

fn span(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| usage(format!("{option} {seconds}: invalid duration")))
}

/// Parses a line rate in bits per second.
pub(super) fn line(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(Rate::Bits(bits, _)) => Ok(bits),
        _ => Err("expected bits per second, such as 10gbps".to_owned()),
    }
}
