//! Rates as users write them: `1mpps`, `500kpps`, `10gbps`, `10gbpsl1`, `50%`, `max`.

use std::fmt;
use std::str::FromStr;

/// Bytes that each frame occupies on an Ethernet wire in addition to the captured ones: preamble and start delimiter 8,
/// FCS 4, gap 12 (IEEE 802.3, clause 3 and 4.4.2).
pub const L1_OVERHEAD: u64 = 24;
/// Bytes of the FCS, which is counted at layer 2.
pub const FCS: u64 = 4;

/// Layer at which the bits of a rate are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Whole time on the wire: preamble, frame, FCS and gap.
    L1,
    /// Frame with its FCS.
    L2,
}

/// Send rate. Decimal units: 1 Gb/s is 10^9 bit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Frames per second.
    Frames(f64),
    /// Bits per second at a layer.
    Bits(f64, Layer),
    /// As fast as the port takes frames.
    Top,
}

/// Requested rate: a rate, or a share of the line rate, which only the port knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RequestedRate {
    /// Absolute rate.
    Rate(Rate),
    /// Share of the line rate: 1 is all of it.
    OfLine(f64),
}

impl RequestedRate {
    /// Returns the rate, given the line rate in bits per second at layer 1; `None` if the line rate is needed and
    /// unknown.
    pub fn on_line(self, line: Option<f64>) -> Option<Rate> {
        match self {
            RequestedRate::Rate(rate) => Some(rate),
            RequestedRate::OfLine(share) => line.map(|line| Rate::Bits(line * share, Layer::L1)),
        }
    }
}

impl FromStr for RequestedRate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let Some(percent) = text.trim().strip_suffix('%') else { return text.parse().map(RequestedRate::Rate) };
        let percent = percent.parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent <= 100.0);
        percent.map(|percent| RequestedRate::OfLine(percent / 100.0)).ok_or_else(|| BadRate::new(text))
    }
}

/// Invalid rate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid rate {0:?}; {1}expected a rate such as 250kpps, 1.5mpps, 10gbps (layer 2), 10gbpsl1 (with preamble and gap), 50% (of line rate, up to 100%) or max"
)]
pub struct BadRate(String, String);

impl BadRate {
    /// Suggests a unit if a number lacks it.
    fn new(text: &str) -> Self {
        let number = text.trim().to_ascii_lowercase();
        let is_number = number.trim_end_matches(['k', 'm', 'g']).parse::<f64>().is_ok_and(|value| value > 0.0);
        let meant =
            if is_number { format!("for packets use {number}pps, for bits {number}bps; ") } else { String::new() };
        BadRate(text.to_owned(), meant)
    }
}

impl Rate {
    /// Returns the nanoseconds that frames take at this rate, given their number and the sum of their captured lengths,
    /// rounded, so that whole numbers are exact; 0 at the maximum rate.
    pub fn nanos(&self, frames: u64, bytes: u64) -> u64 {
        self.exact_nanos(frames, bytes).round() as u64
    }

    /// Returns the rate times `factor`; the maximum rate stays.
    pub fn scaled(self, factor: f64) -> Rate {
        match self {
            Rate::Top => Rate::Top,
            Rate::Frames(rate) => Rate::Frames(rate * factor),
            Rate::Bits(bits, layer) => Rate::Bits(bits * factor, layer),
        }
    }

    /// Like [`Rate::nanos`], with fractions of a nanosecond.
    pub fn exact_nanos(&self, frames: u64, bytes: u64) -> f64 {
        let seconds = match self {
            Rate::Top => 0.0,
            Rate::Frames(rate) => frames as f64 / rate,
            Rate::Bits(rate, Layer::L2) => (bytes + FCS * frames) as f64 * 8.0 / rate,
            Rate::Bits(rate, Layer::L1) => (bytes + L1_OVERHEAD * frames) as f64 * 8.0 / rate,
        };
        seconds * 1e9
    }
}

impl FromStr for Rate {
    type Err = BadRate;

    fn from_str(text: &str) -> Result<Self, BadRate> {
        let lower = text.trim().to_ascii_lowercase();
        let bad = || BadRate::new(text);
        if lower == "max" {
            return Ok(Rate::Top);
        }
        let digits = lower.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = lower[..digits].parse().map_err(|_| bad())?;
        let unit = &lower[digits..];
        let (factor, unit) = match unit.as_bytes().first() {
            Some(b'k') => (1e3, &unit[1..]),
            Some(b'm') => (1e6, &unit[1..]),
            Some(b'g') => (1e9, &unit[1..]),
            _ => (1.0, unit),
        };
        let value = number * factor;
        if !value.is_finite() || value <= 0.0 {
            return Err(bad());
        }
        match unit {
            "pps" => Ok(Rate::Frames(value)),
            "bps" | "bpsl2" | "bit" | "bit/s" => Ok(Rate::Bits(value, Layer::L2)),
            "bpsl1" => Ok(Rate::Bits(value, Layer::L1)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Top => f.write_str("maximum rate"),
            Rate::Frames(rate) => write!(f, "{} packets/s", round_to_thousandths(*rate)),
            Rate::Bits(rate, Layer::L1) => write!(f, "{} Gb/s L1", round_to_thousandths(*rate) / 1e9),
            Rate::Bits(rate, Layer::L2) => write!(f, "{} Gb/s L2", round_to_thousandths(*rate) / 1e9),
        }
    }
}

/// Rounds to thousandths: a scaled rate has meaningless digits. Rates below 1 are kept.
fn round_to_thousandths(rate: f64) -> f64 {
    if rate < 1.0 { rate } else { (rate * 1e3).round() / 1e3 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_parsed_as_users_write_them() {
        for (text, rate) in [
            ("250kpps", Rate::Frames(250e3)),
            ("1.5Mpps", Rate::Frames(1.5e6)),
            ("7pps", Rate::Frames(7.0)),
            ("10gbps", Rate::Bits(10e9, Layer::L2)),
            ("10gbpsl1", Rate::Bits(10e9, Layer::L1)),
            ("10Mbit", Rate::Bits(10e6, Layer::L2)),
            ("1gbit/s", Rate::Bits(1e9, Layer::L2)),
            ("max", Rate::Top),
        ] {
            assert_eq!(text.parse(), Ok(rate), "{text}");
        }
        for wrong in ["", "10", "pps", "0pps", "-1pps", "1xpps", "1gbpsl3", "1.2.3mpps", "NaNpps", "50%"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        for (wrong, meant) in
            [("10g", "for packets use 10gpps, for bits 10gbps"), ("100", "for packets use 100pps, for bits")]
        {
            assert!(wrong.parse::<Rate>().unwrap_err().to_string().contains(meant), "{wrong}");
        }
    }

    #[test]
    fn rates_are_shown_with_significant_digits() {
        for (rate, text) in [
            (Rate::Frames(2000.0).scaled(1.1).scaled(1.1).scaled(1.1), "2662 packets/s"),
            (Rate::Frames(1e3 / 3.0), "333.333 packets/s"),
            (Rate::Frames(0.000_25), "0.00025 packets/s"),
            (Rate::Bits(1.5e9, Layer::L2), "1.5 Gb/s L2"),
            (Rate::Top, "maximum rate"),
        ] {
            assert_eq!(rate.to_string(), text);
        }
    }

    #[test]
    fn shares_of_a_line_need_the_line() {
        let half: RequestedRate = "50%".parse().unwrap();
        assert_eq!(half.on_line(Some(1e10)), Some(Rate::Bits(5e9, Layer::L1)));
        assert_eq!(half.on_line(None), None);
        assert_eq!("7pps".parse::<RequestedRate>().unwrap().on_line(None), Some(Rate::Frames(7.0)));
        for wrong in ["%", "0%", "-1%", "NaN%", "inf%", "100.1%", "x%"] {
            assert!(wrong.parse::<RequestedRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn line_rate_of_the_smallest_frame_is_the_textbook_value() {
        // 10 Gb/s of 64-byte frames (60 captured): 14.88 M packets/s.
        let nanos = Rate::Bits(10e9, Layer::L1).nanos(14_880_952, 14_880_952 * 60);
        assert!((999_999_000..=1_000_000_000).contains(&nanos), "{nanos}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_rate_or_an_error(text in ".*") {
            let _ = text.parse::<Rate>();
        }
    }
}
