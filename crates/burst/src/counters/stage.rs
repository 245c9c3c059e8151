//! The stages that own counters, and what they count.

use super::Count;
use std::fmt;

/// A stage of the data path that owns counters; in the order of the data path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The network card or its driver.
    Nic,
    /// One queue of a receiving port.
    Receive,
    /// The merge of all lanes by time.
    Merge,
    /// Filter, shards, duplicates and limits.
    Select,
    /// The block ring that other processes read.
    Share,
    /// One process that reads the block ring.
    Reader,
    /// Flow records.
    Meter,
    /// Reassembled TCP streams.
    Follow,
    /// Accounting of streams with trailers.
    Check,
    /// Verdicts of an inspector on each packet between two ports.
    Verdict,
    /// Forwarding rules between many ports.
    Switch,
    /// Forwarding from one port to another.
    Forward,
    /// A file or other output.
    Write,
    /// Packets printed as text.
    Print,
    /// Flow records received from other exporters.
    Collect,
    /// One exporter of flow records.
    Export,
    /// The spool of one exporter, for delivery to a broker or a database.
    Deliver,
    /// One queue of a sending port.
    Send,
    /// Replies to requests for the addresses of a sender (ARP, neighbor discovery, ping).
    Answer,
    /// The receiving TCP endpoint.
    Tcp,
    /// Sequenced datagrams placed in frames of memory.
    Datagrams,
    /// Destinations of frames of memory.
    Store,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Stage {
    /// Returns the name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Nic => "nic",
            Stage::Receive => "receive",
            Stage::Merge => "merge",
            Stage::Select => "select",
            Stage::Share => "share",
            Stage::Reader => "reader",
            Stage::Meter => "meter",
            Stage::Follow => "follow",
            Stage::Check => "check",
            Stage::Verdict => "verdict",
            Stage::Switch => "switch",
            Stage::Forward => "forward",
            Stage::Write => "write",
            Stage::Print => "print",
            Stage::Collect => "collect",
            Stage::Export => "export",
            Stage::Deliver => "deliver",
            Stage::Send => "send",
            Stage::Answer => "answer",
            Stage::Tcp => "tcp",
            Stage::Datagrams => "datagrams",
            Stage::Store => "store",
        }
    }

    /// Returns the unit of its counters, except of notes.
    pub fn unit(self) -> Unit {
        match self {
            Stage::Collect | Stage::Export | Stage::Deliver => Unit::Records,
            _ => Unit::Frames,
        }
    }
}

/// The unit of a stage's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Frames.
    Frames,
    /// Flow records.
    Records,
}

impl Unit {
    /// Returns the name used in text.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Frames => "frames",
            Unit::Records => "records",
        }
    }
}
