//! Options for brokers and databases (`--ship WORD,...`).

use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::time::Duration;

/// SASL mechanism for Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// Password in clear text (RFC 4616).
    Plain,
    /// SCRAM with SHA-256: the password is not sent (RFC 7677).
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

/// Delivery options for brokers and databases.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryOptions {
    /// Spool directory; required.
    pub spool: Option<PathBuf>,
    /// Maximum bytes of spooled batches.
    pub most: u64,
    /// True to make metering wait when the spool is full; else the oldest batches are dropped.
    pub waits: bool,
    /// Maximum records per batch; `None`: default of the destination.
    pub rows: Option<usize>,
    /// Maximum time until a batch is built; `None`: default of the destination.
    pub age: Option<Duration>,
    /// Number of lanes, over which flows are distributed by their id.
    pub lanes: u16,
    /// Name of this sensor, in each row.
    pub sensor: String,
    /// Password file.
    pub password: Option<PathBuf>,
    /// SASL mechanism for Kafka.
    pub sasl: Option<Sasl>,
    /// True for RowBinary batches, for ClickHouse before version 20.
    pub rowbinary: bool,
    /// Deduplication window of ClickHouse; `None`: slightly below an hour.
    pub window: Option<Duration>,
    /// Maximum time to wait at the end for undelivered batches.
    pub end: Duration,
}

impl Default for DeliveryOptions {
    fn default() -> Self {
        DeliveryOptions {
            spool: None,
            most: 4 << 30,
            waits: false,
            rows: None,
            age: None,
            lanes: 1,
            sensor: host(),
            password: None,
            sasl: None,
            rowbinary: false,
            window: None,
            end: Duration::from_secs(5),
        }
    }
}

/// Minimum spool size in bytes: a few batches.
const LEAST: u64 = 16 << 20;
/// Seconds per day.
const DAY: f64 = 86_400.0;
/// Maximum records per batch, and per collection; ClickHouse splits a million records into several blocks.
const MOST_ROWS: u64 = 1 << 17;
const WORDS: &str = "spool=DIR, size=SIZE, full=wait|drop-oldest, rows=N, age=S, lanes=N, sensor=NAME, password=FILE, sasl=WORD, rowbinary, window=S, end=S";

impl DeliveryOptions {
    /// Parses `spool=DIR,size=SIZE,full=wait|drop-oldest,rows=N,age=S,lanes=N,sensor=NAME,password=FILE,sasl=WORD`,
    /// `rowbinary,window=S,end=S`; each part is optional.
    ///
    /// # Errors
    /// A part is unknown or its value is invalid.
    pub fn parse(text: &str) -> Result<Self> {
        let mut shipping = DeliveryOptions::default();
        for word in text.split(',') {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let value = value.filter(|value| !value.is_empty());
            let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, format!("{word:?}: {what}"));
            let number = |least: u64, most: u64| {
                let number = value.and_then(|value| value.parse().ok());
                let number = number.filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| wrong(&format!("expected {name}=N, from {least} to {most}")))
            };
            let span = |least: f64, most: f64| {
                let span = value.and_then(|value| value.parse::<f64>().ok());
                let span = span.filter(|span| (least..=most).contains(span)).map(Duration::from_secs_f64);
                span.ok_or_else(|| wrong(&format!("expected {name}=S, from {least} to {most} seconds")))
            };
            match (name, value) {
                ("spool", Some(value)) => shipping.spool = Some(value.into()),
                ("size", Some(value)) => {
                    let size = bytes(value).filter(|size| *size >= LEAST);
                    shipping.most =
                        size.ok_or_else(|| wrong("expected size=SIZE of at least 16MiB, such as 500MiB or 50GiB"))?;
                }
                ("full", Some("wait")) => shipping.waits = true,
                ("full", Some("drop-oldest")) => shipping.waits = false,
                ("rows", _) => shipping.rows = Some(number(1, MOST_ROWS)? as usize),
                ("age", _) => shipping.age = Some(span(0.01, DAY)?),
                ("lanes", _) => shipping.lanes = number(1, 256)? as u16,
                ("sensor", Some(value)) if is_name(value) => shipping.sensor = value.to_owned(),
                ("sensor", _) => return Err(wrong("expected sensor=NAME, 1 to 64 letters, digits, dots, - and _")),
                ("password", Some(value)) => shipping.password = Some(value.into()),
                ("sasl", Some("plain")) => shipping.sasl = Some(Sasl::Plain),
                ("sasl", Some("scram-sha-256")) => shipping.sasl = Some(Sasl::ScramSha256),
                ("sasl", Some("scram-sha-512")) => shipping.sasl = Some(Sasl::ScramSha512),
                ("sasl", _) => return Err(wrong("expected sasl=plain, scram-sha-256 or scram-sha-512")),
                ("rowbinary", None) if word == "rowbinary" => shipping.rowbinary = true,
                ("window", _) => shipping.window = Some(span(1.0, 366.0 * DAY)?),
                ("end", _) => shipping.end = span(0.0, DAY)?,
                _ => return Err(wrong(&format!("expected one of {WORDS}"))),
            }
        }
        Ok(shipping)
    }
}

fn is_name(name: &str) -> bool {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_of)
}

/// Parses a size with a unit.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit: u64 = match &text[digits.len()..] {
        "KiB" | "K" => 1 << 10,
        "MiB" | "M" => 1 << 20,
        "GiB" | "G" => 1 << 30,
        "TiB" | "T" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

/// Returns the host name, if it is valid as a sensor name.
fn host() -> String {
    let system = rustix::system::uname();
    let name: String = system.nodename().to_string_lossy().chars().take(64).collect();
    if is_name(&name) { name } else { "sensor".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_parsed_and_invalid_ones_rejected() {
        let all = "spool=/var/spool/a b,size=50GiB,full=wait,rows=1000,age=0.5,lanes=4,sensor=site-1.a,password=/etc/p,sasl=scram-sha-512,rowbinary,window=90,end=0";
        let shipping = DeliveryOptions::parse(all).unwrap();
        let wanted = DeliveryOptions {
            spool: Some("/var/spool/a b".into()),
            most: 50 << 30,
            waits: true,
            rows: Some(1000),
            age: Some(Duration::from_millis(500)),
            lanes: 4,
            sensor: "site-1.a".into(),
            password: Some("/etc/p".into()),
            sasl: Some(Sasl::ScramSha512),
            rowbinary: true,
            window: Some(Duration::from_secs(90)),
            end: Duration::ZERO,
        };
        assert_eq!(shipping, wanted);
        assert_eq!(DeliveryOptions::parse("full=drop-oldest").unwrap(), DeliveryOptions::default());
        for wrong in [
            "",
            "spool",
            "spool=",
            "size=1MiB",
            "size=5",
            "size=99999999999GiB",
            "full=no",
            "rows=0",
            "rows=x",
            "age=-1",
            "age=nan",
            "lanes=257",
            "sensor=a b",
            "sensor=",
            "rowbinary=1",
            "sasl",
            "sasl=md5",
            "window=0",
            "end=1e9",
            "kafka",
        ] {
            let error = DeliveryOptions::parse(wrong).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(wrong), "{wrong}: {error}");
        }
    }
}
