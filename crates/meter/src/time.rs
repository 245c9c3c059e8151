//! Packet time.
//!
//! A frame may have any time: its hardware timestamp may be wrong, or the clock may have been set. So packet time
//! follows the majority. It is the minimum time of *all* of the last two thousand or so frames that are near it. A
//! single frame that is far from it (16 hours) is ignored: packet time jumps only when most frames have had about the
//! same other time.

use linerate_burst::{Desc, Nanos};

/// Frames between updates of packet time.
pub(crate) const TICK: usize = 1024;
/// Times further apart than this, 16 hours, are unrelated: they are distinguished by complete times, not their lower 48
/// bits.
pub(crate) const FAR: u64 = 16 * 3600 * 1_000_000_000;
/// Majority of frames of another time over those of the current one that makes packet time jump there.
const MANY: usize = TICK / 2;
/// Packet time goes back when all frames of a tick are older than it by more than this, a minute.
const BACK: u64 = 60_000_000_000;

/// Current time as derived from frames.
#[derive(Clone, Debug)]
pub struct PacketTime {
    now: u64,
    /// Start of the times that are near: [`FAR`] before now.
    near: u64,
    /// Maximum time of a frame.
    latest: u64,
    is_set: bool,
    /// True after the first tick.
    is_sure: bool,
    /// Frames since the last tick, and the minimum and maximum of their times that are near.
    frames: usize,
    least: u64,
    most: u64,
    /// Minimum of the previous tick.
    least_before: u64,
    /// The far time with most votes, its majority over those against it, and the minimum time near it.
    rival: u64,
    votes: usize,
    rival_least: u64,
    far_frames: u64,
    jumps: u64,
    moved: TimeChange,
}

/// Change of packet time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeChange {
    /// It advanced, or stayed.
    #[default]
    On,
    /// It went back, but not far.
    Back,
    /// It jumped far away.
    Far,
}

impl Default for PacketTime {
    fn default() -> Self {
        PacketTime {
            now: 0,
            near: 0,
            latest: 0,
            is_set: false,
            is_sure: false,
            frames: 0,
            least: u64::MAX,
            most: 0,
            least_before: u64::MAX,
            rival: 0,
            votes: 0,
            rival_least: 0,
            far_frames: 0,
            jumps: 0,
            moved: TimeChange::On,
        }
    }
}

impl PacketTime {
    /// Returns the current packet time.
    #[inline(always)]
    pub fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Returns the maximum time of a frame.
    pub fn latest(&self) -> Nanos {
        Nanos(self.latest)
    }

    /// Returns the number of jumps of the majority to a time 16 hours or more away.
    pub fn jumps(&self) -> u64 {
        self.jumps
    }

    /// Returns the number of frames whose time was 16 hours or more away.
    pub fn far_frames(&self) -> u64 {
        self.far_frames
    }

    /// Adds a frame; true if that may have advanced the time.
    #[inline(always)]
    pub fn see(&mut self, time: Nanos) -> bool {
        self.begin(time);
        let place = self.place(time.0);
        self.latest = self.latest.max(time.0);
        if place >= 2 * FAR || self.votes > 0 {
            self.vote(time.0);
        }
        if place < 2 * FAR {
            self.least = self.least.min(time.0);
            self.most = self.most.max(time.0);
        }
        self.tick(1)
    }

    /// Uses the time of the first frame until more is known.
    #[inline(always)]
    pub(crate) fn begin(&mut self, time: Nanos) {
        if !self.is_set {
            self.is_set = true;
            self.set(time.0);
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set
    }

    /// Returns the distance of a time from the start of the near times: less than two times [`FAR`] if it is near.
    #[inline(always)]
    pub(crate) fn place(&self, time: u64) -> u64 {
        time.wrapping_sub(self.near)
    }

    /// Adds frames up to at most the next tick; `least` and `most` are the minimum and maximum [`PacketTime::place`].
    #[inline(always)]
    pub(crate) fn add_all(&mut self, descs: &[Desc], (least, most): (u64, u64)) {
        if most >= 2 * FAR || self.votes > 0 {
            return self.add_each(descs);
        }
        let (least, most) = (self.near.saturating_add(least), self.near + most);
        self.least = self.least.min(least);
        self.most = self.most.max(most);
        self.latest = self.latest.max(most);
    }

    pub(crate) fn frames_to_tick(&self) -> usize {
        TICK - self.frames
    }

    /// Counts frames that were added; at every tick true, and the time is updated.
    #[inline(always)]
    pub(crate) fn tick(&mut self, frames: usize) -> bool {
        self.frames += frames;
        if self.frames < TICK {
            return false;
        }
        self.frames = 0;
        self.conclude();
        true
    }

    /// Sets the time to `now`, from a source that sees more than these frames; false if that changes nothing.
    pub fn set_now(&mut self, now: Nanos) -> bool {
        let is_news = self.is_set && now.0 != self.now;
        if is_news && self.place(now.0) >= 2 * FAR {
            self.jump(now.0);
        } else if is_news && now.0.saturating_add(BACK) < self.now {
            self.reset_to(now.0);
        } else if is_news && (now.0 > self.now || !self.is_sure) {
            self.set(now.0);
        } else {
            return false;
        }
        true
    }

    /// Returns the change since the last call.
    pub fn moved(&mut self) -> TimeChange {
        std::mem::take(&mut self.moved)
    }

    #[inline(never)]
    fn conclude(&mut self) {
        let has_near = self.least != u64::MAX;
        let (least, most) = (self.least, self.most);
        let earliest = least.min(self.least_before);
        (self.least, self.most, self.least_before) = (u64::MAX, 0, least);
        let was_sure = std::mem::replace(&mut self.is_sure, true);
        if self.votes >= MANY {
            self.jump(self.rival_least);
        } else if has_near && was_sure && most.saturating_add(BACK) < self.now {
            self.reset_to(least);
        } else if earliest != u64::MAX && (earliest > self.now || !was_sure) {
            self.set(earliest);
        }
    }

    /// Adds frames of which some are far, or that follow such frames.
    #[cold]
    #[inline(never)]
    fn add_each(&mut self, descs: &[Desc]) {
        for Desc { time, .. } in descs {
            self.latest = self.latest.max(time.0);
            self.vote(time.0);
            let place = self.place(time.0);
            if place < 2 * FAR {
                self.least = self.least.min(time.0);
                self.most = self.most.max(time.0);
            }
        }
    }

    /// Finds the majority among other times: the vote of Boyer and Moore (1981), where frames near the current time
    /// vote against all others.
    #[cold]
    #[inline(never)]
    fn vote(&mut self, time: u64) {
        let is_near = self.place(time) < 2 * FAR;
        self.far_frames += u64::from(!is_near);
        if !is_near && self.votes == 0 {
            (self.rival, self.rival_least, self.votes) = (time, time, 1);
        } else if !is_near && self.rival.abs_diff(time) < FAR {
            self.votes = self.votes.saturating_add(1);
            self.rival_least = self.rival_least.min(time);
        } else {
            self.votes = self.votes.saturating_sub(1);
        }
    }

    fn jump(&mut self, now: u64) {
        self.restart(now);
        self.jumps += 1;
        self.moved = TimeChange::Far;
    }

    fn reset_to(&mut self, now: u64) {
        self.restart(now);
        if self.moved == TimeChange::On {
            self.moved = TimeChange::Back;
        }
    }

    fn restart(&mut self, now: u64) {
        self.set(now);
        self.votes = 0;
        (self.least, self.most, self.least_before) = (u64::MAX, 0, u64::MAX);
    }

    fn set(&mut self, now: u64) {
        (self.now, self.near) = (now, now.saturating_sub(FAR));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600 * 1_000_000_000;
    const START: u64 = 1000 * 24 * HOUR;

    /// Adds frames a nanosecond apart, except those of other times.
    fn seen(time: &mut PacketTime, frames: usize, from: u64, other: impl Fn(usize) -> Option<u64>) {
        for frame in 0..frames {
            time.see(Nanos(other(frame).unwrap_or(from + frame as u64)));
        }
    }

    #[test]
    fn one_wrong_time_does_not_move_the_clock() {
        for wrong in [0, 1, START - 17 * HOUR, START + HOUR, START + 400 * 24 * HOUR, u64::MAX] {
            for place in [0, 1, 700, 1023] {
                let mut time = PacketTime::default();
                seen(&mut time, TICK, START, |frame| (frame == place).then_some(wrong));
                seen(&mut time, 4 * TICK, START + HOUR, |_| None);
                let late = START + HOUR + 2 * TICK as u64;
                assert_eq!(time.now().0, late, "{wrong} at {place}: the earliest of the last two ticks");
                assert_eq!(
                    time.jumps(),
                    u64::from(place == 0 && wrong.abs_diff(START) > FAR),
                    "except as the first frame"
                );
            }
        }
    }

    #[test]
    fn time_follows_the_majority_in_both_directions() {
        let mut time = PacketTime::default();
        seen(&mut time, 2 * TICK, START, |_| None);
        let far = START + 400 * 24 * HOUR;
        // A third of the frames, in any order of blocks, is a minority.
        seen(&mut time, 9 * TICK, START, |frame| (frame / 100 % 3 == 0).then_some(far));
        assert_eq!((time.jumps(), time.moved()), (0, TimeChange::On));
        seen(&mut time, 2 * TICK, far, |_| None);
        assert_eq!((time.jumps(), time.moved(), time.now().0 / HOUR), (1, TimeChange::Far, far / HOUR));
        seen(&mut time, 2 * TICK, START, |_| None);
        assert_eq!((time.jumps(), time.moved(), time.now().0 / HOUR), (2, TimeChange::Far, START / HOUR));
        // By an hour, like a clock that is set.
        seen(&mut time, 2 * TICK, START + HOUR, |_| None);
        seen(&mut time, 3 * TICK, START, |_| None);
        assert_eq!((time.jumps(), time.moved(), time.now().0 / HOUR), (2, TimeChange::Back, START / HOUR));
        // Some seconds are ignored.
        let now = time.now();
        seen(&mut time, 3 * TICK, START - 10_000_000_000, |_| None);
        assert_eq!((time.moved(), time.now()), (TimeChange::On, now));
    }

    /// The result does not depend on the batches of frames.
    #[test]
    fn single_frames_and_bursts_count_alike() {
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let (mut one, mut other) = (PacketTime::default(), PacketTime::default());
        let mut base = START;
        for _ in 0..2000 {
            if random() % 50 == 0 {
                base = [START, START + HOUR, START + 20 * HOUR, 7][random() as usize % 4];
            }
            let count = (random() as usize % 90 + 1).min(other.frames_to_tick());
            let descs: Vec<Desc> = (0..count)
                .map(|_| {
                    let wrong = [0, u64::MAX, base + 5 * HOUR].get(random() as usize % 40).copied();
                    Desc::new(Nanos(wrong.unwrap_or(base + random() % 1000)), 0, 60)
                })
                .collect();
            descs.iter().for_each(|desc| _ = one.see(desc.time));
            other.begin(descs[0].time);
            let places = || descs.iter().map(|desc| other.place(desc.time.0));
            let ends = (places().min().unwrap(), places().max().unwrap());
            other.add_all(&descs, ends);
            other.tick(count);
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
        }
        assert!(one.jumps() > 10, "{one:?}");
    }

    #[test]
    fn time_from_all_frames_takes_precedence() {
        let mut time = PacketTime::default();
        assert!(!time.set_now(Nanos(7)), "no frame yet");
        time.see(Nanos(START));
        assert!(time.set_now(Nanos(START - 1)) && time.set_now(Nanos(START + HOUR)));
        assert!(!time.set_now(Nanos(START + HOUR)), "unchanged");
        assert_eq!(time.moved(), TimeChange::On);
        assert!(time.set_now(Nanos(START + 20 * HOUR)));
        assert_eq!((time.moved(), time.jumps()), (TimeChange::Far, 1));
        assert!(time.set_now(Nanos(START + 18 * HOUR)));
        assert_eq!((time.moved(), time.now().0), (TimeChange::Back, START + 18 * HOUR));
    }
}
