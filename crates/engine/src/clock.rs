//! Clock of runs: read in one place and passed down as `now`, which decides about order.
//!
//! Backends read the clocks of their own devices, for time stamps and due times; they do not order frames by them.

use linerate_burst::Nanos;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns UTC now (`CLOCK_REALTIME`, the clock of AF_PACKET's stamps); a time before 1970 reads as 0.
#[inline]
pub fn now() -> Nanos {
    read(ClockId::Realtime)
}

fn read(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos::from_parts(u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Clock source of a run.
pub(crate) trait Clock: Send {
    /// Returns UTC, which may be stepped.
    fn utc(&self) -> Nanos;
    /// Returns a monotonic time with any origin, at the rate of UTC.
    fn steady(&self) -> Nanos;
}

pub(crate) struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn utc(&self) -> Nanos {
        now()
    }

    /// Time since boot, which continues while the machine is suspended, as UTC does.
    #[inline]
    fn steady(&self) -> Nanos {
        read(ClockId::Boottime)
    }
}

/// Smallest step of the clock that is reported. Slewing amounts to less between two reads, and rings buffer as much.
pub(crate) const STEP: Duration = Duration::from_millis(10);
/// Longest time between reads of the two clocks for a step to be accepted, and the number of attempts.
const CLOSE: Duration = Duration::from_millis(1);
const TRIES: u32 = 4;

/// Time of a run, with detection of clock steps.
pub(crate) struct Time {
    clock: Box<dyn Clock>,
    /// Difference between UTC and the steady clock at the last read, in nanoseconds.
    beyond: i64,
    /// Steady time of the start of the run or of the last step.
    set: Nanos,
    /// Time since then, at the last read.
    settled: Duration,
    steps: u64,
}

impl Time {
    pub(crate) fn new(clock: Box<dyn Clock>) -> Self {
        let (beyond, set) = (beyond(clock.utc(), clock.steady()), clock.steady());
        Time { clock, beyond, set, settled: Duration::ZERO, steps: 0 }
    }

    /// Returns UTC now, and the step in nanoseconds since the last read, if it is large enough to be reported.
    #[inline]
    pub(crate) fn look(&mut self) -> (Nanos, Option<i64>) {
        let (utc, steady) = (self.clock.utc(), self.clock.steady());
        let beyond = beyond(utc, steady);
        self.settled = steady.since(self.set);
        if beyond.abs_diff(self.beyond) <= STEP.as_nanos() as u64 {
            self.beyond = beyond;
            return (utc, None);
        }
        self.reread()
    }

    /// Repeats the reads, since this process may have been preempted between the two clocks.
    #[cold]
    fn reread(&mut self) -> (Nanos, Option<i64>) {
        for _ in 0..TRIES {
            let (before, utc, after) = (self.clock.steady(), self.clock.utc(), self.clock.steady());
            if after.since(before) > CLOSE {
                continue;
            }
            let beyond = beyond(utc, before);
            let step = beyond.wrapping_sub(std::mem::replace(&mut self.beyond, beyond));
            if step.unsigned_abs() <= STEP.as_nanos() as u64 {
                return (utc, None);
            }
            (self.steps, self.set, self.settled) = (self.steps + 1, after, Duration::ZERO);
            return (utc, Some(step));
        }
        (self.clock.utc(), None)
    }

    #[inline]
    pub(crate) fn utc(&self) -> Nanos {
        self.clock.utc()
    }

    /// Returns the time since the last step, up to the last read.
    pub(crate) fn settled(&self) -> Duration {
        self.settled
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }
}

/// Returns the difference, with wrap-around, as in further differences of it.
fn beyond(utc: Nanos, steady: Nanos) -> i64 {
    utc.0.wrapping_sub(steady.0) as i64
}

/// Describes a step for the user.
pub(crate) fn said(step: i64) -> String {
    let way = if step < 0 { "back" } else { "forward" };
    let seconds = step.unsigned_abs() as f64 / 1e9;
    if seconds < 1.0 {
        format!("the clock was set {way} by {:.0} ms", seconds * 1e3)
    } else {
        format!("the clock was set {way} by {seconds:.1} s")
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// A clock set by a test; its copies are the same clock.
    #[derive(Clone, Default)]
    pub(crate) struct FakeClock(Arc<Mutex<(Nanos, Nanos)>>);

    impl FakeClock {
        pub(crate) fn at(utc: u64) -> Self {
            FakeClock(Arc::new(Mutex::new((Nanos(utc), Nanos(77)))))
        }

        /// Advances both clocks.
        pub(crate) fn pass(&self, span: u64) {
            let mut clocks = self.0.lock().unwrap();
            clocks.0.0 += span;
            clocks.1.0 += span;
        }

        /// Steps UTC.
        pub(crate) fn set(&self, step: i64) {
            let mut clocks = self.0.lock().unwrap();
            clocks.0 = clocks.0.shifted(step);
        }
    }

    impl Clock for FakeClock {
        fn utc(&self) -> Nanos {
            self.0.lock().unwrap().0
        }

        fn steady(&self) -> Nanos {
            self.0.lock().unwrap().1
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn clock_steps_are_detected_and_slewing_is_not() {
        let fake = FakeClock::at(1_000_000 * MS);
        let mut time = Time::new(Box::new(fake.clone()));
        for look in 0..1000 {
            fake.pass(MS);
            fake.set(if look < 500 { -9 } else { 9 } * MS as i64);
            assert_eq!(time.look().1, None);
        }
        assert_eq!((time.settled(), time.steps()), (Duration::from_secs(1), 0));
        for step in [-100_000, 100_000, -11, 11] {
            fake.pass(7 * MS);
            fake.set(step * MS as i64);
            assert_eq!(time.look(), (fake.utc(), Some(step * MS as i64)));
            fake.pass(5 * MS);
            assert_eq!(time.look().1, None);
            assert_eq!(time.settled(), Duration::from_millis(5));
        }
        assert_eq!(time.steps(), 4);
    }

    #[test]
    fn clock_steps_are_printed_readably() {
        assert_eq!(said(-100_000 * MS as i64), "the clock was set back by 100.0 s");
        assert_eq!(said(3_600_250 * MS as i64), "the clock was set forward by 3600.2 s");
        assert_eq!(said(-20 * MS as i64), "the clock was set back by 20 ms");
    }

    /// The process is preempted between the reads of the two clocks.
    #[test]
    fn a_pause_between_two_reads_is_not_a_step() {
        struct Slow(FakeClock, Mutex<u32>);
        impl Clock for Slow {
            fn utc(&self) -> Nanos {
                let mut looks = self.1.lock().unwrap();
                *looks += 1;
                // After one read of UTC, and before the next.
                if *looks % 10 == 1 {
                    self.0.pass(50 * MS);
                }
                let utc = self.0.utc();
                if looks.is_multiple_of(10) {
                    self.0.pass(50 * MS);
                }
                utc
            }

            fn steady(&self) -> Nanos {
                self.0.steady()
            }
        }
        let mut time = Time::new(Box::new(Slow(FakeClock::at(1_000_000 * MS), Mutex::new(0))));
        assert!((0..1000).all(|_| time.look().1.is_none()));
    }
}
