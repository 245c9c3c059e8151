//! One direction of a connection: where its bytes belong, what waits, what is missing.

use super::held::{Again, Held};
use super::{Began, Context, Output};
use crate::place::StreamId;
use crate::ranges::Ranges;
use linerate_burst::Nanos;
use std::ops::Range;

/// Ranges behind the first gap that are kept; beyond that the gap is given up.
const RANGES: usize = 4096;
/// No window is larger (RFC 7323, 2.3), so what lies further ahead belongs elsewhere.
const WINDOW: i64 = 1 << 30;
/// What is so near to where a stream is belongs to it: the largest window without scaling.
const NEAR: u64 = 1 << 16;
/// Unless so many segments in a row say the same: then much was not captured.
const INSISTING: u32 = 16;
/// Lists of gaps may take this part of the memory, as the rest is for what waits.
const LISTS: usize = 4;
/// Memory that a gap takes in the list of a stream.
pub(super) const GAP: usize = size_of::<Range<u64>>();

/// One direction.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// Sequence number of the first byte, once one is known.
    base: Option<u32>,
    /// What the other side acknowledged last.
    heard: Option<u32>,
    pub began: Began,
    ranges: Ranges,
    held: Held,
    /// Where the sender says that it ends.
    fin: Option<u64>,
    /// How far the receiver has all.
    acked: u64,
    /// Once there is a byte of it, or a gap.
    pub stream: Option<StreamId>,
    /// When the first and the last of its bytes came.
    pub times: Option<(Nanos, Nanos)>,
    /// Segments in a row from far away.
    far: u32,
    /// Whether it stands in the row of those that wait.
    pub is_queued: bool,
    pub gaps: Vec<Range<u64>>,
    pub tally: Tally,
}

/// What was counted of one direction; all but `gaps` are bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Handed on.
    pub bytes: u64,
    /// Gaps that were given up.
    pub gaps: u64,
    /// Their bytes.
    pub missing: u64,
    /// Gaps that are not in the list, for lack of memory.
    pub unlisted: u64,
    /// Came again, before or after they were handed on.
    pub repeated: u64,
    /// Of these, those that differed from what was waiting.
    pub differing: u64,
    /// Came when their gap had been given up.
    pub late: u64,
    /// Before the first byte of a stream that was under way when it was first seen.
    pub before: u64,
    /// Behind its end.
    pub beyond: u64,
    /// So far away that they belong to nothing that is known.
    pub far: u64,
}

impl Side {
    /// A SYN: the stream begins behind it.
    pub(super) fn begin(&mut self, sequence: u32) {
        self.base = Some(sequence.wrapping_add(1));
        self.began = Began::Start;
    }

    /// The other side has acknowledged the SYN.
    pub(super) fn begin_by_answer(&mut self, acknowledged: u32) {
        if self.base.is_none() {
            self.begin(acknowledged.wrapping_sub(1));
        }
    }

    /// Whether it is known where it begins.
    pub(super) fn is_begun(&self) -> bool {
        self.base.is_some()
    }

    /// Whether the other side has acknowledged anything.
    pub(super) fn is_heard(&self) -> bool {
        self.heard.is_some()
    }

    /// Whether a SYN with this sequence number is that of this stream, or could be.
    pub(super) fn agrees(&self, sequence: u32) -> bool {
        let first = sequence.wrapping_add(1);
        self.base.map_or_else(|| self.is_near(first), |base| base == first)
    }

    /// Whether a sequence number is near to where the stream is, and neither before its first byte nor after its end, as far as that is known.
    pub(super) fn is_near(&self, sequence: u32) -> bool {
        // A keep-alive repeats the byte before the first one.
        let is_within = |at: i64| at >= -1 && self.fin.is_none_or(|fin| at <= fin as i64 + 1);
        self.distance(sequence) <= NEAR && (self.base.is_none() || is_within(self.at(sequence)))
    }

    /// How far a sequence number is from where the stream is; 0 if that is not known.
    pub(super) fn distance(&self, sequence: u32) -> u64 {
        if self.base.is_some() {
            let (at, first) = (self.at(sequence), self.ranges.edge().min(self.acked) as i64);
            let last = self.ranges.end().max(self.acked) as i64;
            return (first - at).max(at - last).max(0).unsigned_abs();
        }
        self.heard.map_or(0, |heard| (sequence.wrapping_sub(heard) as i32).unsigned_abs().into())
    }

    /// Whether a byte was seen.
    pub(super) fn has_data(&self) -> bool {
        self.ranges.end() > 0
    }

    /// Whether its sender has said that this is all, and all before is there or given up.
    pub(super) fn is_over(&self) -> bool {
        self.fin.is_some_and(|fin| self.ranges.edge() >= fin)
    }

    /// Whether its sender has said that this is all.
    pub(super) fn has_fin(&self) -> bool {
        self.fin.is_some()
    }

    /// Whether bytes wait for others.
    pub(super) fn is_waiting(&self) -> bool {
        !self.ranges.beyond().is_empty()
    }

    /// Where the first gap ends, if there is one.
    pub(super) fn gap_end(&self) -> Option<u64> {
        self.ranges.gap_end()
    }

    /// How far the receiver has all.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Bytes at its end that were sent, by what either side said, and not seen.
    pub(super) fn missing_at_end(&self, is_over: bool) -> u64 {
        let end = self.fin.unwrap_or(self.acked);
        let missing = if self.base.is_some() { end.saturating_sub(self.ranges.end()) } else { 0 };
        // A FIN has a number too, which is acknowledged as a byte is.
        if missing == 1 && self.fin.is_none() && is_over { 0 } else { missing }
    }

    /// The other side has everything before this, unless that is further than it can have come.
    pub(super) fn acknowledge(&mut self, acknowledgement: u32) {
        self.heard = Some(acknowledgement);
        if self.base.is_some()
            && let Ok(acked) = u64::try_from(self.at(acknowledgement))
            && acked <= self.ranges.end() + WINDOW as u64
        {
            // It comes after the FIN in the numbers: who has bytes behind that did not take it for one.
            self.fin = self.fin.filter(|fin| acked <= fin + 1);
            self.acked = self.acked.max(acked.min(self.fin.unwrap_or(u64::MAX)));
        }
    }

    /// Whether a reset with this sequence number is one that the receiver can have taken.
    pub(super) fn may_reset(&self, sequence: u32) -> bool {
        let (at, edge, acked) = (self.at(sequence), self.ranges.edge() as i64, self.acked as i64);
        self.base.is_none() || (at >= edge.min(acked) && at <= edge.max(acked) + WINDOW)
    }

    /// The sender says that it ends there.
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

    /// Bytes of a segment, and how many behind them were sent and not captured.
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
        // Nothing waits, so this cannot be one range too many.
        let _ = self.ranges.insert(edge..edge + len, RANGES, |_| {});
        self.hand_on(edge, bytes, context);
    }

    /// Where a sequence number lies, of the two places next to where the stream is now.
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
        // In front of all that waits: nothing need be copied.
        let is_next = start == self.ranges.edge() && self.ranges.gap_end().is_none_or(|gap| end <= gap);
        while self.ranges.insert(start..end, RANGES, |_| {}).is_err() {
            self.give_up(context);
            let Some(rest) = self.trimmed(start as i64, bytes, cut) else { return };
            (start, bytes, cut) = rest;
        }
        if is_next {
            self.hand_on(start, bytes, context);
            if cut > 0 {
                self.miss(end - cut..end, context);
            }
            self.hand_on_held(end, context);
            return;
        }
        let before = self.held.charge();
        let Again { repeated, differing } = self.held.lay(&segment, start, bytes, cut, context.config.overlap);
        self.tally.repeated += repeated;
        self.tally.differing += differing;
        *context.memory = *context.memory + self.held.charge() - before;
        self.hand_on_held(start, context);
        while self.is_waiting() && (insists || self.held.charge() > context.config.stream_memory) {
            self.give_up(context);
        }
    }

    /// The offset of a segment, and whether all that was known before is left behind; `None` where it belongs to nothing that is known.
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
        // It has gone on by an unknown number of rounds; the least is believed in.
        self.far = 0;
        let expected = self.base.unwrap_or(sequence).wrapping_add(edge as u32);
        Some((edge + i64::from(sequence.wrapping_sub(expected)), true))
    }

    /// What of a segment lies between what was handed on and the end.
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
            self.count_again(start, gone);
            bytes = &bytes[gone as usize..];
            start += gone as i64;
            let gone = (edge as i64 - start).max(0) as u64;
            cut = cut.saturating_sub(gone);
            start = start.max(edge as i64);
        }
        (!bytes.is_empty() || cut > 0).then_some((start as u64, bytes, cut))
    }

    /// Bytes came that lie in front of what was handed on.
    fn count_again(&mut self, start: i64, len: u64) {
        let before = len.min(start.min(0).unsigned_abs());
        let (from, to) = (start.max(0) as u64, (start + len as i64).max(0) as u64);
        let behind = self.gaps.partition_point(|gap| gap.end <= from);
        let gaps = self.gaps[behind..].iter().take_while(|gap| gap.start < to);
        let late: u64 = gaps.map(|gap| gap.end.min(to) - gap.start.max(from)).sum();
        match self.began {
            Began::Start => self.tally.repeated += before,
            Began::Middle => self.tally.before += before,
        }
        self.tally.late += late;
        self.tally.repeated += len - before - late;
    }

    /// Gives up the first gap.
    pub(super) fn give_up(&mut self, context: &mut Context<'_, impl Output>) {
        let Some(end) = self.ranges.gap_end() else { return };
        let gap = self.ranges.edge()..end;
        self.ranges.skip_to(end);
        self.miss(gap, context);
        self.hand_on_held(end, context);
    }

    /// Gives up all gaps: nothing comes any more.
    pub(super) fn give_up_all(&mut self, context: &mut Context<'_, impl Output>) {
        while self.is_waiting() {
            self.give_up(context);
        }
    }

    /// What waited from there on, and is in order now.
    fn hand_on_held(&mut self, from: u64, context: &mut Context<'_, impl Output>) {
        let mut at = from;
        while at < self.ranges.edge() {
            let before = self.held.charge();
            let Some((len, bytes)) = self.held.take(at) else { return };
            *context.memory -= before - self.held.charge();
            match bytes {
                Some(bytes) => self.hand_on(at, &bytes, context),
                None => self.miss(at..at + len, context),
            }
            at += len;
        }
    }

    #[inline]
    fn hand_on(&mut self, offset: u64, bytes: &[u8], context: &mut Context<'_, impl Output>) {
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
