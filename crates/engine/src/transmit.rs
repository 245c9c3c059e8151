//! Source -> schedule -> port, in one thread.

use crate::clock;
use crate::control::{Progress, Stop};
use crate::live;
use crate::source::{Offer, Source};
use linerate_burst::{Count, Ledger, Nanos, Stage};
use linerate_generate::{Pacing, Rate, Schedule};
use linerate_port::{LiveControl, PortError, Sent, TxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sleeping is trusted to wake up within this; the rest of a gap is spun away.
const SLEEP_ERROR: Duration = Duration::from_micros(120);
/// How long a full queue is waited for before looking again.
const FULL_NAP: Duration = Duration::from_micros(50);
/// How long to wait before asking again whether an interface is up.
const DOWN_NAP: Duration = Duration::from_millis(10);
/// The longest sleep, so that stop requests are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long what was taken may take to leave once stopping is requested.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// While there is always more to send, what was taken gets on its way so often: a full queue sends by itself.
const FLUSH_EVERY: Duration = Duration::from_millis(1);
/// A queue that takes nothing for so long is given up.
const STUCK_LIMIT: Duration = Duration::from_secs(10);

/// What to send, where and when.
pub struct Transmit {
    /// The frames.
    pub source: Source,
    /// Where they go; the first queue is used.
    pub port: TxPort,
    /// When each is due.
    pub pacing: Pacing,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What the run has done so far.
    pub progress: Arc<Progress>,
}

/// What a sender did.
#[derive(Debug)]
pub struct TransmitReport {
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Frames handed to the port and not dropped there.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// From the first frame to the last.
    pub elapsed: Duration,
    /// Greatest and mean time by which frames left later than they were due; top speed has no due times.
    pub late: Lateness,
    /// What went wrong, if anything.
    pub failure: Option<PortError>,
}

/// How far behind the schedule frames left.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lateness {
    /// The worst.
    pub max: Duration,
    sum: u128,
    frames: u64,
}

impl Lateness {
    /// The mean over all bursts sent.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos((self.sum / u128::from(self.frames.max(1))) as u64)
    }

    fn add(&mut self, late: Duration) {
        self.max = self.max.max(late);
        self.sum += late.as_nanos();
        self.frames += 1;
    }
}

impl Transmit {
    /// Sends until the source has ended, the time is over, or stopping is requested.
    pub fn run(self) -> TransmitReport {
        let mut session = Session {
            schedule: Schedule::new(self.pacing),
            started: Instant::now(),
            stuck: None,
            truncated: 0,
            late: Lateness::default(),
            flushed: Nanos::ZERO,
            shown: Sent::default(),
            down: false,
            downs: 0,
            transmit: self,
        };
        let control = match &session.transmit.source {
            Source::Plan(control) => Some(Arc::clone(control)),
            Source::Template(_) | Source::Made(_) => None,
            Source::Live(control) => Some(Arc::clone(control)),
            Source::Replay(_) | Source::Template(_) | Source::Made(_) => None,
        };
        let result = match control {
            Some(control) => session.send_live(&*control),
            None => session.send_all(),
        };
        let failure = result.err();
        session.finish(failure)
    }
}

struct Session {
    transmit: Transmit,
    schedule: Schedule,
    started: Instant,
    /// Since when the queue has taken nothing.
    stuck: Option<Instant>,
    truncated: u64,
    late: Lateness,
    /// When what was taken last got on its way.
    flushed: Nanos,
    /// What watchers know of.
    shown: Sent,
    /// The interface is down, and how often it went down.
    down: bool,
    downs: u64,
}

/// What came of one look at the source.
enum Step {
    Sent,
    /// Nothing is due for so long.
    Wait(Duration),
    /// The queue is not ready.
    Nap,
    Ended,
}

impl Session {
    fn send_all(&mut self) -> Result<(), PortError> {
        while !self.is_over() {
            match self.go_on(clock::now()) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.bear(error)?,
            }
        }
        self.stuck = None;
        while !self.flush(clock::now())? {
            self.give_up_if_stuck()?;
            if self.transmit.stop.is_requested() && self.stuck.is_some_and(|since| since.elapsed() > STOP_LIMIT) {
                break;
            }
            std::thread::sleep(FULL_NAP);
        }
        Ok(())
    }

    /// One step, and what follows from it; false at the end of the source.
    fn go_on(&mut self, now: Nanos) -> Result<bool, PortError> {
        match self.step(now)? {
            Step::Sent => {
                self.stuck = None;
                self.down = false;
                if now.since(self.flushed) >= FLUSH_EVERY {
                    self.flush(now)?;
                }
            }
            Step::Wait(span) => self.wait(span)?,
            Step::Nap => {
                self.flush(now)?;
                std::thread::sleep(FULL_NAP);
            }
            Step::Ended => return Ok(false),
        }
        Ok(true)
    }

    /// Waits where a port that has sent is down: it may come back. What would have been due meanwhile is due from then on.
    fn bear(&mut self, error: PortError) -> Result<(), PortError> {
        if !matches!(error, PortError::Down { .. }) || self.shown.frames == 0 {
            return Err(error);
        }
        self.downs += u64::from(!self.down);
        self.down = true;
        std::thread::sleep(DOWN_NAP);
        self.schedule.restart();
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.transmit.stop.is_requested() || self.transmit.duration.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    /// Sends what is due at `now`.
    fn step(&mut self, now: Nanos) -> Result<Step, PortError> {
        let Session { transmit: Transmit { source, port, .. }, schedule, .. } = self;
        let burst = match source.offer(now)? {
            Offer::Frames(burst) => burst,
            Offer::Ended => return Ok(Step::Ended),
        };
        let due = schedule.due(burst.descs(), now);
        if due == 0 {
            let gap = schedule.next(burst.descs()).map_or(Duration::ZERO, |next| next.since(now));
            return Ok(Step::Wait(gap));
        }
        let paced = self.transmit.pacing != Pacing::Fixed(Rate::Top);
        if let Some(first) = schedule.next(burst.descs()).filter(|_| paced) {
            self.late.add(now.since(first));
        }
        let whole = burst.descs()[..due].iter().take_while(|desc| !desc.is_truncated()).count();
        let queue = &mut port.queues[0];
        let done = if whole == 0 {
            self.truncated += 1;
            1
        } else {
            queue.send(burst.slice(0..whole))?
        };
        schedule.advance(&burst.descs()[..done]);
        source.consume(done);
        show(&self.transmit.progress, &mut self.shown, self.transmit.port.queues[0].sent());
        if done > 0 { Ok(Step::Sent) } else { self.give_up_if_stuck().map(|()| Step::Nap) }
    }

    /// Sleeps as long as sleeping is exact enough, then spins.
    fn wait(&mut self, span: Duration) -> Result<(), PortError> {
        if span > SLEEP_ERROR {
            std::thread::sleep((span - SLEEP_ERROR).min(NAP_LIMIT));
        } else {
            std::hint::spin_loop();
        }
        // An idle sender still says how far it is complete.
        self.flush(clock::now()).map(|_| ())
    }

    /// Gets what was taken on its way; false while some of it still is not.
    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let queue = &mut self.transmit.port.queues[0];
        let (flushed, sent) = (queue.flush(now), queue.sent());
        self.flushed = now;
        show(&self.transmit.progress, &mut self.shown, sent);
        flushed
    }

    /// Lets the port make its frames, again where it is not done because the interface went down.
    fn send_live(&mut self, control: &dyn LiveControl) -> Result<(), PortError> {
        let result = loop {
            let Transmit { port, stop, duration, progress, .. } = &mut self.transmit;
            let (started, shown) = (self.started, &mut self.shown);
            let is_over = || stop.is_requested() || duration.is_some_and(|limit| started.elapsed() >= limit);
            match live::run(&mut *port.queues[0], control, is_over, |sent| show(progress, shown, sent)) {
                Err(error) if !self.is_over() => match self.bear(error) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
                Err(PortError::Down { .. }) => break Ok(()),
                result => break result,
            }
        };
        let done = control.progress();
        let frames = done.sent.frames;
        self.late = Lateness { max: done.late_max, sum: done.late_mean.as_nanos() * u128::from(frames), frames };
        result
    }

    fn give_up_if_stuck(&mut self) -> Result<(), PortError> {
        let since = *self.stuck.get_or_insert_with(Instant::now);
        if since.elapsed() < STUCK_LIMIT || self.transmit.stop.is_requested() {
            return Ok(());
        }
        let reason = format!("took no frame for {} s: nobody takes them at the other end", STUCK_LIMIT.as_secs());
        Err(PortError::broken(&self.transmit.port.name, reason))
    }

    fn finish(self, failure: Option<PortError>) -> TransmitReport {
        let elapsed = self.started.elapsed();
        let mut ledger = Ledger::new();
        let port = &self.transmit.port;
        if let Some(monitor) = &port.monitor {
            monitor.counters(&mut ledger);
        }
        for queue in &port.queues {
            queue.counters(&mut ledger);
        }
        if self.truncated > 0 {
            let account = ledger.account(Stage::Send, &port.name);
            account.add(Count::SendReceived, self.truncated).add(Count::SendTruncated, self.truncated);
        }
        if self.downs > 0 {
            ledger.account(Stage::Send, &port.name).add(Count::SendLinkDown, self.downs);
        }
        self.transmit.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        let bytes = port.queues.iter().map(|queue| queue.sent().bytes).sum();
        TransmitReport { frames: ledger.total(Count::Sent), bytes, ledger, elapsed, late: self.late, failure }
    }
}

/// Tells watchers what was sent. A queue may find later that a frame was not: what they know never shrinks.
fn show(progress: &Progress, shown: &mut Sent, sent: Sent) {
    let (frames, bytes) = (sent.frames.max(shown.frames), sent.bytes.max(shown.bytes));
    progress.add(frames - shown.frames, bytes - shown.bytes, bytes - shown.bytes);
    *shown = Sent { frames, bytes };
}
