//! Packet time: one wrong timestamp must neither end all streams nor keep them forever.

use linerate_burst::Nanos;

/// Maximum step in nanoseconds for a single frame.
const STEP: u64 = 10_000_000_000;
/// Number of consecutive frames that confirm a larger step, forwards or backwards.
const AGREEING: u32 = 64;

/// `now` never goes back, so it can measure durations: after a jump of timestamps it continues from where it was.
///
/// A single frame far ahead does not move `now`, but state that it touches is stamped with the frame's own time. So
/// nothing looks older than it is once the clock follows such frames. If it does not follow them, the stamps are
/// corrected, see [`Correction`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    now: Nanos,
    /// Time of the latest frame, on the scale of `now`, and of the frame before.
    own: Nanos,
    before: Nanos,
    /// Latest confirmed time on that scale.
    sure: Nanos,
    /// Timestamp that corresponds to `now`.
    stamp: Nanos,
    /// Earliest of consecutive frames far ahead, and their number.
    ahead: (Nanos, u32),
    /// Latest of consecutive frames far behind, and their number.
    behind: (Nanos, u32),
}

/// Decision on frames far ahead: stamps of state later than `above` are limited to `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correction {
    pub above: Nanos,
    pub most: Nanos,
}

impl Clock {
    /// Returns the time for measuring durations.
    pub(super) fn now(&self) -> Nanos {
        self.now
    }

    /// Returns the stamp for state: the time of the latest frame, ahead of `now` while unconfirmed.
    pub(super) fn own(&self) -> Nanos {
        self.own
    }

    /// Returns the time on the scale of frame timestamps.
    pub(super) fn stamp(&self) -> Nanos {
        self.stamp
    }

    /// Advances to the time of a frame.
    #[inline]
    pub(super) fn advance(&mut self, time: Nanos) -> Option<Correction> {
        let gone = time.0.saturating_sub(self.stamp.0);
        if gone > STEP || self.stamp.0 - time.0.min(self.stamp.0) > STEP {
            return self.jump(time);
        }
        self.advance_by(gone);
        self.behind.1 = 0;
        if self.ahead.1 > 0 { self.reject_jump() } else { None }
    }

    /// Advances while no frames arrive: none older than `time` will follow.
    pub(super) fn pause(&mut self, time: Nanos) {
        self.advance_by(time.0.saturating_sub(self.stamp.0));
    }

    #[inline]
    fn advance_by(&mut self, gone: u64) {
        self.now = Nanos(self.now.0.saturating_add(gone));
        self.stamp = Nanos(self.stamp.0 + gone);
        self.own = self.now;
    }

    #[cold]
    fn jump(&mut self, time: Nanos) -> Option<Correction> {
        if self.stamp == Nanos::ZERO {
            self.advance_by(time.0);
            return None;
        }
        if time > self.stamp {
            self.behind.1 = 0;
            return self.jump_ahead(time);
        }
        let (latest, frames) = self.behind;
        self.behind = if frames == 0 { (time, 1) } else { (latest.max(time), frames + 1) };
        self.own = self.now;
        let correction = if self.ahead.1 > 0 { self.reject_jump() } else { None };
        if self.behind.1 >= AGREEING {
            self.stamp = self.behind.0;
            self.behind.1 = 0;
        }
        correction
    }

    /// Processes a frame far ahead. The last of a confirming row starts the next row if it is far ahead of the others
    /// too.
    fn jump_ahead(&mut self, time: Nanos) -> Option<Correction> {
        self.before = self.own;
        self.own = Nanos(self.now.0.saturating_add(time.0 - self.stamp.0));
        let (earliest, frames) = self.ahead;
        self.ahead = if frames == 0 { (time, 1) } else { (earliest.min(time), frames + 1) };
        if self.ahead.1 < AGREEING {
            return None;
        }
        let (above, own) = (self.now, self.own);
        self.sure = own.min(self.before);
        self.advance_by(self.ahead.0.0.saturating_sub(self.stamp.0));
        self.own = own;
        self.ahead = (time, u32::from(time.since(self.stamp).as_nanos() > STEP.into()));
        Some(Correction { above, most: self.sure })
    }

    #[cold]
    fn reject_jump(&mut self) -> Option<Correction> {
        self.ahead.1 = 0;
        Some(Correction { above: self.now, most: self.sure.max(self.now) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_000_000 * SECOND;

    /// Feeds times of frames in seconds after the start; returns their final stamps.
    fn stamped(times: &[u64]) -> (Clock, Vec<u64>) {
        let (mut clock, mut stamps) = (Clock::default(), Vec::new());
        for time in times {
            if let Some(Correction { above, most }) = clock.advance(Nanos(START + time * SECOND)) {
                for stamp in stamps.iter_mut().filter(|stamp| **stamp > above) {
                    *stamp = most.min(*stamp);
                }
            }
            stamps.push(clock.own());
        }
        (clock, stamps.iter().map(|stamp| (stamp.0 - START) / SECOND).collect())
    }

    #[test]
    fn frames_after_a_pause_are_stamped_with_their_own_time() {
        for pause in [1, 10, 11, 60, 100_000] {
            for before in [1, 40, 200] {
                let times: Vec<u64> = (0..before).chain((0..200).map(|frame| before + pause + frame)).collect();
                let (clock, stamps) = stamped(&times);
                assert_eq!(stamps, times, "{pause}");
                assert!(clock.now().0 >= START + (before + pause) * SECOND, "{pause}");
            }
        }
    }

    #[test]
    fn wrong_time_has_no_lasting_effect() {
        for place in 1..190 {
            for pause in [0, 100] {
                let mut times: Vec<u64> = (0..200).map(|frame| frame + if frame < 70 { 0 } else { pause }).collect();
                times[place] = 900_000;
                let (clock, stamps) = stamped(&times);
                assert!(stamps.iter().all(|stamp| *stamp <= 300), "{place} {pause}: {stamps:?}");
                assert!(clock.now().0 <= START + 300 * SECOND && clock.now().0 >= START + (70 + pause) * SECOND);
                // What was stamped before a pause is not made later, and what was stamped after it not earlier than the pause.
                for (frame, stamp) in stamps.iter().enumerate().filter(|(frame, _)| *frame != place) {
                    assert!(stamp.abs_diff(times[frame]) <= 1, "{place} {pause} {frame}: {stamp}");
                }
            }
        }
    }
}
