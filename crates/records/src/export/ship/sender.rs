//! The thread that takes batches out of a spool, one after the other, to who is to have them.

use super::journal::Outcome;
use super::link::Over;
use super::spool::Spool;
use super::state::Waiting;
use super::{Destination, Refusal};
use linerate_burst::died::survive;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long is waited before a batch is tried again: at first, and at most.
const FIRST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 50 });
const LAST_WAIT: Duration = Duration::from_millis(if cfg!(test) { 8 } else { 5000 });
/// How long somebody who is away is not spoken of.
const AWAY: Duration = Duration::from_secs(2);

pub(super) struct Sender {
    work: Option<Work>,
    spool: Arc<Spool>,
    thread: Option<JoinHandle<()>>,
    failure: Arc<Mutex<Option<Error>>>,
    /// No more batches come.
    closed: Arc<AtomicBool>,
}

/// What the thread has.
struct Work {
    name: String,
    spool: Arc<Spool>,
    destination: Box<dyn Destination>,
    over: Over,
    told: fn(String),
    failure: Arc<Mutex<Option<Error>>>,
    closed: Arc<AtomicBool>,
    /// Nothing is taken.
    away: Option<Away>,
    wait: Duration,
    has_delivered: bool,
}

/// Since when, whether that was told, and why.
struct Away {
    since: Instant,
    is_told: bool,
    why: String,
}

impl Sender {
    pub fn new(name: &str, spool: Arc<Spool>, destination: Box<dyn Destination>, over: Over, told: fn(String)) -> Self {
        let (failure, closed) = (Arc::default(), Arc::<AtomicBool>::default());
        let work = Work {
            name: name.to_owned(),
            spool: Arc::clone(&spool),
            destination,
            over,
            told,
            failure: Arc::clone(&failure),
            closed: Arc::clone(&closed),
            away: None,
            wait: FIRST_WAIT,
            has_delivered: false,
        };
        Sender { work: Some(work), spool, thread: None, failure, closed }
    }

    /// Starts the thread, unless it was. Not before privileges are gone: it would keep them.
    pub fn start(&mut self) -> Result<()> {
        let Some(mut work) = self.work.take() else { return Ok(()) };
        let deliver = move || {
            let done = survive(|| {
                work.run();
                work.tell_away();
            });
            if let Err(died) = done {
                work.fail(Error::other(died));
            }
        };
        self.thread = Some(Builder::new().name("linerate-ship".into()).spawn(deliver)?);
        Ok(())
    }

    /// Why nothing is delivered any more.
    pub fn failure(&self) -> Result<()> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.as_ref().map_or(Ok(()), |error| Err(Error::new(error.kind(), error.to_string())))
    }

    /// Waits for the thread, which ends with the run.
    pub fn end(&mut self) -> Result<()> {
        self.work = None;
        self.closed.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            self.spool.wake();
            // What can panic there is caught there.
            let _ = thread.join();
        }
        self.failure()
    }
}

impl Work {
    /// Delivers until the run is over, or no more can come and there is nothing more.
    fn run(&mut self) {
        const LOOK: Duration = Duration::from_millis(100);
        loop {
            // In this order: what came before it was closed is found.
            let (is_closed, left) = (self.closed.load(Ordering::Acquire), self.over.left());
            match self.spool.first(left.unwrap_or(LOOK).min(LOOK)) {
                None if is_closed => return,
                _ if left.is_some_and(|left| left.is_zero()) => return,
                None => {}
                Some(waiting) => {
                    if let Err(error) = self.deliver(&waiting) {
                        return self.fail(error);
                    }
                }
            }
        }
    }

    fn deliver(&mut self, waiting: &Waiting) -> Result<()> {
        let (batch, id) = (&waiting.batch, waiting.batch.id);
        let rows = batch.rows;
        let Some(bytes) = self.spool.read(batch)? else {
            self.tell(format_args!(
                "batch {:016x}-{} is not what was written: {rows} records are lost",
                id.run, id.number
            ));
            return self.leave(waiting, Outcome::Damaged);
        };
        match self.destination.deliver(&self.spool, waiting, &bytes) {
            Ok(()) => {
                self.leave(waiting, Outcome::Delivered)?;
                if let Some(Away { since, is_told: true, .. }) = self.away.take() {
                    self.tell(format_args!("is there again, after {:.0} s", since.elapsed().as_secs_f64()));
                }
                (self.has_delivered, self.wait) = (true, FIRST_WAIT);
                Ok(())
            }
            Err(Refusal::Never(why)) => {
                let text = format!("batch {:016x}-{} of {rows} records is refused and set aside", id.run, id.number);
                self.tell(format_args!("{text}: {why}"));
                self.leave(waiting, Outcome::Refused)
            }
            // Who has just begun wants to know it.
            Err(Refusal::ToMend(why)) if !self.has_delivered => {
                let text =
                    format!("{}: {why}; what was not delivered stays in {}", self.name, self.spool.path().display());
                Err(Error::new(ErrorKind::PermissionDenied, text))
            }
            Err(Refusal::Later(why) | Refusal::ToMend(why)) => {
                self.wait_after(why);
                Ok(())
            }
        }
    }

    /// A batch leaves the spool; where that cannot be noted it is tried again.
    fn leave(&mut self, waiting: &Waiting, outcome: Outcome) -> Result<()> {
        while let Err(error) = self.spool.done(waiting.batch.id, outcome) {
            if error.kind() != ErrorKind::StorageFull || self.over.is_now() {
                return Err(error);
            }
            self.spool.wait(LAST_WAIT);
        }
        Ok(())
    }

    fn wait_after(&mut self, why: String) {
        let away = self.away.get_or_insert_with(|| {
            self.spool.count(|tally| tally.outages += 1);
            Away { since: Instant::now(), is_told: false, why: String::new() }
        });
        away.why = why;
        if away.since.elapsed() >= AWAY {
            self.tell_away();
        }
        let until = Instant::now() + self.wait.min(self.over.left().unwrap_or(Duration::MAX));
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            if self.over.is_now() {
                break;
            }
            // Batches that come do not bring the other side back.
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
        self.wait = (self.wait * 2).min(LAST_WAIT);
    }

    /// Says why batches wait, once.
    fn tell_away(&mut self) {
        let Some(Away { is_told: false, why, .. }) = &self.away else { return };
        self.tell(format_args!("{why}; batches wait in {}", self.spool.path().display()));
        self.away.iter_mut().for_each(|away| away.is_told = true);
    }

    fn fail(&self, error: Error) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.spool.wake();
    }

    fn tell(&self, text: std::fmt::Arguments<'_>) {
        (self.told)(format!("{}: {text}", self.name));
    }
}
