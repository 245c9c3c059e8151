//! Report of an inline run.

use super::{Args, DecideSettings};
use crate::exit::Exit;
use crate::view::ledger::RunJson;
use crate::view::rates::{Rates, grouped, totals};
use linerate_burst::{Account, Count, Stage};
use linerate_engine::RunReport;
use linerate_port::{Sent, Spec};
use serde::Serialize;
use std::collections::BTreeMap;

/// Reported verdict counters.
const REPORTED: [Count; 14] = [
    Count::VerdictReceived,
    Count::InlinePassed,
    Count::InlineReplaced,
    Count::InlineBlocked,
    Count::InlinePolicyPassed,
    Count::InlinePolicyDropped,
    Count::InlineUnfit,
    Count::InlineNoBlock,
    Count::InlineNoEngine,
    Count::InlineOverload,
    Count::InlineHeldTooLong,
    Count::InlineHeld,
    Count::InlineListed,
    Count::InlineLate,
];

/// Prints the report, and returns the exit status.
pub(super) fn conclude(args: &Args, specs: &[Spec; 2], run: &RunReport, sent: [Sent; 2]) -> anyhow::Result<Exit> {
    args.join.conclude(run, || summary(specs, run, sent), || InlineJson::new(args.said(), specs, run, sent))
}

fn summary(specs: &[Spec; 2], run: &RunReport, sent: [Sent; 2]) -> String {
    let mut text = String::new();
    for (direction, (from, to, account)) in ways(specs, run).enumerate() {
        let Sent { frames, bytes } = sent[direction];
        text += &format!("{from} -> {to}: {}\n", totals("forwarded", frames, bytes, bytes, run.elapsed.as_secs_f64()));
        text += &format!("  {}\n", verdict_line(account));
    }
    text
}

/// Describes the verdict counters in a line.
pub(crate) fn verdict_line(account: Option<&Account>) -> String {
    let counts = REPORTED.iter().filter_map(|count| {
        let frames = account.map_or(0, |account| account.get(*count));
        (frames > 0).then(|| format!("{} {}", grouped(frames), count.name()))
    });
    let counts: Vec<String> = counts.collect();
    if counts.is_empty() { "no packets received".into() } else { counts.join(", ") }
}

/// Returns the verdict counters by name.
pub(crate) fn verdicts(account: Option<&Account>) -> BTreeMap<&'static str, u64> {
    REPORTED.iter().map(|count| (count.name(), account.map_or(0, |of| of.get(*count)))).collect()
}

/// Returns both directions, with their verdict counters.
fn ways<'a>(
    [one, other]: &'a [Spec; 2],
    run: &'a RunReport,
) -> impl Iterator<Item = (&'a Spec, &'a Spec, Option<&'a Account>)> {
    let mut accounts = run.ledger.accounts().iter().filter(|account| account.stage == Stage::Verdict);
    [(one, other), (other, one)].into_iter().map(move |(from, to)| (from, to, accounts.next()))
}

/// `linerate/inline/1`.
#[derive(Serialize)]
struct InlineJson {
    schema: &'static str,
    ports: Vec<String>,
    #[serde(flatten)]
    said: DecideSettings,
    directions: Vec<InlineDirectionJson>,
    engines: u64,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    run: RunJson,
}

#[derive(Serialize)]
struct InlineDirectionJson {
    from: String,
    to: String,
    /// Packets by verdict.
    verdicts: BTreeMap<&'static str, u64>,
    frames: u64,
    bytes: u64,
    #[serde(flatten)]
    rates: Rates,
}

impl InlineJson {
    fn new(said: DecideSettings, specs: &[Spec; 2], run: &RunReport, sent: [Sent; 2]) -> Self {
        let seconds = run.elapsed.as_secs_f64();
        let way = |((from, to, account), Sent { frames, bytes }): ((&Spec, &Spec, Option<&Account>), Sent)| {
            InlineDirectionJson {
                from: from.to_string(),
                to: to.to_string(),
                verdicts: verdicts(account),
                frames,
                bytes,
                rates: Rates::new(frames, bytes, seconds),
            }
        };
        InlineJson {
            schema: "linerate/inline/1",
            ports: specs.iter().map(ToString::to_string).collect(),
            said,
            directions: ways(specs, run).zip(sent).map(way).collect(),
            engines: run.ledger.total(Count::InlineEngines),
            frames: sent.iter().map(|sent| sent.frames).sum(),
            bytes: sent.iter().map(|sent| sent.bytes).sum(),
            seconds,
            run: RunJson::new(run),
        }
    }
}
