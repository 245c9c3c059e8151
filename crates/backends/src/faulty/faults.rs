//! Faults set by the user, as `key=value`.

use super::probability::Chance;
use linerate_generate::Rate;
use std::time::Duration;

/// Names of all options, in the order of the help text.
pub const NAMES: &[&str] =
    &["drop", "burst", "repeat", "reorder", "hold", "corrupt", "truncate", "pad", "delay", "rate", "queue", "seed"];
/// Maximum frames of a burst of losses, or of a reordering distance.
const MAX_DISTANCE: u32 = 1024;
/// Maximum flipped bits of a frame.
pub(super) const MAX_BITS: u32 = 64;
/// Longer delays would need too much memory.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// Faults of a port. None by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// `drop=0.1%`: frames dropped one by one.
    pub drop: Chance,
    /// `burst=0.01%x20`: probability that a burst starts, which drops this frame and the next ones, 20 in total.
    pub burst: (Chance, u32),
    /// `repeat=1%`: frames that are duplicated.
    pub repeat: Chance,
    /// `reorder=1%x5`: frames that leave after the next 5 frames.
    pub reorder: (Chance, u32),
    /// `hold=10ms`: maximum time that such a frame waits for others to pass it.
    pub hold: Duration,
    /// `corrupt=0.1%x3@14-33`: frames in which 3 bits of bytes 14 to 33 are flipped.
    pub corrupt: Corruption,
    /// `truncate=1%x60`: frames truncated to 60 bytes; by default to a random length of at least 14.
    pub truncate: (Chance, Option<u32>),
    /// `pad=1%x8`: frames padded by 8 bytes; by default by 1 to 64, at random.
    pub pad: (Chance, Option<u32>),
    /// `delay=20ms`: delay of every frame.
    pub delay: Duration,
    /// `delay=20ms+-5ms`: maximum random deviation of the delay; frames keep their order.
    pub jitter: Duration,
    /// `rate=100mbps`: rate at which frames leave.
    pub rate: Option<Rate>,
    /// `queue=1000`: maximum frames that wait because of the rate; above that frames are dropped.
    pub queue: u32,
    /// `seed=7`: seed for all random choices.
    pub seed: u64,
}

/// Bit errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// Probability per frame.
    pub chance: Chance,
    /// Number of bits per frame.
    pub bits: u32,
    /// First byte that may change.
    pub first: u32,
    /// Last byte that may change; bytes beyond the frame's end do not count.
    pub last: u32,
}

impl Default for Faults {
    fn default() -> Self {
        Faults {
            drop: Chance::NEVER,
            burst: (Chance::NEVER, 1),
            repeat: Chance::NEVER,
            reorder: (Chance::NEVER, 1),
            hold: Duration::from_millis(10),
            corrupt: Corruption { chance: Chance::NEVER, bits: 1, first: 0, last: u32::MAX },
            truncate: (Chance::NEVER, None),
            pad: (Chance::NEVER, None),
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate: None,
            queue: 1000,
            seed: 1,
        }
    }
}

impl Faults {
    /// Parses `key=value&key=value`; an error names the wrong value and the expected one.
    ///
    /// ```
    /// use linerate_backends::faulty::Faults;
    /// let faults = Faults::parse("drop=0.1%&delay=5ms+-1ms&seed=7").unwrap();
    /// assert_eq!((faults.delay.as_millis(), faults.seed), (5, 7));
    /// assert!(Faults::parse("drop=lots").unwrap_err().contains("0.1%"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut faults = Faults::default();
        for pair in text.split(['&', ',']).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not key=value"))?;
            if !faults.set(key, value)? {
                let meant = match key {
                    "loss" => " (did you mean drop?)",
                    "duplicate" => " (did you mean repeat?)",
                    _ => "",
                };
                return Err(format!("unknown fault {key:?}{meant}; expected one of: {}", NAMES.join(", ")));
            }
        }
        Ok(faults)
    }

    /// Sets one option; returns false if it is not one of these.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let wrong = |right: &str| format!("{key}={value}: expected {right}");
        match key {
            "drop" => self.drop = Chance::parse(value).ok_or_else(|| wrong(CHANCE))?,
            "repeat" => self.repeat = Chance::parse(value).ok_or_else(|| wrong(CHANCE))?,
            "burst" => {
                self.burst = distance(value).ok_or_else(|| wrong("a form such as 0.01%x20, 1 to 1024 frames"))?
            }
            "reorder" => {
                self.reorder = distance(value).ok_or_else(|| wrong("a form such as 1%x5, 1 to 1024 frames"))?
            }
            "corrupt" => {
                self.corrupt =
                    corruption(value).ok_or_else(|| wrong("a form such as 0.1% or 0.1%x3@14-33, 1 to 64 bits"))?;
            }
            "truncate" => {
                self.truncate = length(value).ok_or_else(|| wrong("a form such as 1% or 1%x60, 14 bytes or more"))?
            }
            "pad" => self.pad = padding(value).ok_or_else(|| wrong("a form such as 1% or 1%x8, 1 to 65535 bytes"))?,
            "hold" => self.hold = span(value).ok_or_else(|| wrong(SPAN))?,
            "delay" => (self.delay, self.jitter) = delay(value).ok_or_else(|| wrong(DELAY))?,
            "rate" => self.rate = Some(value.parse().map_err(|error| format!("{key}={value}: {error}"))?),
            "queue" => self.queue = value.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong("a number above 0"))?,
            "seed" => self.seed = value.parse().map_err(|_| wrong("a number from 0 to 2^64 - 1"))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns whether frames wait here, so that they leave in order of time, later than they arrived.
    pub fn delays(&self) -> bool {
        self.rate.is_some() || self.delay > Duration::ZERO
    }
}

const CHANCE: &str = "a probability, such as 0.1%, 1/1000 or 250ppm";
const SPAN: &str = "a duration up to 60s, such as 500us, 20ms or 1s";
const DELAY: &str = "a duration up to 60s, such as 20ms, or 20ms+-5ms with a deviation no longer than the delay";

fn distance(text: &str) -> Option<(Chance, u32)> {
    let (chance, frames) = times(text)?;
    let frames = frames.unwrap_or(1);
    (1..=MAX_DISTANCE).contains(&frames).then_some((chance, frames))
}

fn length(text: &str) -> Option<(Chance, Option<u32>)> {
    times(text).filter(|(_, length)| length.is_none_or(|length| length >= super::damage::SHORTEST as u32))
}

fn padding(text: &str) -> Option<(Chance, Option<u32>)> {
    times(text).filter(|(_, more)| more.is_none_or(|more| (1..=u32::from(u16::MAX)).contains(&more)))
}

fn corruption(text: &str) -> Option<Corruption> {
    let (text, place) = text.split_once('@').map_or((text, None), |(text, place)| (text, Some(place)));
    let (chance, bits) = times(text)?;
    let bits = bits.unwrap_or(1);
    let (first, last) = match place {
        None => (0, u32::MAX),
        Some(place) => {
            let (first, last) = place.split_once('-').unwrap_or((place, place));
            (first.parse().ok()?, last.parse().ok()?)
        }
    };
    let fits = (1..=MAX_BITS).contains(&bits) && first <= last;
    fits.then_some(Corruption { chance, bits, first, last })
}

/// Parses `0.1%x20`: a probability and an optional number.
fn times(text: &str) -> Option<(Chance, Option<u32>)> {
    match text.split_once('x') {
        None => Some((Chance::parse(text)?, None)),
        Some((chance, number)) => Some((Chance::parse(chance)?, Some(number.parse().ok()?))),
    }
}

fn delay(text: &str) -> Option<(Duration, Duration)> {
    let (delay, jitter) = text.split_once("+-").unwrap_or((text, "0s"));
    let (delay, jitter) = (span(delay)?, span(jitter)?);
    (jitter <= delay).then_some((delay, jitter))
}

fn span(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let seconds = number.parse::<f64>().ok()?
        * match unit {
            "ns" => 1e-9,
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "" if number == "0" => 0.0,
            _ => return None,
        };
    Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_fault_is_parsed() {
        let text = "drop=0.1%&burst=1/100x20&repeat=250ppm&reorder=1%x5&hold=2ms&corrupt=1%x3@14-33&truncate=1%x60\
                    &pad=2%&delay=20ms+-5ms&rate=100mbps&queue=64&seed=7";
        let faults = Faults::parse(text).unwrap();
        let chance = |text| Chance::parse(text).unwrap();
        assert_eq!((faults.drop, faults.repeat), (chance("0.1%"), chance("250ppm")));
        assert_eq!((faults.burst, faults.reorder), ((chance("1/100"), 20), (chance("1%"), 5)));
        assert_eq!(faults.corrupt, Corruption { chance: chance("1%"), bits: 3, first: 14, last: 33 });
        assert_eq!((faults.truncate, faults.pad), ((chance("1%"), Some(60)), (chance("2%"), None)));
        assert_eq!((faults.delay, faults.jitter), (Duration::from_millis(20), Duration::from_millis(5)));
        assert_eq!((faults.hold, faults.queue, faults.seed), (Duration::from_millis(2), 64, 7));
        assert_eq!(faults.rate, Some("100mbps".parse().unwrap()));
        let named: Vec<&str> = text.split('&').map(|pair| pair.split_once('=').unwrap().0).collect();
        assert_eq!(named, NAMES, "an option is not tested here");
        assert_eq!(Faults::parse("").unwrap(), Faults::default());
        assert_eq!(Faults::parse("drop=0&delay=0").unwrap(), Faults::default());
    }

    #[test]
    fn errors_name_the_expected_value() {
        for (text, part) in [
            ("drop=lots", "0.1%"),
            ("drop=0.5", "250ppm"),
            ("burst=1%x0", "1%x0: expected a form such as 0.01%x20"),
            ("reorder=1%x5000", "1024"),
            ("corrupt=1%x65", "64 bits"),
            ("corrupt=1%@9-3", "14-33"),
            ("truncate=1%x13", "14 bytes"),
            ("pad=1%x0", "65535"),
            ("delay=5", "20ms"),
            ("delay=1ms+-2ms", "no longer"),
            ("hold=2h", "60s"),
            ("rate=fast", "10gbps"),
            ("queue=0", "above 0"),
            ("seed=x", "2^64"),
            ("speed=1", "drop, burst"),
            ("drop", "key=value"),
        ] {
            let error = Faults::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_faults_or_an_error(key in 0..NAMES.len(), value in "[0-9a-z.%/x@+-]{0,12}", text in ".*") {
            let _ = Faults::parse(&format!("{}={value}", NAMES[key]));
            let _ = Faults::parse(&text);
        }
    }
}
