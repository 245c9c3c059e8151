//! Timestamps.

use crate::text::Text;

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400;

/// Timestamp format; all are UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Time of day.
    #[default]
    Clock,
    /// No timestamp.
    None,
    /// Seconds since 1970.
    Epoch,
    /// Time since the previous frame.
    Delta,
    /// Date and time of day.
    Date,
    /// Time since the first frame.
    First,
}

/// Times of previous frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreviousTimes {
    times: Option<(u64, u64)>,
}

impl PreviousTimes {
    /// Writes a time in nanoseconds since 1970, with `digits` digits of the second.
    pub(crate) fn write(&mut self, form: Time, time: u64, digits: usize, text: &mut Text<'_>) {
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first, time));
        let part = |time: u64, text: &mut Text<'_>| {
            text.str(".");
            text.digits((time % SECOND) as u32 / 10u32.pow(9 - digits as u32), digits);
        };
        let clock = |hours: u64, time: u64, text: &mut Text<'_>| {
            let second = time / SECOND;
            if hours < 100 {
                text.two(hours)
            } else {
                text.dec(hours)
            }
            text.str(":");
            text.two(second / 60 % 60);
            text.str(":");
            text.two(second % 60);
            part(time, text);
        };
        match form {
            Time::None => return,
            Time::Clock => clock(time / SECOND % DAY / 3600, time, text),
            Time::Epoch => {
                text.dec(time / SECOND);
                part(time, text);
            }
            Time::Date => {
                let (year, month, day) = date(time / SECOND / DAY);
                text.dec(year);
                text.str("-");
                text.two(month);
                text.str("-");
                text.two(day);
                text.str(" ");
                clock(time / SECOND % DAY / 3600, time, text);
            }
            Time::Delta | Time::First => {
                let from = if form == Time::Delta { last } else { first };
                text.str(if time < from { "-" } else { " " });
                // Like tcpdump, the difference of the printed times.
                let unit = 10u64.pow(9 - digits as u32);
                let span = (time / unit).abs_diff(from / unit) * unit;
                clock(span / SECOND / 3600, span, text);
            }
        }
        text.str(" ");
    }
}

/// Returns year, month and day of a day since 1970: years start in March, so that a leap day is their last.
pub fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let first = (153 * month + 2) / 5;
    let is_next = month >= 10;
    (era * 400 + year + u64::from(is_next), if is_next { month - 9 } else { month + 3 }, day - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(form: Time, times: &[u64], digits: usize) -> String {
        let (mut before, mut out) = (PreviousTimes::default(), Vec::new());
        for time in times {
            out.clear();
            before.write(form, *time, digits, &mut Text::new(&mut out));
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_format_is_written() {
        let time = 1_709_210_096_123_456_789;
        for (form, expected) in [
            (Time::None, ""),
            (Time::Clock, "12:34:56.123456 "),
            (Time::Epoch, "1709210096.123456 "),
            (Time::Date, "2024-02-29 12:34:56.123456 "),
            (Time::Delta, " 00:00:01.500000 "),
            (Time::First, " 100:00:01.500000 "),
        ] {
            let first = time - 100 * 3600 * SECOND - 1_500_000_000;
            assert_eq!(written(form, &[first, time - 1_500_000_000, time], 6), expected, "{form:?}");
        }
        assert_eq!(written(Time::Epoch, &[5], 9), "0.000000005 ");
        assert_eq!(written(Time::Delta, &[2 * SECOND, SECOND / 2], 6), "-00:00:01.500000 ");
        assert_eq!(written(Time::Date, &[u64::MAX], 9), "2554-07-21 23:34:33.709551615 ");
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date_of) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), date_of, "{days}");
        }
    }
}
