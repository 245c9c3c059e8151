//! Common part of all senders: waiting until a frame is due, full queues, interfaces that go down, the end of a run,
//! and its accounting.

use crate::clock::{self, Clock, SystemClock, Time};
use crate::control::{Progress, Stop};
use crate::live;
use crate::metrics::Metrics;
pub(crate) use crate::timing::Timing;
use crate::tx_queues::TxQueues;
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{LiveControl, PortError, Sent, TxPort};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sleep is used up to this margin before a frame is due, increased to 1.5 times the recent oversleep, at most the
/// second; the rest of a gap is spun. A virtual machine on a busy host wakes late now and then.
const SLEEP_ERROR: (Duration, Duration) = (Duration::from_micros(150), Duration::from_millis(1));
/// Number of timely sleeps after which the worst oversleep is halved.
const REMEMBERED: u32 = 1024;
/// Remaining time that allows other work without making a frame late.
const SPARE_TIME: Duration = Duration::from_micros(60);
/// Longest sleep, which bounds the delay of stop requests.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// Longest sleep of a sender that accepts commands.
const OFTEN: Duration = Duration::from_millis(1);
/// Wait for a full queue or a slow reader before a retry.
const SHORT_NAP: Duration = Duration::from_micros(50);
/// Wait before checking again whether an interface is up.
const DOWN_NAP: Duration = Duration::from_millis(10);
/// Longest time between flushes of the frames taken.
const FLUSH_EVERY: Duration = Duration::from_millis(1);
/// Step of the time with `at_once` if a port takes nothing: it may hold frames until then.
pub(crate) const FULL_STEP: Duration = Duration::from_millis(1);
/// Time after which a queue that takes nothing fails.
const STUCK_LIMIT: Duration = Duration::from_secs(10);
/// Longest time for queued frames to leave once stopping is requested.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Limits and observers of a sender.
#[derive(Clone)]
pub(crate) struct Limits {
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
    /// Stops the run when requested.
    pub stop: Stop,
    /// Totals of the run so far.
    pub progress: Arc<Progress>,
    /// Does not wait for frames to be due: the caller provides the time.
    pub at_once: bool,
}

impl Limits {
    fn are_reached(&self, started: Instant) -> bool {
        self.stop.is_requested() || self.duration.is_some_and(|limit| started.elapsed() >= limit)
    }
}

pub(crate) struct Sender {
    queues: TxQueues,
    limits: Limits,
    time: Time,
    started: Instant,
    timing: Timing,
    /// Time since which a queue has taken nothing.
    stuck: Option<Instant>,
    flushed: Nanos,
    /// Recent maximum oversleep.
    overslept: Duration,
    /// Longest sleep.
    nap_limit: Duration,
    /// True if interfaces may be down before the first frame.
    stays: bool,
    shown: Sent,
    /// Number of times that an interface went down, and the frames sent when it was last found down.
    downs: u64,
    sent_when_down: Option<u64>,
    metrics: Metrics,
    /// Error after frames were taken, returned by the next call.
    failed: Option<PortError>,
}

/// Result of one sender.
pub(crate) struct SenderReport {
    pub ledger: Ledger,
    pub ports: Vec<(String, Sent)>,
    pub elapsed: Duration,
    pub timing: Timing,
}

impl Sender {
    pub(crate) fn new(ports: Vec<TxPort>, limits: Limits) -> Self {
        Sender::with(ports, limits, Box::new(SystemClock))
    }

    /// Creates a sender with this clock.
    pub(crate) fn with(ports: Vec<TxPort>, limits: Limits, clock: Box<dyn Clock>) -> Self {
        Sender {
            time: Time::new(clock),
            queues: TxQueues::new(ports),
            limits,
            started: Instant::now(),
            timing: Timing::default(),
            stuck: None,
            flushed: Nanos::ZERO,
            overslept: Duration::ZERO,
            nap_limit: NAP_LIMIT,
            stays: false,
            shown: Sent::default(),
            downs: 0,
            sent_when_down: None,
            metrics: Metrics::new(),
            failed: None,
        }
    }

    /// Calls `step`, which returns false at the end, until the run is over; then waits until queued frames have left.
    /// `delay` receives the duration of interface outages.
    pub(crate) fn run<T>(
        &mut self,
        source: &mut T,
        mut step: impl FnMut(&mut Self, &mut T) -> Result<bool, PortError>,
        mut delay: impl FnMut(&mut T, Duration),
    ) -> Result<(), PortError> {
        // Sleep is 50 us less exact without this (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        self.started = Instant::now();
        let mut result = Ok(true);
        while matches!(result, Ok(true)) && !self.is_over() {
            result = step(self, source).or_else(|error| {
                delay(source, self.wait_until_up(error)?);
                Ok(true)
            });
        }
        let result = result.and_then(|_| self.drain());
        let _ = rustix::thread::set_current_timer_slack(None);
        result
    }

    /// Runs the first queue's own generator, repeatedly if it stopped because the interface went down. `look` is called
    /// several times a second.
    pub(crate) fn run_live(&mut self, control: &dyn LiveControl, mut look: impl FnMut()) -> Result<(), PortError> {
        self.started = Instant::now();
        let name = self.queues.name(0).to_owned();
        loop {
            let Sender { queues, limits, started, shown, metrics, .. } = self;
            let show = |sent: Sent| {
                show(&limits.progress, shown, sent);
                metrics.answer(|ledger| {
                    let account = ledger.account(Stage::Send, &name);
                    account.add(Count::SendReceived, sent.frames).add(Count::Sent, sent.frames);
                });
                look();
            };
            match live::run(queues.queue(0), control, || limits.are_reached(*started), show) {
                Err(PortError::Down { .. }) if self.is_over() => return Ok(()),
                Err(error) => {
                    self.wait_until_up(error)?;
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.limits.are_reached(self.started)
    }

    /// Returns the time now, and the clock steps since the last call, in nanoseconds: schedules follow them, so that
    /// frames keep their gaps and nothing waits until the clock has caught up.
    #[inline]
    pub(crate) fn read_clock(&mut self) -> (Nanos, i64) {
        let (now, step) = self.time.look();
        (now, step.unwrap_or(0))
    }

    /// Limits sleeps to a millisecond from now on, since commands may change what is due.
    pub(crate) fn limit_sleep(&mut self) {
        self.nap_limit = OFTEN;
    }

    /// Waits for interfaces that are down even before the first frame.
    pub(crate) fn stay(&mut self) {
        self.stays = true;
    }

    /// Returns the time since a queue last accepted a frame, if one is stuck.
    pub(crate) fn stuck_for(&self) -> Duration {
        self.stuck.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Returns the deviation from the schedule.
    pub(crate) fn timing(&mut self) -> &mut Timing {
        &mut self.timing
    }

    /// Passes frames to a queue and returns how many it took. If it takes none, waits a little. After an error it has
    /// taken none.
    pub(crate) fn send(&mut self, queue: usize, burst: Burst<'_>, now: Nanos) -> Result<usize, PortError> {
        self.failed.take().map_or(Ok(()), Err)?;
        let done = self.queues.send(queue, burst)?;
        if done == 0 {
            self.fail_if_stuck(queue)?;
            self.sleep_briefly(now)?;
            return Ok(0);
        }
        self.stuck = None;
        if now.since(self.flushed) >= FLUSH_EVERY || now < self.flushed {
            self.failed = self.flush(now).err();
        }
        Ok(done)
    }

    /// Waits until a frame is due, or until it is time to check whether the run is over.
    pub(crate) fn wait(&mut self, due: Nanos, now: Nanos) -> Result<(), PortError> {
        if due.since(now) > SPARE_TIME {
            // An idle sender still updates its horizon.
            self.flush(now)?;
        }
        let left = due.since(self.time.utc());
        let began = Instant::now();
        let margin = (self.overslept + self.overslept / 2).clamp(SLEEP_ERROR.0, SLEEP_ERROR.1);
        if left > margin {
            let asked = (left - margin).min(self.nap_limit);
            std::thread::sleep(asked);
            let late = began.elapsed().saturating_sub(asked);
            self.overslept = late.max(self.overslept - self.overslept / REMEMBERED);
            return Ok(());
        }
        while began.elapsed() < left {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Waits a little for the source or a queue.
    pub(crate) fn sleep_briefly(&mut self, now: Nanos) -> Result<(), PortError> {
        // A file is created by its first packet: the source may still fail before.
        if !self.limits.at_once || self.queues.sent().frames > 0 {
            self.flush(now)?;
        }
        std::thread::sleep(SHORT_NAP);
        Ok(())
    }

    /// Ends the sender. `truncated` frames were not sent because they were recorded incompletely.
    pub(crate) fn finish(mut self, truncated: u64) -> SenderReport {
        let elapsed = self.started.elapsed();
        let mut ledger = Ledger::new();
        self.queues.counters(&mut ledger);
        for (count, frames) in
            [(Count::SendReceived, truncated), (Count::SendTruncated, truncated), (Count::SendLinkDown, self.downs)]
        {
            if frames > 0 {
                ledger.account(Stage::Send, self.queues.name(0)).add(count, frames);
            }
        }
        self.metrics.close(&ledger);
        self.limits.progress.lost.fetch_add(ledger.lost(), Ordering::Relaxed);
        let ports = self.queues.by_port().map(|(name, sent)| (name.to_owned(), sent)).collect();
        SenderReport { ledger, ports, elapsed, timing: self.timing }
    }

    fn drain(&mut self) -> Result<(), PortError> {
        self.stuck = None;
        let (mut then, mut step) = (self.flushed, NAP_LIMIT);
        loop {
            let now = if self.limits.at_once { then } else { clock::now() };
            match self.flush(now) {
                Ok(true) => break,
                Ok(false) => {}
                // Queued frames leave when the interface is up again.
                Err(error) => {
                    self.wait_until_up(error)?;
                }
            }
            // A port releases held frames when their time is reported as reached.
            (then, step) = (then.after(step), step.saturating_mul(2));
            self.fail_if_stuck(0)?;
            let since = self.stuck.unwrap_or_else(Instant::now);
            let stop = &self.limits.stop;
            if stop.is_forced() || stop.is_requested() && since.elapsed() > STOP_LIMIT {
                break;
            }
            std::thread::sleep(SHORT_NAP);
        }
        Ok(())
    }

    /// Flushes all queues; returns false while some frames are still queued.
    pub(crate) fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        self.failed.take().map_or(Ok(()), Err)?;
        let flushed = self.queues.flush(now);
        self.flushed = now;
        show(&self.limits.progress, &mut self.shown, self.queues.sent());
        let Sender { metrics, queues, .. } = self;
        metrics.answer(|ledger| queues.queue_counters(ledger));
        flushed
    }

    /// Waits until a port that has sent is up again. Returns the duration.
    fn wait_until_up(&mut self, error: PortError) -> Result<Duration, PortError> {
        if !matches!(error, PortError::Down { .. }) || self.queues.sent().frames == 0 && !self.stays {
            return Err(error);
        }
        // A queue can accept frames while the link is still down and fail when it sends them; only sent frames start a
        // new event.
        let sent = self.queues.sent().frames;
        self.downs += u64::from(self.sent_when_down.is_none_or(|before| sent > before));
        self.sent_when_down = Some(sent);
        let before = Instant::now();
        std::thread::sleep(DOWN_NAP);
        Ok(before.elapsed())
    }

    fn fail_if_stuck(&mut self, queue: usize) -> Result<(), PortError> {
        let since = *self.stuck.get_or_insert_with(Instant::now);
        if since.elapsed() < STUCK_LIMIT || self.limits.stop.is_requested() {
            return Ok(());
        }
        let reason = format!("accepted no frame for {} s; check the receiving end", STUCK_LIMIT.as_secs());
        Err(PortError::broken(self.queues.name(queue), reason))
    }
}

/// Updates the progress. A queue may find later that a frame was not sent: the progress never decreases.
fn show(progress: &Progress, shown: &mut Sent, sent: Sent) {
    let (frames, bytes) = (sent.frames.max(shown.frames), sent.bytes.max(shown.bytes));
    progress.add(frames - shown.frames, bytes - shown.bytes, bytes - shown.bytes);
    *shown = Sent { frames, bytes };
}

#[cfg(test)]
mod tests;
