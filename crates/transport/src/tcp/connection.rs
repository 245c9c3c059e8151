//! State of a connection.
//!
//! Nothing but SYN and FIN is ever sent on it, so the peer may acknowledge only one number. Positions in the stream
//! are 64-bit offsets; a 32-bit sequence number stands for the offset nearest to the edge.

use super::options::{NegotiatedOptions, put_stamps};
use super::segment::Key;
use super::template::{ACK, Options, SegmentFields, Template};
use crate::ranges::Ranges;
use crate::stream_memory::{Place, StreamId};
use linerate_burst::Nanos;
use std::time::Duration;

/// No FIN received.
pub(super) const NEVER: u64 = u64::MAX;
/// Lifetime of a recorded timestamp for PAWS (RFC 7323 section 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 60 * 60);
/// Maximum number of ranges remembered for SACK blocks.
const BLOCKS: usize = 4;
/// Number of ACKs, one per two segments, that a young connection sends.
const YOUNG: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// SYN received and answered.
    SynReceived,
    Established,
    /// All data received; our FIN is not acknowledged yet.
    LastAck,
}

/// Urgency of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AckUrgency {
    /// According to the policy.
    Later,
    Burst,
    Now,
}

#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub key: Key,
    pub state: State,
    pub stream: StreamId,
    pub template: Template,
    /// Initial sequence numbers: peer's and ours.
    pub irs: u32,
    pub iss: u32,
    pub agreed: NegotiatedOptions,
    pub ranges: Ranges,
    /// Offset of the end of the stream, once known.
    pub fin: u64,
    /// First byte beyond the promised window.
    pub promise: u64,
    /// Bytes received beyond it, when the room left was less than the unit of the window: see [`Connection::window`].
    pub kept: Option<Box<[u8]>>,
    /// Maximum room seen beyond the edge.
    capacity: u64,
    /// Edge last reported to the place.
    pub advanced: u64,
    /// Edge last acknowledged, a FIN counted as a byte.
    pub acked: u64,
    /// Window last announced.
    pub acked_window: u64,
    /// Segments not acknowledged yet.
    pub pending: u32,
    pub due: AckUrgency,
    /// Edge and number of segments from which an ACK does not wait.
    pub ack_from: u64,
    pub ack_segments: u32,
    /// True if it is in the list of connections touched by the burst.
    pub is_touched: bool,
    /// True if the last data had PSH set.
    pub is_pushed: bool,
    /// ACKs that are still sent every two segments.
    pub young: u8,
    /// Immediate ACKs sent in this burst for out-of-order data.
    pub eager: u8,
    pub ts_recent: u32,
    ts_recent_at: Nanos,
    /// Offset of our timestamps.
    pub ts_offset: u32,
    /// Positions of the last out-of-order data, newest first.
    recent: [u64; BLOCKS],
    recents: usize,
    /// Duplicate range since the last ACK.
    pub again: Option<(u64, u64)>,
    pub heard: Nanos,
    /// Retransmission timer of our SYN or FIN, and number of transmissions.
    pub retry_at: Nanos,
    pub tries: u8,
    /// Delayed ACK timer, and timer of the next check for free room.
    pub ack_at: Nanos,
    pub look_at: Nanos,
    /// Challenge ACKs left until `challenges_until`.
    pub challenges: u8,
    pub challenges_until: Nanos,
}

/// The bound in the docs of [`super`].
const _: () = assert!(size_of::<Connection>() <= 512);

impl Connection {
    /// Returns a connection whose SYN has been received.
    pub(super) fn new(
        key: Key,
        template: Template,
        (irs, iss): (u32, u32),
        agreed: NegotiatedOptions,
        now: Nanos,
    ) -> Self {
        Connection {
            key,
            state: State::SynReceived,
            stream: StreamId(u32::MAX),
            template,
            irs,
            iss,
            agreed,
            ranges: Ranges::from(0),
            fin: NEVER,
            promise: 0,
            kept: None,
            capacity: 0,
            advanced: 0,
            acked: 0,
            acked_window: 0,
            pending: 0,
            due: AckUrgency::Later,
            ack_from: u64::MAX,
            ack_segments: u32::MAX,
            is_touched: false,
            is_pushed: false,
            young: YOUNG,
            eager: 0,
            ts_recent: 0,
            ts_recent_at: now,
            ts_offset: 0,
            recent: [0; BLOCKS],
            recents: 0,
            again: None,
            heard: now,
            retry_at: Nanos::MAX,
            tries: 0,
            ack_at: Nanos::MAX,
            look_at: Nanos::MAX,
            challenges: 0,
            challenges_until: Nanos::ZERO,
        }
    }

    /// Returns whether the stream is complete.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.ranges.edge() == self.fin
    }

    /// RCV.NXT as an offset, a FIN counted as a byte.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.ranges.edge() + u64::from(self.is_complete())
    }

    /// SND.NXT.
    #[inline]
    pub(super) fn sequence(&self) -> u32 {
        self.iss.wrapping_add(1 + u32::from(self.state == State::LastAck))
    }

    /// Returns the sequence number of an offset.
    #[inline]
    pub(super) fn sequence_of(&self, offset: u64) -> u32 {
        self.irs.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Returns the offset of a sequence number: the candidate nearest to the edge, which may be before the start.
    #[inline]
    pub(super) fn offset_of(&self, sequence: u32) -> i64 {
        let edge = self.ranges.edge();
        edge as i64 + i64::from(sequence.wrapping_sub(self.sequence_of(edge)) as i32)
    }

    /// Makes an acknowledgement due at `due` at the latest.
    #[inline]
    pub(super) fn ask(&mut self, due: AckUrgency) {
        self.due = self.due.max(due);
    }

    /// Adds the connection to the list of those touched by the burst.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32, touched: &mut Vec<u32>) {
        if !self.is_touched {
            self.is_touched = true;
            touched.push(slot);
        }
    }

    /// Reports the contiguous edge to the place.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos, place: &mut impl Place) {
        let edge = self.ranges.edge();
        if edge != self.advanced {
            self.advanced = edge;
            place.advance(self.stream, edge, now);
        }
    }

    /// Promises the free room, unless it is so little that it would cause small segments (silly window syndrome, RFC
    /// 9293 section 3.8.6.2.2). Never shrinks the window.
    #[inline]
    pub(super) fn open(&mut self, room: u64, segment: u64) {
        let edge = self.ranges.edge();
        self.capacity = self.capacity.max(room.saturating_sub(edge));
        let limit = room.min(edge + self.agreed.window);
        let least = segment.min(self.max_window() / 2).max(1);
        if limit >= self.promise.saturating_add(least) {
            self.promise = limit;
        }
    }

    /// Returns the window field and its value in bytes: the promised window, without the bits lost by scaling.
    pub(super) fn window(&self) -> (u16, u64) {
        let shift = self.agreed.shift.unwrap_or(0);
        let promised = self.promise.saturating_sub(self.next());
        let field = (promised >> shift).min(u16::MAX.into());
        if field == 0 && promised > 0 {
            // Less than one unit of the field cannot be announced, so a frame could never be filled to its end.
            // Announce one unit, more than the room: data beyond the promise is kept, and acknowledged once there is
            // room. Otherwise a sender whose window was closed for minutes would retransmit it only after minutes.
            return (1, promised);
        }
        (field as u16, field << shift)
    }

    /// Returns the largest window possible, as far as known.
    pub(super) fn max_window(&self) -> u64 {
        self.capacity.min(self.agreed.window)
    }

    /// Returns the part of the announced window that the peer has not used.
    pub(super) fn known_window(&self) -> u64 {
        (self.acked + self.acked_window).saturating_sub(self.next())
    }

    /// Returns whether a timestamp is older than the last one (PAWS).
    #[inline]
    pub(super) fn is_stale(&self, value: u32, now: Nanos) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.ts_recent_at) < STAMP_LIFE
    }

    /// Records the timestamp to echo: that of the segment the last ACK waits for (RFC 7323 section 4.3).
    #[inline]
    pub(super) fn stamp(&mut self, value: u32, start: i64, now: Nanos) {
        if start <= self.acked as i64 {
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
    }

    /// Records the position of out-of-order data.
    pub(super) fn note_recent(&mut self, offset: u64) {
        let kept = self.recents.min(BLOCKS - 1);
        self.recent.copy_within(..kept, 1);
        self.recent[0] = offset;
        self.recents = kept + 1;
        // Keep only one per range.
        let mut distinct = 0;
        for at in 0..self.recents {
            let range = self.range_at(self.recent[at]);
            if range.is_some() && !(0..distinct).any(|before| self.range_at(self.recent[before]) == range) {
                self.recent[distinct] = self.recent[at];
                distinct += 1;
            }
        }
        self.recents = distinct;
    }

    /// Builds an ACK of all data received.
    pub(super) fn said(&self, now: Nanos) -> SegmentFields {
        let mut options = Options::NONE;
        if self.agreed.stamps {
            put_stamps(self.stamp_at(now), self.ts_recent, &mut options);
        }
        if self.agreed.sack {
            self.put_blocks(&mut options);
        }
        let ack = self.sequence_of(self.next());
        SegmentFields { flags: ACK, sequence: self.sequence(), ack, window: self.window().0, options }
    }

    /// Returns our timestamp clock, in milliseconds.
    pub(super) fn stamp_at(&self, now: Nanos) -> u32 {
        self.ts_offset.wrapping_add((now.0 / 1_000_000) as u32)
    }

    /// Returns the earliest deadline.
    pub(super) fn deadline(&self, idle: Option<Duration>) -> Nanos {
        let idle = idle.filter(|_| self.state == State::Established).map_or(Nanos::MAX, |idle| self.heard.after(idle));
        self.retry_at.min(self.ack_at).min(self.look_at).min(idle)
    }

    /// Adds SACK blocks: the duplicate, then the ranges of the latest data, then others (RFC 2018 section 4, RFC 2883
    /// section 4).
    fn put_blocks(&self, options: &mut Options) {
        let ranges = self.ranges.beyond();
        if ranges.is_empty() && self.again.is_none() {
            return;
        }
        let most = if self.agreed.stamps { 3 } else { 4 };
        let mut blocks = [(0, 0); BLOCKS];
        let mut count = 0;
        let mut put = |block: (u64, u64), again: usize| {
            if count < most && !blocks[again.min(count)..count].contains(&block) {
                blocks[count] = block;
                count += 1;
            }
        };
        let first = usize::from(self.again.is_some());
        if let Some(again) = self.again {
            put(again, 0);
            // The range that contains it comes next.
            self.range_at(again.0).into_iter().for_each(|range| put(range, first));
        }
        self.recent[..self.recents].iter().filter_map(|at| self.range_at(*at)).for_each(|range| put(range, first));
        ranges.iter().take(BLOCKS).for_each(|range| put((range.start, range.end), first));
        options.put(&[1, 1, 5, 2 + 8 * count as u8]);
        for (start, end) in &blocks[..count] {
            options.put(&self.sequence_of(*start).to_be_bytes());
            options.put(&self.sequence_of(*end).to_be_bytes());
        }
    }

    fn range_at(&self, offset: u64) -> Option<(u64, u64)> {
        let ranges = self.ranges.beyond();
        let range = ranges.get(ranges.partition_point(|range| range.end <= offset))?;
        (range.start <= offset).then_some((range.start, range.end))
    }
}
