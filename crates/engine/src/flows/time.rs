//! What time it is by the frames of all workers.

use linerate_burst::Nanos;

/// Frames of which the earliest counts.
const FRAMES: usize = 1024;

/// The time that has come: all frames of the last two thousand or so are as late as this, so that one frame of a wrong time
/// does not count. It is what a meter that sees all frames goes by.
#[derive(Debug)]
pub(super) struct PacketTime {
    now: Nanos,
    /// The greatest time of a frame.
    latest: Nanos,
    frames: usize,
    least: Nanos,
    least_before: Nanos,
}

impl PacketTime {
    pub fn new() -> Self {
        let least = Nanos::MAX;
        PacketTime { now: Nanos::ZERO, latest: Nanos::ZERO, frames: 0, least, least_before: least }
    }

    /// A frame came.
    #[inline(always)]
    pub fn see(&mut self, time: Nanos) {
        self.latest = self.latest.max(time);
        self.least = self.least.min(time);
        self.frames += 1;
        if self.frames == FRAMES {
            self.now = self.least.min(self.least_before);
            (self.frames, self.least_before, self.least) = (0, self.least, Nanos::MAX);
        }
    }

    /// No frame that is still to come is older than this.
    pub fn advance(&mut self, complete: Nanos) {
        if complete != Nanos::MAX {
            self.now = self.now.max(complete);
        }
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    pub fn latest(&self) -> Nanos {
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_frame_of_a_wrong_time_moves_nothing() {
        let mut time = PacketTime::new();
        for second in 0..FRAMES as u64 {
            time.see(Nanos(if second == 7 { 1 << 60 } else { 100 + second }));
        }
        assert_eq!((time.now(), time.latest()), (Nanos(100), Nanos(1 << 60)));
        for second in 0..2 * FRAMES as u64 {
            time.see(Nanos(5000 + second));
        }
        assert_eq!(time.now(), Nanos(5000), "the earliest of the last two times {FRAMES}");
        time.advance(Nanos(4000));
        assert_eq!(time.now(), Nanos(5000));
        time.advance(Nanos(9000));
        time.advance(Nanos::MAX);
        assert_eq!(time.now(), Nanos(9000));
    }
}
