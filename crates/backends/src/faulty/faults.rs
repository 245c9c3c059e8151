//! The faults that a user asks for, as `key=value`.

use super::chance::Chance;
use linerate_generate::Rate;
use std::time::Duration;

/// The names of all options, in the order of the help text.
pub const NAMES: &[&str] =
    &["drop", "burst", "repeat", "reorder", "hold", "corrupt", "truncate", "pad", "delay", "rate", "queue", "seed"];
/// The most frames a burst of losses takes, or that pass a frame held back.
const MAX_DISTANCE: u32 = 1024;
/// The most bits turned over in a frame.
pub(super) const MAX_BITS: u32 = 64;
/// Longer delays would need more memory than is wise.
const MAX_DELAY: Duration = Duration::from_secs(60);

/// What a faulty port does to frames. Without options: nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// `drop=0.1%`: frames dropped one by one.
    pub drop: Chance,
    /// `burst=0.01%x20`: with this chance a burst begins, which drops that frame and those that follow, so many
    /// together.
    pub burst: (Chance, u32),
    /// `repeat=1%`: frames that come twice.
    pub repeat: Chance,
    /// `reorder=1%x5`: frames that leave behind the next 5 that leave.
    pub reorder: (Chance, u32),
    /// `hold=10ms`: the longest that such a frame waits for others to pass it.
    pub hold: Duration,
    /// `corrupt=0.1%x3@14-33`: frames in which 3 bits of bytes 14 to 33 are turned over.
    pub corrupt: Corruption,
    /// `truncate=1%x60`: frames cut to 60 bytes; to a length from the seed (14 or more) where none is given.
    pub truncate: (Chance, Option<u32>),
    /// `pad=1%x8`: frames with 8 bytes more behind them; 1 to 64, from the seed, where none is given.
    pub pad: (Chance, Option<u32>),
    /// `delay=20ms`: how much later every frame comes.
    pub delay: Duration,
    /// `delay=20ms+-5ms`: by how much more or less at most, from the seed; frames keep their order.
    pub jitter: Duration,
    /// `rate=100mbps`: how fast frames leave, one after the other.
    pub rate: Option<Rate>,
    /// `queue=1000`: how many frames may wait because of the rate; those that find as many are dropped.
    pub queue: u32,
    /// `seed=7`: what all chances are drawn from.
    pub seed: u64,
}

/// Bits turned over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corruption {
    /// How many frames.
    pub chance: Chance,
    /// How many bits of each.
    pub bits: u32,
    /// The first byte they may be in.
    pub first: u32,
    /// The last byte they may be in; those beyond the frame's end do not count.
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
    /// Reads `key=value&key=value`; the error says which is wrong, and what is right.
    ///
    /// ```
    /// use linerate_backends::faulty::Faults;
    /// let faults = Faults::parse("drop=0.1%&delay=5ms+-1ms&seed=7").unwrap();
    /// assert_eq!((faults.delay.as_millis(), faults.seed), (5, 7));
    /// assert!(Faults::parse("drop=lots").unwrap_err().contains("0.1%"));
    /// ```
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut faults = Faults::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not key=value"))?;
            if !faults.set(key, value)? {
                return Err(format!("no fault {key:?}; there are: {}", NAMES.join(", ")));
            }
        }
        Ok(faults)
    }

    /// Takes one option; false if it is none of these.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let wrong = |right: &str| format!("{key}={value}: it is {right}");
        match key {
            "drop" => self.drop = Chance::parse(value).ok_or_else(|| wrong(CHANCE))?,
            "repeat" => self.repeat = Chance::parse(value).ok_or_else(|| wrong(CHANCE))?,
            "burst" => self.burst = distance(value).ok_or_else(|| wrong("as in 0.01%x20, 1 to 1024 frames"))?,
            "reorder" => self.reorder = distance(value).ok_or_else(|| wrong("as in 1%x5, 1 to 1024 frames"))?,
            "corrupt" => {
                self.corrupt = corruption(value).ok_or_else(|| wrong("as in 0.1% or 0.1%x3@14-33, 1 to 64 bits"))?;
            }
            "truncate" => self.truncate = length(value).ok_or_else(|| wrong("as in 1% or 1%x60, 14 bytes or more"))?,
            "pad" => self.pad = padding(value).ok_or_else(|| wrong("as in 1% or 1%x8, 1 to 65535 bytes"))?,
            "hold" => self.hold = span(value).ok_or_else(|| wrong(SPAN))?,
            "delay" => (self.delay, self.jitter) = delay(value).ok_or_else(|| wrong(DELAY))?,
            "rate" => self.rate = Some(value.parse().map_err(|error| format!("{key}={value}: {error}"))?),
            "queue" => self.queue = value.parse().ok().filter(|n| *n > 0).ok_or_else(|| wrong("a number above 0"))?,
            "seed" => self.seed = value.parse().map_err(|_| wrong("a number from 0 to 2^64 - 1"))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether frames wait here, so that they leave in order of time, later than they came.
    pub fn delays(&self) -> bool {
        self.rate.is_some() || self.delay > Duration::ZERO
    }
}

const CHANCE: &str = "a chance, as in 0.1%, 1/1000 or 250ppm";
const SPAN: &str = "a span of time up to 60s, as in 500us, 20ms or 1s";
const DELAY: &str = "a span of time up to 60s, as in 20ms, or 20ms+-5ms with a part no longer than the whole";

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

/// `0.1%x20`: a chance, and a number where there is one.
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
    fn every_fault_is_read_as_it_is_written() {
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
        assert_eq!(named, NAMES, "an option is not tried here");
        assert_eq!(Faults::parse("").unwrap(), Faults::default());
        assert_eq!(Faults::parse("drop=0&delay=0").unwrap(), Faults::default());
    }

    #[test]
    fn what_is_wrong_is_said_with_what_is_right() {
        for (text, part) in [
            ("drop=lots", "0.1%"),
            ("drop=0.5", "250ppm"),
            ("burst=1%x0", "1%x0: it is as in 0.01%x20"),
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
