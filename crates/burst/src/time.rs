//! UTC time in nanoseconds, and the horizon of an input.

use std::fmt;
use std::time::Duration;

/// A point in time: nanoseconds since 1970-01-01 00:00:00 UTC (the epoch of `CLOCK_REALTIME`).
///
/// An unsigned 64-bit count reaches the year 2554. Times before the epoch cannot be represented; files that hold them
/// are read as 0. Ports and pure stages never read a clock: `now` is an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The epoch; also "time unknown".
    pub const ZERO: Nanos = Nanos(0);
    /// Later than any frame.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Converts whole seconds and nanoseconds; saturates instead of wrapping.
    #[inline]
    pub fn from_parts(seconds: u64, nanos: u64) -> Self {
        Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// Returns the whole seconds since the epoch.
    #[inline]
    pub fn seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// Returns the nanoseconds within the second, 0 to 999,999,999.
    #[inline]
    pub fn subsec(self) -> u32 {
        (self.0 % 1_000_000_000) as u32
    }

    /// Returns this time plus `span`, at most [`Nanos::MAX`].
    #[inline]
    pub fn after(self, span: Duration) -> Self {
        Nanos(self.0.saturating_add(span_nanos(span)))
    }

    /// Returns this time minus `span`, at least [`Nanos::ZERO`].
    #[inline]
    pub fn before(self, span: Duration) -> Self {
        Nanos(self.0.saturating_sub(span_nanos(span)))
    }

    /// Returns this time plus a signed number of nanoseconds, saturating.
    #[inline]
    pub fn shifted(self, nanos: i64) -> Self {
        Nanos(self.0.saturating_add_signed(nanos))
    }

    /// Returns the time elapsed since `earlier`; zero if `earlier` is later.
    #[inline]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn span_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Nanos {
    /// Prints seconds with nine decimals, like `tshark -T fields -e frame.time_epoch`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.seconds(), self.subsec())
    }
}

/// The watermark of an input, which it reports together with the frames that it has ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Horizon {
    /// No later frame of the input is older than this (one may be exactly as old).
    At(Nanos),
    /// The input has ended.
    Ended,
}

impl Horizon {
    /// Returns the time before which the input is complete; [`Nanos::MAX`] once it has ended.
    #[inline]
    pub fn time(self) -> Nanos {
        match self {
            Horizon::At(time) => time,
            Horizon::Ended => Nanos::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip_and_saturate() {
        let time = Nanos::from_parts(1_700_000_000, 123_456_789);
        assert_eq!((time.seconds(), time.subsec()), (1_700_000_000, 123_456_789));
        assert_eq!(time.to_string(), "1700000000.123456789");
        assert_eq!(Nanos::from_parts(u64::MAX, 5), Nanos::MAX);
        assert_eq!(Nanos(5).before(Duration::from_secs(1)), Nanos::ZERO);
        assert_eq!(Nanos::MAX.after(Duration::from_secs(1)), Nanos::MAX);
        assert_eq!(Nanos(5).since(Nanos(9)), Duration::ZERO);
    }

    #[test]
    fn ended_input_has_no_bound() {
        assert_eq!(Horizon::Ended.time(), Nanos::MAX);
        assert_eq!(Horizon::At(Nanos(7)).time(), Nanos(7));
    }
}
