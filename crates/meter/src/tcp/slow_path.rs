//! Slow path: handshakes, connection ends, lost, late and retransmitted segments; by the definitions in
//! `docs/flows.md`.

use super::connections::SideTables;
use super::history::{Letter, is_repeated_at};
use super::loss_state::{Side, is_prompt};
use super::record::{Cold, Hot, NO_TIME, Record, SACK, TIMESTAMPS, UNSEEN_SYN, beyond, mark, units};
use crate::facts::Facts;
use crate::flow::Quality;
use crate::record::{ACK, FIN, RST, SYN};

/// Larger than any window (RFC 7323, 2.3).
const FAR: i32 = 1 << 30;
/// Larger than the payload of any packet.
pub(super) const MUCH: u32 = 1 << 24;
/// Maximum delay of a segment out of order where the handshake was not seen: 3 ms, in units of 1,024 ns.
const PATIENCE: u32 = 3_000_000 / 1024;

/// Processing of one packet.
pub(super) struct SlowPath<'a> {
    pub number: u32,
    pub hot: &'a mut Hot,
    pub cold: &'a mut Cold,
    pub tables: &'a mut SideTables,
    pub facts: &'a Facts,
    side: usize,
    other: usize,
    /// True if a FIN or RST ends the connection.
    is_end: bool,
}

impl<'a> SlowPath<'a> {
    pub(super) fn new(number: u32, record: &'a mut Record, tables: &'a mut SideTables, facts: &'a Facts) -> Self {
        let [side, other] = facts.sides();
        let is_end = facts.flags & (FIN | RST) != 0 && record.accepts_end(facts);
        SlowPath { is_end, number, hot: &mut record.hot, cold: &mut record.cold, tables, facts, side, other }
    }

    pub(super) fn take(&mut self) {
        let flags = self.facts.flags;
        if self.facts.quality & Quality::BAD_CHECKSUM.0 != 0 {
            self.count_letter(Letter::BadChecksum, |trouble| &mut trouble.bad);
            return;
        }
        if flags & (FIN | RST) != 0 && flags & SYN != 0 {
            self.add_letter_once(Letter::SynEnd);
        }
        if flags & RST != 0 {
            self.reset();
        } else if self.facts.payload < MUCH {
            if flags & SYN != 0 {
                self.add_letter_once(if flags & ACK != 0 { Letter::SynAck } else { Letter::Syn });
            }
            if flags & ACK != 0 {
                self.acknowledge();
            }
            self.take_segment();
            if flags & SYN == 0 {
                self.take_window();
            }
            if flags & FIN != 0 {
                if self.is_end {
                    self.mark(mark::FIN);
                    self.forgive_reset();
                }
                self.add_letter_once(Letter::Fin);
            }
        }
    }

    fn reset(&mut self) {
        if self.is_end {
            // After both FINs the connection has ended as usual.
            let [one, other] = self.hot.marks;
            if one & other & mark::FIN == 0 || (one | other) & mark::RST != 0 {
                self.mark(mark::RST);
            }
        }
        if self.facts.flags & FIN != 0 {
            self.add_letter_once(Letter::FinRst);
        }
        self.add_letter_once(Letter::Rst);
    }

    /// Forgets the RST that followed a FIN of the other side: with this FIN, both sides have ended as usual.
    fn forgive_reset(&mut self) {
        if self.has(self.other, mark::FIN) && !self.has(self.side, mark::RST) {
            self.hot.marks[self.other] &= !mark::RST;
        }
    }

    /// Handles the acknowledgement of the other side's bytes.
    fn acknowledge(&mut self) {
        let (side, other, number) = (self.side, self.other, self.facts.segment.acknowledgement);
        if self.has(other, mark::NEXT) {
            let ahead = beyond(number, self.hot.next[other]);
            if ahead == 1 && self.has(other, mark::PROBED) {
                self.hot.next[other] = number;
                self.hot.marks[other] &= !mark::PROBED;
            }
            if !(-FAR..FAR).contains(&ahead) {
                return;
            }
        }
        if self.facts.flags & SYN != 0 && !self.hot.has_seen_syn(other) {
            self.cold.sides[other].isn = number.wrapping_sub(1);
        }
        if !self.has(other, mark::ACKED) || beyond(number, self.hot.acked[other]) > 0 {
            self.hot.marks[other] |= mark::ACKED;
            self.hot.acked[other] = number;
        } else if number == self.hot.acked[other] && self.is_duplicate() {
            let time = self.facts.time;
            let trouble = self.tables.troubles.of(&mut self.hot.trouble);
            count(&mut trouble.sides[side].duplicate_acks);
            trouble.sides[other].repeat(number, time);
        }
        if self.has(other, mark::TIMING) && beyond(number, self.hot.timed_end[other]) >= 0 {
            self.end_round_trip();
        }
    }

    /// Returns whether an acknowledgement with the same number as before is a pure duplicate.
    fn is_duplicate(&self) -> bool {
        let segment = &self.facts.segment;
        self.facts.payload == 0
            && self.facts.flags & (SYN | FIN) == 0
            && segment.window != 0
            && segment.window == self.hot.window[self.side]
            && self.has(self.side, mark::NEXT)
            && segment.sequence == self.hot.next[self.side]
            && self.has(self.other, mark::NEXT)
            && beyond(self.hot.next[self.other], segment.acknowledgement) > 0
    }

    /// Handles the acknowledgement of the segment that is timed.
    fn end_round_trip(&mut self) {
        let other = self.other;
        let time = units(self.facts.time).wrapping_sub(self.hot.timed_at[other]);
        let was_syn = self.has(other, mark::TIMED_SYN);
        self.hot.marks[other] &= !(mark::TIMING | mark::TIMED_SYN);
        if (time as i32) < 0 {
            return;
        }
        if was_syn {
            let was_answer = self.has(other, mark::SYN_ACK);
            let is_answer = self.facts.flags & SYN != 0;
            let handshake = &mut self.hot.handshake[usize::from(was_answer)];
            if (was_answer || is_answer) && *handshake == NO_TIME {
                *handshake = time;
            }
        } else if !self.cold.sides[other].add(time) {
            self.tables.round_trips.carry(self.number, other, &mut self.cold.sides[other]);
            self.cold.sides[other].add(time);
        }
    }

    /// Handles the sequence numbers of the packet's own side.
    fn take_segment(&mut self) {
        let Facts { flags, payload, segment, .. } = *self.facts;
        let (syn, fin) = (u32::from(flags & SYN != 0), u32::from(flags & FIN != 0));
        let (side, start) = (self.side, segment.sequence);
        let end = start.wrapping_add(payload + syn + fin);
        if start == end {
            self.handle_empty_packet();
            return;
        }
        let ahead = beyond(start, self.hot.next[side]);
        let is_late_syn = self.hot.is_late_syn(self.cold, self.facts);
        let mut is_same = false;
        let is_known_syn = is_late_syn || self.hot.has_seen_syn(side) && start == self.cold.sides[side].isn;
        if !self.has(side, mark::NEXT) || (syn != 0 && !is_known_syn) || !(-FAR..FAR).contains(&ahead) {
            self.begin(end);
        } else if ahead > 0 {
            let trouble = self.tables.troubles.of(&mut self.hot.trouble);
            trouble.sides[side].open(self.hot.next[side], start, units(self.facts.time));
            self.count_letter(Letter::Gap, |trouble| &mut trouble.gaps);
            self.advance(end);
        } else if ahead == 0 && payload == 1 && syn + fin == 0 && self.has(self.other, mark::ZERO) {
            count(&mut self.tables.troubles.of(&mut self.hot.trouble).sides[side].window_probes);
            self.hot.marks[side] |= mark::PROBED;
        } else if ahead == 0 {
            self.advance(end);
        } else if is_late_syn || syn != 0 && flags & ACK != 0 && !self.has(side, mark::SYN_ACK) {
            // Captured after the segments that follow it. Or a simultaneous open: a repeated SYN that acknowledges the
            // other one.
            self.raise(end);
        } else {
            is_same = self.hot.has_same_identification(side, segment.identification);
            self.take_retransmission(end, is_same);
        }
        if syn != 0 {
            self.take_syn(is_late_syn);
        }
        if payload > 0 {
            self.add_letter_first(mark::DATA, Letter::Data);
        }
        if !is_same {
            self.hot.note_identification(side, segment.identification);
        }
    }

    /// Handles a packet without payload, SYN, FIN.
    fn handle_empty_packet(&mut self) {
        let (side, start) = (self.side, self.facts.segment.sequence);
        if !self.has(side, mark::NEXT) {
            self.expect_syn();
            self.hot.next[side] = start;
            self.mark(mark::NEXT);
        } else if beyond(start, self.hot.next[side]) == -1 {
            count(&mut self.tables.troubles.of(&mut self.hot.trouble).sides[side].keep_alives);
        }
        if self.facts.flags & ACK != 0 {
            self.add_letter_first(mark::ACK, Letter::Ack);
        }
    }

    /// Handles the first segment of a side, or one with unrelated sequence numbers.
    fn begin(&mut self, end: u32) {
        let side = self.side;
        if !self.has(side, mark::NEXT) {
            self.expect_syn();
        }
        if self.has(side, mark::NEXT) || self.facts.flags & SYN != 0 {
            self.hot.marks[side] &= !mark::ACKED;
        }
        self.hot.marks[side] &= !(mark::TIMING | mark::TIMED_SYN | mark::PROBED);
        self.hot.next[side] = end;
        self.mark(mark::NEXT);
        if let Some(trouble) = self.tables.troubles.get(self.hot.trouble) {
            trouble.sides[side].forget();
        }
    }

    /// Derives the number of the SYN from the first segment of a side, unless the SYN with ACK did.
    fn expect_syn(&mut self) {
        let is_answered = self.hot.has_seen_syn(self.other) && self.has(self.other, mark::SYN_ACK);
        if !self.hot.has_seen_syn(self.side) && !is_answered {
            self.cold.sides[self.side].isn = self.facts.segment.sequence.wrapping_sub(1);
        }
    }

    /// Handles the newest segment of a side without bytes that were seen before.
    fn advance(&mut self, end: u32) {
        let side = self.side;
        self.raise(end);
        self.hot.marks[side] &= !mark::PROBED;
        self.hot.time(side, units(self.facts.time));
    }

    fn raise(&mut self, end: u32) {
        let side = self.side;
        if beyond(end, self.hot.next[side]) <= 0 {
            return;
        }
        if crosses(self.hot.next[side], end)
            && let Some(trouble) = self.tables.troubles.get(self.hot.trouble)
        {
            trouble.sides[side].discard_far(end, FAR as u32);
        }
        self.hot.next[side] = end;
    }

    /// Handles a segment below the next sequence number; it may have the identification of the previous one.
    fn take_retransmission(&mut self, end: u32, has_same: bool) {
        let Facts { flags, payload, segment, time, .. } = *self.facts;
        let (side, start) = (self.side, segment.sequence);
        self.hot.marks[side] &= !(mark::TIMING | mark::TIMED_SYN);
        let first = start.wrapping_add(u32::from(flags & SYN != 0));
        let behind = first.wrapping_add(payload);
        let below = payload.min(beyond(self.hot.next[side], first).max(0) as u32);
        let is_acked = payload > 0 && self.has(side, mark::ACKED) && beyond(behind, self.hot.acked[side]) <= 0;
        let is_keep_alive = payload == 1 && flags & (SYN | FIN) == 0 && beyond(start, self.hot.next[side]) == -1;
        let is_answered = self.has(side, mark::ACKED) && beyond(end, self.hot.acked[side]) <= 0;
        let is_copied = has_same && segment.identification != 0 && !self.hot.is_constant_identification(side);
        let is_new = beyond(end, self.hot.next[side]) > 0;
        let patience = self.patience();
        let trouble = &mut self.tables.troubles.of(&mut self.hot.trouble).sides[side];
        let seen = below - trouble.in_holes(first, first.wrapping_add(below));
        let hole = trouble.fill(start, end);
        let class = match hole {
            _ if is_keep_alive => &mut trouble.keep_alives,
            None if is_copied && !is_new && !is_answered => &mut trouble.copies,
            Some(since) if is_prompt(since, time, patience) => &mut trouble.out_of_order,
            Some(_) => &mut trouble.unseen,
            None if is_acked => &mut trouble.spurious,
            None if trouble.is_fast(start, time) => &mut trouble.fast,
            None => &mut trouble.timeout,
        };
        count(class);
        trouble.retransmitted_bytes += u64::from(seen);
        if seen > 0 {
            self.count_letter(Letter::Again, |trouble| &mut trouble.again);
        }
        self.raise(end);
    }

    /// Returns the maximum age of a hole at which a segment that fills it is out of order.
    fn patience(&self) -> u32 {
        let [one, other] = self.hot.handshake;
        if one == NO_TIME || other == NO_TIME { PATIENCE } else { one.saturating_add(other) }
    }

    /// Handles the options of a SYN, whose sequence numbers are counted already. A late one is not timed: its answer
    /// was seen before.
    fn take_syn(&mut self, is_late: bool) {
        let (side, segment) = (self.side, self.facts.segment);
        let kind = if self.facts.flags & ACK != 0 { mark::SYN_ACK } else { mark::SYN };
        let end = segment.sequence.wrapping_add(1);
        let is_new = !self.hot.has_seen_syn(side) || self.cold.sides[side].isn != segment.sequence;
        let options = segment.options;
        if is_new {
            self.cold.sides[side].isn = segment.sequence;
            self.hot.trouble &= !(UNSEEN_SYN << side);
            self.cold.sides[side].mss = options.mss();
            self.hot.marks[side] =
                self.hot.marks[side] & !(15 << mark::SCALE) | u16::from(options.scale()) << mark::SCALE;
            for (is_so, bit) in
                [(options.is_sack_permitted(), SACK << side), (options.has_timestamps(), TIMESTAMPS << side)]
            {
                self.hot.trouble = self.hot.trouble & !bit | if is_so { bit } else { 0 };
            }
        }
        if (is_new || !self.has(side, kind)) && !is_late {
            self.hot.marks[side] |= mark::TIMING | mark::TIMED_SYN;
            self.hot.timed_end[side] = end;
            self.hot.timed_at[side] = units(self.facts.time);
        }
        self.mark(kind);
    }

    /// Handles the window of a packet other than SYN and RST.
    fn take_window(&mut self) {
        let (side, window) = (self.side, self.facts.segment.window);
        let [least, most] = &mut self.cold.sides[side].windows;
        (*least, *most) = (window.min(*least), window.max(*most));
        self.hot.window[side] = window;
        self.hot.marks[side] &= !mark::ZERO;
        if window == 0 {
            self.mark(mark::ZERO);
            if self.facts.flags & FIN == 0 {
                self.count_letter(Letter::ZeroWindow, |trouble| &mut trouble.zero_windows);
            }
        }
    }

    fn has(&self, side: usize, marks: u16) -> bool {
        self.hot.marks[side] & marks != 0
    }

    fn mark(&mut self, marks: u16) {
        self.hot.marks[self.side] |= marks;
    }

    /// Adds a letter that occurs once, and whose mark records that it has.
    fn add_letter_first(&mut self, mark: u16, letter: Letter) {
        if !self.has(self.side, mark) {
            self.mark(mark);
            self.tables.histories.add(self.number, &mut self.hot.history, self.side, letter);
        }
    }

    fn add_letter_once(&mut self, letter: Letter) {
        self.tables.histories.add_once(self.number, &mut self.hot.history, self.side, letter);
    }

    /// Counts an event whose letter is repeated at powers of ten.
    fn count_letter(&mut self, letter: Letter, counter: impl Fn(&mut Side) -> &mut u32) {
        let trouble = self.tables.troubles.of(&mut self.hot.trouble);
        let counter = counter(&mut trouble.sides[self.side]);
        count(counter);
        if is_repeated_at(*counter) {
            self.tables.histories.add(self.number, &mut self.hot.history, self.side, letter);
        }
    }
}

fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

/// Returns whether the range of sequence numbers crosses a multiple of 2^30, where holes far below are discarded.
#[inline(always)]
pub(super) fn crosses(start: u32, end: u32) -> bool {
    (start ^ end) >> 30 != 0
}
