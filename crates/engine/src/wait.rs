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
/// How long to sleep where there is nothing to wait on, or where time has to pass.
const NAP: Duration = Duration::from_micros(100);

/// One idle phase after the other.
#[derive(Debug)]
pub(crate) struct Idler {
    waiting: Waiting,
    since: Option<Nanos>,
}

impl Idler {
    pub fn new(waiting: Waiting) -> Self {
        Idler { waiting, since: None }
    }

    /// There was something to do.
    pub fn busy(&mut self) {
        self.since = None;
    }

    /// There was nothing to do at `now`. Waits for one of `wakes` where the run waits for input alone,
    /// else for time to pass; at most for `limit`.
    pub fn idle<'a>(&mut self, now: Nanos, limit: Duration, wakes: impl FnOnce() -> Option<Vec<BorrowedFd<'a>>>) {
        let since = *self.since.get_or_insert(now);
        let spins = match self.waiting {
            Waiting::Spin => true,
            Waiting::Sleep => false,
            Waiting::Adaptive => now.since(since) < SPIN,
        };
        if spins {
            std::hint::spin_loop();
            return;
        }
        match wakes() {
            Some(fds) => wait_for(&fds, limit),
            None => std::thread::sleep(limit.min(NAP)),
        }
    }
}

fn wait_for(fds: &[BorrowedFd<'_>], limit: Duration) {
    let mut polled: Vec<PollFd<'_>> = fds.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
    // An interrupted wait is as good as a finished one: the caller looks again.
    let _ = poll(&mut polled, Some(&limit));
    if polled.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)) {
        // The queue will say what is wrong; until then such a descriptor is always ready.
        std::thread::sleep(NAP);
    }
}
