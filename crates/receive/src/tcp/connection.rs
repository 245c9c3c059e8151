//! What is known of a connection: a small state, and what follows from it.
//!
//! Nothing is ever sent on it but SYN and FIN, so that one number is what the other end may acknowledge. Places in the stream are
//! 64-bit offsets; the 32 bits of a sequence number are read as the offset nearest to the edge.

use super::options::{Agreed, put_stamps};
use super::segment::Key;
use super::template::{ACK, Options, Said, Template};
use crate::place::{Place, StreamId};
use crate::ranges::Ranges;
use linerate_burst::Nanos;
use std::time::Duration;

/// No FIN has come.
pub(super) const NEVER: u64 = u64::MAX;
/// For how long a timestamp says how old a segment is (RFC 7323 section 5.5).
const STAMP_LIFE: Duration = Duration::from_secs(24 * 24 * 60 * 60);
/// The most blocks that are remembered for selective acknowledgements.
const BLOCKS: usize = 4;
/// So many segments, at least, are acknowledged two by two when a connection is young.
const YOUNG: u8 = 16;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its beginning was answered.
    SynReceived,
    /// Data comes.
    Established,
    /// All data is there, and our own end is to be acknowledged.
    LastAck,
}

/// Whether an acknowledgement is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// When the policy says so.
    Later,
    /// At the end of the burst.
    Burst,
    /// At once.
    Now,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub key: Key,
    pub state: State,
    pub stream: StreamId,
    pub template: Template,
    /// Initial sequence numbers: theirs and ours.
    pub irs: u32,
    pub iss: u32,
    pub agreed: Agreed,
    pub ranges: Ranges,
    /// Where the stream ends, once that is known.
    pub fin: u64,
    /// The first byte that was never promised room.
    pub promise: u64,
    /// What came from there on, where less room than the unit of a window was left: see [`Connection::window`].
    pub kept: Option<Box<[u8]>>,
    /// The most room there ever was behind the edge.
    capacity: u64,
    /// The edge that the place knows of.
    pub advanced: u64,
    /// The edge that the other end knows of, a FIN counted as a byte.
    pub told: u64,
    /// And as much window.
    pub told_window: u64,
    /// Segments that are not acknowledged.
    pub pending: u32,
    pub due: Due,
    /// From which edge on, and after how many segments, an acknowledgement does not wait.
    pub ack_from: u64,
    pub ack_segments: u32,
    /// Whether its number is in the list of those that the burst has touched.
    pub is_touched: bool,
    /// Whether the last data was pushed.
    pub is_pushed: bool,
    /// Acknowledgements that are still made two by two.
    pub young: u8,
    /// Acknowledgements made at once in this burst for data behind gaps.
    pub eager: u8,
    pub ts_recent: u32,
    ts_recent_at: Nanos,
    /// What our timestamps begin with.
    pub ts_offset: u32,
    /// Where data came last behind gaps, newest first.
    recent: [u64; BLOCKS],
    recents: usize,
    /// What came again since the last acknowledgement.
    pub again: Option<(u64, u64)>,
    pub heard: Nanos,
    /// What our SYN or FIN still waits for: the next try, and how often it was sent.
    pub retry_at: Nanos,
    pub tries: u8,
    /// When an acknowledgement is made at the latest, and when somebody looks again whether there is room.
    pub ack_at: Nanos,
    pub look_at: Nanos,
    /// Challenges: how many more until when.
    pub challenges: u8,
    pub challenges_until: Nanos,
}

/// What [`super`] says of memory.
const _: () = assert!(size_of::<Connection>() <= 512);

impl Connection {
    /// One whose SYN has come.
    pub(super) fn new(key: Key, template: Template, (irs, iss): (u32, u32), agreed: Agreed, now: Nanos) -> Self {
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
            told: 0,
            told_window: 0,
            pending: 0,
            due: Due::Later,
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

    /// Whether all of the stream is there.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.ranges.edge() == self.fin
    }

    /// What is expected next (RCV.NXT), a FIN counted as a byte.
    #[inline]
    pub(super) fn next(&self) -> u64 {
        self.ranges.edge() + u64::from(self.is_complete())
    }

    /// Our next sequence number (SND.NXT).
    #[inline]
    pub(super) fn sequence(&self) -> u32 {
        self.iss.wrapping_add(1 + u32::from(self.state == State::LastAck))
    }

    /// The sequence number of an offset.
    #[inline]
    pub(super) fn sequence_of(&self, offset: u64) -> u32 {
        self.irs.wrapping_add(1).wrapping_add(offset as u32)
    }

    /// The offset of a sequence number, of all it may stand for that nearest to the edge; may be before the beginning.
    #[inline]
    pub(super) fn offset_of(&self, sequence: u32) -> i64 {
        let edge = self.ranges.edge();
        edge as i64 + i64::from(sequence.wrapping_sub(self.sequence_of(edge)) as i32)
    }

    /// An acknowledgement is due then, if not sooner.
    #[inline]
    pub(super) fn ask(&mut self, due: Due) {
        self.due = self.due.max(due);
    }

    /// Puts its number into the list of those that the burst has touched.
    #[inline]
    pub(super) fn touch(&mut self, slot: u32, touched: &mut Vec<u32>) {
        if !self.is_touched {
            self.is_touched = true;
            touched.push(slot);
        }
    }

    /// Tells the place how far all bytes are there.
    #[inline]
    pub(super) fn advance(&mut self, now: Nanos, place: &mut impl Place) {
        let edge = self.ranges.edge();
        if edge != self.advanced {
            self.advanced = edge;
            place.advance(self.stream, edge, now);
        }
    }

    /// Promises room as far as there is, unless it is so little that it would make small segments (RFC 9293 section
    /// 3.8.6.2.2). Never takes a promise back.
    #[inline]
    pub(super) fn open(&mut self, room: u64, segment: u64) {
        let edge = self.ranges.edge();
        self.capacity = self.capacity.max(room.saturating_sub(edge));
        let limit = room.min(edge + self.agreed.window);
        let least = segment.min(self.usual_window() / 2).max(1);
        if limit >= self.promise.saturating_add(least) {
            self.promise = limit;
        }
    }

    /// The window as the header says it, and how many bytes these are: what is promised, without the bits that are shifted out.
    pub(super) fn window(&self) -> (u16, u64) {
        let shift = self.agreed.shift.unwrap_or(0);
        let promised = self.promise.saturating_sub(self.next());
        let field = (promised >> shift).min(u16::MAX.into());
        if field == 0 && promised > 0 {
            // What is less than the unit of the field could never be said, and a frame never be filled to its end. One unit is more
            // than there is: what comes behind the promise is kept, and acknowledged once there is room. A sender that had to send
            // it again would do so after minutes, if its window had been closed for as long.
            return (1, promised);
        }
        (field as u16, field << shift)
    }

    /// The most that a window can be, as far as is known.
    pub(super) fn usual_window(&self) -> u64 {
        self.capacity.min(self.agreed.window)
    }

    /// How much of the window that the other end knows of it has not used.
    pub(super) fn known_window(&self) -> u64 {
        (self.told + self.told_window).saturating_sub(self.next())
    }

    /// Whether a timestamp is older than the last one, of those that are compared.
    #[inline]
    pub(super) fn is_stale(&self, value: u32, now: Nanos) -> bool {
        (value.wrapping_sub(self.ts_recent) as i32) < 0 && now.since(self.ts_recent_at) < STAMP_LIFE
    }

    /// Keeps a timestamp that is to be echoed: that of the segment which the last acknowledgement waits for (RFC 7323 section 4.3).
    #[inline]
    pub(super) fn stamp(&mut self, value: u32, start: i64, now: Nanos) {
        if start <= self.told as i64 {
            (self.ts_recent, self.ts_recent_at) = (value, now);
        }
    }

    /// Data came here, behind a gap.
    pub(super) fn note_recent(&mut self, offset: u64) {
        let kept = self.recents.min(BLOCKS - 1);
        self.recent.copy_within(..kept, 1);
        self.recent[0] = offset;
        self.recents = kept + 1;
        // One for each range is enough.
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

    /// An acknowledgement of all that is there.
    pub(super) fn said(&self, now: Nanos) -> Said {
        let mut options = Options::NONE;
        if self.agreed.stamps {
            put_stamps(self.stamp_at(now), self.ts_recent, &mut options);
        }
        if self.agreed.sack {
            self.put_blocks(&mut options);
        }
        let ack = self.sequence_of(self.next());
        Said { flags: ACK, sequence: self.sequence(), ack, window: self.window().0, options }
    }

    /// Our clock in timestamps: milliseconds.
    pub(super) fn stamp_at(&self, now: Nanos) -> u32 {
        self.ts_offset.wrapping_add((now.0 / 1_000_000) as u32)
    }

    /// When something is due next.
    pub(super) fn deadline(&self, idle: Option<Duration>) -> Nanos {
        let idle = idle.filter(|_| self.state == State::Established).map_or(Nanos::MAX, |idle| self.heard.after(idle));
        self.retry_at.min(self.ack_at).min(self.look_at).min(idle)
    }

    /// What came again, then the ranges in which data came last, then others (RFC 2018 section 4, RFC 2883 section 4).
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
            // The range that it is a part of comes next.
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
