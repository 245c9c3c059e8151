//! How many frames each stream has sent, for whoever looks.

use crate::control::unwatched;
use linerate_burst::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// At most so often senders say what each stream has sent.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Of so few they do ten times as often.
const FEW_STREAMS: usize = 1000;
/// How often whoever waits for them looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Lets another thread see how many frames each stream has sent. Nothing is copied unless somebody asks, and the run never waits for a
/// reader.
#[derive(Clone, Debug, Default)]
pub struct StreamWatch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    /// How often somebody has asked.
    asked: AtomicU64,
    shown: Mutex<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    /// By all senders together, of each stream.
    sent: Vec<u64>,
    /// For each sender which question it has answered last.
    answered: Vec<u64>,
}

/// What one sender shows.
pub(crate) struct Showing {
    watch: StreamWatch,
    sender: usize,
    shown: Vec<u64>,
    shown_at: Nanos,
    answered: u64,
}

impl StreamWatch {
    /// Frames that each stream has sent, as it was shown last; empty before the first of them. Asks for newer numbers, which are there
    /// a tenth of a second later at most.
    pub fn sent(&self) -> Vec<u64> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        self.lock().sent.clone()
    }

    /// The same as it is now, or has become within `limit`.
    pub fn sent_now(&self, limit: Duration) -> Vec<u64> {
        let asked = self.0.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let started = Instant::now();
        while started.elapsed() < limit {
            let shown = self.lock();
            if shown.answered.iter().all(|answered| *answered >= asked) {
                return shown.sent.clone();
            }
            drop(shown);
            thread::sleep(LOOK_AGAIN);
        }
        self.lock().sent.clone()
    }

    /// A sender of so many streams begins.
    pub(crate) fn show(&self, streams: usize) -> Showing {
        let mut shown = self.lock();
        shown.answered.push(0);
        let sender = shown.answered.len() - 1;
        Showing { watch: self.clone(), sender, shown: vec![0; streams], shown_at: Nanos::ZERO, answered: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Showing {
    /// Whether somebody waits to see what was sent, and has not seen it lately.
    #[inline]
    pub(crate) fn is_asked(&self, now: Nanos) -> bool {
        let every = if self.shown.len() <= FEW_STREAMS { SHOW_EVERY / 10 } else { SHOW_EVERY };
        self.watch.0.asked.load(Ordering::Relaxed) != self.answered
            && (now.since(self.shown_at) >= every || now < self.shown_at)
    }

    /// Shows what was sent, unless somebody looks at that right now.
    pub(crate) fn show(&mut self, sent: &[u64], now: Nanos) {
        let asked = self.watch.0.asked.load(Ordering::Relaxed);
        let watch = self.watch.clone();
        if let Some(mut shown) = unwatched(&watch.0.shown) {
            self.shown_at = now;
            self.add(&mut shown, sent, asked);
        }
    }

    /// The same, whoever looks.
    pub(crate) fn show_surely(&mut self, sent: &[u64]) {
        let asked = self.watch.0.asked.load(Ordering::Relaxed);
        let watch = self.watch.clone();
        self.add(&mut watch.lock(), sent, asked);
    }

    fn add(&mut self, shown: &mut Shown, sent: &[u64], asked: u64) {
        let streams = sent.len().max(shown.sent.len());
        shown.sent.resize(streams, 0);
        for ((all, sent), before) in shown.sent.iter_mut().zip(sent).zip(&mut self.shown) {
            *all += sent - std::mem::replace(before, *sent);
        }
        shown.answered[self.sender] = asked;
        self.answered = asked;
    }
}

impl Drop for Showing {
    /// Nobody waits for this sender any more.
    fn drop(&mut self) {
        self.watch.lock().answered[self.sender] = u64::MAX;
    }
}
