//! One port -> another port, in one thread: half of a wire.
//!
//! Nothing is copied or ordered here: what a queue shows is handed to the other port as it lies, queue after queue. So
//! a frame waits for no more than the burst in front of it.

use crate::control::{Progress, Stop};
use crate::died::survive;
use crate::lanes::recycle;
use crate::lanes::{Lanes, Shown};
use crate::wait::{Awaited, Idler, Waiting};
use linerate_burst::{Burst, Count, Ledger, Nanos, Stage};
use linerate_port::{PortError, RxPort, TxPort, TxQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest wait for input, so that stop requests and time limits are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long to wait before looking again where the other port is full, or frames are on their way in it.
const FULL_NAP: Duration = Duration::from_micros(50);
/// How often the loss counters are looked up while the run lasts.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the other port may take nothing after the end; what is left then is given up, and counted.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// What to send on, from where to where.
pub struct Forward {
    /// Where frames come from.
    pub from: RxPort,
    /// Where they go; the first queue is used.
    pub to: TxPort,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested; requested by the run itself when it ends.
    pub stop: Stop,
    /// What the run, and others that share this, have done so far.
    pub progress: Arc<Progress>,
}

/// What was sent on.
#[derive(Debug)]
pub struct ForwardReport {
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Whether the one port ran dry and the other has nothing in hand, so that the ledger is exact.
    pub quiesced: bool,
    /// Frames sent.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// How long the run took.
    pub elapsed: Duration,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything.
    pub failure: Option<PortError>,
}

impl Forward {
    /// Sends on until a port has ended, the time is over, or stopping is requested.
    pub fn run(self) -> ForwardReport {
        let name = format!("{} -> {}", self.from.name, self.to.name);
        let mut session = Session {
            name,
            lanes: Lanes::new(vec![self.from]),
            to: self.to,
            idler: Idler::new(self.waiting),
            duration: self.duration,
            stop: self.stop,
            progress: self.progress,
            started: Instant::now(),
            looked: Instant::now(),
            detached: None,
            quiesced: false,
            counts: Counts::default(),
            told: Counts::default(),
            is_down: false,
            shown: Vec::new(),
            taken: Vec::new(),
            events: Vec::new(),
            failure: None,
        };
        if let Err(died) = survive(|| while session.round() {}) {
            session.failure.get_or_insert(died.at(&session.name));
        }
        session.finish()
    }
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    handed: u64,
    truncated: u64,
    down: u64,
    unsent: u64,
    sent: linerate_port::Sent,
    lost: u64,
}

struct Session {
    name: String,
    lanes: Lanes,
    to: TxPort,
    idler: Idler,
    duration: Option<Duration>,
    stop: Stop,
    progress: Arc<Progress>,
    started: Instant,
    looked: Instant,
    /// Since when nothing new is taken in and nothing has moved.
    detached: Option<Instant>,
    quiesced: bool,
    counts: Counts,
    /// What the progress knows.
    told: Counts,
    is_down: bool,
    /// What each queue shows in a round, and how many of that are done with; empty between rounds.
    shown: Vec<Shown<'static>>,
    taken: Vec<usize>,
    events: Vec<String>,
    failure: Option<PortError>,
}

impl Session {
    /// Moves what is there; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        self.detach_if_wanted();
        let now = self.lanes.look_at_clock();
        let moved = self.move_frames(now);
        let flushed = self.to.queues[0].flush(now);
        let in_hand = !self.judge(flushed).unwrap_or(true);
        self.tell();
        if moved.over && !in_hand {
            self.quiesced = true;
            return false;
        }
        if moved.frames > 0 {
            self.idler.busy(now);
            self.detached = self.detached.map(|_| Instant::now());
        } else if moved.left > 0 || in_hand {
            std::thread::sleep(FULL_NAP);
        } else if !self.lanes.are_at_work() {
            let lanes = &self.lanes;
            self.idler.idle(now, NAP_LIMIT, Awaited::Input, || lanes.wakes());
        }
        self.detached.is_none_or(|since| since.elapsed() <= 2 * STOP_LIMIT)
    }

    /// Hands on what every queue of the one port shows.
    fn move_frames(&mut self, now: Nanos) -> Moved {
        let mut shown = recycle(std::mem::take(&mut self.shown));
        self.lanes.fill(now, &mut shown);
        let give_up = self.failure.is_some() || self.detached.is_some_and(|since| since.elapsed() > STOP_LIMIT);
        let mut moved = Moved { frames: 0, left: 0, over: shown.iter().all(|lane| lane.is_over()) };
        self.taken.clear();
        for lane in &shown {
            let mut done = 0;
            while done < lane.burst.len() {
                let rest = lane.burst.slice(done..lane.burst.len());
                let result = if give_up {
                    self.counts.unsent += rest.len() as u64;
                    Ok(rest.len())
                } else {
                    hand_on(self.to.queues[0].as_mut(), rest, &mut self.counts)
                };
                match result {
                    Ok(0) => break,
                    Ok(frames) => done += frames,
                    Err(PortError::Again { .. }) => break,
                    Err(error @ PortError::Down { .. }) => {
                        // A wire that leads nowhere swallows what is put into it.
                        self.counts.down += rest.len() as u64;
                        done += rest.len();
                        if !std::mem::replace(&mut self.is_down, true) {
                            self.events.push(error.to_string());
                        }
                    }
                    Err(error) => {
                        self.failure.get_or_insert(error);
                        break;
                    }
                }
            }
            moved.frames += done;
            moved.left += lane.burst.len() - done;
            self.taken.push(done);
        }
        self.shown = recycle(shown);
        for (lane, frames) in self.taken.iter().enumerate() {
            self.lanes.consume(lane, *frames);
        }
        self.counts.received += moved.frames as u64;
        moved
    }

    /// What a call to the other port came to; `None` for an error, which is kept.
    fn judge<T>(&mut self, result: Result<T, PortError>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(PortError::Again { .. } | PortError::Down { .. }) => {}
            Err(error) => drop(self.failure.get_or_insert(error)),
        }
        None
    }

    fn detach_if_wanted(&mut self) {
        let wanted = self.stop.is_requested()
            || self.failure.is_some()
            || self.duration.is_some_and(|limit| self.started.elapsed() >= limit);
        if wanted && self.detached.is_none() {
            self.lanes.detach();
            self.detached = Some(Instant::now());
        }
    }

    /// Adds to the progress what was done since the last time.
    fn tell(&mut self) {
        let sent = self.to.queues[0].sent();
        self.is_down &= sent == self.counts.sent;
        self.counts.sent = sent;
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            let mut ledger = Ledger::new();
            self.lanes.queue_counters(&mut ledger);
            self.add_counters(&mut ledger);
            self.counts.lost = ledger.lost();
        }
        let (frames, bytes) = (sent.frames - self.told.sent.frames, sent.bytes - self.told.sent.bytes);
        self.progress.add(frames, bytes, bytes);
        self.progress.lost.fetch_add(self.counts.lost.saturating_sub(self.told.lost), Ordering::Relaxed);
        self.told = Counts { lost: self.counts.lost.max(self.told.lost), ..self.counts };
    }

    /// Counters of what is done here and of the other port's queues.
    fn add_counters(&self, ledger: &mut Ledger) {
        let counts = &self.counts;
        let account = ledger.account(Stage::Forward, &self.name);
        account.add(Count::ForwardReceived, counts.received).add(Count::Forwarded, counts.handed);
        account.add(Count::ForwardTruncated, counts.truncated).add(Count::ForwardDown, counts.down);
        account.add(Count::ForwardUnsent, counts.unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }

    fn finish(mut self) -> ForwardReport {
        self.stop.request();
        self.lanes.detach();
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(&mut ledger);
        }
        self.add_counters(&mut ledger);
        let sent = self.to.queues[0].sent();
        self.lanes.events.append(&mut self.events);
        ForwardReport {
            ledger,
            quiesced: self.quiesced,
            frames: sent.frames,
            bytes: sent.bytes,
            elapsed: self.started.elapsed(),
            events: self.lanes.events,
            failure: self.failure.or(self.lanes.failure),
        }
    }
}

/// What came of one round.
struct Moved {
    frames: usize,
    /// Frames that the other port did not take.
    left: usize,
    /// The one port brings nothing any more.
    over: bool,
}

/// Hands frames from the front of `burst` to a queue and returns how many are done with.
fn hand_on(queue: &mut dyn TxQueue, burst: Burst<'_>, counts: &mut Counts) -> Result<usize, PortError> {
    let whole = burst.descs().iter().take_while(|desc| !desc.is_truncated()).count();
    if whole == 0 {
        counts.truncated += 1;
        return Ok(1);
    }
    let handed = queue.send(burst.slice(0..whole))?;
    counts.handed += handed as u64;
    Ok(handed)
}
