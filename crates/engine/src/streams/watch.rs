//! Frames sent by each stream, for another thread.

use crate::control::unwatched;
use linerate_burst::Nanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Minimum interval of updates by a sender.
const SHOW_EVERY: Duration = Duration::from_millis(100);
/// Number of streams up to which updates are ten times as frequent.
const FEW_STREAMS: usize = 1000;
/// Poll interval of a waiting reader.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Lets another thread read how many frames each stream has sent. Nothing is copied without a request, and the run
/// never waits for a reader.
#[derive(Clone, Debug, Default)]
pub struct StreamWatch(Arc<WatchState>);

#[derive(Debug, Default)]
struct WatchState {
    /// Number of requests.
    asked: AtomicU64,
    shown: Mutex<SentTotals>,
}

#[derive(Debug, Default)]
struct SentTotals {
    /// Totals of each stream, over all senders.
    sent: Vec<u64>,
    /// Number of the last request answered by each sender.
    answered: Vec<u64>,
}

/// One sender's side of the watch.
pub(crate) struct WatchWriter {
    watch: StreamWatch,
    sender: usize,
    shown: Vec<u64>,
    shown_at: Nanos,
    answered: u64,
}

impl StreamWatch {
    /// Returns the frames sent by each stream, as last updated; empty before the first update. Requests an update,
    /// which follows within a tenth of a second.
    pub fn sent(&self) -> Vec<u64> {
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        self.lock().sent.clone()
    }

    /// Returns current totals, waiting for the update at most for `limit`.
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

    /// Registers a sender of `streams` streams.
    pub(crate) fn show(&self, streams: usize) -> WatchWriter {
        let mut shown = self.lock();
        shown.answered.push(0);
        let sender = shown.answered.len() - 1;
        WatchWriter { watch: self.clone(), sender, shown: vec![0; streams], shown_at: Nanos::ZERO, answered: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, SentTotals> {
        self.0.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchWriter {
    /// Returns whether an update is requested and due.
    #[inline]
    pub(crate) fn is_asked(&self, now: Nanos) -> bool {
        let every = if self.shown.len() <= FEW_STREAMS { SHOW_EVERY / 10 } else { SHOW_EVERY };
        self.watch.0.asked.load(Ordering::Relaxed) != self.answered
            && (now.since(self.shown_at) >= every || now < self.shown_at)
    }

    /// Updates the totals, unless a reader holds the lock.
    pub(crate) fn show(&mut self, sent: &[u64], now: Nanos) {
        let asked = self.watch.0.asked.load(Ordering::Relaxed);
        let watch = self.watch.clone();
        if let Some(mut shown) = unwatched(&watch.0.shown) {
            self.shown_at = now;
            self.add(&mut shown, sent, asked);
        }
    }

    /// Updates the totals, waiting for readers.
    pub(crate) fn publish_blocking(&mut self, sent: &[u64]) {
        let asked = self.watch.0.asked.load(Ordering::Relaxed);
        let watch = self.watch.clone();
        self.add(&mut watch.lock(), sent, asked);
    }

    fn add(&mut self, shown: &mut SentTotals, sent: &[u64], asked: u64) {
        let streams = sent.len().max(shown.sent.len());
        shown.sent.resize(streams, 0);
        for ((all, sent), before) in shown.sent.iter_mut().zip(sent).zip(&mut self.shown) {
            *all += sent - std::mem::replace(before, *sent);
        }
        shown.answered[self.sender] = asked;
        self.answered = asked;
    }
}

impl Drop for WatchWriter {
    /// Ends all waits for this sender.
    fn drop(&mut self) {
        self.watch.lock().answered[self.sender] = u64::MAX;
    }
}
