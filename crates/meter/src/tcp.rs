//! What a record says of TCP, from level `tcp` on; the definitions are in `docs/flows.md`.
//!
//! `segment` is what counts of a header; `connections` all flows, of which each has a `record`, whose usual packets it takes, `rare`
//! all others; `trouble` what few flows have; `history`, `state` what is told at the end.

mod connections;
mod history;
mod rare;
mod record;
mod segment;
mod state;
mod trouble;

pub(crate) use connections::{BYTES, Connections, RARE_BYTES, TROUBLE_BYTES};
pub(crate) use record::Record;
pub(crate) use segment::{Options, Segment};

/// Of a TCP flow.
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// How far the connection got.
    pub state: ConnState,
    /// What happened, a letter each, upper case from the originator: see [`History`].
    pub history: History,
    /// From the first SYN to the first SYN with ACK, ns: the way from the sensor to the responder and back.
    pub syn_to_syn_ack: Option<u64>,
    /// From the first SYN with ACK to the ACK that answers it, ns: the way from the sensor to the originator and back.
    pub syn_ack_to_ack: Option<u64>,
    /// Of the segments from the originator, and from the responder.
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
    /// The least and the greatest window announced, in bytes (scaled if both ends agreed to), of segments but SYN and RST;
    /// zeros where there was none.
    pub window: [u32; 2],
    /// Segments that announced a window of 0, but SYN, FIN and RST.
    pub zero_windows: u64,
    /// Times from data to its acknowledgement: one segment at a time, never one that was sent again.
    pub rtt: Rtt,
    /// Segments sent again, by why; they are disjoint.
    pub retransmitted: Retransmitted,
    /// Bytes of payload that had been seen before.
    pub retransmitted_bytes: u64,
    /// Segments of bytes not seen before that came behind later ones.
    pub out_of_order: u64,
    /// Copies of one packet, which the network or a mirror made: the IPv4 identification of the one before.
    pub copies: u64,
    /// Acknowledgements that repeat the one before while data is outstanding.
    pub duplicate_acks: u64,
    /// Keep-alives: at most one byte, right below what comes next.
    pub keep_alives: u64,
    /// Segments of one byte into a window of 0.
    pub window_probes: u64,
    /// Times a segment began beyond what came next.
    pub gaps: u64,
    /// Bytes never seen, though later ones were.
    pub gap_bytes: u64,
}

/// Segments sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retransmitted {
    /// After a silence: neither of the others.
    pub timeout: u64,
    /// After duplicate acknowledgements.
    pub fast: u64,
    /// Although acknowledged already.
    pub spurious: u64,
    /// Never seen here, but long after later ones: lost before the sensor.
    pub unseen: u64,
}

impl Retransmitted {
    /// All of them.
    pub fn segments(&self) -> u64 {
        self.timeout + self.fast + self.spurious + self.unseen
    }
}

/// Round-trip times, of one side of the sensor; in units of 1,024 ns, given as ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rtt {
    /// How many were measured.
    pub count: u64,
    /// The least, ns.
    pub min: u64,
    /// The greatest, ns.
    pub max: u64,
    /// Their mean, ns.
    pub mean: f64,
    /// Their standard deviation, ns.
    pub deviation: f64,
}

/// How far a connection got, in Zeek's words (conn.log, `conn_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ConnState {
    /// A SYN, and no answer.
    S0,
    /// Established, not ended.
    S1,
    /// Established and ended by FIN both ways.
    Sf,
    /// The SYN was answered by RST.
    Rej,
    /// Established, FIN from the originator alone.
    S2,
    /// Established, FIN from the responder alone.
    S3,
    /// Established, the first RST from the originator.
    Rsto,
    /// Established, the first RST from the responder.
    Rstr,
    /// A SYN and then RST from the originator, and no SYN with ACK.
    Rstos0,
    /// SYN with ACK and then RST from the responder, and no SYN seen.
    Rstrh,
    /// A SYN and then FIN from the originator, and no SYN with ACK.
    Sh,
    /// SYN with ACK and then FIN from the responder, and no SYN seen.
    Shr,
    /// No SYN: joined mid-stream, or none of the others.
    Oth,
}

impl ConnState {
    /// All there are.
    pub const ALL: [ConnState; 13] = {
        use ConnState::*;
        [S0, S1, Sf, Rej, S2, S3, Rsto, Rstr, Rstos0, Rstrh, Sh, Shr, Oth]
    };

    /// Zeek's name, which text and JSON use.
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

/// Letters of what happened, in the order in which each first did in each direction: `s` SYN, `h` SYN with ACK, `a` ACK
/// alone, `d` payload, `f` FIN, `r` RST, `c` wrong checksum, `g` gap, `t` payload sent again, `w` zero window, `i` FIN with RST, `q` SYN with
/// FIN or RST. Those of `c`, `g`, `t` and `w` stand again at the 10th, 100th, 1,000th ... time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History(pub String);
