//! Processors: how many, how fast, how often they sleep or are taken away.

use super::finding::{Check, Finding, Machine};
use super::fix::Fix;
use super::tree::{list, members};

pub(super) const CHECKS: &[Check] = &[
    Check::machine("processors", processors),
    Check::machine("smt", smt),
    Check::machine("governor", governor),
    Check::machine("idle", idle),
    Check::machine("steal", steal),
    Check::machine("irqbalance", irqbalance),
];

/// Waking up longer than this is as long as a small ring of a fast card lasts.
const LONG_WAKE_US: i64 = 50;
/// A share of time, in percent, below which nobody notices.
const LITTLE_STEAL: f64 = 1.0;
/// Frames of 64 bytes in a microsecond of 10 Gb/s.
const FRAMES_PER_US: f64 = 14.88;

fn processors(machine: &Machine) -> Option<Finding> {
    let online = Some(machine.processors()).filter(|online| !online.is_empty())?;
    let isolated = machine.tree.text("sys/devices/system/cpu/isolated").unwrap_or_default();
    let apart = if isolated.is_empty() { "none isolated".into() } else { format!("{isolated} isolated") };
    let now = format!("{} online ({}), {apart}", online.len(), list(&online));
    Some(if online.len() < 2 {
        Finding::warn(now, "the kernel's part, the capture and whoever writes the file take turns on one processor")
    } else if !isolated.is_empty() && members(&isolated).len() + 1 >= online.len() {
        Finding::warn(now, "all threads stand on what is left, unless they are put elsewhere (taskset)")
    } else {
        Finding::ok(now, "the kernel's part and the capture have one each")
    })
}

fn smt(machine: &Machine) -> Option<Finding> {
    let is_on = machine.tree.number("sys/devices/system/cpu/smt/active")? != 0;
    Some(if is_on {
        Finding::note(
            "two processors share a core (SMT)",
            "a softirq beside a busy thread on its core has about half of it",
        )
    } else {
        Finding::ok("no processors share a core", "each has all of its core")
    })
}

fn governor(machine: &Machine) -> Option<Finding> {
    let folder = "sys/devices/system/cpu/cpufreq";
    let file = |policy: &String| format!("{folder}/{policy}/scaling_governor");
    let policies = machine.tree.names(folder);
    let all: Vec<(String, String)> = policies
        .iter()
        .map(file)
        .filter_map(|file| machine.tree.text(&file).map(|governor| (file, governor)))
        .collect();
    let (_, first) = all.iter().find(|(_, governor)| governor != "performance").or(all.first())?;
    let others = all.iter().filter(|(_, governor)| governor != "performance").count();
    if others == 0 {
        return Some(Finding::ok("performance", "the clock does not follow the load"));
    }
    let why = "the clock is low when a burst begins, and goes up only some milliseconds later";
    let mut finding = Finding::warn(format!("{first} on {others} of {}", all.len()), why)
        .mend("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
    let wrong = all.iter().filter(|(_, governor)| governor != "performance");
    finding.fixes = wrong.map(|(file, _)| Fix::file(file, "performance")).collect();
    Some(finding)
}

fn idle(machine: &Machine) -> Option<Finding> {
    let folder = "sys/devices/system/cpu/cpu0/cpuidle";
    let state = |name: &String| {
        let file = |what: &str| machine.tree.number(&format!("{folder}/{name}/{what}"));
        let is_on = file("disable") != Some(1);
        is_on.then(|| Some((file("latency")?, machine.tree.text(&format!("{folder}/{name}/name"))?))).flatten()
    };
    let (latency, name) = machine.tree.names(folder).iter().filter_map(state).max()?;
    let now = format!("a processor may sleep as deep as {name}, and wakes within {latency} us");
    Some(if latency > LONG_WAKE_US {
        let frames = latency as f64 * FRAMES_PER_US;
        let why = format!("10 Gb/s bring up to {frames:.0} frames meanwhile, which the card's ring has to hold");
        Finding::warn(now, why).mend(format!("cpupower idle-set -D {LONG_WAKE_US}"))
    } else {
        Finding::ok(now, "a ring bears that")
    })
}

fn steal(machine: &Machine) -> Option<Finding> {
    let stat = machine.tree.text("proc/stat")?;
    // cpu user nice system idle iowait irq softirq steal ...
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let share = 100.0 * times.get(7)? / times.iter().take(8).sum::<f64>().max(1.0);
    let cpuinfo = machine.tree.text("proc/cpuinfo").unwrap_or_default();
    let is_virtual = cpuinfo
        .lines()
        .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
    let now = format!("{share:.1} % of the time since the start went to other guests of the host");
    Some(match (is_virtual, share > LITTLE_STEAL) {
        (_, true) => Finding::warn(
            now,
            "nobody empties the rings while a processor is away: give the guest processors of its own",
        ),
        (true, false) => Finding::note(
            format!("a virtual machine: {now}"),
            "what its host loses before the guest's ring is counted nowhere here",
        ),
        (false, false) => Finding::ok("a machine of its own", "nobody else takes its processors"),
    })
}

fn irqbalance(machine: &Machine) -> Option<Finding> {
    let is_running = machine.tree.names("proc").iter().any(|name| {
        name.bytes().all(|digit| digit.is_ascii_digit())
            && machine.tree.text(&format!("proc/{name}/comm")).is_some_and(|comm| comm == "irqbalance")
    });
    is_running.then(|| {
        Finding::note(
            "irqbalance runs",
            "it moves interrupts between processors, also those that were put somewhere by hand",
        )
        .mend("systemctl stop irqbalance")
    })
}
