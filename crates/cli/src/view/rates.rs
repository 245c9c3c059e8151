//! Frames and bytes over time, in the units of the field.

use linerate_generate::rate::{FCS, L1_OVERHEAD};
use serde::Serialize;

/// Rates of a run, decimal units. Layer 2 counts the FCS, layer 1 also preamble and gap, of frames as
/// long as they were on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Millions of frames per second.
    pub mpps: f64,
    /// Gb/s with preamble, FCS and gap.
    pub gbps_l1: f64,
    /// Gb/s with FCS.
    pub gbps_l2: f64,
}

impl Rates {
    /// From frames, their bytes on the wire without FCS, and seconds.
    pub fn new(frames: u64, wire_bytes: u64, seconds: f64) -> Self {
        if seconds <= 0.0 {
            return Rates::default();
        }
        let gbps = |overhead: u64| (wire_bytes + overhead * frames) as f64 * 8.0 / seconds / 1e9;
        Rates { mpps: frames as f64 / seconds / 1e6, gbps_l1: gbps(L1_OVERHEAD), gbps_l2: gbps(FCS) }
    }
}

/// A number with commas between thousands.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A rate of frames, in the unit that keeps it readable.
pub fn frames_per_second(mpps: f64) -> String {
    if mpps >= 1.0 {
        format!("{mpps:.2} M frames/s")
    } else if mpps >= 1e-3 {
        format!("{:.1} k frames/s", mpps * 1e3)
    } else {
        format!("{:.0} frames/s", mpps * 1e6)
    }
}

/// Bits per second, from Gb/s, in the unit that keeps them readable.
pub fn bits_per_second(gbps: f64) -> String {
    // So that what is rounded has no more digits than its unit has.
    if gbps >= 0.9995 {
        format!("{gbps:.3} Gb/s")
    } else if gbps >= 0.999_5e-3 {
        format!("{:.1} Mb/s", gbps * 1e3)
    } else {
        format!("{:.1} kb/s", gbps * 1e6)
    }
}

/// Counts that are not zero, to stand behind others in a line.
pub fn remarkable(counts: &[(u64, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("  {} {what}", grouped(*count))).collect()
}

/// How much was done in so many seconds, and how fast: how every summary begins, also one of what was done so far.
pub fn totals(what: &str, frames: u64, bytes: u64, wire_bytes: u64, seconds: f64) -> String {
    let rates = Rates::new(frames, wire_bytes, seconds);
    format!(
        "{} frames, {} bytes {what} in {seconds:.3} s: {}, {} L1",
        grouped(frames),
        grouped(bytes),
        frames_per_second(rates.mpps),
        bits_per_second(rates.gbps_l1),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_the_unit_that_fits() {
        for (gbps, text) in [
            (0.0, "0.0 kb/s"),
            (0.000_1, "100.0 kb/s"),
            (0.001, "1.0 Mb/s"),
            (0.25, "250.0 Mb/s"),
            (9.87, "9.870 Gb/s"),
        ] {
            assert_eq!(bits_per_second(gbps), text);
        }
        assert_eq!(
            totals("sent", 1000, 60_000, 60_000, 0.5),
            "1,000 frames, 60,000 bytes sent in 0.500 s: 2.0 k frames/s, 1.3 Mb/s L1"
        );
    }

    #[test]
    fn rates_count_what_their_layer_has() {
        let rates = Rates::new(14_880_952, 14_880_952 * 60, 1.0);
        assert!((rates.gbps_l1 - 10.0).abs() < 1e-6 && (rates.gbps_l2 - 7.619).abs() < 1e-3, "{rates:?}");
        assert_eq!(Rates::new(5, 5, 0.0), Rates::default());
    }

    #[test]
    fn thousands_are_set_apart() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
