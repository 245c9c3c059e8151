//! Memory: free memory, huge pages, limits of locked memory and open files.

use super::finding::{Check, Finding, Machine};

pub(super) const CHECKS: &[Check] = &[
    Check::machine("memory", available),
    Check::machine("huge-pages", huge_pages),
    Check::machine("memlock", locked),
    Check::machine("open-files", open_files),
];

/// Memory of rings and file buffers of a run, in KiB.
const ENOUGH_KIB: u64 = 1 << 20;
/// Memory of an AF_XDP port with some queues, in bytes.
const ENOUGH_LOCKED: u64 = 256 << 20;
/// Sockets, rings and files of a run with many queues.
const ENOUGH_FILES: u64 = 1024;
/// `CAP_IPC_LOCK`, which lifts the limit.
const IPC_LOCK: u32 = 14;

fn meminfo(machine: &Machine, name: &str) -> Option<u64> {
    let table = machine.tree.text("proc/meminfo")?;
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn available(machine: &Machine) -> Option<Finding> {
    let free = meminfo(machine, "MemAvailable")?;
    let total = meminfo(machine, "MemTotal")?;
    let now = format!("{} of {} MiB available", free >> 10, total >> 10);
    Some(if free < ENOUGH_KIB {
        Finding::warn(now, "rings take 128 MiB and more per port, and files are buffered in memory")
    } else {
        Finding::ok(now, "rings and file buffers fit")
    })
}

fn huge_pages(machine: &Machine) -> Option<Finding> {
    let free = meminfo(machine, "HugePages_Free")?;
    let size = meminfo(machine, "Hugepagesize")? >> 10;
    let modes = machine.tree.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("not supported");
    let now = format!("{free} free of {size} MiB each; transparent: {mode}");
    Some(if free == 0 && ["never", "not supported"].contains(&mode) {
        Finding::note(now, "packet buffers use small pages, which costs a few percent at high rates")
            .remedy("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    } else {
        Finding::ok(now, "packet buffers get huge pages")
    })
}

fn locked(machine: &Machine) -> Option<Finding> {
    let most = limit(machine, "Max locked memory")?;
    let status = machine.tree.text("proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let may_lock_all = mask.is_some_and(|mask| mask >> IPC_LOCK & 1 != 0);
    Some(match most {
        Some(most) if most < ENOUGH_LOCKED && !may_lock_all => Finding::note(
            format!("limit of {} KiB", most >> 10),
            "memory of AF_XDP (xdp:?mode=native and af_xdp) counts against it; packet: does not",
        )
        .remedy("ulimit -l unlimited"),
        _ => Finding::ok("limit is high enough", "memory of AF_XDP fits"),
    })
}

fn open_files(machine: &Machine) -> Option<Finding> {
    let most = limit(machine, "Max open files")?;
    Some(match most {
        Some(most) if most < ENOUGH_FILES => {
            Finding::note(format!("limit of {most} files"), "each queue uses a socket, each output a file")
                .remedy(format!("ulimit -n {}", 4 * ENOUGH_FILES))
        }
        _ => Finding::ok("limit is high enough", "each queue uses a socket, each output a file"),
    })
}

/// Returns a limit of this process by proc(5): `None` if the file is missing, `Some(None)` if unlimited.
fn limit(machine: &Machine, name: &str) -> Option<Option<u64>> {
    let limits = machine.tree.text("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse().ok())
}
