//! Bursts: packets in close succession.

use super::Stats;
use linerate_burst::Nanos;

/// Packets of one direction, each soon after the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBurst {
    /// Number of packets.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
    /// Arrival of the first packet, since the flow's first packet, ns.
    pub first: u64,
    /// Arrival of the last packet, likewise.
    pub last: u64,
}

impl Stats {
    /// Returns the bursts of one direction: runs of at least `least` packets, each less than `gap` after the previous
    /// one. Uses only the listed packets: those that arrived when the list was full are in no burst, and a burst may
    /// have continued after it.
    pub fn bursts(&self, from_originator: bool, gap: Nanos, least: u64) -> Vec<PacketBurst> {
        let mut bursts: Vec<PacketBurst> = Vec::new();
        for packet in self.packets.iter().filter(|packet| packet.from_originator == from_originator) {
            let payload = u64::from(packet.payload);
            match bursts.last_mut() {
                Some(burst) if packet.time < burst.last.saturating_add(gap.0) => {
                    burst.packets += 1;
                    burst.payload_bytes += payload;
                    burst.last = packet.time;
                }
                _ => bursts.push(PacketBurst {
                    packets: 1,
                    payload_bytes: payload,
                    first: packet.time,
                    last: packet.time,
                }),
            }
        }
        bursts.retain(|burst| burst.packets >= least);
        bursts
    }
}
