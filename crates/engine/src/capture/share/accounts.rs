//! What became of the frames for each reader, and what each has cost. Readers may come and go without end: beyond so many of
//! them, and so many events, there are sums.

use linerate_burst::{Account, Count, Ledger, Stage};
use linerate_share::{Departure, Report};
use std::time::Duration;

/// Readers with an account of their own.
const OWN: usize = 256;
/// Events told one by one.
const EVENTS: usize = 256;
/// The account of all others.
const OTHERS: &str = "all other readers";

/// The accounts of all readers of a run.
#[derive(Clone, Default)]
pub(super) struct Accounts {
    ledger: Ledger,
    /// Departures of those without an account of their own.
    others: u64,
    /// The account of the reader that held everybody up since losses were last looked at.
    held: Option<String>,
    events: Vec<String>,
    untold: u64,
}

impl Accounts {
    /// A reader is gone.
    pub(super) fn departed(&mut self, departure: &Departure) {
        if let Some(reason) = &departure.evict {
            self.tell(format!("{} was evicted: {reason}", named(&departure.report)));
        }
        self.count(&departure.report);
    }

    /// Everybody has waited for this reader.
    pub(super) fn waited(&mut self, report: &Report, time: Duration) {
        let account = self.account(report);
        account.add(Count::ReaderWaits, 1).add(Count::ReaderWaitedUs, time.as_micros() as u64);
        account.add(Count::ReaderLost, 0);
        self.held = Some(account.subject.clone());
    }

    /// So many frames were lost since this was last told: if everybody waited for a reader meanwhile, that is why.
    pub(super) fn lost_meanwhile(&mut self, frames: u64) {
        if let Some(subject) = self.held.take() {
            self.ledger.account(Stage::Reader, &subject).add(Count::ReaderLost, frames);
        }
    }

    /// Adds what was counted so far, with the readers that are there.
    pub(super) fn so_far(&self, present: &[Report], ledger: &mut Ledger) {
        self.clone().close(present, ledger);
    }

    /// The run is over: adds all that was counted, with the readers that are still there; the events.
    pub(super) fn close(mut self, present: &[Report], ledger: &mut Ledger) -> Vec<String> {
        present.iter().for_each(|report| self.count(report));
        if self.others > 0 {
            self.events.push(format!("{} more readers came and went; what became of them is one sum", self.others));
        }
        if self.untold > 0 {
            self.events.push(format!("{} more readers were evicted", self.untold));
        }
        ledger.add_all(&self.ledger);
        self.events
    }

    fn count(&mut self, report: &Report) {
        let tally = &report.tally;
        let account = self.account(report);
        account.add(Count::ReaderReceived, tally.committed).add(Count::ReaderFinished, tally.finished);
        account.add(Count::ReaderReclaimed, tally.reclaimed).add(Count::ReaderOutstanding, tally.outstanding);
        account.add(Count::ReaderSkipped, tally.skipped_frames);
        let is_other = account.subject == OTHERS;
        self.others += u64::from(is_other);
    }

    fn account(&mut self, report: &Report) -> &mut Account {
        let name = named(report);
        let has_own = self.ledger.accounts().iter().any(|account| account.subject == name);
        let subject = if has_own || self.ledger.accounts().len() < OWN { &name } else { OTHERS };
        self.ledger.account(Stage::Reader, subject)
    }

    /// Something noteworthy.
    pub(super) fn tell(&mut self, event: String) {
        if self.events.len() < EVENTS { self.events.push(event) } else { self.untold += 1 }
    }
}

fn named(report: &Report) -> String {
    let who = &report.who;
    let name = if who.name.is_empty() { "reader" } else { &who.name };
    format!("{name} (pid {})", who.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Kind;
    use linerate_share::{Tally, Who};

    #[test]
    fn readers_without_end_have_accounts_with_an_end() {
        let mut accounts = Accounts::default();
        let tally = Tally { committed: 3, finished: 1, skipped_frames: 2, ..Tally::default() };
        let report = |pid: i32| {
            let who = Who { name: format!("{pid}").repeat(9), pid, uid: 0 };
            Report { reader: 0, who, lossless: false, tally }
        };
        for pid in 0..100_000 {
            accounts.departed(&Departure { report: report(pid), evict: Some("a test".into()) });
            accounts.departed(&Departure { report: report(7), evict: None });
        }
        accounts.waited(&report(99_999), Duration::from_secs(1));
        accounts.lost_meanwhile(5);
        let mut ledger = Ledger::new();
        let events = accounts.close(&[report(7)], &mut ledger);
        assert_eq!((ledger.accounts().len(), events.len()), (OWN + 1, EVENTS + 2));
        assert_eq!(ledger.sum(Stage::Reader, Kind::Received), 3 * 200_001);
        assert_eq!(ledger.account(Stage::Reader, &named(&report(7))).get(Count::ReaderFinished), 100_002);
        assert_eq!(ledger.account(Stage::Reader, OTHERS).get(Count::ReaderLost), 5);
        assert!(events[EVENTS].starts_with("99744 more readers") && events[EVENTS + 1].starts_with("99744 more"));
        assert_eq!(ledger.imbalances(), []);
    }
}
