//! How streams are followed, who takes them, and what is known of each.

use super::side::Tally;
use super::{Overlap, segment, table};
use crate::place::{Ends, StreamId};
use linerate_burst::Nanos;
use std::ops::Range;
use std::time::Duration;

/// How streams are followed.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Which bytes count where two segments differ.
    pub overlap: Overlap,
    /// The most connections at a time.
    pub connections: usize,
    /// The most memory for what waits, of all streams; lists of gaps count too, and get a quarter.
    pub memory: usize,
    /// The same of one stream.
    pub stream_memory: usize,
    /// How long a gap is waited for whose bytes the receiver has.
    pub patience: Duration,
    /// After how long without a frame a connection is over.
    pub idle: Duration,
    /// Whether segments with a wrong checksum are left out.
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
    /// The most memory that connections take, without what waits.
    pub fn table_bytes(&self) -> usize {
        self.connections * (size_of::<table::Connection>() + 2 * size_of::<segment::Key>() + 32)
    }
}

/// How the first byte of a stream is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Began {
    /// By the SYN, or its acknowledgement.
    Start,
    /// It was under way.
    #[default]
    Middle,
}

impl Began {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Began::Start => "start",
            Began::Middle => "middle",
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sender said that this is all.
    Fin,
    /// Either side reset the connection.
    Reset,
    /// Nothing came for too long.
    Silent,
    /// A new connection between the same ends began.
    Reused,
    /// It gave way to others.
    Evicted,
    /// The run ended first.
    Stopped,
}

impl Ending {
    /// In a word.
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

/// Which stream it is: one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Its own number, never used again.
    pub stream: StreamId,
    /// How many connections were seen before its own.
    pub connection: u64,
    /// Whose bytes, and where to.
    pub ends: Ends,
    /// Whether its packets came through a tunnel.
    pub is_inner: bool,
    /// How its first byte is known.
    pub began: Began,
}

/// What is known of a stream in the end.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Which it is.
    pub about: About,
    /// The other direction, if anything was seen of it.
    pub other: Option<StreamId>,
    /// How it ended.
    pub ending: Ending,
    /// When the first and the last of its bytes came.
    pub times: Option<(Nanos, Nanos)>,
    /// What was counted.
    pub tally: Tally,
    /// Gaps, ascending, as far as there was memory for them.
    pub gaps: Vec<Range<u64>>,
    /// Bytes at its end that were sent, by what either side said, and not seen.
    pub missing_at_end: u64,
}

/// Takes streams as they come.
pub trait Output {
    /// A stream has its first byte, or gap.
    fn begin(&mut self, about: &About, now: Nanos);

    /// The next bytes of a stream; false if they go nowhere.
    fn bytes(&mut self, stream: StreamId, offset: u64, bytes: &[u8], now: Nanos) -> bool;

    /// The next bytes of a stream were not captured.
    fn gap(&mut self, stream: StreamId, gap: Range<u64>, now: Nanos);

    /// A stream is over.
    fn end(&mut self, summary: &Summary);
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is of a connection.
    Followed,
    /// It is, and bytes that came with it went nowhere.
    Unwritten,
    /// There is no TCP segment in it.
    NotTcp,
    /// An IP or TCP header is cut off or contradicts itself.
    Malformed,
    /// It is a part of a TCP segment, in a fragment of a packet.
    Fragment,
    /// Its checksum is wrong.
    BadChecksum,
}

/// What was counted of all streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were seen.
    pub connections: u64,
    /// The most at a time.
    pub most_connections: u64,
    /// Streams with a byte, or a gap.
    pub streams: u64,
    /// Connections that gave way to others while they were open.
    pub evicted: u64,
    /// Of all streams that are over.
    pub tally: Tally,
    /// Bytes at the ends of streams that were sent and not seen.
    pub missing_at_end: u64,
    /// The most memory that what waited took.
    pub most_memory: usize,
}

impl Tally {
    /// Adds those of another stream.
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
