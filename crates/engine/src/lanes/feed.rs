//! Externally fed lanes, and the time that frames of this machine's clock wait for them.
//!
//! The ring of a live port buffers a stall of a tenth of a second, while the writer of a pipe or a shared ring may be
//! stopped forever. So live ports wait for a lane that falls behind the clock no longer than its patience; its later
//! frames are older than those already emitted, and are late. Without lanes of the clock all wait: a file or a pipe
//! can.

use linerate_burst::{Horizon, Nanos};
use linerate_port::Feed;
use std::time::Duration;

/// Maximum number of reports about a lane; all changes are counted.
const MOST_SAID: u64 = 10;

/// Clock source of a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneClock {
    /// Longest wait for an externally fed lane.
    patience: Option<Duration>,
    /// True while no lane waits for it.
    is_behind: bool,
    stalls: u64,
}

/// Time of a round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTime {
    pub now: Nanos,
    /// Maximum by which a time may be ahead of `now`, in nanoseconds.
    pub above: u64,
    /// Time since the last step of the clock.
    pub settled: Duration,
    /// True if there are frames of the clock.
    pub is_live: bool,
}

impl LaneClock {
    pub(super) fn new(feed: Feed) -> Self {
        let patience = match feed {
            Feed::Others { patience } => Some(patience),
            Feed::Clock | Feed::Stored => None,
        };
        LaneClock { patience, is_behind: false, stalls: 0 }
    }

    /// Returns the horizon to use if the lane reports `horizon`, and an event text to append to the lane's name.
    #[inline]
    pub(super) fn bound(&mut self, horizon: Horizon, present: RoundTime) -> (Horizon, Option<String>) {
        match (self.patience, horizon) {
            (Some(patience), Horizon::At(time)) if present.is_live => self.bound_others(patience, time, present),
            _ => (horizon, None),
        }
    }

    fn bound_others(&mut self, patience: Duration, time: Nanos, present: RoundTime) -> (Horizon, Option<String>) {
        let RoundTime { now, above, settled, .. } = present;
        let (floor, top) = (now.before(patience), Nanos(now.0.saturating_add(above)));
        let was_behind = self.is_behind;
        // After a step of the clock a lane may still be at the time before. No source can guarantee times above the
        // clock.
        self.is_behind = time < floor && (was_behind || settled >= patience);
        self.stalls += u64::from(self.is_behind && !was_behind);
        let bound = match self.is_behind {
            true => top,
            false if time > top => floor,
            false => time.max(floor),
        };
        let said = (self.is_behind != was_behind && self.stalls <= MOST_SAID).then(|| match self.is_behind {
            true => format!(
                "more than {} ms behind the clock; live ports no longer wait, its frames will be late",
                patience.as_millis()
            ),
            false => "caught up with the clock; live ports wait for it again".to_owned(),
        });
        (Horizon::At(bound), said)
    }

    /// Returns the number of times it fell behind.
    pub(super) fn stalls(&self) -> u64 {
        self.stalls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_700_000_000_000 * MS;

    fn of(source: &mut LaneClock, time: u64, now: u64, settled: u64) -> (Horizon, Option<String>) {
        let present =
            RoundTime { now: Nanos(now), above: 10 * MS, settled: Duration::from_nanos(settled), is_live: true };
        source.bound(Horizon::At(Nanos(time)), present)
    }

    #[test]
    fn slow_lane_delays_others_for_at_most_its_patience() {
        let others = Feed::Others { patience: Duration::from_millis(50) };
        let mut source = LaneClock::new(others);
        let at = |time| Horizon::At(Nanos(time));
        let settled = 1000 * MS;
        assert_eq!(of(&mut source, START, START + 50 * MS, settled), (at(START), None));
        let (bound, said) = of(&mut source, START, START + 51 * MS, settled);
        assert_eq!(bound, at(START + 61 * MS));
        assert!(said.unwrap().starts_with("more than 50 ms behind"));
        assert_eq!(of(&mut source, START, START + 52 * MS, settled).1, None, "said once");
        let (bound, said) = of(&mut source, START + 30 * MS, START + 60 * MS, settled);
        assert_eq!(bound, at(START + 30 * MS));
        assert!(said.unwrap().starts_with("caught up with the clock"));
        assert_eq!(source.stalls(), 1);
    }

    #[test]
    fn messages_are_limited_and_counters_are_not() {
        let mut source = LaneClock::new(Feed::Others { patience: Duration::from_millis(50) });
        let said = (0..200).filter(|round| of(&mut source, START, START + round % 2 * 60 * MS, START).1.is_some());
        assert_eq!((said.count(), source.stalls()), (20, 100));
    }

    #[test]
    fn wrong_horizons_do_not_extend_the_delay() {
        let mut source = LaneClock::new(Feed::Others { patience: Duration::from_millis(50) });
        // After a step forward, then above the clock that was set back.
        assert_eq!(of(&mut source, 5, START, 0), (Horizon::At(Nanos(START - 50 * MS)), None));
        assert_eq!(of(&mut source, START + 11 * MS, START, 0), (Horizon::At(Nanos(START - 50 * MS)), None));
        assert_eq!(of(&mut source, START + 9 * MS, START, 0), (Horizon::At(Nanos(START + 9 * MS)), None));
    }

    #[test]
    fn horizons_of_files_and_lanes_are_unchanged() {
        for mut source in [LaneClock::new(Feed::Stored), LaneClock::new(Feed::Clock)] {
            assert_eq!(of(&mut source, 5, START, START), (Horizon::At(Nanos(5)), None));
        }
        let mut source = LaneClock::new(Feed::Others { patience: Duration::from_millis(50) });
        let present = RoundTime { now: Nanos(START), above: 0, settled: Duration::MAX, is_live: false };
        assert_eq!(source.bound(Horizon::At(Nanos(5)), present), (Horizon::At(Nanos(5)), None));
    }
}
