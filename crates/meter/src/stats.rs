//! Lengths and gaps of packets, at level `stats`; the definitions are in `docs/flows.md`.

mod bursts;
mod line;
pub(crate) mod options;
mod packets;
pub(crate) mod records;

pub use bursts::PacketBurst;

/// Lengths, gaps and the first packets of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Packets from the originator, and from the responder.
    pub sides: [StatsSide; 2],
    /// The first packets of the flow that had payload, or were ICMP, in order of arrival.
    pub packets: Vec<PacketStats>,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsSide {
    /// Lengths of the IP packets, bytes; a minimum or maximum of 65,535 stands for that and more.
    pub lengths: SummaryStatistics,
    /// Gaps between packets of this direction, ns: time after all earlier ones. A packet that is neither later nor
    /// older than all earlier ones counts as 0, one that is older than all by its distance.
    pub gaps: SummaryStatistics,
    /// Packets with payload, and all ICMP, by payload bytes: up to 15, 31, 63, 127, 255, 511, 1,023, more.
    pub length_histogram: [u64; 8],
    /// Gaps between one such packet and the next of this direction: up to 15 ms, 31, 63, 127, 255, 511, 1,023, more, as
    /// the difference of the whole milliseconds of their times. A packet that is older than the previous one counts as
    /// 0.
    pub gap_histogram: [u64; 8],
    /// Flags of the first packet's IPv4 header: bit 1 don't fragment, bit 0 more fragments (RFC 791, 3.1); bit 2 is reserved.
    pub ip_flags: u8,
    /// TCP window of the first packet, not scaled.
    pub first_window: u16,
    /// Kinds of TCP options seen, a bit each from bit 0 (IPFIX tcpOptions, 209, RFC 5102); kinds above 63 are ignored.
    pub tcp_options: u64,
    /// Bytes of the IP packet of the first SYN, 0 if there was none.
    pub syn_bytes: u16,
}

/// Summary statistics of a set of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SummaryStatistics {
    /// Minimum.
    pub min: u64,
    /// Maximum.
    pub max: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation of the population, not of a sample.
    pub deviation: f64,
}

/// One of the first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStats {
    /// Time since the flow's first packet, ns, in whole microseconds: the difference of both times in microseconds.
    pub time: u64,
    /// True if the originator sent it.
    pub from_originator: bool,
    /// Bytes after the transport header; 32,767 stands for that and more.
    pub payload: u16,
    /// TCP flags.
    pub tcp_flags: u8,
}
