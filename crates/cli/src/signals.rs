//! Ctrl-C and SIGTERM ask a run to stop; a second one ends the program at once.

use anyhow::Context;
use linerate_engine::Stop;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Makes both signals request `stop`.
pub fn stop_on_signals(stop: &Stop) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the first signal finds the flag unset and sets it, the second ends.
        flag::register_conditional_default(signal, stop.flag()).context("cannot handle signals")?;
        flag::register(signal, stop.flag()).context("cannot handle signals")?;
    }
    Ok(())
}
