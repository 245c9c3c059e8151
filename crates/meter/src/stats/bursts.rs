//! Packets that follow each other closely.

use super::Stats;
use linerate_burst::Nanos;

/// Packets of one direction, each soon after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketBurst {
    /// How many.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
    /// When the first of them came, since the flow's first packet, ns.
    pub first: u64,
    /// When the last of them came, likewise.
    pub last: u64,
}

impl Stats {
    /// The bursts of one direction: runs of at least `least` packets, each less than `gap` after the one before. Looks at
    /// the listed packets alone: what came when the list was full is in none, and a burst may have gone on beyond it.
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
