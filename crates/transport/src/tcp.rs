//! The receiving end of TCP connections, without I/O.
//!
//! [`Endpoint::receive`] takes frames and the time, and stores the bytes of streams in their [`Place`], each once, in
//! order or not; [`Endpoint::frames`] are the segments to send: ACKs, SYNs, FINs and RSTs. It sends no data and
//! therefore omits large parts of TCP: no congestion control, no round-trip times, and only one sequence number that
//! the peer may acknowledge.
//!
//! `docs/tcp.md` lists, clause by clause, what is implemented of RFC 9293 (TCP), 7323 (window scale, timestamps), 2018
//! and 2883 (SACK, D-SACK), 5681 (when to acknowledge), 5961 (blind attacks), 6528 (sequence numbers) and 4987 (SYN
//! floods), and which test shows it.
//!
//! - `segment`: parses a frame into a segment; later stages never see a wrong length or checksum;
//! - `fast_path`: the expected segment; `slow_path`: other segments of a connection; `handshake`: segments of no connection;
//! - `connection`: state of a connection, `table`: all connections, `timers`: their deadlines;
//! - `acks`: when to send, `template` and `outbox`: how.
//!
//! # Memory
//! At most half a KiB per connection (`connections + backlog`), and 16 bytes per gap; half a MiB for segments to send.

mod acks;
mod config;
mod connection;
mod counts;
mod fast_path;
mod handshake;
mod options;
mod outbox;
mod secret;
mod segment;
mod slow_path;
mod table;
mod template;
mod timers;

pub use self::config::{AckPolicy, BadConfig, Config, Local, MOST_WINDOW};

use self::counts::Counts;
use self::outbox::Outbox;
use self::secret::Secret;
use self::segment::{LocalAddresses, Refusal, Segment};
use self::table::Table;
use self::timers::Timers;
use crate::stream_memory::{Place, StreamId};
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_headers::Link;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The frame from its link header, as far as it is in memory here.
    pub headers: &'a [u8],
    /// Number of bytes after `headers` that were read elsewhere: [`Payload::Read`](crate::stream_memory::Payload::Read) from
    /// 0. With 0, the whole frame is in `headers`.
    pub rest: usize,
    /// The first header: Ethernet with up to two VLAN tags, or IP. Frames of other link types are not for this
    /// endpoint.
    pub link: Link,
    /// State of its checksum.
    pub checksum: Checksum,
    /// Time of arrival, or a little later. It does not have to be exact, but must not go backwards.
    pub now: Nanos,
}

/// State of a segment's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Unknown: verify it.
    Verify,
    /// Verified by the interface, or the host itself sent the segment and left the checksum to hardware.
    Trusted,
    /// The ones' complement sum (not inverted) of the bytes that were read elsewhere.
    Rest(u16),
}

/// Result of [`Endpoint::receive`] for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// The frame was for this endpoint and has been processed, accepted or not.
    Taken,
    /// Not a TCP segment to a local address.
    NotMine,
    /// Not processed: pass it again in one piece. Its payload was read elsewhere and does not begin there, or the
    /// bytes are needed to verify the checksum.
    Gather,
}

/// Prediction of where the next segment belongs, if it continues the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextSegment {
    /// The stream that received data last.
    pub stream: StreamId,
    /// Offset of its next byte.
    pub next: u64,
    /// End of the gap before it, if any.
    pub gap: Option<u64>,
    /// Length of link, IP and TCP headers before the payload of its last segment.
    pub headers: usize,
}

/// Receiving end of TCP connections.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    own: LocalAddresses,
    secret: Secret,
    table: Table,
    timers: Timers,
    outbox: Outbox,
    counts: Counts,
    /// Connections touched by the current burst.
    touched: Vec<u32>,
    /// The connection of the last segment.
    last: u32,
    /// Connection of the last data, and the length of the headers before it.
    last_data: (u32, usize),
    streams: u32,
    half_open: usize,
    /// Time at which the last SYN cookie was sent.
    cookie_at: Option<Nanos>,
}

impl Endpoint {
    /// Returns an endpoint for the addresses of `config`.
    ///
    /// # Errors
    /// If the configuration is invalid.
    pub fn new(config: Config) -> Result<Endpoint, BadConfig> {
        config.check()?;
        let secret = Secret::new(config.secret);
        Ok(Endpoint {
            own: LocalAddresses::new(&config),
            secret,
            table: Table::new(secret),
            timers: Timers::default(),
            outbox: Outbox::new(),
            counts: Counts::new(),
            touched: Vec::new(),
            last: u32::MAX,
            last_data: (u32::MAX, 0),
            streams: 0,
            half_open: 0,
            cookie_at: None,
            config,
        })
    }

    /// Processes a frame. Its content is not trusted: every length and checksum is verified.
    #[inline]
    pub fn receive(&mut self, arrival: &Arrival<'_>, place: &mut impl Place) -> ReceiveOutcome {
        match segment::read(arrival, &self.own) {
            Ok(segment) => {
                self.counts[Count::TcpReceived] += 1;
                let outcome = match self.connection_of(&segment) {
                    Some(slot) if self.receive_expected(slot, &segment, arrival.now, place) => Count::TcpTaken,
                    Some(slot) => self.arrive(slot, &segment, arrival.now, place),
                    None => self.receive_unknown(&segment, arrival.now, place),
                };
                self.counts[outcome] += 1;
                ReceiveOutcome::Taken
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// Returns the frames to send, oldest first, until [`Endpoint::clear`]: whole frames, with link headers and
    /// checksums.
    pub fn frames(&self) -> Burst<'_> {
        self.outbox.frames()
    }

    /// Removes the frames to send, of which the port did not accept the last `unsent`: their ACKs become due again.
    pub fn clear(&mut self, unsent: usize) {
        self.counts[Count::TcpUnsent] += unsent as u64;
        let Endpoint { outbox, table, touched, .. } = self;
        for slot in outbox.clear(unsent).flatten() {
            if let Some(connection) = table.get_mut(slot) {
                connection.due = connection::AckUrgency::Now;
                connection.touch(slot, touched);
            }
        }
    }

    /// Predicts where the next segment belongs, for callers that read payload straight to its place.
    #[inline]
    pub fn expected(&self) -> Option<NextSegment> {
        let (slot, headers) = self.last_data;
        let connection =
            self.table.get(slot).filter(|connection| connection.state == connection::State::Established)?;
        let ranges = &connection.ranges;
        Some(NextSegment { stream: connection.stream, next: ranges.edge(), gap: ranges.gap_end(), headers })
    }

    /// Returns the number of connections, half-open ones included.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Returns whether a connection waits for the acknowledgement of its FIN (LAST-ACK, RFC 9293 section 3.3.2).
    pub fn is_closing(&self) -> bool {
        let is_last = |slot| self.table.get(slot).is_some_and(|one| one.state == connection::State::LastAck);
        self.table.slots().into_iter().any(is_last)
    }

    /// Returns the number of streams started.
    pub fn streams(&self) -> u64 {
        self.streams.into()
    }

    /// Returns whether there are neither connections nor frames to send.
    pub fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.outbox.frames().is_empty()
    }

    /// Adds the counters to an account of `Stage::Tcp`.
    pub fn counters(&self, account: &mut Account) {
        self.counts.add_to(account);
    }

    #[inline]
    fn connection_of(&mut self, segment: &Segment<'_>) -> Option<u32> {
        if self.table.get(self.last).is_some_and(|connection| connection.key == segment.key) {
            return Some(self.last);
        }
        let slot = self.table.find(&segment.key)?;
        self.last = slot;
        Some(slot)
    }

    #[cold]
    fn refuse(&mut self, refusal: Refusal) -> ReceiveOutcome {
        let (count, heard) = match refusal {
            Refusal::Gather => {
                self.counts[Count::TcpGathered] += 1;
                return ReceiveOutcome::Gather;
            }
            Refusal::NotMine => (Count::TcpOtherAddress, ReceiveOutcome::NotMine),
            Refusal::Drop(count) => (count, ReceiveOutcome::Taken),
        };
        self.counts[Count::TcpReceived] += 1;
        self.counts[count] += 1;
        heard
    }
}
