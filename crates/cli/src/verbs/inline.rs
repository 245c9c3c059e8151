//! `linerate inline`: forwards between two ports while another process decides on each packet.

pub(super) mod report;

use super::decide::{DecideArgs, DecideSettings, share};
use super::inputs::notes_of;
use super::port_pair::{JoinArgs, ends, receive_whole, send_as};
use super::rings::ring_name;
use crate::exit::{Exit, usage};
use crate::privileges::socket_folder;
use crate::signals::stop_on_signals;
use crate::view::live::{Live, answer};
use crate::view::terminal::{print_stderr, shown};
use linerate_backends::faulty::Faults;
use linerate_engine::{Inline, Progress, Receive};
use linerate_port::Spec;

/// Options of `linerate inline`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # an engine named ids decides; fail-open when it ends or dies
  linerate inline eth1 eth2 --share ids --engine ids --on-death open
  # any engine; fail-open on overload, fail-closed without an engine
  linerate inline xdp:eth1 xdp:eth2 --share ids --on-overload open --spin
  # in another terminal: the engine of this program, blocking DNS
  linerate inspect shm:ids --name ids --drop 'udp port 53'
--on-death applies to packets that arrive while no engine is attached, and to
those undecided when it ends. --on-overload applies to packets that the engine
does not read within --budget, holds for longer than --hold, or cannot get
because it holds too many, and to those undecided at the end of the run. Each
case has its counter. An engine is any program that reads the ring and returns a
verdict for each packet, in C, Rust or by the format (docs/block-ring.md).
Packets longer than the MTU (GRO, TSO) and truncated ones are dropped and
counted: turn offloads off on the hosts at both ends
(ethtool -K eth0 tso off gso off gro off).")]
#[command(mut_arg("json", |arg| arg.help("Print one JSON document at the end (schema linerate/inline/1)")))]
pub struct Args {
    /// First port
    #[arg(value_name = "PORT")]
    one: String,
    /// Second port
    #[arg(value_name = "PORT")]
    other: String,
    /// Share packets under this name (with a /, the path of a socket): the engine and passive readers
    /// open them as shm:NAME
    #[arg(long, value_name = "NAME")]
    share: String,
    #[command(flatten)]
    decide: DecideArgs,
    #[command(flatten)]
    join: JoinArgs,
}

/// Forwards between the ports.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    ring_name("--share", &args.share)?;
    let (specs, policy) = (ends(&args.one, &args.other, args.join.yes)?, args.decide.policy()?);
    let duration = args.join.duration()?;
    let identity = args.join.identity(&specs)?;
    let options = args.decide.sharing(&args.share, &identity)?;
    let [one, other] = &specs;
    let plain = Faults::parse("seed=1").map_err(usage)?;
    // Open both ports for receiving first: an xdp: queue sends by the socket that receives from it.
    let mut ports = vec![receive_whole(one, &plain, true)?, receive_whole(other, &plain, true)?];
    let to = [send_as(other, one)?, send_as(one, other)?];
    let (sharing, mut notes) = share(&identity, options)?;
    let progress = Progress::new();
    let mut inline = Inline::new([&ports[0].name, &ports[1].name], to, sharing, policy, progress.clone());
    let assumed = identity.assume()?;
    notes.extend(ports.iter().flat_map(notes_of));
    let session = assumed.confine(&socket_folder(&args.share)?.into_iter().collect::<Vec<_>>());
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());
    if args.join.prints_notes() {
        args.announce(&specs, &notes);
    }
    let news = args.join.show.news(args.join.json);
    let live = Live::start(&progress, "forwarded", args.join.show.interval(args.join.json)?);
    let answers = answer(&progress, "forwarded", String::new)?;
    ports.iter_mut().flat_map(|port| &mut port.queues).for_each(|queue| queue.start());
    let run = Receive { ports, waiting: args.join.waiting(), duration, stop }.run(&mut [&mut inline]);
    drop((live, answers, news));
    report::conclude(args, &specs, &run, inline.sent())
}

impl Args {
    /// Returns the settings for JSON.
    fn said(&self) -> DecideSettings {
        self.decide.said(&self.share)
    }

    fn announce(&self, [one, other]: &[Spec; 2], notes: &[String]) {
        print_stderr(format_args!("{}\n", shown(&format!("{one} <-> {other}"))));
        for line in self.decide.lines().iter().chain(notes) {
            print_stderr(format_args!("  {}\n", shown(line)));
        }
    }
}
