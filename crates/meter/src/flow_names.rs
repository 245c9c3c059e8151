//! Names found in flows: first payload bytes are passed to the parsers, and their results are kept.
//!
//! Only packets with payload are examined, and only while a bit in the flow's own line requests it: until both
//! directions are identified, or after [`MOST_SEGMENTS`] or [`MOST_DATAGRAMS`]. A message that is complete in one
//! packet is parsed in place. An incomplete one is buffered (`pool`); results are stored once for all flows with the
//! same names (`name_table`). 16 bytes per flow refer to both.

mod name_table;
mod pool;

use self::name_table::NameTable;
use self::pool::{Pool, Source};
use crate::facts::{Facts, usual_headers};
use crate::key::Wide;
use crate::meter::Meter;
use crate::passive_dns::{DnsAnswer, Resolved};
use crate::record::SYN;
use linerate_burst::{Burst, Nanos, resident};
use linerate_headers::registry::{TCP, UDP};
use linerate_names::dns::Message;
use linerate_names::protocol::Reads;
use linerate_names::quic::{self, Keys, LEAST_DATAGRAM};
use linerate_names::tls::quic_client_hello;
use linerate_names::{FirstMessage, Names, ParseResult, Protocol, Protocols, Stream, protocol};
use std::sync::Arc;

/// Maximum number of packets with payload that are examined per flow: for TCP, and for UDP.
const MOST_SEGMENTS: u8 = 40;
const MOST_DATAGRAMS: u8 = 8;
/// Ports that identify a protocol.
const DNS: u16 = 53;
const SSH: u16 = 22;

/// Additional bytes per flow if names are configured.
pub(crate) const FLOW_BYTES: usize = size_of::<FlowState>();
const _: () = assert!(FLOW_BYTES == 16);
/// Maximum memory for buffers and results.
pub(crate) const BYTES: usize = pool::MOST_BYTES + name_table::MOST_BYTES + crate::passive_dns::BYTES;

/// Names of all flows.
pub(crate) struct FlowNames {
    wanted: Protocols,
    flows: Vec<FlowState>,
    book: NameTable,
    pool: Pool,
    resolved: Resolved,
}

/// Name state of one flow.
#[derive(Clone, Copy, Default)]
struct FlowState {
    /// Index into the book; 0 if nothing was found.
    names: u32,
    /// For TCP the sequence numbers of the first bytes, from the lower end and from the higher one. For DNS over UDP
    /// the id of the question, once there is one.
    begins: [u32; 2],
    /// Protocol, once it is identified.
    protocol: Option<Protocol>,
    /// Packets examined.
    looked: u8,
    /// `BEGUN`, `DONE`, `HELD`, shifted by the direction.
    state: u8,
}

/// The start of the stream is known; the direction is finished; it has a buffer.
const BEGUN: u8 = 1;
const DONE: u8 = 1 << 2;
const HELD: u8 = 1 << 4;

/// Position of a packet in the pipeline: its frame in the burst, and whether that is [`usual`](crate::facts::usual).
#[derive(Clone, Copy)]
pub(crate) struct Place(u32);

/// The frame is not usual.
const OTHER: u32 = 1 << 31;

impl Place {
    /// The frame is not available any more, or the packet is one of several fragments.
    pub(crate) const NOWHERE: Place = Place(u32::MAX);

    /// Position in a frame that is usual.
    #[inline(always)]
    pub(crate) fn usual(frame: usize) -> Place {
        Place(frame as u32)
    }

    /// Position in any frame.
    pub(crate) fn other(frame: usize) -> Place {
        Place(frame as u32 | OTHER)
    }

    /// Returns the captured payload and the sequence number of its first byte; `network` is the offset of the IP header
    /// in a frame that is not usual.
    fn payload<'a>(self, burst: Burst<'a>, facts: &Facts, network: u32) -> (&'a [u8], u32) {
        let frame = (self.0 & !OTHER) as usize;
        let bytes = if frame < burst.len() { burst.frame(frame) } else { &[] };
        let (network, sequence) = if self.0 & OTHER == 0 {
            let (network, transport) = usual_headers(bytes);
            let number = bytes.get(transport + 4..).and_then(|header| header.first_chunk());
            (network, number.map_or(0, |number| u32::from_be_bytes(*number)))
        } else {
            (network as usize, facts.segment.sequence)
        };
        let begin = network + facts.packet.saturating_sub(facts.payload) as usize;
        let bytes = bytes.get(begin..).unwrap_or_default();
        (&bytes[..bytes.len().min(facts.payload as usize)], sequence)
    }
}

impl FlowNames {
    /// Allocates memory for `max_flows` flows; `None` if no protocol is wanted.
    pub(crate) fn new(wanted: Protocols, max_flows: usize, key: [u64; 2]) -> Option<Self> {
        let names = || FlowNames {
            wanted,
            flows: resident(max_flows),
            book: NameTable::default(),
            pool: Pool::default(),
            resolved: Resolved::new(key),
        };
        (!wanted.is_empty()).then(names)
    }

    /// Returns how often results were discarded for lack of room, and how often buffers were evicted.
    pub(crate) fn full(&self) -> [u64; 2] {
        [self.book.full, self.pool.full]
    }

    /// Starts a flow with a packet; `before` has the names of the previous record. Returns whether payload is to be
    /// examined.
    pub(crate) fn begin(&mut self, record: u32, facts: &Facts, wide: &Wide, before: Option<Arc<Names>>) -> bool {
        let place = record as usize;
        if place >= self.flows.len() {
            self.flows.resize(place + 1, FlowState::default());
        }
        let is_known = before.is_some();
        let before = before.or_else(|| self.resolve(facts, wide).map(Arc::new));
        let names = before.map_or(0, |names| self.book.insert(names));
        self.flows[place] = FlowState { names, ..FlowState::default() };
        let has = |protocol| self.wanted.has(protocol);
        !is_known
            && match facts.words.protocol() {
                TCP => [Protocol::Tls, Protocol::Dns, Protocol::Http, Protocol::Ssh].into_iter().any(has),
                UDP => has(Protocol::Quic) || has(Protocol::Dns),
                _ => false,
            }
    }

    /// Returns the names found in a flow so far.
    pub(crate) fn of(&self, record: u32) -> Option<Arc<Names>> {
        self.book.get(self.flows.get(record as usize)?.names)
    }

    /// Ends a flow: returns its names and drops its buffers.
    pub(crate) fn end(&mut self, record: u32) -> Option<Arc<Names>> {
        self.flows.get(record as usize)?;
        [0, 1].into_iter().for_each(|side| self.drop_buffer(record, side));
        let flow = std::mem::take(self.flows.get_mut(record as usize)?);
        let names = self.book.get(flow.names);
        self.book.release(flow.names);
        names
    }

    /// Examines a packet of a flow; returns whether more packets are to be examined.
    #[inline(never)]
    pub(crate) fn take(
        &mut self,
        record: u32,
        facts: &Facts,
        (place, network): (Place, u32),
        burst: Burst<'_>,
    ) -> bool {
        let is_tcp = facts.words.protocol() == TCP;
        if is_tcp && !facts.has_segment {
            // The header is truncated.
            return true;
        }
        let (bytes, sequence) = place.payload(burst, facts, network);
        let Some(flow) = self.flows.get_mut(record as usize) else { return false };
        if facts.payload > 0 {
            flow.looked = flow.looked.saturating_add(1);
        }
        let ports = [facts.words.rest as u16, (facts.words.rest >> 16) as u16];
        let is_wanted = if is_tcp {
            let is_over = flow.looked >= MOST_SEGMENTS;
            self.take_segment(record, facts, ports, (bytes, sequence)) && !is_over
        } else {
            let is_over = flow.looked >= MOST_DATAGRAMS;
            let is_wanted = if ports.contains(&DNS) {
                self.take_dns(record, bytes)
            } else {
                self.take_quic(record, facts.sides()[0], bytes)
            };
            is_wanted && !is_over
        };
        if !is_wanted {
            [0, 1].into_iter().for_each(|side| self.drop_buffer(record, side));
        }
        is_wanted
    }

    fn take_segment(
        &mut self,
        record: u32,
        facts: &Facts,
        ports: [u16; 2],
        (bytes, mut sequence): (&[u8], u32),
    ) -> bool {
        let [side, other] = facts.sides();
        let flow = &mut self.flows[record as usize];
        if facts.flags & SYN != 0 {
            sequence = sequence.wrapping_add(1);
            // Another number is another attempt; nothing was read from the first one.
            if flow.state & (HELD | DONE) << side == 0 {
                flow.begins[side] = sequence;
                flow.state |= BEGUN << side;
            }
        }
        if bytes.is_empty() || flow.state & DONE << side != 0 {
            return true;
        }
        if flow.state & BEGUN << side == 0 {
            flow.begins[side] = sequence;
            flow.state |= BEGUN << side;
        }
        let offset = sequence.wrapping_sub(flow.begins[side]) as i32;
        // Bytes before the first one are a probe or a retransmission.
        let Some(bytes) = bytes.get(offset.min(0).unsigned_abs() as usize..) else { return true };
        let (offset, known, mut first) = (offset.max(0) as usize, known(flow, ports), Reads::default());
        let held = if flow.state & HELD << side == 0 { None } else { self.pool.put(record, side, offset, bytes) };
        let (stream, reads) = held.unwrap_or((if offset == 0 { bytes } else { &[] }, &mut first));
        let read = match reads.is_due(stream, known) {
            _ if offset >= Stream::MOST => ParseResult::Never,
            true => read(stream, known, ports, self.wanted),
            false => ParseResult::More,
        };
        let is_more = matches!(read, ParseResult::More | ParseResult::Part(_));
        if let ParseResult::Done(found) | ParseResult::Part(found) = read {
            self.flows[record as usize].protocol = Some(found.protocol());
            self.add(record, |names| names.add(found, side));
        }
        if is_more {
            self.hold(record, side, (offset, bytes), Source::Tcp(ports, first));
        } else {
            self.drop_buffer(record, side);
            self.flows[record as usize].state |= DONE << side;
        }
        self.flows[record as usize].state & DONE << side == 0 || self.flows[record as usize].state & DONE << other == 0
    }

    /// Reads the first question and its answer, matched by id.
    fn take_dns(&mut self, record: u32, bytes: &[u8]) -> bool {
        if !self.wanted.has(Protocol::Dns) {
            return false;
        }
        let Some(message) = Message::parse(bytes) else { return true };
        let [question, is_known] = self.flows[record as usize].begins;
        let (id, is_answer) = (u32::from(message.id), message.is_answer);
        if is_known != 0 && (!is_answer || question != id) {
            return true;
        }
        self.flows[record as usize].begins = [id, 1];
        self.add(record, |names| names.add(FirstMessage::Dns(message), 0));
        !is_answer
    }

    /// Reads Initial packets of a client, as far as they can be decrypted.
    fn take_quic(&mut self, record: u32, side: usize, bytes: &[u8]) -> bool {
        if !self.wanted.has(Protocol::Quic) {
            return false;
        }
        let Some((version, own)) = quic::initial(bytes).filter(|_| bytes.len() >= LEAST_DATAGRAM) else { return true };
        // The keys stay those of the first packet, except after a Retry.
        let is_held = self.flows[record as usize].state & HELD << side != 0;
        let first = if is_held { self.pool.id(record, side) } else { None };
        let mut stream = Stream::default();
        let opened = [first, Some(own)].into_iter().flatten().find(|id| {
            Keys::new(version, id).is_some_and(|keys| match self.pool.stream(record, side).filter(|_| is_held) {
                Some(stream) => quic::open(bytes, &keys, stream),
                None => quic::open(bytes, &keys, &mut stream),
            })
        });
        let Some(id) = opened else { return true };
        self.pool.settle(record, side);
        let held = self.pool.stream(record, side).filter(|_| is_held);
        let read = quic_client_hello(held.map_or(stream.ready(), |stream| stream.ready()));
        let is_more = read == ParseResult::More;
        if let ParseResult::Done(hello) = read {
            self.add(record, |names| {
                names.quic = Some(version);
                names.add(FirstMessage::ClientHello(hello), side);
            });
        }
        if is_more && !is_held {
            self.pool.keep(record, side, stream, Source::Quic(id));
            self.flows[record as usize].state |= HELD << side;
            self.evict();
        }
        is_more
    }

    /// Returns the name by which either end resolved the other's address. The originator may be identified later.
    fn resolve(&mut self, facts: &Facts, wide: &Wide) -> Option<Names> {
        if !self.wanted.has(Protocol::Dns) || !matches!(facts.words.protocol(), TCP | UDP) {
            return None;
        }
        let ends = facts.words.both_ends(wide).map(|end| end.address);
        let resolved = self.resolved.names(ends, Nanos(facts.time));
        resolved.iter().any(Option::is_some).then(|| Names { resolved, ..Names::default() })
    }

    /// Adds a DNS answer that arrived in a frame before those that are taken next.
    pub(crate) fn add_dns_answer(&mut self, answer: DnsAnswer) {
        self.resolved.add_dns_answer(answer);
    }

    /// Stores names of a flow.
    fn add(&mut self, record: u32, add: impl FnOnce(&mut Names)) {
        let place = self.flows[record as usize].names;
        let mut names = self.book.get(place).map_or_else(Names::default, |names| (*names).clone());
        add(&mut names);
        self.flows[record as usize].names = self.book.replace(place, names);
    }

    /// Buffers bytes until more arrive.
    fn hold(&mut self, record: u32, side: usize, (offset, bytes): (usize, &[u8]), source: Source) {
        if self.flows[record as usize].state & HELD << side == 0 {
            let mut stream = Stream::default();
            stream.put(offset, bytes);
            self.pool.keep(record, side, stream, source);
            self.flows[record as usize].state |= HELD << side;
        }
        self.evict();
    }

    /// Evicts the oldest buffers until there is room.
    fn evict(&mut self) {
        while let Some((record, side)) = self.pool.evict() {
            self.drop_buffer(record, side);
            self.flows[record as usize].state |= DONE << side;
        }
    }

    /// Drops the buffer of a direction, after a last attempt to read bytes that were not read yet.
    fn drop_buffer(&mut self, record: u32, side: usize) {
        let flow = &mut self.flows[record as usize];
        if flow.state & HELD << side == 0 {
            return;
        }
        flow.state &= !(HELD << side);
        let unread = self.pool.tcp(record, side).filter(|(stream, _, reads)| reads.is_unread(stream));
        let last = unread.map(|(stream, ports, _)| read(stream, known(flow, ports), ports, self.wanted));
        if let Some(ParseResult::Done(found) | ParseResult::Part(found)) = last {
            flow.protocol = Some(found.protocol());
            self.add(record, |names| names.add(found, side));
        }
        self.pool.drop(record, side);
    }
}

impl Meter {
    /// Looks for names in a packet that was counted, while they are wanted.
    #[inline(always)]
    pub(crate) fn read_names(&mut self, record: u32, facts: &Facts, place: (Place, u32), burst: Burst<'_>) {
        let Some(names) = &mut self.names else { return };
        let hot = &mut self.hot[record as usize];
        let is_looked_at = hot.wants_name() && (facts.payload > 0 || facts.flags & SYN != 0);
        if is_looked_at && !names.take(record, facts, place, burst) {
            hot.want_name(false);
        }
    }
}

/// Returns the protocol of a flow, if it is known.
fn known(flow: &FlowState, ports: [u16; 2]) -> Option<Protocol> {
    flow.protocol.or(ports.contains(&DNS).then_some(Protocol::Dns))
}

/// Reads the start of a direction; SSH servers may send a banner first, at the SSH port.
fn read(stream: &[u8], known: Option<Protocol>, ports: [u16; 2], wanted: Protocols) -> ParseResult<FirstMessage> {
    match protocol::read(stream, known, wanted) {
        ParseResult::Never if known.is_none() && ports.contains(&SSH) => {
            protocol::read(stream, Some(Protocol::Ssh), wanted)
        }
        read => read,
    }
}
