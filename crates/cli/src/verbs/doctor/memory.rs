//! Memory: large pages, what may be locked, how many files may be open.

use super::finding::{Check, Finding, Machine};

pub(super) const CHECKS: &[Check] = &[
    Check::machine("memory", available),
    Check::machine("huge-pages", huge_pages),
    Check::machine("memlock", locked),
    Check::machine("open-files", open_files),
];

/// Rings and files at work take this much of memory, in KiB.
const ENOUGH_KIB: u64 = 1 << 20;
/// The memory of an AF_XDP port with some queues, in bytes.
const ENOUGH_LOCKED: u64 = 256 << 20;
/// Sockets, rings and files of a run with many queues.
const ENOUGH_FILES: u64 = 1024;
/// `CAP_IPC_LOCK`: whoever has it may lock all.
const IPC_LOCK: u32 = 14;

fn meminfo(machine: &Machine, name: &str) -> Option<u64> {
    let table = machine.tree.text("proc/meminfo")?;
    let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

fn available(machine: &Machine) -> Option<Finding> {
    let free = meminfo(machine, "MemAvailable")?;
    let total = meminfo(machine, "MemTotal")?;
    let now = format!("{} of {} MiB are free", free >> 10, total >> 10);
    Some(if free < ENOUGH_KIB {
        Finding::warn(now, "the rings of a port take 128 MiB and more, and files go through memory before the disk")
    } else {
        Finding::ok(now, "rings and what waits for the disk fit")
    })
}

fn huge_pages(machine: &Machine) -> Option<Finding> {
    let free = meminfo(machine, "HugePages_Free")?;
    let size = meminfo(machine, "Hugepagesize")? >> 10;
    let modes = machine.tree.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = modes.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("not there");
    let now = format!("{free} of {size} MiB reserved and free, transparent ones: {mode}");
    Some(if free == 0 && ["never", "not there"].contains(&mode) {
        Finding::note(now, "blocks of frames lie on small pages, which costs a few percent at top speed")
            .mend("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
    } else {
        Finding::ok(now, "blocks of frames get large pages")
    })
}

fn locked(machine: &Machine) -> Option<Finding> {
    let most = limit(machine, "Max locked memory")?;
    let status = machine.tree.text("proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("CapEff:")?.trim(), 16).ok());
    let may_lock_all = mask.is_some_and(|mask| mask >> IPC_LOCK & 1 != 0);
    Some(match most {
        Some(most) if most < ENOUGH_LOCKED && !may_lock_all => Finding::note(
            format!("{} KiB may be locked", most >> 10),
            "the memory of AF_XDP (xdp:?mode=native and af_xdp) counts against it; packet: does not",
        )
        .mend("ulimit -l unlimited"),
        _ => Finding::ok("enough may be locked", "the memory of AF_XDP fits"),
    })
}

fn open_files(machine: &Machine) -> Option<Finding> {
    let most = limit(machine, "Max open files")?;
    Some(match most {
        Some(most) if most < ENOUGH_FILES => {
            Finding::note(format!("{most} files may be open"), "each queue has a socket, each output a file")
                .mend(format!("ulimit -n {}", 4 * ENOUGH_FILES))
        }
        _ => Finding::ok("enough files may be open", "each queue has a socket, each output a file"),
    })
}

/// The limit of this process by proc(5): nothing where the file is not there, `Some(None)` where there is no limit.
fn limit(machine: &Machine, name: &str) -> Option<Option<u64>> {
    let limits = machine.tree.text("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.split_whitespace().next()?.parse().ok())
}
