//! What a meter has counted beside its flows.

use crate::flow::EndReason;

/// Every frame is in exactly one outermost record, or here as of an unknown link, not IP or malformed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames taken, and their bytes as they were on the wire without FCS.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames of interfaces whose link type is not known ([`Link`](linerate_wire::Link)), so that nobody can say what is in them.
    pub unknown_link: u64,
    /// Bytes of these frames.
    pub unknown_link_bytes: u64,
    /// Frames without an IP packet.
    pub not_ip: u64,
    /// Bytes of these frames.
    pub not_ip_bytes: u64,
    /// Frames that announce an IP packet whose header is cut off or contradicts itself.
    pub malformed: u64,
    /// Bytes of these frames.
    pub malformed_bytes: u64,
    /// Records begun.
    pub begun: u64,
    /// Records ended, by the number of the reason.
    pub ended: [u64; 6],
    /// One-packet flows that were put together for want of room; they are among those `ended` as evicted.
    pub aggregated: u64,
    /// The most flows there were at a time.
    pub most_flows: u64,
    /// Later fragments that came before their first one and were held.
    pub fragments_held: u64,
    /// Later fragments that have the ports of their first one.
    pub fragments_joined: u64,
    /// Later fragments whose first one was not seen.
    pub fragments_orphaned: u64,
    /// Later fragments that were not held, or not for long, because too many were: they are among those without their first one.
    pub fragments_no_room: u64,
    /// Flows whose names, or a part of them, had no room.
    pub names_full: u64,
    /// Beginnings of conversations that gave way to others before they were whole.
    pub name_buffer_full: u64,
}

impl Counts {
    /// Frames that are in no record, and their bytes.
    pub fn in_no_record(&self) -> (u64, u64) {
        (
            self.unknown_link + self.not_ip + self.malformed,
            self.unknown_link_bytes + self.not_ip_bytes + self.malformed_bytes,
        )
    }

    /// Records that ended for this reason.
    pub fn ended_by(&self, reason: EndReason) -> u64 {
        self.ended[reason as usize]
    }

    /// The sums of both; the most flows are added too, as tables are apart.
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
