//! Streams to send: from a file, from packets as text, or one UDP datagram.

use super::preflight;
use super::replay::span;
use crate::exit::usage;
use crate::signals::{opening, read_text, waiting};
use crate::verbs::units::count;
use linerate_backends::pcap::Recording;
use linerate_burst::{Horizon, LinkType, Nanos};
use linerate_generate::packet::{self, SMALLEST, Setup, Sizes};
use linerate_generate::rate::RequestedRate;
use linerate_generate::stream::{Mark, Order, Shape, Stream, StreamSet};
use linerate_generate::trailer::Key;
use linerate_generate::{Rate, TextError, file};
use linerate_headers::{Link, MacAddr};
use linerate_port::{InterfaceInfo, RxQueue};
use rustix::event::{PollFd, PollFlags, poll};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Default number of packets: enough to see, too few to do harm.
const DEFAULT_COUNT: u64 = 1000;
/// Default rate.
const DEFAULT_RATE: Rate = Rate::Frames(1000.0);

/// Options of `linerate generate` about streams.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Streams")]
pub(super) struct StreamArgs {
    /// Packet to send, such as 'ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)' (docs/streams.md); repeatable, sent together
    #[arg(short = 'k', long, value_name = "PACKET", conflicts_with_all = ["streams", "udp"])]
    packet: Vec<String>,
    /// TOML file of streams to send (docs/streams.md; - for standard input)
    #[arg(long, value_name = "FILE", conflicts_with = "udp")]
    streams: Option<PathBuf>,
    /// Send UDP datagrams with the addresses below
    #[arg(long)]
    pub udp: bool,
    /// Frame sizes with FCS: 64, 64..1518/100, random(64..1518), [64:7,594:4,1518:1] or imix
    /// [default: the length of the packet, at least 64]
    #[arg(long, value_name = "SIZES")]
    size: Option<String>,
    /// Send N of each packet; 0 for no limit [default: 1000, or no limit with --duration]
    #[arg(short = 'c', long = "packets", value_name = "N", value_parser = count)]
    count: Option<u64>,
    /// Send in bursts at the rate, with gaps between them, such as 100/1ms
    #[arg(long, value_name = "FRAMES/GAP", value_parser = burst, conflicts_with = "poisson")]
    burst: Option<(u64, u64)>,
    /// Use exponentially distributed gaps (Poisson traffic) with the mean of the rate
    #[arg(long)]
    poisson: bool,
    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// End each payload with a 16-byte trailer (stream, sequence number, time) for --check, or linerate check elsewhere
    #[arg(long)]
    stamp: bool,
    /// Key of the trailer's checksum; must match at sender and receiver
    #[arg(long, value_name = "NUMBER")]
    key: Option<Key>,
    /// Source MAC address
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:01")]
    src_mac: MacAddr,
    /// Destination MAC address
    #[arg(long, value_name = "MAC", default_value = "02:00:00:00:00:02", conflicts_with_all = ["gateway", "resolve"])]
    dst_mac: MacAddr,
    /// Source address, IPv4 or IPv6
    #[arg(long, value_name = "IP", default_value = "198.18.0.1")]
    src_ip: IpAddr,
    /// Destination address, of the same family
    #[arg(long, value_name = "IP", default_value = "198.18.0.2")]
    dst_ip: IpAddr,
    /// Source port
    #[arg(long, value_name = "PORT", default_value_t = 49152)]
    src_port: u16,
    /// Cycle through N source ports, starting at --src-port
    #[arg(long, value_name = "N", default_value_t = 1)]
    src_ports: u16,
    /// Destination port
    #[arg(long, value_name = "PORT", default_value_t = 9)]
    dst_port: u16,
}

/// Context that streams depend on.
pub(super) struct StreamContext<'a> {
    /// The rate asked for.
    pub rate: Option<RequestedRate>,
    /// Line rate that percentages refer to, if given.
    pub line: Option<f64>,
    /// Interface to send through.
    pub found: Option<&'a InterfaceInfo>,
    /// True if the run has a duration.
    pub is_timed: bool,
    /// No packet is sent.
    pub is_dry: bool,
    /// True if a receiver checks the frames.
    pub is_checked: bool,
}

impl StreamArgs {
    /// Returns the streams, before the MAC address of a next hop is known.
    pub(super) fn set(&self, around: &StreamContext<'_>) -> anyhow::Result<StreamSet> {
        if let Some(path) = &self.streams {
            return self.read(path, around);
        }
        let rate = around.rate.map(|asked| preflight::rate_on(asked, around.line, around.found)).transpose()?;
        let rate = rate.unwrap_or(DEFAULT_RATE);
        let texts = if self.udp { vec![self.datagram()?] } else { self.packet.clone() };
        if texts.len() > 1 && self.shape(0) != Shape::Even {
            let option = if self.poisson { "--poisson" } else { "--burst" };
            return Err(usage(format!(
                "{option} works with one --packet, not {}; for several, set it per stream in a --streams file",
                texts.len()
            )));
        }
        // Several share the rate: equal rates of their own make them take turns.
        let shared = texts.len() > 1 && rate != Rate::Top;
        let own = if shared { Rate::Frames(1.0) } else { rate };
        let streams = texts.iter().enumerate().map(|(id, text)| self.stream(id as u32, text, own, around));
        Ok(StreamSet {
            streams: streams.collect::<anyhow::Result<_>>()?,
            order: Order::Interleaved,
            rate: shared.then_some(rate),
            key: self.key.unwrap_or_default(),
        })
    }

    fn read(&self, path: &Path, around: &StreamContext<'_>) -> anyhow::Result<StreamSet> {
        let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
        let text = match path == Path::new("-") {
            true => waiting(|| std::io::read_to_string(std::io::stdin())),
            false => read_text(path),
        };
        let text = text.map_err(|error| usage(format!("cannot read {name}: {error}")))?;
        let line = around.line.or(preflight::line_of(around.found));
        let mut set = file::streams(&name, &text, &file::Setup { link: Link::Ethernet, line, files: &frame_of })
            .map_err(usage)?;
        if let Some(asked) = around.rate {
            set.rate = Some(preflight::rate_on(asked, around.line, around.found)?);
        }
        let bounded = set.streams.iter().all(|stream| stream.count.is_some());
        if !bounded && !around.is_timed && !around.is_dry {
            return Err(usage(format!("{name}: a stream has no count; set one, or use --duration")));
        }
        Ok(set)
    }

    /// Returns whether packets are given.
    pub(super) fn is_given(&self) -> bool {
        self.udp || self.streams.is_some() || !self.packet.is_empty()
    }

    fn stream(&self, id: u32, text: &str, rate: Rate, around: &StreamContext<'_>) -> anyhow::Result<Stream> {
        let mark = if self.stamp || around.is_checked { Mark::Trailer } else { Mark::None };
        let size = self.size.as_deref();
        let sizes = size.map_or(Ok(Sizes::Natural(SMALLEST)), |size| packet::sizes(size, self.seed));
        let sizes = sizes.map_err(|wrong| explain("--size", size.unwrap_or_default(), &wrong))?;
        let setup =
            Setup { link: Link::Ethernet, sizes, mark, seed: self.seed.wrapping_add(id.into()), files: &frame_of };
        let frames = packet::frames(text, &setup).map_err(|wrong| explain("--packet", text, &wrong))?;
        let count = self.count.unwrap_or(if around.is_timed { 0 } else { DEFAULT_COUNT });
        let count = (count > 0).then_some(count);
        Ok(Stream { rate, shape: self.shape(id), count, ..frames.stream(id, mark) })
    }

    fn shape(&self, id: u32) -> Shape {
        match self.burst {
            Some((frames, gap)) => Shape::Bursts { frames, gap },
            None if self.poisson => Shape::Poisson { seed: self.seed.wrapping_add(id.into()) },
            None => Shape::Even,
        }
    }

    /// Returns the options of `--udp` as a packet.
    fn datagram(&self) -> anyhow::Result<String> {
        let ip = match (self.src_ip, self.dst_ip) {
            (IpAddr::V4(_), IpAddr::V4(_)) => "ip",
            (IpAddr::V6(_), IpAddr::V6(_)) => "ip6",
            (source, destination) => {
                return Err(usage(format!("--src-ip {source}, --dst-ip {destination}: different address families")));
            }
        };
        let Some(last) = self.src_port.checked_add(self.src_ports.max(1) - 1) else {
            let left = u16::MAX - self.src_port + 1;
            return Err(usage(format!("--src-ports: at most {left} from --src-port {}", self.src_port)));
        };
        let StreamArgs { src_mac, dst_mac, src_ip, dst_ip, src_port, dst_port, .. } = self;
        let port = if last == *src_port { last.to_string() } else { format!("{src_port}..{last}") };
        Ok(format!(
            "eth(src={src_mac}, dst={dst_mac})/{ip}(src={src_ip}, dst={dst_ip})/udp(sport={port}, dport={dst_port})"
        ))
    }
}

/// Returns an error that names the option, its text and the part that is wrong.
fn explain(option: &str, text: &str, wrong: &TextError) -> anyhow::Error {
    let part = text.get(wrong.at.clone()).filter(|part| !part.is_empty() && *part != text);
    let part = part.map_or_else(String::new, |part| format!(" at {part:?}"));
    usage(format!("{option} {text:?}{part}: {}", wrong.what))
}

/// Reads frame `number` (from 1) of a capture file.
fn frame_of(path: &str, number: u64) -> Result<Vec<u8>, String> {
    let text = |error: linerate_port::PortError| error.to_string();
    let port = opening(path, || Recording::open(path)).map_err(|error| error.to_string())?.port().map_err(text)?;
    let queue = port.queues.into_iter().next().ok_or("the file has no queue")?;
    // A pipe can be slow, and a file long. A signal ends the program, as nothing is open yet.
    waiting(|| frame_in(path, queue, number))
}

fn frame_in(path: &str, mut queue: Box<dyn RxQueue>, number: u64) -> Result<Vec<u8>, String> {
    let text = |error: linerate_port::PortError| error.to_string();
    let mut passed = 0;
    loop {
        let head = queue.fill(Nanos::ZERO).map_err(text)?;
        if let Some(other) = head.interfaces.iter().find(|interface| interface.link != LinkType::ETHERNET) {
            return Err(format!("{path}: link type {} is not supported here; expected ethernet", other.link));
        }
        let frames = head.burst.len() as u64;
        if number > passed && number - passed <= frames {
            return Ok(head.burst.frame((number - passed - 1) as usize).to_vec());
        }
        if frames == 0 && head.horizon == Horizon::Ended {
            return Err(format!("{path}: no packet {number}; the file has {passed}, numbered from 1"));
        }
        queue.consume(frames as usize);
        passed += frames;
        if let Some(wake) = queue.wake().filter(|_| frames == 0 && !queue.has_pending_work()) {
            let _ = poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], None);
        }
    }
}

/// Parses `100/1ms`: frames per burst, and the gap between bursts, in nanoseconds.
fn burst(text: &str) -> Result<(u64, u64), String> {
    let (frames, gap) = text.split_once('/').ok_or("expected packets and a gap, such as 100/1ms")?;
    let frames = frames.parse().ok().filter(|frames| *frames > 0);
    let frames = frames.ok_or("expected at least 1 packet and a gap, such as 100/1ms")?;
    let gap = span(gap)?;
    Ok((frames, u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX)))
}
