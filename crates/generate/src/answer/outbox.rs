//! Queue of frames to send: built, rate-limited, bounded.

use super::received::Link;
use linerate_burst::{Block, Burst, Count, Desc, Nanos};
use linerate_headers::build::{Frame, Header};
use std::time::Duration;

/// Minimum length of an Ethernet frame, without FCS (IEEE 802.3, clause 3.2.8).
const LEAST_FRAME: usize = 60;
/// Maximum number of queued frames, and of their bytes; one frame of any length always fits.
const MOST_FRAMES: usize = 1024;
const MOST_BYTES: usize = 512 << 10;

/// Queue of frames for the port.
#[derive(Debug)]
pub(super) struct Outbox {
    block: Block,
    limit: Limit,
    now: Nanos,
    /// Frame being built.
    frame: Vec<u8>,
}

impl Outbox {
    /// Creates an empty queue for at most `per_second` answers per second.
    pub(super) fn new(per_second: u32) -> Self {
        let limit = Limit { gap: Duration::from_secs(1) / per_second.max(1), free: Nanos::ZERO };
        Outbox { block: Block::new(MOST_BYTES, MOST_FRAMES), limit, now: Nanos::ZERO, frame: Vec::new() }
    }

    pub(super) fn set_time(&mut self, now: Nanos) {
        self.now = now;
    }

    /// Queues an answer within the rate limit; otherwise returns the counter for the request.
    pub(super) fn answer(&mut self, link: &Link, inner: &[&dyn Header], payload: &[u8]) -> Result<(), Count> {
        if !self.limit.allows(self.now) {
            return Err(Count::AnswerLimited);
        }
        if self.put(link, inner, payload) { Ok(()) } else { Err(Count::AnswerFull) }
    }

    /// Queues a frame; false if the queue is full.
    pub(super) fn put(&mut self, link: &Link, inner: &[&dyn Header], payload: &[u8]) -> bool {
        let mut headers: Vec<&dyn Header> = Vec::new();
        if !link.is_bare {
            headers.push(&link.ethernet);
            headers.extend(link.tags().iter().map(|tag| tag as &dyn Header));
        }
        headers.extend_from_slice(inner);
        let frame = Frame::new(&headers, payload);
        let Ok(length) = frame.length() else { return false };
        self.frame.clear();
        self.frame.resize(if link.is_bare { length } else { length.max(LEAST_FRAME) }, 0);
        // The lengths of an answer come from a received frame, so they fit.
        let built = frame.write(&mut self.frame);
        debug_assert!(built.is_ok(), "{built:?}");
        built.is_ok() && self.block.push(&Desc::new(self.now, 0, self.frame.len() as u32), &self.frame)
    }

    pub(super) fn frames(&self) -> Burst<'_> {
        self.block.burst()
    }

    pub(super) fn clear(&mut self) {
        self.block.clear();
    }
}

/// Rate limit: bursts of one second's worth, then one per `gap`.
#[derive(Debug)]
struct Limit {
    gap: Duration,
    /// Time at which everything allowed so far has been used up, at the limit's rate.
    free: Nanos,
}

impl Limit {
    const SPAN: Duration = Duration::from_secs(1);

    fn allows(&mut self, now: Nanos) -> bool {
        // More than a second ahead: the clock was set back.
        let ahead = Some(self.free.since(now)).filter(|ahead| *ahead <= Limit::SPAN).unwrap_or_default();
        let free = now.after(ahead + self.gap);
        let allows = free <= now.after(Limit::SPAN);
        if allows {
            self.free = free;
        }
        allows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(per_second: u32) -> Limit {
        Outbox::new(per_second).limit
    }

    #[test]
    fn the_limit_allows_one_second_at_once_then_an_even_rate() {
        let mut limit = limit(100);
        let start = Nanos::from_parts(1_700_000_000, 0);
        assert_eq!((0..300).filter(|_| limit.allows(start)).count(), 100);
        let after = |ms| start.after(Duration::from_millis(ms));
        assert!(!limit.allows(after(9)) && limit.allows(after(10)) && !limit.allows(after(19)));
        assert_eq!((0..300).filter(|_| limit.allows(after(510))).count(), 50);
        assert_eq!((0..300).filter(|_| limit.allows(after(60_000))).count(), 100, "unused answers do not accumulate");
    }

    #[test]
    fn clock_steps_back_block_no_answers() {
        let mut limit = limit(10);
        assert!(limit.allows(Nanos::from_parts(1_700_000_000, 0)));
        assert!(limit.allows(Nanos::from_parts(1_600_000_000, 0)));
        assert!(Outbox::new(0).limit.allows(Nanos(1)), "0 is taken for 1");
    }
}
