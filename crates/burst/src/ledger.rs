//! The ledger: the counters of every stage, and the identity that they must satisfy.
//!
//! For each account (one stage of one subject, for example the receive ring of `packet:eth0@0`), `received = delivered
//! + refused + lost` is exact once the stage is quiesced; what one stage delivers, the next one receives.

use crate::counters::{Count, Kind, Stage, Unit};
use std::collections::BTreeMap;
use std::fmt;

/// The counters of one stage of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The owner stage.
    pub stage: Stage,
    /// The consumer that it belongs to, if several receive the same frames; empty for shared stages, and for a single
    /// consumer.
    pub branch: String,
    /// The owner of the counters: a port, a queue, a file.
    pub subject: String,
    counts: BTreeMap<Count, u64>,
}

impl Account {
    /// Adds to a counter. A zero is kept too: it shows that the counter was read.
    ///
    /// # Panics
    /// If the counter belongs to another stage: a programming error.
    pub fn add(&mut self, count: Count, frames: u64) -> &mut Self {
        assert_eq!(count.stage(), self.stage, "{count:?} belongs to another stage");
        let sum = self.counts.entry(count).or_default();
        // Saturating: a capture file may claim any number.
        *sum = sum.saturating_add(frames);
        self
    }

    /// Returns the value of a counter; 0 if it was never written.
    pub fn get(&self, count: Count) -> u64 {
        self.counts.get(&count).copied().unwrap_or(0)
    }

    /// Iterates over the counters that were written, with their values.
    pub fn counts(&self) -> impl Iterator<Item = (Count, u64)> + '_ {
        self.counts.iter().map(|(count, frames)| (*count, *frames))
    }

    /// Returns the sum of all counters of one kind.
    pub fn sum(&self, kind: Kind) -> u64 {
        self.counts().filter(|(count, _)| count.kind() == kind).map(|(_, frames)| frames).sum()
    }

    /// Returns the frames received that are neither delivered nor dropped: 0 once the stage is quiesced, the number in
    /// flight before that. An account without a received counter has no identity and returns 0.
    pub fn unaccounted(&self) -> i128 {
        if !self.counts().any(|(count, _)| count.kind() == Kind::Received) {
            return 0;
        }
        let sum = |kind| i128::from(self.sum(kind));
        sum(Kind::Received) - sum(Kind::Delivered) - sum(Kind::Refused) - sum(Kind::Lost)
    }
}

/// A counter of a driver, with the driver's own name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The owner of the counter: a port.
    pub subject: String,
    /// The driver's own name, as `ethtool -S` prints it.
    pub name: String,
    /// Growth while the port was open.
    pub value: u64,
}

/// All accounts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    accounts: Vec<Account>,
    details: Vec<Detail>,
    /// The branch of accounts opened from now on.
    branch: String,
}

/// A violation of the identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imbalance {
    /// One account received a different number than it delivered and dropped.
    Within {
        /// Stage of the account.
        stage: Stage,
        /// Subject of the account.
        subject: String,
        /// Frames, or other units of the stage, missing (positive) or surplus (negative).
        frames: i128,
    },
    /// A stage received a different number than the stage before it delivered.
    Between {
        /// The stage before.
        from: Stage,
        /// The stage after.
        to: Stage,
        /// Frames delivered by `from`.
        delivered: u64,
        /// Frames received by `to`.
        received: u64,
    },
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Imbalance::Within { stage, subject, frames } => {
                let (stage, unit) = (stage.name(), stage.unit().name());
                write!(f, "{stage} {subject}: {frames} {unit} received but neither delivered nor dropped")
            }
            Imbalance::Between { from, to, delivered, received } => {
                write!(f, "{} delivered {delivered} frames, {} received {received}", from.name(), to.name())
            }
        }
    }
}

impl Ledger {
    /// Returns a ledger without accounts.
    pub const fn new() -> Self {
        Ledger { accounts: Vec::new(), details: Vec::new(), branch: String::new() }
    }

    /// Makes accounts opened from now on belong to this consumer; an empty name stands for stages shared by all.
    pub fn set_branch(&mut self, branch: &str) {
        branch.clone_into(&mut self.branch);
    }

    /// Returns the account of a stage of a subject; opens it if it does not exist.
    pub fn account(&mut self, stage: Stage, subject: &str) -> &mut Account {
        let Ledger { accounts, branch, .. } = self;
        let is_it =
            |account: &Account| account.stage == stage && account.branch == *branch && account.subject == subject;
        let index = accounts.iter().position(is_it).unwrap_or_else(|| {
            let (branch, subject) = (self.branch.clone(), subject.to_owned());
            self.accounts.push(Account { stage, branch, subject, counts: BTreeMap::new() });
            self.accounts.len() - 1
        });
        &mut self.accounts[index]
    }

    /// Returns all accounts, in the order in which they were opened.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Adds all accounts and details of another ledger.
    pub fn add_all(&mut self, other: &Ledger) {
        let branch = self.branch.clone();
        for account in &other.accounts {
            if !account.branch.is_empty() {
                self.set_branch(&account.branch);
            }
            let own = self.account(account.stage, &account.subject);
            for (count, frames) in account.counts() {
                own.add(count, frames);
            }
            self.set_branch(&branch);
        }
        self.details.extend_from_slice(&other.details);
    }

    /// Counts an event of a whole port only once although each of its queues counts it: `counted` is the number that
    /// earlier queues have counted.
    pub fn count_once(&mut self, count: Count, counted: &mut u64) {
        for own in self.accounts.iter_mut().filter_map(|account| account.counts.get_mut(&count)) {
            let all = (*own).max(*counted);
            *own = all - *counted;
            *counted = all;
        }
    }

    /// Returns the counts since an earlier snapshot of the same run.
    #[must_use]
    pub fn since(&self, earlier: &Ledger) -> Ledger {
        let mut since = self.clone();
        for account in &earlier.accounts {
            since.set_branch(&account.branch);
            let own = since.account(account.stage, &account.subject);
            for (count, before) in account.counts() {
                let now = own.counts.entry(count).or_default();
                *now = now.saturating_sub(before);
            }
        }
        since.branch.clone_from(&self.branch);
        since
    }

    /// Adds a driver's own counter: for diagnosis, outside any identity.
    pub fn add_detail(&mut self, subject: &str, name: &str, value: u64) {
        self.details.push(Detail { subject: subject.to_owned(), name: name.to_owned(), value });
    }

    /// Returns the drivers' own counters.
    pub fn details(&self) -> &[Detail] {
        &self.details
    }

    /// Returns the sum of one kind over the accounts of one stage.
    pub fn sum(&self, stage: Stage, kind: Kind) -> u64 {
        self.accounts.iter().filter(|account| account.stage == stage).map(|account| account.sum(kind)).sum()
    }

    /// Returns the sum of one counter over all accounts.
    pub fn total(&self, count: Count) -> u64 {
        self.accounts.iter().map(|account| account.get(count)).sum()
    }

    /// Returns the frames lost, over all stages that count frames.
    pub fn lost(&self) -> u64 {
        self.accounts.iter().filter(|account| account.stage.unit() == Unit::Frames).map(|of| of.sum(Kind::Lost)).sum()
    }

    /// Returns every loss with its cause, greatest first, in any unit.
    pub fn losses(&self) -> Vec<(Count, u64)> {
        let mut losses: Vec<(Count, u64)> = Count::ALL
            .iter()
            .filter(|count| count.kind() == Kind::Lost)
            .map(|count| (*count, self.total(*count)))
            .filter(|(_, frames)| *frames > 0)
            .collect();
        losses.sort_by_key(|(_, frames)| std::cmp::Reverse(*frames));
        losses
    }

    /// Returns the violations of the identity: within accounts, and between a stage and the next one that has accounts.
    /// Each consumer receives all frames that were ordered, and each of its outputs all that the consumer selected.
    /// Exact once the run has quiesced.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        let within = self.accounts.iter().filter(|account| account.unaccounted() != 0).map(|account| {
            Imbalance::Within { stage: account.stage, subject: account.subject.clone(), frames: account.unaccounted() }
        });
        within.chain(self.imbalances_between()).collect()
    }

    fn imbalances_between(&self) -> Vec<Imbalance> {
        let mut found = Vec::new();
        let mut compare = |from, delivered, to, received| {
            if delivered != received {
                found.push(Imbalance::Between { from, to, delivered, received });
            }
        };
        let of = |stage| self.accounts.iter().filter(move |account| account.stage == stage);
        let mut last = of(Stage::Receive).next().map(|_| (Stage::Receive, self.sum(Stage::Receive, Kind::Delivered)));
        if of(Stage::Merge).next().is_some() {
            if let Some((from, delivered)) = last {
                compare(from, delivered, Stage::Merge, self.sum(Stage::Merge, Kind::Received));
            }
            last = Some((Stage::Merge, self.sum(Stage::Merge, Kind::Delivered)));
        }
        for (select, (from, delivered)) in of(Stage::Select).filter_map(|select| Some((select, last?))) {
            compare(from, delivered, Stage::Select, select.sum(Kind::Received));
        }
        for end in [Stage::Share, Stage::Write, Stage::Meter, Stage::Check].into_iter().flat_map(of) {
            let select = of(Stage::Select).find(|select| select.branch == end.branch);
            let before = select.map(|select| (Stage::Select, select.sum(Kind::Delivered))).or(last);
            // For a switch, frames of the ring are those that some rules send for inspection: compared below.
            let is_all = end.stage != Stage::Share || of(Stage::Switch).next().is_none();
            if let Some((from, delivered)) = before.filter(|_| is_all) {
                compare(from, delivered, end.stage, end.sum(Kind::Received));
            }
        }
        if of(Stage::Forward).next().is_some() {
            let sum = |stage, kind| self.sum(stage, kind);
            let (taken, handed) = (sum(Stage::Forward, Kind::Received), sum(Stage::Forward, Kind::Delivered));
            let (mut from, mut delivered) = (Stage::Receive, sum(Stage::Receive, Kind::Delivered));
            let (decides, switches) = (of(Stage::Verdict).next().is_some(), of(Stage::Switch).next().is_some());
            if decides && switches {
                // Frames go from the switch to the engine for a verdict, and return.
                let inspected = self.total(Count::SwitchInspected);
                let shared = inspected.saturating_sub(self.total(Count::InlineNoBlock));
                compare(Stage::Switch, inspected, Stage::Verdict, sum(Stage::Verdict, Kind::Received));
                compare(Stage::Verdict, shared, Stage::Share, sum(Stage::Share, Kind::Received));
                delivered += sum(Stage::Verdict, Kind::Delivered) + self.total(Count::SwitchInjected);
            } else if decides {
                compare(from, delivered, Stage::Verdict, sum(Stage::Verdict, Kind::Received));
                (from, delivered) = (Stage::Verdict, sum(Stage::Verdict, Kind::Delivered));
            }
            if switches {
                compare(from, delivered, Stage::Switch, sum(Stage::Switch, Kind::Received));
                (from, delivered) = (Stage::Switch, self.total(Count::SwitchCopies));
            }
            compare(from, delivered + self.total(Count::ForwardInjected), Stage::Forward, taken);
            compare(Stage::Forward, handed, Stage::Send, sum(Stage::Send, Kind::Received));
        }
        found
    }
}

#[cfg(test)]
mod tests;
