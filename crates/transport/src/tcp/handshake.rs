//! Segments of no connection, and of half-open ones: RFC 9293 sections 3.10.7.1 to 3.10.7.3, RFC 4987, RFC 6528.

use super::Endpoint;
use super::connection::{Connection, State};
use super::fast_path::set_limits;
use super::options::{self, NegotiatedOptions, offered};
use super::segment::{Key, Segment};
use super::template::{ACK, FIN, RST, SYN, SegmentFields, Template};
use crate::stream_memory::{Place, StreamId};
use linerate_burst::{Count, Nanos};
use std::time::Duration;

/// Minimum lifetime of a SYN cookie; the maximum is twice that.
const COOKIE_SECONDS: u64 = 64;
/// Unpredictable bits of a cookie. The bits above hold the negotiated options and the parity of its time slot.
const COOKIE_BITS: u32 = 28;

impl Endpoint {
    /// Processes a segment of no connection. Returns the counter that it falls under.
    #[cold]
    pub(super) fn receive_unknown(&mut self, segment: &Segment<'_>, now: Nanos, place: &mut impl Place) -> Count {
        let flags = segment.flags;
        if flags & RST != 0 {
            return Count::TcpNoConnection;
        }
        if !self.own.listens(&segment.key) {
            return self.reset_unknown(segment, now);
        }
        match flags & (SYN | ACK | FIN) {
            SYN => self.listen(segment, now, place),
            ACK => self.try_cookie(segment, now, place),
            _ if flags & ACK != 0 => {
                let count = self.try_cookie(segment, now, place);
                if flags & SYN != 0 { Count::TcpBadSyn } else { count }
            }
            _ => Count::TcpBadSyn,
        }
    }

    /// Processes a segment of a half-open connection.
    pub(super) fn confirm(&mut self, slot: u32, segment: &Segment<'_>, now: Nanos, place: &mut impl Place) -> Count {
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        let flags = segment.flags;
        let start = connection.offset_of(segment.sequence);
        if flags & RST != 0 {
            if start != 0 {
                return Count::TcpBadReset;
            }
            self.counts[Count::TcpHalfOpen] += 1;
            self.remove(slot);
            return Count::TcpTaken;
        }
        if flags & (SYN | ACK | FIN) == SYN {
            if segment.sequence == connection.irs {
                // Our SYN-ACK was lost or is late.
                if connection.tries < 5 {
                    self.send_syn(slot, now, place);
                }
                return Count::TcpOld;
            }
            // The peer has restarted the connection.
            self.remove(slot);
            return self.listen(segment, now, place);
        }
        if flags & SYN != 0 {
            return Count::TcpBadSyn;
        }
        if flags & ACK == 0 {
            return Count::TcpBadAck;
        }
        if segment.ack != connection.sequence() {
            self.reset_unknown(segment, now);
            return Count::TcpBadAck;
        }
        if start < 0 || start > i64::from(u16::MAX) {
            return Count::TcpBeyond;
        }
        match options::stamp(segment.options).filter(|_| connection.agreed.stamps) {
            None if connection.agreed.stamps => return Count::TcpNoTimestamp,
            Some(value) if connection.is_stale(value, now) => return Count::TcpStale,
            Some(value) => connection.stamp(value, start, now),
            None => {}
        }
        self.establish(slot, segment, now, place)
    }

    /// Processes a SYN.
    fn listen(&mut self, segment: &Segment<'_>, now: Nanos, place: &impl Place) -> Count {
        self.counts[Count::TcpSyns] += 1;
        if self.table.len() - self.half_open >= self.config.connections {
            return Count::TcpFull;
        }
        let shift = self.config.shift();
        let (agreed, stamp) = offered(segment.options, shift, self.config.window);
        if self.half_open >= self.config.backlog {
            return self.send_cookie(segment, (agreed, stamp), now, place);
        }
        let iss = self.first_sequence(&segment.key, now);
        let connection = self.begin(segment, (segment.sequence, iss), agreed, stamp, now);
        let slot = self.table.insert(connection);
        self.half_open += 1;
        self.send_syn(slot, now, place);
        Count::TcpTaken
    }

    fn begin(
        &self,
        segment: &Segment<'_>,
        numbers: (u32, u32),
        agreed: NegotiatedOptions,
        stamp: u32,
        now: Nanos,
    ) -> Connection {
        let mut connection = Connection::new(segment.key, Template::back(segment), numbers, agreed, now);
        connection.ts_recent = stamp;
        connection.ts_offset = self.stamp_offset(&segment.key);
        connection
    }

    /// Sends our SYN-ACK, whose window is never scaled.
    pub(super) fn send_syn(&mut self, slot: u32, now: Nanos, place: &impl Place) {
        let Some(connection) = self.table.get_mut(slot) else { return };
        let said = syn(connection, self.config.segment(connection.key.is_v6()), first_window(connection, place), now);
        let is_out = self.outbox.put(&connection.template, &said, None, now);
        self.counts[Count::TcpUnsent] += u64::from(!is_out);
        self.counts[Count::TcpRetransmitted] += u64::from(connection.tries > 0);
        self.schedule_retry(slot, is_out, now);
    }

    /// Establishes a connection; the confirming segment may carry its first data.
    fn establish(&mut self, slot: u32, segment: &Segment<'_>, now: Nanos, place: &mut impl Place) -> Count {
        let is_full = self.table.len() - self.half_open >= self.config.connections;
        let Some(connection) = self.table.get_mut(slot) else { return Count::TcpNoConnection };
        let stream = StreamId(self.streams);
        // Treat the segment as lost: the peer retransmits it, and there may be room by then.
        if is_full {
            return Count::TcpFull;
        }
        if !place.begin(stream, &connection.key.ends(), now) {
            return Count::TcpNoFrame;
        }
        self.streams += 1;
        self.half_open -= 1;
        self.counts[Count::TcpConnections] += 1;
        connection.stream = stream;
        connection.state = State::Established;
        (connection.retry_at, connection.tries, connection.heard) = (Nanos::MAX, 0, now);
        // Promise the window of our SYN-ACK, and what its field could not express.
        connection.open(place.room(stream), 1);
        connection.acked_window = first_window(connection, place).into();
        set_limits(connection, &self.config);
        let deadline = connection.deadline(self.config.idle);
        self.timers.set(slot, deadline);
        self.arrive(slot, segment, now, place)
    }

    /// Answers a segment of an unknown connection by a RST, if configured.
    fn reset_unknown(&mut self, segment: &Segment<'_>, now: Nanos) -> Count {
        if self.config.reset_unknown && segment.flags & RST == 0 {
            let said = if segment.flags & ACK != 0 {
                SegmentFields::reset(segment.ack, None)
            } else {
                let bits = u32::from(segment.flags & SYN != 0) + u32::from(segment.flags & FIN != 0);
                let end = segment.sequence.wrapping_add(segment.payload.len() as u32).wrapping_add(bits);
                SegmentFields::reset(0, Some(end))
            };
            let is_out = self.outbox.put(&Template::back(segment), &said, None, now);
            self.counts[if is_out { Count::TcpResetsSent } else { Count::TcpUnsent }] += 1;
        }
        Count::TcpNoConnection
    }

    /// Answers a SYN without keeping state: it is encoded in our sequence number, which the peer echoes (SYN cookie).
    fn send_cookie(
        &mut self,
        segment: &Segment<'_>,
        (agreed, stamp): (NegotiatedOptions, u32),
        now: Nanos,
        place: &impl Place,
    ) -> Count {
        self.cookie_at = Some(now);
        let iss = self.cookie(&segment.key, segment.sequence, agreed.bits(), now.seconds() / COOKIE_SECONDS);
        let connection = self.begin(segment, (segment.sequence, iss), agreed, stamp, now);
        let window = first_window(&connection, place);
        let said = syn(&connection, self.config.segment(segment.key.is_v6()), window, now);
        if !self.outbox.put(&connection.template, &said, None, now) {
            self.counts[Count::TcpUnsent] += 1;
            return Count::TcpFull;
        }
        self.counts[Count::TcpCookies] += 1;
        Count::TcpTaken
    }

    /// Processes a segment that may echo a SYN cookie.
    fn try_cookie(&mut self, segment: &Segment<'_>, now: Nanos, place: &mut impl Place) -> Count {
        let span = Duration::from_secs(2 * COOKIE_SECONDS);
        if segment.flags & SYN != 0 || self.cookie_at.is_none_or(|at| now.since(at) > span) {
            return self.reset_unknown(segment, now);
        }
        let (irs, iss) = (segment.sequence.wrapping_sub(1), segment.ack.wrapping_sub(1));
        let bits = iss >> COOKIE_BITS & 7;
        let spans = now.seconds() / COOKIE_SECONDS;
        let is_ours = (0..2).any(|ago| spans >= ago && self.cookie(&segment.key, irs, bits, spans - ago) == iss);
        let agreed = NegotiatedOptions::from_bits(bits, self.config.shift(), self.config.window);
        let stamp = options::stamp(segment.options);
        if !is_ours || (agreed.stamps && stamp.is_none()) {
            // May belong to a connection answered by a cookie, its second segment ahead of the first: send no RST.
            return Count::TcpNoConnection;
        }
        let connection = self.begin(segment, (irs, iss), agreed, stamp.unwrap_or(0), now);
        let slot = self.table.insert(connection);
        self.half_open += 1;
        let count = self.establish(slot, segment, now, place);
        if self.table.get(slot).is_some_and(|connection| connection.state == State::SynReceived) {
            // The cookie remains valid for a retransmission.
            self.remove(slot);
            return count;
        }
        self.counts[Count::TcpCookiesTaken] += 1;
        count
    }

    fn cookie(&self, key: &Key, irs: u32, bits: u32, span: u64) -> u32 {
        let [a, b, c, d, ports] = key.words();
        let sealed = self.secret.seal(&[1, a, b, c, d, ports, irs.into(), bits.into(), span]) as u32;
        (span as u32 & 1) << 31 | bits << COOKIE_BITS | sealed & ((1 << COOKIE_BITS) - 1)
    }

    /// Initial sequence number: a 4-microsecond clock plus a secret offset per connection (RFC 6528).
    fn first_sequence(&self, key: &Key, now: Nanos) -> u32 {
        let [a, b, c, d, ports] = key.words();
        ((now.0 / 4000) as u32).wrapping_add(self.secret.seal(&[2, a, b, c, d, ports]) as u32)
    }

    fn stamp_offset(&self, key: &Key) -> u32 {
        let [a, b, c, d, ports] = key.words();
        self.secret.seal(&[3, a, b, c, d, ports]) as u32
    }
}

/// Window of our SYN-ACK, limited by the free room.
fn first_window(connection: &Connection, place: &impl Place) -> u16 {
    connection.agreed.window.min(place.first_room()).min(u16::MAX.into()) as u16
}

/// Builds our SYN-ACK.
fn syn(connection: &Connection, segment: u16, window: u16, now: Nanos) -> SegmentFields {
    SegmentFields {
        flags: SYN | ACK,
        sequence: connection.iss,
        ack: connection.irs.wrapping_add(1),
        window,
        options: connection.agreed.answer(segment, connection.stamp_at(now), connection.ts_recent),
    }
}
