//! Counters of running runs, for another thread: a Prometheus scrape, for example.
//!
//! Nothing is counted for it. A request increments a number; a run sees it when it reads its ports' counters anyway,
//! about ten times a second, and answers with its current ledger. Requests never block a run, and a run without
//! requests does one load per check. Counters of network cards, which take milliseconds to read, are added at the end
//! of a run.

use linerate_burst::Ledger;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Counters of a stage after the runs, which is queried directly.
type Stage = Arc<dyn Fn(&mut Ledger) + Send + Sync>;

/// True if metrics will be requested.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Runs of this process.
static RUNS: Mutex<Runs> = Mutex::new(Runs { open: Vec::new(), over: Ledger::new() });

/// Stages after the runs.
static STAGES: Mutex<Vec<Stage>> = Mutex::new(Vec::new());

/// Runs that can be queried, and the sum of those that have ended.
struct Runs {
    open: Vec<Arc<Run>>,
    over: Ledger,
}

#[derive(Default)]
struct Run {
    /// Number of requests.
    asked: AtomicU64,
    answer: Mutex<Answer>,
    is_answered: Condvar,
}

/// Number of the request that is answered, and the counters.
#[derive(Default)]
struct Answer {
    to: u64,
    ledger: Ledger,
}

/// Enables requests for runs that start later.
pub fn want() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// A stage after the runs, which can be queried until this is dropped.
#[must_use = "the stage is removed when this is dropped"]
pub struct MetricsSource(Stage);

/// Registers a stage: `count` adds its counters so far, and must not block.
pub fn source(count: impl Fn(&mut Ledger) + Send + Sync + 'static) -> MetricsSource {
    let stage: Stage = Arc::new(count);
    lock(&STAGES).push(Arc::clone(&stage));
    MetricsSource(stage)
}

impl Drop for MetricsSource {
    fn drop(&mut self) {
        lock(&STAGES).retain(|stage| !Arc::ptr_eq(stage, &self.0));
    }
}

/// Returns the counters so far of all runs, including those that have ended. A run that does not answer within
/// `patience` (because it waits for a disk, for example) is included with its last answer.
pub fn ask(patience: Duration) -> Ledger {
    let began = Instant::now();
    let (open, mut sum) = {
        let runs = lock(&RUNS);
        (runs.open.clone(), runs.over.clone())
    };
    let asked: Vec<u64> = open.iter().map(|run| run.asked.fetch_add(1, Ordering::Relaxed) + 1).collect();
    for (run, asked) in open.iter().zip(asked) {
        let left = patience.saturating_sub(began.elapsed());
        let waited = run.is_answered.wait_timeout_while(lock(&run.answer), left, |answer| answer.to < asked);
        sum.add_all(&waited.unwrap_or_else(PoisonError::into_inner).0.ledger);
    }
    let stages = lock(&STAGES).clone();
    stages.iter().for_each(|count| count(&mut sum));
    sum
}

/// A run's side of the requests.
pub(crate) struct Metrics {
    run: Option<Arc<Run>>,
    answered: u64,
}

impl Metrics {
    /// Registers a run.
    pub(crate) fn new() -> Self {
        let run = IS_WANTED.load(Ordering::Relaxed).then(Arc::<Run>::default);
        lock(&RUNS).open.extend(run.clone());
        Metrics { run, answered: 0 }
    }

    /// Answers a pending request.
    pub(crate) fn answer(&mut self, count: impl FnOnce(&mut Ledger)) {
        let Some(run) = &self.run else { return };
        let asked = run.asked.load(Ordering::Relaxed);
        if asked == self.answered {
            return;
        }
        self.answered = asked;
        let mut ledger = Ledger::new();
        count(&mut ledger);
        *lock(&run.answer) = Answer { to: asked, ledger };
        run.is_answered.notify_all();
    }

    /// Ends the run with its final counters.
    pub(crate) fn close(&mut self, ledger: &Ledger) {
        let Some(run) = self.run.take() else { return };
        let mut runs = lock(&RUNS);
        runs.open.retain(|other| !Arc::ptr_eq(other, &run));
        runs.over.add_all(ledger);
        drop(runs);
        *lock(&run.answer) = Answer { to: u64::MAX, ledger: ledger.clone() };
        run.is_answered.notify_all();
    }
}

impl Drop for Metrics {
    /// Removes a run that panicked.
    fn drop(&mut self) {
        self.close(&Ledger::new());
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
