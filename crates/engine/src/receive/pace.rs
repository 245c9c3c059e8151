//! Pace of a run that receives: when to stop, how to wait, when it is over.

use crate::control::Stop;
use crate::lanes::Lanes;
use crate::receive::wait::{Idler, WaitCondition, WaitStrategy};
use linerate_burst::Nanos;
use std::time::{Duration, Instant};

/// Interval of reading the loss counters during the run.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest time for detached lanes to return the next frame, or the end: the backlog is finite, but an output may be
/// slow.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for input, which bounds the delay of stop requests and time limits.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// Wait before the next poll while a consumer has pending work.
const BUSY_NAP: Duration = Duration::from_micros(50);

/// Outcome of polling all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    /// Frames were taken.
    Frames,
    /// A consumer has pending work.
    Busy,
    /// No frame was ready.
    Nothing,
    /// Frames are ready, but another lane could still deliver older ones.
    Held,
    /// All lanes have ended.
    End,
}

/// Pace of the rounds of one run.
#[derive(Debug)]
pub(crate) struct Pace {
    idler: Idler,
    duration: Option<Duration>,
    stop: Stop,
    started: Instant,
    looked: Instant,
    /// Time since which detached lanes have returned nothing.
    detached: Option<Instant>,
    quiesced: bool,
}

impl Pace {
    /// Starts the clock of the run, which lasts at most for `duration` and until `stop` is requested; with `is_prompt`
    /// frames are delivered at once, otherwise they may wait for others.
    pub(crate) fn new(waiting: WaitStrategy, is_prompt: bool, duration: Option<Duration>, stop: Stop) -> Self {
        let now = Instant::now();
        let idler = Idler::new(waiting, is_prompt);
        Pace { idler, duration, stop, started: now, looked: now, detached: None, quiesced: false }
    }

    /// Detaches the lanes once the run has `enough`, is requested to stop, or its time is up.
    pub(crate) fn detach_if(&mut self, enough: bool, lanes: &mut Lanes) {
        let is_late = || self.duration.is_some_and(|limit| self.started.elapsed() >= limit);
        if self.detached.is_none() && (enough || self.stop.is_requested() || is_late()) {
            lanes.detach();
            self.detached = Some(Instant::now());
        }
    }

    /// Ends a round that began at `now` and waits if it was empty; returns false if it was the last.
    pub(crate) fn go_on(&mut self, polled: PollOutcome, now: Nanos, lanes: &Lanes) -> bool {
        let wakes = || lanes.wakes();
        match polled {
            PollOutcome::End => {
                self.quiesced = true;
                return false;
            }
            PollOutcome::Frames => {
                self.idler.busy(now);
                self.detached = self.detached.map(|_| Instant::now());
            }
            PollOutcome::Busy if self.idler.never_sleeps() => std::hint::spin_loop(),
            PollOutcome::Busy => std::thread::sleep(BUSY_NAP),
            PollOutcome::Nothing | PollOutcome::Held if lanes.have_pending_work() => {}
            PollOutcome::Nothing => self.idler.idle(now, NAP_LIMIT, WaitCondition::Input(lanes.poll_interval()), wakes),
            PollOutcome::Held => self.idler.idle(now, NAP_LIMIT, WaitCondition::Horizon, wakes),
        }
        self.detached.is_none_or(|since| since.elapsed() <= DRAIN_LIMIT && !self.stop.is_forced())
    }

    /// Returns whether it is time to read the loss counters again.
    pub(crate) fn is_loss_check_due(&mut self) -> bool {
        let is_time = self.looked.elapsed() >= LOOK_EVERY;
        if is_time {
            self.looked = Instant::now();
        }
        is_time
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns the time since frames last arrived from the detached lanes.
    pub(crate) fn draining(&self) -> Option<Duration> {
        self.detached.map(|since| since.elapsed())
    }

    /// Returns whether all lanes were drained, so that counters are exact.
    pub(crate) fn quiesced(&self) -> bool {
        self.quiesced
    }
}
