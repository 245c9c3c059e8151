//! Options that say how flows are metered, of every verb that can.

use super::super::inputs::span;
use super::super::units::entries;
use super::memory::{bound, check_memory, mebibytes, warn_of_memory};
use super::timeouts;
use crate::exit::usage;
use crate::signals::{is_hurried, opening};
use crate::view::rates::grouped;
use crate::view::terminal::{fail, records as standard_output};
use linerate_engine::{Meters, flows};
use linerate_meter::{Config, Protocols, Spread, Tunnels};
use linerate_record::Compression;
use linerate_records::export::{Observed, Shipping, Tls};
use linerate_records::ipfix::Profile;
use linerate_records::{Exporter, Format, Options, export};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const ROTATE: f64 = 60.0;
const FIRST_PACKETS: u8 = 30;

/// How flows are metered, and how often records are written.
#[derive(Debug, clap::Args)]
pub(crate) struct MeterArgs {
    /// Seconds after which records are in a complete file of their folder [default: 60]; a capture file (-w) ends at each full
    /// multiple of them, in UTC
    #[arg(short = 'G', long, value_name = "S")]
    rotate: Option<f64>,
    /// Add to a folder that has records already
    #[arg(long)]
    append: bool,
    /// What is told by IPFIX, with commas between: biflow (both directions in one record), full (all that is known), enterprise=N
    /// (of elements that no registry has), domain=N, mtu=N (bytes), rate=N (records a second over UDP)
    #[arg(long, value_name = "WORD,...")]
    ipfix: Option<String>,
    /// How records go to kafka:// and clickhouse://, with commas between: spool=DIR (where batches wait, on the disk; needed), size=SIZE
    /// (of all that wait; 4GiB), full=wait|drop-oldest, rows=N and age=S (of a batch), lanes=N (by flow), sensor=NAME, password=FILE,
    /// sasl=plain|scram-sha-256|scram-sha-512 (to sign in to Kafka), window=S (for which ClickHouse knows a batch again; 3000),
    /// rowbinary (for ClickHouse before 20), end=S (to wait in the end)
    #[arg(long, value_name = "WORD,...")]
    ship: Option<String>,
    /// Files in PEM for ipfix+tls://, kafka+tls:// and clickhouse+https://, with commas between: ca=FILE (who is believed to sign
    /// certificates; of a collector that of clients, who then need one) [default: those of the system], cert=FILE and key=FILE
    /// (our own; a collector needs them)
    #[arg(long, value_name = "WORD,...")]
    tls: Option<String>,
    /// Threads that make columns of Parquet, and batches for --ship, of each target, beside those that meter [default: half of the
    /// processors, 4 at most]; what is written is the same for any number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    export_threads: Option<u8>,
    /// How much is recorded of each flow (default: counters; of zeek and zeek-tsv: tcp)
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// How many of its first packets level stats lists of each flow, 8 bytes each (0 to 255) [default: 30]
    #[arg(long, value_name = "N")]
    first_packets: Option<u8>,
    /// Seconds without a packet after which a flow ends: of all protocols, or as in tcp=300,udp=120,icmp=30,other=120 (the
    /// default)
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    idle: Option<String>,
    /// Seconds after which a flow that goes on is recorded, and begins anew, written like those of --idle (default: 1800)
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    active: Option<String>,
    /// The most flows at a time, of all workers together; beyond them the quietest give way [default: 1048576, or as many as
    /// there is room for under ulimit -v]
    #[arg(long, value_name = "N", value_parser = entries)]
    max_flows: Option<usize>,
    /// Threads that meter, beside the one that reads: each has its own flows, all between the same two hosts together [default: 1];
    /// or that look through stored records [default: one a processor, 4 at most]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
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
    /// Record what conversations say of themselves in the clear, such as the site of a TLS hello: of all protocols, or of those
    /// named, of tls, quic, dns, http, ssh
    #[arg(long, value_name = "none|all|PROTOCOL,...", default_value_t = Protocols::NONE)]
    names: Protocols,
    /// Which packet of a tunnel is recorded
    #[arg(long, value_enum, default_value_t = Which::Both)]
    tunnels: Which,
    /// Verify checksums
    #[arg(long)]
    checksums: bool,
}

/// How records are written, where their names do not say it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Written {
    pub format: Option<&'static Format>,
    pub compression: Option<Compression>,
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

impl MeterArgs {
    /// The files for TLS.
    pub(crate) fn tls_files(&self) -> anyhow::Result<Tls> {
        let tls = self.tls.as_deref().map(Tls::parse).transpose();
        Ok(tls.map_err(|error| usage(format!("--tls: {error}")))?.unwrap_or_default())
    }

    /// What is written as where, checked before anything is opened; `captures` says that capture files are written too.
    pub(crate) fn check(&self, targets: &[String], how: Written, captures: bool) -> anyhow::Result<()> {
        self.check_beside(targets, how, captures, false)
    }

    /// The same; `listens` says that others connect to us by TLS.
    pub(crate) fn check_beside(
        &self,
        targets: &[String],
        how: Written,
        captures: bool,
        listens: bool,
    ) -> anyhow::Result<()> {
        for (option, is_given) in [("--rotate", self.rotate.is_some() && !captures), ("--append", self.append)] {
            if is_given && !targets.iter().any(|target| export::is_folder(target)) {
                return Err(usage(format!("{option} means nothing here: no folder is written to")));
            }
        }
        let options = self.options(how)?;
        let is_ipfix = |target: &String| {
            let format = || Format::of_path(target, how.format).map(|(format, _)| format.name);
            export::is_collector(target) && !export::is_shipped(target)
                || !export::is_folder(target) && format().is_ok_and(|name| name == "ipfix")
        };
        let is_in_folder = how.format.is_some_and(|format| format.name == "ipfix");
        if self.ipfix.is_some() && !is_in_folder && !targets.iter().any(is_ipfix) {
            return Err(usage("--ipfix means nothing here: no IPFIX is written"));
        }
        let is_encoded = |target: &String| {
            let format = || Format::of_path(target, how.format).map(|(format, _)| format);
            export::is_shipped(target)
                || !export::is_collector(target)
                    && match export::is_folder(target) {
                        true => !how.format.unwrap_or_else(Format::of_folder).lines,
                        false => format().is_ok_and(|format| !format.lines),
                    }
        };
        if self.tls.is_some() && !targets.iter().any(|target| export::is_secure(target)) && !listens {
            return Err(usage("--tls means nothing here: nobody is spoken with by TLS (ipfix+tls://, kafka+tls://)"));
        }
        if self.export_threads.is_some() && !targets.iter().any(is_encoded) {
            return Err(usage("--export-threads means nothing here: no Parquet is written, and nothing is shipped"));
        }
        if self.ship.is_some() && !targets.iter().any(|target| export::is_shipped(target)) {
            return Err(usage("--ship means nothing here: no records go to kafka:// or clickhouse://"));
        }
        if how.compression.is_some() && targets.iter().all(|target| export::is_collector(target)) {
            return Err(usage("--compress means nothing here: no file is written"));
        }
        export::check(targets, &options).map_err(usage)
    }

    fn options(&self, how: Written) -> anyhow::Result<Options> {
        let rotate = span("--rotate", self.rotate.unwrap_or(ROTATE))?;
        let profile = self.ipfix.as_deref().map(Profile::parse).transpose();
        let profile = profile.map_err(|error| usage(format!("--ipfix: {error}")))?.unwrap_or_default();
        let ship = self.ship.as_deref().map(Shipping::parse).transpose();
        let ship = ship.map_err(|error| usage(format!("--ship: {error}")))?.unwrap_or_default();
        let Written { format, compression } = how;
        Ok(Options {
            format,
            compression,
            profile,
            rotate,
            append: self.append,
            threads: self.export_threads.map_or_else(usual_threads, usize::from),
            standard_output: Some(standard_output),
            tls: self.tls_files()?,
            ship,
            told: Some(fail),
            is_hurried: Some(is_hurried),
            observed: Observed::default(),
        })
    }

    /// Opens what takes records to these targets.
    pub(crate) fn exporters(&self, targets: &[String], how: Written) -> anyhow::Result<Vec<Box<dyn Exporter>>> {
        self.exporters_of(targets, how, &Arc::default())
    }

    /// The same; what no record tells of is told of a run.
    pub(crate) fn exporters_of(
        &self,
        targets: &[String],
        how: Written,
        observed: &Arc<flows::Observed>,
    ) -> anyhow::Result<Vec<Box<dyn Exporter>>> {
        let seen = Arc::clone(observed);
        let told = move || [&seen.lost, &seen.ignored].map(|count| count.load(Ordering::Relaxed));
        let options = Options { observed: Observed(Arc::new(told)), ..self.options(how)? };
        let mut exporters = Vec::new();
        for target in targets {
            // Standard output is open already, and a collector no file.
            let path = if target == "-" || export::is_collector(target) { "/" } else { target };
            match opening(path, || export::open(&[target], &options)) {
                Ok(opened) => {
                    #[cfg(feature = "serve")]
                    opened.iter().filter_map(|exporter| exporter.lag()).for_each(crate::view::metrics::watch_lag);
                    exporters.extend(opened);
                }
                Err(error) => {
                    export::abandon(exporters);
                    return Err(error.into());
                }
            }
        }
        Ok(exporters)
    }

    /// Options that were given and say how frames are metered.
    pub(crate) fn of_frames(&self) -> impl Iterator<Item = &'static str> {
        [
            ("--level", self.level.is_some()),
            ("--first-packets", self.first_packets.is_some()),
            ("--idle", self.idle.is_some()),
            ("--active", self.active.is_some()),
            ("--max-flows", self.max_flows.is_some()),
            ("--workers", self.workers.is_some_and(|workers| workers != 1)),
            ("--id-seed", self.id_seed.is_some()),
            ("--vlans", self.vlans),
            ("--macs", self.macs),
            ("--names", !self.names.is_empty()),
            ("--tunnels", self.tunnels != Which::Both),
            ("--checksums", self.checksums),
        ]
        .into_iter()
        .filter_map(|(option, is_given)| is_given.then_some(option))
    }

    /// How many threads share the work.
    pub(crate) fn workers(&self) -> anyhow::Result<usize> {
        match self.tables() {
            workers @ 1..=Spread::MOST => Ok(workers),
            _ => Err(usage(format!("--workers: from 1 to {}", Spread::MOST))),
        }
    }

    /// The same of stored records.
    #[cfg(feature = "parquet")]
    pub(crate) fn readers(&self) -> anyhow::Result<usize> {
        let all = std::thread::available_parallelism().map_or(1, |all| all.get().min(linerate_query::WHOLE_THREADS));
        if self.workers.is_some() { self.workers() } else { Ok(all) }
    }

    /// One of each thread that meters.
    fn tables(&self) -> usize {
        self.workers.unwrap_or(1)
    }

    /// The enterprise whose elements are ours.
    pub(crate) fn enterprise(&self) -> anyhow::Result<u32> {
        Ok(self.options(Written::default())?.profile.enterprise)
    }

    /// How often files are completed, if that was said.
    pub(crate) fn rotate(&self) -> Option<f64> {
        self.rotate
    }

    /// Bytes of a frame that are wanted; 0 for all.
    pub(crate) fn snap(&self) -> u32 {
        if self.checksums || !self.names.is_empty() { 0 } else { Spread::HEADERS as u32 }
    }

    /// The meters, where this machine has room for them; made before ports open, as it may take seconds.
    pub(crate) fn meters(&self, config: &mut Config, is_quiet: bool) -> anyhow::Result<Meters> {
        let bounded = if self.max_flows.is_none() { bound(config, self.tables()) } else { None };
        if let Some(note) = bounded.filter(|_| !is_quiet) {
            fail(note);
        }
        let most = Meters::most_bytes_of(config, self.tables());
        if let Some(free) = check_memory(config, most)?.filter(|_| !is_quiet) {
            warn_of_memory(most, free);
        }
        Ok(Meters::new(config, self.tables()))
    }

    /// What the meters take, for people.
    pub(crate) fn describe(&self, config: &Config) -> String {
        let [narrow, wide] = config.bytes_per_flow();
        let memory = |bytes: usize| grouped(mebibytes(bytes * config.max_flows));
        let shared = if self.tables() > 1 { format!(", in {} tables", self.tables()) } else { String::new() };
        format!(
            "up to {} flows of {narrow} bytes ({} MiB{shared}),\n  \
             {wide} bytes of IPv6 and in tunnels ({} MiB once there is one);\n  \
             at most {} MiB with all that few flows have\n",
            grouped(config.max_flows as u64),
            memory(narrow),
            memory(wide),
            grouped(mebibytes(Meters::most_bytes_of(config, self.tables()))),
        )
    }

    /// How the meters work; as much is recorded as is `usual`, unless asked for otherwise.
    pub(crate) fn config(&self, usual: Level) -> anyhow::Result<Config> {
        self.workers()?;
        let most = Config::MOST_FLOWS * self.tables();
        let max_flows = self.max_flows.unwrap_or(Config::default().max_flows);
        if max_flows == 0 || max_flows > most {
            return Err(usage(format!("--max-flows: from 1 to {}, or more with more --workers", grouped(most as u64))));
        }
        let level = self.level.unwrap_or(usual);
        if self.first_packets.is_some() && level != Level::Stats {
            return Err(usage("--first-packets means nothing without --level stats: no other lists packets"));
        }
        let mut config = Config {
            max_flows,
            level: level.into(),
            packets: self.first_packets.unwrap_or(FIRST_PACKETS).into(),
            vlans: self.vlans,
            macs: self.macs,
            names: self.names,
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
}

/// Threads that encode, unless somebody says how many.
fn usual_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).clamp(1, 4))
}

/// The standard library's own keys, which it asks the system for.
fn secret() -> [u64; 2] {
    [1, 2].map(|number| RandomState::new().hash_one(number))
}
