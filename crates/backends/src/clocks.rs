//! The clocks of the host and of cards: their difference, and the conversion of card times to host times.
//!
//! A card stamps frames by its own clock, which may be seconds away from the host's (it counts TAI, or from the start
//! of the card) and drifts by some parts per million. Everything else in a run uses host time, so stamps are converted:
//! by a linear function that starts where the previous one ended and is updated every second, so that times never jump
//! and gaps between frames are right to a few parts per million. Only setting a clock causes a jump.

use crate::sys::clock;
use linerate_burst::Nanos;
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// `STA_UNSYNC` (linux/timex.h).
const UNSYNC: i32 = 0x40;
/// Interval at which the clocks are compared.
const EVERY: Duration = Duration::from_secs(1);
/// Readings per comparison, of which the shortest counts.
const LOOKS: usize = 5;
/// Difference above which a clock was set.
const STEP_NS: i64 = 10_000_000;
/// Maximum slope, in parts per billion: a faster drift is not a clock's.
const STEEPEST: i64 = 1_000_000;
const BILLION: i128 = 1_000_000_000;

/// Synchronisation of the host's clock, and its maximum error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSync {
    /// True if NTP or PTP synchronises it.
    pub is_kept: bool,
    /// Maximum error as estimated by the kernel, in microseconds.
    pub most_us: i64,
}

/// Queries the kernel.
pub fn kept() -> io::Result<ClockSync> {
    let (_, status, most_us) = clock::adjusted()?;
    Ok(ClockSync { is_kept: status & UNSYNC == 0, most_us })
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Time of the card.
    pub card: Nanos,
    /// Time of the host.
    pub host: Nanos,
}

/// A linear function from card times to host times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockMapping {
    from: ClockReading,
    /// Excess speed of the host's clock, in parts per billion.
    slope: i64,
}

impl ClockMapping {
    /// Converts a card time to host time.
    #[inline]
    pub fn to_host(self, card: Nanos) -> Nanos {
        let passed = i128::from(card.0) - i128::from(self.from.card.0);
        let host = i128::from(self.from.host.0) + passed + passed * i128::from(self.slope) / BILLION;
        Nanos(u64::try_from(host).unwrap_or_default())
    }
}

/// Tracks two clocks by repeated readings of both.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    line: ClockMapping,
    first: ClockReading,
    last: ClockReading,
    /// Number of times that one of them was set.
    steps: u64,
}

impl Relation {
    /// Starts with a first reading.
    pub fn new(first: ClockReading) -> Self {
        Relation { line: ClockMapping { from: first, slope: 0 }, first, last: first, steps: 0 }
    }

    /// Returns the current function.
    pub fn line(&self) -> ClockMapping {
        self.line
    }

    /// Adds a reading: the new function starts at the current value, and meets the expected value a second later.
    pub fn look(&mut self, pair: ClockReading) {
        let passed = i128::from(pair.card.0) - i128::from(self.last.card.0);
        let at = self.line.to_host(pair.card);
        let error = i128::from(pair.host.0) - i128::from(at.0);
        if passed <= 0 || error.unsigned_abs() > u128::from(STEP_NS.unsigned_abs()) {
            *self = Relation { steps: self.steps + 1, ..Relation::new(pair) };
            return;
        }
        self.last = pair;
        let wanted = i128::from(self.drift()) + error * BILLION / (EVERY.as_nanos() as i128).max(passed);
        let slope = wanted.clamp(-i128::from(STEEPEST), i128::from(STEEPEST)) as i64;
        self.line = ClockMapping { from: ClockReading { card: pair.card, host: at }, slope };
    }

    /// Returns the excess speed of the host's clock since the first reading, in parts per billion.
    pub fn drift(&self) -> i64 {
        let card = i128::from(self.last.card.0) - i128::from(self.first.card.0);
        let host = i128::from(self.last.host.0) - i128::from(self.first.host.0);
        if card > 0 { ((host - card) * BILLION / card) as i64 } else { 0 }
    }

    /// Returns the lead of the card's clock over the host's at the last reading, in nanoseconds.
    pub fn ahead(&self) -> i64 {
        (i128::from(self.last.card.0) - i128::from(self.last.host.0)) as i64
    }

    /// Returns the number of times that one of the clocks was set since the first reading.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// The clock of a card, tracked against the host's while this exists.
#[derive(Debug)]
pub struct CardClock {
    device: File,
    followed: Mutex<(Relation, Nanos)>,
}

impl CardClock {
    /// Opens the clock with this number, `/dev/ptpN`.
    pub fn open(number: u32) -> io::Result<Self> {
        let path = format!("/dev/ptp{number}");
        let device = File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        let first = both(&device)?;
        Ok(CardClock { device, followed: Mutex::new((Relation::new(first), first.host)) })
    }

    /// Returns the function at this host time; reads the clocks once per second.
    pub fn line(&self, now: Nanos) -> ClockMapping {
        let mut followed = self.followed();
        let (relation, looked) = &mut *followed;
        // Read at once after the clock was set back.
        if now < *looked || now >= looked.after(EVERY) {
            *looked = now;
            // If the clock cannot be read, the function stays as it is.
            if let Ok(pair) = both(&self.device) {
                relation.look(pair);
            }
        }
        relation.line()
    }

    /// Returns the relation of the two clocks.
    pub fn relation(&self) -> Relation {
        self.followed().0
    }

    fn followed(&self) -> MutexGuard<'_, (Relation, Nanos)> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the card's clock between two readings of the host's.
fn both(device: &File) -> io::Result<ClockReading> {
    let mut best: Option<(u64, ClockReading)> = None;
    for _ in 0..LOOKS {
        let before = nanos(clock_gettime(ClockId::Realtime));
        let card = nanos(clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd()))?);
        let took = nanos(clock_gettime(ClockId::Realtime)).0.saturating_sub(before.0);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, ClockReading { card, host: Nanos(before.0 + took / 2) }));
        }
    }
    best.map(|(_, pair)| pair).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn nanos(time: Timespec) -> Nanos {
    Nanos::from_parts(u64::try_from(time.tv_sec).unwrap_or_default(), u64::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Readings of a card that is 37 s ahead and runs faster by some parts per billion.
    fn pair(host: u64, faster: i64, noise: i64) -> ClockReading {
        let card = 37_000_000_000 + host as i128 + host as i128 * i128::from(faster) / BILLION;
        ClockReading { card: Nanos(card as u64), host: Nanos((host as i64 + noise) as u64) }
    }

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn converted_times_match_the_host_and_are_monotonic(
            faster in -100_000i64..100_000,
            noises in prop::collection::vec(-500i64..500, 30),
        ) {
            let start = 1_700_000_000 * SECOND;
            let mut relation = Relation::new(pair(start, faster, noises[0]));
            let mut newest = Nanos::ZERO;
            for (second, noise) in noises.iter().enumerate().skip(1) {
                for part in 0..10 {
                    let host = start + (second as u64 - 1) * SECOND + part * SECOND / 10;
                    let converted = relation.line().to_host(pair(host, faster, 0).card);
                    prop_assert!(converted >= newest, "{converted:?} after {newest:?}");
                    newest = converted;
                    // The first second has no drift yet, and the next ones compensate.
                    if second > 3 {
                        prop_assert!(converted.0.abs_diff(host) < 4_000, "second {second}: {} ns", converted.0 as i64 - host as i64);
                    }
                }
                relation.look(pair(start + second as u64 * SECOND, faster, *noise));
            }
            prop_assert!((relation.drift() + faster).abs() < 200, "{} for {faster}", relation.drift());
            prop_assert_eq!(relation.steps(), 0);
        }

        #[test]
        fn any_two_clocks_are_followed(times in prop::collection::vec(any::<(u64, u64)>(), 1..20), asked: u64) {
            let pairs: Vec<ClockReading> = times.iter().map(|(card, host)| ClockReading { card: Nanos(*card), host: Nanos(*host) }).collect();
            let mut relation = Relation::new(pairs[0]);
            for pair in pairs {
                relation.look(pair);
                relation.line().to_host(Nanos(asked));
                let _ = (relation.drift(), relation.ahead());
            }
        }
    }

    #[test]
    fn clock_steps_are_followed_at_once() {
        let start = 1_700_000_000 * SECOND;
        let mut relation = Relation::new(pair(start, 0, 0));
        assert_eq!(relation.ahead(), 37_000_000_000);
        let mut set = pair(start + SECOND, 0, 0);
        set.host = Nanos(set.host.0 + 5 * SECOND);
        relation.look(set);
        assert_eq!(
            (relation.line().to_host(set.card), relation.steps(), relation.ahead()),
            (set.host, 1, 32_000_000_000)
        );
        // A clock that stands still or goes back must not divide by zero.
        relation.look(set);
        assert_eq!(relation.steps(), 2);
    }

    #[test]
    fn missing_clock_is_named() {
        let error = CardClock::open(u32::MAX).unwrap_err().to_string();
        assert!(error.starts_with("/dev/ptp4294967295: "), "{error}");
    }
}
