//! One direction of a connection: offsets, waiting bytes, gaps.

use super::pending::{DuplicateBytes, PendingBytes};
use super::{Context, Output, StartEvidence};
use crate::ranges::Ranges;
use crate::stream_memory::StreamId;
use linerate_burst::Nanos;
use std::ops::Range;

/// Maximum number of ranges beyond the first gap; above it the gap is given up.
const RANGES: usize = 4096;
/// Maximum window (RFC 7323, 2.3); segments further ahead belong elsewhere.
const WINDOW: i64 = 1 << 30;
/// Distance within which a number belongs to the stream: the largest unscaled window.
const NEAR: u64 = 1 << 16;
/// Consecutive segments far away that are accepted: then much was not captured.
const INSISTING: u32 = 16;
/// Lists of gaps may use this fraction of the memory; the rest is for waiting bytes.
const LISTS: usize = 4;
/// Memory of a gap in the list of a stream.
pub(super) const GAP: usize = size_of::<Range<u64>>();

#[derive(Debug, Default)]
pub(super) struct Side {
    /// Sequence number of the first byte, once known.
    base: Option<u32>,
    /// Last acknowledgement of the other side.
    heard: Option<u32>,
    pub began: StartEvidence,
    ranges: Ranges,
    held: PendingBytes,
    /// Offset of the end, according to the sender.
    fin: Option<u64>,
    /// Acknowledged edge.
    acked: u64,
    /// Set at its first byte or gap.
    pub stream: Option<StreamId>,
    /// Times of its first and last byte.
    pub times: Option<(Nanos, Nanos)>,
    /// Consecutive segments far away.
    far: u32,
    /// True if it is in the queue of streams with gaps.
    pub is_queued: bool,
    pub gaps: Vec<Range<u64>>,
    pub tally: Tally,
}

/// Counters of one direction; all but `gaps` and `unlisted` are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Output.
    pub bytes: u64,
    /// Gaps given up.
    pub gaps: u64,
    /// Bytes in these.
    pub missing: u64,
    /// Gaps not in the list, for lack of memory.
    pub unlisted: u64,
    /// Duplicates, before or after the output.
    pub repeated: u64,
    /// Duplicates that differed from the waiting bytes.
    pub differing: u64,
    /// Received after their gap was given up.
    pub late: u64,
    /// Before the first byte of a stream first seen midstream.
    pub before: u64,
    /// After its end.
    pub beyond: u64,
    /// Too far away to belong to the stream.
    pub far: u64,
}

impl Side {
    /// Starts the stream after a SYN.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.base = Some(sequence.wrapping_add(1));
        self.began = StartEvidence::Start;
    }

    /// Starts the stream by the acknowledgement of its SYN.
    pub(super) fn start_by_ack(&mut self, acknowledged: u32) {
        if self.base.is_none() {
            self.begin(acknowledged.wrapping_sub(1));
        }
    }

    /// Returns whether its start is known.
    pub(super) fn is_begun(&self) -> bool {
        self.base.is_some()
    }

    /// Returns whether the other side has acknowledged anything.
    pub(super) fn is_acknowledged(&self) -> bool {
        self.heard.is_some()
    }

    /// Returns whether a SYN with this sequence number is, or could be, that of this stream.
    pub(super) fn agrees(&self, sequence: u32) -> bool {
        let first = sequence.wrapping_add(1);
        self.base.map_or_else(|| self.is_near(first), |base| base == first)
    }

    /// Returns whether a sequence number is near the stream, and not before its first byte or after its end, if known.
    pub(super) fn is_near(&self, sequence: u32) -> bool {
        // A keep-alive repeats the byte before the first one.
        let is_within = |at: i64| at >= -1 && self.fin.is_none_or(|fin| at <= fin as i64 + 1);
        self.distance(sequence) <= NEAR && (self.base.is_none() || is_within(self.at(sequence)))
    }

    /// Returns the distance of a sequence number from the stream; 0 if unknown.
    pub(super) fn distance(&self, sequence: u32) -> u64 {
        if self.base.is_some() {
            let (at, first) = (self.at(sequence), self.ranges.edge().min(self.acked) as i64);
            let last = self.ranges.end().max(self.acked) as i64;
            return (first - at).max(at - last).max(0).unsigned_abs();
        }
        self.heard.map_or(0, |heard| (sequence.wrapping_sub(heard) as i32).unsigned_abs().into())
    }

    /// Returns whether data was seen.
    pub(super) fn has_data(&self) -> bool {
        self.ranges.end() > 0
    }

    /// Returns whether a FIN was seen and all bytes before it were output or given up.
    pub(super) fn is_over(&self) -> bool {
        self.fin.is_some_and(|fin| self.ranges.edge() >= fin)
    }

    /// Returns whether a FIN was seen.
    pub(super) fn has_fin(&self) -> bool {
        self.fin.is_some()
    }

    /// Returns whether bytes wait for earlier ones.
    pub(super) fn is_waiting(&self) -> bool {
        !self.ranges.beyond().is_empty()
    }

    /// Returns the end of the first gap.
    pub(super) fn gap_end(&self) -> Option<u64> {
        self.ranges.gap_end()
    }

    /// Returns the acknowledged edge.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Returns the bytes at its end that were sent, according to FIN or acknowledgements, and not captured.
    pub(super) fn missing_at_end(&self, is_over: bool) -> u64 {
        let end = self.fin.unwrap_or(self.acked);
        let missing = if self.base.is_some() { end.saturating_sub(self.ranges.end()) } else { 0 };
        // A FIN has a sequence number too, and is acknowledged like a byte.
        if missing == 1 && self.fin.is_none() && is_over { 0 } else { missing }
    }

    /// Processes an acknowledgement of the other side, unless it is implausibly far ahead.
    pub(super) fn acknowledge(&mut self, acknowledgement: u32) {
        self.heard = Some(acknowledgement);
        if self.base.is_some()
            && let Ok(acked) = u64::try_from(self.at(acknowledgement))
            && acked <= self.ranges.end() + WINDOW as u64
        {
            // It is beyond the FIN: a receiver that acknowledges later bytes did not accept that FIN.
            self.fin = self.fin.filter(|fin| acked <= fin + 1);
            self.acked = self.acked.max(acked.min(self.fin.unwrap_or(u64::MAX)));
        }
    }

    /// Returns whether the receiver may have accepted a RST with this sequence number.
    pub(super) fn may_reset(&self, sequence: u32) -> bool {
        let (at, edge, acked) = (self.at(sequence), self.ranges.edge() as i64, self.acked as i64);
        self.base.is_none() || (at >= edge.min(acked) && at <= edge.max(acked) + WINDOW)
    }

    /// Processes a FIN.
    pub(super) fn finish(&mut self, sequence: u32) {
        self.base.get_or_insert(sequence);
        if self.fin.is_none()
            && let Ok(fin) = u64::try_from(self.at(sequence))
            && fin >= self.ranges.edge()
            && fin <= self.ranges.end() + WINDOW as u64
        {
            self.fin = Some(fin.max(self.ranges.end()));
        }
    }

    /// Processes the bytes of a segment, and the number of bytes after them that were not captured.
    #[inline]
    pub(super) fn receive(&mut self, sequence: u32, bytes: &[u8], cut: usize, context: &mut Context<'_, impl Output>) {
        self.base.get_or_insert(sequence);
        let time = context.time;
        let (first, last) = *self.times.get_or_insert((time, time));
        self.times = Some((first, last.max(time)));
        let (edge, len) = (self.ranges.edge(), bytes.len() as u64);
        if self.at(sequence) != edge as i64 || cut > 0 || self.fin.is_some() || self.is_waiting() {
            return self.receive_any(sequence, bytes, cut as u64, context);
        }
        self.far = 0;
        // Nothing waits, so the limit of ranges cannot be exceeded.
        let _ = self.ranges.insert(edge..edge + len, RANGES, |_| {});
        self.output_bytes(edge, bytes, context);
    }

    /// Returns the offset of a sequence number: the candidate nearest to the edge.
    fn at(&self, sequence: u32) -> i64 {
        let edge = self.ranges.edge();
        let expected = self.base.unwrap_or(sequence).wrapping_add(edge as u32);
        edge as i64 + i64::from(sequence.wrapping_sub(expected) as i32)
    }

    #[cold]
    fn receive_any(&mut self, sequence: u32, bytes: &[u8], cut: u64, context: &mut Context<'_, impl Output>) {
        let Some((start, insists)) = self.place_of(sequence, bytes.len() as u64 + cut) else { return };
        let segment = start.max(0) as u64..(start + bytes.len() as i64 + cut as i64).max(0) as u64;
        let Some((mut start, mut bytes, mut cut)) = self.trimmed(start, bytes, cut) else { return };
        let end = start + bytes.len() as u64 + cut;
        // Before all that waits: no copy needed.
        let is_next = start == self.ranges.edge() && self.ranges.gap_end().is_none_or(|gap| end <= gap);
        while self.ranges.insert(start..end, RANGES, |_| {}).is_err() {
            self.skip_gap(context);
            let Some(rest) = self.trimmed(start as i64, bytes, cut) else { return };
            (start, bytes, cut) = rest;
        }
        if is_next {
            self.output_bytes(start, bytes, context);
            if cut > 0 {
                self.miss(end - cut..end, context);
            }
            self.output_held(end, context);
            return;
        }
        let before = self.held.charge();
        let DuplicateBytes { repeated, differing } = self.held.lay(&segment, start, bytes, cut, context.config.overlap);
        self.tally.repeated += repeated;
        self.tally.differing += differing;
        *context.memory = *context.memory + self.held.charge() - before;
        self.output_held(start, context);
        while self.is_waiting() && (insists || self.held.charge() > context.config.stream_memory) {
            self.skip_gap(context);
        }
    }

    /// Returns the offset of a segment, and whether it leaves all known state behind; `None` if it does not belong.
    fn place_of(&mut self, sequence: u32, len: u64) -> Option<(i64, bool)> {
        let (at, edge) = (self.at(sequence), self.ranges.edge() as i64);
        let reach = edge.max(self.acked as i64);
        if at <= reach + WINDOW && at >= edge - WINDOW {
            self.far = 0;
            return Some((at, false));
        }
        self.far += 1;
        if self.far < INSISTING {
            self.tally.far += len;
            return None;
        }
        // The stream advanced by an unknown number of wraps; assume the fewest.
        self.far = 0;
        let expected = self.base.unwrap_or(sequence).wrapping_add(edge as u32);
        Some((edge + i64::from(sequence.wrapping_sub(expected)), true))
    }

    /// Returns the part of a segment between the edge and the end.
    fn trimmed<'b>(&mut self, start: i64, bytes: &'b [u8], cut: u64) -> Option<(u64, &'b [u8], u64)> {
        let (edge, end) = (self.ranges.edge(), start + bytes.len() as i64 + cut as i64);
        let (mut start, mut bytes, mut cut) = (start, bytes, cut);
        if let Some(beyond) = self.fin.and_then(|fin| u64::try_from(end - fin as i64).ok()).filter(|more| *more > 0) {
            let all = bytes.len() as u64 + cut;
            self.tally.beyond += beyond.min(all);
            bytes = &bytes[..(bytes.len() as u64).min(all.saturating_sub(beyond)) as usize];
            cut = all.saturating_sub(beyond).saturating_sub(bytes.len() as u64);
        }
        if start < edge as i64 {
            let gone = ((edge as i64 - start) as u64).min(bytes.len() as u64);
            self.count_duplicate(start, gone);
            bytes = &bytes[gone as usize..];
            start += gone as i64;
            let gone = (edge as i64 - start).max(0) as u64;
            cut = cut.saturating_sub(gone);
            start = start.max(edge as i64);
        }
        (!bytes.is_empty() || cut > 0).then_some((start as u64, bytes, cut))
    }

    /// Counts bytes before the edge.
    fn count_duplicate(&mut self, start: i64, len: u64) {
        let before = len.min(start.min(0).unsigned_abs());
        let (from, to) = (start.max(0) as u64, (start + len as i64).max(0) as u64);
        let behind = self.gaps.partition_point(|gap| gap.end <= from);
        let gaps = self.gaps[behind..].iter().take_while(|gap| gap.start < to);
        let late: u64 = gaps.map(|gap| gap.end.min(to) - gap.start.max(from)).sum();
        match self.began {
            StartEvidence::Start => self.tally.repeated += before,
            StartEvidence::Middle => self.tally.before += before,
        }
        self.tally.late += late;
        self.tally.repeated += len - before - late;
    }

    /// Gives up the first gap.
    pub(super) fn skip_gap(&mut self, context: &mut Context<'_, impl Output>) {
        let Some(end) = self.ranges.gap_end() else { return };
        let gap = self.ranges.edge()..end;
        self.ranges.skip_to(end);
        self.miss(gap, context);
        self.output_held(end, context);
    }

    /// Gives up all gaps, when no more segments follow.
    pub(super) fn skip_all_gaps(&mut self, context: &mut Context<'_, impl Output>) {
        while self.is_waiting() {
            self.skip_gap(context);
        }
    }

    /// Outputs waiting bytes that are now in order.
    fn output_held(&mut self, from: u64, context: &mut Context<'_, impl Output>) {
        let mut at = from;
        while at < self.ranges.edge() {
            let before = self.held.charge();
            let Some((len, bytes)) = self.held.take(at) else { return };
            *context.memory -= before - self.held.charge();
            match bytes {
                Some(bytes) => self.output_bytes(at, &bytes, context),
                None => self.miss(at..at + len, context),
            }
            at += len;
        }
    }

    #[inline]
    fn output_bytes(&mut self, offset: u64, bytes: &[u8], context: &mut Context<'_, impl Output>) {
        if bytes.is_empty() {
            return;
        }
        self.tally.bytes += bytes.len() as u64;
        let stream = context.stream(self);
        context.is_taken &= context.out.bytes(stream, offset, bytes, context.time);
    }

    fn miss(&mut self, gap: Range<u64>, context: &mut Context<'_, impl Output>) {
        let stream = context.stream(self);
        context.out.gap(stream, gap.clone(), context.time);
        self.tally.gaps += 1;
        self.tally.missing += gap.end - gap.start;
        if *context.memory + GAP > context.config.memory || *context.listed + GAP > context.config.memory / LISTS {
            self.tally.unlisted += 1;
        } else {
            *context.memory += GAP;
            *context.listed += GAP;
            self.gaps.push(gap);
        }
    }
}
