//! The pace of a run that receives: when to stop, how to wait, when all is over.

use crate::control::Stop;
use crate::lanes::Lanes;
use crate::receive::wait::{Awaited, Idler, Waiting};
use linerate_burst::Nanos;
use std::time::{Duration, Instant};

/// How often the loss counters are looked up while the run lasts.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long detached lanes may take to show the next frame, or that there is none: the backlog is finite, but a
/// slow output takes its time.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The longest wait for input, so that stop requests and time limits are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long to wait before looking again where a consumer has something in hand.
const BUSY_NAP: Duration = Duration::from_micros(50);

/// What came of one look at all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Frames were taken.
    Frames,
    /// A consumer has something in hand.
    Busy,
    /// There was nothing to take.
    Nothing,
    /// Frames are there, and another lane could still bring older ones.
    Held,
    /// No lane has a frame, or will ever have one.
    End,
}

/// The rounds of one run.
#[derive(Debug)]
pub(crate) struct Pace {
    idler: Idler,
    duration: Option<Duration>,
    stop: Stop,
    started: Instant,
    looked: Instant,
    /// Since when detached lanes have shown nothing.
    detached: Option<Instant>,
    quiesced: bool,
}

impl Pace {
    /// Starts the time of the run, which lasts at most for `duration` and until `stop` is requested; frames `is_prompt` to come at
    /// once, or may wait for others.
    pub(crate) fn new(waiting: Waiting, is_prompt: bool, duration: Option<Duration>, stop: Stop) -> Self {
        let now = Instant::now();
        let idler = Idler::new(waiting, is_prompt);
        Pace { idler, duration, stop, started: now, looked: now, detached: None, quiesced: false }
    }

    /// Detaches the lanes once the run has `enough`, was asked to stop, or its time is up.
    pub(crate) fn detach_if(&mut self, enough: bool, lanes: &mut Lanes) {
        let is_late = || self.duration.is_some_and(|limit| self.started.elapsed() >= limit);
        if self.detached.is_none() && (enough || self.stop.is_requested() || is_late()) {
            lanes.detach();
            self.detached = Some(Instant::now());
        }
    }

    /// Ends a round that began at `now`, waiting where it has brought nothing; false if it was the last.
    pub(crate) fn go_on(&mut self, came: Came, now: Nanos, lanes: &Lanes) -> bool {
        let wakes = || lanes.wakes();
        match came {
            Came::End => {
                self.quiesced = true;
                return false;
            }
            Came::Frames => {
                self.idler.busy(now);
                self.detached = self.detached.map(|_| Instant::now());
            }
            Came::Busy if self.idler.never_sleeps() => std::hint::spin_loop(),
            Came::Busy => std::thread::sleep(BUSY_NAP),
            Came::Nothing | Came::Held if lanes.are_at_work() => {}
            Came::Nothing => self.idler.idle(now, NAP_LIMIT, Awaited::Input(lanes.nap()), wakes),
            Came::Held => self.idler.idle(now, NAP_LIMIT, Awaited::Horizon, wakes),
        }
        self.detached.is_none_or(|since| since.elapsed() <= DRAIN_LIMIT && !self.stop.is_hurried())
    }

    /// Whether it is time to look the loss counters up again.
    pub(crate) fn is_time_to_look(&mut self) -> bool {
        let is_time = self.looked.elapsed() >= LOOK_EVERY;
        if is_time {
            self.looked = Instant::now();
        }
        is_time
    }

    /// How long the run has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// When it began.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// How long nothing has come from detached lanes.
    pub(crate) fn draining(&self) -> Option<Duration> {
        self.detached.map(|since| since.elapsed())
    }

    /// Whether all lanes ran dry, so that counters are exact.
    pub(crate) fn quiesced(&self) -> bool {
        self.quiesced
    }
}
