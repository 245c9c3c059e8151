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

#[cfg(test)]
mod tests {
    use super::*;

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
