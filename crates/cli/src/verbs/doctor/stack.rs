//! The kernel's network stack: how long it works at a time, how much it puts aside, what it has dropped.

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
/// What is set where the kernel's own is too little.
const MORE_BUDGET: i64 = 600;
const MORE_BUDGET_US: i64 = 8000;
const MORE_BACKLOG: i64 = 10_000;

/// Rows of `/proc/net/softnet_stat`, a processor each: frames, dropped at the backlog, ends of a turn with work left.
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
        "{} since the start, {dropped} dropped, {} ended with work left",
        counted(frames, "frame"),
        counted(squeezed, "turn")
    );
    Some(if dropped > 0 {
        Finding::warn(now, "frames were lost between the driver and the stack: the backlog of a processor was full")
    } else {
        Finding::ok(now, "no backlog was full")
    })
}

fn budget(machine: &Machine) -> Option<Finding> {
    let (frames, span) = (machine.tree.number(BUDGET)?, machine.tree.number(BUDGET_US)?);
    let (all, _, squeezed) = rows(machine).unwrap_or_default();
    let now = format!("a softirq takes {frames} frames or {span} us at a time");
    // A turn of 300 frames in 10,000: it happens often.
    let is_often = squeezed * 10_000 > all.max(1);
    if frames >= MORE_BUDGET || !is_often {
        return Some(Finding::ok(now, "it is done with its work at most times"));
    }
    let why = "turns often end with work left, and the card's ring fills until the next";
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
    let now = format!("{most} frames of a processor may wait");
    Some(if dropped > 0 && most < MORE_BACKLOG {
        Finding::warn(now, "veth pairs, loopback and RPS go through it, and it was full before")
            .fix(Fix::file(BACKLOG, MORE_BACKLOG.to_string()), None)
    } else {
        Finding::ok(now, "veth pairs, loopback and RPS go through it; it was not full")
    })
}

fn busy_poll(machine: &Machine) -> Option<Finding> {
    let span = |name: &str| machine.tree.number(&format!("proc/sys/net/core/{name}"));
    let (poll, read) = (span("busy_poll")?, span("busy_read")?);
    (poll > 0 || read > 0).then(|| {
        Finding::note(
            format!("busy_poll {poll} us, busy_read {read} us"),
            "sockets that wait look into the card's queues themselves, which takes time from whoever captures",
        )
        .mend("sysctl -w net.core.busy_poll=0 net.core.busy_read=0")
    })
}

fn buffers(machine: &Machine) -> Option<Finding> {
    let size = |name: &str| machine.tree.number(&format!("proc/sys/net/core/{name}"));
    let (receive, options) = (size("rmem_max")?, size("optmem_max")?);
    let now = format!("rmem_max {receive}, optmem_max {options} bytes");
    Some(Finding::ok(
        now,
        "rings of packet: and xdp: do not count against rmem_max; filters of some hundred terms against optmem_max",
    ))
}

fn firewall(machine: &Machine) -> Option<Finding> {
    machine.tree.has("proc/net").then_some(())?;
    let tables = ["proc/net/ip_tables_names", "proc/net/ip6_tables_names"];
    let has_rules = tables.iter().any(|file| machine.tree.text(file).is_some_and(|names| !names.is_empty()));
    let now = if has_rules { "iptables has tables" } else { "no old tables of iptables" };
    Some(Finding::ok(now, "neither iptables nor nftables takes a frame from a capture: it sees frames before them"))
}
