//! Accounts of each reader, and its effect on the run. The number of readers over time is unbounded: above a limit,
//! readers and events are summed up.

use linerate_burst::{Account, Count, Ledger, Stage};
use linerate_share::{Departure, ReaderReport};
use std::time::Duration;

/// Maximum number of readers with an account of their own.
const OWN: usize = 256;
/// Maximum number of events reported one by one.
const EVENTS: usize = 256;
/// Name of the account of all others.
const OTHERS: &str = "all other readers";

/// Accounts of all readers of a run.
#[derive(Clone, Default)]
pub(super) struct Accounts {
    ledger: Ledger,
    /// Number of readers without an account of their own.
    others: u64,
    /// Account of the reader that blocked the run since losses were last read.
    held: Option<String>,
    events: Vec<String>,
    unlisted: u64,
}

impl Accounts {
    /// Records the departure of a reader.
    pub(super) fn record_departure(&mut self, departure: &Departure) {
        if let Some(reason) = &departure.evict {
            self.report_event(format!("{} was evicted: {reason}", named(&departure.report)));
        }
        self.count(&departure.report);
    }

    /// Records that the run waited for this reader.
    pub(super) fn waited(&mut self, report: &ReaderReport, time: Duration) {
        let account = self.account(report);
        account.add(Count::ReaderWaits, 1).add(Count::ReaderWaitedUs, time.as_micros() as u64);
        account.add(Count::ReaderUpstreamLost, 0);
        self.held = Some(account.subject.clone());
    }

    /// Records frames lost since the last call: they are charged to a reader that the run waited for.
    pub(super) fn record_upstream_loss(&mut self, frames: u64) {
        if let Some(subject) = self.held.take() {
            self.ledger.account(Stage::Reader, &subject).add(Count::ReaderUpstreamLost, frames);
        }
    }

    /// Adds the counters so far, including attached readers.
    pub(super) fn so_far(&self, present: &[ReaderReport], ledger: &mut Ledger) {
        self.clone().close(present, ledger);
    }

    /// Ends the accounts: adds all counters, including attached readers; returns the events.
    pub(super) fn close(mut self, present: &[ReaderReport], ledger: &mut Ledger) -> Vec<String> {
        present.iter().for_each(|report| self.count(report));
        if self.others > 0 {
            self.events.push(format!("{} more readers detached; their counters are summed", self.others));
        }
        if self.unlisted > 0 {
            self.events.push(format!("{} more readers were evicted", self.unlisted));
        }
        ledger.add_all(&self.ledger);
        self.events
    }

    fn count(&mut self, report: &ReaderReport) {
        let tally = &report.tally;
        let account = self.account(report);
        account.add(Count::ReaderReceived, tally.committed).add(Count::ReaderFinished, tally.finished);
        account.add(Count::ReaderReclaimed, tally.reclaimed).add(Count::ReaderOutstanding, tally.outstanding);
        account.add(Count::ReaderSkipped, tally.skipped_frames);
        let is_other = account.subject == OTHERS;
        self.others += u64::from(is_other);
    }

    fn account(&mut self, report: &ReaderReport) -> &mut Account {
        let name = named(report);
        let has_own = self.ledger.accounts().iter().any(|account| account.subject == name);
        let subject = if has_own || self.ledger.accounts().len() < OWN { &name } else { OTHERS };
        self.ledger.account(Stage::Reader, subject)
    }

    /// Records a noteworthy event.
    pub(super) fn report_event(&mut self, event: String) {
        if self.events.len() < EVENTS { self.events.push(event) } else { self.unlisted += 1 }
    }
}

/// Returns the name and the process ID of a reader.
pub(super) fn named(report: &ReaderReport) -> String {
    let who = &report.who;
    let name = if who.name.is_empty() { "reader" } else { &who.name };
    format!("{name} (pid {})", who.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Kind;
    use linerate_share::{ReaderIdentity, Tally};

    #[test]
    fn number_of_reader_accounts_is_bounded() {
        let mut accounts = Accounts::default();
        let tally = Tally { committed: 3, finished: 1, skipped_frames: 2, ..Tally::default() };
        let report = |pid: i32| {
            let who = ReaderIdentity { name: format!("{pid}").repeat(9), pid, uid: 0 };
            ReaderReport { reader: 0, who, lossless: false, tally }
        };
        for pid in 0..100_000 {
            accounts.record_departure(&Departure { report: report(pid), evict: Some("a test".into()) });
            accounts.record_departure(&Departure { report: report(7), evict: None });
        }
        accounts.waited(&report(99_999), Duration::from_secs(1));
        accounts.record_upstream_loss(5);
        let mut ledger = Ledger::new();
        let events = accounts.close(&[report(7)], &mut ledger);
        assert_eq!((ledger.accounts().len(), events.len()), (OWN + 1, EVENTS + 2));
        assert_eq!(ledger.sum(Stage::Reader, Kind::Received), 3 * 200_001);
        assert_eq!(ledger.account(Stage::Reader, &named(&report(7))).get(Count::ReaderFinished), 100_002);
        assert_eq!(ledger.account(Stage::Reader, OTHERS).get(Count::ReaderUpstreamLost), 5);
        assert!(events[EVENTS].starts_with("99744 more readers") && events[EVENTS + 1].starts_with("99744 more"));
        assert_eq!(ledger.imbalances(), []);
    }
}
