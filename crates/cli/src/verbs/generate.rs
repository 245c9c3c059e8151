//! `linerate generate`: streams of frames, or the replay of a capture file.

pub(super) mod answer;
pub(super) mod control;
pub(super) mod guard;
mod hosts;
pub mod replay;
mod report;
mod screen;
pub mod sending;
#[cfg(feature = "tui")]
mod table;
mod what;

use self::answer::AnswerArgs;
use crate::exit::{Exit, usage};
use crate::privileges::{Assumed, Identity, socket_folder};
use crate::verbs::inputs::{are_live, check_output};
use crate::verbs::show::ShowArgs;
use crate::verbs::units::count;
use crate::view::terminal::{shown, tell};
use clap::builder::RangedU64ValueParser;
use linerate_backends::REGISTRY;
use linerate_generate::Rate;
use linerate_generate::rate::Asked;
use linerate_port::{PortError, Spec, Target};
use std::path::PathBuf;
use std::time::Duration;

/// Options of `linerate generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # all addresses of a block, sizes of the Internet, half of the line
  linerate generate --to eth1 --size imix --rate 50% \\
    -k 'ip(dst=10.0.0.1..10.0.255.255)/udp(dport=53)'
  # did every frame come? (docs/streams.md)
  linerate generate --to eth1 --check eth2 --streams mix.toml -t 60
  # as fast as it goes
  linerate generate --to xdp-live:eth1 --check xdp:eth2 --rate top -t 10 \\
    -k 'udp(sport=random(1024..65535))'
  # a file; and the frames of it, decoded
  linerate generate --to pcap:x.pcap -k 'vlan(id=1..9)/ip/tcp(flags=syn)' -c 100
  linerate generate --to pcap:x.pcap -k 'vlan(id=1..100)/ip/tcp' --dry-run 3
  # a recording with the gaps it has, ten times as fast, five times in a row
  linerate generate --to eth1 -r trace.pcap
  linerate generate --to eth1 -r trace.pcap --speed 10
  linerate generate --to eth1 -r trace.pcap --rate top --loops 5
  # other addresses each time, without end
  linerate generate --to eth1 -r trace.pcap --loops 0 --shift-ips 256
  # rewritten
  linerate generate --to eth1 -r trace.pcap \\
    --rewrite ip=10.0.0.0/8:172.16.0.0/12 --rewrite dst-mac=02:00:00:00:00:01
  # clients here, servers there
  linerate generate --to xdp:eth1 --to-server xdp:eth2 \\
    --split-by first-packet -r trace.pcap
  # one UDP datagram, through a router
  linerate generate --to eth1 --udp --src-ip 10.9.0.7 --dst-ip 10.9.1.2 \\
    --gateway 10.9.0.1 --answer
  # a router between two ports: 10.60.0.1 at eth1, 10.60.1.1 at eth2
  linerate generate --to eth1 --check eth2 --answer \\
    --gateway 10.60.0.1,10.60.1.1 \\
    -k 'ip(src=10.60.0.2,dst=10.60.1.2)/udp'
  # faults: linerate wire --help
  linerate generate --to 'faulty:eth1?drop=1%&seed=7' -r trace.pcap
Rules to rewrite with; of several for one field the first that fits counts, checksums follow each change:
  mac=OLD:NEW  src-mac=NEW  dst-mac=NEW     one address; all but those of groups; ARP follows
  ip=OLD:NEW  src-ip=...  dst-ip=...        blocks: 10.0.0.0/8:192.168.0.0/16 keeps the bits free in both; ARP, NDP too
  port=OLD:NEW  src-port=...  dst-port=...  TCP, UDP, SCTP: 80:8080, or 1000-1999:5000-5999
  vlan=push:ID[:PRIORITY]  pop  set:ID  OLD:NEW  priority:PRIORITY    the outermost tag
  ttl=N  ttl=+N  ttl=-N  ttl=floor:N        hop limits too")]
pub struct Args {
    /// The port to send to; files, and pipes as in pcap:-, are written as fast as they can be: the rate is that of the stamps
    #[arg(long, value_name = "PORT")]
    to: String,
    /// Send at this rate: 250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1, 50% of the line, top; several packets share it
    /// [default: 1000pps, what the file of streams says, or as recorded]
    #[arg(long, value_name = "RATE")]
    rate: Option<Asked>,
    /// The line that percent refer to, as in 10gbps [default: the speed of the link]
    #[arg(long, value_name = "RATE", value_parser = line)]
    line: Option<f64>,
    /// Stop after this many seconds, 0.1 s later where frames fell behind; in a file, by its stamps
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Receive on this port, and account for every frame of every stream
    #[arg(long, value_name = "PORT")]
    check: Option<String>,
    /// Let an xdp: port that checks take frames away from this host even where it uses the interface itself
    #[arg(long)]
    take: bool,
    /// Send from so many threads, each with a queue of its own; together they send what one would
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
    /// Make the first N frames of each stream once, and send them again and again
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "check")]
    keep: Option<u64>,
    /// Let linerate ctl PATH tell streams something while they run: rate, pause, resume, stop, start (a socket, for its owner alone)
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Send nothing: print the first N frames, layer by layer, and what changes in them
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", value_parser = count)]
    dry_run: Option<u64>,
    #[command(flatten)]
    what: what::StreamArgs,
    /// What is about recordings alone.
    #[command(flatten)]
    recorded: replay::ReplayArgs,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    end: EndArgs,
}

/// Options about limits and reports.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Run and report")]
pub struct EndArgs {
    /// Send into the interface of the default route too
    #[arg(long)]
    yes: bool,
    /// End with status 3 if a frame could not be sent, or did not arrive at --check
    #[arg(long)]
    lossless: bool,
    /// Print one JSON document at the end (schema linerate/generate/1), with --interval JSON lines
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    /// Go on as this user once ports are open; files are written with its rights (default: whoever called sudo, doas or
    /// pkexec; of root at interfaces linerate, or nobody)
    #[arg(short = 'Z', long, value_name = "USER")]
    user: Option<String>,
}

/// Sends.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.to).map_err(usage)?;
    let duration = args.duration.map(|seconds| span("--duration", seconds)).transpose()?;
    args.check_target(&spec)?;
    match &args.recorded.replay {
        Some(path) => replay::run(args, path, &spec, duration),
        None if args.what.is_given() => sending::run(args, &spec, duration),
        None => Err(usage("what is to be sent? --packet, --streams FILE, --udp, or --replay FILE")),
    }
}

impl Args {
    /// Whether frames may go there.
    fn check_target(&self, spec: &Spec) -> anyhow::Result<()> {
        guard::check_route(spec, self.end.yes || self.dry_run.is_some())?;
        match (REGISTRY.file(spec), &self.recorded.replay) {
            (Some(target), Some(replayed)) => check_output([&Spec::file(replayed)], &target),
            _ => Ok(()),
        }
    }

    /// Who the program becomes once these ports are open.
    fn identity<'a>(&self, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<Identity> {
        Identity::choose(self.end.user.as_deref(), are_live(specs))
    }

    /// Leaves the run what it needs, and says what there is to say of it.
    fn confine<'a>(&self, assumed: Assumed<'_>, specs: impl IntoIterator<Item = &'a Spec>) -> anyhow::Result<()> {
        let ports = specs.into_iter().filter_map(|spec| REGISTRY.innermost(spec).ok());
        let rings = ports.filter(|(backend, _)| matches!(backend.target, Target::Ring));
        let mut folders = rings.map(|(_, ring)| socket_folder(&ring.target)).collect::<Result<Vec<_>, _>>()?;
        folders.push(self.control.as_deref().map(control::Socket::folder).transpose()?.flatten());
        let notes = assumed.confine(&folders.into_iter().flatten().collect::<Vec<_>>());
        for note in notes.into_iter().filter(|_| !self.end.show.quiet && !self.end.json) {
            tell(format_args!("{}\n", shown(&note)));
        }
        Ok(())
    }
}

impl EndArgs {
    /// Whether a person looks on, who may press keys: a table is shown then instead of lines.
    fn wants_table(&self) -> bool {
        cfg!(feature = "tui") && !self.show.quiet && !self.json && !self.show.has_interval() && is_at_terminal()
    }

    /// How often to show what happens; of JSON only where that is asked for.
    fn interval(&self) -> anyhow::Result<Option<Duration>> {
        self.show.interval(self.json && !self.show.has_interval())
    }
}

/// Whether who read standard output has what was wanted.
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

/// Whether frames go to standard output, which has no room for anything else then.
fn is_output(spec: &Spec) -> bool {
    REGISTRY.file(spec).as_deref() == Some("-")
}

fn span(option: &str, seconds: f64) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| usage(format!("{option}: {seconds} is no span of time")))
}

/// Bits per second of a line.
pub(super) fn line(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(Rate::Bits(bits, _)) => Ok(bits),
        _ => Err("write bits per second, as in 10gbps".to_owned()),
    }
}
