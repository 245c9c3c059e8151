//! What a record says of lengths and gaps, at level `stats`; the definitions are in `docs/flows.md`.

mod bursts;
mod line;
pub(crate) mod options;
mod packets;
pub(crate) mod records;

pub use bursts::PacketBurst;

/// Lengths, gaps and the first packets of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Of the packets from the originator, and from the responder.
    pub sides: [StatsSide; 2],
    /// The first packets of the flow that had payload, or were of ICMP, in the order in which they came.
    pub packets: Vec<PacketStats>,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsSide {
    /// Lengths of the IP packets, bytes; of the least and the greatest 65,535 stands for that and more.
    pub lengths: Summary,
    /// Gaps between packets of this direction, ns: how much later one came than all before it. One that is neither later
    /// nor earlier than all before it counts as 0, one that is earlier than all before it as how much.
    pub gaps: Summary,
    /// Packets with payload, and all of ICMP, by its bytes: to 15, 31, 63, 127, 255, 511, 1,023, more.
    pub length_histogram: [u64; 8],
    /// Gaps between one such packet and the next of this direction: to 15 ms, 31, 63, 127, 255, 511, 1,023, more,
    /// as the whole milliseconds of their times are apart. One that is earlier than the one before it counts as 0.
    pub gap_histogram: [u64; 8],
    /// Flags of the first packet's IPv4 header: bit 1 don't fragment, bit 0 more fragments (RFC 791, 3.1); bit 2 is reserved.
    pub ip_flags: u8,
    /// TCP window of the first packet, not scaled.
    pub first_window: u16,
    /// Kinds of TCP options seen, a bit each from bit 0 (IPFIX tcpOptions, 209, RFC 5102); kinds beyond 63 are left out.
    pub tcp_options: u64,
    /// Bytes of the IP packet of the first SYN, 0 where there was none.
    pub syn_bytes: u16,
}

/// Of many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, of all of them, not of a sample.
    pub deviation: f64,
}

/// One of the first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStats {
    /// Since the flow's first packet, ns, in whole microseconds: as those of both times are apart.
    pub time: u64,
    /// Whether the originator sent it.
    pub from_originator: bool,
    /// Bytes behind the transport header; 32,767 stands for that and more.
    pub payload: u16,
    /// TCP flags.
    pub tcp_flags: u8,
}
