//! What to do while nothing is ready.

use linerate_burst::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How a run waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Look again for a while, then wait for the kernel: quick without starving other threads.
    #[default]
    Adaptive,
    /// Look again for ever: the least delay, a whole core.
    Spin,
    /// Wait for the kernel at once: the least work.
    Sleep,
}

/// How long adaptive waiting looks again before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long to sleep where there is nothing to wait on.
const NAP: Duration = Duration::from_micros(100);
/// How long to sleep where frames are there and time has to pass: a quarter of the usual lag.
const PAUSE: Duration = Duration::from_micros(500);
/// So many naps without a frame, and the kernel is asked to wake us.
const NAPS: u32 = 2;
/// What was quiet for so long is looked at a third as often, which is what an idle run costs; input wakes it all the same.
const QUIET: Duration = Duration::from_secs(1);
/// Looking again pays while this many of the last idle phases ended before [`SPIN`] did; once it does not
/// pay, only one phase in [`RETRY`] tries it.
const SCORE: u32 = 8;
const RETRY: u32 = 64;

/// What an idle run waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Frames; while they come it is best to look for them so often.
    Input(Option<Duration>),
    /// Time: frames are there, and another lane could still bring older ones.
    Horizon,
}

/// One idle phase after the other.
#[derive(Debug)]
pub(crate) struct Idler {
    waiting: Waiting,
    is_prompt: bool,
    since: Option<Nanos>,
    /// How well looking again has paid lately, and how often it was left out since.
    score: u32,
    skipped: u32,
}

impl Idler {
    pub(crate) fn new(waiting: Waiting, is_prompt: bool) -> Self {
        Idler { waiting, is_prompt, since: None, score: SCORE, skipped: 0 }
    }

    /// Whether it is to look again for ever.
    pub(crate) fn never_sleeps(&self) -> bool {
        self.waiting == Waiting::Spin
    }

    /// There was something to do at `now`.
    pub(crate) fn busy(&mut self, now: Nanos) {
        if let Some(since) = self.since.take()
            && now.since(since) < SPIN
        {
            self.score = (self.score + 1).min(SCORE);
        }
    }

    /// There was nothing to do at `now`: waits a little, at most for `limit`. `wakes` are what input makes
    /// readable; `None` where nothing announces it.
    pub(crate) fn idle<'a>(
        &mut self,
        now: Nanos,
        limit: Duration,
        awaited: Awaited,
        wakes: impl FnOnce() -> Option<Vec<BorrowedFd<'a>>>,
    ) {
        let begins = self.since.is_none();
        let since = self.since.get_or_insert(now);
        // Where the clock was set back the phase begins anew, or it would spin until the clock is there again.
        *since = now.min(*since);
        let since = *since;
        let spins = match (self.waiting, awaited) {
            (Waiting::Spin, _) => true,
            (Waiting::Sleep, _) => false,
            (Waiting::Adaptive, Awaited::Input(Some(nap))) if !self.is_prompt => {
                if now.since(since) < nap * NAPS {
                    return std::thread::sleep(limit.min(nap));
                }
                false
            }
            (Waiting::Adaptive, Awaited::Input(_)) => now.since(since) < SPIN && self.spinning_pays(begins),
            // Time passes by itself: each look at it would let a few frames through and find the next ones held.
            (Waiting::Adaptive, Awaited::Horizon) => false,
        };
        if spins {
            std::hint::spin_loop();
            return;
        }
        if awaited == Awaited::Horizon {
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
    // An interrupted wait is as good as a finished one: the caller looks again.
    let _ = poll(&mut polled, Some(&limit));
    if polled.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)) {
        // The queue will say what is wrong; until then such a descriptor is always ready.
        std::thread::sleep(NAP);
    }
}
