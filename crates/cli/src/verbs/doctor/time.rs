//! Clocks: cost of reading, and synchronisation.

use super::finding::{Check, Finding, Machine};
use linerate_backends::clocks;

pub(super) const CHECKS: &[Check] =
    &[Check::machine("clock-source", source), Check::machine("clock", kept), Check::machine("card-clocks", cards)];

const SOURCES: &str = "sys/devices/system/clocksource/clocksource0";
/// Clock sources that are read without leaving the processor.
const FAST: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

fn source(machine: &Machine) -> Option<Finding> {
    let now = machine.tree.text(&format!("{SOURCES}/current_clocksource"))?;
    if FAST.contains(&now.as_str()) {
        return Some(Finding::ok(now, "a time stamp takes about 20 ns"));
    }
    let others = machine.tree.text(&format!("{SOURCES}/available_clocksource")).unwrap_or_default();
    let why = "reading this clock takes about 1 us per packet, which limits captures to 1 Mpps";
    let finding = Finding::bad(now, why);
    let better = FAST.iter().find(|fast| others.split_whitespace().any(|one| one == **fast));
    Some(match better {
        Some(better) => finding.remedy(format!("echo {better} > /{SOURCES}/current_clocksource")),
        None => finding,
    })
}

fn kept(machine: &Machine) -> Option<Finding> {
    // This is a system call, which a test tree cannot replace.
    if !machine.tree.is_real() {
        return None;
    }
    let kept = clocks::kept().ok()?;
    Some(if kept.is_kept {
        let now = format!("synchronised by NTP or PTP, error at most {} us", kept.most_us);
        Finding::ok(now, "captures of several hosts can be merged with this accuracy")
    } else {
        Finding::note(
            "not synchronised (no NTP or PTP)",
            "captures of different hosts cannot be merged by time; those of this host can",
        )
        .remedy("timedatectl set-ntp true")
    })
}

fn cards(machine: &Machine) -> Option<Finding> {
    let name = |clock: &String| machine.tree.text(&format!("sys/class/ptp/{clock}/clock_name"));
    let clocks = machine.tree.names("sys/class/ptp");
    let named: Vec<String> =
        clocks.iter().map(|clock| format!("{clock} ({})", name(clock).unwrap_or_default())).collect();
    (!named.is_empty())
        .then(|| Finding::ok(named.join(", "), "hardware clocks for time stamps, if the driver supports them"))
}
