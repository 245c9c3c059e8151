//! How many flows there is room for.

use crate::exit::usage;
use crate::view::rates::grouped;
use crate::view::terminal::fail;
use linerate_engine::Meters;
use linerate_meter::Config;
use rustix::process::{Resource, getrlimit};

/// Fewer flows are no help.
const LEAST: usize = 1024;

/// Takes fewer flows where somebody has bounded the addresses that a process may use (ulimit -v), and all of them might not
/// fit: the program would be cut off in the middle of its work. Says so then.
pub(super) fn bound(config: &mut Config, workers: usize) -> Option<String> {
    let limit = getrlimit(Resource::As).current?;
    let usual = config.max_flows;
    // The other half is for ports, what is written, and threads, of which each takes tens of MiB of addresses.
    while Meters::most_bytes_of(config, workers) as u64 > limit / 2 && config.max_flows > LEAST {
        config.max_flows /= 2;
    }
    (config.max_flows < usual).then(|| {
        let (flows, room) = (grouped(config.max_flows as u64), grouped(limit >> 20));
        format!("{flows} flows at most (--max-flows): ulimit -v allows {room} MiB")
    })
}

/// Refuses tables that this machine has no room for; how much is free, if that is less than the `most` that may be taken.
pub(super) fn check_memory(config: &Config, most: usize) -> anyhow::Result<Option<u64>> {
    let wanted = config.bytes_per_flow()[0] as u64 * config.max_flows as u64;
    match free() {
        Some(free) if wanted > free => Err(usage(format!(
            "--max-flows {}: takes {} MiB at this level, and {} MiB are free",
            grouped(config.max_flows as u64),
            grouped(wanted >> 20),
            grouped(free >> 20)
        ))),
        free => Ok(free.filter(|free| *free < most as u64)),
    }
}

/// How much memory this process may still take, as far as that is known.
pub(in crate::verbs) fn free() -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map(|free| free << 10);
    free.into_iter().chain(getrlimit(Resource::As).current).min()
}

pub(super) fn warn_of_memory(most: usize, free: u64) {
    let (most, free) = (grouped(mebibytes(most)), grouped(free >> 20));
    fail(format_args!("flows may take up to {most} MiB, and {free} MiB are free: --max-flows bounds them"));
}

pub(super) fn mebibytes(bytes: usize) -> u64 {
    bytes.div_ceil(1 << 20) as u64
}
