//! `linerate send`: sends bytes by the kernel's TCP or UDP.

mod datagrams;
mod report;
mod source;

use self::report::{Head, Row};
use self::source::{Bytes, Pattern};
use super::inputs::span;
use super::report_options::{MetricsArgs, MetricsServer};
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, Session};
use crate::signals::{answer_requests, stop_on_signals, waiting};
use crate::view::live::Live;
use crate::view::rates::{bits_per_second, grouped};
use crate::view::terminal::{print_stderr, shown};
use anyhow::{Context, anyhow};
use clap::builder::RangedU64ValueParser;
use linerate_backends::netns::within;
use linerate_backends::transfer::{self, ConnectOptions, Connection, Series, TransferControl, TransferStream, explain};
use linerate_engine::Stop;
use linerate_generate::rate::RequestedRate;
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
  # 10 GiB of a pattern that the receiver can verify
  linerate send 10.9.0.2:5001 --size 10GiB
  # time per chunk until its last byte is acknowledged, one row per size
  linerate send 10.9.0.2:5001 --chunk 1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB
  # ten seconds over four connections, pinned to processors 2 and 3
  linerate send 10.9.0.2:5001 -T 10 --connections 4 --cpu 2,3
  # a file, or the output of another program
  linerate send 10.9.0.2:5001 -r data.bin
  tar c folder | linerate send 10.9.0.2:5001
  # datagrams that start with their byte offset (8 bytes, big-endian)
  linerate send 10.9.0.2:5001 --udp --rate 5gbps --size 1GiB
Connections are ordinary ones of the kernel: no privileges and no --yes are
needed. Datagrams (--udp) have no congestion control: on a shared network set
--rate.
Chunk times end with the kernel's time stamp of the acknowledgement, exact to
about 1 us, without busy polling. The next chunk starts when this process wakes
up; that delay is included in the rate, but not in the chunk time.
BBR paces packets even on an idle path: compare receivers with --congestion
cubic. All connections and both protocols send the same data: the pattern of
--key.")]
pub struct Args {
    /// Destination, such as 10.9.0.2:5001, [fd00::2]:5001 or host:5001
    #[arg(value_name = "ADDR:PORT")]
    to: String,
    /// Bytes to send on each connection, or per chunk size, such as 64MiB, 10GiB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Stop after S seconds, or after S seconds per chunk size
    #[arg(short = 'T', long = "duration", value_name = "S")]
    duration: Option<f64>,
    /// Send chunks of this size, waiting for the acknowledgement of each before the next; several sizes (comma-separated)
    /// run one after the other, one row each
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = size)]
    chunk: Vec<u64>,
    /// Send N chunks of each size [default: limited by --size or --duration, else 1GiB and at least 32]
    #[arg(long, value_name = "N", conflicts_with = "size", value_parser = clap::value_parser!(u64).range(1..))]
    chunks: Option<u64>,
    /// Send a file instead of a pattern; - for standard input [default without --size, --duration and --chunk: -]
    #[arg(short = 'r', long, value_name = "FILE")]
    read: Option<String>,
    /// Data to send
    #[arg(long, value_name = "WHAT", value_enum, default_value = "keyed")]
    pattern: Pattern,
    /// Key of the pattern; must match at sender and receiver
    #[arg(long, value_name = "N", default_value_t = 0)]
    key: u64,
    /// Number of parallel connections, each with a thread and all of the data
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Send UDP datagrams that start with the byte offset of their payload (8 bytes, big-endian)
    #[arg(long)]
    udp: bool,
    /// Bytes of a datagram, including the offset [default: path MTU, at most 8972]
    #[arg(long, value_name = "BYTES", value_parser = RangedU64ValueParser::<usize>::new().range(9..=65507))]
    datagram: Option<usize>,
    /// Rate of datagrams, shared by all connections: 250kpps, 10gbps (layer 2), 10gbpsl1, max [default: 1gbps]
    #[arg(long, value_name = "RATE")]
    rate: Option<RequestedRate>,
    /// Congestion control algorithm, such as cubic [default: that of the system]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Send buffer of each connection [default: automatic]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    buffer: Option<u64>,
    /// Pin sending threads to these processors, round-robin
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpu: Vec<usize>,
    /// Source address
    #[arg(long, value_name = "ADDR")]
    source: Option<IpAddr>,
    /// Send from this network namespace
    #[arg(long, value_name = "NAME")]
    netns: Option<String>,
    /// Give up after S seconds without an acknowledgement [default: 10 to connect, then never]
    #[arg(long, value_name = "S")]
    silence: Option<f64>,
    /// Print one JSON document at the end (schema linerate/send/1)
    #[arg(long)]
    json: bool,
    /// Print progress every S seconds; 0 for none [default: 1]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Print errors only, and results that are not written elsewhere
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// Connection timeout.
const CONNECTING: Duration = Duration::from_secs(10);
/// Default amount of data sent in chunks.
const USUAL_BYTES: u64 = 1 << 30;
const USUAL_CHUNKS: u64 = 32;

/// Runs the verb.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    args.check()?;
    let way = args.way()?;
    let identity = Identity::choose(None, false)?;
    let to = waiting(|| args.addresses())?;
    if args.udp {
        return datagrams::run(args, &to, &way, &identity);
    }
    let connections = waiting(|| args.connect(&to, &way))?;
    let session = args.confine(&identity)?;
    let (local, peer) = (connections[0].local()?, connections[0].peer());
    let (congestion, buffer) = connections[0].manner()?;
    let head = Head { protocol: "tcp", peer, local, congestion: Some(congestion), ..args.head() };
    let streams = connections.into_iter().enumerate().map(|(number, connection)| {
        anyhow::Ok(TransferStream { connection, source: args.bytes()?, cpu: args.cpu(number), failure: None })
    });
    let mut streams = streams.collect::<anyhow::Result<Vec<_>>>()?;
    args.print_note(&head.text());
    // The kernel doubles the requested size for its own overhead.
    if let Some(asked) = args.buffer.filter(|asked| (buffer as u64) < 2 * asked) {
        args.print_note(&format!(
            "  send buffer limited to {} of {} bytes by net.core.wmem_max",
            grouped(buffer as u64 / 2),
            grouped(asked)
        ));
    }
    let running = RunServices::start(args, &session)?;
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
            return Err(usage("--key has no effect with --pattern none: zeros have no key"));
        }
        let has_data = self.size.is_some() || self.duration.is_some() || !self.chunk.is_empty() || self.read.is_some();
        if !has_data && std::io::stdin().is_terminal() {
            return Err(usage("no data to send; expected --size, --duration, --chunk or -r FILE"));
        }
        if !self.is_read() {
            return Ok(());
        }
        if let Some(path) = self.read.as_deref().filter(|path| *path != "-") {
            let found = std::fs::metadata(path).with_context(|| path.to_owned())?;
            if found.is_dir() {
                return Err(anyhow!("{path}: is a directory; expected a file"));
            }
        }
        if self.connections > 1 {
            return Err(usage("--connections has no effect with standard input: it can be sent only once"));
        }
        Ok(())
    }

    /// Returns the file to send; standard input if no other data was given.
    fn file(&self) -> Option<&str> {
        let nothing = self.size.is_none() && self.duration.is_none() && self.chunk.is_empty();
        self.read.as_deref().or(nothing.then_some("-"))
    }

    fn is_read(&self) -> bool {
        self.file().is_some()
    }

    fn way(&self) -> anyhow::Result<ConnectOptions> {
        let silence = self.silence.map(|seconds| span("--silence", seconds)).transpose()?;
        Ok(ConnectOptions {
            netns: self.netns.clone(),
            source: self.source,
            congestion: self.congestion.clone(),
            buffer: self.buffer.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
            patience: silence.unwrap_or(CONNECTING),
            silence,
        })
    }

    /// Returns the addresses of the destination, of the family of the source.
    fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let to = &self.to;
        if !to.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok_and(|port| port > 0)) {
            return Err(usage(format!(
                "{to}: no port; expected ADDRESS:PORT, such as 10.9.0.2:5001 or [fd00::2]:5001"
            )));
        }
        let all = within(self.netns.as_deref(), || Ok(to.to_socket_addrs()?.collect::<Vec<_>>()));
        let all = all.map_err(|error| anyhow!("{to}: {error}"))?;
        let fits = |address: &SocketAddr| self.source.is_none_or(|source| source.is_ipv4() == address.is_ipv4());
        let some: Vec<SocketAddr> = all.into_iter().filter(fits).collect();
        if some.is_empty() { Err(anyhow!("{to}: no address of the family of --source")) } else { Ok(some) }
    }

    /// Opens all connections, to the first reachable address.
    fn connect(&self, to: &[SocketAddr], way: &ConnectOptions) -> anyhow::Result<Vec<Connection>> {
        let mut last = None;
        for address in to {
            match (0..self.connections).map(|_| Connection::open(*address, way)).collect() {
                Ok(connections) => return Ok(connections),
                Err(error) => last = Some(anyhow!(explain(&error, *address))),
            }
        }
        Err(last.unwrap_or_else(|| anyhow!("{}: no address found", self.to)))
    }

    fn confine(&self, identity: &Identity) -> anyhow::Result<Session> {
        let session = identity.assume()?.confine(&[]);
        session.notes().iter().for_each(|note| self.print_note(note));
        Ok(session)
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
                self.chunks.or_else(|| (self.size.is_none() && duration.is_none() && !self.is_read()).then(usual));
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
            (None, Pattern::Keyed) => format!("pattern with key {}", self.key),
        };
        let connections = self.connections;
        Head { protocol: "", peer: any, local: any, congestion: None, datagram: None, connections, data }
    }

    fn print_note(&self, text: &str) {
        if !self.quiet && !self.json {
            print_stderr(format_args!("{}\n", shown(text)));
        }
    }
}

/// Signal handling and progress lines of a run.
struct RunServices {
    stop: Stop,
    written: Arc<AtomicU64>,
    _services: (Live, crate::signals::ProgressHandler, MetricsServer),
}

impl RunServices {
    fn start(args: &Args, session: &Session) -> anyhow::Result<RunServices> {
        let (written, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let stop = stop_on_signals(session)?;
        let interval = span("--interval", args.interval.unwrap_or(1.0))?;
        let is_shown = !args.quiet && !args.json && !interval.is_zero();
        let (counter, mut before) = (Arc::clone(&written), (began, 0));
        let line = move || {
            let (now, bytes) = (Instant::now(), counter.load(Ordering::Relaxed));
            let seconds = now.duration_since(before.0).as_secs_f64().max(1e-9);
            let gbps = (bytes - before.1) as f64 * 8.0 / seconds / 1e9;
            before = (now, bytes);
            let at = began.elapsed().as_secs_f64().round();
            print_stderr(format_args!("{at:5} s  {:>14}  {} bytes\n", bits_per_second(gbps), grouped(bytes)));
        };
        let live = if is_shown { Live::every(interval, line) } else { Live::none() };
        let counter = Arc::clone(&written);
        let answers = answer_requests(move || {
            let (bytes, seconds) = (counter.load(Ordering::Relaxed), began.elapsed().as_secs_f64());
            let rate = bits_per_second(bytes as f64 * 8.0 / seconds.max(1e-9) / 1e9);
            print_stderr(format_args!("so far {} bytes sent in {seconds:.3} s: {rate} of payload\n", grouped(bytes)));
        })?;
        #[cfg(feature = "serve")]
        crate::view::metrics::watch_sent(&written);
        let metrics = args.metrics.serve(args.quiet || args.json);
        Ok(RunServices { stop, written, _services: (live, answers, metrics) })
    }

    fn watched<'a>(&'a self, stop: &'a std::sync::atomic::AtomicBool) -> TransferControl<'a> {
        TransferControl { stop, written: &self.written }
    }
}

/// Parses a size, such as 64MiB.
fn size(text: &str) -> Result<u64, String> {
    parse_size(text)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected bytes or a unit, such as 512KiB, 64MiB, 10GiB".to_owned())
}
