//! Options of metering, for all verbs that meter.

use super::super::units::entries;
use super::memory::{bound, check_memory, mebibytes, warn_of_memory};
use super::timeouts;
use crate::exit::usage;
use crate::view::rates::grouped;
use crate::view::terminal::fail;
use linerate_engine::Meters;
use linerate_meter::{Config, FlowDistributor, Protocols, Tunnels};
use std::hash::{BuildHasher, RandomState};

const FIRST_PACKETS: u8 = 30;

/// Options of metering.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Metering")]
pub(crate) struct MeterArgs {
    /// Level of detail [default: counters; for zeek and zeek-tsv: tcp]
    #[arg(long, value_enum)]
    level: Option<Level>,
    /// Number of first packets listed per flow with --level stats, 8 bytes each (0 to 255) [default: 30]
    #[arg(long, value_name = "N")]
    first_packets: Option<u8>,
    /// Idle timeout in seconds, for all protocols or per protocol [default: tcp=300,udp=120,icmp=30,other=120]
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    idle: Option<String>,
    /// Active timeout: export a flow that is still open every S seconds, like --idle per protocol [default: 1800]
    #[arg(long, value_name = "S|PROTOCOL=S,...")]
    active: Option<String>,
    /// Maximum number of concurrent flows; when full, the least recently active ones are evicted [default: 1048576,
    /// fewer under ulimit -v]
    #[arg(long, value_name = "N", value_parser = entries)]
    max_flows: Option<usize>,
    /// Metering threads; all flows between two hosts belong to one of them
    #[arg(long, value_name = "N", default_value_t = 1)]
    workers: usize,
    /// Derive flow ids from TEXT, so that they are equal in all runs [default: random]; keep it secret, or others can
    /// forge ids
    #[arg(long, value_name = "TEXT")]
    id_seed: Option<String>,
    /// Include the VLAN ID in the flow key
    #[arg(long)]
    vlans: bool,
    /// Record the MAC addresses of the first packet
    #[arg(long)]
    macs: bool,
    /// Record names sent in the clear, such as the SNI of TLS, of all protocols or some of tls, quic, dns, http, ssh
    #[arg(long, value_name = "none|all|PROTOCOL,...", default_value_t = Protocols::NONE)]
    names: Protocols,
    /// Packet of a tunnel to record
    #[arg(long, value_enum, default_value_t = TunnelLevel::Both)]
    tunnels: TunnelLevel,
    /// Verify checksums
    #[arg(long)]
    checksums: bool,
}

/// Level of detail of flow records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Level {
    /// Packets, bytes, times, flags, TTL, DSCP, ECN
    Counters,
    /// Also TCP state, round-trip times, retransmissions, reordering, gaps, windows, options
    Tcp,
    /// Also packet lengths, gaps and the first packets
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
enum TunnelLevel {
    /// The outermost
    Outer,
    /// The innermost
    Inner,
    /// Both, linked
    Both,
}

impl MeterArgs {
    /// Returns the number of metering threads.
    pub(crate) fn workers(&self) -> anyhow::Result<usize> {
        match self.workers {
            workers @ 1..=FlowDistributor::MOST => Ok(workers),
            _ => Err(usage(format!("--workers: expected 1 to {}", FlowDistributor::MOST))),
        }
    }

    /// Returns the bytes needed of each packet; 0 for all.
    pub(crate) fn snap(&self) -> u32 {
        if self.checksums || !self.names.is_empty() { 0 } else { FlowDistributor::HEADERS as u32 }
    }

    /// Creates the meters, if memory allows, before ports open: it may take seconds.
    pub(crate) fn meters(&self, config: &mut Config, is_quiet: bool) -> anyhow::Result<Meters> {
        let bounded = if self.max_flows.is_none() { bound(config, self.workers) } else { None };
        if let Some(note) = bounded.filter(|_| !is_quiet) {
            fail(note);
        }
        let most = Meters::most_bytes_of(config, self.workers);
        if let Some(free) = check_memory(config, most)?.filter(|_| !is_quiet) {
            warn_of_memory(most, free);
        }
        Ok(Meters::new(config, self.workers))
    }

    /// Describes the memory of the meters.
    pub(crate) fn describe(&self, config: &Config) -> String {
        format!(
            "up to {} flows, {} to {} MiB\n",
            grouped(config.max_flows as u64),
            grouped(mebibytes(config.bytes_per_flow()[0] * config.max_flows)),
            grouped(mebibytes(Meters::most_bytes_of(config, self.workers))),
        )
    }

    /// Returns the configuration of the meters; `usual` is the default level.
    pub(crate) fn config(&self, usual: Level) -> anyhow::Result<Config> {
        self.workers()?;
        let most = Config::MOST_FLOWS * self.workers;
        let max_flows = self.max_flows.unwrap_or(Config::default().max_flows);
        if max_flows == 0 || max_flows > most {
            return Err(usage(format!(
                "--max-flows: expected 1 to {}, or more with more --workers",
                grouped(most as u64)
            )));
        }
        let level = self.level.unwrap_or(usual);
        if self.first_packets.is_some() && level != Level::Stats {
            return Err(usage("--first-packets needs --level stats"));
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
                TunnelLevel::Outer => Tunnels::Outer,
                TunnelLevel::Inner => Tunnels::Inner,
                TunnelLevel::Both => Tunnels::Both,
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

/// Returns random numbers: the hash keys of the standard library, from the system.
fn secret() -> [u64; 2] {
    [1, 2].map(|number| RandomState::new().hash_one(number))
}
