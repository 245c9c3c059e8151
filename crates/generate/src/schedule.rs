//! Due times of the frames of a recording.

use crate::Rate;
use linerate_burst::{Desc, Nanos};
use std::time::Duration;

/// Source of due times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pacing {
    /// Gaps between the frames' own timestamps, divided by this factor: 2 is twice as fast.
    Recorded(f64),
    /// Fixed rate, independent of the timestamps.
    Fixed(Rate),
}

/// Due times of a sequence of frames, from a start time. Errors do not add up: each due time is counted from the start,
/// so a delayed sender catches up.
#[derive(Clone, Debug)]
pub struct Schedule {
    pacing: Pacing,
    start: Option<Nanos>,
    /// Frames and bytes sent.
    frames: u64,
    bytes: u64,
    /// First timestamp of this pass, its due time (from the start), and the frames sent before it.
    first: Option<Nanos>,
    pass: u64,
    pass_frames: u64,
    /// Latest due time so far, from the start.
    latest: u64,
    /// Nanoseconds by which everything is postponed.
    delay: u64,
}

impl Schedule {
    /// Creates a schedule that starts at the first query.
    pub fn new(pacing: Pacing) -> Self {
        Schedule { pacing, start: None, frames: 0, bytes: 0, first: None, pass: 0, pass_frames: 0, latest: 0, delay: 0 }
    }

    /// Returns the number of frames, from the front, that are due by `now`.
    pub fn due(&mut self, descs: &[Desc], now: Nanos) -> usize {
        let start = *self.start.get_or_insert(now);
        if self.pacing == Pacing::Fixed(Rate::Top) {
            return descs.len();
        }
        let elapsed = now.0.saturating_sub(start.0);
        let mut ahead = self.clone();
        descs.iter().take_while(|desc| ahead.step(desc) <= elapsed).count()
    }

    /// Returns the due time of the first of these frames; `None` if there are none, or before the first query.
    pub fn next(&self, descs: &[Desc]) -> Option<Nanos> {
        let due = self.clone().step(descs.first()?);
        Some(self.start?.after(Duration::from_nanos(due)))
    }

    /// Records these frames as sent.
    pub fn advance(&mut self, descs: &[Desc]) {
        for desc in descs {
            self.step(desc);
        }
    }

    /// Starts over: the first frame of the next pass follows the last one of this pass after the mean gap.
    pub fn restart(&mut self) {
        if self.first.take().is_some() {
            let gaps = (self.frames - self.pass_frames).max(2) - 1;
            self.pass = self.latest + (self.latest - self.pass) / gaps;
            self.pass_frames = self.frames;
        }
    }

    /// Starts over: the first frame of the next pass is due `gap` after the last one of this pass, or, at a fixed rate,
    /// later by `gap` than it would be.
    pub fn restart_after(&mut self, gap: Duration) {
        let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
        self.restart();
        match self.pacing {
            Pacing::Recorded(_) => self.pass = self.latest.saturating_add(gap),
            Pacing::Fixed(_) => self.delay = self.delay.saturating_add(gap),
        }
    }

    /// Postpones everything from now on by `span`.
    pub fn delay(&mut self, span: Duration) {
        self.start = self.start.map(|start| start.after(span));
    }

    /// Follows a step of the clock that `now` is read from, in nanoseconds forwards or back. Remaining times stay the
    /// same.
    pub fn follow(&mut self, step: i64) {
        self.start = self.start.map(|start| start.shifted(step));
    }

    /// Returns the due time of the next frame, and starts at `now` if not started; at the maximum rate that is the
    /// start.
    pub fn due_at(&mut self, desc: &Desc, now: Nanos) -> Nanos {
        let start = *self.start.get_or_insert(now);
        start.after(Duration::from_nanos(self.clone().step(desc)))
    }

    /// Returns the due time of the next frame, from the start, and counts it as sent.
    fn step(&mut self, desc: &Desc) -> u64 {
        let due = match self.pacing {
            Pacing::Fixed(rate) => rate.nanos(self.frames, self.bytes).saturating_add(self.delay),
            Pacing::Recorded(factor) => {
                let first = *self.first.get_or_insert(desc.time);
                let gap = desc.time.0.saturating_sub(first.0) as f64 / factor;
                self.pass.saturating_add(gap as u64)
            }
        };
        self.frames += 1;
        self.bytes += u64::from(desc.captured);
        // A timestamp that goes back is due with its predecessor.
        self.latest = self.latest.max(due);
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layer;
    use proptest::prelude::*;

    fn descs(times: &[u64]) -> Vec<Desc> {
        times.iter().map(|time| Desc::new(Nanos(*time), 0, 60)).collect()
    }

    #[test]
    fn recorded_gaps_are_kept_and_scaled() {
        let descs = descs(&[1000, 1100, 1050, 1400]);
        let mut schedule = Schedule::new(Pacing::Recorded(2.0));
        assert_eq!(schedule.next(&descs), None);
        assert_eq!(schedule.due(&descs, Nanos(7)), 1);
        assert_eq!(schedule.due(&descs, Nanos(7 + 49)), 1);
        assert_eq!(schedule.due(&descs, Nanos(7 + 50)), 3, "the one that goes back is due with its predecessor");
        schedule.advance(&descs[..3]);
        assert_eq!(schedule.next(&descs[3..]), Some(Nanos(7 + 200)));
        assert_eq!(schedule.due(&descs[3..], Nanos(7 + 200)), 1);
    }

    #[test]
    fn a_second_pass_follows_the_first_after_the_mean_gap() {
        let descs = descs(&[1000, 1100, 1200]);
        let mut schedule = Schedule::new(Pacing::Recorded(1.0));
        schedule.due(&descs, Nanos(0));
        schedule.advance(&descs);
        schedule.restart();
        assert_eq!(schedule.next(&descs), Some(Nanos(300)));
        schedule.advance(&descs);
        schedule.restart();
        assert_eq!(schedule.next(&descs), Some(Nanos(600)));
    }

    #[test]
    fn loops_have_the_requested_distance() {
        let (descs, gap) = (descs(&[1000, 1100, 1200]), Duration::from_nanos(5000));
        for (pacing, next) in [
            (Pacing::Recorded(2.0), 7 + 100 + 5000),
            (Pacing::Fixed(Rate::Frames(1e8)), 7 + 30 + 5000),
            (Pacing::Fixed(Rate::Top), 7 + 5000),
        ] {
            let mut schedule = Schedule::new(pacing);
            assert_eq!(schedule.due_at(&descs[0], Nanos(7)), Nanos(7));
            schedule.advance(&descs);
            schedule.restart_after(gap);
            assert_eq!(schedule.due_at(&descs[0], Nanos(9)), Nanos(next), "{pacing:?}");
            schedule.delay(gap);
            assert_eq!(schedule.due_at(&descs[0], Nanos(9)), Nanos(next + 5000), "{pacing:?}");
        }
    }

    #[test]
    fn a_fixed_rate_counts_from_the_start() {
        let descs = descs(&[0; 100]);
        let mut schedule = Schedule::new(Pacing::Fixed(Rate::Frames(1e9)));
        assert_eq!(schedule.due(&descs, Nanos(50)), 1);
        assert_eq!(schedule.due(&descs, Nanos(59)), 10);
        schedule.advance(&descs[..10]);
        assert_eq!(schedule.due(&descs[10..], Nanos(59)), 0);
        assert_eq!(schedule.due(&descs[10..], Nanos(1000)), 90, "delayed frames are caught up");
        let mut top = Schedule::new(Pacing::Fixed(Rate::Top));
        assert_eq!(top.due(&descs, Nanos(0)), 100);
        let mut bits = Schedule::new(Pacing::Fixed(Rate::Bits(64.0 * 8.0 * 1e6, Layer::L2)));
        bits.due(&descs, Nanos(0));
        assert_eq!(bits.due(&descs, Nanos(10_000)), 11);
    }

    proptest! {
        /// The same frames are due, no matter how often the schedule is queried.
        #[test]
        fn result_does_not_depend_on_query_frequency(
            times in proptest::collection::vec(0u64..2000, 1..50),
            queries in proptest::collection::vec(0u64..300, 1..20),
        ) {
            let descs = descs(&times);
            let mut often = Schedule::new(Pacing::Recorded(1.0));
            let mut once = Schedule::new(Pacing::Recorded(1.0));
            once.due(&descs, Nanos(0));
            often.due(&descs, Nanos(0));
            let (mut sent, mut now) = (0, 0);
            for gap in queries {
                now += gap;
                let due = often.due(&descs[sent..], Nanos(now));
                often.advance(&descs[sent..sent + due]);
                sent += due;
                prop_assert_eq!(once.due(&descs, Nanos(now)), sent);
            }
        }
    }
}
