//! Packet accounting as text and JSON.

use crate::view::live::was_printed;
use crate::view::rates::{counted, grouped};
use crate::view::table::table;
use crate::view::terminal::shown;
use linerate_burst::{Account, Count, Kind, Ledger, Stage, Unit};
use linerate_engine::RunReport;
use serde::Serialize;
use std::collections::BTreeMap;

/// Counters omitted in the short form: the summary has them, or they follow from a requested limit.
const OMITTED: [Count; 8] = [
    Count::FileSeen,
    Count::Late,
    Count::PastLimit,
    Count::ExportFiles,
    Count::ExportRecords,
    Count::ExportMessages,
    Count::WriteFiles,
    Count::FilesRemoved,
];

/// The accounting as JSON; counts are in packets unless their name or stage has another unit.
#[derive(Debug, Serialize)]
pub struct LedgerJson {
    /// Packets lost in all stages.
    pub lost: u64,
    /// Packets not delivered, by reason; zeros are omitted.
    pub drops: BTreeMap<String, u64>,
    /// True if every counted packet is accounted for.
    pub balanced: bool,
    /// Accounts that do not balance.
    pub imbalances: Vec<String>,
    /// Accounts of each stage of each port, queue and output, in the order of the data path.
    pub accounts: Vec<AccountJson>,
    /// Driver counters that increased, under their own names.
    pub driver: Vec<DriverJson>,
}

/// One account.
#[derive(Debug, Serialize)]
pub struct AccountJson {
    stage: &'static str,
    /// Consumer, if there are several.
    #[serde(skip_serializing_if = "String::is_empty")]
    consumer: String,
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delivered: Option<u64>,
    drops: BTreeMap<&'static str, u64>,
    notes: BTreeMap<&'static str, u64>,
}

/// A driver's own counter.
#[derive(Debug, Serialize)]
pub struct DriverJson {
    port: String,
    name: String,
    value: u64,
}

/// Result of a receiving run as JSON.
#[derive(Debug, Serialize)]
pub struct RunJson {
    quiesced: bool,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl RunJson {
    /// Creates it from a run.
    pub fn new(run: &RunReport) -> Self {
        RunJson {
            quiesced: run.quiesced,
            events: run.events.clone(),
            failure: run.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&run.ledger),
        }
    }
}

/// Returns the report of a receiving run: events, `body`, and accounting.
pub fn run(run: &RunReport, body: &str, is_whole: bool) -> String {
    events(&run.events, run.failure.as_ref()) + body + &print(&run.ledger, run.quiesced, is_whole)
}

/// Returns the report of a run that checks streams: `body` has their losses, the accounting those of this host.
pub fn checked(run: &RunReport, body: &str, is_whole: bool) -> String {
    let accounting = if is_short(&run.ledger, run.quiesced, is_whole) {
        line(&run.ledger, NOT_DROPPED)
    } else {
        whole(&run.ledger, run.quiesced)
    };
    events(&run.events, run.failure.as_ref()) + body + &accounting
}

impl LedgerJson {
    /// Creates it from the accounting of a finished run.
    pub fn new(ledger: &Ledger) -> Self {
        let mut drops = BTreeMap::new();
        for account in ledger.accounts().iter().filter(|account| account.stage.unit() == Unit::Frames) {
            for (count, frames) in account.counts().filter(|(count, frames)| is_drop(count.kind()) && *frames > 0) {
                *drops.entry(count.name().to_owned()).or_default() += frames;
            }
        }
        let imbalances: Vec<String> = ledger.imbalances().iter().map(ToString::to_string).collect();
        LedgerJson {
            lost: ledger.lost(),
            drops,
            balanced: imbalances.is_empty(),
            imbalances,
            accounts: ledger.accounts().iter().map(account_json).collect(),
            driver: ledger
                .details()
                .iter()
                .map(|detail| DriverJson {
                    port: detail.subject.clone(),
                    name: detail.name.clone(),
                    value: detail.value,
                })
                .collect(),
        }
    }
}

/// Fate of packets that may be lost elsewhere.
const NOT_DROPPED: &str = "none dropped by this host";

/// Returns events, one line each, without those that were already printed, and without the failure, which is printed last.
pub fn events(events: &[String], failure: Option<&impl ToString>) -> String {
    let failure = failure.map(ToString::to_string);
    let left = events.iter().filter(|event| Some(*event) != failure.as_ref() && !was_printed(event));
    left.map(|event| format!("  {}\n", shown(event))).collect()
}

/// Returns whether the run failed before the first packet: then only the reason is printed.
pub fn is_void(ledger: &Ledger, failure: Option<&impl ToString>) -> bool {
    failure.is_some() && ledger.accounts().iter().all(|account| account.sum(Kind::Received) == 0)
}

/// Returns the accounting as text: the whole table if requested or if packets were lost, else one line.
pub fn print(ledger: &Ledger, quiesced: bool, is_whole: bool) -> String {
    if !is_short(ledger, quiesced, is_whole) {
        return whole(ledger, quiesced);
    }
    // Only a receiver knows whether packets that were sent are lost.
    let sends = ledger.accounts().iter().find(|account| account.stage != Stage::Nic).map(|first| first.stage);
    line(ledger, if sends == Some(Stage::Send) { NOT_DROPPED } else { "0 lost" })
}

fn is_short(ledger: &Ledger, quiesced: bool, is_whole: bool) -> bool {
    !is_whole && quiesced && ledger.lost() == 0 && ledger.imbalances().is_empty()
}

/// Returns the number of packets, and counters of filtered packets and notes by name; `fate` states that none was lost.
fn line(ledger: &Ledger, fate: &str) -> String {
    // Cards count all packets that pass through them.
    let accounts = || ledger.accounts().iter().filter(|account| account.stage != Stage::Nic);
    let sum = |stage, kind| accounts().filter(|one| one.stage == stage).map(|one| one.sum(kind)).sum::<u64>();
    let first = accounts().next().map(|account| account.stage);
    let mut ports = accounts().filter(|account| account.stage == Stage::Receive).peekable();
    let are_files = ports.peek().is_some() && ports.all(|account| account.subject.starts_with("pcap:"));
    let captured = if are_files { "read" } else { "captured" };
    let number = match (accounts().find(|account| account.stage == Stage::Select), first) {
        // Several consumers select from the same packets; the first one is the main one.
        (Some(select), _) if are_files && select.sum(Kind::Refused) > select.get(Count::PastLimit) => {
            // Up to the last one that -c allows.
            let all = counted(select.sum(Kind::Received) - select.get(Count::PastLimit), "packet");
            format!("{} of {all} selected", grouped(select.sum(Kind::Delivered)))
        }
        (Some(select), _) => format!("{} {captured}", counted(select.sum(Kind::Delivered), "packet")),
        (None, Some(stage @ Stage::Send)) => format!("{} sent", counted(sum(stage, Kind::Delivered), "packet")),
        (None, Some(stage)) => {
            let thing = if stage.unit() == Unit::Records { "record" } else { "packet" };
            format!("{} received", counted(sum(stage, Kind::Received), thing))
        }
        (None, None) => "0 packets".into(),
    };
    let (uncounted, named) = (uncounted(ledger).map(str::to_owned), Some(named(ledger)));
    let remarks: Vec<String> = [uncounted, named].into_iter().flatten().filter(|remark| !remark.is_empty()).collect();
    let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
    format!("  {number}, {fate}{remarks}\n")
}

/// Returns counters of filtered packets and notes by name, such as `filtered 3, duplicate 1; notes: gaps 2`.
pub fn named(ledger: &Ledger) -> String {
    let (drops, notes) = (named_of(ledger, Kind::Refused), named_of(ledger, Kind::Note));
    let notes = if notes.is_empty() { notes } else { format!("notes: {notes}") };
    [drops, notes].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
}

/// Returns the counters of a kind by name.
fn named_of(ledger: &Ledger, kind: Kind) -> String {
    let mut named: Vec<(&str, u64)> = Vec::new();
    for account in ledger.accounts().iter().filter(|account| account.stage != Stage::Nic) {
        let counts = account.counts().filter(|(count, number)| {
            *number > 0 && count.kind() == kind && *count != Count::FilterUncounted && !OMITTED.contains(count)
        });
        for (count, number) in counts {
            match named.iter_mut().find(|(known, _)| *known == count.name()) {
                Some((_, sum)) => *sum += number,
                None => named.push((count.name(), number)),
            }
        }
    }
    named.iter().map(|(name, number)| format!("{name} {}", grouped(*number))).collect::<Vec<_>>().join(", ")
}

/// Returns a note about packets that no counter includes.
fn uncounted(ledger: &Ledger) -> Option<&'static str> {
    (ledger.total(Count::FilterUncounted) > 0).then_some("filtered in the kernel, not counted")
}

/// Returns the whole table, with explanations.
fn whole(ledger: &Ledger, quiesced: bool) -> String {
    let mut rows = table(&["stage", "of", "received", "delivered", "refused", "lost", ""], 2);
    for account in ledger.accounts() {
        rows.add_row([
            account.stage.name().to_owned(),
            subject(account),
            number(account, Kind::Received, None),
            number(account, Kind::Delivered, None),
            number(account, Kind::Refused, None),
            number(account, Kind::Lost, None),
            remarks(account),
        ]);
    }
    rows.set_left(6);
    let mut text = format!("{rows}\n");
    for detail in ledger.details() {
        text += &format!("  driver of {}: {} {}\n", shown(&detail.subject), shown(&detail.name), grouped(detail.value));
    }
    for (count, frames) in ledger.losses() {
        text += &format!("  lost {} {}: {}\n", grouped(frames), count.name(), count.sentence());
    }
    text + &verdict(ledger, quiesced)
}

/// Returns the subject of an account: a port, a file, or one of several consumers of the same packets.
fn subject(account: &Account) -> String {
    [account.branch.as_str(), account.subject.as_str()]
        .iter()
        .filter(|name| !name.is_empty())
        .copied()
        .collect::<Vec<_>>()
        .join(" ")
}

fn verdict(ledger: &Ledger, quiesced: bool) -> String {
    let imbalances = ledger.imbalances();
    if imbalances.is_empty() {
        let uncounted = uncounted(ledger).map_or_else(String::new, |what| format!("; {what}"));
        return format!("  received = delivered + refused + lost at each stage{uncounted}\n");
    }
    let cause = if quiesced { "this is a bug" } else { "packets were still in flight at the end of the run" };
    let lines =
        imbalances.iter().map(|imbalance| format!("  NOT BALANCED ({cause}): {}\n", shown(&imbalance.to_string())));
    lines.collect()
}

fn is_drop(kind: Kind) -> bool {
    matches!(kind, Kind::Refused | Kind::Lost)
}

fn number(account: &Account, kind: Kind, missing: Option<&str>) -> String {
    if account.counts().any(|(count, _)| count.kind() == kind) {
        grouped(account.sum(kind))
    } else {
        missing.unwrap_or("").to_owned()
    }
}

/// Returns non-zero drops and notes by name.
fn remarks(account: &Account) -> String {
    let named = account
        .counts()
        .filter(|(count, frames)| *frames > 0 && (is_drop(count.kind()) || count.kind() == Kind::Note))
        .map(|(count, frames)| format!("{} {}", count.name(), grouped(frames)));
    named.collect::<Vec<_>>().join(", ")
}

fn account_json(account: &Account) -> AccountJson {
    let one = |kind| account.counts().any(|(count, _)| count.kind() == kind).then(|| account.sum(kind));
    let named = |wanted: fn(Kind) -> bool| {
        account.counts().filter(|(count, _)| wanted(count.kind())).map(|(count, n)| (count.name(), n)).collect()
    };
    AccountJson {
        stage: account.stage.name(),
        consumer: account.branch.clone(),
        subject: account.subject.clone(),
        received: one(Kind::Received),
        delivered: one(Kind::Delivered),
        drops: named(is_drop),
        notes: named(|kind| kind == Kind::Note),
    }
}
