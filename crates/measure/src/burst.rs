//! Longest burst at minimum gaps that a device forwards without loss, and the buffer size derived from it: RFC 9004,
//! which replaces section 26.4 of RFC 2544.

/// Search for one longest burst. Summarise repetitions by [`Spread`](crate::statistics::Spread).
#[derive(Clone, Debug)]
pub struct LongestBurst {
    /// The longest that was received completely.
    whole: u64,
    /// The shortest that was not.
    lossy: Option<u64>,
    limit: u64,
    step: u64,
}

impl LongestBurst {
    /// Searches from 0 to `limit` frames, to within `step` of them.
    pub fn new(limit: u64, step: u64) -> Self {
        LongestBurst { whole: 0, lossy: None, limit: limit.max(1), step: step.max(1) }
    }

    /// Returns the frames of the next burst; `None` when done. The limit is tried first: if it passes, it was too
    /// small.
    pub fn next_burst(&self) -> Option<u64> {
        match self.lossy {
            None => (self.whole < self.limit).then_some(self.limit),
            Some(lossy) => (lossy - self.whole > self.step).then(|| self.whole + (lossy - self.whole) / 2),
        }
    }

    /// Adds the result of the burst: true if it was received completely.
    pub fn add(&mut self, is_whole: bool) {
        match self.next_burst() {
            Some(frames) if is_whole => self.whole = frames,
            Some(frames) => self.lossy = Some(frames),
            None => {}
        }
    }

    /// Returns the longest burst that was received completely.
    pub fn found(&self) -> u64 {
        self.whole
    }

    /// Returns whether the burst of the limit passed: the capacity of the device is unknown then.
    pub fn is_limited(&self) -> bool {
        self.lossy.is_none() && self.whole == self.limit
    }
}

/// Buffer size derived from a burst, in seconds of frames at the maximum rate (RFC 9004, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    /// Assuming that nothing left it during the burst.
    pub implied: f64,
    /// Corrected for frames that left it during the burst, at the throughput of the device.
    pub corrected: f64,
}

/// Returns the buffer size, from the mean of longest bursts, the rate within them and the throughput; `None` if the
/// throughput is not less than the rate: no burst fills a buffer then.
pub fn buffer(burst: f64, greatest: f64, throughput: f64) -> Option<Buffer> {
    let implied = burst / greatest;
    (throughput < greatest && greatest > 0.0)
        .then(|| Buffer { implied, corrected: implied - implied * throughput / greatest })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue of 1,000 frames, drained at a tenth of the rate.
    #[test]
    fn the_queue_of_a_device_is_measured() {
        let (greatest, throughput, queue) = (1e6, 1e5, 1000.0);
        let whole = |frames: u64| frames as f64 * (1.0 - throughput / greatest) <= queue;
        let mut search = LongestBurst::new(1_000_000, 1);
        let mut bursts = 0;
        while let Some(frames) = search.next_burst() {
            search.add(whole(frames));
            bursts += 1;
        }
        assert!(bursts <= 21 && !search.is_limited(), "{bursts}");
        assert_eq!(search.found(), 1111);
        let buffer = buffer(search.found() as f64, greatest, throughput).unwrap();
        assert!((buffer.corrected * greatest - queue).abs() < 1.0 && buffer.implied > buffer.corrected);
        let mut fine = LongestBurst::new(1000, 1);
        fine.add(true);
        assert!(fine.next_burst().is_none() && fine.is_limited());
        assert_eq!(super::buffer(1000.0, 1e6, 1e6), None);
    }
}
