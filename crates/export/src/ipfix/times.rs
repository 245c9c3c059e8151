//! Times of a flow from the elements of an exporter. 0 stands for absent.

use super::collect::Clock;
use linerate_burst::Nanos;

/// Seconds from 1900 to 1970.
const SINCE_1900: u64 = 2_208_988_800;
/// Seconds of an NTP era.
const ERA: u64 = 1 << 32;
const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;

/// First and last time of a direction, in ns since 1970.
type Times = [u64; 2];

/// Converts an absolute time: seconds, milliseconds, micro- and nanoseconds in NTP format, microseconds before the
/// export.
pub(super) fn absolute(clock: Clock, element: u16, number: u64) -> u64 {
    match element {
        _ if number == 0 => 0,
        150 | 151 | 261 | 265 | 322 => number.saturating_mul(SECOND),
        152 | 153 | 269 | 272 | 323 | 359 | 360 => number.saturating_mul(MILLISECOND),
        158 | 159 => (u64::from(clock.seconds) * SECOND).saturating_sub(number.saturating_mul(1_000)),
        _ => {
            let seconds = number >> 32;
            // Times before 1970 are in the era that starts in 2036 (RFC 5905, 6).
            let seconds = if seconds < SINCE_1900 { seconds + ERA } else { seconds } - SINCE_1900;
            seconds * SECOND + (((number & 0xffff_ffff) * SECOND) >> 32)
        }
    }
}

/// Returns the times of a direction: absolute ones, or else those in ms of uptime, if present. Both are 0 if absent.
pub(super) fn of_direction(clock: Clock, absolute: Times, since_boot: [(bool, u32); 2]) -> Times {
    let is_nothing = since_boot.iter().all(|(_, number)| *number == 0);
    let mut times = absolute;
    for (time, (is_there, number)) in times.iter_mut().zip(since_boot) {
        if *time == 0 && is_there && !is_nothing {
            *time = of_uptime(clock, number);
        }
    }
    times
}

/// Converts milliseconds of uptime, which wrap around after 49 days: returns the time nearest to the export.
fn of_uptime(clock: Clock, number: u32) -> u64 {
    let exported = i64::from(clock.seconds) * 1000;
    let ago = match (clock.uptime, clock.boot) {
        (Some(uptime), _) => uptime.wrapping_sub(number),
        (None, Some(boot)) => (exported.wrapping_sub(boot as i64) as u32).wrapping_sub(number),
        (None, None) => return 0,
    };
    let millis = exported.saturating_sub((ago as i32).into());
    u64::try_from(millis).unwrap_or(0).saturating_mul(MILLISECOND)
}

/// Completes the times of both directions. A direction without traffic passes its times to one with traffic; without
/// any traffic the first direction gets them. Times that are absent in both are derived from the duration, or else are
/// the first of `otherwise` that is not 0.
pub(super) fn whole(times: [Times; 2], has_traffic: [bool; 2], duration: u64, otherwise: [u64; 2]) -> [Times; 2] {
    let fallback = otherwise.into_iter().find(|time| *time != 0).unwrap_or(0);
    let fill = |[first, last]: Times, [other_first, other_last]: Times| {
        let before = |last: u64| last.saturating_sub(duration);
        match (first, last) {
            (0, 0) => [before(fallback), fallback],
            (0, last) if duration == 0 && (1..=last).contains(&other_first) => [other_first, last],
            (0, last) => [before(last), last],
            (first, 0) if duration > 0 => [first, first.saturating_add(duration)],
            (first, 0) => [first, first.max(if other_last > 0 { other_last } else { otherwise[0] })],
            (first, last) => [first, last.max(first)],
        }
    };
    let [one, other] = times;
    if has_traffic == [true; 2] {
        let is_nothing = |times: Times| times == [0; 2];
        let filled = [fill(one, other), fill(other, one)];
        return match times.map(is_nothing) {
            [false, true] => [filled[0]; 2],
            [true, false] => [filled[1]; 2],
            _ => filled,
        };
    }
    let first = one[0].min(other[0]);
    let first = if first == 0 { one[0].max(other[0]) } else { first };
    let union = fill([first, one[1].max(other[1])], [0; 2]);
    if has_traffic == [false, true] { [[0; 2], union] } else { [union, [0; 2]] }
}

pub(super) fn millis(time: Nanos) -> u64 {
    time.0 / MILLISECOND
}

/// Converts to seconds since 1900 with a fraction (RFC 7011, 6.1.10), rounded up for an exact round trip in ns. Times
/// from 2036 are in the next era (RFC 5905, 6); times after that era, from 2106, are 0.
pub(super) fn ntp(time: Nanos) -> u64 {
    let (seconds, nanos) = (time.0 / SECOND, time.0 % SECOND);
    // The era is in the bits shifted out.
    if seconds < ERA { (seconds + SINCE_1900) << 32 | (nanos << 32).div_ceil(SECOND) } else { 0 }
}
