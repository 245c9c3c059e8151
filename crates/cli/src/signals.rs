//! Ctrl-C, SIGTERM and a terminal that goes away ask a run to stop; a second one ends the program at once.

use anyhow::Context;
use linerate_engine::Stop;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Makes these signals request `stop`.
pub fn stop_on_signals(stop: &Stop) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal == SIGHUP && is_ignored(SIGHUP) {
            continue;
        }
        // The order matters: the first signal finds the flag unset and sets it, the second ends.
        flag::register_conditional_default(signal, stop.flag()).context("cannot handle signals")?;
        flag::register(signal, stop.flag()).context("cannot handle signals")?;
    }
    Ok(())
}

/// Whether a signal was ignored when the program was started, as nohup does it (proc(5), SigIgn).
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}
