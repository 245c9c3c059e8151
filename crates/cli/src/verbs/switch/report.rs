//! Report of a switch.

use super::Args;
use super::open::SwitchPorts;
use crate::exit::Exit;
use crate::verbs::decide::DecideSettings;
use crate::verbs::inline::report::{verdict_line, verdicts};
use crate::view::ledger::RunJson;
use crate::view::rates::{Rates, grouped};
use crate::view::table::table;
use linerate_burst::{Account, Count, Stage};
use linerate_engine::RunReport;
use linerate_engine::switching::{PortCounts, SwitchConsumer};
use linerate_switch::text::{show_actions, show_match};
use serde::Serialize;
use std::collections::BTreeMap;

/// Prints the report and returns the exit status.
pub(super) fn conclude(
    args: &Args,
    joined: &SwitchPorts,
    run: &RunReport,
    switching: &SwitchConsumer,
) -> anyhow::Result<Exit> {
    args.join.conclude(run, || summary(args, run, switching), || SwitchJson::new(args, joined, run, switching))
}

/// Returns the port counters as a table.
pub(super) fn ports_table(ports: &[PortCounts]) -> String {
    let mut rows = table(&["port", "name", "packets in", "bytes in", "packets out", "bytes out", "full", "down"], 2);
    for (number, port) in (1..).zip(ports) {
        let numbers =
            [port.received.frames, port.received.bytes, port.sent.frames, port.sent.bytes, port.full, port.down];
        let cells = [u64::to_string(&number), port.name.clone()].into_iter().chain(numbers.map(grouped));
        rows.add_row(cells);
    }
    format!("{rows}\n")
}

/// Returns the counters of a ring.
fn account_of<'a>(run: &'a RunReport, ring: &str) -> Option<&'a Account> {
    run.ledger.accounts().iter().find(|account| account.stage == Stage::Verdict && account.subject == ring)
}

fn summary(args: &Args, run: &RunReport, switching: &SwitchConsumer) -> String {
    let switch = switching.switch();
    let macs = switch.stations(switching.now()).len();
    let counted =
        |number: usize, what: &str| format!("{} {what}{}", grouped(number as u64), if number == 1 { "" } else { "s" });
    let rules = format!("  {}, {} learned\n", counted(switch.count(), "rule"), counted(macs, "MAC"));
    let rings = args.inspect.iter().map(|ring| format!("  {ring}: {}\n", verdict_line(account_of(run, ring))));
    ports_table(&switching.ports()) + &rules + &rings.collect::<String>()
}

/// `linerate/switch/1`.
#[derive(Serialize)]
struct SwitchJson {
    schema: &'static str,
    ports: Vec<PortJson>,
    rules: Vec<RuleJson>,
    engines: Vec<EngineJson>,
    macs: usize,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    #[serde(flatten)]
    run: RunJson,
}

#[derive(Serialize)]
struct PortJson {
    port: String,
    vlans: String,
    received: u64,
    received_bytes: u64,
    sent: u64,
    sent_bytes: u64,
    port_full: u64,
    port_down: u64,
}

#[derive(Serialize)]
struct RuleJson {
    priority: u16,
    cookie: u64,
    matches: String,
    actions: String,
    n_packets: u64,
    n_bytes: u64,
}

/// Ring of an engine.
#[derive(Serialize)]
struct EngineJson {
    #[serde(flatten)]
    said: DecideSettings,
    /// Frames by verdict.
    verdicts: BTreeMap<&'static str, u64>,
    /// Number of engines that attached.
    engines: u64,
}

impl SwitchJson {
    fn new(args: &Args, joined: &SwitchPorts, run: &RunReport, switching: &SwitchConsumer) -> Self {
        let (switch, counts) = (switching.switch(), switching.ports());
        let port = |((text, vlans), counts): ((String, &linerate_switch::PortVlans), &PortCounts)| PortJson {
            port: text,
            vlans: vlans.to_string(),
            received: counts.received.frames,
            received_bytes: counts.received.bytes,
            sent: counts.sent.frames,
            sent_bytes: counts.sent.bytes,
            port_full: counts.full,
            port_down: counts.down,
        };
        let rule = |installed: &linerate_switch::InstalledRule| RuleJson {
            priority: installed.rule.priority,
            cookie: installed.rule.cookie,
            matches: show_match(&installed.rule.matches),
            actions: show_actions(&installed.rule.actions, &args.inspect),
            n_packets: installed.frames,
            n_bytes: installed.bytes,
        };
        let engine = |ring: &String| {
            let account = account_of(run, ring);
            let engines = account.map_or(0, |account| account.get(Count::InlineEngines));
            EngineJson { said: args.decide.said(ring), verdicts: verdicts(account), engines }
        };
        let frames = run.ledger.sum(Stage::Send, linerate_burst::Kind::Delivered);
        let bytes = counts.iter().map(|port| port.sent.bytes).sum();
        let seconds = run.elapsed.as_secs_f64();
        SwitchJson {
            schema: "linerate/switch/1",
            ports: joined.texts().zip(switch.ports()).zip(&counts).map(port).collect(),
            rules: switch.rules().into_iter().map(rule).collect(),
            engines: args.inspect.iter().map(engine).collect(),
            macs: switch.stations(switching.now()).len(),
            frames,
            bytes,
            seconds,
            rates: Rates::new(frames, bytes, seconds),
            run: RunJson::new(run),
        }
    }
}
