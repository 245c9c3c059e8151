//! The kernel: version, BPF, mitigations, and the capabilities of this process.

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

/// First kernel with all features that `xdp:` uses; `packet:` works with any.
const XDP_KERNEL: (u32, u32) = (6, 6);

fn kernel(machine: &Machine) -> Option<Finding> {
    let release = machine.tree.text("proc/sys/kernel/osrelease")?;
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let has_btf = machine.tree.has("sys/kernel/btf/vmlinux");
    let now = format!("Linux {release}, {} BTF", if has_btf { "with" } else { "without" });
    Some(if version < XDP_KERNEL {
        let why = format!(
            "xdp: needs Linux {}.{} for VLAN tags and offload information of the driver",
            XDP_KERNEL.0, XDP_KERNEL.1
        );
        Finding::note(now, why)
    } else if !has_btf {
        Finding::note(now, "xdp: needs BTF (CONFIG_DEBUG_INFO_BTF) to get VLAN tags from the driver")
    } else {
        Finding::ok(now, "xdp: has all kernel features that it uses")
    })
}

fn jit(machine: &Machine) -> Option<Finding> {
    let is_on = machine.tree.number(JIT)? != 0;
    Some(if is_on {
        Finding::ok("BPF JIT is on", "filters and XDP programs run as machine code")
    } else {
        Finding::warn(
            "BPF JIT is off: programs are interpreted",
            "filters and XDP programs cost several times more per packet",
        )
        .fix(Fix::file(JIT, "1"), None)
    })
}

fn harden(machine: &Machine) -> Option<Finding> {
    Some(match machine.tree.number(HARDEN)? {
        2 => Finding::warn(
            "BPF constant blinding for all users (bpf_jit_harden is 2)",
            "makes programs of root slower too; 1 hardens only those of unprivileged users",
        )
        .fix(Fix::file(HARDEN, "1"), None),
        level => Finding::ok(format!("bpf_jit_harden is {level}"), "programs of root are compiled unchanged"),
    })
}

fn mitigations(machine: &Machine) -> Option<Finding> {
    let folder = "sys/devices/system/cpu/vulnerabilities";
    let read = |name: &String| Some((name.clone(), machine.tree.text(&format!("{folder}/{name}"))?));
    let known: Vec<(String, String)> = machine.tree.names(folder).iter().filter_map(read).collect();
    let spectre = known.iter().find(|(name, _)| name == "spectre_v2").map(|(_, state)| state.as_str())?;
    Some(if spectre.contains("etpoline") {
        Finding::note(
            "indirect calls go through retpolines (spectre_v2)",
            "they cost time per packet in drivers, XDP and AF_PACKET; a host that runs only trusted code may turn \
             them off (kernel parameter mitigations=off)",
        )
    } else {
        let dear = known.iter().filter(|(_, state)| state.starts_with("Mitigation")).count();
        Finding::ok(format!("no retpolines; {dear} other mitigations"), "indirect calls run at full speed")
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
    let granted = |finding: Finding| lines().fold(finding, |finding, line| finding.remedy(line));
    Some(if !has(RAW) {
        granted(Finding::bad("this process cannot open ports (no CAP_NET_RAW)", "it cannot capture or send"))
    } else if !may_attach {
        granted(Finding::note(
            "packet: can be opened, xdp: cannot (needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON)",
            "loading and attaching XDP programs needs these capabilities",
        ))
    } else {
        Finding::ok("packet: and xdp: can be opened", "this process has the capabilities")
    })
}
