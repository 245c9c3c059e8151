//! The receiving end of TCP connections, without I/O.
//!
//! [`Endpoint::receive`] is given frames and the time, and puts the bytes of streams to their [`Place`], each once, in order or not;
//! [`Endpoint::frames`] are what to send: acknowledgements, beginnings and ends of connections. It sends no data, so that much of TCP
//! is not needed: no congestion control, no round-trip times, and one number alone that the other end may acknowledge.
//!
//! What is done clause by clause of RFC 9293 (TCP), 7323 (windows beyond 64 KiB, timestamps), 2018 and 2883 (selective
//! acknowledgements), 5681 (when to acknowledge), 5961 (what a stranger may not do), 6528 (sequence numbers) and 4987 (floods), and which test
//! shows it, is in `docs/tcp.md`.
//!
//! - `segment`: a frame as a segment; nothing behind it sees a length that lies, or a wrong checksum;
//! - `fast`: the segment that was expected; `arrive`: all others of a connection; `stranger`: those of none;
//! - `connection`: what is known of one, `table`: all of them, `timers`: when something is due;
//! - `acks`: when something is said, `template` and `outbox`: how.
//!
//! # What memory it takes
//! At most `connections + backlog` times half a KiB, and 16 bytes a gap; half a MiB for what is to be sent.

mod acks;
mod arrive;
mod config;
mod connection;
mod counts;
mod fast;
mod options;
mod outbox;
mod secret;
mod segment;
mod stranger;
mod table;
mod template;
mod timers;

pub use self::config::{AckPolicy, BadConfig, Config, Local, MOST_WINDOW};

use self::counts::Counts;
use self::outbox::Outbox;
use self::secret::Secret;
use self::segment::{Own, Refusal, Segment};
use self::table::Table;
use self::timers::Timers;
use crate::place::{Place, StreamId};
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_wire::Link;

/// A frame that has come.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The frame from its link header on, as far as it lies here.
    pub headers: &'a [u8],
    /// So many bytes behind it were read elsewhere: [`Payload::Read`](crate::place::Payload::Read) from 0. If there are none, the
    /// whole frame is in `headers`.
    pub rest: usize,
    /// What it begins with: an Ethernet header with up to two VLAN tags, or an IP header. Frames of others are nobody's here.
    pub link: Link,
    /// What is known of its checksum.
    pub checksum: Checksum,
    /// When it came, or a little later. Time does not have to be exact, but to go on.
    pub now: Nanos,
}

/// What is known of the checksum of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Nothing.
    Verify,
    /// It was found right, or the host itself sent the segment and left the checksum to hardware.
    Trusted,
    /// The ones' complement sum (not inverted) of the bytes that were read elsewhere.
    Rest(u16),
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// It was for this endpoint, and is dealt with, taken or not.
    Taken,
    /// It is no TCP segment to one of the own addresses.
    NotMine,
    /// Nothing was done yet: it is to come again in one piece. Its payload was read elsewhere, and does not begin there; or the bytes
    /// are needed, as their checksum is not known.
    Gather,
}

/// Where the next segment will belong, if it is as the last one was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The stream that brought data last.
    pub stream: StreamId,
    /// The offset of its next byte.
    pub next: u64,
    /// Where the gap before it ends, if there is one.
    pub gap: Option<u64>,
    /// Bytes in front of the payload in its last segment: link, IP and TCP headers.
    pub headers: usize,
}

/// The end of TCP connections that receives.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    own: Own,
    secret: Secret,
    table: Table,
    timers: Timers,
    outbox: Outbox,
    counts: Counts,
    /// Connections that the burst has touched.
    touched: Vec<u32>,
    /// The connection of the last segment.
    last: u32,
    /// That of the last data, and how long the headers in front of it were.
    last_data: (u32, usize),
    streams: u32,
    half_open: usize,
    /// When a cookie was sent last.
    cookie_at: Option<Nanos>,
}

impl Endpoint {
    /// An endpoint for these addresses.
    ///
    /// # Errors
    /// If the configuration makes no sense.
    pub fn new(config: Config) -> Result<Endpoint, BadConfig> {
        config.check()?;
        let secret = Secret::new(config.secret);
        Ok(Endpoint {
            own: Own::new(&config),
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

    /// Takes a frame. What is in it is not trusted: every length and checksum is looked at.
    #[inline]
    pub fn receive(&mut self, arrival: &Arrival<'_>, place: &mut impl Place) -> Heard {
        match segment::read(arrival, &self.own) {
            Ok(segment) => {
                self.counts[Count::TcpReceived] += 1;
                let outcome = match self.connection_of(&segment) {
                    Some(slot) if self.expected_came(slot, &segment, arrival.now, place) => Count::TcpTaken,
                    Some(slot) => self.arrive(slot, &segment, arrival.now, place),
                    None => self.stranger(&segment, arrival.now, place),
                };
                self.counts[outcome] += 1;
                Heard::Taken
            }
            Err(refusal) => self.refuse(refusal),
        }
    }

    /// What is to be sent, oldest first, until [`Endpoint::clear`]: whole frames, with link headers and checksums.
    pub fn frames(&self) -> Burst<'_> {
        self.outbox.frames()
    }

    /// Forgets what was to be sent, of which the port did not take the last `unsent`: what these said is said again.
    pub fn clear(&mut self, unsent: usize) {
        self.counts[Count::TcpUnsent] += unsent as u64;
        let Endpoint { outbox, table, touched, .. } = self;
        for slot in outbox.clear(unsent).flatten() {
            if let Some(connection) = table.get_mut(slot) {
                connection.due = connection::Due::Now;
                connection.touch(slot, touched);
            }
        }
    }

    /// Where the next segment will belong, if it is as the last one was: for whoever has payload read straight to its place.
    #[inline]
    pub fn expected(&self) -> Option<Expected> {
        let (slot, headers) = self.last_data;
        let connection =
            self.table.get(slot).filter(|connection| connection.state == connection::State::Established)?;
        let ranges = &connection.ranges;
        Some(Expected { stream: connection.stream, next: ranges.edge(), gap: ranges.gap_end(), headers })
    }

    /// How many connections there are, half open ones included.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Whether a connection waits for the acknowledgement of its FIN (LAST-ACK, RFC 9293 section 3.3.2).
    pub fn is_closing(&self) -> bool {
        let is_last = |slot| self.table.get(slot).is_some_and(|one| one.state == connection::State::LastAck);
        self.table.slots().into_iter().any(is_last)
    }

    /// How many streams have begun.
    pub fn streams(&self) -> u64 {
        self.streams.into()
    }

    /// Whether there is none, and nothing to send.
    pub fn is_idle(&self) -> bool {
        self.table.len() == 0 && self.outbox.frames().is_empty()
    }

    /// Adds what was counted so far to an account of `Stage::Tcp`.
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
    fn refuse(&mut self, refusal: Refusal) -> Heard {
        let (count, heard) = match refusal {
            Refusal::Gather => {
                self.counts[Count::TcpGathered] += 1;
                return Heard::Gather;
            }
            Refusal::NotMine => (Count::TcpNotMine, Heard::NotMine),
            Refusal::Drop(count) => (count, Heard::Taken),
        };
        self.counts[Count::TcpReceived] += 1;
        self.counts[count] += 1;
        heard
    }
}
