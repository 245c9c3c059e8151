//! State of one sending thread.

use super::control::SenderControl;
use super::stream_changes::StreamArrivals;
use super::watch::WatchWriter;
use crate::clock;
use crate::sender::{FULL_STEP, Sender};
use linerate_burst::{Desc, Nanos};
use linerate_generate::{StreamEvent, Traffic};
use linerate_port::PortError;
use std::collections::HashSet;
use std::time::Duration;

/// State of one sending thread.
pub(super) struct SendWork {
    pub traffic: Traffic,
    pub start: Nanos,
    /// Total shift of the schedule by interface outages and delays.
    pub delay: u64,
    /// Total of clock steps since the start.
    pub set: i64,
    /// End of the schedule after the start, in nanoseconds.
    pub end: u64,
    /// Time of the frames, with `at_once`.
    pub then: Option<Nanos>,
    /// Part of the schedule that is done, in nanoseconds.
    pub done: u64,
    pub showing: WatchWriter,
    /// Source of commands, if streams are controlled.
    pub listener: Option<SenderControl>,
    /// Streams whose last frame was made but not yet taken.
    pub ended: Vec<u32>,
    /// State of streams that are added and removed.
    pub coming: Option<StreamArrivals>,
}

/// Longest wait of a sender without frames before it checks for commands.
const IDLE: Duration = Duration::from_millis(20);
/// Time after which a queue that takes nothing is considered stuck.
const STUCK: Duration = Duration::from_millis(100);

impl SendWork {
    /// Sends what is due; returns false after the last frame.
    pub(super) fn step(&mut self, sender: &mut Sender) -> Result<bool, PortError> {
        let Some(mut due) = self.next_due() else { return Ok(false) };
        let now = self.now(due, sender)?;
        self.catch_up(sender, due, now);
        let (delay, set) = (Duration::from_nanos(self.delay), self.set);
        let start = self.start.after(delay).shifted(set);
        let elapsed = now.0.saturating_sub(start.0).min(self.end.saturating_sub(1));
        if let Some(listener) = &mut self.listener
            && listener.receive(elapsed, |command| self.traffic.command(command))
        {
            due = self.next_due().unwrap_or(self.end);
        }
        self.remove_finished(sender, now)?;
        let due_at = start.after(Duration::from_nanos(due.min(self.end)));
        if due_at > now {
            self.show(now);
            self.wait(sender, due, due_at, now)?;
            return Ok(true);
        }
        let is_paced = self.traffic.is_paced();
        self.done = due.min(self.end);
        if due >= self.end || self.listener.is_some() && !is_paced && now.0 - start.0 >= self.end {
            return Ok(false);
        }
        let offered = self.traffic.offer(elapsed, now);
        let burst = offered.map_err(|bug| PortError::broken("generate", format!("cannot build a frame: {bug}")))?;
        if burst.is_empty() {
            self.applied();
            return Ok(true);
        }
        let done = sender.send(0, burst, now)?;
        if done == 0 && self.listener.is_some() && sender.stuck_for() >= STUCK {
            self.stand(Duration::ZERO);
            return Ok(true);
        }
        if let Some(then) = self.then.as_mut().filter(|_| done == 0) {
            *then = then.after(FULL_STEP);
        }
        let late = |desc: &Desc| now.0.saturating_sub(desc.time.after(delay).shifted(set).0);
        if is_paced && self.then.is_none() {
            burst.descs()[..done].iter().for_each(|desc| sender.timing().add(late(desc)));
        }
        self.applied();
        if let Some(coming) = &self.coming {
            self.traffic.by_stream(done).for_each(|(place, frames)| coming.sent(place, frames, late));
        }
        self.traffic.consume(done);
        if !self.ended.is_empty() {
            self.end();
        }
        self.show(now);
        Ok(true)
    }

    /// Shifts the rest of the schedule if the sender was delayed for too long to catch up with all of it.
    fn catch_up(&mut self, sender: &mut Sender, due: u64, now: Nanos) {
        if self.then.is_some() || !self.traffic.is_paced() || due >= self.end {
            return;
        }
        let due = self.start.after(Duration::from_nanos(self.delay.saturating_add(due))).shifted(self.set);
        if let Some(shift) = sender.timing().shift(due, now) {
            self.delay += shift.as_nanos() as u64;
        }
    }

    /// Suspends the schedule while the port takes nothing, but applies commands.
    pub(super) fn stand(&mut self, span: Duration) {
        self.delay += span.as_nanos() as u64;
        if let Some(listener) = &mut self.listener {
            listener.stand(&mut self.traffic, clock::now());
            self.applied();
            self.end();
            if let Some(coming) = &mut self.coming {
                // Queued frames cannot leave: waiting controllers are released.
                coming.remove_finished();
                self.report_applied();
            }
        }
    }

    /// Waits until a frame is due or a command arrives.
    fn wait(&mut self, sender: &mut Sender, due: u64, due_at: Nanos, now: Nanos) -> Result<(), PortError> {
        match (&self.listener, &self.coming) {
            (Some(listener), Some(coming)) if due == u64::MAX && !coming.is_any_leaving() => {
                sender.flush(now)?;
                listener.rest(IDLE);
                Ok(())
            }
            _ => sender.wait(due_at, now),
        }
    }

    /// Returns the time of the next frame or command; `None` if the run is over.
    fn next_due(&self) -> Option<u64> {
        let waits =
            || self.then.is_none() && self.listener.as_ref().is_some_and(|listener| listener.waits(&self.traffic));
        self.traffic.next_due().or_else(|| waits().then_some(u64::MAX))
    }

    /// Reports starts and ends of streams before the frames that are made, as commanded.
    fn applied(&mut self) {
        let Some(listener) = self.listener.as_mut() else { return };
        if self.traffic.has_events() {
            let news = self.traffic.news();
            for news in &news {
                match *news {
                    StreamEvent::Ended { stream } => self.ended.push(stream),
                    StreamEvent::Begun { stream, .. } => {
                        self.ended.retain(|ended| *ended != stream);
                        self.coming.iter_mut().for_each(|coming| coming.begin(stream));
                    }
                }
            }
            let begun = news.into_iter().filter(|news| matches!(news, StreamEvent::Begun { .. }));
            listener.report(begun, self.traffic.sent_per_stream());
            self.end();
        }
        if self.coming.is_none() {
            self.report_applied();
        }
    }

    /// Reports the end of streams of which no made frame is left.
    fn end(&mut self) {
        let Some(listener) = self.listener.as_mut() else { return };
        let pending_streams: HashSet<u32> = self.traffic.pending_streams().collect();
        let (left, ended): (Vec<u32>, Vec<u32>) =
            self.ended.drain(..).partition(|stream| pending_streams.contains(stream));
        self.ended = left;
        match &mut self.coming {
            _ if ended.is_empty() => {}
            Some(coming) => coming.end(ended.into_iter()),
            None => {
                let ended = ended.into_iter().map(|stream| StreamEvent::Ended { stream });
                listener.report(ended, self.traffic.sent_per_stream());
            }
        }
    }

    /// Removes streams whose last frame has left, and reports that to their controllers.
    fn remove_finished(&mut self, sender: &mut Sender, now: Nanos) -> Result<(), PortError> {
        let Some(coming) = &mut self.coming else { return Ok(()) };
        if coming.is_any_leaving() {
            if !sender.flush(now)? && !coming.is_late() {
                return Ok(());
            }
            coming.remove_finished();
        }
        self.report_applied();
        Ok(())
    }

    /// Reports applied commands to their controllers.
    fn report_applied(&mut self) {
        let (commands, until) = (self.traffic.applied(), self.traffic.applied_until());
        if let Some(listener) = self.listener.as_mut().filter(|listener| listener.has_applied(commands)) {
            // Totals are published before the command is reported as applied.
            self.showing.publish_blocking(self.traffic.sent_per_stream());
            listener.publish(commands, until);
        }
    }

    fn show(&mut self, now: Nanos) {
        if self.showing.is_asked(now) {
            self.showing.show(self.traffic.sent_per_stream(), now);
        }
    }

    /// Returns the time now for frames due at `due` after the start.
    fn now(&mut self, due: u64, sender: &mut Sender) -> Result<Nanos, PortError> {
        let Some(then) = &mut self.then else {
            let (now, step) = sender.read_clock();
            self.set = self.set.saturating_add(step);
            return Ok(now);
        };
        let due = due.min(self.end);
        let at = self.start.0.checked_add(due).ok_or_else(|| {
            let years = due / (365 * 24 * 3600 * 1_000_000_000);
            PortError::broken("generate", format!("a frame is due in {years} years, beyond the range of time stamps"))
        })?;
        *then = (*then).max(Nanos(at));
        Ok(*then)
    }
}
