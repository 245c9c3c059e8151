//! Numbers with units on the command line: the same forms in every option.

use crate::exit::usage;
use clap::{Arg, ArgAction, Command};
use linerate_port::spec::parse_size;
use std::any::TypeId;
use std::time::Duration;

/// Seconds in a unit of time.
const SPANS: [(&str, f64); 9] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("d", 86_400.0),
    ("w", 604_800.0),
];

/// Factors of the units of counts.
const COUNTS: [(&str, u64); 7] = [
    ("", 1),
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("m", 1_000_000),
    ("G", 1_000_000_000),
    ("g", 1_000_000_000),
];

/// Gives every option of seconds or milliseconds the same parser, and lets flags be repeated. Options of time have the
/// value name `S` or `MS`.
pub(super) fn accept(verb: Command) -> Command {
    verb.mut_subcommands(accept).mut_args(|option| {
        let is_number = option.get_value_parser().type_id() == TypeId::of::<f64>();
        // A flag may be repeated, as in -vv.
        if matches!(option.get_action(), ArgAction::SetTrue) {
            let own = option.get_id().clone();
            return option.overrides_with(own);
        }
        match option.get_value_names().and_then(<[_]>::first).map(|name| name.to_string()).as_deref() {
            Some("S") if is_number => take(option, seconds),
            Some("MS") if is_number => take(option, milliseconds),
            _ => option,
        }
    })
}

fn take(option: Arg, parser: fn(&str) -> Result<f64, String>) -> Arg {
    option.value_parser(parser)
}

/// Parses a duration in seconds: `30`, `1.5`, `500ms`, `5m`, `1h`.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    duration(text, "s", "seconds or a unit, such as 30, 500ms, 5m, 1h")
}

/// Parses a duration in milliseconds: `30`, `1.5s`, `250us`.
fn milliseconds(text: &str) -> Result<f64, String> {
    duration(text, "ms", "milliseconds or a unit, such as 30, 250us, 2s").map(|seconds| seconds * 1e3)
}

/// Parses a duration; a number without a unit is in `usual`. Returns seconds.
fn duration(text: &str, usual: &str, expected: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = Some(&text[digits.len()..]).filter(|unit| !unit.is_empty()).unwrap_or(usual);
    let scale = SPANS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    // 1e-3 and the like are not exact, their inverses are.
    let number = digits.parse::<f64>().ok().zip(scale).map(|(number, scale)| match scale < 1.0 {
        true => number / (1.0 / scale).round(),
        false => number * scale,
    });
    number
        .filter(|seconds| Duration::try_from_secs_f64(*seconds).is_ok())
        .ok_or_else(|| format!("invalid duration; expected {expected}"))
}

/// Parses a number of packets or similar: `1000`, `1,000`, `10k`, `2.5M`.
pub(super) fn count(text: &str) -> Result<u64, String> {
    let wrong = || "invalid number; expected digits or a unit, such as 1000, 10k, 5M".to_owned();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (_, scale) = COUNTS.iter().find(|(name, _)| *name == &text[digits.len()..]).ok_or_else(wrong)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let power = 10u64.pow(u32::try_from(fraction.len()).ok().filter(|_| is_fraction).ok_or_else(wrong)?);
    let parts =
        format!("{whole}{fraction}").parse::<u64>().ok().filter(|_| !whole.starts_with('+')).ok_or_else(wrong)?;
    let parts = u128::from(parts) * u128::from(*scale);
    // Fractions of a packet are refused.
    (parts % u128::from(power) == 0).then(|| u64::try_from(parts / u128::from(power)).ok()).flatten().ok_or_else(wrong)
}

/// Parses a number of items in memory.
pub(super) fn entries(text: &str) -> Result<usize, String> {
    count(text)?.try_into().map_err(|_| "too large for memory".to_owned())
}

/// Minimum size of a file: a header and some packets.
const LEAST_SIZE: u64 = 1 << 10;

/// Parses a number of bytes given as an option. The unit is required, since tcpdump counts millions of bytes.
pub(super) fn size(option: &str, text: &str) -> anyhow::Result<u64> {
    if text.parse::<u64>().is_ok() {
        return Err(usage(format!("{option} {text}: missing unit; write {text}MiB (or KiB, GiB)")));
    }
    match parse_size(text) {
        Some(bytes) if bytes >= LEAST_SIZE => Ok(bytes),
        Some(_) => Err(usage(format!("{option} {text}: too small; at least 1KiB"))),
        None => Err(usage(format!(
            "{option} {text}: invalid size; expected a number and a unit, such as 512KiB, 100MB, 1GiB"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_are_in_the_usual_one() {
        for (text, wanted) in [
            ("30", 30.0),
            ("1.5", 1.5),
            ("0", 0.0),
            ("500ms", 0.5),
            ("100us", 1e-4),
            ("5m", 300.0),
            ("5min", 300.0),
            ("1h", 3600.0),
            ("2d", 172_800.0),
        ] {
            assert_eq!(seconds(text), Ok(wanted), "{text}");
        }
        for (text, wanted) in [("30", 30.0), ("2s", 2000.0), ("0.1", 0.1)] {
            assert!((milliseconds(text).unwrap() - wanted).abs() < 1e-9, "{text}");
        }
        for wrong in ["", "x", "5x", "ms", "-1", "nan", "inf", "1e99", "1h30m", "5 m", "1M"] {
            assert!(seconds(wrong).is_err_and(|error| error.contains("500ms")), "{wrong}");
        }
    }

    #[test]
    fn counts_have_units() {
        for (text, wanted) in [("7", 7), ("1k", 1000), ("2.5M", 2_500_000), ("3G", 3_000_000_000), ("0", 0)] {
            assert_eq!(count(text), Ok(wanted), "{text}");
        }
        for wrong in ["", "x", "1x", "-1", "+1", "1.5", "1.2.3", "99999999999G", ".k", "1e3"] {
            assert!(count(wrong).is_err_and(|error| error.contains("10k")), "{wrong}");
        }
    }

    #[test]
    fn every_option_of_seconds_takes_units() {
        let program = super::super::command();
        for verb in program.get_subcommands() {
            for option in verb.get_arguments() {
                let names = option.get_value_names().unwrap_or_default();
                let is_time = names.iter().any(|name| name == "S" || name == "MS");
                let is_number = option.get_value_parser().type_id() == TypeId::of::<f64>();
                let parser = format!("{:?}", option.get_value_parser());
                assert!(
                    !is_time || !is_number || !parser.contains("f64>"),
                    "{} {}: {parser}",
                    verb.get_name(),
                    option.get_id()
                );
            }
        }
    }
}
