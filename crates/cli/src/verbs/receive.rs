//! `linerate receive`: TCP streams received in user space, into frames of memory.

mod options;
mod report;

use self::options::{FrameArgs, Listen, TcpArgs};
use self::report::{ReceivedJson, summary, ticker};
use super::inputs::{are_live, span};
use super::show::ShowArgs;
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine};
use crate::signals::stop_on_signals;
use crate::view::ledger::{self, is_void};
use crate::view::live::Live;
use crate::view::terminal::{fail, show, show_document, shown, tell};
use linerate_backends::inventory::interfaces;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_engine::reception::ReceptionWatch;
use linerate_engine::{Receive, Reception, Stop, Waiting};
use linerate_generate::answer::{ANSWERS_PER_SECOND, Addresses, Answerer, Own};
use linerate_port::{RxOptions, Spec, TxOptions};
use linerate_wire::MacAddr;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Options of `linerate receive`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # on the receiving machine: an address that no host has, on the wire of eth1
  linerate receive eth1 --tcp 10.0.0.9:5001 -w frames/
  # on the sending one
  linerate send 10.0.0.9:5001 --size 8GiB
  # every byte verified, nothing kept; ends after one stream
  linerate receive eth1 --tcp 10.0.0.9:5001 --check --streams 1
  # at the limit of the driver, with an XDP program
  linerate receive xdp:eth1 --tcp '[fd00::9]:5001-5016'
  # on this machine, without a network card: the kernel sends, this program receives
  linerate receive 'tun:lr0?address=10.9.0.1/24' --tcp 10.9.0.9:5001
The address is one of your network that no host has: this program answers ARP, neighbor solicitations and pings
for it, and speaks TCP for it, while it runs. The kernel knows nothing of it, and does not interfere.
Streams fill frames of memory, each byte at its place once; frames go to files, or nowhere. While all frames are
in use the window is closed, and senders wait.")]
pub struct Args {
    /// Where to receive
    #[arg(value_name = "PORT")]
    port: String,
    /// Receive TCP streams to this address and port, or ports: 10.0.0.9:5001, [fd00::9]:5001-5016; may be given again
    #[arg(long, value_name = "ADDR:PORT", required = true)]
    tcp: Vec<Listen>,
    /// The MAC address to be at; that of the interface itself where a card or a switch takes no other [default: one made from
    /// the IP address]
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddr>,
    #[command(flatten)]
    frames: FrameArgs,
    #[command(flatten)]
    tcp_args: TcpArgs,
    /// Stop after so many streams have ended
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    streams: Option<u64>,
    /// Stop after this many seconds
    #[arg(short = 't', long, value_name = "S")]
    duration: Option<f64>,
    /// How many streams to show at the end, the longest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    rows: usize,
    /// Print one JSON document at the end (schema linerate/receive/1)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    /// Let xdp: ports take frames away from this host even where it uses the interface itself
    #[arg(long)]
    take: bool,
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

/// Of Ethernet.
const USUAL_MTU: u32 = 1500;
/// What an interface may be set to that IPv6 works on, and what a packet can have.
const LEAST_MTU: u32 = 1280;
const MOST_MTU: u32 = 65_535;

/// Receives.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.port).map_err(usage)?;
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    super::inputs::check_take(args.take, [&spec])?;
    let own = args.own()?;
    let endpoint = args.tcp_args.endpoint(&args.tcp, own.iter().map(|own| own.mac).collect(), mtu(&spec))?;
    let identity = Identity::choose(args.user.as_deref(), are_live([&spec]))?;
    let options = RxOptions {
        promiscuous: true,
        lanes: 1,
        take: args.take,
        scatter: true,
        filter: args.filter(),
        ..RxOptions::default()
    };
    let mut from = open_rx(&spec, &options)?;
    let to = open_tx(&REGISTRY.for_sending(&spec)?, &TxOptions::default())?;
    let mut notes = std::mem::take(&mut from.notes);
    identity.assume()?;
    let (frames, copies) = args.frames.pool(mtu(&spec))?;
    notes.push(copies);
    let (destination, made_in) = args.frames.destination().map_err(|error| identity.explain(error))?;
    notes.extend(identity.note().into_iter().chain(confine(&made_in)));
    let stop = Stop::new();
    stop_on_signals(&stop)?;
    if !args.show.quiet && !args.json {
        tell(format_args!("receiving on {}: {}\n", shown(&spec.to_string()), args.describe(&own)));
        notes.iter().for_each(|note| tell(format_args!("  {}\n", shown(note))));
    }
    let answerer = Answerer::new(Addresses::new(own).map_err(usage)?, ANSWERS_PER_SECOND);
    let watch = ReceptionWatch::default();
    let mut reception =
        Reception::new(endpoint, frames, answerer, to, destination).streams(args.streams).watch(watch.clone());
    if args.frames.is_looked_at() {
        reception = reception.apart()?;
    }
    let live = match args.show.interval(args.json)? {
        Some(interval) => Live::every(interval, ticker(watch.clone())),
        None => Live::none(),
    };
    let waiting = match (args.spin, args.sleep) {
        (true, _) => Waiting::Spin,
        (_, true) => Waiting::Sleep,
        _ => Waiting::Adaptive,
    };
    from.queues.iter_mut().for_each(|queue| queue.start());
    let run = Receive { ports: vec![from], waiting, duration, stop }.run(&mut [&mut reception]);
    drop(live);
    let so_far = watch.so_far();
    if args.json {
        show_document(&ReceivedJson::new(&spec.to_string(), &so_far, &run))?;
    } else if !args.show.quiet && !is_void(&run.ledger, run.failure.as_ref()) {
        show(ledger::run(&run, &summary(&so_far, &run, args.rows), args.show.ledger));
    }
    match &run.failure {
        Some(failure) => {
            fail(failure);
            Ok(Exit::Failed)
        }
        None => Ok(Exit::Done),
    }
}

impl Args {
    /// The addresses to be, each once, and where they are.
    fn own(&self) -> anyhow::Result<Vec<Own>> {
        let ips: BTreeSet<IpAddr> = self.tcp.iter().map(|listen| listen.ip).collect();
        Ok(ips.into_iter().map(|ip| Own::one(ip, self.mac.unwrap_or_else(|| station(ip)))).collect())
    }

    /// What is to come in: what is for these addresses, and questions after them.
    fn filter(&self) -> String {
        let ips: BTreeSet<IpAddr> = self.tcp.iter().map(|listen| listen.ip).collect();
        let hosts = ips.iter().map(|ip| format!("dst host {ip}"));
        ["arp".to_owned(), "icmp6".to_owned()].into_iter().chain(hosts).collect::<Vec<_>>().join(" or ")
    }

    fn describe(&self, own: &[Own]) -> String {
        let listens: Vec<String> = self.tcp.iter().map(ToString::to_string).collect();
        let mac = own.first().map_or(String::new(), |own| own.mac.to_string());
        format!("tcp {} at {mac}, {}", listens.join(", "), self.frames.describe())
    }
}

/// The MTU of the interface that a port is; the usual one of others.
fn mtu(spec: &Spec) -> u32 {
    let Some(at) = REGISTRY.interface(spec) else { return USUAL_MTU };
    let all = interfaces(at.option("netns")).unwrap_or_default();
    all.iter().find(|one| one.name == at.target).map_or(USUAL_MTU, |one| one.mtu.clamp(LEAST_MTU, MOST_MTU))
}

/// A MAC address for an IP address that no card has: one that was not assigned by its maker (IEEE 802 clause 8.4).
fn station(ip: IpAddr) -> MacAddr {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => {
            let octets = ip.octets();
            std::array::from_fn(|at| octets.iter().skip(at).step_by(4).fold(0, |sum, byte| sum ^ byte))
        }
    };
    MacAddr([0x02, 0x6c, a, b, c, d])
}
