//! Source -> schedule -> port, in one thread.

use crate::clock;
use crate::control::{Progress, Stop};
use crate::source::{Offer, Source};
use linerate_burst::{Count, Ledger, Nanos, Stage};
use linerate_generate::{Pacing, Rate, Schedule};
use linerate_port::{PortError, Sent, TxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sleeping is trusted to wake up within this; the rest of a gap is spun away.
const SLEEP_ERROR: Duration = Duration::from_micros(120);
/// How long a full queue is waited for before looking again.
const FULL_NAP: Duration = Duration::from_micros(50);
/// The longest sleep, so that stop requests are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long what was taken may take to leave once stopping is requested.
const STOP_LIMIT: Duration = Duration::from_secs(1);
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
            told: Sent::default(),
            late: Lateness::default(),
            transmit: self,
        };
        let failure = session.send_all().err();
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
    /// What the progress knows.
    told: Sent,
    late: Lateness,
}

/// What came of one look at the source.
enum Step {
    Sent,
    /// Nothing is due for so long.
    Wait(Duration),
    /// The source or the queue is not ready.
    Nap,
    Ended,
}

impl Session {
    fn send_all(&mut self) -> Result<(), PortError> {
        while !self.is_over() {
            match self.step(clock::now())? {
                Step::Sent => self.stuck = None,
                Step::Wait(span) => self.wait(span)?,
                Step::Nap => std::thread::sleep(FULL_NAP),
                Step::Ended => break,
            }
        }
        self.stuck = None;
        while !self.transmit.port.queues[0].flush(clock::now())? {
            self.give_up_if_stuck()?;
            if self.transmit.stop.is_requested() && self.stuck.is_some_and(|since| since.elapsed() > STOP_LIMIT) {
                break;
            }
            std::thread::sleep(FULL_NAP);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.transmit.stop.is_requested() || self.transmit.duration.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    /// Sends what is due at `now`.
    fn step(&mut self, now: Nanos) -> Result<Step, PortError> {
        let Session { transmit: Transmit { source, port, progress, .. }, schedule, .. } = self;
        let burst = match source.offer(now)? {
            Offer::Frames(burst) => burst,
            Offer::Restart => {
                schedule.restart();
                return Ok(Step::Sent);
            }
            Offer::Nothing => return Ok(Step::Nap),
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
        queue.flush(now)?;
        // Some queues send when they are flushed, and some a while later.
        let sent = queue.sent();
        let (frames, bytes) = (sent.frames - self.told.frames, sent.bytes - self.told.bytes);
        progress.add(frames, bytes, bytes);
        self.told = sent;
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
        self.transmit.port.queues[0].flush(clock::now()).map(|_| ())
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
        self.transmit.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        let bytes = port.queues.iter().map(|queue| queue.sent().bytes).sum();
        TransmitReport { frames: ledger.total(Count::Sent), bytes, ledger, elapsed, late: self.late, failure }
    }
}
