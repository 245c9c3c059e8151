//! Clocks: what reading one costs, and whether it is right.

use super::finding::{Check, Finding, Machine};
use linerate_backends::clocks;

pub(super) const CHECKS: &[Check] =
    &[Check::machine("clock-source", source), Check::machine("clock", kept), Check::machine("card-clocks", cards)];

const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";
/// Sources that are read without leaving the processor.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

fn source(machine: &Machine) -> Option<Finding> {
    let now = machine.tree.text(&format!("{SOURCES}/current_clocksource"))?;
    if FAST.contains(&now.as_str()) {
        return Some(Finding::ok(now, "a time stamp costs some 20 ns"));
    }
    let others = machine.tree.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let why =
        "each frame is stamped once, and a look at this clock takes about a microsecond: 1 M frames/s at the most";
    let finding = Finding::bad(now, why);
    let better = FAST.iter().find(|fast| others.split_whitespace().any(|one| one == **fast));
    Some(match better {
        Some(better) => finding.mend(format!("echo {better} > /{SOURCES}/current_clocksource")),
        None => finding,
    })
}

fn kept(machine: &Machine) -> Option<Finding> {
    // The kernel is asked by a call: a made tree has none.
    if !machine.tree.is_real() {
        return None;
    }
    let kept = clocks::kept().ok()?;
    Some(if kept.is_kept {
        let now = format!("kept by NTP or PTP, wrong by {} us at the most", kept.most_us);
        Finding::ok(now, "captures of several hosts can be merged within that")
    } else {
        Finding::note("kept by nobody", "captures of several hosts cannot be merged by time; within one host they can")
            .mend("timedatectl set-ntp true")
    })
}

fn cards(machine: &Machine) -> Option<Finding> {
    let name = |clock: &String| machine.tree.text(&format!("sys/class/ptp/{clock}/clock_name"));
    let clocks = machine.tree.names("sys/class/ptp");
    let named: Vec<String> =
        clocks.iter().map(|clock| format!("{clock} ({})", name(clock).unwrap_or_default())).collect();
    (!named.is_empty())
        .then(|| Finding::ok(named.join(", "), "clocks of cards, which stamp frames where the driver can"))
}
