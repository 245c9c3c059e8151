//! `linerate flows`: a record of every conversation.

mod heaviest;
mod json;
mod output;
mod text;
mod timeouts;
mod workers;

use self::json::SummaryJson;
use self::output::Tee;
use super::capture::{check_filter, span};
use super::count::ports_and_filter;
use super::inputs::{are_live, check_output};
use crate::exit::{Exit, usage};
use crate::privileges::{Identity, confine};
use crate::signals::stop_on_signals;
use crate::view::ledger::is_void;
use crate::view::live::Live;
use crate::view::rates::grouped;
use crate::view::terminal::{fail, is_watched, records as standard_output, show, show_line, shown, tell, tell_line};
use clap::builder::PossibleValuesParser;
use linerate_engine::{Metering, Meters, Progress, Selection, Stop, Waiting};
use linerate_meter::{Config, Spread, Tunnels};
use linerate_port::{RxOptions, RxPort, Spec, open_rx};
use linerate_records::{Exporter, Format, Options, export};
use std::hash::{BuildHasher, RandomState};

/// Options of `linerate flows`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  linerate flows eth0                               top flows and totals of what eth0 receives, until Ctrl-C
  linerate flows -r trace.pcap --write flows.jsonl  a JSON line for each flow
  linerate flows -r trace.pcap --write - udp        the same on standard output, of UDP alone
  linerate flows eth0 --write flows/                Parquet files by date and hour, for DuckDB, ClickHouse, ...
  linerate flows eth0 -w flows/ -w - | jq           the same, and JSON lines to watch
  linerate flows eth0 --write null -t 10            how fast it is
  linerate flows eth0 --workers 4 --idle udp=10     four threads share the flows; those of UDP end after 10 s
A record holds both directions. Times are those of the frames, so that a file gives the same records as the wire did.
docs/flows.md says what each field means, docs/queries.md how to ask for it.")]
pub struct Args {
    /// Ports (comma or blank between several), unless -i or -r is given; then filter text
    #[arg(value_name = "PORT|FILTER")]
    words: Vec<String>,
    /// A port to meter; may be given several times, or with commas
    #[arg(short = 'i', long = "port", value_name = "PORT", value_delimiter = ',')]
    ports: Vec<String>,
    /// A capture file to meter instead (- for standard input); may be given several times
    #[arg(short = 'r', long = "read", alias = "from", value_name = "FILE")]
    read: Vec<String>,
    /// Filter text, instead of trailing arguments
    #[arg(short = 'f', long, value_name = "TEXT")]
    filter: Option<String>,
    /// Where records go: null, - for standard output, a file (its ending says the format), or a folder, by date and hour; may
    /// be given several times
    #[arg(short = 'w', long, value_name = "null|-|FILE|DIR/", default_value = "null")]
    write: Vec<String>,
    /// What records are written as, whatever the names say (default: of a folder parquet, else jsonl)
    #[arg(long, value_parser = PossibleValuesParser::new(Format::names()))]
    format: Option<String>,
    /// Seconds after which records are in a complete file of their folder
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    rotate: f64,
    /// How much is recorded of each flow (default: counters; with --format zeek: tcp)
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// How many of its first packets level stats lists of each flow, 8 bytes each (0 to 255)
    #[arg(long, value_name = "N", default_value_t = 30)]
    first_packets: u8,
    /// Seconds without a packet after which a flow ends: of all protocols, or as in tcp=300,udp=120,icmp=30,other=120 (the
    /// default)
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    idle: Option<String>,
    /// Seconds after which a flow that goes on is recorded, and begins anew, written like those of --idle (default: 1800)
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    active: Option<String>,
    /// The most flows at a time, of all workers together; beyond them the quietest give way
    #[arg(long, value_name = "N", default_value_t = 1 << 20)]
    max_flows: usize,
    /// Threads that meter, beside the one that reads: each has its own flows, all between the same two hosts together
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Ids of flows are made with this text, and are the same wherever it is (default: other ids in each run). Whoever knows it can
    /// make flows that have the same id
    #[arg(long, value_name = "TEXT")]
    id_seed: Option<String>,
    /// Packets of different VLANs are of different flows
    #[arg(long)]
    vlans: bool,
    /// Record MAC addresses, of a flow's first frame
    #[arg(long)]
    macs: bool,
    /// Which packet of a tunnel is recorded
    #[arg(long, value_enum, default_value_t = Which::Both)]
    tunnels: Which,
    /// Verify checksums
    #[arg(long)]
    checksums: bool,
    /// Stop after this many frames
    #[arg(short = 'c', long = "count", value_name = "N")]
    count: Option<u64>,
    /// Stop after this many seconds
    #[arg(short = 't', long = "duration", alias = "seconds", value_name = "S")]
    duration: Option<f64>,
    /// Do not ask interfaces for frames to other hosts
    #[arg(short = 'p', long = "no-promiscuous")]
    no_promiscuous: bool,
    /// End with status 3 if a frame was lost, or may have been; buffers are chosen as large as that takes
    #[arg(long)]
    lossless: bool,
    /// Let xdp: ports take frames away from this host even where it uses the interface itself
    #[arg(long)]
    take: bool,
    /// Print the summary as one JSON document (schema linerate/flows/1)
    #[arg(long)]
    json: bool,
    /// Nothing while it runs, only the summary
    #[arg(short = 'q', long)]
    quiet: bool,
    /// Never sleep while waiting for frames: a whole core
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

/// How much is recorded of each flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Packets, bytes, times, flags, TTL, DSCP, ECN
    Counters,
    /// And of TCP its state, round-trip times, retransmissions, disorder, gaps, windows, options
    Tcp,
    /// And lengths, gaps and the first packets
    Stats,
}

impl From<Level> for linerate_meter::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Counters => linerate_meter::Level::Counters,
            Level::Tcp => linerate_meter::Level::Tcp,
            Level::Stats => linerate_meter::Level::Stats,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Which {
    /// The outermost
    Outer,
    /// The innermost
    Inner,
    /// Both, linked
    Both,
}

/// Meters.
pub fn run(args: &Args) -> anyhow::Result<Exit> {
    let (specs, filter) = ports_and_filter(&args.words, &args.ports, &args.read, args.filter.as_deref())?;
    check_filter(&filter, &specs)?;
    let config = args.config()?;
    let duration = args.duration.map(|s| span("--duration", s)).transpose()?;
    let identity = Identity::choose(args.user.as_deref(), are_live(&specs))?;
    args.check_places(&specs)?;
    let most = Meters::most_bytes_of(&config, args.workers);
    let is_more_than_free = check_memory(&config, most)?;
    // Before ports open, as it may take seconds.
    let meters = Meters::new(&config, args.workers);
    let ports = args.open_ports(&specs, &filter)?;
    identity.assume()?;
    let exporters = args.exporters().map_err(|error| identity.explain(error))?;
    let folders: Vec<_> = exporters.iter().map(|exporter| exporter.made_in()).collect::<Result<_, _>>()?;
    let folders: Vec<_> = folders.into_iter().flatten().collect();
    let notes: Vec<String> = identity.note().into_iter().chain(confine(&folders)).collect();
    let stop = Stop::new();
    stop_on_signals(&stop)?;

    for exporter in exporters.iter().filter(|_| !args.quiet) {
        tell_what_is_not_written(&**exporter, config.level);
    }
    // Records on standard output are not to be mixed with a summary.
    let is_mixed = args.write.iter().any(|target| target == "-");
    let is_silent = args.quiet || args.json || is_mixed;
    if !is_silent {
        announce(&ports, &config, args.workers, most, &notes);
    }
    if let Some(free) = is_more_than_free.filter(|_| !args.quiet) {
        warn_of_memory(most, free);
    }
    let progress = Progress::new();
    let live = Live::start(&progress, "metered", is_silent || !is_watched());
    let mut records = Tee::start(exporters, stop.clone()).map_err(|error| identity.explain(error))?;
    let mut report = Metering {
        ports,
        selection: Selection { filter: filter.clone(), frames: args.count, ..Selection::default() },
        meters,
        records: &mut records,
        waiting: args.waiting(),
        duration,
        stop,
        progress,
    }
    .run();
    drop(live);
    let (totals, written) = records.finish(report.failure.is_some(), &mut report.ledger);
    if args.json {
        let names = specs.iter().map(ToString::to_string).collect();
        let document = SummaryJson::new(names, &filter, &report, &totals);
        if is_mixed {
            tell_line(&document)?;
        } else {
            show_line(&document)?;
        }
    } else if !is_void(&report.ledger, report.failure.as_ref()) {
        let text = text::summary(&report, &totals);
        if is_mixed {
            tell(text);
        } else {
            show(text);
        }
    }
    if let Some(failure) = &report.failure {
        fail(failure);
    }
    written?;
    if report.failure.is_some() {
        return Ok(Exit::Failed);
    }
    let proven = report.quiesced && report.ledger.lost() == 0 && report.ledger.imbalances().is_empty();
    Ok(if args.lossless && !proven { Exit::Lost } else { Exit::Done })
}

impl Args {
    fn config(&self) -> anyhow::Result<Config> {
        if self.workers == 0 || self.workers > Spread::MOST {
            return Err(usage(format!("--workers: from 1 to {}", Spread::MOST)));
        }
        let most = Config::MOST_FLOWS * self.workers;
        if self.max_flows == 0 || self.max_flows > most {
            return Err(usage(format!("--max-flows: from 1 to {}, or more with more --workers", grouped(most as u64))));
        }
        let usual = if self.format.as_deref() == Some("zeek") { Level::Tcp } else { Level::Counters };
        let mut config = Config {
            max_flows: self.max_flows,
            level: self.level.unwrap_or(usual).into(),
            packets: self.first_packets.into(),
            vlans: self.vlans,
            macs: self.macs,
            checksums: self.checksums,
            tunnels: match self.tunnels {
                Which::Outer => Tunnels::Outer,
                Which::Inner => Tunnels::Inner,
                Which::Both => Tunnels::Both,
            },
            seed: secret(),
            id_seed: self.id_seed.as_deref().map_or_else(secret, Config::id_seed_of),
            ..Config::default()
        };
        let idle = timeouts::parse("--idle", self.idle.as_deref())?;
        let active = timeouts::parse("--active", self.active.as_deref())?;
        for (timeouts, (idle, active)) in config.timeouts.iter_mut().zip(idle.into_iter().zip(active)) {
            timeouts.idle = idle.unwrap_or(timeouts.idle);
            timeouts.active = active.unwrap_or(timeouts.active);
        }
        Ok(config)
    }

    fn open_ports(&self, specs: &[Spec], filter: &str) -> anyhow::Result<Vec<RxPort>> {
        let options = RxOptions {
            snap: if self.checksums || !filter.is_empty() { 0 } else { Spread::HEADERS as u32 },
            promiscuous: !self.no_promiscuous,
            lag: None,
            lossless: self.lossless,
            take: self.take,
            filter: filter.to_owned(),
        };
        Ok(specs.iter().map(|spec| open_rx(spec, &options)).collect::<Result<Vec<_>, _>>()?)
    }

    /// Where records are written: nowhere for `null` alone.
    fn targets(&self) -> &[String] {
        if self.write == ["null"] { &[] } else { &self.write }
    }

    /// Refuses places that cannot be meant.
    fn check_places(&self, specs: &[Spec]) -> anyhow::Result<()> {
        let targets = self.targets();
        if targets.is_empty() && self.format.is_some() {
            return Err(usage(
                "--format: nothing is written; name a file or folder with --write, or - for standard output",
            ));
        }
        if targets.iter().any(|target| target == "null") {
            return Err(usage("--write null: writes nothing, and something else is to be written: leave one out"));
        }
        export::check(targets).map_err(|error| usage(format!("--write {error}")))?;
        targets.iter().try_for_each(|target| check_output(specs, target))
    }

    fn exporters(&self) -> anyhow::Result<Vec<Box<dyn Exporter>>> {
        let format = self.format.as_deref().and_then(Format::named);
        let rotate = span("--rotate", self.rotate)?;
        let options = Options { format, rotate, standard_output: Some(standard_output) };
        Ok(export::open(self.targets(), &options)?)
    }

    fn waiting(&self) -> Waiting {
        match (self.spin, self.sleep) {
            (true, _) => Waiting::Spin,
            (_, true) => Waiting::Sleep,
            _ => Waiting::Adaptive,
        }
    }
}

/// The standard library's own keys, which it asks the system for.
fn secret() -> [u64; 2] {
    [1, 2].map(|number| RandomState::new().hash_one(number))
}

/// Refuses tables that this machine has no room for; how much is free, if that is less than the `most` that may be taken.
fn check_memory(config: &Config, most: usize) -> anyhow::Result<Option<u64>> {
    let wanted = config.bytes_per_flow()[0] as u64 * config.max_flows as u64;
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map(|free| free << 10);
    match free {
        Some(free) if wanted > free => Err(usage(format!(
            "--max-flows {}: takes {} MiB at this level, and {} MiB are free",
            grouped(config.max_flows as u64),
            grouped(wanted >> 20),
            grouped(free >> 20)
        ))),
        free => Ok(free.filter(|free| *free < most as u64)),
    }
}

fn warn_of_memory(most: usize, free: u64) {
    let (most, free) = (grouped(mebibytes(most)), grouped(free >> 20));
    fail(format_args!("flows may take up to {most} MiB, and {free} MiB are free: --max-flows bounds them"));
}

fn mebibytes(bytes: usize) -> u64 {
    bytes.div_ceil(1 << 20) as u64
}

/// Says so if more is asked for than is written.
fn tell_what_is_not_written(exporter: &dyn Exporter, level: linerate_meter::Level) {
    let (format, most) = exporter.format();
    if level > most {
        let name = |level| format!("{level:?}").to_lowercase();
        let (asked, enough) = (name(level), name(most));
        fail(format_args!(
            "--level {asked}: {format} has no place for what it adds; --level {enough} writes the same, for less memory and time"
        ));
    }
}

fn announce(ports: &[RxPort], config: &Config, workers: usize, most: usize, notes: &[String]) {
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let [narrow, wide] = config.bytes_per_flow();
    let memory = |bytes: usize| grouped(mebibytes(bytes * config.max_flows));
    let shared = if workers > 1 { format!(", in {workers} tables") } else { String::new() };
    tell(format_args!(
        "metering {}: up to {} flows of {narrow} bytes ({} MiB{shared}),\n  \
         {wide} bytes of IPv6 and in tunnels ({} MiB once there is one);\n  \
         at most {} MiB with all that few flows have\n",
        shown(&names.join(", ")),
        grouped(config.max_flows as u64),
        memory(narrow),
        memory(wide),
        grouped(mebibytes(most)),
    ));
    for port in ports {
        for note in &port.notes {
            tell(format_args!("  {}\n", shown(&format!("{}: {note}", port.name))));
        }
    }
    for note in notes {
        tell(format_args!("  {}\n", shown(note)));
    }
}
