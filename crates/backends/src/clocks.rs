//! The clocks of the host.

use crate::sys::clock;
use std::io;

/// `STA_UNSYNC` (linux/timex.h).
const UNSYNC: i32 = 0x40;

/// Whether somebody keeps the clock of the host right, and how wrong it may be at the most, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// As NTP or PTP says it.
    pub is_kept: bool,
    /// As the kernel reckons, in microseconds.
    pub most_us: i64,
}

/// Asks the kernel.
pub fn kept() -> io::Result<Kept> {
    let (_, status, most_us) = clock::adjusted()?;
    Ok(Kept { is_kept: status & UNSYNC == 0, most_us })
}
