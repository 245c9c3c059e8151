//! How far packet time may go while no frame comes.

use crate::consumer::Round;
use linerate_burst::{Nanos, Pick};
use std::time::Duration;

/// Frames whose times are compared with when they came.
const FRAMES: usize = 16;

/// When the last frames came, by a clock that nobody sets.
///
/// Where no frame comes a port says which time is over. Of an interface that is the clock; of a pipe it is the newest time that a frame
/// had, which may be any. So it counts as far as time has passed since frames came, by the median of the last sixteen.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    /// By how much their times are beyond the time of the run then, in nanoseconds.
    ahead: [i64; FRAMES],
    frames: usize,
}

impl Arrivals {
    /// Frames have come in a round.
    pub(crate) fn see(&mut self, round: &Round<'_>) {
        if let [burst] = round.bursts {
            self.note(burst.descs().iter().rev().map(|desc| desc.time), round.elapsed);
        } else {
            let time = |pick: &Pick| round.bursts[pick.lane()].descs()[pick.index()].time;
            self.note(round.picks.iter().rev().map(time), round.elapsed);
        }
    }

    /// Frames have come, the last one first; the run lasts for `elapsed`.
    fn note(&mut self, times: impl Iterator<Item = Nanos>, elapsed: Duration) {
        for time in times.take(FRAMES) {
            self.ahead[self.frames % FRAMES] = signed(time.0).saturating_sub(signed_of(elapsed));
            self.frames += 1;
        }
    }

    /// The time that has come by now, if the port says that it is `complete`.
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
    fn time_goes_on_as_frames_and_clock_say() {
        let (start, span) = (1_700_000_000 * SECOND, Duration::from_secs);
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.bound(Nanos(start), span(9)), Nanos::ZERO, "there was no frame");
        arrivals.note([Nanos(start)].into_iter(), span(1));
        assert_eq!(arrivals.bound(Nanos(start + 99 * SECOND), span(6)), Nanos(start + 5 * SECOND));
        assert_eq!(arrivals.bound(Nanos(start + SECOND), span(6)), Nanos(start + SECOND), "as the port says");
        for wrong in [u64::MAX, 0, start + 400 * 86_400 * SECOND, start - 86_400 * SECOND] {
            arrivals.note((0..15).map(|_| Nanos(start)), span(1));
            arrivals.note([Nanos(wrong)].into_iter(), span(1));
            assert_eq!(arrivals.bound(Nanos(u64::MAX - 1), span(6)), Nanos(start + 5 * SECOND), "{wrong}");
        }
        // Many at a time: the last ones count.
        arrivals.note((0..1000).map(|back| Nanos(start + (1000 - back) * SECOND)), span(2));
        assert_eq!(arrivals.bound(Nanos(u64::MAX - 1), span(2)), Nanos(start + 992 * SECOND));
    }
}
