//! The streams of captured TCP traffic, by looking on.
//!
//! Frames go in with their times, bytes come out in order, each once, and gaps by name. Nobody is asked to send anything again: what was
//! not captured is a gap, given up when the receiver has acknowledged what lies behind it for a while, when memory says so, or in the
//! end.
//!
//! - `segment`: what a frame says;
//! - `table`: the connections, and which of them gives way;
//! - `generations`: which connection of the same ends a segment belongs to;
//! - `side`: one direction; `held`: what waits behind a gap; [`Overlap`]: which bytes count where two segments differ;
//! - `clock`: the time by the frames.
//!
//! # What is taken for what
//!
//! A connection begins with a SYN, or in its middle with whatever is seen of it first but a reset. A SYN of another sequence number begins
//! another one. Such a SYN may be stale or forged, so the connection before stays, and each segment goes to the one of the two that its numbers
//! fit: `generations`. A connection ends when both sides have said so or one has reset it (and goes on no
//! more); what comes for it within a minute (repeats, as a rule) is still
//! its own. An offset counts from the byte behind the SYN, or from the first one seen. A segment more than a window (1 GiB) away from all
//! that is known is not believed in, until sixteen in a row are. Payload of a reset is no part of the stream, nor is what lies behind a FIN.
//! Bytes that were handed on stay as they were: a policy of overlaps chooses among those that wait.
//!
//! # Memory
//!
//! Connections are bounded by number, what waits by bytes, for each stream and in all. Where there are too many connections those that have
//! ended go first, then those without a byte, then those that were quiet for longest. Where too much waits the oldest gap is given up.

mod clock;
mod contract;
mod generations;
mod held;
mod overlap;
mod segment;
mod side;
mod table;

pub use self::contract::{About, Began, Config, Counts, Ending, Output, Summary, Taken};
pub use self::overlap::Overlap;
pub use self::side::Tally;

use self::clock::{Clock, Correction};
use self::segment::{Found, Segment, look};
use self::side::{GAP, Side};
use self::table::{List, Table};
use crate::place::{Ends, StreamId};
use linerate_burst::{Desc, Nanos};
use linerate_wire::{Layers, Link, tcp};
use std::collections::VecDeque;
use std::time::Duration;

/// For how long what comes belongs to a connection that has ended, and for how long one may be without a byte.
const LINGER: Duration = Duration::from_secs(60);
/// Gaps and connections that are looked at, at a time.
const LOOKS: usize = 64;
/// How many frames there are between two looks at the connections.
const EVERY: u32 = 64;

/// Follows the streams of frames.
#[derive(Debug)]
pub struct Follow {
    config: Config,
    table: Table,
    clock: Clock,
    layers: Layers,
    memory: usize,
    /// Of it, what lists of gaps take.
    listed: usize,
    streams: u32,
    frames: u32,
    /// Streams with gaps, by when these were looked at last.
    waiting: VecDeque<Waiting>,
    counts: Counts,
}

/// A stream with a gap.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    place: u32,
    number: u64,
    side: usize,
    since: Nanos,
    /// How far its receiver had all then.
    acked: u64,
}

/// What handing on takes.
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
    /// The number of a stream, which begins if it has none.
    #[inline]
    fn stream(&mut self, side: &mut Side) -> StreamId {
        side.stream.unwrap_or_else(|| {
            let stream = StreamId(*self.streams);
            *self.streams = self.streams.wrapping_add(1);
            side.stream = Some(stream);
            let (connection, ends, is_inner) = (self.number, self.ends, self.is_inner);
            self.out.begin(&About { stream, connection, ends, is_inner, began: side.began }, self.time);
            stream
        })
    }
}

impl Follow {
    /// Nothing seen yet.
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

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        Counts { connections: self.table.begun(), streams: self.streams.into(), ..self.counts }
    }

    /// Memory that what waits takes now, lists of gaps among it.
    pub fn held(&self) -> usize {
        self.memory
    }

    /// Takes a frame.
    pub fn take(&mut self, link: Link, desc: &Desc, frame: &[u8], out: &mut impl Output) -> Taken {
        if let Some(correction) = self.clock.advance(desc.time) {
            self.correct(correction);
        }
        let found = look(link, desc, frame, self.config.checksums, &mut self.layers);
        let taken = match &found {
            Found::Segment(segment) => match self.segment(segment, out) {
                true => Taken::Followed,
                false => Taken::Unwritten,
            },
            Found::NotTcp => Taken::NotTcp,
            Found::Malformed => Taken::Malformed,
            Found::Fragment => Taken::Fragment,
            Found::BadChecksum => Taken::BadChecksum,
        };
        self.frames = self.frames.wrapping_add(1);
        if !self.waiting.is_empty() || self.frames.is_multiple_of(EVERY) {
            self.work_off(out);
        }
        taken
    }

    /// No frame comes, and none that will is older than `now`.
    pub fn pause(&mut self, now: Nanos, out: &mut impl Output) {
        self.clock.pause(now);
        self.work_off_gaps(out);
        self.work_off_connections(out);
    }

    /// There are no more frames.
    pub fn finish(&mut self, out: &mut impl Output) {
        // The last frame says what time it is, though there are no others to agree.
        let now = self.clock.own();
        for place in self.table.all() {
            let is_silent = |connection: &table::Connection| now.since(connection.seen) > self.config.idle;
            let ending = if self.table.get(place).is_some_and(is_silent) { Ending::Silent } else { Ending::Stopped };
            self.end(place, ending, out);
        }
    }

    /// Stamps of frames in doubt are corrected. State that was touched since stands at the ends of its lists.
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
            waiting.push_back(Waiting { place, number, side: from, since: own, acked: side.acked() });
        }
        let list = connection.state();
        self.counts.most_memory = self.counts.most_memory.max(self.memory);
        self.table.touch(place, list, own);
        is_taken
    }

    /// The connection of a segment, a new one if there is none; `None` if it is not worth one.
    fn place_of(&mut self, segment: &Segment<'_>, out: &mut impl Output) -> Option<u32> {
        if let Some(place) = self.table.choose(segment) {
            return Some(place);
        }
        // A reset begins nothing, whatever else it says.
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

    /// Gives up gaps, and ends connections, as time and memory say.
    #[inline]
    fn work_off(&mut self, out: &mut impl Output) {
        while self.memory > self.config.memory
            && let Some(waiting) = self.waiting.pop_front()
        {
            self.look_at(waiting, true, out);
        }
        self.work_off_gaps(out);
        if self.frames.is_multiple_of(EVERY) {
            self.work_off_connections(out);
        }
    }

    fn work_off_gaps(&mut self, out: &mut impl Output) {
        let now = self.clock.now();
        for _ in 0..LOOKS {
            let is_due = |waiting: &Waiting| now.since(waiting.since) >= self.config.patience;
            let Some(waiting) = self.waiting.front().copied().filter(is_due) else { break };
            self.waiting.pop_front();
            self.look_at(waiting, false, out);
        }
    }

    fn work_off_connections(&mut self, out: &mut impl Output) {
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

    /// Gives up the first gap of a stream, if its receiver has the bytes or there `is_need`.
    fn look_at(&mut self, waiting: Waiting, is_need: bool, out: &mut impl Output) {
        let Waiting { place, number, side, acked, .. } = waiting;
        let Some(connection) = self.table.get_mut(place).filter(|connection| connection.number == number) else {
            return;
        };
        let key = connection.key;
        let one = &mut connection.sides[side];
        // Not by what is acknowledged now: that may have come just before.
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
            one.give_up(&mut context);
        }
        one.is_queued = one.is_waiting();
        if one.is_queued {
            self.waiting.push_back(Waiting { since: self.clock.own(), acked: one.acked(), ..waiting });
        }
    }

    /// A connection is over.
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
            connection.sides[side].give_up_all(&mut context);
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
            out.end(&Summary {
                about: About { stream, connection: number, ends, is_inner, began: one.began },
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

/// What a segment does to a connection.
#[inline]
fn apply(connection: &mut table::Connection, segment: &Segment<'_>, context: &mut Context<'_, impl Output>) {
    let [from, to] = [segment.side, 1 - segment.side];
    connection.has_sent[from] = true;
    let mut sequence = segment.sequence;
    if segment.has(tcp::Flags::SYN) && !segment.has(tcp::Flags::RST) {
        connection.sides[from].begin(sequence);
        sequence = sequence.wrapping_add(1);
    }
    // Firewalls and old stacks put anything there when they reset.
    if let Some(acknowledgement) = segment.acknowledgement.filter(|_| !segment.has(tcp::Flags::RST)) {
        let other = &mut connection.sides[to];
        if segment.has(tcp::Flags::SYN) {
            other.begin_by_answer(acknowledgement);
        }
        other.acknowledge(acknowledgement);
    }
    if segment.has(tcp::Flags::RST) {
        if connection.sides[from].may_reset(sequence) {
            connection.reset_by = Some(from);
        }
        return;
    }
    // Who goes on did not mean it: somebody else sent that reset.
    connection.reset_by = connection.reset_by.filter(|by| *by != from);
    let side = &mut connection.sides[from];
    if segment.len() > 0 {
        side.receive(sequence, segment.payload, segment.cut, context);
    }
    if segment.has(tcp::Flags::FIN) {
        side.finish(sequence.wrapping_add(segment.len() as u32));
    }
}
