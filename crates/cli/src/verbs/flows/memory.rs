//! Memory limits of the flow table.

use crate::exit::usage;
use crate::view::rates::grouped;
use crate::view::terminal::fail;
use linerate_engine::Meters;
use linerate_meter::Config;
use rustix::process::{Resource, getrlimit};

/// Minimum number of flows.
const LEAST: usize = 1024;

/// Reduces the number of flows if they might exceed the address space limit of the process (ulimit -v), which would
/// abort the run. Returns a note if so.
pub(super) fn bound(config: &mut Config, workers: usize) -> Option<String> {
    let limit = getrlimit(Resource::As).current?;
    let usual = config.max_flows;
    // The other half is for ports, outputs and threads, each of which takes tens of MiB of address space.
    while Meters::most_bytes_of(config, workers) as u64 > limit / 2 && config.max_flows > LEAST {
        config.max_flows /= 2;
    }
    (config.max_flows < usual).then(|| {
        let (flows, room) = (grouped(config.max_flows as u64), grouped(limit >> 20));
        format!("--max-flows reduced to {flows}: ulimit -v allows {room} MiB")
    })
}

/// Refuses tables larger than the free memory. Returns the free memory if it is less than `most`, the maximum that may
/// be used.
pub(super) fn check_memory(config: &Config, most: usize) -> anyhow::Result<Option<u64>> {
    let wanted = config.bytes_per_flow()[0] as u64 * config.max_flows as u64;
    match free() {
        Some(free) if wanted > free => Err(usage(format!(
            "--max-flows {}: needs {} MiB at this level, but only {} MiB are free",
            grouped(config.max_flows as u64),
            grouped(wanted >> 20),
            grouped(free >> 20)
        ))),
        free => Ok(free.filter(|free| *free < most as u64)),
    }
}

/// Returns the memory that this process may still allocate, if known.
pub(in crate::verbs) fn free() -> Option<u64> {
    let known = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = known.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).map(|free| free << 10);
    free.into_iter().chain(getrlimit(Resource::As).current).min()
}

pub(super) fn warn_of_memory(most: usize, free: u64) {
    let (most, free) = (grouped(mebibytes(most)), grouped(free >> 20));
    fail(format_args!("the flow table may grow to {most} MiB, but only {free} MiB are free; lower --max-flows"));
}

pub(super) fn mebibytes(bytes: usize) -> u64 {
    bytes.div_ceil(1 << 20) as u64
}
