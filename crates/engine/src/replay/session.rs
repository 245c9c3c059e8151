//! Schedule of the frames of a replay.
//!
//! Frames that are due are passed to their queue at once; only those already due go together. Before the next one is
//! due the thread sleeps as long as sleep is exact enough, then spins until it is time. With `at_once`, time is that of
//! the frames: it starts with the first one's, and advances to the due time of the next one.

use super::feed::{Feed, NextBatch};
use super::{Replay, ReplayReport};
use crate::clock::{self, Clock};
use crate::sender::{FULL_STEP, Limits, Sender};
use crate::thread_panic::survive;
use linerate_burst::{Burst, Count, Desc, Nanos};
use linerate_generate::{Pacing, Rate, Schedule};
use linerate_port::{PortError, Sent};
use std::sync::Arc;
use std::time::Duration;

/// Maximum batch of late frames; at max rate it is larger.
const LATE_RUN: usize = 32;
const TOP_RUN: usize = 256;

pub(super) struct Session {
    feed: Feed,
    schedule: Schedule,
    pacing: Pacing,
    loop_gap: Option<Duration>,
    /// Index of the first unsent frame of the current batch.
    at: usize,
    /// Due times of the current frames.
    dues: Vec<Nanos>,
    /// State without waiting.
    at_once: Option<VirtualTime>,
    truncated: u64,
    padded: u64,
    rewritten: Option<u64>,
    /// Number of frames still to send.
    left: u64,
    passes: u64,
    starved: u64,
    is_starved: bool,
    /// Failure to read the recording to its end.
    unread: Option<PortError>,
}

impl Session {
    /// Sends all of `feed`, unless an earlier step failed.
    pub(super) fn run_by(replay: Replay, feed: Feed, failed: Option<PortError>, clock: Box<dyn Clock>) -> ReplayReport {
        feed.fill_up(&replay.stop);
        let is_timed = replay.pacing != Pacing::Fixed(Rate::Top);
        let at_once = (replay.at_once && is_timed).then(|| VirtualTime {
            restamp: replay.pacing != Pacing::Recorded(1.0) || replay.loops != 1,
            end: replay.duration.unwrap_or(Duration::MAX),
            ..VirtualTime::default()
        });
        let duration = replay.duration.filter(|_| at_once.is_none());
        let (stop, progress) = (replay.stop, Arc::clone(&replay.progress));
        let limits = Limits { duration, stop, progress, at_once: at_once.is_some() };
        let mut session = Session {
            feed,
            schedule: Schedule::new(replay.pacing),
            pacing: replay.pacing,
            loop_gap: replay.loop_gap,
            at: 0,
            dues: Vec::with_capacity(TOP_RUN),
            at_once,
            truncated: 0,
            padded: 0,
            left: replay.packets.unwrap_or(u64::MAX),
            rewritten: (!replay.edits.rewriting.is_identity()).then_some(0),
            passes: 0,
            starved: 0,
            is_starved: false,
            unread: None,
        };
        let mut sender = Sender::with(replay.ports, limits, clock);
        let failure = failed.or_else(|| {
            let delay = |session: &mut Session, span| session.schedule.delay(span);
            let run = || sender.run(&mut session, |sender, session| session.go_on(sender), delay).err();
            survive(run).unwrap_or_else(|died| Some(PortError::broken("replay", died.to_string())))
        });
        session.report(sender, failure)
    }

    /// Runs one step; returns false at the end of the recording.
    fn go_on(&mut self, sender: &mut Sender) -> Result<bool, PortError> {
        let batch = match self.feed.turn() {
            Ok(NextBatch::Batch(batch)) => batch,
            Ok(NextBatch::Nothing) => {
                // Waits for the reader of the recording.
                self.starved += u64::from(!self.is_starved && self.at_once.is_none());
                self.is_starved = true;
                return sender
                    .sleep_briefly(self.at_once.as_ref().map_or_else(clock::now, |time| time.now))
                    .map(|()| true);
            }
            Ok(NextBatch::Ended) => return Ok(false),
            Err(unread) => {
                // What was read before is sent in full.
                self.unread = Some(unread);
                return Ok(false);
            }
        };
        self.is_starved = false;
        if self.at == batch.block.len() {
            self.truncated += batch.tally.truncated;
            self.padded += batch.tally.padded;
            self.rewritten = self.rewritten.map(|frames| frames + batch.tally.rewritten);
            let ends_pass = batch.ends_pass;
            self.feed.next();
            self.at = 0;
            if ends_pass {
                self.end_pass();
            }
            return Ok(true);
        }
        let is_top = self.pacing == Pacing::Fixed(Rate::Top);
        let descs = &batch.block.descs()[self.at..];
        let (now, due) = match &mut self.at_once {
            Some(time) => time.advance_to(&descs[0], &mut self.schedule),
            None => {
                let (now, step) = sender.read_clock();
                self.schedule.follow(step);
                let due = self.schedule.due_at(&descs[0], now);
                (now, if is_top { due } else { catch_up(&mut self.schedule, sender, due, now) })
            }
        };
        if self.left == 0 || self.at_once.as_ref().is_some_and(VirtualTime::is_over) {
            return Ok(false);
        }
        if due > now {
            return sender.wait(due, now).map(|()| true);
        }
        let queue = batch.queue(self.at);
        let mut ahead = self.schedule.clone();
        let most = (if is_top { TOP_RUN } else { LATE_RUN }).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.dues.clear();
        for (index, desc) in descs.iter().enumerate().take(most) {
            let due = if is_top { due } else { ahead.due_at(desc, now) };
            if due > now || batch.queue(self.at + index) != queue {
                break;
            }
            self.dues.push(due);
            ahead.advance(&descs[index..=index]);
        }
        let burst = batch.block.burst().slice(self.at..self.at + self.dues.len());
        let done = match &mut self.at_once {
            Some(time) => time.send(sender, queue, burst, due)?,
            None => sender.send(queue, burst, now)?,
        };
        self.schedule.advance(&descs[..done]);
        self.at += done;
        self.left -= done as u64;
        if !is_top && self.at_once.is_none() {
            self.dues[..done].iter().for_each(|due| sender.timing().add(now.0 - due.0));
        }
        Ok(true)
    }

    fn end_pass(&mut self) {
        self.passes += 1;
        match self.loop_gap {
            Some(gap) => self.schedule.restart_after(gap),
            None => self.schedule.restart(),
        }
    }

    fn report(self, sender: Sender, failure: Option<PortError>) -> ReplayReport {
        let account = sender.finish(self.truncated);
        let bytes = account.ports.iter().map(|(_, sent)| sent.bytes).sum();
        ReplayReport {
            sent: Sent { frames: account.ledger.total(Count::Sent), bytes },
            ledger: account.ledger,
            ports: account.ports,
            elapsed: self.at_once.as_ref().map_or(account.elapsed, |time| time.done),
            at_once: self.at_once.is_some(),
            timing: account.timing,
            passes: self.passes,
            padded: self.padded,
            rewritten: self.rewritten,
            starved: self.starved,
            failure: failure.or(self.unread),
        }
    }
}

/// Shifts the rest of a schedule if the sender was delayed for too long to catch up with all of it; returns the new due
/// time of the frame that was due at `due`.
fn catch_up(schedule: &mut Schedule, sender: &mut Sender, due: Nanos, now: Nanos) -> Nanos {
    let shift = sender.timing().shift(due, now).unwrap_or_default();
    if !shift.is_zero() {
        schedule.delay(shift);
    }
    due.after(shift)
}

/// Time of a replay that does not wait.
#[derive(Default)]
struct VirtualTime {
    /// True if frames get new times; those sent once and as recorded keep theirs.
    restamp: bool,
    /// Time of the first frame.
    first: Option<Nanos>,
    now: Nanos,
    /// End of the schedule, after the first frame.
    end: Duration,
    /// Due time of the current frames, after the first frame.
    done: Duration,
    restamped: Vec<Desc>,
}

impl VirtualTime {
    /// Advances to the due time of the next frame; returns the time now, and that due time.
    fn advance_to(&mut self, desc: &Desc, schedule: &mut Schedule) -> (Nanos, Nanos) {
        let first = *self.first.get_or_insert(desc.time);
        self.now = self.now.max(first);
        let due = schedule.due_at(desc, self.now);
        self.done = due.since(first).min(self.end);
        self.now = self.now.max(due);
        (self.now, due)
    }

    fn is_over(&self) -> bool {
        self.done >= self.end
    }

    /// Sends frames, the first of which is due at `due`; one at a time if frames get new times.
    fn send(&mut self, sender: &mut Sender, queue: usize, burst: Burst<'_>, due: Nanos) -> Result<usize, PortError> {
        let done = if self.restamp {
            let one = burst.slice(0..1);
            let offset = due.0.wrapping_sub(one.descs()[0].time.0) as i64;
            sender.send(queue, one.shifted(offset, &mut self.restamped), self.now)?
        } else {
            sender.send(queue, burst, self.now)?
        };
        if done == 0 {
            self.now = self.now.after(FULL_STEP);
        }
        Ok(done)
    }
}
