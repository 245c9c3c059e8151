//! What one thread sends.

use super::control::Listener;
use super::watch::Showing;
use crate::sender::{FULL_STEP, Sender};
use linerate_burst::Nanos;
use linerate_generate::Traffic;
use linerate_port::PortError;
use std::time::Duration;

/// What one thread sends.
pub(super) struct Work {
    pub traffic: Traffic,
    pub start: Nanos,
    /// For how long interfaces were down.
    pub put_off: u64,
    /// By how much somebody has set the clock since the start.
    pub set: i64,
    /// Frames that are due so long after the start are not sent any more, in nanoseconds.
    pub end: u64,
    /// Where nobody waits, the time that frames are at.
    pub then: Option<Nanos>,
    /// How much of the schedule is done, in nanoseconds.
    pub done: u64,
    pub showing: Showing,
    /// Where streams are told something while they run.
    pub listener: Option<Listener>,
}

impl Work {
    /// Sends what is due; false behind the last frame.
    pub fn step(&mut self, sender: &mut Sender) -> Result<bool, PortError> {
        let Some(mut due) = self.next_due() else { return Ok(false) };
        let now = self.now(due, sender)?;
        let (put_off, set) = (Duration::from_nanos(self.put_off), self.set);
        let start = self.start.after(put_off).shifted(set);
        let elapsed = now.0.saturating_sub(start.0).min(self.end.saturating_sub(1));
        if let Some(listener) = &mut self.listener
            && listener.hear(elapsed, &mut self.traffic)
        {
            due = self.next_due().unwrap_or(self.end);
        }
        let due_at = start.after(Duration::from_nanos(due.min(self.end)));
        if due_at > now {
            self.show(now);
            sender.wait(due_at, now)?;
            return Ok(true);
        }
        let is_paced = self.traffic.is_paced();
        self.done = due.min(self.end);
        if due >= self.end || self.listener.is_some() && !is_paced && now.0 - start.0 >= self.end {
            return Ok(false);
        }
        let offered = self.traffic.offer(elapsed, now);
        let burst = offered.map_err(|bug| PortError::broken("generate", format!("a frame cannot be made: {bug}")))?;
        if burst.is_empty() {
            self.obeyed();
            return Ok(true);
        }
        let done = sender.send(0, burst, now)?;
        if let Some(then) = self.then.as_mut().filter(|_| done == 0) {
            *then = then.after(FULL_STEP);
        }
        if is_paced && self.then.is_none() {
            let due = burst.descs()[..done].iter().map(|desc| desc.time.after(put_off).shifted(set));
            due.for_each(|due| sender.timing().add(now.0.saturating_sub(due.0)));
        }
        self.obeyed();
        self.traffic.consume(done);
        self.show(now);
        Ok(true)
    }

    /// When there is something to do; nothing where the run is over.
    fn next_due(&self) -> Option<u64> {
        let waits =
            || self.then.is_none() && self.listener.as_ref().is_some_and(|listener| listener.waits(&self.traffic));
        self.traffic.next_due().or_else(|| waits().then_some(u64::MAX))
    }

    /// Whoever told streams something learns that it was done.
    fn obeyed(&mut self) {
        if let Some(listener) = self.listener.as_mut().filter(|listener| listener.has_obeyed(&self.traffic)) {
            // What they had sent by then is known as soon as that is.
            self.showing.show_surely(self.traffic.sent_per_stream());
            listener.tell(&mut self.traffic);
        }
    }

    fn show(&mut self, now: Nanos) {
        if self.showing.is_asked(now) {
            self.showing.show(self.traffic.sent_per_stream(), now);
        }
    }

    /// What time it is, to send what is due so long after the start.
    fn now(&mut self, due: u64, sender: &mut Sender) -> Result<Nanos, PortError> {
        let Some(then) = &mut self.then else {
            let (now, step) = sender.look_at_clock();
            self.set = self.set.saturating_add(step);
            return Ok(now);
        };
        let due = due.min(self.end);
        let at = self.start.0.checked_add(due).ok_or_else(|| {
            let years = due / (365 * 24 * 3600 * 1_000_000_000);
            PortError::broken("generate", format!("a frame is due in {years} years, later than any time of a frame"))
        })?;
        *then = (*then).max(Nanos(at));
        Ok(*then)
    }
}
