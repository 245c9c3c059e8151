//! Distribution of flows over hours (subdirectories) and days (batches), with limits for both.
//!
//! Times in a capture file are not trustworthy. One directory per forged hour would fill a disk with directories, with
//! three disk syncs per hour.

use linerate_pcap::date;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Maximum number of hours per write: two days, which take a disk about half a second.
const MOST: usize = 48;
/// 1990-01-01: no captures are older.
const FIRST: u64 = 631_152_000;
/// Tolerance in seconds for clocks that are ahead.
const AHEAD: u64 = 86_400;
/// Maximum number of days per batch: databases partition by day, and accept at most 100 partitions per insert.
const MOST_DAYS: usize = 50;
/// Null in Hive partitioning: any other word would turn all dates into text.
const NONE: &str = "__HIVE_DEFAULT_PARTITION__";

/// Splits flows by hour, with the names of the date and hour directories. Invalid hours, and the hours with the fewest
/// flows beyond two days of them, are combined at the end. `flows` are sorted by `time`, which like `now` is in seconds
/// since 1970.
pub(super) fn split<'a, T>(flows: &[&'a T], time: fn(&T) -> u64, now: u64) -> Vec<([String; 2], Vec<&'a T>)> {
    let hour = |flow: &&T| time(flow) / 3600;
    let can_be = |flow: &&T| (FIRST..=now.saturating_add(AHEAD)).contains(&time(flow));
    let pieces = || flows.chunk_by(|one, other| hour(one) == hour(other));
    let mut sizes: Vec<_> = pieces().map(|piece| (Reverse(piece.len()), hour(&piece[0]))).collect();
    sizes.sort_unstable();
    let kept: BTreeSet<u64> = sizes.iter().take(MOST).map(|(_, hour)| *hour).collect();
    let (mut split, mut rest) = (Vec::new(), Vec::new());
    for piece in pieces() {
        let (own, other): (Vec<&T>, Vec<&T>) =
            piece.iter().partition(|flow| can_be(flow) && kept.contains(&hour(flow)));
        rest.extend(other);
        if let Some(first) = own.first() {
            let (date, hour) = date_and_hour(time(first));
            split.push(([format!("date={date}"), format!("hour={hour:02}")], own));
        }
    }
    if !rest.is_empty() {
        split.push(([format!("date={NONE}"), format!("hour={NONE}")], rest));
    }
    split
}

/// Splits flows into pieces of a few days each; invalid times are in pieces of their own. `flows` are sorted by `time`,
/// which like `now` is in seconds since 1970.
pub(super) fn days<'a, 'b, T>(flows: &'b [&'a T], time: fn(&T) -> u64, now: u64) -> Vec<&'b [&'a T]> {
    let (early, rest) = flows.split_at(flows.partition_point(|flow| time(flow) < FIRST));
    let (good, late) = rest.split_at(rest.partition_point(|flow| time(flow) <= now.saturating_add(AHEAD)));
    let mut pieces = Vec::new();
    for mut left in [early, good, late] {
        while !left.is_empty() {
            let days = left.chunk_by(|one, other| time(one) / 86_400 == time(other) / 86_400);
            let (piece, rest) = left.split_at(days.take(MOST_DAYS).map(<[_]>::len).sum());
            pieces.push(piece);
            left = rest;
        }
    }
    pieces
}

/// Returns the date (as `2026-11-21`) and hour of a time in seconds since 1970, UTC.
pub(super) fn date_and_hour(seconds: u64) -> (String, u64) {
    let [year, month, day] = date(seconds);
    (format!("{year:04}-{month:02}-{day:02}"), seconds / 3600 % 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 00:00.
    const DAY: u64 = 1_795_219_200;

    fn shown(times: &[u64], now: u64) -> Vec<(String, usize)> {
        let split = split(&times.iter().collect::<Vec<_>>(), |time| *time, now);
        split.into_iter().map(|(folders, flows)| (folders.join("/"), flows.len())).collect()
    }

    #[test]
    fn valid_hours_have_directories() {
        let none = format!("date={NONE}/hour={NONE}");
        let times = [0, FIRST - 1, FIRST, DAY, DAY + 3599, DAY + 3600, DAY + 86_400, DAY + 90_000, u64::MAX];
        let wanted = [
            ("date=1990-01-01/hour=00", 1),
            ("date=2026-11-21/hour=00", 2),
            ("date=2026-11-21/hour=01", 1),
            ("date=2026-11-22/hour=00", 1),
            (&none, 4),
        ];
        assert_eq!(shown(&times, DAY), wanted.map(|(folder, flows)| (folder.to_owned(), flows)));
        assert_eq!(shown(&[], DAY), []);
    }

    #[test]
    fn the_fullest_hours_of_a_batch_have_directories() {
        let mut times: Vec<u64> = (0..1000).map(|hour| DAY - hour * 3600).collect();
        times.extend((500..520).map(|hour| DAY - hour * 3600));
        times.sort_unstable();
        let shown = shown(&times, DAY);
        assert_eq!(shown.len(), MOST + 1);
        assert_eq!(shown.iter().filter(|(_, flows)| *flows == 2).count(), 20);
        assert_eq!(shown.last().unwrap().1, 1000 - MOST);
        assert_eq!(shown.iter().map(|(_, flows)| flows).sum::<usize>(), times.len());
    }

    #[test]
    fn pieces_span_few_days_and_invalid_times_are_separate() {
        let shown = |times: &[u64]| {
            let times: Vec<&u64> = times.iter().collect();
            let pieces = days(&times, |time| *time, DAY);
            assert_eq!(pieces.concat(), times);
            pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[]), [0; 0]);
        assert_eq!(shown(&[DAY - 1, DAY - 1, DAY, DAY + 86_400]), [4]);
        assert_eq!(shown(&[0, FIRST - 1, FIRST, DAY + 86_400, DAY + 86_401, u64::MAX]), [2, 2, 2]);
        let times: Vec<u64> = (0..260).map(|half| DAY - 86_400 * 130 + half * 43_200).collect();
        assert_eq!(shown(&times), [100, 100, 60]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01", 0),
            (951_782_399, "2000-02-28", 23),
            (951_782_400, "2000-02-29", 0),
            (951_868_800, "2000-03-01", 0),
            (1_600_000_000, "2020-09-13", 12),
            (4_107_542_399, "2100-02-28", 23),
            (4_107_542_400, "2100-03-01", 0),
            (18_446_744_073, "2554-07-21", 23),
        ];
        for (seconds, date, hour) in known {
            assert_eq!(date_and_hour(seconds), (date.to_owned(), hour), "{seconds}");
        }
        let months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let (mut day, mut month, mut year) = (1, 0, 1970);
        for days in 0..200_000 {
            let date = format!("{year:04}-{:02}-{day:02}", month + 1);
            assert_eq!(date_and_hour(days * 86_400 + 7_199), (date, 1));
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            day += 1;
            if day > months[month] + u64::from(is_leap && month == 1) {
                (day, month) = (1, month + 1);
            }
            if month == 12 {
                (month, year) = (0, year + 1);
            }
        }
    }
}
