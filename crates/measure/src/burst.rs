//! The longest burst at minimal gaps that a device takes without loss, and the buffer that it tells of: RFC 9004, which replaces
//! section 26.4 of RFC 2544.

/// A search for one longest burst. Whoever repeats it takes [`Spread`](crate::spread::Spread) of what was found.
#[derive(Clone, Debug)]
pub struct LongestBurst {
    /// The longest that came whole.
    whole: u64,
    /// The shortest that did not.
    lossy: Option<u64>,
    limit: u64,
    step: u64,
}

impl LongestBurst {
    /// Between nothing and so many frames, to within `step` of them.
    pub fn new(limit: u64, step: u64) -> Self {
        LongestBurst { whole: 0, lossy: None, limit: limit.max(1), step: step.max(1) }
    }

    /// Frames of the next burst; nothing once it is done. The longest is tried first: where that comes whole the limit was too small.
    pub fn next_burst(&self) -> Option<u64> {
        match self.lossy {
            None => (self.whole < self.limit).then_some(self.limit),
            Some(lossy) => (lossy - self.whole > self.step).then(|| self.whole + (lossy - self.whole) / 2),
        }
    }

    /// Whether all of it came.
    pub fn add(&mut self, is_whole: bool) {
        match self.next_burst() {
            Some(frames) if is_whole => self.whole = frames,
            Some(frames) => self.lossy = Some(frames),
            None => {}
        }
    }

    /// The longest burst that came whole.
    pub fn found(&self) -> u64 {
        self.whole
    }

    /// Whether the longest burst there may be came whole: what the device takes is not known.
    pub fn is_limited(&self) -> bool {
        self.lossy.is_none() && self.whole == self.limit
    }
}

/// What a burst tells of a buffer, in seconds of frames at the greatest rate (RFC 9004, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    /// As if nothing left it while the burst came.
    pub implied: f64,
    /// Less what left it meanwhile, at the throughput of the device.
    pub corrected: f64,
}

/// The buffer, from the mean of longest bursts, the rate within them and the throughput; nothing where that is no less than the rate:
/// no burst fills a buffer then.
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
    fn the_queue_of_a_device_is_found() {
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
