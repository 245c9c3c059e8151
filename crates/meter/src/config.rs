//! Configuration of a meter.

use linerate_burst::Nanos;
use linerate_headers::registry;
use linerate_names::Protocols;

/// Configuration of a [`Meter`](crate::Meter).
#[derive(Clone, Debug)]
pub struct Config {
    /// Maximum number of concurrent flows, up to [`Config::MOST_FLOWS`]; memory for all of them is allocated at the
    /// start. Default: 1,048,576.
    pub max_flows: usize,
    /// Level of detail of each record. Default: `Counters`.
    pub level: Level,
    /// True if MAC addresses are recorded, in [`Config::MAC_BYTES`] more per flow. Default: false.
    pub macs: bool,
    /// Protocols from which names are read, in [`Config::NAME_BYTES`] more per flow. Default: none.
    pub names: Protocols,
    /// Number of first packets per flow that level `stats` records, up to [`Config::MOST_PACKETS`], 8 bytes each.
    /// Default: 30.
    pub packets: usize,
    /// Timeouts of TCP, UDP, ICMP and all other protocols. Default: idle 300, 120, 30 and 120 s, active 1,800 s.
    pub timeouts: [Timeouts; CLASSES],
    /// Time for which a closed TCP flow (FIN both ways, or RST) stays open for late packets. Default: 5 s.
    pub linger: Nanos,
    /// True if the VLAN is part of the flow key. If not, a record has the VLAN of its first packet. Default:
    /// false.
    pub vlans: bool,
    /// Which packet of a tunnel is metered. Default: `Both`.
    pub tunnels: Tunnels,
    /// True if checksums are verified, which reads every byte. Default: false.
    pub checksums: bool,
    /// True if one-packet flows that are evicted when the table is full are exported aggregated by target.
    /// Default: true.
    pub aggregate: bool,
    /// Secret of the hash; must be random where untrusted senders choose the traffic. Default: a constant.
    pub seed: [u64; 2],
    /// Secret of flow ids. Random, or [derived from a text](Config::id_seed_of) that several sensors share so that
    /// their ids agree. Default: derived from `linerate`.
    pub id_seed: [u64; 2],
}

/// Level of detail of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Packets, bytes, times, flags, TTL, DSCP, ECN.
    #[default]
    Counters,
    /// `Counters`, and for TCP its state, round-trip times, retransmissions, disorder, gaps, windows, options.
    Tcp,
    /// `Tcp`, and packet lengths, inter-arrival gaps and the first packets.
    Stats,
}

/// Idle and active timeout, at most [`Timeouts::MOST`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Idle timeout: a packet later than this after the last one starts a new record.
    pub idle: Nanos,
    /// Active timeout: a packet this much later than the first one starts a new record.
    pub active: Nanos,
}

impl Timeouts {
    /// Twelve hours.
    pub const MOST: Nanos = Nanos(12 * 3600 * 1_000_000_000);
}

/// Packet of a tunnel that is metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// Only the outermost packet.
    Outer,
    /// Only the innermost packet, with the tunnel in its key.
    Inner,
    /// Both, each in its own record; the inner record names the outer flow as its parent.
    #[default]
    Both,
}

/// Timeout classes: TCP, UDP, ICMP, others.
pub(crate) const CLASSES: usize = 4;
pub(crate) const TCP_CLASS: u8 = 0;

/// Returns the timeout class of an IP protocol.
#[inline(always)]
pub(crate) fn class_of(protocol: u8) -> u8 {
    match protocol {
        registry::TCP => TCP_CLASS,
        registry::UDP => 1,
        registry::ICMP | registry::ICMPV6 => 2,
        _ => 3,
    }
}

const SECOND: u64 = 1_000_000_000;

impl Default for Config {
    fn default() -> Self {
        let timeouts = |idle| Timeouts { idle: Nanos(idle * SECOND), active: Nanos(1800 * SECOND) };
        Config {
            max_flows: 1 << 20,
            level: Level::default(),
            macs: false,
            names: Protocols::NONE,
            packets: 30,
            timeouts: [timeouts(300), timeouts(120), timeouts(30), timeouts(120)],
            linger: Nanos(5 * SECOND),
            vlans: false,
            tunnels: Tunnels::default(),
            checksums: false,
            aggregate: true,
            seed: [0x6c69_6e65_7261_7465, 0],
            id_seed: Config::id_seed_of("linerate"),
        }
    }
}

impl Config {
    /// Maximum number of flows of one meter, 16.7 million.
    pub const MOST_FLOWS: usize = crate::table::NONE as usize;

    /// Maximum number of first packets that level `stats` records.
    pub const MOST_PACKETS: usize = 255;

    /// Sets the same idle and active timeout for all protocols.
    pub fn with_timeouts(self, idle: Nanos, active: Nanos) -> Self {
        Config { timeouts: [Timeouts { idle, active }; CLASSES], ..self }
    }

    /// Additional bytes per flow if MAC addresses are recorded.
    pub const MAC_BYTES: usize = crate::encapsulation::MAC_BYTES;

    /// Additional bytes per flow if names are read.
    pub const NAME_BYTES: usize = crate::flow_names::FLOW_BYTES;

    /// Returns the bytes of memory per flow, including its part of the buckets: for plain IPv4, and for IPv6 or a
    /// tunnel. Flows with loss or reordering have [`Config::TROUBLE_BYTES`] more.
    pub fn bytes_per_flow(&self) -> [usize; 2] {
        let counters = crate::record::BYTES + crate::table::BUCKET_BYTES / crate::table::FLOWS_PER_BUCKET;
        let packets = self.packets.min(Config::MOST_PACKETS);
        let narrow: usize = [
            (true, counters),
            (self.macs, Config::MAC_BYTES),
            (!self.names.is_empty(), Config::NAME_BYTES),
            (self.level >= Level::Tcp, crate::tcp::BYTES),
            (self.level >= Level::Stats, crate::stats::records::bytes(packets)),
        ]
        .iter()
        .filter_map(|(is_there, bytes)| is_there.then_some(bytes))
        .sum();
        [narrow, narrow + crate::record::WIDE_BYTES]
    }

    /// Returns the maximum number of bytes that a meter can allocate, whatever traffic it receives: per flow including
    /// all optional parts, plus the structures of bounded size.
    pub fn most_bytes(&self) -> usize {
        let each: usize = [
            (true, self.bytes_per_flow()[1] + crate::record::SPILL_BYTES + crate::encapsulation::RARE_BYTES + 1),
            (self.level >= Level::Tcp, crate::tcp::TROUBLE_BYTES + crate::tcp::RARE_BYTES),
            (self.level >= Level::Stats, crate::stats::records::CARRIED_BYTES),
        ]
        .iter()
        .filter_map(|(is_there, bytes)| is_there.then_some(bytes))
        .sum();
        let names = if self.names.is_empty() { 0 } else { crate::flow_names::BYTES };
        // Pages and chunks are allocated for at least this many flows.
        each * self.max_flows.max(1).next_multiple_of(1024) + crate::fragments::BYTES + crate::flood::BYTES + names
    }

    /// Returns an id seed that depends only on the text.
    pub fn id_seed_of(text: &str) -> [u64; 2] {
        [1, 2].map(|number| crate::hash::mixed([number, text.len() as u64], crate::hash::words_of(text.as_bytes())))
    }

    /// Additional bytes per TCP flow with loss, reordering or retransmissions, from level `tcp` on.
    pub const TROUBLE_BYTES: usize = crate::tcp::TROUBLE_BYTES;
}
