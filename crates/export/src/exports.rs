//! Several exporters in one run: each record goes to all of them.

use crate::export::{Exporter, abandon};
use crate::queue::{OnReopen, Queue};
use linerate_burst::Ledger;
use linerate_meter::{Flow, Records};
use std::io::{Error, Result};
use std::sync::Arc;

/// Passes records to exporters, each with its own queue and thread. The slowest one limits metering; a failed one does
/// not affect the others.
#[must_use = "threads wait for records until it is finished"]
pub struct Exports {
    queues: Vec<Queue>,
}

impl Exports {
    /// Starts the threads. They call `on_failure` once for each exporter that stops: the run should end.
    ///
    /// # Errors
    /// A destination cannot be written to, or a thread cannot be started. On an error no files remain.
    pub fn start(exporters: Vec<Box<dyn Exporter>>, on_failure: impl Fn() + Send + Sync + 'static) -> Result<Self> {
        if let Err(error) = exporters.iter().try_for_each(|exporter| exporter.check()) {
            abandon(exporters);
            return Err(error);
        }
        let on_failure: Arc<dyn Fn() + Send + Sync> = Arc::new(on_failure);
        let mut exports = Exports { queues: Vec::new() };
        for exporter in exporters {
            match Queue::start(exporter, Arc::clone(&on_failure)) {
                Ok(queue) => exports.queues.push(queue),
                Err(error) => {
                    // The missing thread is the error to report.
                    let _ = exports.finish(true, &mut Ledger::new());
                    return Err(error);
                }
            }
        }
        Ok(exports)
    }

    /// Returns a function that adds the accounts of all exporters so far, in their final form, for another thread. A
    /// waiting record counts only as received.
    pub fn live(&self) -> impl Fn(&mut Ledger) + Send + Sync + use<> {
        let queues: Vec<_> = self.queues.iter().map(Queue::live).collect();
        move |ledger| queues.iter().for_each(|count| count(ledger))
    }

    /// Makes each exporter complete its output and continue in a new one. Their threads call `notify` with a message
    /// about the completed output.
    pub fn reopen(&self, notify: impl Fn(String) + Send + Sync + 'static) {
        let notify: OnReopen = Arc::new(notify);
        self.queues.iter().for_each(|queue| queue.reopen(Arc::clone(&notify)));
    }

    /// Waits for all exporters and adds an account of each ([`Stage::Export`](linerate_burst::Stage::Export)).
    /// If the run failed before the first record, earlier files are kept.
    ///
    /// # Errors
    /// Errors of all failed exporters, with the records lost. A reader that closed its end is not a failure.
    pub fn finish(self, has_failed: bool, ledger: &mut Ledger) -> Result<()> {
        let ends: Vec<Result<()>> = self.queues.into_iter().map(|queue| queue.finish(has_failed, ledger)).collect();
        let errors: Vec<Error> = ends.into_iter().filter_map(Result::err).collect();
        match &errors[..] {
            [] => Ok(()),
            [first, ..] => {
                let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
                Err(Error::new(first.kind(), texts.join("\n")))
            }
        }
    }
}

impl Records for Exports {
    fn take(&mut self, flow: &Flow) {
        self.queues.iter_mut().for_each(|queue| queue.take(flow));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::{Demand, Ending};
    use linerate_burst::{Account, Count, Nanos, Stage};
    use linerate_meter::Level;
    use std::io::ErrorKind;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    /// Calls that a test observes.
    #[derive(Default)]
    struct Seen {
        written: AtomicU64,
        ticks: AtomicU64,
        ending: Mutex<Option<Ending>>,
    }

    /// Exporter without an output.
    struct Fake {
        name: &'static str,
        seen: Arc<Seen>,
        /// Result of its first write.
        write: fn() -> Result<()>,
        tick: Option<Duration>,
    }

    impl Exporter for Fake {
        fn name(&self) -> &str {
            self.name
        }

        fn format(&self) -> (&'static str, Level) {
            ("nothing", Level::Stats)
        }

        fn demand(&self) -> Demand {
            Demand { bytes: 1, age: Duration::MAX, tick: self.tick }
        }

        fn write(&mut self, flows: &[Flow], now: Nanos) -> Result<()> {
            assert!(now.0 > 0 && !flows.is_empty());
            (self.write)()?;
            self.seen.written.fetch_add(flows.len() as u64, Ordering::Relaxed);
            Ok(())
        }

        fn tick(&mut self, now: Nanos) -> Result<()> {
            assert!(now.0 > 0);
            self.seen.ticks.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn finish(&mut self, ending: Ending) -> Result<()> {
            *self.seen.ending.lock().unwrap() = Some(ending);
            Ok(())
        }

        fn counters(&self, account: &mut Account) {
            account.add(Count::Exported, self.seen.written.load(Ordering::Relaxed));
        }
    }

    fn fake(name: &'static str, write: fn() -> Result<()>) -> (Box<dyn Exporter>, Arc<Seen>) {
        let seen = Arc::new(Seen::default());
        (Box::new(Fake { name, seen: Arc::clone(&seen), write, tick: None }), seen)
    }

    #[test]
    fn a_failed_exporter_does_not_affect_others() {
        let (good, kept) = fake("good", || Ok(()));
        let (full, cut) = fake("full", || Err(Error::from(ErrorKind::StorageFull)));
        let (gone, _) = fake("gone", || Err(Error::from(ErrorKind::BrokenPipe)));
        let (dead, _) = fake("dead", || panic!("planned"));
        let failures = Arc::new(AtomicU64::new(0));
        let calls = Arc::clone(&failures);
        let on_failure = move || {
            calls.fetch_add(1, Ordering::Relaxed);
        };
        let mut exports = Exports::start(vec![good, full, gone, dead], on_failure).unwrap();
        let flow = crate::tests::flow();
        (0..1000).for_each(|_| exports.take(&flow));
        let mut ledger = Ledger::new();
        let error = exports.finish(false, &mut ledger).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 2, "a closed reader is not an error: {error}");
        assert!(error.matches("1000 records lost, 0 written, 0 files complete").count() == 2, "{error}");
        assert!(error.contains("linerate-records panicked: planned"), "{error}");
        assert_eq!(failures.load(Ordering::Relaxed), 3);
        assert_eq!(*kept.ending.lock().unwrap(), Some(Ending::Complete));
        assert_eq!(*cut.ending.lock().unwrap(), Some(Ending::Failed));
        assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "lost records are not lost packets");
        for (name, count) in [
            ("good", Count::Exported),
            ("full", Count::ExportFailed),
            ("gone", Count::ExportUnread),
            ("dead", Count::ExportDied),
        ] {
            let account = ledger.account(Stage::Export, name);
            assert_eq!((account.get(Count::ExportReceived), account.get(count)), (1000, 1000), "{name}");
        }
    }

    #[test]
    fn failed_runs_without_records_leave_no_files() {
        for (has_failed, records, ending) in
            [(true, 0, Ending::Abandoned), (true, 1, Ending::Complete), (false, 0, Ending::Complete)]
        {
            let (exporter, seen) = fake("a", || Ok(()));
            let mut exports = Exports::start(vec![exporter], || ()).unwrap();
            (0..records).for_each(|_| exports.take(&crate::tests::flow()));
            exports.finish(has_failed, &mut Ledger::new()).unwrap();
            assert_eq!(*seen.ending.lock().unwrap(), Some(ending), "{has_failed} {records}");
        }
    }

    #[test]
    fn ticks_do_not_depend_on_records() {
        let seen = Arc::new(Seen::default());
        let tick = Some(Duration::from_millis(1));
        let fake = Fake { name: "a", seen: Arc::clone(&seen), write: || Ok(()), tick };
        let mut exports = Exports::start(vec![Box::new(fake)], || ()).unwrap();
        let started = Instant::now();
        let mut wait_for = |records: bool| {
            let before = seen.ticks.load(Ordering::Relaxed);
            while seen.ticks.load(Ordering::Relaxed) < before + 3 {
                assert!(started.elapsed() < Duration::from_secs(60), "no ticks");
                if records {
                    exports.take(&crate::tests::flow());
                }
                std::thread::yield_now();
            }
        };
        wait_for(false);
        wait_for(true);
        let mut ledger = Ledger::new();
        exports.finish(false, &mut ledger).unwrap();
        assert_eq!((ledger.imbalances(), ledger.sum(Stage::Export, linerate_burst::Kind::Lost)), (vec![], 0));
    }
}
