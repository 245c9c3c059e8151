//! Several exporters in one run: each record goes to all of them.

use crate::export::{Exporter, abandon};
use crate::queue::{Queue, Told};
use linerate_burst::Ledger;
use linerate_meter::{Flow, Records};
use std::io::{Error, Result};
use std::sync::Arc;

/// Takes records to exporters, each of which has a queue and a thread of its own: the slowest holds the metering up, and one
/// that fails takes nothing from the others.
#[must_use = "threads wait for records until it is finished"]
pub struct Exports {
    queues: Vec<Queue>,
}

impl Exports {
    /// Starts the threads. `on_failure` is called by them, once for each exporter that takes no more: the run is to end.
    ///
    /// # Errors
    /// A place cannot be written to: then nothing is left behind; or no thread is to be had.
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
                    // That there is no thread says it all.
                    let _ = exports.finish(true, &mut Ledger::new());
                    return Err(error);
                }
            }
        }
        Ok(exports)
    }

    /// What adds the accounts of all exporters so far, as they will be in the end, for another thread: a record that waits is received
    /// and nothing else yet.
    pub fn live(&self) -> impl Fn(&mut Ledger) + Send + Sync + use<> {
        let queues: Vec<_> = self.queues.iter().map(Queue::live).collect();
        move |ledger| queues.iter().for_each(|count| count(ledger))
    }

    /// Has each exporter complete what there is so far, and go on in something new. `told` is called by their threads, with what is
    /// complete then.
    pub fn reopen(&self, told: impl Fn(String) + Send + Sync + 'static) {
        let told: Told = Arc::new(told);
        self.queues.iter().for_each(|queue| queue.reopen(Arc::clone(&told)));
    }

    /// Waits until all is exported, and adds an account of each exporter ([`Stage::Export`](linerate_burst::Stage::Export)).
    /// If the run has failed before there was any record, what was there before stays.
    ///
    /// # Errors
    /// Those of all exporters that failed, and what each costs. A reader that has gone is no failure.
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

    /// What a test sees of an exporter.
    #[derive(Default)]
    struct Seen {
        written: AtomicU64,
        ticks: AtomicU64,
        ending: Mutex<Option<Ending>>,
    }

    /// An exporter that writes nowhere.
    struct Fake {
        name: &'static str,
        seen: Arc<Seen>,
        /// What comes of its first write.
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
    fn one_that_fails_takes_nothing_from_the_others_and_all_are_accounted_for() {
        let (good, kept) = fake("good", || Ok(()));
        let (full, cut) = fake("full", || Err(Error::from(ErrorKind::StorageFull)));
        let (gone, _) = fake("gone", || Err(Error::from(ErrorKind::BrokenPipe)));
        let (dead, _) = fake("dead", || panic!("by plan"));
        let failures = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&failures);
        let on_failure = move || {
            told.fetch_add(1, Ordering::Relaxed);
        };
        let mut exports = Exports::start(vec![good, full, gone, dead], on_failure).unwrap();
        let flow = crate::tests::flow();
        (0..1000).for_each(|_| exports.take(&flow));
        let mut ledger = Ledger::new();
        let error = exports.finish(false, &mut ledger).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 2, "that a reader has gone is no error: {error}");
        assert!(error.matches("1000 records are lost, 0 are written, 0 files are complete").count() == 2, "{error}");
        assert!(error.contains("linerate-records died: by plan"), "{error}");
        assert_eq!(failures.load(Ordering::Relaxed), 3);
        assert_eq!(*kept.ending.lock().unwrap(), Some(Ending::Complete));
        assert_eq!(*cut.ending.lock().unwrap(), Some(Ending::Failed));
        assert_eq!((ledger.imbalances(), ledger.lost()), (vec![], 0), "lost records are no lost frames");
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
    fn where_nothing_could_be_metered_nothing_is_left() {
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
    fn time_goes_on_with_and_without_records() {
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
