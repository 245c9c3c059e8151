//! Expiry of flows, by packet time.
//!
//! A packet's own time decides, on arrival, if it still belongs to a flow: that is exact and needs no timer. A sweep
//! over all records, about once per second of packet time, exports those that no packet can belong to any more; it
//! decides when a record is exported, never its content. So no timer state is written while packets are counted.
//!
//! The cost of the sweep follows packets: it skips stretches without flows, visits a bounded number of records per
//! frame, and after a time jump ends every flow that it visits, or is moved to the new time.

use crate::config::Timeouts;
use crate::facts::{Facts, Hint};
use crate::flow::{EndReason, Records};
use crate::meter::Meter;
use crate::record::age;
use crate::time::{FAR, PacketTime, TICK, TimeChange};
use linerate_burst::{Desc, Nanos};
use std::ops::Range;

/// A sweep over all records takes 2^30 ns (a bit more than a second).
const ROUND: u32 = 30;
/// Minimum number of records per sweep step: consecutive records are fast.
const AT_LEAST: u64 = 256;
/// Records of a stretch, all of which are examined before any of them ends, so that the memory needed is prefetched.
/// The number of bits of a word.
pub(crate) const STRETCH: usize = 64;
/// Maximum number of records per sweep step, besides a share of all records: 64 for each frame of a tick, or, where the
/// time was set from outside, which is frequent where frames are rare, a few.
pub(crate) const AT_TICK: usize = 64 * TICK;
pub(crate) const WHEN_TOLD: usize = 4096;
const PART: usize = 64;
/// Maximum age of a frame compared with the packet time at which it still finds its flow: a second.
const TOLERANCE: u64 = 1_000_000_000;
/// Interval at which floods are exported: a minute.
const FLOODS: u64 = 60_000_000_000;
/// Number of sweeps after packet time went back that search for flows of later times: at least one complete sweep.
const SETTLE: u8 = 2;

/// Packet time, and the position of the sweep.
#[derive(Debug)]
pub(crate) struct Clock {
    pub time: PacketTime,
    /// True if time follows only [`Clock::set_now`], not frames.
    pub follows: bool,
    /// Bits of a coarse unit, in which all timeouts are less than 126.
    shift: u32,
    /// Time of the last sweep, records left over by it, its position, its start; time of the last flood export.
    swept: u64,
    left: u64,
    hand: usize,
    round: u64,
    flooded: u64,
    /// Number of remaining sweeps that end flows of later times.
    settling: u8,
    /// Records examined.
    pub looked: u64,
}

/// Timeouts of a protocol.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    pub idle: u64,
    pub active: u64,
    pub linger: u64,
    /// A packet that is older than the latest one by more than this does not belong to its flow.
    pub oldest: u64,
    /// Idle timeout in the unit of record times (2^-16 ns).
    pub idle_shifted: u64,
    /// Smallest coarse age that may have reached the active timeout.
    pub active_coarse: u8,
}

impl Limit {
    pub(crate) fn new(timeouts: &Timeouts, linger: Nanos, clock: &Clock) -> Self {
        let (idle, active) = (timeouts.idle.0, timeouts.active.0);
        let active_coarse = (active >> clock.shift) as u8;
        // Within both timeouts coarse ages are less than 126, and with another idle timeout less than their
        // wrap-around.
        let oldest = (idle + active).min(FAR);
        Limit { idle, active, linger: linger.0.min(idle), oldest, idle_shifted: idle << 16, active_coarse }
    }
}

impl Clock {
    pub(crate) fn new(timeouts: &[Timeouts]) -> Self {
        let longest = timeouts.iter().map(|one| one.idle.0 + one.active.0).max().unwrap_or(0);
        let shift = (0..).find(|shift| longest >> shift < 126).unwrap_or(0);
        Clock {
            time: PacketTime::default(),
            follows: false,
            shift,
            swept: 0,
            left: 0,
            hand: 0,
            round: 0,
            flooded: 0,
            settling: 0,
            looked: 0,
        }
    }

    /// Returns a time in coarse units, which wrap around.
    #[inline(always)]
    pub(crate) fn coarse(&self, time: u64) -> u8 {
        (time >> self.shift) as u8
    }

    /// Returns whether the lower 48 bits of this time identify it.
    #[inline(always)]
    pub(crate) fn is_near(&self, time: u64) -> bool {
        self.time.place(time) < 2 * FAR
    }

    /// Uses the time of the first frame as packet time until more is known, unless time is set by [`Clock::set_now`].
    #[inline(always)]
    pub(crate) fn begin(&mut self, first: Nanos) {
        if !self.follows {
            self.start_clock(first);
        }
    }

    /// Sets the time to `now`; false if that changes nothing.
    pub(crate) fn set_now(&mut self, now: Nanos) -> bool {
        if self.follows {
            self.start_clock(now);
        }
        self.time.set_now(now)
    }

    /// Adds the times of frames; `ends` are their least and greatest place.
    #[inline(always)]
    pub(crate) fn see(&mut self, descs: &[Desc], ends: (u64, u64)) {
        if !self.follows {
            self.time.add_all(descs, ends);
        }
    }

    /// Returns the number of frames until the time is updated next.
    pub(crate) fn frames_to_tick(&self) -> usize {
        self.time.frames_to_tick()
    }

    /// Counts frames; true if the time may have advanced.
    pub(crate) fn tick(&mut self, frames: usize) -> bool {
        !self.follows && self.time.tick(frames)
    }

    #[inline(always)]
    fn start_clock(&mut self, first: Nanos) {
        if !self.time.is_set() {
            self.time.begin(first);
            self.start_at(first.0);
        }
    }

    fn start_at_most(&mut self, now: u64) {
        (self.flooded, self.round) = (self.flooded.min(now), self.round.min(now));
    }

    fn start_at(&mut self, now: u64) {
        (self.swept, self.flooded, self.round) = (now, now, now);
    }

    /// Applies a change of packet time to the sweep; true if it jumped.
    fn settle(&mut self) -> bool {
        let (now, moved) = (self.time.now().0, self.time.moved());
        if moved != TimeChange::On {
            self.start_at(now);
            self.settling = SETTLE;
        }
        moved == TimeChange::Far
    }

    /// Returns the number of records to sweep now: all, or whole stretches.
    fn share(&mut self, records: usize) -> usize {
        let now = self.time.now().0;
        let passed = now.saturating_sub(self.swept).min(1 << ROUND);
        // The time of the first frame may have been too late.
        self.start_at_most(now);
        self.swept = now;
        self.left = (self.left + passed * records as u64).min((records as u64) << ROUND);
        let share = self.left >> ROUND;
        if share < AT_LEAST.min(records as u64) {
            return 0;
        }
        let share = if share == records as u64 { share } else { share / STRETCH as u64 * STRETCH as u64 };
        self.left -= share << ROUND;
        share as usize
    }

    /// Returns records to the budget that were not swept.
    fn refund(&mut self, records: usize) {
        self.left += (records as u64) << ROUND;
    }
}

impl Meter {
    /// Returns the reason if this packet does not belong to the flow any more.
    pub(crate) fn is_over(&self, record: u32, facts: &Facts) -> Option<EndReason> {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let limit = &self.limits[usize::from(facts.words.protocol())];
        let last = cold.ended(hot);
        let (patience, reason) =
            if hot.has_ended() { (limit.linger, EndReason::End) } else { (limit.idle, EndReason::Idle) };
        if facts.time.saturating_sub(last) > patience || last.saturating_sub(facts.time) > limit.oldest {
            return Some(reason);
        }
        if facts.hint() == Hint::Syn && hot.is_closing() && !self.tcp.is_late_syn(record, facts) {
            return Some(EndReason::End);
        }
        (facts.time.saturating_sub(cold.began()) >= limit.active).then_some(EndReason::Active)
    }

    /// Returns the reason for which a flow has ended if no packet arrives until `now`.
    pub(crate) fn reason_at(&self, record: u32, now: u64) -> Option<EndReason> {
        let (hot, cold) = (&self.hot[record as usize], &self.cold[record as usize]);
        let idle = self.limits[usize::from(hot.words().protocol())].idle;
        let is_idle = now.saturating_sub(cold.ended(hot)) > idle;
        if hot.has_ended() { Some(EndReason::End) } else { is_idle.then_some(EndReason::Idle) }
    }

    /// Advances the sweep to the current time, but examines no more than about `most` records.
    pub(crate) fn sweep(&mut self, most: usize, records: &mut dyn Records) {
        let time = self.clock.time.now().0;
        if self.clock.settle() {
            let mut ready = Vec::new();
            self.fragments.jump(time, &mut ready);
            self.account_all(&mut ready, records);
            self.expire_far(time, records);
        }
        let now = time.min(self.fragments.held_since(time)).saturating_sub(TOLERANCE);
        let count = self.hot.len();
        let mut left = self.clock.share(count);
        // A complete sweep is needed before times are so old that their lower bits are ambiguous.
        let mut most = if time.saturating_sub(self.clock.round) > FAR { count } else { most + count / PART };
        while left > 0 && most > 0 {
            // Up to the end of the records.
            let stretch = self.clock.hand..count.min(self.clock.hand + STRETCH);
            left = left.saturating_sub(stretch.len());
            self.clock.hand = stretch.end;
            if stretch.end == count {
                (self.clock.hand, self.clock.round) = (0, time);
                self.clock.settling = self.clock.settling.saturating_sub(1);
            }
            if self.crowd[stretch.start / STRETCH] > 0 {
                most = most.saturating_sub(stretch.len());
                self.expire_range(stretch, now, records);
            }
        }
        self.clock.refund(left);
        self.expire_fragments(records);
        if time.saturating_sub(self.clock.flooded) > FLOODS {
            self.clock.flooded = time;
            self.flood.flush(records);
        }
    }

    /// Ends the flows of a stretch that no packet can belong to any more.
    #[inline]
    fn expire_range(&mut self, stretch: Range<usize>, now: u64, records: &mut dyn Records) {
        self.clock.looked += stretch.len() as u64;
        let is_settling = self.clock.settling > 0;
        let (first, mut due) = (stretch.start, 0u64);
        for (bit, record) in stretch.enumerate() {
            if self.is_quiet(record, now) || is_settling && self.is_ahead(record, now) {
                due |= 1 << bit;
                self.prefetch_bucket(record);
            }
        }
        while due != 0 {
            let record = first + due.trailing_zeros() as usize;
            due &= due - 1;
            self.expire_idle(record, records);
        }
    }

    fn expire_idle(&mut self, record: usize, records: &mut dyn Records) {
        let reason = if self.hot[record].has_ended() { EndReason::End } else { EndReason::Idle };
        self.end(record as u32, reason, records);
    }

    /// Returns whether this record holds a flow to which no packet can belong any more.
    fn is_quiet(&self, record: usize, now: u64) -> bool {
        let hot = &self.hot[record];
        let limit = &self.limits[usize::from(hot.words().protocol())];
        let quiet = age(now, hot.ways[0].seen).min(age(now, hot.ways[1].seen));
        let patience = if hot.has_ended() { limit.linger } else { limit.idle };
        quiet > (patience << 16) as i64 && !hot.is_free() && now.saturating_sub(self.cold[record].ended(hot)) > patience
    }

    /// Returns whether this record holds a flow so far ahead that no packet of `now` belongs to it.
    fn is_ahead(&self, record: usize, now: u64) -> bool {
        let hot = &self.hot[record];
        let limit = &self.limits[usize::from(hot.words().protocol())];
        let ahead = || self.cold[record].ended(hot).saturating_sub(now.saturating_add(2 * TOLERANCE));
        !hot.is_free() && ahead() > limit.oldest
    }

    /// Ends all flows that are far from `now`: their times are not comparable any more.
    fn expire_far(&mut self, now: u64, records: &mut dyn Records) {
        for stretch in 0..self.crowd.len() {
            if self.crowd[stretch] == 0 {
                continue;
            }
            let stretch = stretch * STRETCH..self.hot.len().min((stretch + 1) * STRETCH);
            self.clock.looked += stretch.len() as u64;
            for record in stretch {
                let hot = &self.hot[record];
                if !hot.is_free() && self.cold[record].ended(hot).abs_diff(now) > FAR / 2 {
                    self.expire_idle(record, records);
                }
            }
        }
    }

    fn expire_fragments(&mut self, records: &mut dyn Records) {
        let mut ready = Vec::new();
        self.fragments.expire(self.clock.time.now().0.saturating_sub(TOLERANCE), &mut ready);
        if !ready.is_empty() {
            self.account_all(&mut ready, records);
        }
    }
}
