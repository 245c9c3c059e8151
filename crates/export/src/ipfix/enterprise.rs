//! Unregistered elements: our own numbers, within a private enterprise number that users choose.

/// Fields with elements of our own, in the order of their numbers, from 1. Append new ones and never remove any:
/// numbers are stable.
pub const OWN: &[&str] = &[
    "direction",
    "quality",
    "extension_headers",
    "tunnel.kind",
    "tunnel.parent",
    "*.payload_bytes",
    "*.dscp_changed",
    "*.ect",
    "*.ce",
    "*.teid",
    "tcp.state",
    "tcp.history",
    "tcp.syn_to_syn_ack_ns",
    "tcp.syn_ack_to_ack_ns",
    "*.tcp.mss",
    "*.tcp.window_scale",
    "*.tcp.sack_permitted",
    "*.tcp.timestamps",
    "*.tcp.window_min",
    "*.tcp.window_max",
    "*.tcp.zero_windows",
    "*.tcp.rtt.count",
    "*.tcp.rtt.min_ns",
    "*.tcp.rtt.max_ns",
    "*.tcp.rtt.mean_ns",
    "*.tcp.rtt.deviation_ns",
    "*.tcp.retransmitted.timeout",
    "*.tcp.retransmitted.fast",
    "*.tcp.retransmitted.spurious",
    "*.tcp.retransmitted.unseen",
    "*.tcp.retransmitted_bytes",
    "*.tcp.out_of_order",
    "*.tcp.copies",
    "*.tcp.duplicate_acks",
    "*.tcp.keep_alives",
    "*.tcp.window_probes",
    "*.tcp.gaps",
    "*.tcp.gap_bytes",
    "*.stats.lengths.mean",
    "*.stats.lengths.deviation",
    "*.stats.gaps.min_ns",
    "*.stats.gaps.max_ns",
    "*.stats.gaps.mean_ns",
    "*.stats.gaps.deviation_ns",
    "*.stats.syn_bytes",
    "service",
    "tls.client_version",
    "tls.ech",
    "tls.version",
    "tls.cipher",
    "tls.server_alpn",
    "quic.version",
    "ssh.client",
    "ssh.server",
    "resp.resolved",
    "dns.addresses",
];

/// Bit in the numbers of the responder's elements, if a record has both directions.
pub const RESPONDER: u16 = 0x2000;

/// Returns the number of a field's own element, if it has one.
pub fn number(path: &str) -> Option<u16> {
    OWN.iter().position(|own| *own == path).map(|place| place as u16 + 1)
}
