//! Thread that sends batches from the spool to the destination, the oldest first, with several in flight.
//!
//! After a failure nothing new is sent until the outcome of all batches in flight is known; then those not accepted are
//! sent again, the oldest first.

use super::journal::Outcome;
use super::link::RunDeadline;
use super::spool::Spool;
use super::state::{SpooledBatch, stem_of};
use super::{Destination, Refusal, halves};
use linerate_burst::thread_panic::survive;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Retry delays: first, and maximum.
const FIRST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });
const LAST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 8 } else { 5000 });
/// Outages up to this length are not reported.
const AWAY: Duration = Duration::from_secs(2);

pub(super) struct Sender {
    work: Option<Work>,
    spool: Arc<Spool>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<Error>>>,
    /// True when no more batches follow.
    closed: Arc<AtomicBool>,
}

/// State of the thread.
struct Work {
    name: String,
    spool: Arc<Spool>,
    destination: Box<dyn Destination>,
    over: RunDeadline,
    notify: fn(String),
    failure: Arc<Mutex<Option<Error>>>,
    closed: Arc<AtomicBool>,
    /// Batches in flight.
    under_way: VecDeque<SpooledBatch>,
    /// Outage of the destination.
    away: Option<OutageState>,
    wait: Duration,
    has_delivered: bool,
    /// True after the report of a batch split for its number of days.
    has_mixed: bool,
}

/// Start of an outage, whether it was reported, and its cause.
struct OutageState {
    since: Instant,
    is_reported: bool,
    why: String,
}

impl Sender {
    pub(super) fn new(
        name: &str,
        spool: Arc<Spool>,
        destination: Box<dyn Destination>,
        over: RunDeadline,
        notify: fn(String),
    ) -> Self {
        let (failure, closed) = (Arc::default(), Arc::<AtomicBool>::default());
        let work = Work {
            name: name.to_owned(),
            spool: Arc::clone(&spool),
            destination,
            over,
            notify,
            failure: Arc::clone(&failure),
            closed: Arc::clone(&closed),
            under_way: VecDeque::new(),
            away: None,
            wait: FIRST_WAIT,
            has_delivered: false,
            has_mixed: false,
        };
        Sender { work: Some(work), spool, thread: None, failure, closed }
    }

    /// Starts the thread, once. Privileges must be dropped before: the thread would keep them.
    pub(super) fn start(&mut self) -> Result<()> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let deliver = move || {
            let done = survive(|| {
                work.run();
                work.report_outage();
            });
            if let Err(died) = done {
                work.fail(Error::other(died));
            }
        };
        self.thread = Some(Builder::new().name("linerate-ship".into()).spawn(deliver)?);
        Ok(())
    }

    /// Returns the error that stopped the delivery.
    pub(super) fn failure(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(Ok(()), |error| Err(Error::new(error.kind(), error.to_string())))
    }

    /// Waits for the thread, which ends with the run.
    pub(super) fn end(&mut self) -> Result<()> {
        self.work = None;
        self.closed.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.spool.wake();
            // The thread catches and reports its panics.
            let _ = thread.join();
        }
        self.failure()
    }
}

impl Work {
    /// Delivers until the run is over, or until the spool is closed and empty.
    fn run(&mut self) {
        const LOOK: Duration = Duration::from_millis(100);
        loop {
            // In this order, to find batches added before the close.
            let (is_closed, left) = (self.closed.load(Ordering::Acquire), self.over.left());
            if left.is_some_and(|left| left.is_zero()) && self.under_way.is_empty() {
                return;
            }
            let has_room = self.under_way.len() < self.destination.window() && !self.over.has_passed();
            let patience = if self.under_way.is_empty() { left.unwrap_or(LOOK).min(LOOK) } else { Duration::ZERO };
            let next = if has_room { self.spool.first(patience) } else { None };
            let done = match next {
                Some(waiting) => self.begin(waiting),
                None if !self.under_way.is_empty() => self.end_one(),
                None if is_closed => return,
                None => Ok(()),
            };
            if let Err(error) = done {
                return self.fail(error);
            }
        }
    }

    fn begin(&mut self, waiting: SpooledBatch) -> Result<()> {
        let batch = &waiting.batch;
        let Some(bytes) = self.spool.read(batch)? else {
            self.send_notice(format_args!("batch {} is damaged: {} records lost", stem_of(batch.id), batch.rows));
            return self.leave(&waiting, Outcome::Damaged);
        };
        match self.destination.begin(&self.spool, &waiting, &bytes) {
            Ok(()) => {
                self.under_way.push_back(waiting);
                Ok(())
            }
            Err(refusal) => self.settle(waiting, refusal),
        }
    }

    /// Waits for the outcome of the oldest batch in flight.
    fn end_one(&mut self) -> Result<()> {
        let Some(waiting) = self.under_way.pop_front() else { return Ok(()) };
        match self.destination.end(&self.spool, &waiting) {
            Ok(()) => self.delivered(&waiting),
            Err(refusal) => self.settle(waiting, refusal),
        }
    }

    /// Handles a failed batch: waits for the outcome of all others in flight, then handles each.
    fn settle(&mut self, waiting: SpooledBatch, refusal: Refusal) -> Result<()> {
        let mut refused = vec![(waiting, refusal)];
        while let Some(waiting) = self.under_way.pop_front() {
            match self.destination.end(&self.spool, &waiting) {
                Ok(()) => self.delivered(&waiting)?,
                Err(refusal) => refused.push((waiting, refusal)),
            }
        }
        let settled = self.destination.settle(&self.spool);
        let mut why = settled.err().map(|error| error.to_string());
        for (waiting, refusal) in refused {
            let later = self.refused(&waiting, refusal)?;
            self.spool.release(waiting.batch.id);
            why = why.or(later);
        }
        if let Some(why) = why {
            self.record_outage(why);
        }
        Ok(())
    }

    fn delivered(&mut self, waiting: &SpooledBatch) -> Result<()> {
        self.leave(waiting, Outcome::Delivered)?;
        if let Some(OutageState { since, is_reported: true, .. }) = self.away.take() {
            self.send_notice(format_args!("reachable again after {:.0} s", since.elapsed().as_secs_f64()));
        }
        (self.has_delivered, self.wait) = (true, FIRST_WAIT);
        Ok(())
    }

    /// Handles a batch that was not accepted; returns the reason to wait, if any.
    fn refused(&mut self, waiting: &SpooledBatch, refusal: Refusal) -> Result<Option<String>> {
        let rows = waiting.batch.rows;
        match refusal {
            Refusal::Again => Ok(None),
            Refusal::TooLong(why) => {
                let is_news = self.spool.shorter(rows);
                self.halve(waiting, &why, is_news)
            }
            Refusal::TooMixed(why) => {
                let is_news = !std::mem::replace(&mut self.has_mixed, true);
                self.halve(waiting, &why, is_news)
            }
            Refusal::Never(why) => self.set_aside(waiting, &why),
            // Right after the start the user can fix the setup.
            Refusal::NeedsFix(why) if !self.has_delivered => {
                let text =
                    format!("{}: {why}; undelivered batches are kept in {}", self.name, self.spool.path().display());
                Err(Error::new(ErrorKind::PermissionDenied, text))
            }
            Refusal::Later(why) | Refusal::NeedsFix(why) => Ok(Some(why)),
        }
    }

    /// Replaces a batch by its halves.
    fn halve(&mut self, waiting: &SpooledBatch, why: &str, is_news: bool) -> Result<Option<String>> {
        let (rows, name) = (waiting.batch.rows, stem_of(waiting.batch.id));
        let bytes = self.spool.read(&waiting.batch)?;
        let halves = bytes.and_then(|bytes| halves(&waiting.batch, &bytes).transpose()).transpose();
        match halves {
            Ok(Some(halves)) => {
                if is_news {
                    self.send_notice(format_args!("batch {name} ({rows} records) split in two: {why}"));
                }
                let is_done = self.spool.halve(&waiting.batch, halves)?;
                Ok((!is_done).then(|| "spool full: cannot split a batch that is too long".to_owned()))
            }
            Ok(None) => self.set_aside(waiting, why),
            Err(error) => self.set_aside(waiting, &format!("{why}; cannot split it: {error}")),
        }
    }

    fn set_aside(&mut self, waiting: &SpooledBatch, why: &str) -> Result<Option<String>> {
        let (rows, name) = (waiting.batch.rows, stem_of(waiting.batch.id));
        self.send_notice(format_args!("batch {name} ({rows} records) rejected and set aside: {why}"));
        self.leave(waiting, Outcome::Refused).map(|()| None)
    }

    /// Removes a batch from the spool; retries if the journal cannot be written.
    fn leave(&mut self, waiting: &SpooledBatch, outcome: Outcome) -> Result<()> {
        while let Err(error) = self.spool.done(waiting.batch.id, outcome) {
            if error.kind() != ErrorKind::StorageFull || self.over.has_passed() {
                return Err(error);
            }
            self.spool.wait(LAST_WAIT);
        }
        Ok(())
    }

    fn record_outage(&mut self, why: String) {
        let away = self.away.get_or_insert_with(|| {
            self.spool.count(|tally| tally.outages += 1);
            OutageState { since: Instant::now(), is_reported: false, why: String::new() }
        });
        away.why = why;
        if away.since.elapsed() >= AWAY {
            self.report_outage();
        }
        let until = Instant::now() + self.wait.min(self.over.left().unwrap_or(Duration::MAX));
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.over.has_passed() {
                break;
            }
            // New batches do not shorten the wait.
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        self.wait = (self.wait * 2).min(LAST_WAIT);
    }

    /// Reports an outage, once.
    fn report_outage(&mut self) {
        let Some(OutageState { is_reported: false, why, .. }) = &self.away else { return };
        self.send_notice(format_args!("{why}; buffering batches in {}", self.spool.path().display()));
        self.away.iter_mut().for_each(|away| away.is_reported = true);
    }

    fn fail(&self, error: Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.spool.wake();
    }

    fn send_notice(&self, text: std::fmt::Arguments<'_>) {
        (self.notify)(format!("{}: {text}", self.name));
    }
}
