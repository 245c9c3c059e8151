//! The kernel's network stack: softirq budget, backlog and drops.

use super::finding::{Check, Finding, Machine};
use super::fix::Fix;
use crate::view::rates::counted;

pub(super) const CHECKS: &[Check] = &[
    Check::machine("softirq", softirq),
    Check::machine("budget", budget),
    Check::machine("backlog", backlog),
    Check::machine("busy-poll", busy_poll),
    Check::machine("buffers", buffers),
    Check::machine("firewall", firewall),
];

const BUDGET: &str = "proc/sys/net/core/netdev_budget";
const BUDGET_US: &str = "proc/sys/net/core/netdev_budget_usecs";
const BACKLOG: &str = "proc/sys/net/core/netdev_max_backlog";
/// Values to set where the current one is too low.
const MORE_BUDGET: i64 = 600;
const MORE_BUDGET_US: i64 = 8000;
const MORE_BACKLOG: i64 = 10_000;

/// Sums of `/proc/net/softnet_stat`: frames, drops at the backlog, turns that ended with work left (`time_squeeze`).
fn rows(machine: &Machine) -> Option<(u64, u64, u64)> {
    let table = machine.tree.text("proc/net/softnet_stat")?;
    let mut sum = (0, 0, 0);
    for row in table.lines() {
        let words: Vec<u64> = row.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok()).collect();
        if let [frames, dropped, squeezed, ..] = words[..] {
            sum = (sum.0 + frames, sum.1 + dropped, sum.2 + squeezed);
        }
    }
    Some(sum)
}

fn softirq(machine: &Machine) -> Option<Finding> {
    let (frames, dropped, squeezed) = rows(machine)?;
    let now = format!(
        "{} since boot, {dropped} dropped, budget exhausted {}",
        counted(frames, "packet"),
        counted(squeezed, "time")
    );
    Some(if dropped > 0 {
        Finding::warn(now, "the backlog of a processor was full: packets were dropped between driver and stack")
    } else {
        Finding::ok(now, "no backlog was full")
    })
}

/// Softirqs that ended with work left, below which their share is chance.
const LEAST_SQUEEZED: u64 = 100;

fn budget(machine: &Machine) -> Option<Finding> {
    let (frames, span) = (machine.tree.number(BUDGET)?, machine.tree.number(BUDGET_US)?);
    let (all, _, squeezed) = rows(machine).unwrap_or_default();
    let now = format!("{frames} packets or {span} us per softirq");
    // More than one per 10,000 packets, and more than a boot causes.
    let is_often = squeezed >= LEAST_SQUEEZED && squeezed * 10_000 > all.max(1);
    if frames >= MORE_BUDGET || !is_often {
        return Some(Finding::ok(now, "rarely exhausted"));
    }
    let why = "often exhausted: the card's ring fills until the next softirq";
    let mut finding = Finding::warn(now, why);
    for (file, at, more) in [(BUDGET, frames, MORE_BUDGET), (BUDGET_US, span, MORE_BUDGET_US)] {
        if at < more {
            finding = finding.fix(Fix::file(file, more.to_string()), None);
        }
    }
    Some(finding)
}

fn backlog(machine: &Machine) -> Option<Finding> {
    let most = machine.tree.number(BACKLOG)?;
    let (_, dropped, _) = rows(machine).unwrap_or_default();
    let now = format!("{most} packets per processor");
    Some(if dropped > 0 && most < MORE_BACKLOG {
        Finding::warn(now, "used by veth pairs, loopback and RPS; it was full since boot")
            .fix(Fix::file(BACKLOG, MORE_BACKLOG.to_string()), None)
    } else {
        Finding::ok(now, "used by veth pairs, loopback and RPS; it was not full")
    })
}

fn busy_poll(machine: &Machine) -> Option<Finding> {
    let span = |name: &str| machine.tree.number(&format!("proc/sys/net/core/{name}"));
    let (poll, read) = (span("busy_poll")?, span("busy_read")?);
    (poll > 0 || read > 0).then(|| {
        Finding::note(
            format!("busy_poll {poll} us, busy_read {read} us"),
            "waiting sockets poll the card's queues, which takes processor time from captures",
        )
        .remedy("sysctl -w net.core.busy_poll=0 net.core.busy_read=0")
    })
}

fn buffers(machine: &Machine) -> Option<Finding> {
    let size = |name: &str| machine.tree.number(&format!("proc/sys/net/core/{name}"));
    let (receive, options) = (size("rmem_max")?, size("optmem_max")?);
    let now = format!("rmem_max {receive}, optmem_max {options} bytes");
    Some(Finding::ok(
        now,
        "rings of packet: and xdp: do not count against rmem_max; filters of hundreds of terms count against optmem_max",
    ))
}

fn firewall(machine: &Machine) -> Option<Finding> {
    machine.tree.has("proc/net").then_some(())?;
    let tables = ["proc/net/ip_tables_names", "proc/net/ip6_tables_names"];
    let has_rules = tables.iter().any(|file| machine.tree.text(file).is_some_and(|names| !names.is_empty()));
    let now = if has_rules { "iptables tables are loaded" } else { "no iptables tables" };
    Some(Finding::ok(now, "iptables and nftables do not affect captures, which get packets before them"))
}
