//! Parses timeouts: one for all protocols, or per protocol.

use super::super::inputs::span;
use super::super::units::seconds;
use crate::exit::usage;
use linerate_burst::Nanos;
use linerate_meter::Timeouts;

/// Protocols in the order of [`Config::timeouts`](linerate_meter::Config::timeouts).
const NAMES: [&str; 4] = ["tcp", "udp", "icmp", "other"];

/// Returns the timeouts of [`NAMES`] that `text` sets: `60`, or `tcp=300,udp=60`.
pub(super) fn parse(option: &str, text: Option<&str>) -> anyhow::Result<[Option<Nanos>; 4]> {
    let mut timeouts = [None; 4];
    let Some(text) = text else { return Ok(timeouts) };
    if let Ok(seconds) = seconds(text.trim()) {
        return Ok([Some(timeout(option, seconds)?); 4]);
    }
    for part in text.split(',') {
        let form = || {
            usage(format!(
                "{option}: {part:?}: invalid timeout; expected a duration or PROTOCOL=DURATION, such as 60, 5m, tcp=300,udp=60"
            ))
        };
        let (name, time) = part.split_once('=').ok_or_else(form)?;
        let seconds = seconds(time.trim()).map_err(|_| form())?;
        let index = NAMES.iter().position(|known| name.trim().eq_ignore_ascii_case(known)).ok_or_else(|| {
            usage(format!("{option}: {:?}: unknown protocol; expected {}", name.trim(), NAMES.join(", ")))
        })?;
        if timeouts[index].replace(timeout(option, seconds)?).is_some() {
            return Err(usage(format!("{option}: {}: given twice", NAMES[index])));
        }
    }
    Ok(timeouts)
}

fn timeout(option: &str, seconds: f64) -> anyhow::Result<Nanos> {
    let nanos = u64::try_from(span(option, seconds)?.as_nanos()).unwrap_or(u64::MAX);
    if nanos == 0 || nanos > Timeouts::MOST.0 {
        let most = Timeouts::MOST.seconds();
        return Err(usage(format!(
            "{option}: {seconds} s: out of range; expected more than 0 and at most {most} seconds"
        )));
    }
    Ok(Nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_for_all_or_by_protocol() {
        let seconds = |text| parse("--idle", text).unwrap().map(|time| time.map(|time| time.0 as f64 / 1e9));
        assert_eq!(seconds(None), [None; 4]);
        assert_eq!(seconds(Some("60")), [Some(60.0); 4]);
        assert_eq!(seconds(Some("0.5")), [Some(0.5); 4]);
        assert_eq!(seconds(Some("5m")), [Some(300.0); 4]);
        assert_eq!(seconds(Some("udp=500ms")), [None, Some(0.5), None, None]);
        assert_eq!(seconds(Some("udp=60")), [None, Some(60.0), None, None]);
        assert_eq!(seconds(Some("other=4, TCP=1,icmp=3,udp=2")), [Some(1.0), Some(2.0), Some(3.0), Some(4.0)]);
        assert_eq!(seconds(Some("43200")), [Some(43200.0); 4]);
    }

    #[test]
    fn errors_name_the_problem() {
        for (text, problem) in [
            ("", "invalid timeout"),
            ("ten", "\"ten\": invalid timeout"),
            ("tcp=300,60", "\"60\": invalid"),
            ("tcp", "\"tcp\": invalid"),
            ("tcp=", "\"tcp=\": invalid"),
            ("sctp=9", "\"sctp\": unknown protocol; expected tcp, udp, icmp, other"),
            ("tcp=1,tcp=2", "tcp: given twice"),
            ("0", "more than 0"),
            ("udp=43201", "at most 43200 seconds"),
            ("-1", "invalid timeout"),
            ("nan", "invalid timeout"),
        ] {
            let error = parse("--idle", Some(text)).unwrap_err().to_string();
            assert!(error.contains("--idle") && error.contains(problem), "{text}: {error}");
        }
    }
}
