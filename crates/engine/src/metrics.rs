//! What runs have counted so far, for another thread that asks while they last: a scrape of Prometheus, say.
//!
//! Nothing is counted for it. Whoever asks leaves a number; a run finds it when it looks after its ports anyway, some ten times a
//! second, and answers with what its ledger would say now. Nobody who asks holds a run up, and a run that nobody asks does one load
//! of a word in each look. Counters of network cards, which take milliseconds to ask, come with the end of a run.

use linerate_burst::Ledger;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What is not counted by a run itself, but behind it: it is asked where it is.
type Stage = Arc<dyn Fn(&mut Ledger) + Send + Sync>;

/// Whether anybody will ask.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The runs of this process.
static RUNS: Mutex<Runs> = Mutex::new(Runs { open: Vec::new(), over: Ledger::new() });

/// Stages behind them.
static STAGES: Mutex<Vec<Stage>> = Mutex::new(Vec::new());

/// Runs that can be asked, and the sum of those that are over.
struct Runs {
    open: Vec<Arc<Run>>,
    over: Ledger,
}

/// One of them.
#[derive(Default)]
struct Run {
    /// How often it was asked.
    asked: AtomicU64,
    answer: Mutex<Answer>,
    is_answered: Condvar,
}

/// To which of the questions it is, and what it says.
#[derive(Default)]
struct Answer {
    to: u64,
    ledger: Ledger,
}

/// Runs that begin from now on can be asked.
pub fn want() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// A stage behind the runs, which can be asked until this is dropped.
#[must_use = "it is asked as long as this is there"]
pub struct Source(Stage);

/// Has `count` called by whoever asks: it adds what its stage has counted so far, and waits for nobody.
pub fn source(count: impl Fn(&mut Ledger) + Send + Sync + 'static) -> Source {
    let stage: Stage = Arc::new(count);
    lock(&STAGES).push(Arc::clone(&stage));
    Source(stage)
}

impl Drop for Source {
    fn drop(&mut self) {
        lock(&STAGES).retain(|stage| !Arc::ptr_eq(stage, &self.0));
    }
}

/// What all runs have counted so far, those among them that are over. A run that does not answer within `patience` (it waits for a
/// disk, say) is there with its last answer.
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

/// The side of a run.
pub(crate) struct Metrics {
    run: Option<Arc<Run>>,
    answered: u64,
}

impl Metrics {
    /// A run begins.
    pub(crate) fn new() -> Self {
        let run = IS_WANTED.load(Ordering::Relaxed).then(Arc::<Run>::default);
        lock(&RUNS).open.extend(run.clone());
        Metrics { run, answered: 0 }
    }

    /// Answers, if somebody asks.
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

    /// The run is over, and this is what it has counted.
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
    /// Of a run that died.
    fn drop(&mut self) {
        self.close(&Ledger::new());
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
