//! Packets that are not like most: handshakes, ends, what is lost, late, or sent again; by the definitions in
//! `docs/flows.md`.

use super::connections::Beside;
use super::history::{Letter, is_told};
use super::record::{Cold, HIGHER_RESET, Hot, NO_TIME, Record, SACK, TIMESTAMPS, UNSEEN_SYN, beyond, mark, units};
use super::trouble::{Side, is_prompt};
use crate::facts::Facts;
use crate::flow::Quality;
use crate::record::{ACK, FIN, RST, SYN};

/// No window reaches so far (RFC 7323, 2.3).
const FAR: i32 = 1 << 30;
/// No packet has so much payload.
pub(super) const MUCH: u32 = 1 << 24;
/// How long a segment out of order may take where the handshake was not seen: 3 ms, in units of 1,024 ns.
const PATIENCE: u32 = 3_000_000 / 1024;

/// One packet on its way into its record.
pub(super) struct Rare<'a> {
    pub number: u32,
    pub hot: &'a mut Hot,
    pub cold: &'a mut Cold,
    pub beside: &'a mut Beside,
    pub facts: &'a Facts,
    side: usize,
    other: usize,
    /// A FIN or RST ends something.
    is_end: bool,
}

impl<'a> Rare<'a> {
    pub(super) fn new(number: u32, record: &'a mut Record, beside: &'a mut Beside, facts: &'a Facts) -> Self {
        let [side, other] = facts.sides();
        let is_end = facts.flags & (FIN | RST) != 0 && record.believes_end(facts);
        Rare { is_end, number, hot: &mut record.hot, cold: &mut record.cold, beside, facts, side, other }
    }

    pub(super) fn take(&mut self) {
        let flags = self.facts.flags;
        if self.facts.quality & Quality::BAD_CHECKSUM.0 != 0 {
            self.tell(Letter::BadChecksum, |trouble| &mut trouble.bad);
            return;
        }
        if flags & (FIN | RST) != 0 && flags & SYN != 0 {
            self.tell_once(Letter::SynEnd);
        }
        if flags & RST != 0 {
            self.reset();
        } else if self.facts.payload < MUCH {
            if flags & SYN != 0 {
                self.tell_once(if flags & ACK != 0 { Letter::SynAck } else { Letter::Syn });
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
                }
                self.tell_once(Letter::Fin);
            }
        }
    }

    fn reset(&mut self) {
        if self.is_end {
            if (self.hot.marks[0] | self.hot.marks[1]) & mark::RST == 0 && self.side == 1 {
                self.hot.trouble |= HIGHER_RESET;
            }
            self.mark(mark::RST);
        }
        if self.facts.flags & FIN != 0 {
            self.tell_once(Letter::FinRst);
        }
        self.tell_once(Letter::Rst);
    }

    /// What the packet says of the other side's bytes.
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
            let trouble = self.beside.troubles.of(&mut self.hot.trouble);
            count(&mut trouble.sides[side].duplicate_acks);
            trouble.sides[other].repeat(number, time);
        }
        if self.has(other, mark::TIMING) && beyond(number, self.hot.timed_end[other]) >= 0 {
            self.end_round_trip();
        }
    }

    /// Whether an acknowledgement of the same number as before says nothing but this.
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

    /// What the other side sent and was timed has come.
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
            self.beside.round_trips.carry(self.number, other, &mut self.cold.sides[other]);
            self.cold.sides[other].add(time);
        }
    }

    /// What the packet has of its own side's sequence numbers.
    fn take_segment(&mut self) {
        let Facts { flags, payload, segment, .. } = *self.facts;
        let (syn, fin) = (u32::from(flags & SYN != 0), u32::from(flags & FIN != 0));
        let (side, start) = (self.side, segment.sequence);
        let end = start.wrapping_add(payload + syn + fin);
        if start == end {
            self.take_nothing();
            return;
        }
        let ahead = beyond(start, self.hot.next[side]);
        let is_late_syn = self.hot.is_late_syn(self.cold, self.facts);
        let mut is_same = false;
        let is_known_syn = is_late_syn || self.hot.has_seen_syn(side) && start == self.cold.sides[side].isn;
        if !self.has(side, mark::NEXT) || (syn != 0 && !is_known_syn) || !(-FAR..FAR).contains(&ahead) {
            self.begin(end);
        } else if ahead > 0 {
            let trouble = self.beside.troubles.of(&mut self.hot.trouble);
            trouble.sides[side].open(self.hot.next[side], start, units(self.facts.time));
            self.tell(Letter::Gap, |trouble| &mut trouble.gaps);
            self.go_on(end);
        } else if ahead == 0 && payload == 1 && syn + fin == 0 && self.has(self.other, mark::ZERO) {
            count(&mut self.beside.troubles.of(&mut self.hot.trouble).sides[side].window_probes);
            self.hot.marks[side] |= mark::PROBED;
        } else if ahead == 0 {
            self.go_on(end);
        } else if is_late_syn || syn != 0 && flags & ACK != 0 && !self.has(side, mark::SYN_ACK) {
            // Captured after what follows it. Or both opened at the same time: its SYN again, and the acknowledgement of the
            // other one.
            self.raise(end);
        } else {
            is_same = self.hot.has_same_identification(side, segment.identification);
            self.take_again(end, is_same);
        }
        if syn != 0 {
            self.take_syn(is_late_syn);
        }
        if payload > 0 {
            self.tell_first(mark::DATA, Letter::Data);
        }
        if !is_same {
            self.hot.note_identification(side, segment.identification);
        }
    }

    /// A packet without payload, SYN, FIN.
    fn take_nothing(&mut self) {
        let (side, start) = (self.side, self.facts.segment.sequence);
        if !self.has(side, mark::NEXT) {
            self.expect_syn();
            self.hot.next[side] = start;
            self.mark(mark::NEXT);
        } else if beyond(start, self.hot.next[side]) == -1 {
            count(&mut self.beside.troubles.of(&mut self.hot.trouble).sides[side].keep_alives);
        }
        if self.facts.flags & ACK != 0 {
            self.tell_first(mark::ACK, Letter::Ack);
        }
    }

    /// The first segment of a side, or of other sequence numbers than before.
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
        if let Some(trouble) = self.beside.troubles.get(self.hot.trouble) {
            trouble.sides[side].forget();
        }
    }

    /// The first segment of a side tells the number of the SYN before it, unless the SYN with ACK did.
    fn expect_syn(&mut self) {
        let is_answered = self.hot.has_seen_syn(self.other) && self.has(self.other, mark::SYN_ACK);
        if !self.hot.has_seen_syn(self.side) && !is_answered {
            self.cold.sides[self.side].isn = self.facts.segment.sequence.wrapping_sub(1);
        }
    }

    /// A segment that is the newest of its side, and has no byte that was seen before.
    fn go_on(&mut self, end: u32) {
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
            && let Some(trouble) = self.beside.troubles.get(self.hot.trouble)
        {
            trouble.sides[side].forget_far(end, FAR as u32);
        }
        self.hot.next[side] = end;
    }

    /// A segment that begins below what comes next; it may have the identification of the one before it.
    fn take_again(&mut self, end: u32, has_same: bool) {
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
        let trouble = &mut self.beside.troubles.of(&mut self.hot.trouble).sides[side];
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
            self.tell(Letter::Again, |trouble| &mut trouble.again);
        }
        self.raise(end);
    }

    /// How long a hole may be open for what fills it to be out of order.
    fn patience(&self) -> u32 {
        let [one, other] = self.hot.handshake;
        if one == NO_TIME || other == NO_TIME { PATIENCE } else { one.saturating_add(other) }
    }

    /// What a SYN says, whose sequence numbers are counted already. A late one is not timed: its answer has come.
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

    /// The window that a packet announces, but SYN and RST.
    fn take_window(&mut self) {
        let (side, window) = (self.side, self.facts.segment.window);
        let [least, most] = &mut self.cold.sides[side].windows;
        (*least, *most) = (window.min(*least), window.max(*most));
        self.hot.window[side] = window;
        self.hot.marks[side] &= !mark::ZERO;
        if window == 0 {
            self.mark(mark::ZERO);
            if self.facts.flags & FIN == 0 {
                self.tell(Letter::ZeroWindow, |trouble| &mut trouble.zero_windows);
            }
        }
    }

    fn has(&self, side: usize, marks: u16) -> bool {
        self.hot.marks[side] & marks != 0
    }

    fn mark(&mut self, marks: u16) {
        self.hot.marks[self.side] |= marks;
    }

    /// A letter that stands once, and whose mark says whether it does.
    fn tell_first(&mut self, mark: u16, letter: Letter) {
        if !self.has(self.side, mark) {
            self.mark(mark);
            self.beside.histories.add(self.number, &mut self.hot.history, self.side, letter);
        }
    }

    fn tell_once(&mut self, letter: Letter) {
        self.beside.histories.add_once(self.number, &mut self.hot.history, self.side, letter);
    }

    /// Counts what has a letter, which stands again now and then.
    fn tell(&mut self, letter: Letter, counter: impl Fn(&mut Side) -> &mut u32) {
        let trouble = self.beside.troubles.of(&mut self.hot.trouble);
        let counter = counter(&mut trouble.sides[self.side]);
        count(counter);
        if is_told(*counter) {
            self.beside.histories.add(self.number, &mut self.hot.history, self.side, letter);
        }
    }
}

fn count(counter: &mut u32) {
    *counter = counter.saturating_add(1);
}

/// Whether sequence numbers from one to another pass a multiple of 2^30, where what is far below is forgotten.
#[inline(always)]
pub(super) fn crosses(start: u32, end: u32) -> bool {
    (start ^ end) >> 30 != 0
}
