//! TCP analysis of a record, from level `tcp` on; the definitions are in `docs/flows.md`.
//!
//! `segment` has the header fields in use; `connections` all flows, each with a `record`, which handles usual packets,
//! and `slow_path` all others; `loss_state` has the optional part of few flows; `history`, `state` the results at the end.

mod connections;
mod history;
mod loss_state;
mod record;
mod segment;
mod slow_path;
mod state;

pub(crate) use connections::{BYTES, Connections, RARE_BYTES, TROUBLE_BYTES};
pub(crate) use record::Record;
pub(crate) use segment::{Options, Segment};

/// TCP analysis of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// State of the connection.
    pub state: ConnState,
    /// Events, a letter each, upper case from the originator: see [`History`].
    pub history: History,
    /// Time from the first SYN to the first SYN with ACK, ns: the round trip between sensor and responder.
    pub syn_to_syn_ack: Option<u64>,
    /// Time from the first SYN with ACK to the ACK that answers it, ns: the round trip between sensor and originator.
    pub syn_ack_to_ack: Option<u64>,
    /// Segments from the originator, and from the responder.
    pub sides: [TcpSide; 2],
}

/// One direction of a TCP flow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpSide {
    /// The sequence number of its SYN, the last one if there were several of different numbers.
    pub isn: Option<u32>,
    /// The maximum segment size that its SYN announced (RFC 9293, 3.7.1), if not 0.
    pub mss: Option<u16>,
    /// The window scale that its SYN announced (RFC 7323, 2); at most 14.
    pub window_scale: Option<u8>,
    /// Its SYN permitted selective acknowledgement (RFC 2018).
    pub sack_permitted: bool,
    /// Its SYN had timestamps (RFC 7323, 3).
    pub timestamps: bool,
    /// The smallest and the largest window announced, in bytes (scaled if both ends agreed to), except by SYN and RST;
    /// zeros if there was none.
    pub window: [u32; 2],
    /// Segments that announced a window of 0, except SYN, FIN and RST.
    pub zero_windows: u64,
    /// Times from data to its acknowledgement: one segment at a time, never a retransmission.
    pub rtt: Rtt,
    /// Retransmitted segments, by cause; the classes are disjoint.
    pub retransmitted: Retransmitted,
    /// Bytes of payload that had been seen before.
    pub retransmitted_bytes: u64,
    /// Segments of new bytes that arrived after later ones.
    pub out_of_order: u64,
    /// Copies of one packet, made by the network or a mirror port: same IPv4 identification as the previous packet.
    pub copies: u64,
    /// Acknowledgements that repeat the previous one while data is outstanding.
    pub duplicate_acks: u64,
    /// Keep-alives: at most one byte, just below the next sequence number.
    pub keep_alives: u64,
    /// Segments of one byte into a window of 0.
    pub window_probes: u64,
    /// Number of times that a segment began above the next sequence number.
    pub gaps: u64,
    /// Bytes never seen, though later ones were.
    pub gap_bytes: u64,
}

/// Retransmitted segments by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmitted {
    /// After a timeout: none of the other classes.
    pub timeout: u64,
    /// After duplicate acknowledgements.
    pub fast: u64,
    /// Although already acknowledged.
    pub spurious: u64,
    /// Not seen before, but long after later ones: lost before the sensor.
    pub unseen: u64,
}

impl Retransmitted {
    /// Returns their sum.
    pub fn segments(&self) -> u64 {
        self.timeout + self.fast + self.spurious + self.unseen
    }
}

/// Round-trip times, of one side of the sensor; measured in units of 1,024 ns, reported as ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rtt {
    /// Number of measurements.
    pub count: u64,
    /// Minimum, ns.
    pub min: u64,
    /// Maximum, ns.
    pub max: u64,
    /// Mean, ns.
    pub mean: f64,
    /// Standard deviation, ns.
    pub deviation: f64,
}

/// State of a connection, as in Zeek (conn.log, `conn_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// A SYN from the originator, no answer.
    S0,
    /// Established, not ended.
    S1,
    /// A FIN from both ends.
    Sf,
    /// The SYN was answered by RST; or RST from both ends, and no payload.
    Rej,
    /// A FIN only from the originator; the responder had answered its SYN.
    S2,
    /// A FIN only from the responder; the originator had sent a SYN.
    S3,
    /// Established, RST from the originator.
    Rsto,
    /// Established, RST from the responder.
    Rstr,
    /// A SYN and then RST from the originator, and no SYN from the responder.
    Rstos0,
    /// RST from the responder, and no SYN from the originator.
    Rstrh,
    /// A FIN from the originator, and no SYN from the responder.
    Sh,
    /// A FIN from the responder, and no SYN from the originator.
    Shr,
    /// None of the other states, as of a connection joined mid-stream and not ended.
    Oth,
}

impl ConnState {
    /// All states.
    pub const ALL: [ConnState; 13] = {
        use ConnState::*;
        [S0, S1, Sf, Rej, S2, S3, Rsto, Rstr, Rstos0, Rstrh, Sh, Shr, Oth]
    };

    /// Returns Zeek's name, which text and JSON use.
    pub fn name(self) -> &'static str {
        match self {
            ConnState::S0 => "S0",
            ConnState::S1 => "S1",
            ConnState::Sf => "SF",
            ConnState::Rej => "REJ",
            ConnState::S2 => "S2",
            ConnState::S3 => "S3",
            ConnState::Rsto => "RSTO",
            ConnState::Rstr => "RSTR",
            ConnState::Rstos0 => "RSTOS0",
            ConnState::Rstrh => "RSTRH",
            ConnState::Sh => "SH",
            ConnState::Shr => "SHR",
            ConnState::Oth => "OTH",
        }
    }
}

/// Letters of events, in the order in which each first occurred in each direction: `s` SYN, `h` SYN with ACK, `a` pure
/// ACK, `d` payload, `f` FIN, `r` RST, `c` wrong checksum, `g` gap, `t` payload retransmitted, `w` zero window, `i` FIN
/// with RST, `q` SYN with FIN or RST. Those of `c`, `g`, `t` and `w` are repeated at the 10th, 100th, 1,000th ...
/// occurrence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History(pub String);
