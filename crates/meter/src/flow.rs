//! Finished flow records.

use crate::key::{End, Tunnel};
use crate::record::SYN;
use crate::stats::Stats;
use crate::tcp::Tcp;
use linerate_burst::Nanos;
use linerate_headers::MacAddr;
use linerate_names::Names;
use std::net::IpAddr;
use std::sync::Arc;

/// Receives finished flows.
pub trait Records {
    /// Receives one flow; called in the order in which flows end.
    fn take(&mut self, flow: &Flow);
}

impl<F: FnMut(&Flow)> Records for F {
    fn take(&mut self, flow: &Flow) {
        self(flow);
    }
}

/// Both directions of a conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// Flow id, derived from the key and a secret ([`Config::id_seed`](crate::Config::id_seed)): the same for all
    /// records of a conversation if the secret is the same.
    pub id: u64,
    /// The originator and the responder.
    pub ends: [End; 2],
    /// IP protocol number; for IPv6 that after the extension headers.
    pub protocol: u8,
    /// The outer two tags directly in front of the first packet, 0 if absent.
    pub vlans: [u16; 2],
    /// Tunnel of an inner flow.
    pub tunnel: Option<Tunnel>,
    /// Packets from the originator, and from the responder.
    pub sides: [Side; 2],
    /// Why the record ended.
    pub end: EndReason,
    /// Evidence for the originator.
    pub direction: Direction,
    /// Limits of the record's reliability.
    pub quality: Quality,
    /// IPv6 extension headers seen, a bit each: hop-by-hop 1, routing 2, fragment 4, destination 8, AH 16, mobility 32,
    /// HIP 64, shim6 128.
    pub extensions: u8,
    /// Flows in this record: more than 1 if one-packet flows were aggregated.
    pub flows: u64,
    /// MAC addresses of the originator and of the responder, in the Ethernet header next to the first packet; if they
    /// are configured and the link has them.
    pub macs: Option<[MacAddr; 2]>,
    /// The uppermost MPLS labels directly in front of the first packet of each direction, outermost first and without
    /// explicit null; 0 if absent.
    pub mpls: [[u32; MPLS_LABELS]; 2],
    /// GTP-U tunnel endpoint identifier of the first packet of each direction.
    pub teids: [Option<u32>; 2],
    /// TCP analysis, from level `tcp` on, if a TCP header was seen.
    pub tcp: Option<Tcp>,
    /// Packet statistics, at level `stats`.
    pub stats: Option<Stats>,
    /// Names found in the payload, if configured.
    pub names: Option<Arc<Names>>,
    /// Exporter of a flow that was received from another meter.
    pub exporter: Option<Arc<ExportedBy>>,
}

/// Exporter of a flow that was received from another meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportedBy {
    /// Its address; `None` for a file.
    pub address: Option<IpAddr>,
    /// Its observation domain, the source id of NetFlow v9.
    pub domain: u32,
    /// Its input and output interface numbers; 0 if not exported.
    pub interfaces: [u32; 2],
}

/// Maximum number of labels recorded of an MPLS stack.
pub const MPLS_LABELS: usize = 4;

impl Flow {
    /// Returns the time of the earliest packet.
    pub fn first(&self) -> Nanos {
        let known = self.sides.iter().filter(|side| side.has_time());
        known.map(|side| side.first).min().unwrap_or(Nanos(0))
    }

    /// Returns the time of the latest packet.
    pub fn last(&self) -> Nanos {
        self.sides[0].last.max(self.sides[1].last)
    }

    /// Returns the packets of both directions.
    pub fn packets(&self) -> u64 {
        self.sides.iter().fold(0, |sum: u64, side| sum.saturating_add(side.packets))
    }

    /// Returns the bytes of both directions, whole frames without FCS.
    pub fn frame_bytes(&self) -> u64 {
        self.sides.iter().fold(0, |sum: u64, side| sum.saturating_add(side.frame_bytes))
    }

    /// Adds the following record ([`Quality::CONTINUED`]) if this one ended by the active timeout. Fields of levels
    /// above `counters` belong to each record and are removed from the sum.
    pub fn join(&mut self, next: &Flow) {
        // The originator may have been identified later.
        if self.ends[0] != next.ends[0] {
            self.sides.swap(0, 1);
        }
        let is_late = |(sum, side): (&Side, &Side)| side.packets > 0 && side.first < sum.last;
        let out_of_time = Quality(u16::from(self.sides.iter().zip(&next.sides).any(is_late)) * Quality::OUT_OF_TIME.0);
        self.sides.iter_mut().zip(&next.sides).for_each(|(sum, side)| sum.add(side));
        self.quality.0 |= next.quality.0 & !Quality::CONTINUED.0 | out_of_time.0;
        for (is_so_no_more, bit) in [
            (self.sides.iter().all(|side| side.packets > 0), Quality::ONE_WAY),
            (next.sides.iter().any(|side| side.tcp_flags & SYN != 0), Quality::MIDSTREAM),
        ] {
            self.quality.0 &= if is_so_no_more { !bit.0 } else { u16::MAX };
        }
        (self.ends, self.direction, self.end) = (next.ends, next.direction, next.end);
        self.extensions |= next.extensions;
        (self.tcp, self.stats) = (None, None);
        // A continued record has all names known before.
        self.names = next.names.clone().or(self.names.take());
    }
}

/// One direction of a flow; all zero where no packet went that way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Side {
    /// Packets, each fragment counted.
    pub packets: u64,
    /// Bytes of the frames as they were on the wire, without FCS.
    pub frame_bytes: u64,
    /// Bytes of the IP packets, by their length fields; padding does not count.
    pub packet_bytes: u64,
    /// Bytes after the transport headers.
    pub payload_bytes: u64,
    /// Time of the earliest packet.
    pub first: Nanos,
    /// Time of the latest packet.
    pub last: Nanos,
    /// TCP flags seen, from FIN (1) to CWR (128).
    pub tcp_flags: u8,
    /// The least and the greatest time to live or hop limit.
    pub ttl: [u8; 2],
    /// Type of service or traffic class of the first packet: DSCP in the upper six bits, ECN in the lower two.
    pub tos: u8,
    /// True if the DSCP changed.
    pub dscp_changed: bool,
    /// True if a packet had ECT(0) or ECT(1).
    pub ect: bool,
    /// True if a packet had CE.
    pub ce: bool,
}

impl Side {
    /// Returns whether its times are known: packets were metered, or reported by an exporter that counts none.
    pub fn has_time(&self) -> bool {
        self.packets > 0 || self.last > Nanos(0)
    }

    /// Adds packets that arrived later, or of another flow.
    pub(crate) fn add(&mut self, other: &Side) {
        if !self.has_time() || !other.has_time() {
            if !self.has_time() {
                *self = *other;
            }
            return;
        }
        self.packets += other.packets;
        self.frame_bytes += other.frame_bytes;
        self.packet_bytes += other.packet_bytes;
        self.payload_bytes += other.payload_bytes;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.tcp_flags |= other.tcp_flags;
        self.ttl = [self.ttl[0].min(other.ttl[0]), self.ttl[1].max(other.ttl[1])];
        self.dscp_changed |= other.dscp_changed || (self.tos ^ other.tos) >> 2 != 0;
        self.ect |= other.ect;
        self.ce |= other.ce;
    }
}

/// Why a record ended; the numbers are those of IPFIX flowEndReason (136).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum EndReason {
    /// Idle timeout: no packet for its duration.
    Idle = 1,
    /// Active timeout: the next record continues the flow.
    Active = 2,
    /// FIN in both directions, or RST, and then silence or a new SYN.
    End = 3,
    /// End of metering.
    Forced = 4,
    /// The table was full.
    Evicted = 5,
}

impl EndReason {
    /// All reasons.
    pub const ALL: [EndReason; 5] =
        [EndReason::Idle, EndReason::Active, EndReason::End, EndReason::Forced, EndReason::Evicted];

    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            EndReason::Idle => "idle",
            EndReason::Active => "active",
            EndReason::End => "end",
            EndReason::Forced => "forced",
            EndReason::Evicted => "evicted",
        }
    }
}

/// Evidence for the originator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Direction {
    /// It sent the first packet.
    FirstPacket = 0,
    /// It sent a SYN without ACK.
    Syn = 1,
    /// It received a SYN with ACK.
    SynAck = 2,
    /// It sent ICMP requests, or received replies.
    IcmpType = 3,
}

impl Direction {
    /// All kinds of evidence.
    pub const ALL: [Direction; 4] = [Direction::FirstPacket, Direction::Syn, Direction::SynAck, Direction::IcmpType];

    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Direction::FirstPacket => "first-packet",
            Direction::Syn => "syn",
            Direction::SynAck => "syn-ack",
            Direction::IcmpType => "icmp-type",
        }
    }

    pub(crate) fn from_bits(bits: u8) -> Direction {
        match bits & 3 {
            0 => Direction::FirstPacket,
            1 => Direction::Syn,
            2 => Direction::SynAck,
            _ => Direction::IcmpType,
        }
    }
}

/// Limits of a record's reliability: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quality(pub u16);

impl Quality {
    /// A header was truncated or malformed, so that ports, flags or payload bytes are not complete.
    pub const TRUNCATED: Quality = Quality(1 << 0);
    /// A checksum was wrong, or the frame was marked as damaged.
    pub const BAD_CHECKSUM: Quality = Quality(1 << 1);
    /// The sensor lost frames during the record.
    pub const SENSOR_LOSS: Quality = Quality(1 << 2);
    /// Fragments are among the packets.
    pub const FRAGMENTS: Quality = Quality(1 << 3);
    /// Later fragments whose first fragment was not seen: a record without ports.
    pub const ORPHAN_FRAGMENTS: Quality = Quality(1 << 4);
    /// A packet was older than one before it in its direction.
    pub const OUT_OF_TIME: Quality = Quality(1 << 5);
    /// A super-frame, merged by GRO or GSO, is among the packets, so that there were more packets on the wire.
    pub const SUPER_FRAMES: Quality = Quality(1 << 6);
    /// TCP without a SYN, in a flow that was not continued from an earlier record.
    pub const MIDSTREAM: Quality = Quality(1 << 7);
    /// Only one direction was seen.
    pub const ONE_WAY: Quality = Quality(1 << 8);
    /// The previous record ended by the active timeout.
    pub const CONTINUED: Quality = Quality(1 << 9);
    /// The table was full: the record ended early, or aggregates several flows.
    pub const EVICTED: Quality = Quality(1 << 10);
    /// From level `tcp` on: a FIN or RST had an implausible sequence number or a wrong checksum, and ended nothing.
    pub const DOUBTFUL_END: Quality = Quality(1 << 11);
    /// More headers followed than are decoded per frame. The packet is the innermost one that was reached.
    pub const TOO_DEEP: Quality = Quality(1 << 12);
    /// The record comes from an exporter that does not count payload bytes: they are absent.
    pub const PAYLOAD_UNKNOWN: Quality = Quality(1 << 13);

    /// Each bit with its name in text and JSON.
    pub const NAMES: [(Quality, &'static str); 14] = [
        (Quality::TRUNCATED, "truncated"),
        (Quality::BAD_CHECKSUM, "bad_checksum"),
        (Quality::SENSOR_LOSS, "sensor_loss"),
        (Quality::FRAGMENTS, "fragments"),
        (Quality::ORPHAN_FRAGMENTS, "orphan_fragments"),
        (Quality::OUT_OF_TIME, "out_of_time"),
        (Quality::SUPER_FRAMES, "super_frames"),
        (Quality::MIDSTREAM, "midstream"),
        (Quality::ONE_WAY, "one_way"),
        (Quality::CONTINUED, "continued"),
        (Quality::EVICTED, "evicted"),
        (Quality::DOUBTFUL_END, "doubtful_end"),
        (Quality::TOO_DEEP, "too_deep"),
        (Quality::PAYLOAD_UNKNOWN, "payload_unknown"),
    ];

    /// Returns whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: Quality) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the names of the bits that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Quality::NAMES.into_iter().filter(move |(bit, _)| self.contains(*bit)).map(|(_, name)| name)
    }
}
