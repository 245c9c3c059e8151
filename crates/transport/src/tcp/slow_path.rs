//! Slow path: segments of a connection other than the expected one, in the order of RFC 9293 section 3.10.7.4, with
//! RFC 5961 and 7323.

use super::connection::{AckUrgency, Connection, NEVER, State};
use super::segment::Segment;
use super::template::{ACK, FIN, RST, SYN, URG};
use super::{Endpoint, options};
use crate::stream_memory::{Ending, Payload, Place};
use linerate_burst::{Count, Nanos};

/// Immediate ACKs per burst for out-of-order data: their SACK blocks carry more information than their number.
const EAGER: u8 = 4;

/// Position of a segment relative to the receive window.
enum WindowPosition {
    In,
    Old,
    Beyond,
}

impl Endpoint {
    /// Processes a segment of a connection. Returns the counter that it falls under.
    #[cold]
    pub(super) fn arrive(&mut self, slot: u32, segment: &Segment<'_>, now: Nanos, place: &mut impl Place) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        if connection.state == State::SynReceived {
            return self.confirm(slot, segment, now, place);
        }
        let start = connection.offset_of(segment.sequence);
        if segment.flags & RST != 0 {
            return self.reset(slot, start, now, place);
        }
        let stamp = options::stamp(segment.options).filter(|_| connection.agreed.stamps);
        if connection.agreed.stamps && segment.flags & SYN == 0 {
            match stamp {
                None => return Count::TcpNoTimestamp,
                Some(value) if connection.is_stale(value, now) => {
                    return self.answer_old(slot, segment, Count::TcpStale, now, place);
                }
                Some(_) => {}
            }
        }
        if segment.flags & SYN != 0 {
            self.challenge(slot, now, place);
            return Count::TcpBadSyn;
        }
        match fit(connection, segment, start) {
            WindowPosition::In => {}
            WindowPosition::Old => {
                self.counts[Count::TcpDuplicateBytes] += segment.payload.len() as u64;
                return self.answer_old(slot, segment, Count::TcpOld, now, place);
            }
            WindowPosition::Beyond => return self.answer_old(slot, segment, Count::TcpBeyond, now, place),
        }
        if segment.flags & ACK == 0 {
            return Count::TcpBadAck;
        }
        let first = connection.iss.wrapping_add(1);
        if segment.ack != connection.sequence() && segment.ack != first {
            self.challenge(slot, now, place);
            return Count::TcpBadAck;
        }
        self.accept(slot, segment, (start, stamp), now, place)
    }

    /// Processes a segment that is in the window and has an acceptable ACK.
    fn accept(
        &mut self,
        slot: u32,
        segment: &Segment<'_>,
        (start, stamp): (i64, Option<u32>),
        now: Nanos,
        place: &mut impl Place,
    ) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        connection.heard = now;
        if let Some(value) = stamp {
            connection.stamp(value, start, now);
        }
        if !connection.template.is_reverse_of(segment.link) {
            connection.template.go(segment.link, &connection.key);
            self.counts[Count::TcpAddressChanged] += 1;
        }
        if connection.state == State::LastAck && segment.ack == connection.sequence() {
            self.remove(slot);
            return Count::TcpTaken;
        }
        if segment.flags & URG != 0 {
            self.counts[Count::TcpUrgent] += 1;
        }
        let outcome =
            if segment.payload.is_empty() { Count::TcpTaken } else { self.data(slot, segment, start, now, place) };
        if segment.flags & FIN != 0 {
            self.fin(slot, start + segment.payload.len() as i64);
        }
        self.settle(slot, now, place);
        outcome
    }

    /// Stores data, as far as it is in the window and new.
    fn data(&mut self, slot: u32, segment: &Segment<'_>, start: i64, now: Nanos, place: &mut impl Place) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        let length = segment.payload.len() as i64;
        let (edge, stream) = (connection.ranges.edge(), connection.stream);
        let from = start.max(edge as i64) as u64;
        let to = ((start + length).max(0) as u64).min(connection.promise).min(connection.fin);
        if connection.fin < from + 1 {
            connection.ask(AckUrgency::Burst);
            connection.touch(slot, &mut self.touched);
            return Count::TcpAfterFin;
        }
        if start + length > connection.promise as i64 && connection.kept.is_none() {
            connection.kept = keep(segment.payload, connection.promise as i64 - start, place);
        }
        let (ranges_before, mut fresh) = (connection.ranges.beyond().len(), 0);
        // The first duplicate piece, and the end of the part examined so far.
        let (mut again, mut at) = (None, start);
        let taken = connection.ranges.insert(from..to, self.config.max_gaps, |piece| {
            fresh += piece.end - piece.start;
            again = again.or(Some((at, piece.start as i64)).filter(|(at, end)| at < end));
            at = piece.end as i64;
            let (first, last) = ((piece.start as i64 - start) as usize, (piece.end as i64 - start) as usize);
            place.place(stream, piece.start, segment.payload.part(first..last), now);
        });
        self.counts[Count::TcpBytes] += fresh;
        connection.touch(slot, &mut self.touched);
        if taken.is_err() {
            connection.ask(AckUrgency::Burst);
            return Count::TcpTooManyGaps;
        }
        if let Some((first, end)) = again.or(Some((at, to as i64)).filter(|(at, end)| at < end)) {
            self.counts[Count::TcpDuplicateBytes] += (to as i64 - start) as u64 - fresh;
            note_duplicate(connection, first, end);
            connection.ask(AckUrgency::Burst);
        }
        if fresh == 0 {
            return Count::TcpOld;
        }
        connection.pending += 1;
        connection.is_pushed = segment.flags & super::template::PSH != 0;
        self.last_data = (slot, segment.headers);
        let ranges_now = connection.ranges.beyond().len();
        if connection.ranges.edge() == edge {
            self.counts[Count::TcpOutOfOrder] += 1;
            connection.note_recent(from);
            let is_eager = !connection.agreed.sack || ranges_now > ranges_before || connection.eager < EAGER;
            connection.eager = connection.eager.saturating_add(1);
            connection.ask(if is_eager { AckUrgency::Now } else { AckUrgency::Burst });
        } else if ranges_before > 0 {
            // A gap was filled, fully or partly (RFC 5681 section 4.2).
            connection.ask(if ranges_now < ranges_before || !connection.agreed.sack {
                AckUrgency::Now
            } else {
                AckUrgency::Burst
            });
        }
        Count::TcpTaken
    }

    /// Records the end of the stream, unless data beyond it or another end is known.
    fn fin(&mut self, slot: u32, at: i64) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let at = at as u64;
        // FIN needs no room, so it may be one beyond the promised window.
        if connection.fin == NEVER && connection.ranges.end() <= at && at <= connection.promise {
            connection.fin = at;
        }
        connection.ask(AckUrgency::Now);
        connection.touch(slot, &mut self.touched);
    }

    /// Sends an ACK that is due now, and closes a complete stream.
    fn settle(&mut self, slot: u32, now: Nanos, place: &mut impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        if connection.is_complete() && connection.state == State::Established {
            connection.advance(now, place);
            place.end(connection.stream, Ending::Complete, now);
            self.counts[Count::TcpComplete] += 1;
            connection.state = State::LastAck;
            connection.tries = 0;
            (connection.ack_at, connection.look_at) = (Nanos::MAX, Nanos::MAX);
            self.send_fin(slot, now);
            return;
        }
        let is_many = connection.ranges.edge() >= connection.ack_from || connection.pending >= connection.ack_segments;
        if connection.due == AckUrgency::Now || is_many {
            self.acknowledge(slot, now, place);
        }
    }

    /// Processes a RST (RFC 5961 section 3.2), also with a closed window.
    fn reset(&mut self, slot: u32, start: i64, now: Nanos, place: &mut impl Place) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        let next = connection.next() as i64;
        if start == next {
            self.end(slot, Ending::Reset, now, place);
            return Count::TcpTaken;
        }
        if start > next && start < connection.promise as i64 {
            self.challenge(slot, now, place);
        }
        Count::TcpBadReset
    }

    /// Answers a segment without new data by an ACK: at the end of the burst if it had a payload; otherwise by a
    /// challenge ACK, since it may itself be an answer to one of ours.
    fn answer_old(
        &mut self,
        slot: u32,
        segment: &Segment<'_>,
        count: Count,
        now: Nanos,
        place: &mut impl Place,
    ) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return count };
        if segment.ack == connection.sequence() {
            connection.heard = now;
        }
        let (start, edge) = (connection.offset_of(segment.sequence), connection.ranges.edge() as i64);
        note_duplicate(connection, start, edge.min(start + segment.payload.len() as i64));
        if segment.payload.is_empty() && segment.flags & FIN == 0 {
            self.challenge(slot, now, place);
        } else {
            connection.ask(AckUrgency::Burst);
            connection.touch(slot, &mut self.touched);
        }
        count
    }

    /// Ends a connection and its stream.
    pub(super) fn end(&mut self, slot: u32, ending: Ending, now: Nanos, place: &mut impl Place) {
        let Some(mut connection) = self.remove(slot) else { return };
        if connection.state != State::Established {
            return;
        }
        connection.advance(now, place);
        place.end(connection.stream, ending, now);
        self.counts[match ending {
            Ending::Complete => Count::TcpComplete,
            Ending::Reset => Count::TcpReset,
            Ending::Silent => Count::TcpIdleTimeout,
            Ending::Stopped => Count::TcpStopped,
        }] += 1;
    }

    /// Removes a connection and its timer.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        self.timers.set(slot, Nanos::MAX);
        let connection = self.table.remove(slot)?;
        self.half_open -= usize::from(connection.state == State::SynReceived);
        Some(connection)
    }
}

/// Acceptability test of section 3.10.7.4; a FIN needs no room, and an empty segment may be at the right edge of the
/// window.
fn fit(connection: &Connection, segment: &Segment<'_>, start: i64) -> WindowPosition {
    let (next, right) = (connection.next() as i64, connection.promise.max(connection.next()) as i64);
    let length = segment.payload.len() as i64;
    let end = start + length + i64::from(segment.flags & FIN != 0);
    if start < next && (end <= next || end == start) {
        return WindowPosition::Old;
    }
    if start > right || (start == right && length > 0) { WindowPosition::Beyond } else { WindowPosition::In }
}

/// Copies the bytes beyond the promised window of a segment that starts before its end: at most one unit of window
/// scaling.
fn keep(payload: Payload<'_>, promised: i64, place: &impl Place) -> Option<Box<[u8]>> {
    const UNIT: usize = 1 << 14;
    let from = usize::try_from(promised).ok().filter(|from| *from < payload.len())?;
    let mut bytes = Vec::new();
    place.copy_out(payload.part(from..payload.len().min(from + UNIT)), &mut bytes);
    Some(bytes.into())
}

/// Records a duplicate for the next ACK (D-SACK, RFC 2883).
fn note_duplicate(connection: &mut Connection, start: i64, end: i64) {
    if start >= 0 && start < end {
        connection.again = Some((start as u64, end as u64));
    }
}
