//! Short numbers for live views.

use crate::view::rates::bits_per_second;
use linerate_generate::rate::L1_OVERHEAD;

/// Formats a rate in at most six characters and a unit.
pub fn count(rate: f64) -> String {
    match rate {
        rate if rate >= 999_950.0 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 9_999.5 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Formats a number per time as a rate.
pub fn per(number: u64, seconds: f64) -> String {
    if seconds > 0.0 { count(number as f64 / seconds) } else { "-".to_owned() }
}

/// Formats a bit rate without `b/s`, from bytes on the wire without FCS.
pub fn bits(bytes: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
    match rate {
        rate if rate >= 999_950_000.0 => format!("{:.2} G", rate / 1e9),
        rate if rate >= 999_950.0 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 999.5 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// Formats the bit rate at layer 1, from frames per second and their bytes per second on the wire without FCS.
pub fn l1(frames: f64, bytes: f64) -> String {
    bits_per_second((bytes + L1_OVERHEAD as f64 * frames) * 8.0 / 1e9)
}

/// Formats a number of bytes.
pub fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        bytes if bytes >= 1e9 => format!("{:.2} GB", bytes / 1e9),
        bytes if bytes >= 1e6 => format!("{:.1} MB", bytes / 1e6),
        bytes if bytes >= 1e3 => format!("{:.1} kB", bytes / 1e3),
        bytes => format!("{bytes:.0} B"),
    }
}

/// Formats a duration.
pub fn span(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        0..100 if seconds < 9.95 => format!("{seconds:.1} s"),
        seconds @ 0..100 => format!("{seconds} s"),
        seconds @ 100..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        seconds => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_readable_unit() {
        assert_eq!([0.0, 9999.4, 12_345.0, 1e6].map(count), ["0", "9999", "12.3 k", "1.00 M"]);
        assert_eq!([0, 125, 125_000, 125_000_000].map(|bytes| bits(bytes, 1.0)), ["0", "1.0 k", "1.00 M", "1.00 G"]);
        assert_eq!([0.0, 9.94, 59.9, 100.0, 3600.0].map(span), ["0.0 s", "9.9 s", "59 s", "1:40", "1:00:00"]);
        assert_eq!([999, 1000, 1_500_000].map(size), ["999 B", "1.0 kB", "1.5 MB"]);
        assert_eq!((per(10, 2.0), per(1, 0.0)), ("5".to_owned(), "-".to_owned()));
        assert_eq!(l1(14_880_952.0, 14_880_952.0 * 60.0), "10.00 Gb/s");
    }
}
