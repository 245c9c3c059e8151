//! Syntax of ports: `scheme:target[@queues][?key=value&...]`.

use crate::PortError;
use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

const EMPTY: &str = "empty target; expected scheme:target";
/// Part of the names of options whose values are not shown, and the text shown instead.
const SECRET: &str = "secret";
const HIDDEN: &str = "...";

/// A parsed port. It is displayed without its secrets: values of options, and of arguments of a device, with `secret`
/// in their names (`secret=`, `port.secret=`).
#[derive(Clone, PartialEq, Eq)]
pub struct Spec {
    /// Backend: `packet` for a bare name.
    pub scheme: String,
    /// Interface, file or other name.
    pub target: String,
    /// Requested queues, first and last, as in `@0-3`; `None` for all, and until they are split from the target.
    pub queues: Option<(u32, u32)>,
    /// Options after the `?`, in order.
    pub options: Vec<(String, String)>,
}

/// Start of the reason of an error about an option that a backend does not know.
pub const UNKNOWN_OPTION: &str = "unknown option";

impl Spec {
    /// Parses a port. A name without a scheme is an interface, opened passively with `packet`. Queues stay in the
    /// target until a [registry](crate::Registry) splits them off, because only it knows which targets may contain an
    /// `@`.
    ///
    /// ```
    /// use linerate_port::Spec;
    /// let spec = Spec::parse("packet:eth0@0-3?netns=lab-left").unwrap();
    /// assert_eq!((spec.scheme.as_str(), spec.target.as_str()), ("packet", "eth0@0-3"));
    /// assert_eq!(spec.option("netns"), Some("lab-left"));
    /// assert_eq!(Spec::parse("eth0").unwrap().scheme, "packet");
    /// ```
    pub fn parse(text: &str) -> Result<Spec, PortError> {
        let (scheme, rest) = split_scheme(text);
        // In a path `?` is an ordinary character as long as no option follows.
        let (target, options) = match rest.rsplit_once('?') {
            Some((target, options)) if options.contains('=') => (target, parse_options(text, options)?),
            _ => (rest, Vec::new()),
        };
        if target.is_empty() {
            return Err(PortError::wrong(without_secrets(text), EMPTY));
        }
        Ok(Spec { scheme: scheme.to_owned(), target: target.to_owned(), queues: None, options })
    }

    /// Joins the ports of a list that was split at its commas: a comma separates ports, but pieces of the form
    /// `key=value` are arguments of the device before them.
    ///
    /// ```
    /// use linerate_port::Spec;
    /// let ports = Spec::joined("eth0,dpdk:net_null0,size=60,copy=1,eth1".split(','));
    /// assert_eq!(ports, ["eth0", "dpdk:net_null0,size=60,copy=1", "eth1"]);
    /// ```
    pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut ports: Vec<String> = Vec::new();
        for piece in pieces {
            match ports.last_mut() {
                Some(port) if is_argument(piece) => {
                    port.push(',');
                    port.push_str(piece);
                }
                _ => ports.push(piece.to_owned()),
            }
        }
        ports
    }

    /// Returns a capture file as a port, whatever characters its path contains.
    pub fn file(path: &str) -> Spec {
        Spec { scheme: "pcap".into(), target: path.into(), queues: None, options: Vec::new() }
    }

    /// Returns the inner port that is the target, as in `faulty:packet:eth0`.
    pub fn wrapped(&self, options: Vec<(String, String)>) -> Spec {
        let (scheme, target) = split_scheme(&self.target);
        Spec { scheme: scheme.to_owned(), target: target.to_owned(), queues: None, options }
    }

    /// Splits the queues from the target.
    pub(crate) fn with_queues(&self) -> Result<Spec, PortError> {
        let Some((target, queues)) = self.target.rsplit_once('@') else { return Ok(self.clone()) };
        if target.is_empty() {
            return Err(PortError::wrong(self.to_string(), EMPTY));
        }
        let queues = Some(parse_queues(&self.to_string(), queues)?);
        Ok(Spec { target: target.to_owned(), queues, ..self.clone() })
    }

    /// Returns the value of an option.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.options.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns an error, with the known options, if there is an option that the backend does not know.
    pub fn allow_options(&self, known: &[&str]) -> Result<(), PortError> {
        match self.options.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let known = if known.is_empty() { "has none".to_owned() } else { format!("has: {}", known.join(", ")) };
                let reason = format!("{UNKNOWN_OPTION} {key:?}; the {} backend {known}", self.scheme);
                Err(PortError::wrong(self.to_string(), reason))
            }
        }
    }

    /// Returns the value of an option as a number of bytes or a count, or `default` if it is not given.
    pub fn number(&self, key: &str, default: u64) -> Result<u64, PortError> {
        self.option(key).map_or(Ok(default), |text| {
            parse_size(text).ok_or_else(|| {
                let reason = format!("invalid {key} '{text}'; expected a number, such as 4096, 64KiB, 64MiB");
                PortError::wrong(self.to_string(), reason)
            })
        })
    }

    /// Returns the value of a number option if it is in a range, which `words` describe to the user, or `default` if it
    /// is not given.
    pub fn number_in(
        &self,
        key: &str,
        default: u64,
        range: RangeInclusive<u64>,
        words: &str,
    ) -> Result<u64, PortError> {
        let number = self.number(key, default)?;
        match self.option(key) {
            Some(text) if !range.contains(&number) => {
                let which = if number < *range.start() { "small" } else { "large" };
                let reason = format!("{key}={text} is too {which}; expected {words}");
                Err(PortError::wrong(self.to_string(), reason))
            }
            _ => Ok(number),
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme, without_secrets(&self.target))?;
        match self.queues {
            Some((first, last)) if first == last => write!(f, "@{first}")?,
            Some((first, last)) => write!(f, "@{first}-{last}")?,
            None => {}
        }
        for (index, (key, value)) in self.options.iter().enumerate() {
            let value = if key.contains(SECRET) { HIDDEN } else { value };
            write!(f, "{}{key}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

/// Returns a port, or its target, as written but without secrets: in options after `?` and `&`, and in arguments of a
/// device after commas.
///
/// ```
/// use linerate_port::spec::without_secrets;
/// assert_eq!(without_secrets("memif:/run/x?id=1&secret=abc"), "memif:/run/x?id=1&secret=...");
/// assert_eq!(without_secrets("dpdk:net_memif0,secret=abc,id=2?mtu=9000"), "dpdk:net_memif0,secret=...,id=2?mtu=9000");
/// ```
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    if !text.contains(SECRET) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    loop {
        let end = rest.find(['?', '&', ',']).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        match part.split_once('=').filter(|(key, _)| key.contains(SECRET)) {
            Some((key, _)) => {
                shown.extend([key, "=", HIDDEN]);
                let is_option = text[..text.len() - rest.len()].contains('?');
                rest = if is_option { skip_value(after) } else { after };
            }
            None => {
                shown.push_str(part);
                rest = after;
            }
        }
        let Some(separator) = rest.chars().next() else { return Cow::Owned(shown) };
        shown.push(separator);
        rest = &rest[1..];
    }
}

/// Skips the value of a secret option, which only the next option ends.
fn skip_value(mut rest: &str) -> &str {
    loop {
        rest = rest.trim_start_matches(|c| c != '&');
        let next = rest.get(1..).unwrap_or_default();
        if rest.is_empty() || next.split('&').next().is_some_and(|part| part.contains('=')) {
            return rest;
        }
        rest = next;
    }
}

/// Parses a duration in nanoseconds that may be negative: `250`, `-1.5us`, `3ms`, `1s`.
pub(crate) fn parse_offset(text: &str) -> Option<i64> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let scale = match &text[unit..] {
        "" | "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return None,
    };
    let nanos = text[..unit].parse::<f64>().ok()? * scale;
    // More than a year is not a clock error.
    (nanos.is_finite() && nanos.abs() < 365.0 * 86_400.0 * 1e9).then_some(nanos.round() as i64)
}

/// Parses a size with an optional unit: `65536`, `64KiB`, `1.5GiB` in binary units (`K`, `M`, `G`, `T` mean the same),
/// `64KB`, `1MB` in decimal ones.
pub fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return None,
    };
    let (whole, fraction) = text[..digits].split_once('.').unwrap_or((&text[..digits], ""));
    let bytes = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    if fraction.is_empty() {
        return Some(bytes).filter(|_| whole.len() == digits);
    }
    // Rounded down to a byte; more than nine digits exceed the precision of a unit.
    let parts: u64 = fraction.parse().ok().filter(|_| fraction.len() <= 9 && unit > 1)?;
    let more = u128::from(parts) * u128::from(unit) / 10u128.pow(fraction.len() as u32);
    bytes.checked_add(u64::try_from(more).ok()?)
}

/// Splits a port into scheme and target; without a scheme it is an interface.
fn split_scheme(text: &str) -> (&str, &str) {
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => (scheme, rest),
        _ => ("packet", text),
    }
}

/// Returns whether text has the form `key=value`, and so is not a port.
fn is_argument(text: &str) -> bool {
    let is_word = |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    text.split_once('=').is_some_and(|(key, _)| is_word(key))
}

/// Returns whether text before a colon has the form of a scheme; whether such a backend exists is checked later.
pub(crate) fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(|c| c.is_ascii_lowercase() || c == '-')
}

fn parse_options(port: &str, text: &str) -> Result<Vec<(String, String)>, PortError> {
    text.split('&')
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            // The pair may be the rest of a secret.
            _ if port.contains(SECRET) => {
                Err(PortError::wrong(without_secrets(port), "invalid option after &; expected key=value"))
            }
            _ => Err(PortError::wrong(port, format!("invalid option {pair:?}; expected key=value"))),
        })
        .collect()
}

fn parse_queues(port: &str, text: &str) -> Result<(u32, u32), PortError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(PortError::wrong(port, format!("invalid queues '@{text}'; expected @N or @FIRST-LAST"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ports_round_trip() {
        for text in ["packet:eth0", "packet:eth0@2", "mem:x@0-3?stamp=now&blocks=4", "pcap:-", "pcap:/tmp/a@b?c.pcap"] {
            assert_eq!(Spec::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Spec::parse("eth0.100").unwrap().to_string(), "packet:eth0.100");
        assert_eq!(Spec::parse("eth0:1").unwrap().to_string(), "packet:eth0:1", "an old alias is not a scheme");
    }

    #[test]
    fn secrets_are_not_shown() {
        for (text, shown) in [
            ("memif:/run/x?role=server&secret=hush", "memif:/run/x?role=server&secret=..."),
            ("memif:/run/x?secret=hush,hush&id=1", "memif:/run/x?secret=...&id=1"),
            ("memif:/run/x?Xsecrets=hush&id=1", "memif:/run/x?Xsecrets=...&id=1"),
            ("faulty:memif:x?drop=1%&port.secret=hush", "faulty:memif:x?drop=1%&port.secret=..."),
            ("dpdk:net_memif0,secret=hush,id=9@0?mtu=9000", "dpdk:net_memif0,secret=...,id=9@0?mtu=9000"),
            ("pcap:/tmp/secret", "pcap:/tmp/secret"),
        ] {
            let spec = Spec::parse(text).unwrap();
            let (shown_spec, all) = (spec.to_string(), format!("{spec:?}"));
            assert_eq!((shown_spec.as_str(), without_secrets(text).as_ref()), (shown, shown));
            assert!(!all.contains("hush") && text.contains("hush") == shown.contains("..."), "{all}");
        }
        for text in ["memif:?secret=hush", "memif:x?secret=hush&hush", "memif:x?a=hush&hush&secret=hush"] {
            let error = Spec::parse(text).unwrap_err().to_string();
            assert!(error.replace("a=hush&hush&", "").matches("hush").next().is_none(), "{error}");
        }
    }

    #[test]
    fn wrapped_ports_are_parsed() {
        let spec = Spec::parse("faulty:packet:eth0@2?drop=1%&netns=a").unwrap();
        assert_eq!(spec.target, "packet:eth0@2");
        let inner = spec.wrapped(Vec::new()).with_queues().unwrap();
        assert_eq!(
            (inner.target.as_str(), inner.queues, inner.to_string().as_str()),
            ("eth0", Some((2, 2)), "packet:eth0@2")
        );
        assert_eq!(Spec::parse("faulty:eth0").unwrap().wrapped(Vec::new()).scheme, "packet");
    }

    #[test]
    fn invalid_ports_are_rejected_with_a_reason() {
        for (text, part) in
            [("packet:", "empty target"), ("mem:x?a=1&b", "expected key=value"), ("mem:x?=1", "expected key=value")]
        {
            let error = Spec::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let error = Spec::parse("mem:x?speed=1").unwrap().allow_options(&["stamp"]).unwrap_err().to_string();
        assert!(error.contains("unknown option \"speed\"") && error.contains("stamp"), "{error}");
    }

    #[test]
    fn sizes_have_binary_or_decimal_units() {
        for (text, bytes) in [
            ("64KiB", 65536),
            ("2m", 2 << 20),
            ("7", 7),
            ("7B", 7),
            ("1MB", 1_000_000),
            ("64kb", 64_000),
            ("1.5GiB", 3 << 29),
            ("0.5KB", 500),
            ("2T", 2 << 40),
        ] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
        }
        let wrong =
            ["", "x", "1x", "-1", "+1", "1.", ".5K", "1.5", "1.2.3K", "99999999999999999999", "18446744073709551615g"];
        for wrong in wrong {
            assert_eq!(parse_size(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_port_or_an_error(text in ".*") {
            let _ = Spec::parse(&text).and_then(|spec| spec.with_queues());
        }
    }

    #[test]
    fn offsets_have_signs_and_units() {
        let given = ["0", "250", "-1.5us", "3ms", "-1s", "7ns"];
        assert_eq!(given.map(|text| parse_offset(text).unwrap()), [0, 250, -1500, 3_000_000, -1_000_000_000, 7]);
        for text in ["", "us", "1 us", "1m", "inf", "nan", "1e30s", "0x1"] {
            assert_eq!(parse_offset(text), None, "{text}");
        }
    }
}
