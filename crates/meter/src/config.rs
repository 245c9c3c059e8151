//! What can be chosen.

use linerate_burst::Nanos;
use linerate_names::Protocols;
use linerate_wire::registry;

/// What a meter is to do.
#[derive(Clone, Debug)]
pub struct Config {
    /// The most flows at a time, up to [`Config::MOST_FLOWS`]; memory for all of them is taken at the start.
    pub max_flows: usize,
    /// How much is recorded of each flow.
    pub level: Level,
    /// Whether MAC addresses are recorded, in [`Config::MAC_BYTES`] more.
    pub macs: bool,
    /// Whose names are read, in [`Config::NAME_BYTES`] more.
    pub names: Protocols,
    /// How many of a flow's first packets level `stats` records, up to [`Config::MOST_PACKETS`], 8 bytes each.
    pub packets: usize,
    /// Timeouts of TCP, UDP, ICMP and all others.
    pub timeouts: [Timeouts; CLASSES],
    /// How long a TCP flow that has ended (FIN both ways, or RST) waits for stragglers.
    pub linger: Nanos,
    /// Whether packets of different VLANs are of different flows. If not, a record has the VLAN of its first packet.
    pub vlans: bool,
    /// Which packet of a tunnel is metered.
    pub tunnels: Tunnels,
    /// Whether to verify checksums, which costs a look at every byte.
    pub checksums: bool,
    /// Whether one-packet flows that give way when the table is full are exported by target, together.
    pub aggregate: bool,
    /// The secret of the hash: random, wherever strangers send what is metered.
    pub seed: [u64; 2],
    /// The secret of ids. Random, or [made of a text](Config::id_seed_of) that several sensors share, whose ids are then the same.
    pub id_seed: [u64; 2],
}

/// How much is recorded of each flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Packets, bytes, times, flags, TTL, DSCP, ECN.
    #[default]
    Counters,
    /// And of TCP its state, round-trip times, retransmissions, disorder, gaps, windows, options.
    Tcp,
    /// And lengths, gaps and the first packets.
    Stats,
}

/// When a flow ends that goes quiet, or on and on; at most [`Timeouts::MOST`] each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// A packet later than this after the last one begins a new record.
    pub idle: Nanos,
    /// A packet this much later than the first one begins a new record.
    pub active: Nanos,
}

impl Timeouts {
    /// Twelve hours.
    pub const MOST: Nanos = Nanos(12 * 3600 * 1_000_000_000);
}

/// Which packet of a tunnel is metered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tunnels {
    /// The outermost alone.
    Outer,
    /// The innermost alone, with the tunnel in its key.
    Inner,
    /// Both, each in a record of its own; that of the inner one names the outer flow as its parent.
    #[default]
    Both,
}

/// TCP, UDP, ICMP, others.
pub(crate) const CLASSES: usize = 4;
pub(crate) const TCP_CLASS: u8 = 0;

/// Which of the timeouts are those of an IP protocol.
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
    /// The most flows that one meter can have, 16.7 million.
    pub const MOST_FLOWS: usize = crate::table::NONE as usize;

    /// The most first packets that level `stats` records.
    pub const MOST_PACKETS: usize = 255;

    /// The same idle and active timeout for all protocols.
    pub fn with_timeouts(self, idle: Nanos, active: Nanos) -> Self {
        Config { timeouts: [Timeouts { idle, active }; CLASSES], ..self }
    }

    /// Bytes more of each flow where MAC addresses are recorded.
    pub const MAC_BYTES: usize = crate::encapsulation::MAC_BYTES;

    /// Bytes more of each flow where names are read.
    pub const NAME_BYTES: usize = crate::flow_names::FLOW_BYTES;

    /// Bytes of memory for each flow of the table, its part of the buckets included: of plain IPv4, and of IPv6 or
    /// in a tunnel. Flows that saw trouble have [`Config::TROUBLE_BYTES`] more.
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

    /// The most bytes of memory that a meter may take, whatever it is sent: for each flow all that few of them have, and what there is a
    /// limited number of.
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
        // What there is in pages and chunks is there for so many flows at least.
        each * self.max_flows.max(1).next_multiple_of(1024) + crate::fragments::BYTES + crate::flood::BYTES + names
    }

    /// A seed of ids that is the same wherever the text is.
    pub fn id_seed_of(text: &str) -> [u64; 2] {
        [1, 2].map(|number| crate::hash::mixed([number, text.len() as u64], crate::hash::words_of(text.as_bytes())))
    }

    /// Bytes more of a TCP flow in which something was lost, late, or sent again, from level `tcp` on.
    pub const TROUBLE_BYTES: usize = crate::tcp::TROUBLE_BYTES;
}
