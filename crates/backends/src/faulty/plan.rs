//! The plan of faults: decided by seed, queue and the frame's number only.
//!
//! A fault hits frame `n` of a queue if `draw(key, n)` is below its probability, with a key per kind of fault. So no
//! fault shifts the draws of another one, a run can be predicted, and a model that shares no code with this one gives
//! the same counts.

use super::faults::Faults;
use super::probability::{Chance, draw, scale};
use std::time::Duration;

/// Purposes of draws; each has its own.
#[derive(Clone, Copy)]
enum Purpose {
    Drop,
    Burst,
    Repeat,
    Reorder,
    Corrupt,
    Truncate,
    Pad,
    Jitter,
    /// Positions of bits; length of truncation; length of padding.
    Bits,
    Cut,
    More,
}

const PURPOSES: usize = Purpose::More as usize + 1;

/// The plan of a queue.
#[derive(Clone, Debug)]
pub struct Plan {
    faults: Faults,
    /// Keys by purpose.
    keys: [u64; PURPOSES],
}

/// Faults of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameFaults {
    /// Dropped, without other faults.
    pub dropped: bool,
    /// Duplicated.
    pub repeated: bool,
    /// Number of frames that pass it.
    pub reordered: Option<u32>,
    /// Key for the bits to flip.
    pub corrupted: Option<u64>,
    /// Draw for the length of truncation, unless set by the user.
    pub truncated: Option<u64>,
    /// Draw for the padding, unless set by the user.
    pub padded: Option<u64>,
}

impl Plan {
    /// Returns the subject of a queue's accounts behind this line: unchanged without faults.
    pub fn subject(&self, inner: &str) -> String {
        let nothing = Faults { seed: self.faults.seed, ..Faults::default() };
        if self.faults == nothing { inner.to_owned() } else { format!("faulty:{inner}") }
    }

    /// Creates the plan of queue `queue` of a port: key `p` is `draw(draw(seed, queue), p)`.
    pub fn new(faults: Faults, queue: u64) -> Self {
        let seed = draw(faults.seed, queue);
        Plan { keys: std::array::from_fn(|purpose| draw(seed, purpose as u64)), faults }
    }

    /// Returns the faults set by the user.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Returns the faults of frame `number`, counted from 0.
    pub fn of_frame(&self, number: u64) -> FrameFaults {
        let faults = &self.faults;
        let chosen = |chance, what, which| self.hits(chance, what, number).then(|| self.draw(which, number));
        FrameFaults {
            dropped: self.hits(faults.drop, Purpose::Drop, number) || self.in_burst(number),
            repeated: self.hits(faults.repeat, Purpose::Repeat, number),
            reordered: self.hits(faults.reorder.0, Purpose::Reorder, number).then_some(faults.reorder.1),
            corrupted: chosen(faults.corrupt.chance, Purpose::Corrupt, Purpose::Bits),
            truncated: chosen(faults.truncate.0, Purpose::Truncate, Purpose::Cut),
            padded: chosen(faults.pad.0, Purpose::Pad, Purpose::More),
        }
    }

    /// Returns the delay of frame `number`: the delay plus or minus at most the jitter.
    pub fn delay(&self, number: u64) -> Duration {
        let Faults { delay, jitter, .. } = self.faults;
        if jitter.is_zero() {
            return delay;
        }
        let width = 2 * jitter.as_nanos() as u64 + 1;
        delay - jitter + Duration::from_nanos(scale(self.draw(Purpose::Jitter, number), width))
    }

    /// Returns whether a burst of losses covers this frame.
    fn in_burst(&self, number: u64) -> bool {
        let (chance, frames) = self.faults.burst;
        if chance.is_zero() {
            return false;
        }
        let first = number.saturating_sub(u64::from(frames) - 1);
        (first..=number).any(|begin| self.hits(chance, Purpose::Burst, begin))
    }

    #[inline]
    fn hits(&self, chance: Chance, what: Purpose, number: u64) -> bool {
        !chance.is_zero() && chance.hits(self.draw(what, number))
    }

    #[inline]
    fn draw(&self, what: Purpose, number: u64) -> u64 {
        draw(self.keys[what as usize], number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::new(Faults::parse(text).unwrap(), 0)
    }

    fn dropped(plan: &Plan) -> Vec<u64> {
        (0..20_000).filter(|number| plan.of_frame(*number).dropped).collect()
    }

    #[test]
    fn a_burst_drops_its_whole_length() {
        let lost = dropped(&plan("burst=1/2000x10"));
        assert!(!lost.is_empty());
        let mut run = 1;
        for pair in lost.windows(2) {
            if pair[1] == pair[0] + 1 {
                run += 1;
            } else {
                assert!(run >= 10, "a burst of {run} up to frame {}", pair[0]);
                run = 1;
            }
        }
    }

    #[test]
    fn faults_do_not_shift_one_another() {
        let single = dropped(&plan("drop=1%"));
        let among = plan("drop=1%&repeat=5%&reorder=3%x2&corrupt=9%&truncate=2%&pad=1%&delay=2ms+-1ms");
        assert_eq!(single, dropped(&among));
        let repeated = (0..20_000).filter(|number| among.of_frame(*number).repeated).count();
        let both = (0..20_000).filter(|n| among.of_frame(*n).repeated && among.of_frame(*n).dropped).count();
        assert!((800..1200).contains(&repeated), "{repeated}");
        assert!(both < 40, "{both} are both repeated and dropped: the draws are correlated");
    }

    #[test]
    fn seed_and_queue_determine_the_plan() {
        let lost = |faults: &str, queue| dropped(&Plan::new(Faults::parse(faults).unwrap(), queue));
        assert_eq!(lost("drop=1%&seed=5", 2), lost("drop=1%&seed=5", 2));
        assert_ne!(lost("drop=1%&seed=5", 2), lost("drop=1%&seed=5", 3));
        assert_ne!(lost("drop=1%&seed=5", 2), lost("drop=1%&seed=6", 2));
    }

    #[test]
    fn jitter_is_symmetric_and_bounded() {
        let plan = plan("delay=5ms+-2ms");
        let delays: Vec<Duration> = (0..10_000).map(|number| plan.delay(number)).collect();
        let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(*least >= Duration::from_millis(3) && *least < Duration::from_micros(3010), "{least:?}");
        assert!(*most <= Duration::from_millis(7) && *most > Duration::from_micros(6990), "{most:?}");
    }
}
