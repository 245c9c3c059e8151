//! What a record says of lengths and gaps, at level `stats`; the definitions are in `docs/flows.md`.

/// Lengths, gaps and the first packets of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Of the packets from the originator, and from the responder.
    pub sides: [StatsSide; 2],
    /// The first packets of the flow, in the order in which they came.
    pub packets: Vec<PacketStats>,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StatsSide {
    /// Lengths of the IP packets, bytes.
    pub lengths: Spread,
    /// Times between packets of this direction, ns.
    pub gaps: Spread,
    /// Packets by payload: to 15 bytes, 31, 63, 127, 255, 511, 1,023, more.
    pub length_histogram: [u64; 8],
    /// Gaps by length: to 15 ms, 31, 63, 127, 255, 511, 1,023, more.
    pub gap_histogram: [u64; 8],
    /// Flags of the first packet's IPv4 header: bit 1 don't fragment, bit 0 more fragments.
    pub ip_flags: u8,
    /// TCP window of the first packet, not scaled.
    pub first_window: u16,
    /// Kinds of TCP options seen, a bit each from bit 0 (IPFIX tcpOptions, 209, RFC 5102).
    pub tcp_options: u64,
    /// Bytes of the IP packet of the first SYN.
    pub syn_bytes: u16,
}

/// Of many numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: u64,
    /// The greatest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub deviation: f64,
}

/// One of the first packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketStats {
    /// Since the flow's first packet, ns, in units of 1,024 ns.
    pub time: u64,
    /// Whether the originator sent it.
    pub from_originator: bool,
    /// Bytes behind the transport header; 32,767 stands for that and more.
    pub payload: u16,
    /// TCP flags.
    pub tcp_flags: u8,
}
