//! `linerate send`: bytes through the kernel's TCP or UDP, to whoever is to receive them.

mod datagrams;
mod report;
mod source;

use self::report::{Head, Row};
use self::source::{Bytes, Pattern};
use super::inputs::span;
use super::show::{MetricsArgs, Told};
use crate::exit::{Exit, usage};
use crate::privileges::Identity;
use crate::signals::{answer_requests, stop_on_signals, waiting};
use crate::view::live::Live;
use crate::view::rates::{bits_per_second, grouped};
use crate::view::terminal::{shown, tell};
use anyhow::{Context, anyhow};
use clap::builder::RangedU64ValueParser;
use linerate_backends::netns::within;
use linerate_backends::transfer::{self, Connection, Series, Stream, Watched, Way, explain};
use linerate_engine::Stop;
use linerate_generate::rate::Asked;
use linerate_port::spec::parse_size;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Options of `linerate send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # 10 GB of which the receiver can check every byte
  linerate send 10.9.0.2:5001 --size 10GiB
  # how long chunks take until their last byte is acknowledged, a row each
  linerate send 10.9.0.2:5001 --chunk 1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB
  # ten seconds over four connections, from processors 2 and 3
  linerate send 10.9.0.2:5001 -t 10 --connections 4 --cpu 2,3
  # a file, or what another program writes
  linerate send 10.9.0.2:5001 -r data.bin
  tar c folder | linerate send 10.9.0.2:5001
  # datagrams, each with its byte offset in front (8 bytes, big-endian)
  linerate send 10.9.0.2:5001 --udp --rate 5gbps --size 1GiB
The connection is the kernel's and goes to whom you name, as that of any
program: nothing has to be permitted, no --yes is asked for on the default route
either. Datagrams (--udp) take no care of others on the way as TCP does: where
it is not yours alone, say a --rate that it bears.
The kernel stamps the acknowledgement of a chunk's last byte: chunk times are
exact to about a microsecond, and nothing spins. The next chunk begins when this
process is awake again, which the rate counts and the chunk's time does not.
BBR paces what it sends, also where nothing is in the way: compare receivers
with --congestion cubic. The data is the same for every connection and both
protocols: the pattern of --key, at its place in the stream.")]
pub struct Args {
    /// Whom to send to, as in 10.9.0.2:5001, [fd00::2]:5001 or host:5001
    #[arg(value_name = "ADDR:PORT")]
    to: String,
    /// Bytes to send on each connection, of chunks for each of their sizes (as in 64MiB, 10GiB)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Stop after this many seconds, of chunks for each of their sizes
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Send so many bytes, wait until the last one is acknowledged, then the next; several sizes with commas: one after the
    /// other, a row each
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size)]
    chunk: Vec<u64>,
    /// So many chunks of each size [default: as many as --size or --duration hold, or 1GiB and no fewer than 32]
    #[arg(long, value_name = "N", conflicts_with = "size", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Send a file instead of a pattern (- for standard input, which is also what is sent if nothing else is asked for)
    #[arg(short = 'r', long, value_name = "FILE")]
    read: Option<String>,
    /// What is sent: bytes of which each says where it belongs, or zeros, which cost the sender least
    #[arg(long, value_name = "WHAT", value_enum, default_value = "keyed")]
    pattern: Pattern,
    /// What the pattern is made from; whoever checks it needs the same
    #[arg(long, value_name = "N", default_value_t = 0)]
    key: u64,
    /// So many connections at once, each with a thread and all of the data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Send datagrams by UDP: each has the byte offset of its payload in front, 8 bytes, big-endian
    #[arg(long)]
    udp: bool,
    /// Bytes of a datagram, those 8 among them [default: what the way takes in one packet, 8,972 at the most]
    #[arg(long, value_name = "BYTES", value_parser = RangedU64ValueParser::<usize>::new().range(9..=65507))]
    datagram: Option<usize>,
    /// Send datagrams at this rate: 250kpps, 10gbps (layer 2), 10gbpsl1, top; connections share it [default: 1gbps]
    #[arg(long, value_name = "RATE")]
    rate: Option<Asked>,
    /// Congestion control of the connections, as in cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Send buffer of each connection [default: the kernel's, which grows]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    buffer: Option<u64>,
    /// Keep the sending threads on these processors, in turn
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
    /// Send from this address of this machine
    #[arg(long, value_name = "ADDR")]
    source: Option<IpAddr>,
    /// Send from inside this network namespace
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Give up where nothing is acknowledged for so many seconds [default: 10 to connect, then never]
    #[arg(long, value_name = "S")]
    silence: Option<f64>,
    /// Print one JSON document at the end (schema linerate/send/1)
    #[arg(long)]
    json: bool,
    /// Show how far it is every so many seconds; 0 for nothing until the end [default: 1]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Say nothing but errors and what came of it
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// How long to wait for a connection.
const CONNECTING: Duration = Duration::from_secs(10);
/// What is sent in chunks where nobody says how much.
const USUAL_BYTES: u64 = 1 << 30;
const USUAL_CHUNKS: u64 = 32;

/// Sends.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    args.check()?;
    let way = args.way()?;
    let identity = Identity::choose(None, false)?;
    let to = waiting(|| args.addresses())?;
    if args.udp {
        return datagrams::run(args, &to, &way, &identity);
    }
    let connections = waiting(|| args.connect(&to, &way))?;
    args.confine(&identity)?;
    let (local, peer) = (connections[0].local()?, connections[0].peer());
    let (congestion, buffer) = connections[0].manner()?;
    let head = Head { protocol: "tcp", peer, local, congestion: Some(congestion), ..args.head() };
    let streams = connections.into_iter().enumerate().map(|(number, connection)| {
        anyhow::Ok(Stream { connection, source: args.bytes()?, cpu: args.cpu(number), failure: None })
    });
    let mut streams = streams.collect::<anyhow::Result<Vec<_>>>()?;
    args.say(&head.text());
    // The kernel counts its own part of the memory too: twice what was asked for.
    if let Some(asked) = args.buffer.filter(|asked| (buffer as u64) < 2 * asked) {
        args.say(&format!(
            "  the buffer has {} of {} bytes (net.core.wmem_max)",
            grouped(buffer as u64 / 2),
            grouped(asked)
        ));
    }
    let running = Running::start(args)?;
    let (mut rows, began) = (Vec::new(), Instant::now());
    for series in args.series()? {
        if running.stop.is_requested() || streams.iter().all(|stream| stream.failure.is_some()) {
            break;
        }
        let outcome = transfer::send(&mut streams, series, running.watched(&running.stop.flag()))?;
        let is_over = outcome.is_over;
        rows.push(Row::new(&series, &outcome));
        if is_over {
            break;
        }
    }
    let unread = transfer::finish(&mut streams, running.watched(&running.stop.flag()));
    let elapsed = began.elapsed();
    drop(running);
    report::conclude(args, &head, rows, &streams, elapsed, unread)
}

impl Args {
    fn check(&self) -> anyhow::Result<()> {
        if self.pattern == Pattern::None && self.key != 0 {
            return Err(usage("--key means nothing beside --pattern none: zeros have none"));
        }
        let is_said = self.size.is_some() || self.duration.is_some() || !self.chunk.is_empty() || self.read.is_some();
        if !is_said && std::io::stdin().is_terminal() {
            return Err(usage("what is to be sent? --size, --duration, --chunk, or -r FILE"));
        }
        if !self.is_read() {
            return Ok(());
        }
        if let Some(path) = self.read.as_deref().filter(|path| *path != "-") {
            let found = std::fs::metadata(path).with_context(|| path.to_owned())?;
            if found.is_dir() {
                return Err(anyhow!("{path}: it is a directory: name a file"));
            }
        }
        if self.connections > 1 {
            return Err(usage("--connections means nothing beside standard input: it is sent, once"));
        }
        Ok(())
    }

    /// The file that is sent: also standard input, if nothing else was asked for.
    fn file(&self) -> Option<&str> {
        let nothing = self.size.is_none() && self.duration.is_none() && self.chunk.is_empty();
        self.read.as_deref().or(nothing.then_some("-"))
    }

    fn is_read(&self) -> bool {
        self.file().is_some()
    }

    fn way(&self) -> anyhow::Result<Way> {
        let silence = self.silence.map(|seconds| span("--silence", seconds)).transpose()?;
        Ok(Way {
            netns: self.netns.clone(),
            source: self.source,
            congestion: self.congestion.clone(),
            buffer: self.buffer.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            patience: silence.unwrap_or(CONNECTING),
            silence,
        })
    }

    /// Addresses of whom to send to, of the family of the source.
    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let to = &self.to;
        if !to.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return Err(usage(format!("{to}: say which port, as in 10.9.0.2:5001 or [fd00::2]:5001")));
        }
        let all = within(self.netns.as_deref(), || Ok(to.to_socket_addrs()?.collect::<Vec<_>>()));
        let all = all.map_err(|error| anyhow!("{to}: {error}"))?;
        let fits = |address: &SocketAddr| self.source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
        let some: Vec<SocketAddr> = all.into_iter().filter(fits).collect();
        if some.is_empty() { Err(anyhow!("{to}: has no address of the family of --source")) } else { Ok(some) }
    }

    /// All connections, to the first address that can be reached.
    fn connect(&self, to: &[SocketAddr], way: &Way) -> anyhow::Result<Vec<Connection>> {
        let mut last = None;
        for address in to {
            match (0..self.connections).map(|_| Connection::open(*address, way)).collect() {
                Ok(connections) => return Ok(connections),
                Err(error) => last = Some(anyhow!(explain(&error, *address))),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("{}: has no address", self.to)))
    }

    fn confine(&self, identity: &Identity) -> anyhow::Result<()> {
        for note in identity.assume()?.confine(&[]) {
            self.say(&note);
        }
        Ok(())
    }

    fn bytes(&self) -> anyhow::Result<Bytes> {
        match self.file() {
            Some(path) => Bytes::of_file(path),
            None => Ok(Bytes::of_pattern(self.pattern, self.key)),
        }
    }

    fn cpu(&self, number: usize) -> Option<usize> {
        (!self.cpu.is_empty()).then(|| self.cpu[number % self.cpu.len()])
    }

    fn duration(&self) -> anyhow::Result<Option<Duration>> {
        self.duration.map(|seconds| span("--duration", seconds)).transpose()
    }

    fn series(&self) -> anyhow::Result<Vec<Series>> {
        let duration = self.duration()?;
        if self.chunk.is_empty() {
            return Ok(vec![Series { chunk: None, bytes: self.size, duration }]);
        }
        let of = |chunk: &u64| {
            let usual = || USUAL_BYTES.div_ceil(*chunk).max(USUAL_CHUNKS);
            let count =
                self.count.or_else(|| (self.size.is_none() && duration.is_none() && !self.is_read()).then(usual));
            let bytes = count.map(|count| count.saturating_mul(*chunk)).or(self.size);
            Series { chunk: Some(*chunk), bytes, duration }
        };
        Ok(self.chunk.iter().map(of).collect())
    }

    fn head(&self) -> Head {
        let any = SocketAddr::from(([0; 4], 0));
        let data = match (self.file(), self.pattern) {
            (Some("-"), _) => "standard input".to_owned(),
            (Some(path), _) => path.to_owned(),
            (None, Pattern::None) => "zeros".to_owned(),
            (None, Pattern::Keyed) => format!("pattern of key {}", self.key),
        };
        let connections = self.connections;
        Head { protocol: "", peer: any, local: any, congestion: None, datagram: None, connections, data }
    }

    fn say(&self, text: &str) {
        if !self.quiet && !self.json {
            tell(format_args!("{}\n", shown(text)));
        }
    }
}

/// What goes on beside a run: signals, lines that say how far it is.
struct Running {
    stop: Stop,
    written: Arc<AtomicU64>,
    _beside: (Live, crate::signals::Answers, Told),
}

impl Running {
    fn start(args: &Args) -> anyhow::Result<Running> {
        let (stop, written, began) = (Stop::new(), Arc::new(AtomicU64::new(0)), Instant::now());
        stop_on_signals(&stop)?;
        let interval = span("--interval", args.interval.unwrap_or(1.0))?;
        let is_shown = !args.quiet && !args.json && !interval.is_zero();
        let (counter, mut before) = (Arc::clone(&written), (began, 0));
        let line = move || {
            let (now, bytes) = (Instant::now(), counter.load(Ordering::Relaxed));
            let seconds = now.duration_since(before.0).as_secs_f64().max(1e-9);
            let gbps = (bytes - before.1) as f64 * 8.0 / seconds / 1e9;
            before = (now, bytes);
            let at = began.elapsed().as_secs_f64().round();
            tell(format_args!("{at:5} s  {:>14}  {} bytes\n", bits_per_second(gbps), grouped(bytes)));
        };
        let live = if is_shown { Live::every(interval, line) } else { Live::none() };
        let counter = Arc::clone(&written);
        let answers = answer_requests(move || {
            let (bytes, seconds) = (counter.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
            let rate = bits_per_second(bytes as f64 * 8.0 / seconds.max(1e-9) / 1e9);
            tell(format_args!("so far {} bytes sent in {seconds:.3} s: {rate} of payload\n", grouped(bytes)));
        })?;
        #[cfg(feature = "serve")]
        crate::view::metrics::watch_sent(&written);
        let told = args.metrics.tell(args.quiet || args.json);
        Ok(Running { stop, written, _beside: (live, answers, told) })
    }

    fn watched<'a>(&'a self, stop: &'a std::sync::atomic::AtomicBool) -> Watched<'a> {
        Watched { stop, written: &self.written }
    }
}

/// A size of data, such as 64MiB.
fn size(text: &str) -> Result<u64, String> {
    parse_size(text).filter(|bytes| *bytes > 0).ok_or_else(|| "write bytes, or as in 512KiB, 64MiB, 10GiB".to_owned())
}
