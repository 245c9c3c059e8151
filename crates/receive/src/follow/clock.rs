//! What time it is, by the frames: one wrong stamp must neither end all streams nor keep them for ever.

use linerate_burst::Nanos;

/// Time goes on by so much at most for a frame alone.
const STEP: u64 = 10_000_000_000;
/// More frames in a row that agree take it further, or back.
const AGREEING: u32 = 64;

/// `now` never goes back, so that spans can be told by it: where stamps turn out to be of another time, it goes on from where it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    now: Nanos,
    /// The stamp that it stands for.
    stamp: Nanos,
    /// The earliest of those in a row that were far ahead, and how many there were.
    ahead: (Nanos, u32),
    /// The latest of those that were far behind, and how many.
    behind: (Nanos, u32),
}

impl Clock {
    /// For spans.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// For whoever compares it with stamps of frames.
    pub fn stamp(&self) -> Nanos {
        self.stamp
    }

    /// A frame came.
    #[inline]
    pub fn advance(&mut self, time: Nanos) {
        let gone = time.0.saturating_sub(self.stamp.0);
        if gone > STEP || self.stamp.0 - time.0.min(self.stamp.0) > STEP {
            return self.leap(time);
        }
        self.go_on(gone);
        (self.ahead.1, self.behind.1) = (0, 0);
    }

    /// No frame comes, and none that will is older than `time`.
    pub fn pause(&mut self, time: Nanos) {
        self.go_on(time.0.saturating_sub(self.stamp.0));
    }

    #[inline]
    fn go_on(&mut self, gone: u64) {
        self.now = Nanos(self.now.0.saturating_add(gone));
        self.stamp = Nanos(self.stamp.0 + gone);
    }

    #[cold]
    fn leap(&mut self, time: Nanos) {
        if self.stamp == Nanos::ZERO {
            return self.go_on(time.0);
        }
        if time > self.stamp {
            let (earliest, frames) = self.ahead;
            self.ahead = if frames == 0 { (time, 1) } else { (earliest.min(time), frames + 1) };
            self.behind.1 = 0;
            if self.ahead.1 >= AGREEING {
                self.go_on(self.ahead.0.0.saturating_sub(self.stamp.0));
                self.ahead.1 = 0;
            }
        } else {
            let (latest, frames) = self.behind;
            self.behind = if frames == 0 { (time, 1) } else { (latest.max(time), frames + 1) };
            self.ahead.1 = 0;
            if self.behind.1 >= AGREEING {
                self.stamp = self.behind.0;
                self.behind.1 = 0;
            }
        }
    }
}
