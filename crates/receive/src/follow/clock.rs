//! What time it is, by the frames: one wrong stamp must not end all streams.

use linerate_burst::Nanos;

/// Time goes on by so much at most for a frame alone.
const STEP: u64 = 10_000_000_000;
/// More frames in a row that agree take it further.
const AGREEING: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    now: Nanos,
    /// The earliest of those in a row that were far ahead, and how many there were.
    ahead: (Nanos, u32),
}

impl Clock {
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// A frame came.
    #[inline]
    pub fn advance(&mut self, time: Nanos) {
        let gone = time.0.saturating_sub(self.now.0);
        if gone <= STEP {
            if gone > 0 {
                self.now = time;
            }
            self.ahead.1 = 0;
        } else {
            self.leap(time);
        }
    }

    #[cold]
    fn leap(&mut self, time: Nanos) {
        if self.now == Nanos::ZERO {
            self.now = time;
            return;
        }
        let (earliest, frames) = self.ahead;
        self.ahead = if frames == 0 { (time, 1) } else { (Nanos(earliest.0.min(time.0)), frames + 1) };
        if self.ahead.1 >= AGREEING {
            self.now = self.ahead.0;
            self.ahead.1 = 0;
        }
    }

    /// No frame comes, and none that will is older than `time`.
    pub fn pause(&mut self, time: Nanos) {
        self.now = self.now.max(time);
    }
}
