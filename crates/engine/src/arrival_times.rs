//! Bound of packet time while no frame arrives.

use crate::consumer::Round;
use linerate_burst::{FrameIndex, Nanos};
use std::time::Duration;

/// Number of frames whose times are compared with their arrival.
const FRAMES: usize = 16;

/// Arrival times of the last frames, by the steady clock.
///
/// While no frame arrives a port reports its horizon. For an interface that is the clock; for a pipe it is the newest
/// time of a frame, which may be any. So it advances only as far as time has passed since frames arrived, by the median
/// of the last sixteen.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// Differences between their times and the time of the run at arrival, in nanoseconds.
    ahead: [i64; FRAMES],
    frames: usize,
}

impl Arrivals {
    /// Records the frames of a round.
    pub(crate) fn see(&mut self, round: &Round<'_>) {
        if let [burst] = round.bursts {
            self.note(burst.descs().iter().rev().map(|desc| desc.time), round.elapsed);
        } else {
            let time = |pick: &FrameIndex| round.bursts[pick.lane()].descs()[pick.index()].time;
            self.note(round.picks.iter().rev().map(time), round.elapsed);
        }
    }

    /// Records frames, the last one first; `elapsed` is the time since the start of the run.
    fn note(&mut self, times: impl Iterator<Item = Nanos>, elapsed: Duration) {
        for time in times.take(FRAMES) {
            self.ahead[self.frames % FRAMES] = signed(time.0).saturating_sub(signed_of(elapsed));
            self.frames += 1;
        }
    }

    /// Returns the current packet time, given the horizon `complete` of the port.
    pub(crate) fn bound(&self, complete: Nanos, elapsed: Duration) -> Nanos {
        let mut ahead = self.ahead;
        let ahead = &mut ahead[..self.frames.min(FRAMES)];
        ahead.sort_unstable();
        let Some(usual) = ahead.get(ahead.len().saturating_sub(1) / 2) else { return Nanos::ZERO };
        complete.min(Nanos(usual.saturating_add(signed_of(elapsed)).max(0) as u64))
    }
}

fn signed(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}

fn signed_of(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn time_follows_frames_and_clock() {
        let (start, span) = (1_700_000_000 * SECOND, Duration::from_secs);
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.bound(Nanos(start), span(9)), Nanos::ZERO, "there was no frame");
        arrivals.note([Nanos(start)].into_iter(), span(1));
        assert_eq!(arrivals.bound(Nanos(start + 99 * SECOND), span(6)), Nanos(start + 5 * SECOND));
        assert_eq!(arrivals.bound(Nanos(start + SECOND), span(6)), Nanos(start + SECOND), "as the port reports");
        for wrong in [u64::MAX, 0, start + 400 * 86_400 * SECOND, start - 86_400 * SECOND] {
            arrivals.note((0..15).map(|_| Nanos(start)), span(1));
            arrivals.note([Nanos(wrong)].into_iter(), span(1));
            assert_eq!(arrivals.bound(Nanos(u64::MAX - 1), span(6)), Nanos(start + 5 * SECOND), "{wrong}");
        }
        // Only the last of many count.
        arrivals.note((0..1000).map(|back| Nanos(start + (1000 - back) * SECOND)), span(2));
        assert_eq!(arrivals.bound(Nanos(u64::MAX - 1), span(2)), Nanos(start + 992 * SECOND));
    }
}
