//! The ledger: every counter and drop reason, declared once, and the identity they must satisfy.
//!
//! A counter has one owner stage, one name and one sentence. Help, JSON, tables and docs come from the
//! table below. For each account (one stage of one subject, say the receive ring of `packet:eth0@0`),
//! `received = delivered + sum(drops)` is exact once the stage is quiesced; what one stage delivers, the
//! next one receives.

use std::collections::BTreeMap;
use std::fmt;

/// Where on the data path a counter is kept; in the order data takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// The network card or its driver.
    Nic,
    /// One queue of a receiving port.
    Receive,
    /// The merge of all lanes by time.
    Merge,
    /// Filter text and frame limits.
    Select,
    /// A file or other output.
    Write,
    /// One queue of a sending port.
    Send,
}

impl Stage {
    /// The name used in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Nic => "nic",
            Stage::Receive => "receive",
            Stage::Merge => "merge",
            Stage::Select => "select",
            Stage::Write => "write",
            Stage::Send => "send",
        }
    }
}

/// What a counter says about the frames it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They came in.
    Received,
    /// They were handed on.
    Delivered,
    /// They were not handed on, because the user asked for that.
    Refused,
    /// They were not handed on, and should have been: loss.
    Lost,
    /// Something worth knowing that is no part of the identity.
    Note,
}

macro_rules! counters {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $stage:ident, $kind:ident, $name:literal;)+) => {
        /// One counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Count { $($(#[doc = $sentence])+ $variant,)+ }

        impl Count {
            /// Every counter there is, in the order of the data path.
            pub const ALL: &'static [Count] = &[$(Count::$variant,)+];

            /// The name used in text and JSON; unique within its stage.
            pub fn name(self) -> &'static str {
                match self { $(Count::$variant => $name,)+ }
            }

            /// The stage that owns it.
            pub fn stage(self) -> Stage {
                match self { $(Count::$variant => Stage::$stage,)+ }
            }

            /// What it says about the frames it counts.
            pub fn kind(self) -> Kind {
                match self { $(Count::$variant => Kind::$kind,)+ }
            }

            /// One sentence for people.
            pub fn sentence(self) -> &'static str {
                match self { $(Count::$variant => concat!($($sentence),+).trim_ascii(),)+ }
            }
        }
    };
}

counters! {
    /// Frames the interface counted in while the port was open (rx_packets).
    NicReceived = Nic, Note, "received";
    /// Frames the card missed for lack of buffers while the port was open (rx_missed_errors): lost before any capture could see them.
    NicMissed = Nic, Lost, "nic_missed";
    /// Frames that arrived damaged while the port was open (rx_errors: bad FCS, wrong length).
    NicErrors = Nic, Lost, "nic_errors";
    /// Frames the driver or the network stack dropped on reception (rx_dropped); among them those that nothing but the capture wanted, so no loss by itself.
    NicDropped = Nic, Note, "rx_dropped";
    /// Frames the interface counted out while the port was open (tx_packets).
    NicSent = Nic, Note, "sent";
    /// Frames the driver dropped on transmission while the port was open (tx_dropped).
    NicSendDropped = Nic, Note, "tx_dropped";

    /// Frames that reached the queue, lost ones included.
    Received = Receive, Received, "received";
    /// Frames handed to the merge.
    Delivered = Receive, Delivered, "delivered";
    /// Frames that found the receive ring full: the reader was too slow or the ring too small.
    RingFull = Receive, Lost, "ring_full";
    /// Frames still unread when the run ended early.
    Unread = Receive, Refused, "unread";
    /// Frames whose place in the ring the kernel described wrongly; never seen on a sound kernel.
    BadRecord = Receive, Lost, "bad_record";
    /// Times the kernel stopped storing frames because every block was in use.
    Freezes = Receive, Note, "freezes";
    /// Frames that GRO or GSO had put together before the capture saw them.
    SuperFrames = Receive, Note, "super_frames";
    /// Frames whose VLAN tag was put back.
    VlanRestored = Receive, Note, "vlan_restored";
    /// Frames whose transport checksum the sender had left to hardware.
    ChecksumPartial = Receive, Note, "checksum_partial";
    /// Times the interface went down while the port was open.
    LinkDown = Receive, Note, "link_down";

    /// Frames taken from all lanes.
    MergeReceived = Merge, Received, "received";
    /// Frames emitted in time order.
    MergeDelivered = Merge, Delivered, "delivered";
    /// Frames older than what was already emitted; they are emitted at once and flagged, not dropped.
    Late = Merge, Note, "late";

    /// Frames looked at by the filter and the limits.
    SelectReceived = Select, Received, "received";
    /// Frames handed to the outputs.
    SelectDelivered = Select, Delivered, "delivered";
    /// Frames the filter text did not select.
    Filtered = Select, Refused, "filtered";
    /// Frames beyond the count or time asked for.
    PastLimit = Select, Refused, "past_limit";
    /// Frames cut to the snap length asked for; they are delivered.
    Sliced = Select, Note, "sliced";

    /// Frames handed to the output.
    WriteReceived = Write, Received, "received";
    /// Frames completely written.
    Written = Write, Delivered, "delivered";
    /// Frames not written because writing failed (disk full, reader of the pipe gone).
    WriteFailed = Write, Lost, "write_failed";
    /// Frames whose link type the file format cannot hold beside the one it began with.
    LinkTypeMixed = Write, Lost, "link_type_mixed";

    /// Frames handed to the queue.
    SendReceived = Send, Received, "received";
    /// Frames the kernel or the other end accepted.
    Sent = Send, Delivered, "delivered";
    /// Frames longer than the interface can send (MTU).
    TooLong = Send, Lost, "too_long";
    /// Frames shorter than a link header.
    TooShort = Send, Lost, "too_short";
    /// Frames of which the file holds only the beginning; they are not sent.
    SendTruncated = Send, Refused, "truncated";
    /// Frames the kernel refused for another reason.
    SendRefused = Send, Lost, "send_refused";
    /// Frames handed over that were not sent before the run ended.
    SendUnsent = Send, Refused, "unsent";
    /// Times the queue was full and sending had to wait.
    SendFull = Send, Note, "queue_full";
}

/// The counters of one stage of one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// The owner stage.
    pub stage: Stage,
    /// Whose counters these are: a port, a queue, a file.
    pub subject: String,
    counts: BTreeMap<Count, u64>,
}

impl Account {
    /// Adds to a counter. Zero is kept too: it says that the counter was looked at.
    ///
    /// # Panics
    /// If the counter belongs to another stage: a programming error.
    pub fn add(&mut self, count: Count, frames: u64) -> &mut Self {
        assert_eq!(count.stage(), self.stage, "{count:?} belongs to another stage");
        *self.counts.entry(count).or_default() += frames;
        self
    }

    /// What a counter holds; 0 where it was never written.
    pub fn get(&self, count: Count) -> u64 {
        self.counts.get(&count).copied().unwrap_or(0)
    }

    /// Each counter that was written, with its value.
    pub fn counts(&self) -> impl Iterator<Item = (Count, u64)> + '_ {
        self.counts.iter().map(|(count, frames)| (*count, *frames))
    }

    /// The sum of all counters of one kind.
    pub fn sum(&self, kind: Kind) -> u64 {
        self.counts().filter(|(count, _)| count.kind() == kind).map(|(_, frames)| frames).sum()
    }

    /// Frames that came in and are accounted for nowhere: 0 once the stage is quiesced, the number in
    /// flight before that. An account without a received counter has no identity and gives 0.
    pub fn unaccounted(&self) -> i128 {
        if !self.counts().any(|(count, _)| count.kind() == Kind::Received) {
            return 0;
        }
        let sum = |kind| i128::from(self.sum(kind));
        sum(Kind::Received) - sum(Kind::Delivered) - sum(Kind::Refused) - sum(Kind::Lost)
    }
}

/// A counter that only one driver knows, by the name it goes by there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// Whose counter: a port.
    pub subject: String,
    /// The driver's own name, as `ethtool -S` prints it.
    pub name: String,
    /// How much it grew while the port was open.
    pub value: u64,
}

/// All accounts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    accounts: Vec<Account>,
    details: Vec<Detail>,
}

/// A place where the ledger does not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imbalance {
    /// One account received something else than it delivered and dropped.
    Within {
        /// Which stage.
        stage: Stage,
        /// Whose account.
        subject: String,
        /// Frames missing (positive) or surplus (negative).
        frames: i128,
    },
    /// A stage received something else than the stage before it delivered.
    Between {
        /// The stage before.
        from: Stage,
        /// The stage after.
        to: Stage,
        /// Frames delivered by the one.
        delivered: u64,
        /// Frames received by the other.
        received: u64,
    },
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Imbalance::Within { stage, subject, frames } => {
                write!(f, "{} {subject}: {frames} frames received but neither delivered nor dropped", stage.name())
            }
            Imbalance::Between { from, to, delivered, received } => {
                write!(f, "{} delivered {delivered} frames, {} received {received}", from.name(), to.name())
            }
        }
    }
}

impl Ledger {
    /// A ledger without accounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The account of a stage of a subject, opened where there is none yet.
    pub fn account(&mut self, stage: Stage, subject: &str) -> &mut Account {
        let found = self.accounts.iter().position(|account| account.stage == stage && account.subject == subject);
        let index = found.unwrap_or_else(|| {
            self.accounts.push(Account { stage, subject: subject.to_owned(), counts: BTreeMap::new() });
            self.accounts.len() - 1
        });
        &mut self.accounts[index]
    }

    /// All accounts, in the order they were opened.
    pub fn accounts(&self) -> &[Account] {
        &self.accounts
    }

    /// Adds a driver's own counter: evidence for people, no part of any identity.
    pub fn add_detail(&mut self, subject: &str, name: &str, value: u64) {
        self.details.push(Detail { subject: subject.to_owned(), name: name.to_owned(), value });
    }

    /// The drivers' own counters.
    pub fn details(&self) -> &[Detail] {
        &self.details
    }

    /// The sum of one kind over the accounts of one stage.
    pub fn sum(&self, stage: Stage, kind: Kind) -> u64 {
        self.accounts.iter().filter(|account| account.stage == stage).map(|account| account.sum(kind)).sum()
    }

    /// The sum of one counter over all accounts.
    pub fn total(&self, count: Count) -> u64 {
        self.accounts.iter().map(|account| account.get(count)).sum()
    }

    /// Frames lost, over all stages: what should have been delivered and was not.
    pub fn lost(&self) -> u64 {
        self.accounts.iter().map(|account| account.sum(Kind::Lost)).sum()
    }

    /// Every loss with its cause, greatest first: (stage, counter, frames).
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

    /// Where the identity does not hold: within accounts, and between a stage and the next one that has
    /// accounts. `Write` accounts each receive all that was selected. Exact once the run has quiesced.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        let within = self.accounts.iter().filter(|account| account.unaccounted() != 0).map(|account| {
            Imbalance::Within { stage: account.stage, subject: account.subject.clone(), frames: account.unaccounted() }
        });
        within.chain(self.imbalances_between()).collect()
    }

    fn imbalances_between(&self) -> Vec<Imbalance> {
        let path = [Stage::Receive, Stage::Merge, Stage::Select];
        let present: Vec<Stage> =
            path.into_iter().filter(|stage| self.accounts.iter().any(|account| account.stage == *stage)).collect();
        let mut found = Vec::new();
        let mut compare = |from, to, delivered, received| {
            if delivered != received {
                found.push(Imbalance::Between { from, to, delivered, received });
            }
        };
        for pair in present.windows(2) {
            compare(pair[0], pair[1], self.sum(pair[0], Kind::Delivered), self.sum(pair[1], Kind::Received));
        }
        if let Some(last) = present.last() {
            for account in self.accounts.iter().filter(|account| account.stage == Stage::Write) {
                compare(*last, Stage::Write, self.sum(*last, Kind::Delivered), account.sum(Kind::Received));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_counter_is_named_once_and_described() {
        let mut names = HashSet::new();
        for count in Count::ALL {
            assert!(names.insert((count.stage(), count.name())), "{count:?} shares its name");
            assert!(count.name().chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{count:?}");
            let sentence = count.sentence();
            assert!(
                sentence.ends_with('.') && sentence.len() > 20 && !sentence.contains("  "),
                "{count:?}: {sentence:?}"
            );
        }
    }

    #[test]
    fn the_identity_finds_a_frame_that_vanished() {
        let mut ledger = Ledger::new();
        ledger.account(Stage::Receive, "a").add(Count::Received, 10).add(Count::Delivered, 8).add(Count::RingFull, 2);
        ledger.account(Stage::Merge, "").add(Count::MergeReceived, 8).add(Count::MergeDelivered, 8);
        ledger.account(Stage::Write, "f").add(Count::WriteReceived, 8).add(Count::Written, 8);
        assert_eq!(ledger.imbalances(), []);
        assert_eq!((ledger.lost(), ledger.losses()), (2, vec![(Count::RingFull, 2)]));

        ledger.account(Stage::Receive, "a").add(Count::Received, 1);
        let within = Imbalance::Within { stage: Stage::Receive, subject: "a".into(), frames: 1 };
        assert_eq!(ledger.imbalances(), [within]);

        ledger.account(Stage::Receive, "a").add(Count::Delivered, 1);
        let between = Imbalance::Between { from: Stage::Receive, to: Stage::Merge, delivered: 9, received: 8 };
        assert_eq!(ledger.imbalances(), [between]);
    }

    #[test]
    #[should_panic(expected = "another stage")]
    fn a_counter_stays_with_its_stage() {
        Ledger::new().account(Stage::Nic, "a").add(Count::Late, 1);
    }
}
