//! Strategies while nothing is ready.

use linerate_burst::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Wait strategy of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitStrategy {
    /// Spin for a while, then wait for the kernel: fast without starving other threads.
    #[default]
    Adaptive,
    /// Spin forever: lowest delay, a whole core.
    Spin,
    /// Wait for the kernel at once: least CPU time.
    Sleep,
}

/// Time that adaptive waiting spins before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// Sleep without a descriptor to poll.
const NAP: Duration = Duration::from_micros(100);
/// Sleep if frames are ready and time must pass: a quarter of the usual lag.
const PAUSE: Duration = Duration::from_micros(500);
/// Number of naps without a frame after which the kernel must wake the thread.
const NAPS: u32 = 2;
/// Idle time after which the poll rate falls to a third, which is what an idle run costs; input still wakes the thread.
const QUIET: Duration = Duration::from_secs(1);
/// Spinning pays off while this many of the last idle phases ended before [`SPIN`] did; after that only one phase in
/// [`RETRY`] tries it.
const SCORE: u32 = 8;
const RETRY: u32 = 64;

/// Condition that an idle run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCondition {
    /// Frames; with the best poll interval while they arrive.
    Input(Option<Duration>),
    /// Time: frames are ready, but another lane could still deliver older ones.
    Horizon,
}

/// State of successive idle phases.
#[derive(Debug)]
pub(crate) struct Idler {
    waiting: WaitStrategy,
    is_prompt: bool,
    since: Option<Nanos>,
    /// Recent success of spinning, and the number of phases that skipped it since.
    score: u32,
    skipped: u32,
}

impl Idler {
    pub(crate) fn new(waiting: WaitStrategy, is_prompt: bool) -> Self {
        Idler { waiting, is_prompt, since: None, score: SCORE, skipped: 0 }
    }

    /// Returns whether it spins forever.
    pub(crate) fn never_sleeps(&self) -> bool {
        self.waiting == WaitStrategy::Spin
    }

    /// Ends the idle phase at `now`.
    pub(crate) fn busy(&mut self, now: Nanos) {
        if let Some(since) = self.since.take()
            && now.since(since) < SPIN
        {
            self.score = (self.score + 1).min(SCORE);
        }
    }

    /// Waits in an idle phase at `now`, at most for `limit`. `wakes` returns the descriptors that become readable with
    /// input; `None` if there are none.
    pub(crate) fn idle<'a>(
        &mut self,
        now: Nanos,
        limit: Duration,
        awaited: WaitCondition,
        wakes: impl FnOnce() -> Option<Vec<BorrowedFd<'a>>>,
    ) {
        let begins = self.since.is_none();
        let since = self.since.get_or_insert(now);
        // If the clock was set back the phase restarts, or it would spin until the clock has caught up.
        *since = now.min(*since);
        let since = *since;
        let spins = match (self.waiting, awaited) {
            (WaitStrategy::Spin, _) => true,
            (WaitStrategy::Sleep, _) => false,
            (WaitStrategy::Adaptive, WaitCondition::Input(Some(nap))) if !self.is_prompt => {
                if now.since(since) < nap * NAPS {
                    return std::thread::sleep(limit.min(nap));
                }
                false
            }
            (WaitStrategy::Adaptive, WaitCondition::Input(_)) => now.since(since) < SPIN && self.spinning_pays(begins),
            // Time passes by itself: each poll would let a few frames through and find the next ones held.
            (WaitStrategy::Adaptive, WaitCondition::Horizon) => false,
        };
        if spins {
            std::hint::spin_loop();
            return;
        }
        if awaited == WaitCondition::Horizon {
            return std::thread::sleep(limit.min(PAUSE));
        }
        self.score = self.score.saturating_sub(1);
        let limit = if now.since(since) >= QUIET { limit * 3 } else { limit };
        match wakes() {
            Some(fds) => wait_for(&fds, limit),
            None => std::thread::sleep(limit.min(NAP)),
        }
    }

    fn spinning_pays(&mut self, phase_begins: bool) -> bool {
        if self.score > 0 {
            return true;
        }
        self.skipped += u32::from(phase_begins);
        self.skipped.is_multiple_of(RETRY)
    }
}

/// Waits until one of these has input, at most for `limit`.
pub(crate) fn wait_for(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // An interrupted wait is as good as a finished one: the caller polls again.
    let _ = poll(&mut polled, Some(&limit));
    if polled.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)) {
        // The queue will report the error; until then such a descriptor is always ready.
        std::thread::sleep(NAP);
    }
}
