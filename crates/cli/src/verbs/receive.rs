//! `linerate receive`: receives streams in user space, into frames of memory.

pub mod device;
pub mod options;
mod probe;
pub mod report;
mod sharing;
mod udp;

use self::device::{DeviceArgs, DeviceFrames};
use self::options::{FrameArgs, ListenAddress, TcpArgs};
use self::report::{ReceivedJson, summary, ticker, unmerged_hint};
use self::sharing::ShareArgs;
use self::udp::{UdpArgs, locals};
use super::generate::preflight;
use super::inputs::{UserArgs, are_live, link, span};
use super::report_options::ShowArgs;
use crate::exit::{Exit, usage};
use crate::signals::{answer_requests, stop_on_signals};
use crate::view::ledger::{self, is_void};
use crate::view::live::Live;
use crate::view::terminal::{fail, print_stderr, show, show_document, shown};
use clap::ArgGroup;
use linerate_backends::inventory::interfaces;
use linerate_backends::netns::within;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_device::Route;
use linerate_device::frames::Memory;
use linerate_engine::clock::now;
use linerate_engine::frame_ring::FrameSharingWatch;
use linerate_engine::reception::{Protocol, ReceptionWatch};
use linerate_engine::{Receive, Reception, WaitStrategy};
use linerate_generate::answer::{ANSWERS_PER_SECOND, AddressRange, Addresses, Answerer};
use linerate_headers::MacAddr;
use linerate_port::{RxOptions, Spec, Target, TxOptions};
use linerate_transport::tcp::Endpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Instant;

/// Options of `linerate receive`.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("listen").required(true).args(["tcp", "udp"]))]
#[command(after_help = "\
Examples:
  # on the receiving host, with an unused address of the network of eth1
  linerate receive eth1 --tcp 10.0.0.9:5001 -w frames/
  # on the sending host
  linerate send 10.0.0.9:5001 --size 8GiB
  # verify every byte and discard the data; stop after one stream
  linerate receive eth1 --tcp 10.0.0.9:5001 --check --streams 1
  # faster, with an XDP program
  linerate receive xdp:eth1 --tcp '[fd00::9]:5001-5016'
  # datagrams: 16-byte header with a 4-byte packet number, 8192 bytes of data
  linerate receive eth1 --udp 10.0.0.9:7148 -w frames/ \\
    --sequence at=4,width=4,counts=packets,size=8192,data=16
  # share frames in memory with another process
  linerate receive eth1 --tcp 10.0.0.9:5001 --share telescope
  linerate frames telescope -w frames/
  # receive into memory of a GPU
  linerate receive eth1 --tcp 10.0.0.9:5001 --to device --check
  # on one host, without a card: the kernel sends, linerate receives
  linerate receive 'tun:lr0?address=10.9.0.1/24' --tcp 10.9.0.9:5001
Use an unused address of your network; an address that another host answers for
is refused. While linerate runs, it answers ARP, neighbor solicitations and
pings for the address and is its TCP endpoint; the kernel is not involved.
Streams fill frames (fixed-size buffers) in memory, and frames are written to
files, read by another process, or discarded. While all frames are in use, the
receive window is zero and senders wait.")]
pub struct Args {
    /// Port to receive on
    #[arg(value_name = "PORT")]
    port: String,
    /// Receive TCP streams to this address and port or ports: 10.0.0.9:5001, [fd00::9]:5001-5016 (repeatable)
    #[arg(long, value_name = "ADDR:PORT")]
    tcp: Vec<ListenAddress>,
    /// Receive UDP datagrams with sequence numbers (repeatable)
    #[arg(long, value_name = "ADDR:PORT")]
    udp: Vec<ListenAddress>,
    /// MAC address of the endpoint; use that of the interface if the card or switch accepts no other [default: derived
    /// from the IP address]
    #[arg(long, value_name = "MAC")]
    mac: Option<MacAddr>,
    #[command(flatten)]
    frames: FrameArgs,
    #[command(flatten)]
    share: ShareArgs,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    tcp_args: TcpArgs,
    #[command(flatten)]
    udp_args: UdpArgs,
    /// Stop after N streams have ended
    #[arg(help_heading = None::<&str>, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    streams: Option<u64>,
    /// Stop after S seconds
    #[arg(help_heading = None::<&str>, short = 'T', long, value_name = "S")]
    duration: Option<f64>,
    /// Number of streams to print at the end, longest first
    #[arg(help_heading = "Report", long, value_name = "N", default_value_t = 10)]
    rows: usize,
    /// Print one JSON document at the end (schema linerate/receive/1)
    #[arg(help_heading = "Report", long)]
    json: bool,
    #[command(flatten)]
    show: ShowArgs,
    /// Allow xdp: ports to divert packets from this host on an interface that it uses itself
    #[arg(help_heading = "Reception", long)]
    take: bool,
    /// Allow the interface of the default route
    #[arg(help_heading = "Reception", long)]
    yes: bool,
    /// Busy-poll for packets: lowest latency, one full core
    #[arg(help_heading = "Reception", long, conflicts_with = "sleep")]
    spin: bool,
    /// Always sleep while waiting for packets: lowest CPU use
    #[arg(help_heading = "Reception", long)]
    sleep: bool,
    #[command(flatten)]
    user: UserArgs,
}

/// MTU of Ethernet.
const USUAL_MTU: u32 = 1500;
/// Minimum MTU of IPv6, and maximum size of a packet.
const LEAST_MTU: u32 = 1280;
const MOST_MTU: u32 = 65_535;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let spec = Spec::parse(&args.port).map_err(usage)?;
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    super::inputs::check_take(args.take, [&spec])?;
    check_port(&spec)?;
    args.share.check()?;
    args.check_addresses(&spec)?;
    let own = args.own();
    let is_tcp = !args.tcp.is_empty();
    if is_tcp {
        args.endpoint(&own, &spec)?;
    }
    if !args.device.is_gpu() {
        args.frames.check_memory()?;
    }
    preflight::check_route(&spec, args.yes)?;
    let identity = args.user.identity(are_live([&spec]))?;
    // Memory first: allocation takes a while, and an open port must answer.
    let on_device =
        args.device.open(args.frames.config()?, &args.frames.go, mtu(&spec), is_tcp && reads_directly(&spec))?;
    let is_placed_here = on_device.as_ref().is_none_or(|opened| opened.route == Route::Copy);
    let options = RxOptions {
        promiscuous: true,
        lanes: 1,
        take: args.take,
        scatter: is_tcp && is_placed_here,
        filter: args.filter(),
        ..RxOptions::default()
    };
    let shared = args.share.open(&identity, args.frames.config()?, args.udp_args.drops_oldest())?;
    let (ring, pieces) = shared.map(|shared| (shared.ring, shared.pieces)).unzip();
    let (memory, device) = match on_device {
        Some(DeviceFrames { memory, destination, note, .. }) => (Some(memory), Some((destination, note))),
        None => (pieces.map(Memory::Here), None),
    };
    let (mut protocol, copies) = args.protocol(&own, &spec, memory)?;
    probe::check_free(&spec, &own)?;
    let mut from = open_rx(&spec, &options)?;
    let to = open_tx(&REGISTRY.for_sending(&spec)?, &TxOptions { link: link(&spec), ..TxOptions::default() })?;
    let mut notes = std::mem::take(&mut from.notes);
    if let Protocol::Tcp { endpoint, .. } = &mut protocol {
        // The MTU of an interface that the port created is known only now.
        **endpoint = args.endpoint(&own, &spec)?;
    }
    let folder = args.share.folder()?;
    let assumed = identity.assume()?;
    notes.extend(ring.iter().flat_map(|ring| ring.notes().to_vec()));
    notes.push(copies);
    let is_apart = args.frames.go.reads_frames() || device.is_some();
    let (mut destination, mut made_in) = assumed.open(|| args.frames.destination())?;
    if let Some((on_device, note)) = device {
        destination = Box::new(on_device);
        notes.push(note);
    }
    made_in.extend(folder);
    let session = match args.device.is_gpu() {
        true => assumed.unconfined("the GPU driver needs its own system calls"),
        false => assumed.confine(&made_in),
    };
    let stop = stop_on_signals(&session)?;
    notes.extend_from_slice(session.notes());
    if !args.show.quiet && !args.json {
        print_stderr(format_args!("receiving on {}\n", shown(&spec.to_string())));
        args.describe(&own, mtu(&spec)).iter().for_each(|line| print_stderr(format_args!("  {}\n", shown(line))));
        notes.iter().for_each(|note| print_stderr(format_args!("  {}\n", shown(note))));
    }
    let asked = args.asked(&own, mtu(&spec));
    let mut answerer = Answerer::new(Addresses::new(own).map_err(usage)?, ANSWERS_PER_SECOND);
    if link(&spec) == LinkType::ETHERNET {
        answerer.announce(now());
    }
    let watch = ReceptionWatch::default();
    #[cfg(feature = "serve")]
    crate::view::metrics::watch_streams(&watch);
    let mut reception = Reception::new(protocol, answerer, to, destination).streams(args.streams).watch(watch.clone());
    if is_apart {
        reception = reception.apart()?;
    }
    let sharing = FrameSharingWatch::default();
    let is_shared = ring.is_some();
    if let Some(ring) = ring {
        reception = reception.shared(ring, stop.clone(), sharing.clone())?;
    }
    let news = args.show.news(args.json);
    let live = match args.show.interval(args.json)? {
        Some(interval) => Live::every(interval, ticker(watch.clone(), is_shared.then_some(sharing))),
        None => Live::none(),
    };
    let waiting = match (args.spin, args.sleep) {
        (true, _) => WaitStrategy::Spin,
        (_, true) => WaitStrategy::Sleep,
        _ => WaitStrategy::Adaptive,
    };
    let (asked_for, began, rows) = (watch.clone(), Instant::now(), args.rows);
    let answers = answer_requests(move || {
        print_stderr(format_args!("so far {}", summary(&asked_for.so_far(), began.elapsed().as_secs_f64(), rows)));
    })?;
    from.queues.iter_mut().for_each(|queue| queue.start());
    let run = Receive { ports: vec![from], waiting, duration, stop }.run(&mut [&mut reception]);
    drop((live, answers, news));
    let so_far = watch.so_far();
    if args.json {
        show_document(&ReceivedJson::new(&spec.to_string(), asked, &so_far, &run))?;
    } else if !args.show.quiet && !is_void(&run.ledger, run.failure.as_ref()) {
        show(ledger::run(&run, &summary(&so_far, run.elapsed.as_secs_f64(), args.rows), args.show.ledger));
        unmerged_hint(&spec, &run.ledger).iter().for_each(|hint| print_stderr(format_args!("{hint}\n")));
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
    fn listen(&self) -> &[ListenAddress] {
        if self.tcp.is_empty() { &self.udp } else { &self.tcp }
    }

    fn ips(&self) -> BTreeSet<IpAddr> {
        self.listen().iter().map(|listen| listen.ip).collect()
    }

    /// Returns the own IP addresses, each once, with their MAC addresses.
    fn own(&self) -> Vec<AddressRange> {
        self.ips().into_iter().map(|ip| AddressRange::one(ip, self.mac.unwrap_or_else(|| station(ip)))).collect()
    }

    /// Returns a filter for packets to these addresses, ARP and ICMPv6.
    fn filter(&self) -> String {
        let hosts = self.ips().into_iter().map(|ip| format!("dst host {ip}"));
        ["arp".to_owned(), "icmp6".to_owned()].into_iter().chain(hosts).collect::<Vec<_>>().join(" or ")
    }

    /// Returns the settings by name.
    fn asked(&self, own: &[AddressRange], mtu: u32) -> BTreeMap<&'static str, String> {
        let listens: Vec<String> = self.listen().iter().map(ToString::to_string).collect();
        let of_protocol = if self.tcp.is_empty() { self.udp_args.asked() } else { self.tcp_args.asked(mtu) };
        let macs: Vec<String> = own.iter().map(|own| own.mac.to_string()).collect();
        [
            ("protocol", if self.tcp.is_empty() { "udp" } else { "tcp" }.to_owned()),
            ("listen", listens.join(",")),
            ("mac", macs.join(",")),
            ("streams", self.streams.map_or_else(String::new, |streams| streams.to_string())),
        ]
        .into_iter()
        .chain(of_protocol)
        .chain(self.frames.asked())
        .chain(self.share.asked())
        .chain(self.device.asked())
        .collect()
    }

    /// Returns the settings as lines of text.
    fn describe(&self, own: &[AddressRange], mtu: u32) -> Vec<String> {
        let listens: Vec<String> = self.listen().iter().map(ToString::to_string).collect();
        let protocol = if self.tcp.is_empty() { "udp" } else { "tcp" };
        let macs: BTreeSet<String> = own.iter().map(|own| own.mac.to_string()).collect();
        let macs: Vec<String> = macs.into_iter().collect();
        let of_protocol = if self.tcp.is_empty() { self.udp_args.asked() } else { self.tcp_args.asked(mtu) };
        let asked: Vec<String> = of_protocol.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let (first, second) = asked.split_at(asked.len() / 2);
        vec![
            format!("{protocol} {}{}", listens.join(", "), self.streams.map_or_else(String::new, until)),
            format!("MAC address {}", macs.join(", ")),
            self.frames.describe(self.share.name(), self.device.name()),
            first.join(", "),
            second.join(", "),
        ]
    }

    /// Creates the receiver of segments or datagrams, with a text about its copy rates. The MTU of a new tunnel is known only now.
    fn protocol(
        &self,
        own: &[AddressRange],
        spec: &Spec,
        memory: Option<Memory>,
    ) -> anyhow::Result<(Protocol, String)> {
        if self.tcp.is_empty() {
            let (datagrams, copies) = self.udp_args.datagrams(&self.frames, mtu(spec), memory)?;
            return Ok((Protocol::Udp { datagrams: Box::new(datagrams), listen: locals(&self.udp) }, copies));
        }
        let endpoint = self.endpoint(own, spec)?;
        let (frames, copies) = self.frames.pool(mtu(spec), memory)?;
        Ok((Protocol::Tcp { endpoint: Box::new(endpoint), frames: Box::new(frames) }, copies))
    }

    fn endpoint(&self, own: &[AddressRange], spec: &Spec) -> anyhow::Result<Endpoint> {
        self.tcp_args.endpoint(&self.tcp, own.iter().map(|own| own.mac).collect(), mtu(spec))
    }

    /// Refuses addresses of this host: its kernel would answer too, and reset the connections.
    fn check_addresses(&self, spec: &Spec) -> anyhow::Result<()> {
        let (_, at) = REGISTRY.innermost(spec)?;
        let binds = |ip: IpAddr| within(at.option("netns"), || UdpSocket::bind((ip, 0))).is_ok();
        // Without any IPv4 address the kernel allows binding to all, even to a reserved one (RFC 1112, section 4).
        let any = binds(Ipv4Addr::new(240, 0, 0, 1).into());
        match self.ips().into_iter().find(|ip| binds(*ip) && !(any && ip.is_ipv4())) {
            Some(ip) => Err(usage(format!(
                "{ip}: in use by this host, whose kernel would answer; use an unused address of your network"
            ))),
            None => Ok(()),
        }
    }
}

/// Refuses ports that cannot send replies.
fn check_port(spec: &Spec) -> anyhow::Result<()> {
    match REGISTRY.innermost(spec)?.0.target {
        Target::Interface { .. } | Target::Tunnel | Target::Memory => Ok(()),
        Target::File => Err(usage(format!(
            "{spec}: a file cannot be answered; to reassemble recorded streams use linerate streams -r FILE"
        ))),
        Target::Device | Target::Ring | Target::Port(_) => {
            Err(usage(format!("{spec}: not supported; expected an interface (see linerate ports) or tun:NAME")))
        }
    }
}

/// Returns whether the port can read TCP payload directly to its place.
fn reads_directly(spec: &Spec) -> bool {
    ["packet", "tun"].contains(&spec.scheme.as_str())
}

/// Returns the MTU of the interface of a port, or the default MTU.
fn mtu(spec: &Spec) -> u32 {
    let Ok((_, at)) = REGISTRY.innermost(spec) else { return USUAL_MTU };
    let all = interfaces(at.option("netns")).unwrap_or_default();
    all.iter().find(|one| one.name == at.target).map_or(USUAL_MTU, |one| one.mtu.clamp(LEAST_MTU, MOST_MTU))
}

fn until(streams: u64) -> String {
    format!(", until {streams} stream{} ended", if streams == 1 { " has" } else { "s have" })
}

/// Derives a locally administered MAC address (IEEE 802 clause 8.4) from an IP address.
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
