//! Times of an interface: ticks of a resolution given by the file, plus an offset.

use linerate_burst::Nanos;

/// Converts ticks of an interface to nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    unit: Unit,
    /// Whole seconds to add (`if_tsoffset`).
    offset: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Nanoseconds per tick.
    Nanos(u64),
    /// Ticks per nanosecond.
    PerNano(u64),
    /// Ticks per second, as a power of two.
    PowerOfTwo(u32),
}

impl Clock {
    /// Returns a clock of the resolution encoded in `if_tsresol`: a power of ten, or of two if bit 7 is set.
    pub(super) fn new(resolution: u8, offset: i64) -> Self {
        let exponent = u32::from(resolution & 0x7f);
        let unit = match resolution {
            0..=9 => Unit::Nanos(10u64.pow(9 - exponent)),
            // Beyond 10^-28 a full 64-bit count is less than a nanosecond.
            10..=0x7f => Unit::PerNano(10u64.checked_pow(exponent - 9).unwrap_or(u64::MAX)),
            0x80.. => Unit::PowerOfTwo(exponent),
        };
        Clock { unit, offset }
    }

    /// Converts ticks to a time; before the epoch and after 2554, to the nearest that can be represented.
    #[inline]
    pub(super) fn time(&self, ticks: u64) -> Nanos {
        match self.unit {
            Unit::Nanos(nanos) if self.offset == 0 => Nanos(ticks.saturating_mul(nanos)),
            _ => Nanos(self.nanos(ticks).clamp(0, u64::MAX.into()) as u64),
        }
    }

    /// Returns what [`time`](Clock::time) does, for a resolution of a power of ten up to nanoseconds, without offset, and
    /// for times other than the first and the last that can be represented.
    #[inline]
    pub(super) fn simple_time(&self, ticks: u64) -> Option<Nanos> {
        match self.unit {
            Unit::Nanos(nanos) if self.offset == 0 && ticks > 0 => ticks.checked_mul(nanos).map(Nanos),
            _ => None,
        }
        .filter(|time| *time != Nanos::MAX)
    }

    /// Returns whether the time of a number of ticks cannot be represented.
    pub(super) fn is_beyond(&self, ticks: u64) -> bool {
        u64::try_from(self.nanos(ticks)).is_err()
    }

    fn nanos(&self, ticks: u64) -> i128 {
        let nanos = match self.unit {
            Unit::Nanos(nanos) => u128::from(ticks) * u128::from(nanos),
            Unit::PerNano(ticks_each) => u128::from(ticks / ticks_each),
            Unit::PowerOfTwo(exponent) => (u128::from(ticks) * 1_000_000_000) >> exponent,
        };
        nanos as i128 + i128::from(self.offset) * 1_000_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resolution_gives_nanoseconds() {
        assert_eq!(Clock::new(6, 0).time(1_000_001), Nanos(1_000_001_000));
        assert_eq!(Clock::new(9, 0).time(u64::MAX), Nanos::MAX);
        assert_eq!(Clock::new(0, 0).time(u64::MAX), Nanos::MAX);
        assert_eq!(Clock::new(3, 2).time(1500), Nanos(3_500_000_000));
        assert_eq!(Clock::new(12, 0).time(7_999), Nanos(7));
        assert_eq!(Clock::new(0x7f, 0).time(u64::MAX - 1), Nanos(0));
        assert_eq!(Clock::new(0x80 | 32, 0).time(3 << 31), Nanos(1_500_000_000));
        assert_eq!(Clock::new(0xff, 0).time(u64::MAX), Nanos(0));
        assert_eq!(Clock::new(0x80, i64::MAX).time(u64::MAX), Nanos::MAX);
    }

    #[test]
    fn times_before_the_epoch_become_the_epoch() {
        assert_eq!(Clock::new(6, -1).time(1_500_000), Nanos(500_000_000));
        assert_eq!(Clock::new(6, -2).time(1_500_000), Nanos::ZERO);
        assert_eq!(Clock::new(6, i64::MIN).time(1_500_000), Nanos::ZERO);
    }
}
