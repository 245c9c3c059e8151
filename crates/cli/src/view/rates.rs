//! Rates and counts as text.

use linerate_generate::rate::{FCS, L1_OVERHEAD};
use serde::Serialize;

/// Rates of a run, in decimal units, by frame lengths on the wire. Layer 2 includes the FCS, layer 1 also preamble and gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Millions of frames per second; `None` if no time passed, as in a file with one packet.
    pub mpps: Option<f64>,
    /// Gb/s with preamble, FCS and gap.
    pub gbps_l1: Option<f64>,
    /// Gb/s with FCS.
    pub gbps_l2: Option<f64>,
}

impl Rates {
    /// Computes rates from frames, their bytes on the wire without FCS, and seconds.
    pub fn new(frames: u64, wire_bytes: u64, seconds: f64) -> Self {
        if seconds <= 0.0 {
            return Rates::default();
        }
        let gbps = |overhead: u64| (wire_bytes + overhead * frames) as f64 * 8.0 / seconds / 1e9;
        let mpps = frames as f64 / seconds / 1e6;
        Rates { mpps: Some(mpps), gbps_l1: Some(gbps(L1_OVERHEAD)), gbps_l2: Some(gbps(FCS)) }
    }

    /// Returns the frame rate as text; empty without one.
    pub fn frames(&self) -> String {
        self.mpps.map_or_else(String::new, frames_per_second)
    }

    /// Returns the bit rate at layer 1 as text.
    pub fn l1(&self) -> String {
        self.gbps_l1.map_or_else(String::new, bits_per_second)
    }

    /// Returns the bit rate at layer 2 as text.
    pub fn l2(&self) -> String {
        self.gbps_l2.map_or_else(String::new, bits_per_second)
    }
}

/// Formats a number with thousands separators.
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

/// Formats a number with a noun: `1 packet`, `2 packets`, `1 reply`, `1,000 replies`.
pub fn counted(number: u64, thing: &str) -> String {
    let things = match (number, thing.strip_suffix('y')) {
        (1, _) => thing.to_owned(),
        (_, Some(stem)) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies"),
        _ => format!("{thing}s"),
    };
    format!("{} {things}", grouped(number))
}

/// Formats a number with a statement given in the plural: `1 frame is not IP`, `2 frames are not IP`. The noun is one of the first
/// two words, and a verb after it agrees with it.
pub fn stated(number: u64, plural: &str) -> String {
    let mut words: Vec<&str> = plural.split(' ').collect();
    let is_noun = |word: &&str| word.len() > 3 && word.ends_with('s') && !word.contains('_');
    let noun = words.iter().take(2).position(is_noun).filter(|_| number == 1);
    if let Some(noun) = noun {
        words[noun] = words[noun].trim_end_matches('s');
        if let Some(verb) = words.get_mut(noun + 1) {
            let verbs = [("are", "is"), ("were", "was"), ("have", "has"), ("lie", "lies")];
            *verb = verbs.iter().find(|(plural, _)| plural == verb).map_or(*verb, |(_, singular)| singular);
        }
    }
    format!("{} {}", grouped(number), words.join(" "))
}

/// Formats a frame rate in a readable unit.
pub fn frames_per_second(mpps: f64) -> String {
    // Limits before rounding, so that 999.96 does not print as 1000.
    if mpps >= 0.99995 {
        format!("{} M packets/s", four_digits(mpps))
    } else if mpps >= 0.9995e-3 {
        format!("{} k packets/s", four_digits(mpps * 1e3))
    } else {
        format!("{:.0} packets/s", mpps * 1e6)
    }
}

/// Formats a number from 1 to 1,000 with four digits: a rate that is 0.1 % off its target shows it.
fn four_digits(number: f64) -> String {
    match number {
        ..9.9995 => format!("{number:.3}"),
        ..99.995 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

/// Formats a bit rate, given in Gb/s, in a readable unit.
pub fn bits_per_second(gbps: f64) -> String {
    // Limits before rounding, so that 999.96 does not print as 1000.0.
    if gbps >= 0.99995 {
        format!("{} Gb/s", four_digits(gbps))
    } else if gbps >= 0.999_95e-3 {
        format!("{} Mb/s", four_digits(gbps * 1e3))
    } else {
        format!("{} kb/s", four_digits(gbps * 1e6))
    }
}

/// Formats non-zero counts, to append to a line.
pub fn format_nonzero(counts: &[(u64, &str)]) -> String {
    let some = counts.iter().filter(|(count, _)| *count > 0);
    some.map(|(count, what)| format!("  {} {what}", grouped(*count))).collect()
}

/// Formats totals and rates of a number of seconds, the first line of every summary.
pub fn totals(what: &str, frames: u64, bytes: u64, wire_bytes: u64, seconds: f64) -> String {
    let rates = rates_of(Rates::new(frames, wire_bytes, seconds));
    format!("{}, {} {what} in {seconds:.3} s{rates}", counted(frames, "packet"), counted(bytes, "byte"))
}

/// Formats totals of files: packets with time stamps over `span` seconds, read in `seconds`.
pub fn totals_read(what: &str, frames: u64, bytes: u64, wire_bytes: u64, (span, seconds): (f64, f64)) -> String {
    let rates = rates_of(Rates::new(frames, wire_bytes, span));
    let read = format!("{}, {} {what} in {seconds:.3} s", counted(frames, "packet"), counted(bytes, "byte"));
    if rates.is_empty() { read } else { format!("{read}; {span:.3} s of traffic{rates}") }
}

fn rates_of(rates: Rates) -> String {
    if rates.mpps.is_none() { String::new() } else { format!(": {}, {} L1", rates.frames(), rates.l1()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_rates_have_a_readable_unit() {
        for (gbps, text) in [
            (0.0, "0.000 kb/s"),
            (0.000_1, "100.0 kb/s"),
            (0.000_999_96, "1.000 Mb/s"),
            (0.001, "1.000 Mb/s"),
            (0.25, "250.0 Mb/s"),
            (0.999_96, "1.000 Gb/s"),
            (9.87, "9.870 Gb/s"),
            (9.999_6, "10.00 Gb/s"),
            (123.456, "123.5 Gb/s"),
        ] {
            assert_eq!(bits_per_second(gbps), text);
        }
        assert_eq!(
            totals("sent", 1000, 60_000, 60_000, 0.5),
            "1,000 packets, 60,000 bytes sent in 0.500 s: 2.000 k packets/s, 1.344 Mb/s L1"
        );
    }

    #[test]
    fn rates_include_the_overhead_of_their_layer() {
        let rates = Rates::new(14_880_952, 14_880_952 * 60, 1.0);
        let [l1, l2] = [rates.gbps_l1, rates.gbps_l2].map(Option::unwrap);
        assert!((l1 - 10.0).abs() < 1e-6 && (l2 - 7.619).abs() < 1e-3, "{rates:?}");
        assert_eq!(Rates::new(5, 5, 0.0), Rates::default());
    }

    #[test]
    fn one_is_singular() {
        for (number, thing, text) in [
            (0, "frame", "0 frames"),
            (1, "frame", "1 frame"),
            (1000, "byte", "1,000 bytes"),
            (1, "reply", "1 reply"),
            (2, "reply", "2 replies"),
            (2, "day", "2 days"),
        ] {
            assert_eq!(counted(number, thing), text);
        }
        for (number, plural, text) in [
            (1, "frames are not IP", "1 frame is not IP"),
            (2, "frames are not IP", "2 frames are not IP"),
            (1, "later fragments have no first", "1 later fragment has no first"),
            (1, "frames came after later ones", "1 frame came after later ones"),
            (1, "of the lost have numbers below the first", "1 of the lost have numbers below the first"),
        ] {
            assert_eq!(stated(number, plural), text);
        }
    }

    #[test]
    fn no_rate_without_time() {
        assert_eq!(totals("sent", 1, 60, 60, 0.0), "1 packet, 60 bytes sent in 0.000 s");
        assert_eq!(totals_read("captured", 1, 60, 60, (0.0, 0.5)), "1 packet, 60 bytes captured in 0.500 s");
        let read = totals_read("captured", 1000, 60_000, 60_000, (0.5, 0.001));
        assert_eq!(
            read,
            "1,000 packets, 60,000 bytes captured in 0.001 s; 0.500 s of traffic: 2.000 k packets/s, 1.344 Mb/s L1"
        );
    }

    #[test]
    fn thousands_are_separated() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
    }
}
