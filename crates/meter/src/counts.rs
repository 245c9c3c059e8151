//! Counters of a meter besides its flows.

use crate::flow::EndReason;

/// Counters of a meter. Every frame is in exactly one outermost record, or counted here as unknown link, not IP or
/// malformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames metered.
    pub frames: u64,
    /// Bytes of these frames on the wire, without FCS.
    pub bytes: u64,
    /// Frames of interfaces with an unknown link type ([`Link`](linerate_headers::Link)), which cannot be decoded.
    pub unknown_link: u64,
    /// Bytes of these frames.
    pub unknown_link_bytes: u64,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Bytes of these frames.
    pub not_ip_bytes: u64,
    /// Frames that announce an IP packet whose header is truncated or inconsistent.
    pub malformed: u64,
    /// Bytes of these frames.
    pub malformed_bytes: u64,
    /// Records started.
    pub begun: u64,
    /// Records ended, by the number of the [`EndReason`].
    pub ended: [u64; 6],
    /// One-packet flows that were aggregated because the table was full; they are also in `ended` as evicted.
    pub aggregated: u64,
    /// Maximum number of concurrent flows.
    pub most_flows: u64,
    /// Later fragments that arrived before their first fragment and were held.
    pub fragments_held: u64,
    /// Later fragments that were assigned the ports of their first fragment.
    pub fragments_joined: u64,
    /// Later fragments whose first fragment was not seen.
    pub fragments_orphaned: u64,
    /// Later fragments not held, or released early, because the buffer was full; also in `fragments_orphaned`.
    pub fragments_no_room: u64,
    /// Flows whose names, or a part of them, were discarded because the name table was full.
    pub names_full: u64,
    /// Partial first messages that were evicted from the buffer before they were complete.
    pub name_buffer_full: u64,
}

impl Counts {
    /// Returns the frames that are in no record, and their bytes.
    pub fn in_no_record(&self) -> (u64, u64) {
        (
            self.unknown_link + self.not_ip + self.malformed,
            self.unknown_link_bytes + self.not_ip_bytes + self.malformed_bytes,
        )
    }

    /// Returns the number of records that ended for this reason.
    pub fn ended_by(&self, reason: EndReason) -> u64 {
        self.ended[reason as usize]
    }

    /// Returns the sums of both; `most_flows` is added too, as each meter has its own table.
    pub fn plus(mut self, other: &Counts) -> Counts {
        self.frames += other.frames;
        self.bytes += other.bytes;
        self.unknown_link += other.unknown_link;
        self.unknown_link_bytes += other.unknown_link_bytes;
        self.not_ip += other.not_ip;
        self.not_ip_bytes += other.not_ip_bytes;
        self.malformed += other.malformed;
        self.malformed_bytes += other.malformed_bytes;
        self.begun += other.begun;
        self.ended.iter_mut().zip(other.ended).for_each(|(sum, count)| *sum += count);
        self.aggregated += other.aggregated;
        self.most_flows += other.most_flows;
        self.fragments_held += other.fragments_held;
        self.fragments_joined += other.fragments_joined;
        self.fragments_orphaned += other.fragments_orphaned;
        self.fragments_no_room += other.fragments_no_room;
        self.names_full += other.names_full;
        self.name_buffer_full += other.name_buffer_full;
        self
    }
}
