//! The ledger, for people and as JSON.

use crate::view::live::was_printed;
use crate::view::rates::{counted, grouped};
use crate::view::table::table;
use crate::view::terminal::shown;
use linerate_burst::{Account, Count, Kind, Ledger, Stage, Unit};
use linerate_engine::Received;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the one line leaves out: a summary has it anyway, or it is what a limit was asked for.
const OMITTED: [Count; 7] = [
    Count::Late,
    Count::PastLimit,
    Count::ExportFiles,
    Count::ExportRecords,
    Count::ExportMessages,
    Count::WriteFiles,
    Count::FilesRemoved,
];

/// The ledger as JSON; every count is in frames unless its name, or its stage, says otherwise.
#[derive(Debug, Serialize)]
pub struct LedgerJson {
    /// Frames lost, over all stages.
    pub lost: u64,
    /// Every reason for which frames were not delivered, with the frames; zeros are left out.
    pub drops: BTreeMap<String, u64>,
    /// Whether every packet that was counted is accounted for.
    pub balanced: bool,
    /// Where it is not.
    pub imbalances: Vec<String>,
    /// Each stage of each port, queue and output, in the order of the data path.
    pub accounts: Vec<AccountJson>,
    /// Counters of the drivers, under their own names, that grew.
    pub driver: Vec<DriverJson>,
}

/// One account.
#[derive(Debug, Serialize)]
pub struct AccountJson {
    stage: &'static str,
    /// Which of several consumers it belongs to.
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

/// How a run that received has ended, as JSON.
#[derive(Debug, Serialize)]
pub struct RunJson {
    quiesced: bool,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl RunJson {
    /// All of it.
    pub fn new(run: &Received) -> Self {
        RunJson {
            quiesced: run.quiesced,
            events: run.events.clone(),
            failure: run.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&run.ledger),
        }
    }
}

/// How a run that received has ended, for people, around what came of it.
pub fn run(run: &Received, body: &str, is_whole: bool) -> String {
    events(&run.events, run.failure.as_ref()) + body + &print(&run.ledger, run.quiesced, is_whole)
}

impl LedgerJson {
    /// The ledger of a run that has ended.
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

/// Events, one line each, without those that were printed when they happened, and without the failure: it has a line of its own
/// after all others.
pub fn events(events: &[String], failure: Option<&impl ToString>) -> String {
    let failure = failure.map(ToString::to_string);
    let left = events.iter().filter(|event| Some(*event) != failure.as_ref() && !was_printed(event));
    left.map(|event| format!("  {}\n", shown(event))).collect()
}

/// Whether the run failed before there was a frame: then why says it all.
pub fn is_void(ledger: &Ledger, failure: Option<&impl ToString>) -> bool {
    failure.is_some() && ledger.accounts().iter().all(|account| account.sum(Kind::Received) == 0)
}

/// The ledger as lines for people: whole if that is asked for, or something was lost; else a line of it.
pub fn print(ledger: &Ledger, quiesced: bool, is_whole: bool) -> String {
    let is_even = quiesced && ledger.lost() == 0 && ledger.imbalances().is_empty();
    if is_even && !is_whole { line(ledger) } else { whole(ledger, quiesced) }
}

/// How many packets there were, what was filtered of them and what else there is to report, by name.
fn line(ledger: &Ledger) -> String {
    // Cards count all that passes through them.
    let accounts = || ledger.accounts().iter().filter(|account| account.stage != Stage::Nic);
    let sum = |stage, kind| accounts().filter(|one| one.stage == stage).map(|one| one.sum(kind)).sum::<u64>();
    let first = accounts().next().map(|account| account.stage);
    let number = match (accounts().find(|account| account.stage == Stage::Select), first) {
        // Several consumers select from the same packets; the first one is what the run is for.
        (Some(select), _) => format!("{} captured", counted(select.sum(Kind::Delivered), "packet")),
        (None, Some(stage @ Stage::Send)) => format!("{} sent", counted(sum(stage, Kind::Delivered), "packet")),
        (None, Some(stage)) => {
            let thing = if stage.unit() == Unit::Records { "record" } else { "packet" };
            format!("{} received", counted(sum(stage, Kind::Received), thing))
        }
        (None, None) => "0 packets".into(),
    };
    let mut named: Vec<(&str, u64)> = Vec::new();
    for account in accounts() {
        let counts = account.counts().filter(|(count, number)| {
            let is_named = matches!(count.kind(), Kind::Refused | Kind::Note) && *count != Count::FilterUncounted;
            *number > 0 && is_named && !OMITTED.contains(count)
        });
        for (count, number) in counts {
            match named.iter_mut().find(|(known, _)| *known == count.name()) {
                Some((_, sum)) => *sum += number,
                None => named.push((count.name(), number)),
            }
        }
    }
    let named: Vec<String> = named.iter().map(|(name, number)| format!("{name} {}", grouped(*number))).collect();
    let named = Some(named.join(", ")).filter(|named| !named.is_empty());
    let remarks: Vec<String> = uncounted(ledger).map(str::to_owned).into_iter().chain(named).collect();
    let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join("; ")) };
    format!("  {number}, 0 lost{remarks}\n")
}

/// What no counter includes.
fn uncounted(ledger: &Ledger) -> Option<&'static str> {
    (ledger.total(Count::FilterUncounted) > 0).then_some("filtered in the kernel, not counted")
}

/// A table, then what explains it.
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

/// Whose account it is: a port, a file, or one of several consumers of the same frames.
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
    let cause = if quiesced { "this is a bug" } else { "frames were still in flight when the run ended" };
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

/// Drops by name, and notes, as far as they are not zero.
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
