//! When each frame leaves.
//!
//! Frames that are due go to their queue at once; only those that are due already go together. Before the next one is
//! due the thread sleeps as long as sleeping is exact enough, then looks at the clock until it is time.

use super::feed::{Feed, Turn};
use super::{Replay, ReplayReport};
use crate::clock;
use crate::died::survive;
use crate::sender::{Limits, Sender};
use linerate_burst::{Count, Nanos};
use linerate_generate::{Pacing, Rate, Schedule};
use linerate_port::{PortError, Sent};
use std::sync::Arc;
use std::time::Duration;

/// Frames that are late are handed on so many at a time; at top speed more.
const LATE_RUN: usize = 32;
const TOP_RUN: usize = 256;

/// One run.
pub(super) struct Session {
    feed: Feed,
    schedule: Schedule,
    pacing: Pacing,
    loop_gap: Option<Duration>,
    /// The first frame of the batch at hand that was not sent yet.
    at: usize,
    /// When the frames at hand are due.
    dues: Vec<Nanos>,
    truncated: u64,
    padded: u64,
    passes: u64,
    starved: u64,
    is_starved: bool,
}

impl Session {
    /// Sends all of `feed`, unless something failed before.
    pub fn run(replay: Replay, feed: Feed, failed: Option<PortError>) -> ReplayReport {
        feed.fill_up(&replay.stop);
        let mut session = Session {
            feed,
            schedule: Schedule::new(replay.pacing),
            pacing: replay.pacing,
            loop_gap: replay.loop_gap,
            at: 0,
            dues: Vec::with_capacity(TOP_RUN),
            truncated: 0,
            padded: 0,
            passes: 0,
            starved: 0,
            is_starved: false,
        };
        let limits = Limits { duration: replay.duration, stop: replay.stop, progress: Arc::clone(&replay.progress) };
        let mut sender = Sender::new(replay.ports, limits);
        let failure = failed.or_else(|| {
            let put_off = |session: &mut Session, span| session.schedule.put_off(span);
            let run = || sender.run(&mut session, |sender, session| session.go_on(sender), put_off).err();
            survive(run).unwrap_or_else(|died| Some(died.at("replay")))
        });
        session.report(sender, failure)
    }

    /// One step; false at the end of the recording.
    fn go_on(&mut self, sender: &mut Sender) -> Result<bool, PortError> {
        let batch = match self.feed.turn()? {
            Turn::Batch(batch) => batch,
            Turn::Nothing => {
                // Whoever reads the recording is waited for.
                self.starved += u64::from(!self.is_starved);
                self.is_starved = true;
                return sender.nap(clock::now()).map(|()| true);
            }
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
        let (now, step) = sender.look_at_clock();
        self.schedule.follow(step);
        let due = self.schedule.due_at(&descs[0], now);
        if due > now {
            return sender.wait(due, now).map(|()| true);
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
        let done = sender.send(outlet, burst, now)?;
        self.schedule.advance(&descs[..done]);
        self.at += done;
        if !is_top {
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
            elapsed: account.elapsed,
            timing: account.timing,
            passes: self.passes,
            padded: self.padded,
            starved: self.starved,
            failure,
        }
    }
}
