//! Calendar dates.

/// Returns year, month and day of a time in seconds since 1970, UTC.
pub fn date(seconds: u64) -> [u64; 3] {
    // Years start in March, in eras of 400 of them: a leap day is then the last day of its year.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    [year + era * 400 + u64::from(month <= 2), month, day]
}
