//! Which flows have ended, by packet time.
//!
//! Whether a packet still belongs to a flow is decided by its own time, when it comes: that is exact, and needs no timer. A
//! hand that goes round all records about once a second of packet time exports those that no packet can belong to any more;
//! it decides when a record is handed out, never what it says. So nothing is written for timers while packets are counted.

use crate::config::Timeouts;
use crate::facts::{Facts, Hint};
use crate::flow::{EndReason, Records};
use crate::meter::Meter;
use crate::record::age;
use linerate_burst::Nanos;

/// Frames between looks at the time.
const TICK: usize = 1024;
/// The hand goes round in so many nanoseconds (a bit more than a second).
const ROUND: u32 = 30;
/// The hand looks at so many records at a time, or more: one after another they come fast.
const AT_LEAST: u64 = 256;
/// Of which so many are looked at before any of them ends: what that needs is asked for meanwhile. The bits of a word.
const AT_A_TIME: usize = 64;
/// How much older than its predecessors a frame may be and still find its flow: a second.
const TOLERANCE: u64 = 1_000_000_000;
/// Times further apart than this, 16 hours, are told apart by whole times, not their lower 48 bits.
const FAR: u64 = 16 * 3600 * 1_000_000_000;
/// How often floods are exported: a minute.
const FLOODS: u64 = 60_000_000_000;

/// Packet time.
#[derive(Debug)]
pub(crate) struct Clock {
    /// The greatest time so far.
    pub latest: u64,
    /// All frames of the last two ticks are as late as this or later; one frame of a wrong time does not count.
    pub now: u64,
    is_set: bool,
    frames: usize,
    least: u64,
    least_before: u64,
    /// How many bits make a coarse unit, of which all timeouts have less than 126.
    shift: u32,
    /// The latest time that was told without a frame.
    told: u64,
    /// Time of the last sweep, what it left over, where it stopped; time of the last flood exported.
    swept: u64,
    left: u64,
    hand: usize,
    flooded: u64,
    /// `now` is far from what it was.
    has_jumped: bool,
}

/// When flows of a protocol end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pub idle: u64,
    pub active: u64,
    pub linger: u64,
    /// A packet that is older than the latest one by more than this is not of its flow.
    pub oldest: u64,
    /// As record times are compared.
    pub idle_shifted: u64,
    /// The least coarse age that may be as long.
    pub active_coarse: u8,
}

impl Limit {
    pub fn new(timeouts: &Timeouts, linger: Nanos, clock: &Clock) -> Self {
        let (idle, active) = (timeouts.idle.0, timeouts.active.0);
        let active_coarse = (active >> clock.shift) as u8;
        // Within both timeouts coarse ages are less than 126, and with another idle timeout less than what they go round after.
        let oldest = (idle + active).min(FAR);
        Limit { idle, active, linger: linger.0.min(idle), oldest, idle_shifted: idle << 16, active_coarse }
    }
}

impl Clock {
    pub fn new(timeouts: &[Timeouts]) -> Self {
        let longest = timeouts.iter().map(|one| one.idle.0 + one.active.0).max().unwrap_or(0);
        let shift = (0..).find(|shift| longest >> shift < 126).unwrap_or(0);
        Clock {
            latest: 0,
            now: 0,
            is_set: false,
            frames: 0,
            least: u64::MAX,
            least_before: u64::MAX,
            shift,
            told: 0,
            swept: 0,
            left: 0,
            hand: 0,
            flooded: 0,
            has_jumped: false,
        }
    }

    /// A time in coarse units, which go round.
    #[inline(always)]
    pub fn coarse(&self, time: u64) -> u8 {
        (time >> self.shift) as u8
    }

    /// Whether the lower 48 bits of this time say all.
    #[inline(always)]
    pub fn is_near(&self, time: u64) -> bool {
        time.wrapping_sub(self.now).wrapping_add(FAR) < 2 * FAR
    }

    pub fn frames_to_tick(&self) -> usize {
        TICK - self.frames
    }

    /// Takes the least and the greatest time of frames.
    #[inline(always)]
    pub fn see(&mut self, least: u64, latest: u64) {
        self.latest = latest;
        self.least = self.least.min(least);
        if !self.is_set {
            self.is_set = true;
            (self.now, self.swept, self.flooded) = (least, least, least);
        }
    }

    /// Counts frames; at every tick true, and `now` moves.
    pub fn tick(&mut self, frames: usize) -> bool {
        self.frames += frames;
        if self.frames < TICK {
            return false;
        }
        let now = self.least.min(self.least_before).max(self.told);
        (self.frames, self.least_before, self.least) = (0, self.least, u64::MAX);
        self.set(now);
        true
    }

    /// It is `now`, without a frame; false if that is no news.
    pub fn advance(&mut self, now: u64) -> bool {
        let is_later = self.is_set && now > self.now;
        if is_later {
            self.told = now;
            self.set(now);
        }
        is_later
    }

    fn set(&mut self, now: u64) {
        self.has_jumped = self.now.abs_diff(now) > FAR;
        if self.has_jumped {
            (self.swept, self.flooded) = (now, now);
        }
        self.now = now;
    }

    /// How many of so many records to look at.
    fn share(&mut self, records: usize) -> usize {
        let passed = self.now.saturating_sub(self.swept).min(1 << ROUND);
        self.swept = self.now;
        self.left += passed * records as u64;
        let share = self.left >> ROUND;
        if share < AT_LEAST.min(records as u64) {
            return 0;
        }
        self.left &= (1 << ROUND) - 1;
        records.min(share as usize)
    }
}

impl Meter {
    /// Why this packet does not belong to the flow any more, if so.
    pub(crate) fn is_over(&self, record: u32, facts: &Facts) -> Option<EndReason> {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let limit = &self.limits[usize::from(facts.words.protocol())];
        let last = cold.ended(hot);
        let (patience, reason) =
            if hot.has_ended() { (limit.linger, EndReason::End) } else { (limit.idle, EndReason::Idle) };
        if facts.time.saturating_sub(last) > patience || last.saturating_sub(facts.time) > limit.oldest {
            return Some(reason);
        }
        if facts.hint() == Hint::Syn && hot.is_closing() {
            return Some(EndReason::End);
        }
        (facts.time.saturating_sub(cold.began()) >= limit.active).then_some(EndReason::Active)
    }

    /// Why a flow has ended, if no packet comes until `now`.
    pub(crate) fn reason_at(&self, record: u32, now: u64) -> Option<EndReason> {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let idle = self.limits[usize::from(hot.words().protocol())].idle;
        let is_idle = now.saturating_sub(cold.ended(hot)) > idle;
        if hot.has_ended() { Some(EndReason::End) } else { is_idle.then_some(EndReason::Idle) }
    }

    /// Moves the hand on, as far as time has passed.
    pub(crate) fn sweep(&mut self, records: &mut dyn Records) {
        let now = self.clock.now.min(self.fragments.held_since()).saturating_sub(TOLERANCE);
        if self.clock.has_jumped {
            self.clock.has_jumped = false;
            self.end_far(now, records);
        }
        let count = self.hot.len();
        let mut left = self.clock.share(count);
        while left > 0 {
            // To the end of the records at the most.
            let hand = self.clock.hand;
            let some = hand..count.min(hand + left.min(AT_A_TIME));
            left -= some.len();
            self.clock.hand = if some.end == count { 0 } else { some.end };
            let mut due = 0u64;
            for (bit, record) in some.clone().enumerate() {
                if self.is_quiet(record, now) {
                    due |= 1 << bit;
                    self.prefetch_bucket(record);
                }
            }
            while due != 0 {
                let record = hand + due.trailing_zeros() as usize;
                due &= due - 1;
                let reason = if self.hot[record].has_ended() { EndReason::End } else { EndReason::Idle };
                self.end(record as u32, reason, records);
            }
        }
        self.expire_fragments(records);
        if self.clock.now.saturating_sub(self.clock.flooded) > FLOODS {
            self.clock.flooded = self.clock.now;
            self.flood.flush(records);
        }
    }

    /// Whether there is a flow in this record to which no packet can belong any more.
    fn is_quiet(&self, record: usize, now: u64) -> bool {
        let hot = &self.hot[record];
        let limit = &self.limits[usize::from(hot.words().protocol())];
        let quiet = age(now, hot.ways[0].seen).min(age(now, hot.ways[1].seen));
        let patience = if hot.has_ended() { limit.linger } else { limit.idle };
        quiet > (patience << 16) as i64 && !hot.is_free() && now.saturating_sub(self.cold[record].ended(hot)) > patience
    }

    /// Ends all flows that are not of about `now`: their times are not comparable any more.
    fn end_far(&mut self, now: u64, records: &mut dyn Records) {
        for record in 0..self.hot.len() {
            let hot = &self.hot[record];
            if hot.is_free() {
                continue;
            }
            if self.cold[record].ended(hot).abs_diff(now) > FAR / 2 {
                let reason = if hot.has_ended() { EndReason::End } else { EndReason::Idle };
                self.end(record as u32, reason, records);
            }
        }
    }

    fn expire_fragments(&mut self, records: &mut dyn Records) {
        let mut ready = Vec::new();
        self.fragments.expire(self.clock.now, &mut ready);
        if !ready.is_empty() {
            self.account_all(&mut ready, records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A meter that few frames come to is told what time it is by those of others.
    #[test]
    fn a_time_that_was_told_is_not_taken_back() {
        let mut clock = Clock::new(&[Timeouts { idle: Nanos(1), active: Nanos(1) }]);
        let (early, late) = (FAR, 3 * FAR);
        clock.see(early, late);
        assert!(clock.advance(late) && clock.has_jumped);
        assert!(clock.tick(TICK));
        assert_eq!(clock.now, late);
        assert!(!clock.has_jumped, "flows that go on would end");
    }
}
