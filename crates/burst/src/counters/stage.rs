//! Where counters are kept, and what they count.

/// Where on the data path a counter is kept; in the order data takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The network card or its driver.
    Nic,
    /// One queue of a receiving port.
    Receive,
    /// The merge of all lanes by time.
    Merge,
    /// Filter text, shards, duplicates and frame limits.
    Select,
    /// The block ring that other processes read.
    Share,
    /// One process that reads the block ring.
    Reader,
    /// The records of flows.
    Meter,
    /// TCP streams that are put together again.
    Follow,
    /// The account of streams with trailers.
    Check,
    /// What an inspector says of each frame between two ports.
    Verdict,
    /// The rules between many ports.
    Switch,
    /// From one port to another.
    Forward,
    /// A file or other output.
    Write,
    /// Frames as text.
    Print,
    /// Flow records that others have metered.
    Collect,
    /// One exporter of flow records.
    Export,
    /// The spool of one exporter, on its way to a broker or a database.
    Deliver,
    /// One queue of a sending port.
    Send,
    /// The answers to those who ask for the addresses of a sender.
    Answer,
    /// The end of TCP connections that receives.
    Tcp,
    /// Sequenced datagrams that become frames of memory.
    Datagrams,
    /// Where frames of memory go.
    Store,
}

impl Stage {
    /// The name used in text and JSON.
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

    /// What its counters count, but for notes of other things.
    pub fn unit(self) -> Unit {
        match self {
            Stage::Collect | Stage::Export | Stage::Deliver => Unit::Records,
            _ => Unit::Frames,
        }
    }
}

/// What a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Frames.
    Frames,
    /// Flow records.
    Records,
}

impl Unit {
    /// The name used in text.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Frames => "frames",
            Unit::Records => "records",
        }
    }
}
