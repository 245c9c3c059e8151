//! Parses times, in UTC.

use linerate_burst::Nanos;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// Units of relative times, in seconds.
const UNITS: [(&str, u64); 7] =
    [("s", 1), ("sec", 1), ("m", 60), ("min", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];

/// Parses a time (`2026-11-22T10:00:00`, `10:00` of today, seconds since 1970, `-10m`, `now`); `now` is the reference of
/// relative times.
///
/// # Errors
/// If it is not a time; the text lists the formats.
pub fn parse(text: &str, now: Nanos) -> Result<Nanos, String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("now") {
        return Ok(now);
    }
    if let Some(ago) = text.strip_prefix('-') {
        return Ok(now.before(span(ago).ok_or("invalid relative time; expected -90s, -10m, -2h or -1d")?));
    }
    let is_number =
        text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_digit() || c == '.');
    let time = match text.as_bytes() {
        _ if is_number => epoch(text),
        [_, _, b':', ..] => {
            let [year, month, day] = crate::date(now.seconds());
            date(&format!("{year:04}-{month:02}-{day:02}T{text}"))
        }
        _ => date(text),
    };
    time.ok_or_else(|| {
        let is_whole = !text.is_empty() && text.len() < 9 && text.bytes().all(|digit| digit.is_ascii_digit());
        let hint = if is_whole { format!(" (as {text}.0)") } else { String::new() };
        format!("not a time; expected 2026-11-22T10:00:00, 10:00, seconds since 1970{hint} or -10m (all UTC)")
    })
}

/// Parses `10m`, `1.5h`.
fn span(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (_, seconds) = UNITS.iter().find(|(unit, _)| *unit == &text[at..])?;
    Duration::try_from_secs_f64(text[..at].parse::<f64>().ok()? * *seconds as f64).ok()
}

/// Parses seconds since 1970; 13, 16 and 19 digits are milliseconds, microseconds and nanoseconds. Four
/// digits may also be a year, and eight a date without hyphens: with a decimal point they are seconds.
fn epoch(text: &str) -> Option<Nanos> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_date = || match seconds.len() {
        4 => true,
        8 => date(&format!("{}-{}-{}", &seconds[..4], &seconds[4..6], &seconds[6..])).is_some(),
        _ => false,
    };
    if !text.contains('.') && is_date() {
        return None;
    }
    let unit = match text.len() {
        13 => 1_000_000,
        16 => 1_000,
        19 => 1,
        _ => SECOND,
    };
    if unit != SECOND && !text.contains('.') {
        return text.parse::<u64>().ok()?.checked_mul(unit).map(Nanos);
    }
    let nanos = fraction_of(fraction)?;
    seconds.parse::<u64>().ok()?.checked_mul(SECOND)?.checked_add(nanos).map(Nanos)
}

/// Parses digits after the decimal point, as nanoseconds.
fn fraction_of(digits: &str) -> Option<u64> {
    let digits = digits.get(..9).unwrap_or(digits);
    if digits.is_empty() {
        return Some(0);
    }
    Some(digits.parse::<u64>().ok()? * 10u64.pow(9 - digits.len() as u32))
}

/// Parses `2026-11-22`, optionally with a time, and with a zone after that.
fn date(text: &str) -> Option<Nanos> {
    let (day, time) = match text.split_once(['T', 't', ' ']) {
        Some((day, time)) => (day, time),
        None => (text.trim_end_matches(['Z', 'z']), ""),
    };
    let [year, month, day] = numbers::<3>(day, '-', &[4, 2, 2])?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    if year < 1970 || !(1..=12).contains(&month) || day == 0 || day > length[month as usize - 1] {
        return None;
    }
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    let days = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    let days = days + length[..month as usize - 1].iter().sum::<u64>() + day - 1;
    let (time, zone) = zone(time)?;
    let (time, fraction) = time.split_once(['.', ',']).unwrap_or((time, ""));
    let [hours, minutes, seconds] = match time.len() {
        0 => [0; 3],
        5 => {
            let [hours, minutes] = numbers::<2>(time, ':', &[2, 2])?;
            [hours, minutes, 0]
        }
        _ => numbers::<3>(time, ':', &[2, 2, 2])?,
    };
    if hours > 23 || minutes > 59 || seconds > 60 || fraction.contains(|c: char| !c.is_ascii_digit()) {
        return None;
    }
    let local = days * 86_400 + hours * 3600 + minutes * 60 + seconds;
    local.checked_add_signed(-zone)?.checked_mul(SECOND)?.checked_add(fraction_of(fraction)?).map(Nanos)
}

/// Splits off a zone. Returns the part before it, and the zone's offset before UTC in seconds.
fn zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let digits: String = time[at + 1..].chars().filter(|c| *c != ':').collect();
    let is_zone = digits.chars().all(|c| c.is_ascii_digit()) && (digits.len() == 2 || digits.len() == 4);
    let number = is_zone.then(|| digits.parse::<i64>().ok()).flatten()?;
    let minutes = if digits.len() == 2 { number * 60 } else { number / 100 * 60 + number % 100 };
    let sign = if time.as_bytes()[at] == b'-' { -1 } else { 1 };
    Some((&time[..at], sign * minutes * 60))
}

/// Parses numbers of these lengths with a separator between them.
fn numbers<const N: usize>(text: &str, between: char, digits: &[usize; N]) -> Option<[u64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(between);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == *digits && part.bytes().all(|c| c.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_date_command() {
        let now = Nanos::from_parts(1_800_000_000, 5);
        let parse = |text: &str| super::parse(text, now).map(|time| (time.seconds(), time.subsec()));
        for (text, seconds, nanos) in [
            ("1970-01-01", 0, 0),
            ("2026-11-22", 1_795_305_600, 0),
            ("2024-02-29T12:34:56.789", 1_709_210_096, 789_000_000),
            ("2024-02-29 12:34Z", 1_709_210_040, 0),
            ("2000-03-01T00:00:00+02:00", 951_861_600, 0),
            ("2000-03-01T00:00:00-0530", 951_888_600, 0),
            ("01:02", 1_799_974_920, 0),
            ("23:59:59.5Z", 1_800_057_599, 500_000_000),
            ("01:00+01:00", 1_799_971_200, 0),
            ("0", 0, 0),
            ("1000000", 1_000_000, 0),
            ("99999999", 99_999_999, 0),
            ("2026.0", 2026, 0),
            ("1700000000.5", 1_700_000_000, 500_000_000),
            ("1700000000.1234567891", 1_700_000_000, 123_456_789),
            ("now", 1_800_000_000, 5),
            ("-10m", 1_799_999_400, 5),
            ("-1.5h", 1_799_994_600, 5),
            ("-2d", 1_799_827_200, 5),
        ] {
            assert_eq!(parse(text), Ok((seconds, nanos)), "{text}");
        }
        for text in [
            "",
            "yesterday",
            "2026",
            "20261122",
            "2026-13-01",
            "2023-02-29",
            "2026-11-22T25:00",
            "-5",
            "-m",
            "2026-11-22T1:2",
            "1700000000.x",
            "2026-11-22T10:00:00+1",
            "-10fortnights",
            "1969-12-31",
            "\u{661}\u{662}",
            "-\u{e9}m",
        ] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }
}
