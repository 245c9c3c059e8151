//! Processors: number, clock, sleep states, and steal time.

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

/// Wake-up latency in which a small ring of a fast card fills up.
const LONG_WAKE_US: i64 = 50;
/// Negligible steal time, in percent.
const LITTLE_STEAL: f64 = 1.0;
/// Frames of 64 bytes per microsecond at 10 Gb/s.
const FRAMES_PER_US: f64 = 14.88;

fn processors(machine: &Machine) -> Option<Finding> {
    let online = Some(machine.processors()).filter(|online| !online.is_empty())?;
    let isolated = machine.tree.text("sys/devices/system/cpu/isolated").unwrap_or_default();
    let apart = if isolated.is_empty() { "none isolated".into() } else { format!("{isolated} isolated") };
    let now = format!("{} online ({}), {apart}", online.len(), list(&online));
    Some(if online.len() < 2 {
        Finding::warn(now, "kernel, capture and file writer share one processor")
    } else if !isolated.is_empty() && members(&isolated).len() + 1 >= online.len() {
        Finding::warn(now, "threads run only on the others, unless pinned to isolated ones (taskset)")
    } else {
        Finding::ok(now, "kernel and capture can run on different ones")
    })
}

fn smt(machine: &Machine) -> Option<Finding> {
    let is_on = machine.tree.number("sys/devices/system/cpu/smt/active")? != 0;
    Some(if is_on {
        Finding::note(
            "on: two processors share a core",
            "a softirq gets about half of the core while the other processor is busy",
        )
    } else {
        Finding::ok("off: one processor per core", "each has its whole core")
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
        return Some(Finding::ok("performance", "the clock frequency does not follow the load"));
    }
    let why = "the clock frequency is low when a burst starts, and rises some milliseconds later";
    let mut finding = Finding::warn(format!("{first} on {others} of {}", all.len()), why)
        .remedy("echo performance | tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor");
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
    let now = format!("deepest state {name}, wake-up in {latency} us");
    Some(if latency > LONG_WAKE_US {
        let frames = latency as f64 * FRAMES_PER_US;
        let why = format!("up to {frames:.0} packets arrive in that time at 10 Gb/s; the card's ring must buffer them");
        Finding::warn(now, why).remedy(format!("cpupower idle-set -D {LONG_WAKE_US}"))
    } else {
        Finding::ok(now, "within what a ring buffers")
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
    let now = format!("{share:.1} % of the time since boot");
    Some(match (is_virtual, share > LITTLE_STEAL) {
        (_, true) => {
            Finding::warn(now, "rings fill while the hypervisor runs other VMs: dedicate processors to this VM")
        }
        (true, false) => {
            Finding::note(format!("{now}, virtual machine"), "drops in the hypervisor are not visible in this VM")
        }
        (false, false) => Finding::ok("none: not a virtual machine", "all processor time is available"),
    })
}

fn irqbalance(machine: &Machine) -> Option<Finding> {
    let is_running = machine.tree.names("proc").iter().any(|name| {
        name.bytes().all(|digit| digit.is_ascii_digit())
            && machine.tree.text(&format!("proc/{name}/comm")).is_some_and(|comm| comm == "irqbalance")
    });
    is_running.then(|| {
        Finding::note("running", "it moves interrupts between processors, including those pinned by hand")
            .remedy("systemctl stop irqbalance")
    })
}
