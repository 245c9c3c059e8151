//! The kernel: its age, its BPF, what it does against attacks, what this process may ask of it.

use super::finding::{Check, Finding, Machine};
use super::fix::Fix;
use linerate_backends::GRANT;
use std::iter;

pub(super) const CHECKS: &[Check] = &[
    Check::machine("kernel", kernel),
    Check::machine("bpf-jit", jit),
    Check::machine("bpf-harden", harden),
    Check::machine("mitigations", mitigations),
    Check::machine("rights", rights),
];

const JIT: &str = "proc/sys/net/core/bpf_jit_enable";
const HARDEN: &str = "proc/sys/net/core/bpf_jit_harden";

/// The first kernel with all that `xdp:` uses; `packet:` does with any.
const XDP_KERNEL: (u32, u32) = (6, 6);

fn kernel(machine: &Machine) -> Option<Finding> {
    let release = machine.tree.text("proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let has_btf = machine.tree.has("sys/kernel/btf/vmlinux");
    let now = format!("Linux {release}, {} BTF", if has_btf { "with" } else { "without" });
    Some(if version < XDP_KERNEL {
        let why = format!(
            "xdp: is made for Linux {}.{} and later; before, VLAN tags and offloads of a driver are not told",
            XDP_KERNEL.0, XDP_KERNEL.1
        );
        Finding::note(now, why)
    } else if !has_btf {
        Finding::note(
            now,
            "xdp: finds what a driver tells of VLAN tags by its type information (CONFIG_DEBUG_INFO_BTF)",
        )
    } else {
        Finding::ok(now, "xdp: has all that it uses")
    })
}

fn jit(machine: &Machine) -> Option<Finding> {
    let is_on = machine.tree.number(JIT)? != 0;
    Some(if is_on {
        Finding::ok("BPF programs are compiled", "filters and XDP run at the speed of the processor")
    } else {
        Finding::warn("BPF programs are interpreted", "filters and XDP programs cost several times more for each frame")
            .fix(Fix::file(JIT, "1"), None)
    })
}

fn harden(machine: &Machine) -> Option<Finding> {
    Some(match machine.tree.number(HARDEN)? {
        2 => Finding::warn(
            "constants in all BPF programs are hidden (bpf_jit_harden is 2)",
            "programs of root are made longer and slower too; 1 hardens those of ordinary users alone",
        )
        .fix(Fix::file(HARDEN, "1"), None),
        level => Finding::ok(format!("bpf_jit_harden is {level}"), "programs of root are compiled as they are"),
    })
}

fn mitigations(machine: &Machine) -> Option<Finding> {
    let folder = "sys/devices/system/cpu/vulnerabilities";
    let said = |name: &String| Some((name.clone(), machine.tree.text(&format!("{folder}/{name}"))?));
    let known: Vec<(String, String)> = machine.tree.names(folder).iter().filter_map(said).collect();
    let spectre = known.iter().find(|(name, _)| name == "spectre_v2").map(|(_, said)| said.as_str())?;
    Some(if spectre.contains("etpoline") {
        Finding::note(
            "indirect calls go through retpolines (spectre_v2)",
            "a driver, XDP and AF_PACKET pay for some at each frame; a machine that runs nothing foreign may do \
             without (kernel parameter mitigations=off)",
        )
    } else {
        let dear = known.iter().filter(|(_, said)| said.starts_with("Mitigation")).count();
        Finding::ok(
            format!("no retpolines; {dear} other mitigations"),
            "indirect calls cost what the processor takes for them",
        )
    })
}

/// `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_SYS_ADMIN`, `CAP_PERFMON`, `CAP_BPF` (linux/capability.h).
const ADMIN: u32 = 12;
const RAW: u32 = 13;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

fn rights(machine: &Machine) -> Option<Finding> {
    let status = machine.tree.text("proc/self/status")?;
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    let has = |capability: u32| mask >> capability & 1 != 0;
    let may_attach = has(ADMIN) && (has(BPF) && has(PERFMON) || has(SYS_ADMIN));
    let grant = GRANT.replace("PROGRAM", "$P");
    let lines = || iter::once("P=$(command -v linerate)").chain(grant.split(" && "));
    let granted = |finding: Finding| lines().fold(finding, |finding, line| finding.mend(line));
    Some(if !has(RAW) {
        granted(Finding::bad("this process may open no port (no CAP_NET_RAW)", "nothing can be captured or sent"))
    } else if !may_attach {
        granted(Finding::note(
            "packet: may be opened, xdp: not (CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON)",
            "XDP programs are loaded and attached with these",
        ))
    } else {
        Finding::ok("packet: and xdp: may be opened", "the capabilities for them are there")
    })
}
