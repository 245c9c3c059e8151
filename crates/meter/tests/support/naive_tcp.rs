//! TCP values derived directly from the definitions: every missing byte is in a map, every round trip in a list.

use super::segments::{ACK, FIN, MS, RST, SYN, Segment};
use linerate_meter::{ConnState, History, Rtt, Tcp, TcpSide};
use std::collections::BTreeMap;

const FAR: i64 = 1 << 30;

/// Known bytes of one side, with positions extended beyond 2^32.
#[derive(Default)]
struct Bytes {
    next: Option<i64>,
    acked: Option<i64>,
    /// Each byte never seen, with the number of its hole and its start.
    missing: BTreeMap<i64, (usize, u64)>,
    holes: usize,
    forgotten: u64,
    timed: Option<(i64, u64, TimedSegment)>,
    /// Duplicate acknowledgements of the other side.
    repeats: Vec<(i64, u64)>,
    identification: u16,
    /// Two different segments had it.
    is_constant: bool,
    is_probed: bool,
    isn: Option<u32>,
    /// Before a SYN is seen, the number that it must have.
    expected: Option<u32>,
    window: Option<u16>,
    windows: Vec<u16>,
    round_trips: Vec<u64>,
    sent: Vec<char>,
    again: u64,
    bad: u64,
    found: TcpSide,
}

#[derive(Clone, Copy, PartialEq)]
enum TimedSegment {
    Data,
    Syn,
    SynAck,
}

/// One record.
#[derive(Default)]
pub(crate) struct Naive {
    sides: [Bytes; 2],
    handshake: [Option<u64>; 2],
    history: Vec<(usize, char)>,
    resets: Vec<usize>,
    /// A gap is too large for a map of bytes.
    pub is_too_much: bool,
}

fn units(time: u64) -> u64 {
    time >> 10
}

/// Extends a sequence number to the position nearest a known one.
fn near(number: u32, known: Option<i64>) -> i64 {
    let known = known.unwrap_or(number.into());
    known + i64::from(number.wrapping_sub(known as u32) as i32)
}

impl Naive {
    fn record_letter(&mut self, side: usize, letter: char) {
        self.history.push((side, letter));
    }

    fn record_once(&mut self, side: usize, letter: char) {
        if !self.history.contains(&(side, letter)) {
            self.record_letter(side, letter);
        }
    }

    fn record_counted(&mut self, side: usize, letter: char, count: u64) {
        if [1, 10, 100, 1000].contains(&count) {
            self.record_letter(side, letter);
        }
    }

    pub(crate) fn take(&mut self, one: &Segment) {
        let has = |flag: u8| one.flags & flag != 0;
        if one.is_bad {
            self.sides[one.side].bad += 1;
            self.record_counted(one.side, 'c', self.sides[one.side].bad);
            return;
        }
        if has(SYN) && (has(FIN) || has(RST)) {
            self.record_once(one.side, 'q');
        }
        if has(RST) {
            if has(FIN) {
                self.record_once(one.side, 'i');
            }
            if self.accepts_end(one) {
                let is_over = self.sides.iter().all(|side| side.sent.contains(&'f')) && self.resets.is_empty();
                self.resets.extend((!is_over).then_some(one.side));
            }
            self.record_once(one.side, 'r');
            return;
        }
        let is_end = has(FIN) && self.accepts_end(one);
        if has(SYN) {
            self.record_once(one.side, if has(ACK) { 'h' } else { 's' });
        }
        if has(ACK) {
            self.acknowledge(one);
        }
        self.segment(one, is_end);
        if !has(SYN) {
            let me = &mut self.sides[one.side];
            me.window = Some(one.window);
            me.windows.push(one.window);
            if one.window == 0 && !has(FIN) {
                me.found.zero_windows += 1;
                let count = me.found.zero_windows;
                self.record_counted(one.side, 'w', count);
            }
        }
        if has(FIN) {
            self.record_once(one.side, 'f');
        }
    }

    fn acknowledge(&mut self, one: &Segment) {
        let (side, other) = (one.side, 1 - one.side);
        let sent_next = self.sides[other].next;
        let number = near(one.acknowledgement, sent_next.or(self.sides[other].acked));
        let [first, second] = &mut self.sides;
        let (me, peer) = if side == 0 { (first, second) } else { (second, first) };
        if peer.is_probed && sent_next == Some(number - 1) {
            peer.next = Some(number);
            peer.is_probed = false;
        }
        if sent_next.is_some_and(|next| !(-FAR..FAR).contains(&(number - next))) {
            return;
        }
        if one.flags & SYN != 0 && peer.isn.is_none() {
            peer.expected = Some(one.acknowledgement.wrapping_sub(1));
        }
        let is_bare = one.payload == 0 && one.flags & (SYN | FIN) == 0;
        if peer.acked == Some(number) {
            let is_same = one.window != 0 && me.window == Some(one.window);
            let is_at_its_end = me.next.is_some() && me.next == Some(near(one.sequence, me.next));
            if is_bare && is_same && is_at_its_end && peer.next > Some(number) {
                me.found.duplicate_acks += 1;
                peer.repeats.push((number, one.time));
            }
        }
        peer.acked = peer.acked.max(Some(number));
        if let Some((end, time, kind)) = peer.timed
            && number >= end
        {
            peer.timed = None;
            let took = units(one.time).checked_sub(units(time));
            match (kind, took) {
                (TimedSegment::Data, Some(took)) => peer.round_trips.push(took),
                (TimedSegment::Syn, Some(took)) if one.flags & SYN != 0 => {
                    self.handshake[0].get_or_insert(took);
                }
                (TimedSegment::SynAck, Some(took)) => {
                    self.handshake[1].get_or_insert(took);
                }
                _ => {}
            }
        }
    }

    /// Returns whether a FIN or RST is within a window of its side's next sequence number, or acknowledgement.
    pub(crate) fn accepts_end(&self, one: &Segment) -> bool {
        let (me, peer) = (&self.sides[one.side], &self.sides[1 - one.side]);
        let scales = [me, peer].map(|side| side.found.window_scale);
        let shift = match scales {
            [Some(_), Some(scale)] => scale,
            _ if me.isn.is_some() && peer.isn.is_some() => 0,
            _ => 8,
        };
        let window = i64::from(peer.windows.iter().copied().max().unwrap_or(0)) << shift;
        let reach = window.clamp(1 << 16, (1 << 30) - 1);
        let is_near = |number: u32, next: i64| (near(number, Some(next)) - next).abs() <= reach;
        match (me.next, peer.next) {
            _ if one.is_bad => false,
            (Some(next), _) => is_near(one.sequence, next),
            (None, Some(next)) if one.flags & ACK != 0 => is_near(one.acknowledgement, next),
            _ => true,
        }
    }

    /// Returns whether this is a SYN that was captured after the segments that follow it.
    pub(crate) fn is_late_syn(&self, one: &Segment) -> bool {
        self.sides[one.side].is_late_syn(one)
    }

    fn segment(&mut self, one: &Segment, is_end: bool) {
        let (syn, fin) = (i64::from(one.flags & SYN != 0), i64::from(one.flags & FIN != 0));
        let length = syn + fin + one.payload as i64;
        let other_is_shut = self.sides[1 - one.side].window == Some(0);
        let patience = match self.handshake {
            [Some(there), Some(back)] => there + back,
            _ => 3_000_000 / 1024,
        };
        let is_answered = self.sides[1 - one.side].sent.contains(&'h');
        let me = &mut self.sides[one.side];
        let start = near(one.sequence, me.next.or(me.acked));
        if me.next.is_none() && me.isn.is_none() && !is_answered {
            me.expected = Some(one.sequence.wrapping_sub(1));
        }
        let is_late_syn = me.is_late_syn(one);
        let end = start + length;
        let mut letters = Vec::new();
        if length == 0 {
            match me.next {
                None => me.next = Some(start),
                Some(next) => me.found.keep_alives += u64::from(start == next - 1),
            }
            if one.flags & ACK != 0 {
                self.record_once(one.side, 'a');
                self.sides[one.side].sent.push('a');
            }
            return;
        }
        let is_plain = syn + fin == 0;
        let is_same_identification = one.identification & 0x7fff == me.identification & 0x7fff;
        let before = me.next;
        let gap = before.map(|next| start - next);
        let is_other_syn = syn == 1 && me.isn != Some(one.sequence) && !is_late_syn;
        let is_again = match gap {
            _ if is_other_syn => {
                me.restart();
                false
            }
            None => false,
            Some(gap) if !(-FAR..FAR).contains(&gap) => {
                me.restart();
                false
            }
            Some(gap) if gap > 0 => {
                if gap > 1000 {
                    self.is_too_much = true;
                    return;
                }
                me.found.gaps += 1;
                let count = me.found.gaps;
                letters.push(('g', count));
                me.holes += 1;
                (before.unwrap()..start).for_each(|byte| _ = me.missing.insert(byte, (me.holes, one.time)));
                me.discard_old();
                me.timed.get_or_insert((end, one.time, TimedSegment::Data));
                false
            }
            Some(0) if one.payload == 1 && is_plain && other_is_shut => {
                me.found.window_probes += 1;
                me.is_probed = true;
                false
            }
            Some(0) => {
                me.timed.get_or_insert((end, one.time, TimedSegment::Data));
                false
            }
            Some(_) if is_late_syn || syn == 1 && one.flags & ACK != 0 && !me.sent.contains(&'h') => false,
            Some(_) => true,
        };
        if is_again {
            let next = before.unwrap();
            me.timed = None;
            let payload = start + syn..end - fin;
            let seen = payload.clone().filter(|byte| *byte < next && !me.missing.contains_key(byte)).count() as u64;
            let hole = (start..end).find_map(|byte| me.missing.get(&byte)).map(|(_, since)| *since);
            (start..end).for_each(|byte| _ = me.missing.remove(&byte));
            me.discard_old();
            let asked = me.repeats.iter().rev().take_while(|(number, _)| *number == me.repeats.last().unwrap().0);
            let is_fast = asked.clone().count() >= 2
                && me.repeats.last().unwrap().0 == start
                && one.time.saturating_sub(me.repeats.last().unwrap().1) <= 20 * MS;
            let sent = &mut me.found.retransmitted;
            let class = match hole {
                _ if one.payload == 1 && is_plain && start == next - 1 => &mut me.found.keep_alives,
                None if is_same_identification
                    && one.identification != 0
                    && !me.is_constant
                    && end <= next
                    && me.acked < Some(end) =>
                {
                    &mut me.found.copies
                }
                Some(since) if units(one.time).saturating_sub(units(since)) <= patience => &mut me.found.out_of_order,
                Some(_) => &mut sent.unseen,
                None if one.payload > 0 && me.acked >= Some(payload.end) => &mut sent.spurious,
                None if is_fast => &mut sent.fast,
                None => &mut sent.timeout,
            };
            *class += 1;
            me.found.retransmitted_bytes += seen;
            if seen > 0 {
                me.again += 1;
                letters.push(('t', me.again));
            }
        }
        let is_probe = me.is_probed && gap == Some(0) && one.payload == 1 && is_plain && other_is_shut;
        if !is_probe {
            if before.is_none_or(|next| end > next) || me.next.is_none() {
                me.next = Some(end);
            }
            if !is_again && gap.is_none_or(|gap| gap >= 0) {
                me.is_probed = false;
            }
        }
        if syn == 1 {
            me.syn(one, start, is_late_syn);
        }
        if !(is_again && is_same_identification) {
            (me.identification, me.is_constant) = (one.identification, is_same_identification);
        }
        if one.payload > 0 {
            me.sent.push('d');
        }
        for (letter, count) in letters {
            self.record_counted(one.side, letter, count);
        }
        if one.payload > 0 {
            self.record_once(one.side, 'd');
        }
        if is_end {
            self.sides[one.side].sent.push('f');
            let other = 1 - one.side;
            if self.sides[other].sent.contains(&'f') && !self.resets.contains(&one.side) {
                self.resets.retain(|side| *side != other);
            }
        }
    }

    /// Returns the expected analysis; `originator` is 0 or 1 as sides are.
    pub(crate) fn tcp(&self, originator: usize) -> Tcp {
        let order = [originator, 1 - originator];
        let letter = |(side, letter): &(usize, char)| {
            if *side == originator { letter.to_ascii_uppercase() } else { *letter }
        };
        let scaled = self.sides.iter().all(|side| side.found.window_scale.is_some());
        Tcp {
            state: self.state(order),
            history: History(self.history.iter().map(letter).collect()),
            syn_to_syn_ack: self.handshake[0].map(|units| units << 10),
            syn_ack_to_ack: self.handshake[1].map(|units| units << 10),
            sides: order.map(|side| self.sides[side].analysis(scaled)),
        }
    }

    /// The table of states, by what each end did.
    fn state(&self, [originator, responder]: [usize; 2]) -> ConnState {
        let sent = |side: usize, letters: &str| letters.chars().any(|letter| self.sides[side].sent.contains(&letter));
        let [resets, fins] = [
            [originator, responder].map(|side| self.resets.contains(&side)),
            [originator, responder].map(|side| sent(side, "f") && !self.resets.contains(&side)),
        ];
        let is_answered = sent(responder, "sh");
        let is_tried = sent(originator, "s") && !is_answered && !resets[0] && !fins[0];
        let is_established = [sent(originator, "sad") && is_answered, is_answered];
        let is_half =
            [!resets[0] && !fins[0] && !is_established[0] && !is_tried, !resets[1] && !fins[1] && !is_established[1]];
        let acknowledges_only = sent(originator, "s") && !sent(responder, "d");
        let is_nothing = self.sides[responder].sent.is_empty() && self.sides[responder].next.is_none();
        match () {
            () if resets[1] && is_tried => ConnState::Rej,
            () if resets == [true; 2] && !sent(0, "d") && !sent(1, "d") => ConnState::Rej,
            () if resets[1] && is_half[0] => ConnState::Rstrh,
            () if resets[1] => ConnState::Rstr,
            () if resets[0] && is_half[1] && sent(originator, "s") && !sent(originator, "haf") => ConnState::Rstos0,
            () if resets[0] && is_half[1] => ConnState::Oth,
            () if resets[0] => ConnState::Rsto,
            () if fins == [true; 2] => ConnState::Sf,
            () if fins[0] && is_half[1] => ConnState::Sh,
            () if fins[0] => ConnState::S2,
            () if fins[1] && is_half[0] => ConnState::Shr,
            () if fins[1] => ConnState::S3,
            () if is_tried && (is_nothing || acknowledges_only) => ConnState::S0,
            () if is_established == [true; 2] => ConnState::S1,
            () => ConnState::Oth,
        }
    }
}

impl Bytes {
    fn is_late_syn(&self, one: &Segment) -> bool {
        let expected = [0, one.payload as u32].map(|more| Some(one.sequence.wrapping_add(more)));
        let is_below = self.next.is_some_and(|next| near(one.sequence, Some(next)) < next);
        one.flags & SYN != 0 && self.isn.is_none() && expected.contains(&self.expected) && is_below
    }

    fn restart(&mut self) {
        self.forgotten += self.missing.len() as u64;
        self.missing.clear();
        (self.next, self.acked, self.timed, self.is_probed) = (None, None, None, false);
    }

    /// Holes are runs of bytes of one number; only the four newest are kept.
    fn discard_old(&mut self) {
        let mut runs: Vec<Vec<i64>> = Vec::new();
        for (byte, (hole, _)) in &self.missing {
            match runs.last_mut() {
                Some(run) if *run.last().unwrap() == byte - 1 && self.missing[run.last().unwrap()].0 == *hole => {
                    run.push(*byte);
                }
                _ => runs.push(vec![*byte]),
            }
        }
        runs.sort_by_key(|run| (self.missing[&run[0]].0, run[0]));
        for byte in runs.iter().rev().skip(4).flatten() {
            self.missing.remove(byte);
            self.forgotten += 1;
        }
    }

    fn syn(&mut self, one: &Segment, start: i64, is_late: bool) {
        let kind = if one.flags & ACK != 0 { 'h' } else { 's' };
        let is_new = self.isn != Some(one.sequence);
        if is_new {
            self.isn = Some(one.sequence);
            self.found.isn = self.isn;
            let has = |option: u8| one.options.chunks(4).find(|found| found[0] == option);
            self.found.mss = has(2).map(|found| u16::from_be_bytes([found[2], found[3]])).filter(|mss| *mss > 0);
            self.found.window_scale = has(3).map(|found| found[2].min(14));
            self.found.sack_permitted = has(4).is_some();
        }
        if (is_new || !self.sent.contains(&kind)) && !is_late {
            let timed = if kind == 'h' || self.sent.contains(&'h') { TimedSegment::SynAck } else { TimedSegment::Syn };
            self.timed = Some((start + 1, one.time, timed));
        }
        if kind == 'h'
            && let Some((.., timed)) = &mut self.timed
            && *timed == TimedSegment::Syn
        {
            *timed = TimedSegment::SynAck;
        }
        self.sent.push(kind);
    }

    fn analysis(&self, scaled: bool) -> TcpSide {
        let times = &self.round_trips;
        let count = times.len() as f64;
        let mean = times.iter().sum::<u64>() as f64 / count;
        let deviation = (times.iter().map(|time| (*time as f64 - mean).powi(2)).sum::<f64>() / count).sqrt();
        let rtt = Rtt {
            count: times.len() as u64,
            min: times.iter().min().map_or(0, |time| time << 10),
            max: times.iter().max().map_or(0, |time| time << 10),
            mean: if times.is_empty() { 0.0 } else { mean * 1024.0 },
            deviation: if times.is_empty() { 0.0 } else { deviation * 1024.0 },
        };
        let shift = if scaled { self.found.window_scale.unwrap_or(0) } else { 0 };
        let window = |window: Option<&u16>| window.map_or(0, |window| u32::from(*window) << shift);
        TcpSide {
            rtt,
            window: [window(self.windows.iter().min()), window(self.windows.iter().max())],
            gap_bytes: self.forgotten + self.missing.len() as u64,
            ..self.found
        }
    }
}
