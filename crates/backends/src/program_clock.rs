//! The clocks that programs in the kernel read, and their difference from UTC.

use crate::ebpf::{Assembler, Reg, helper};
use crate::sys::bpf::{Demands, Program};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::io::{self, ErrorKind};

/// A clock that a program reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramClock {
    /// International Atomic Time: whole seconds from UTC.
    Tai,
    /// Time since boot, in kernels without the helper for the former (before Linux 6.1).
    SinceBoot,
}

impl ProgramClock {
    /// Returns the best clock of this kernel.
    pub(crate) fn of_kernel() -> io::Result<Self> {
        let mut asm = Assembler::new();
        asm.call(helper::TAI);
        asm.mov(Reg::R0, 0);
        asm.exit();
        let insns = asm.finish().map_err(io::Error::other)?;
        // The verifier refuses an unknown helper by `EINVAL`; a lack of rights shows again with the program itself.
        let is_unknown = |error: io::Error| error.kind() == ErrorKind::InvalidInput;
        let lacks_tai = Program::load(&insns, Demands::default()).err().is_some_and(is_unknown);
        Ok(if lacks_tai { ProgramClock::SinceBoot } else { ProgramClock::Tai })
    }

    /// Returns the helper that reads it.
    pub(crate) fn helper(self) -> i32 {
        match self {
            ProgramClock::Tai => helper::TAI,
            ProgramClock::SinceBoot => helper::KTIME,
        }
    }

    /// Returns the clock minus UTC, in nanoseconds, modulo 2^64; `known` is the last result.
    pub(crate) fn ahead(self, known: u64) -> u64 {
        match self {
            ProgramClock::Tai => tai_offset(),
            ProgramClock::SinceBoot => utc_offset(known.wrapping_neg()).wrapping_neg(),
        }
    }
}

/// Returns the offset of International Atomic Time from UTC on this machine: whole seconds, 0 if the kernel was not
/// set.
fn tai_offset() -> u64 {
    let signed = |time: Timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let Ok(tai) = clock_gettime_dynamic(DynamicClockId::Tai) else { return 0 };
    let ahead = signed(tai) - signed(clock_gettime(ClockId::Realtime));
    ((ahead + 500_000_000).div_euclid(1_000_000_000).max(0) * 1_000_000_000) as u64
}

/// Returns UTC minus the time since boot, in nanoseconds; `known` is the last result.
pub(crate) fn utc_offset(known: u64) -> u64 {
    let (before, utc, after) = (monotonic(), nanos(clock_gettime(ClockId::Realtime)), monotonic());
    offset(known, before, utc, after)
}

/// Returns the offset from UTC that was read between two readings of the time since boot. A known offset is kept if it
/// can be true: a reading that was interrupted must not move timestamps back. A new one is rather too small than too
/// large: no timestamp may be in the future.
fn offset(known: u64, before: u64, utc: u64, after: u64) -> u64 {
    let (least, most) = (utc.wrapping_sub(after), utc.wrapping_sub(before));
    if known.wrapping_sub(least) <= most.wrapping_sub(least) { known } else { least }
}

/// Returns the time since boot as programs see it.
pub(crate) fn monotonic() -> u64 {
    nanos(clock_gettime(ClockId::Monotonic))
}

fn nanos(time: Timespec) -> u64 {
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_clock_reading_moves_no_timestamp_back() {
        // UTC is 1000 ahead; each reading takes 10.
        let first = offset(0, 0, 1005, 10);
        assert_eq!(first, 995);
        assert_eq!(offset(first, 20, 1030, 5000), first, "interrupted after UTC was read");
        assert_eq!(offset(first, 20, 5000, 5010), first, "interrupted before UTC was read");
        assert_eq!(offset(first, 20, 1021, 22), 999, "a quicker reading is more accurate");
        assert_eq!([offset(first, 20, 2021, 22), offset(first, 20, 21, 22)], [1999, u64::MAX], "the clock was set");
    }

    #[test]
    fn stamps_of_both_clocks_are_utc() {
        let utc = || nanos(clock_gettime(ClockId::Realtime));
        for (clock, read) in [
            (ProgramClock::Tai, (|| nanos(clock_gettime_dynamic(DynamicClockId::Tai).unwrap())) as fn() -> u64),
            (ProgramClock::SinceBoot, monotonic),
        ] {
            let ahead = clock.ahead(0);
            let (before, stamp, after) = (utc(), read().wrapping_sub(ahead), utc());
            // The clock may be adjusted, and its offset is read a little too small.
            let margin = 1_000_000_000;
            assert!((before - margin..=after + margin).contains(&stamp), "{clock:?}: {before} {stamp} {after}");
        }
    }
}
