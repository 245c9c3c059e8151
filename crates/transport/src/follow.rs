//! Passive reassembly of TCP streams in captured traffic.
//!
//! Input is frames with timestamps; output is bytes in order, each once, and gaps. Nothing can be requested again:
//! bytes that were not captured are a gap, given up after the receiver has acknowledged data beyond it for a while,
//! under memory pressure, or at the end.
//!
//! - `segment`: parses frames;
//! - `table`: connections, and the order of their eviction;
//! - `generations`: which of the connections between the same endpoints a segment belongs to;
//! - `side`: one direction; `pending`: bytes waiting beyond a gap; [`Overlap`]: policy for overlapping segments that
//!   differ;
//! - `clock`: packet time.
//!
//! # Heuristics
//!
//! A connection starts with a SYN, or midstream with the first segment seen, unless that is a RST. A SYN with another
//! sequence number starts another connection. Such a SYN may be stale or forged, so the previous connection stays, and
//! each segment goes to the one of the two that its numbers fit: `generations`. A connection ends when both sides have
//! closed it, or when one has reset it and sends no more; segments within a minute afterwards (mostly retransmissions)
//! still belong to it. Offsets count from the byte after the SYN, or from the first one seen. A segment more than a
//! window (1 GiB) away from all that is known is ignored, until sixteen in a row are. Payload of a RST and bytes after
//! a FIN are not part of the stream. Bytes already output are final: an overlap policy chooses only among those that
//! wait.
//!
//! # Memory
//!
//! The number of connections is bounded, and the bytes that wait, per stream and in total. With too many connections
//! the ended ones are evicted first, then those without data, then the least recently active. If too much waits, the
//! oldest gap is given up.

mod clock;
mod contract;
mod generations;
mod overlap;
mod pending;
mod segment;
mod side;
mod table;

pub use self::contract::{Config, Counts, Ending, FollowOutcome, Output, StartEvidence, StreamInfo, StreamSummary};
pub use self::overlap::Overlap;
pub use self::side::Tally;

use self::clock::{Clock, Correction};
use self::segment::{ParseOutcome, Segment, look};
use self::side::{GAP, Side};
use self::table::{List, Table};
use crate::stream_memory::{Ends, StreamId};
use linerate_burst::{Desc, Nanos};
use linerate_headers::{Layers, Link, tcp};
use std::collections::VecDeque;
use std::time::Duration;

/// Time that an ended connection is remembered, and that one may have no data.
const LINGER: Duration = Duration::from_secs(60);
/// Gaps and connections examined at a time.
const LOOKS: usize = 64;
/// Number of frames between checks of the connections.
const EVERY: u32 = 64;

/// Reassembles the streams of captured frames.
#[derive(Debug)]
pub struct Follow {
    config: Config,
    table: Table,
    clock: Clock,
    layers: Layers,
    memory: usize,
    /// Part of `memory` used by lists of gaps.
    listed: usize,
    streams: u32,
    frames: u32,
    /// Streams with gaps, by the time of the last check.
    waiting: VecDeque<PendingGap>,
    counts: Counts,
}

#[derive(Clone, Copy, Debug)]
struct PendingGap {
    place: u32,
    number: u64,
    side: usize,
    since: Nanos,
    /// Acknowledged edge at that time.
    acked: u64,
}

/// State needed to output bytes.
struct Context<'a, O> {
    out: &'a mut O,
    config: &'a Config,
    memory: &'a mut usize,
    listed: &'a mut usize,
    streams: &'a mut u32,
    time: Nanos,
    ends: Ends,
    number: u64,
    is_inner: bool,
    is_taken: bool,
}

impl<O: Output> Context<'_, O> {
    /// Returns the number of a stream; starts it if it has none.
    #[inline]
    fn stream(&mut self, side: &mut Side) -> StreamId {
        side.stream.unwrap_or_else(|| {
            let stream = StreamId(*self.streams);
            *self.streams = self.streams.wrapping_add(1);
            side.stream = Some(stream);
            let (connection, ends, is_inner) = (self.number, self.ends, self.is_inner);
            self.out.begin(&StreamInfo { stream, connection, ends, is_inner, began: side.began }, self.time);
            stream
        })
    }
}

impl Follow {
    /// Returns an empty reassembler.
    pub fn new(config: Config) -> Self {
        Follow {
            config,
            table: Table::default(),
            clock: Clock::default(),
            layers: Layers::new(),
            memory: 0,
            listed: 0,
            streams: 0,
            frames: 0,
            waiting: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> Counts {
        Counts { connections: self.table.begun(), streams: self.streams.into(), ..self.counts }
    }

    /// Returns the memory used by waiting bytes, lists of gaps included.
    pub fn held(&self) -> usize {
        self.memory
    }

    /// Processes a frame.
    pub fn take(&mut self, link: Link, desc: &Desc, frame: &[u8], out: &mut impl Output) -> FollowOutcome {
        if let Some(correction) = self.clock.advance(desc.time) {
            self.correct(correction);
        }
        let found = look(link, desc, frame, self.config.checksums, &mut self.layers);
        let taken = match &found {
            ParseOutcome::Segment(segment) => match self.segment(segment, out) {
                true => FollowOutcome::Followed,
                false => FollowOutcome::Unwritten,
            },
            ParseOutcome::NotTcp => FollowOutcome::NotTcp,
            ParseOutcome::Malformed => FollowOutcome::Malformed,
            ParseOutcome::Fragment => FollowOutcome::Fragment,
            ParseOutcome::BadChecksum => FollowOutcome::BadChecksum,
        };
        self.frames = self.frames.wrapping_add(1);
        if !self.waiting.is_empty() || self.frames.is_multiple_of(EVERY) {
            self.process_due(out);
        }
        taken
    }

    /// Advances the time while no frames arrive: none older than `now` will follow.
    pub fn pause(&mut self, now: Nanos, out: &mut impl Output) {
        self.clock.pause(now);
        self.expire_gaps(out);
        self.expire_connections(out);
    }

    /// Ends all streams.
    pub fn finish(&mut self, out: &mut impl Output) {
        // The last frame gives the time, even if no others confirm it.
        let now = self.clock.own();
        for place in self.table.all() {
            let is_silent = |connection: &table::Connection| now.since(connection.seen) > self.config.idle;
            let ending = if self.table.get(place).is_some_and(is_silent) { Ending::Silent } else { Ending::Stopped };
            self.end(place, ending, out);
        }
    }

    /// Corrects unconfirmed timestamps. State touched since then is at the ends of its lists.
    #[cold]
    fn correct(&mut self, correction: Correction) {
        let Correction { above, most } = correction;
        let in_doubt = self.waiting.iter_mut().rev().take_while(|waiting| waiting.since > above);
        in_doubt.for_each(|waiting| waiting.since = waiting.since.min(most));
        self.table.correct(above, most);
    }

    fn segment(&mut self, segment: &Segment<'_>, out: &mut impl Output) -> bool {
        let Some(place) = self.place_of(segment, out) else { return true };
        let own = self.clock.own();
        let Follow { table, config, memory, listed, streams, waiting, .. } = self;
        let Some(connection) = table.get_mut(place) else { return true };
        let (key, number) = (&connection.key, connection.number);
        let [from, to] = [segment.side, 1 - segment.side];
        let mut context = Context {
            out,
            config,
            memory,
            listed,
            streams,
            time: segment.time,
            ends: Ends { from: key.end(from), to: key.end(to) },
            number,
            is_inner: key.is_inner(),
            is_taken: true,
        };
        apply(connection, segment, &mut context);
        let (is_taken, side) = (context.is_taken, &mut connection.sides[from]);
        if side.is_waiting() && !side.is_queued {
            side.is_queued = true;
            waiting.push_back(PendingGap { place, number, side: from, since: own, acked: side.acked() });
        }
        let list = connection.state();
        self.counts.most_memory = self.counts.most_memory.max(self.memory);
        self.table.touch(place, list, own);
        is_taken
    }

    /// Returns the connection of a segment, a new one if needed; `None` if the segment does not justify one.
    fn place_of(&mut self, segment: &Segment<'_>, out: &mut impl Output) -> Option<u32> {
        if let Some(place) = self.table.choose(segment) {
            return Some(place);
        }
        // A RST starts no connection, whatever its other flags.
        if segment.has(tcp::Flags::RST) {
            return None;
        }
        if let Some(one_too_many) = self.table.least_of(&segment.key) {
            self.end(one_too_many, Ending::Reused, out);
        }
        while self.table.len() >= self.config.connections.max(1) {
            let lists = [List::Closed, List::Fresh, List::Open];
            let oldest = lists.into_iter().find_map(|list| Some((list, self.table.oldest(list)?)));
            let Some((list, oldest)) = oldest else { break };
            self.counts.evicted += u64::from(list == List::Open);
            self.end(oldest, Ending::Evicted, out);
        }
        let place = self.table.add(segment.key, self.clock.own());
        self.counts.most_connections = self.counts.most_connections.max(self.table.len() as u64);
        Some(place)
    }

    /// Gives up gaps and ends connections, by timeouts and memory limits.
    #[inline]
    fn process_due(&mut self, out: &mut impl Output) {
        while self.memory > self.config.memory
            && let Some(waiting) = self.waiting.pop_front()
        {
            self.check_gap(waiting, true, out);
        }
        self.expire_gaps(out);
        if self.frames.is_multiple_of(EVERY) {
            self.expire_connections(out);
        }
    }

    fn expire_gaps(&mut self, out: &mut impl Output) {
        let now = self.clock.now();
        for _ in 0..LOOKS {
            let is_due = |waiting: &PendingGap| now.since(waiting.since) >= self.config.patience;
            let Some(waiting) = self.waiting.front().copied().filter(is_due) else { break };
            self.waiting.pop_front();
            self.check_gap(waiting, false, out);
        }
    }

    fn expire_connections(&mut self, out: &mut impl Output) {
        let now = self.clock.now();
        for (list, span) in [(List::Closed, LINGER), (List::Fresh, LINGER), (List::Open, self.config.idle)] {
            for _ in 0..LOOKS {
                let Some(place) = self.table.oldest(list) else { break };
                if self.table.get(place).is_none_or(|oldest| now.since(oldest.seen) <= span) {
                    break;
                }
                self.end(place, Ending::Silent, out);
            }
        }
    }

    /// Gives up the first gap of a stream, if its receiver has acknowledged it or `is_need`.
    fn check_gap(&mut self, waiting: PendingGap, is_need: bool, out: &mut impl Output) {
        let PendingGap { place, number, side, acked, .. } = waiting;
        let Some(connection) = self.table.get_mut(place).filter(|connection| connection.number == number) else {
            return;
        };
        let key = connection.key;
        let one = &mut connection.sides[side];
        // Use the acknowledgement of the last check: the current one may have just arrived.
        if is_need || one.gap_end().is_some_and(|end| acked >= end) {
            let mut context = Context {
                out,
                config: &self.config,
                memory: &mut self.memory,
                listed: &mut self.listed,
                streams: &mut self.streams,
                time: self.clock.stamp(),
                ends: Ends { from: key.end(side), to: key.end(1 - side) },
                number,
                is_inner: key.is_inner(),
                is_taken: true,
            };
            one.skip_gap(&mut context);
        }
        one.is_queued = one.is_waiting();
        if one.is_queued {
            self.waiting.push_back(PendingGap { since: self.clock.own(), acked: one.acked(), ..waiting });
        }
    }

    /// Ends a connection.
    fn end(&mut self, place: u32, ending: Ending, out: &mut impl Output) {
        let Some((mut connection, has_successor)) = self.table.remove(place) else { return };
        let is_replaced = has_successor && matches!(ending, Ending::Silent | Ending::Stopped);
        let ending = if is_replaced { Ending::Reused } else { ending };
        let (key, number, is_inner) = (connection.key, connection.number, connection.key.is_inner());
        for side in 0..2 {
            let ends = Ends { from: key.end(side), to: key.end(1 - side) };
            let (config, memory, listed, streams) =
                (&self.config, &mut self.memory, &mut self.listed, &mut self.streams);
            let time = connection.sides[side].times.map_or(self.clock.stamp(), |(_, last)| last);
            let out = &mut *out;
            let mut context =
                Context { out, config, memory, listed, streams, time, ends, number, is_inner, is_taken: true };
            connection.sides[side].skip_all_gaps(&mut context);
        }
        for side in 0..2 {
            let is_over = connection.sides[1 - side].has_fin()
                || connection.reset_by.is_some()
                || matches!(ending, Ending::Silent | Ending::Reused);
            let other = connection.sides[1 - side].stream;
            let one = &mut connection.sides[side];
            self.memory -= one.gaps.len() * GAP;
            self.listed -= one.gaps.len() * GAP;
            self.counts.tally.add(&one.tally);
            let Some(stream) = one.stream else { continue };
            let missing_at_end = one.missing_at_end(is_over);
            self.counts.missing_at_end += missing_at_end;
            let ends = Ends { from: key.end(side), to: key.end(1 - side) };
            let ending = match ending {
                _ if one.has_fin() => Ending::Fin,
                _ if connection.reset_by.is_some() => Ending::Reset,
                ending => ending,
            };
            out.end(&StreamSummary {
                about: StreamInfo { stream, connection: number, ends, is_inner, began: one.began },
                other,
                ending,
                times: one.times,
                tally: one.tally,
                gaps: std::mem::take(&mut one.gaps),
                missing_at_end,
            });
        }
    }
}

/// Applies a segment to its connection.
#[inline]
fn apply(connection: &mut table::Connection, segment: &Segment<'_>, context: &mut Context<'_, impl Output>) {
    let [from, to] = [segment.side, 1 - segment.side];
    connection.has_sent[from] = true;
    let mut sequence = segment.sequence;
    if segment.has(tcp::Flags::SYN) && !segment.has(tcp::Flags::RST) {
        connection.sides[from].begin(sequence);
        sequence = sequence.wrapping_add(1);
    }
    // Firewalls and old stacks send arbitrary values in a RST.
    if let Some(acknowledgement) = segment.acknowledgement.filter(|_| !segment.has(tcp::Flags::RST)) {
        let other = &mut connection.sides[to];
        if segment.has(tcp::Flags::SYN) {
            other.start_by_ack(acknowledgement);
        }
        other.acknowledge(acknowledgement);
    }
    if segment.has(tcp::Flags::RST) {
        if connection.sides[from].may_reset(sequence) {
            connection.reset_by = Some(from);
        }
        return;
    }
    // The sender continues, so that RST was not its own.
    connection.reset_by = connection.reset_by.filter(|by| *by != from);
    let side = &mut connection.sides[from];
    if segment.len() > 0 {
        side.receive(sequence, segment.payload, segment.cut, context);
    }
    if segment.has(tcp::Flags::FIN) {
        side.finish(sequence.wrapping_add(segment.len() as u32));
    }
}
