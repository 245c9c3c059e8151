//! When each frame leaves.
//!
//! Frames that are due go to their queue at once; only those that are due already go together. Before the next one is
//! due the thread sleeps as long as sleeping is exact enough, then looks at the clock until it is time.

use super::feed::{Feed, Turn};
use super::{Replay, ReplayReport};
use crate::clock;
use crate::control::{Progress, Stop};
use crate::outlets::Outlets;
use linerate_burst::{Count, Ledger, Nanos, Stage};
use linerate_generate::{Delays, Pacing, Rate, Schedule};
use linerate_port::{PortError, Sent};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Sleeping is trusted to wake up within this; the rest of a gap is spun away.
const SLEEP_ERROR: Duration = Duration::from_micros(150);
/// With so much time left, other work does not make a frame late.
const SPARE_TIME: Duration = Duration::from_micros(60);
/// The longest sleep, so that stop requests are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);
/// How long a full queue, or a slow reader, is waited for before looking again.
const SHORT_NAP: Duration = Duration::from_micros(50);
/// How long to wait before asking again whether an interface is up.
const DOWN_NAP: Duration = Duration::from_millis(10);
/// Whatever is due, what was taken gets on its way so often.
const FLUSH_EVERY: Duration = Duration::from_millis(1);
/// A queue that takes nothing for so long is given up.
const STUCK_LIMIT: Duration = Duration::from_secs(10);
/// How long what was taken may take to leave once stopping is requested.
const STOP_LIMIT: Duration = Duration::from_secs(1);
/// Frames that are late are handed on so many at a time; at top speed more.
const LATE_RUN: usize = 32;
const TOP_RUN: usize = 256;

/// How far from the schedule frames were handed to their queues, by the clock of the sender.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// How much later than due; nothing leaves before it is due.
    pub behind: Delays,
    /// By how much the gap to the frame before was longer or shorter than in the schedule.
    pub gap_error: Delays,
    last: Option<u64>,
}

impl Timing {
    fn add(&mut self, late: u64) {
        self.behind.add(late);
        if let Some(last) = self.last.replace(late) {
            self.gap_error.add(late.abs_diff(last));
        }
    }
}

/// One run.
pub(super) struct Session {
    feed: Feed,
    outlets: Outlets,
    schedule: Schedule,
    pacing: Pacing,
    loop_gap: Option<Duration>,
    duration: Option<Duration>,
    stop: Stop,
    progress: Arc<Progress>,
    /// The first frame of the batch at hand that was not sent yet.
    at: usize,
    /// When the frames at hand are due.
    dues: Vec<Nanos>,
    started: Instant,
    /// Since when a queue has taken nothing.
    stuck: Option<Instant>,
    flushed: Nanos,
    shown: Sent,
    timing: Timing,
    truncated: u64,
    padded: u64,
    passes: u64,
    starved: u64,
    is_starved: bool,
    /// The interface is down, and how often it went down.
    down: bool,
    downs: u64,
}

impl Session {
    pub fn new(replay: &Replay, feed: Feed, outlets: Outlets) -> Self {
        Session {
            feed,
            outlets,
            schedule: Schedule::new(replay.pacing),
            pacing: replay.pacing,
            loop_gap: replay.loop_gap,
            duration: replay.duration,
            stop: replay.stop.clone(),
            progress: Arc::clone(&replay.progress),
            at: 0,
            dues: Vec::with_capacity(TOP_RUN),
            started: Instant::now(),
            stuck: None,
            flushed: Nanos::ZERO,
            shown: Sent::default(),
            timing: Timing::default(),
            truncated: 0,
            padded: 0,
            passes: 0,
            starved: 0,
            is_starved: false,
            down: false,
            downs: 0,
        }
    }

    /// Sends all, unless something failed before.
    pub fn run(mut self, failed: Option<PortError>) -> ReplayReport {
        // Sleeping is 50 us less exact without this (prctl(2), PR_SET_TIMERSLACK).
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let failure = failed.or_else(|| self.send_all().err());
        let _ = rustix::thread::set_current_timer_slack(None);
        self.finish(failure)
    }

    fn send_all(&mut self) -> Result<(), PortError> {
        self.feed.fill_up(&self.stop);
        self.started = Instant::now();
        while !self.is_over() {
            match self.go_on() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => self.bear(error)?,
            }
        }
        self.stuck = None;
        while !self.flush(clock::now())? {
            self.give_up_if_stuck(0)?;
            if self.stop.is_requested() && self.stuck.is_some_and(|since| since.elapsed() > STOP_LIMIT) {
                break;
            }
            std::thread::sleep(SHORT_NAP);
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stop.is_requested() || self.duration.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    /// One step; false at the end of the recording.
    fn go_on(&mut self) -> Result<bool, PortError> {
        let batch = match self.feed.turn()? {
            Turn::Batch(batch) => batch,
            Turn::Nothing => return self.starve().map(|()| true),
            Turn::Ended => return Ok(false),
        };
        self.is_starved = false;
        if self.at == batch.block.len() {
            self.truncated += batch.tally.truncated;
            self.padded += batch.tally.padded;
            let ends_pass = batch.ends_pass;
            self.feed.next();
            self.at = 0;
            if ends_pass {
                self.end_pass();
            }
            return Ok(true);
        }
        let descs = &batch.block.descs()[self.at..];
        let now = clock::now();
        let due = self.schedule.due_at(&descs[0], now);
        if due > now {
            return self.wait(due, now).map(|()| true);
        }
        let outlet = batch.outlet(self.at);
        let is_top = self.pacing == Pacing::Fixed(Rate::Top);
        let mut ahead = self.schedule.clone();
        self.dues.clear();
        for (index, desc) in descs.iter().enumerate().take(if is_top { TOP_RUN } else { LATE_RUN }) {
            let due = if is_top { due } else { ahead.due_at(desc, now) };
            if due > now || batch.outlet(self.at + index) != outlet {
                break;
            }
            self.dues.push(due);
            ahead.advance(&descs[index..=index]);
        }
        let burst = batch.block.burst().slice(self.at..self.at + self.dues.len());
        let done = self.outlets.send(outlet, burst)?;
        self.schedule.advance(&descs[..done]);
        self.at += done;
        if !is_top {
            self.dues[..done].iter().for_each(|due| self.timing.add(now.0 - due.0));
        }
        self.after_sending(done, outlet, now).map(|()| true)
    }

    fn after_sending(&mut self, done: usize, outlet: usize, now: Nanos) -> Result<(), PortError> {
        if done == 0 {
            self.give_up_if_stuck(outlet)?;
            self.flush(now)?;
            std::thread::sleep(SHORT_NAP);
            return Ok(());
        }
        (self.stuck, self.down) = (None, false);
        if now.since(self.flushed) >= FLUSH_EVERY {
            self.flush(now)?;
        }
        Ok(())
    }

    fn end_pass(&mut self) {
        self.passes += 1;
        match self.loop_gap {
            Some(gap) => self.schedule.restart_after(gap),
            None => self.schedule.restart(),
        }
    }

    /// Waits for whoever reads the recording.
    fn starve(&mut self) -> Result<(), PortError> {
        self.starved += u64::from(!self.is_starved);
        self.is_starved = true;
        self.flush(clock::now())?;
        std::thread::sleep(SHORT_NAP);
        Ok(())
    }

    /// Waits until a frame is due, or for so long that it is time to look whether the run is over.
    fn wait(&mut self, due: Nanos, now: Nanos) -> Result<(), PortError> {
        if due.since(now) > SPARE_TIME {
            // An idle sender still says how far it is complete.
            self.flush(now)?;
        }
        let left = due.since(clock::now());
        if left > SLEEP_ERROR {
            std::thread::sleep((left - SLEEP_ERROR).min(NAP_LIMIT));
            return Ok(());
        }
        while clock::now() < due {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Gets what was taken on its way; false while some of it still is not.
    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        let flushed = self.outlets.flush(now);
        self.flushed = now;
        // A queue may find later that a frame was not sent: what watchers know never shrinks.
        let sent = self.outlets.sent();
        let (frames, bytes) = (sent.frames.max(self.shown.frames), sent.bytes.max(self.shown.bytes));
        let new = bytes - self.shown.bytes;
        self.progress.add(frames - self.shown.frames, new, new);
        self.shown = Sent { frames, bytes };
        flushed
    }

    /// Waits where a port that has sent is down: it may come back. What was due meanwhile is due from then on.
    fn bear(&mut self, error: PortError) -> Result<(), PortError> {
        if !matches!(error, PortError::Down { .. }) || self.outlets.sent().frames == 0 {
            return Err(error);
        }
        self.downs += u64::from(!self.down);
        self.down = true;
        let before = clock::now();
        std::thread::sleep(DOWN_NAP);
        self.schedule.put_off(clock::now().since(before));
        Ok(())
    }

    fn give_up_if_stuck(&mut self, outlet: usize) -> Result<(), PortError> {
        let since = *self.stuck.get_or_insert_with(Instant::now);
        if since.elapsed() < STUCK_LIMIT || self.stop.is_requested() {
            return Ok(());
        }
        let reason = format!("took no frame for {} s: nobody takes them at the other end", STUCK_LIMIT.as_secs());
        Err(PortError::broken(self.outlets.name(outlet), reason))
    }

    fn finish(self, failure: Option<PortError>) -> ReplayReport {
        let elapsed = self.started.elapsed();
        let mut ledger = Ledger::new();
        self.outlets.counters(&mut ledger);
        if self.truncated > 0 {
            let account = ledger.account(Stage::Send, self.outlets.name(0));
            account.add(Count::SendReceived, self.truncated).add(Count::SendTruncated, self.truncated);
        }
        if self.downs > 0 {
            ledger.account(Stage::Send, self.outlets.name(0)).add(Count::SendLinkDown, self.downs);
        }
        self.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        let sent = Sent { frames: ledger.total(Count::Sent), ..self.outlets.sent() };
        let ports = self.outlets.by_port().map(|(name, sent)| (name.to_owned(), sent)).collect();
        ReplayReport {
            ledger,
            sent,
            ports,
            elapsed,
            timing: self.timing,
            passes: self.passes,
            padded: self.padded,
            starved: self.starved,
            failure,
        }
    }
}
