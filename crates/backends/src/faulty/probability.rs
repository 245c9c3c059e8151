//! Probabilities, and random draws.

pub(super) use linerate_burst::random::draw;
use std::fmt;

/// An exact probability: `0.1%`, `1/1000`, `250ppm`, or `0` for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance {
    /// At most `of`.
    times: u64,
    /// A power of ten, or the denominator as it was written.
    of: u64,
}

/// Decimal places of a percentage: the smallest probability is one frame in 10^11.
const MAX_DECIMALS: usize = 9;

impl Chance {
    /// Probability 0.
    pub const NEVER: Chance = Chance { times: 0, of: 1 };

    /// Returns `times` in `of`; `None` unless it is between 0 and 1.
    pub fn new(times: u64, of: u64) -> Option<Self> {
        (of > 0 && times <= of).then_some(Chance { times, of })
    }

    /// Parses a probability.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((times, of)) = text.split_once('/') {
            return Chance::new(digits(times)?, digits(of)?);
        }
        if let Some(parts) = text.strip_suffix("ppm") {
            return Chance::new(digits(parts)?, 1_000_000);
        }
        if let Some(percent) = text.strip_suffix('%') {
            let (whole, decimals) = percent.split_once('.').unwrap_or((percent, ""));
            if decimals.len() > MAX_DECIMALS {
                return None;
            }
            let scale = 10u64.pow(decimals.len() as u32);
            let decimals = if decimals.is_empty() { 0 } else { digits(decimals)? };
            return Chance::new(digits(whole)?.checked_mul(scale)?.checked_add(decimals)?, 100 * scale);
        }
        (text == "0").then_some(Chance::NEVER)
    }

    /// Returns whether it is 0.
    pub fn is_zero(self) -> bool {
        self.times == 0
    }

    /// Returns whether a draw from all 64-bit numbers is a hit: exactly its share of all draws is, to one in 2^64.
    #[inline]
    pub fn hits(self, draw: u64) -> bool {
        scale(draw, self.of) < self.times
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.times as f64 * 100.0 / self.of as f64)
    }
}

/// Scales a draw to a number below `bound`, uniform to one in 2^64.
#[inline]
pub(super) fn scale(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// Parses digits without sign or space.
fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn chances_are_read_exactly() {
        for (text, times, of) in [
            ("0.1%", 1, 1000),
            ("100%", 100, 100),
            ("12.5%", 125, 1000),
            ("1/3", 1, 3),
            ("250ppm", 250, 1_000_000),
            ("0", 0, 1),
            ("0/5", 0, 5),
        ] {
            assert_eq!(Chance::parse(text), Chance::new(times, of), "{text}");
        }
        for wrong in ["", "1", "0.5", "101%", "2/1", "1/0", "-1%", "%", ".%", "1e3ppm", "1.0000000000%", "5 %", "+1%"] {
            assert_eq!(Chance::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn certain_and_impossible_chances_are_exact() {
        for draw in [0, 1, u64::MAX / 2, u64::MAX] {
            assert!(Chance::parse("100%").unwrap().hits(draw));
            assert!(!Chance::NEVER.hits(draw));
        }
        let third = Chance::new(1, 3).unwrap();
        assert!(third.hits(u64::MAX / 3 - 1) && !third.hits(u64::MAX / 3 + 2));
    }

    #[test]
    fn the_number_of_hits_matches_the_chance() {
        let chance = Chance::parse("1%").unwrap();
        let hits = (0..1_000_000).filter(|index| chance.hits(draw(7, *index))).count();
        // Five standard deviations.
        assert!((9_500..=10_500).contains(&hits), "{hits}");
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in ".*") {
            let _ = Chance::parse(&text);
        }
    }
}
