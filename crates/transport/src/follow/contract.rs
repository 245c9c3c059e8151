//! Configuration, output and results of reassembly.

use super::side::Tally;
use super::{Overlap, segment, table};
use crate::stream_memory::{Ends, StreamId};
use linerate_burst::Nanos;
use std::ops::Range;
use std::time::Duration;

/// Configuration of reassembly.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Policy for overlapping segments that differ.
    pub overlap: Overlap,
    /// Maximum number of concurrent connections.
    pub connections: usize,
    /// Maximum memory for waiting bytes of all streams; lists of gaps are included, with at most a quarter.
    pub memory: usize,
    /// The same per stream.
    pub stream_memory: usize,
    /// Time that a gap is kept open after the receiver has acknowledged it.
    pub patience: Duration,
    /// Idle timeout of a connection.
    pub idle: Duration,
    /// True to ignore segments with a wrong checksum.
    pub checksums: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            overlap: Overlap::First,
            connections: 1 << 18,
            memory: 256 << 20,
            stream_memory: 16 << 20,
            patience: Duration::from_secs(1),
            idle: Duration::from_secs(3600),
            checksums: false,
        }
    }
}

impl Config {
    /// Returns the maximum memory of connections, without waiting bytes.
    pub fn table_bytes(&self) -> usize {
        self.connections * (size_of::<table::Connection>() + 2 * size_of::<segment::Key>() + 32)
    }
}

/// Evidence for the start of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartEvidence {
    /// By the SYN, or its acknowledgement.
    Start,
    /// Midstream: the SYN was not captured.
    #[default]
    Middle,
}

impl StartEvidence {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            StartEvidence::Start => "start",
            StartEvidence::Middle => "middle",
        }
    }
}

/// Reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sender closed it (FIN).
    Fin,
    /// Either side reset the connection.
    Reset,
    /// Idle timeout.
    Silent,
    /// A new connection with the same addresses and ports started.
    Reused,
    /// Evicted in favour of other connections.
    Evicted,
    /// The run stopped.
    Stopped,
}

impl Ending {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Fin => "fin",
            Ending::Reset => "reset",
            Ending::Silent => "silent",
            Ending::Reused => "reused",
            Ending::Evicted => "evicted",
            Ending::Stopped => "stopped",
        }
    }
}

/// Identity of a stream: one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Number, never reused.
    pub stream: StreamId,
    /// Number of connections seen before its own.
    pub connection: u64,
    /// Addresses.
    pub ends: Ends,
    /// True if its packets were in a tunnel.
    pub is_inner: bool,
    /// Evidence for its start.
    pub began: StartEvidence,
}

/// Result of a stream.
#[derive(Clone, Debug)]
pub struct StreamSummary {
    /// Identity.
    pub about: StreamInfo,
    /// The other direction, if any of it was seen.
    pub other: Option<StreamId>,
    /// Reason for its end.
    pub ending: Ending,
    /// Time of its first and last byte.
    pub times: Option<(Nanos, Nanos)>,
    /// Counters.
    pub tally: Tally,
    /// Gaps, ascending, as far as memory allowed.
    pub gaps: Vec<Range<u64>>,
    /// Bytes at its end that were sent, according to FIN or acknowledgements, and not captured.
    pub missing_at_end: u64,
}

/// Consumer of streams.
pub trait Output {
    /// Starts a stream, at its first byte or gap.
    fn begin(&mut self, about: &StreamInfo, now: Nanos);

    /// Passes the next bytes of a stream. Returns false if they are lost.
    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], now: Nanos) -> bool;

    /// Reports that the next bytes of a stream were not captured.
    fn gap(&mut self, stream: StreamId, gap: Range<u64>, now: Nanos);

    /// Ends a stream.
    fn end(&mut self, summary: &StreamSummary);
}

/// Result for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowOutcome {
    /// It belongs to a connection.
    Followed,
    /// It does, and bytes output with it were lost.
    Unwritten,
    /// No TCP segment.
    NotTcp,
    /// An IP or TCP header is truncated or invalid.
    Malformed,
    /// Fragment of a TCP segment.
    Fragment,
    /// Wrong checksum.
    BadChecksum,
}

/// Counters of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections seen.
    pub connections: u64,
    /// Maximum number of concurrent ones.
    pub most_connections: u64,
    /// Streams with a byte or a gap.
    pub streams: u64,
    /// Open connections evicted.
    pub evicted: u64,
    /// Totals of ended streams.
    pub tally: Tally,
    /// Bytes at the ends of streams that were sent and not captured.
    pub missing_at_end: u64,
    /// Maximum memory of waiting bytes.
    pub most_memory: usize,
}

impl Tally {
    /// Adds the counters of another stream.
    pub(super) fn add(&mut self, other: &Tally) {
        self.bytes += other.bytes;
        self.gaps += other.gaps;
        self.missing += other.missing;
        self.unlisted += other.unlisted;
        self.repeated += other.repeated;
        self.differing += other.differing;
        self.late += other.late;
        self.before += other.before;
        self.beyond += other.beyond;
        self.far += other.far;
    }
}
