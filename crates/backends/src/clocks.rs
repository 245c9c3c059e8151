//! The clocks of the host, and those of cards: how they differ, and how times of one are put onto the other.
//!
//! A card stamps frames by a clock of its own, which may be seconds away from the host's (it counts TAI, or from the start of the
//! card) and runs faster or slower by some millionths. All else in a run has the time of the host, so stamps are put onto it: by a straight line that
//! begins where the one before has ended and is drawn anew every second, so that times never jump and gaps between frames are right to a few
//! millionths. Only a clock that was set jumps.

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
/// How often the clocks are compared.
const EVERY: Duration = Duration::from_secs(1);
/// Of so many looks the one that took the shortest counts.
const LOOKS: usize = 5;
/// Further apart than this, a clock was set.
const STEP_NS: i64 = 10_000_000;
/// The steepest that a line is, in billionths: what drifts faster is no clock.
const STEEPEST: i64 = 1_000_000;
const BILLION: i128 = 1_000_000_000;

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

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The card's.
    pub card: Nanos,
    /// The host's.
    pub host: Nanos,
}

/// A straight line from times of the card to those of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    from: Pair,
    /// By how much the host's clock is faster, in billionths.
    slope: i64,
}

impl Line {
    /// A time of the card by the host's clock.
    #[inline]
    pub fn to_host(self, card: Nanos) -> Nanos {
        let passed = i128::from(card.0) - i128::from(self.from.card.0);
        let host = i128::from(self.from.host.0) + passed + passed * i128::from(self.slope) / BILLION;
        Nanos(u64::try_from(host).unwrap_or_default())
    }
}

/// Follows two clocks by looking at both now and then.
#[derive(Clone, Copy, Debug)]
pub struct Relation {
    line: Line,
    first: Pair,
    last: Pair,
    /// How often one of them was set.
    steps: u64,
}

impl Relation {
    /// Begins with a look.
    pub fn new(first: Pair) -> Self {
        Relation { line: Line { from: first, slope: 0 }, first, last: first, steps: 0 }
    }

    /// The line that holds now.
    pub fn line(&self) -> Line {
        self.line
    }

    /// Takes another look into account: the line goes on from where it is, so that it meets what is to be expected a second later.
    pub fn look(&mut self, pair: Pair) {
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
        self.line = Line { from: Pair { card: pair.card, host: at }, slope };
    }

    /// By how much the host's clock has been faster since the first look, in billionths.
    pub fn drift(&self) -> i64 {
        let card = i128::from(self.last.card.0) - i128::from(self.first.card.0);
        let host = i128::from(self.last.host.0) - i128::from(self.first.host.0);
        if card > 0 { ((host - card) * BILLION / card) as i64 } else { 0 }
    }

    /// How far the card's clock was ahead of the host's at the last look, in nanoseconds.
    pub fn ahead(&self) -> i64 {
        (i128::from(self.last.card.0) - i128::from(self.last.host.0)) as i64
    }

    /// How often one of the clocks was set since the first look.
    pub fn steps(&self) -> u64 {
        self.steps
    }
}

/// The clock of a card, compared with the host's as long as this is there.
#[derive(Debug)]
pub struct CardClock {
    device: File,
    followed: Mutex<(Relation, Nanos)>,
}

impl CardClock {
    /// The clock with this number, `/dev/ptpN`.
    pub fn open(number: u32) -> io::Result<Self> {
        let path = format!("/dev/ptp{number}");
        let device = File::open(&path).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        let first = both(&device)?;
        Ok(CardClock { device, followed: Mutex::new((Relation::new(first), first.host)) })
    }

    /// The line that holds at this time of the host; looks at the clocks once a second.
    pub fn line(&self, now: Nanos) -> Line {
        let mut followed = self.followed();
        let (relation, looked) = &mut *followed;
        // A clock that was set back is no reason to look the less.
        if now < *looked || now >= looked.after(EVERY) {
            *looked = now;
            // A clock that cannot be read goes on as it did.
            if let Ok(pair) = both(&self.device) {
                relation.look(pair);
            }
        }
        relation.line()
    }

    /// What is known of the two.
    pub fn relation(&self) -> Relation {
        self.followed().0
    }

    fn followed(&self) -> MutexGuard<'_, (Relation, Nanos)> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the card's clock between two looks at the host's.
fn both(device: &File) -> io::Result<Pair> {
    let mut best: Option<(u64, Pair)> = None;
    for _ in 0..LOOKS {
        let before = nanos(clock_gettime(ClockId::Realtime));
        let card = nanos(clock_gettime_dynamic(DynamicClockId::Dynamic(device.as_fd()))?);
        let took = nanos(clock_gettime(ClockId::Realtime)).0.saturating_sub(before.0);
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, Pair { card, host: Nanos(before.0 + took / 2) }));
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

    /// A card that is 37 s ahead and runs faster by so many billionths.
    fn pair(host: u64, faster: i64, noise: i64) -> Pair {
        let card = 37_000_000_000 + host as i128 + host as i128 * i128::from(faster) / BILLION;
        Pair { card: Nanos(card as u64), host: Nanos((host as i64 + noise) as u64) }
    }

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn times_of_the_card_become_those_of_the_host_and_never_go_back(
            faster in -100_000i64..100_000,
            noises in prop::collection::vec(-500i64..500, 30),
        ) {
            let start = 1_700_000_000 * SECOND;
            let mut relation = Relation::new(pair(start, faster, noises[0]));
            let mut newest = Nanos::ZERO;
            for (second, noise) in noises.iter().enumerate().skip(1) {
                for part in 0..10 {
                    let host = start + (second as u64 - 1) * SECOND + part * SECOND / 10;
                    let told = relation.line().to_host(pair(host, faster, 0).card);
                    prop_assert!(told >= newest, "{told:?} after {newest:?}");
                    newest = told;
                    // The first second knows nothing of the drift, and the next ones make up for it.
                    if second > 3 {
                        prop_assert!(told.0.abs_diff(host) < 4_000, "second {second}: {} ns", told.0 as i64 - host as i64);
                    }
                }
                relation.look(pair(start + second as u64 * SECOND, faster, *noise));
            }
            prop_assert!((relation.drift() + faster).abs() < 200, "{} for {faster}", relation.drift());
            prop_assert_eq!(relation.steps(), 0);
        }

        #[test]
        fn any_two_clocks_are_followed(times in prop::collection::vec(any::<(u64, u64)>(), 1..20), asked: u64) {
            let pairs: Vec<Pair> = times.iter().map(|(card, host)| Pair { card: Nanos(*card), host: Nanos(*host) }).collect();
            let mut relation = Relation::new(pairs[0]);
            for pair in pairs {
                relation.look(pair);
                relation.line().to_host(Nanos(asked));
                let _ = (relation.drift(), relation.ahead());
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
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
        // And one that stands still, or goes back, is no division by nothing.
        relation.look(set);
        assert_eq!(relation.steps(), 2);
    }

    #[test]
    fn a_clock_that_is_not_there_is_named() {
        let error = CardClock::open(u32::MAX).unwrap_err().to_string();
        assert!(error.starts_with("/dev/ptp4294967295: "), "{error}");
    }
}
