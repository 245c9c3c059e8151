//! What can be chosen of records for a broker or a database (`--ship WORD,...`).

use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::time::Duration;

/// How one signs in to a broker of Kafka.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sasl {
    /// The password as it is (RFC 4616).
    Plain,
    /// The password itself is not sent (RFC 7677).
    ScramSha256,
    /// The same with SHA-512.
    ScramSha512,
}

/// How records go to a broker or a database.
#[derive(Clone, Debug, PartialEq)]
pub struct Shipping {
    /// The folder that batches wait in; there is no shipping without one.
    pub spool: Option<PathBuf>,
    /// Bytes of batches that wait at most.
    pub most: u64,
    /// Whether metering waits where there is no more room; else the oldest batches give way.
    pub waits: bool,
    /// Records of a batch at most; `None`: as the other side likes it.
    pub rows: Option<usize>,
    /// How long records gather at most; `None`: as the other side likes it.
    pub age: Option<Duration>,
    /// Into how many parts flows are divided, each flow always in the same one.
    pub lanes: u16,
    /// What this sensor is called, in each row.
    pub sensor: String,
    /// The file that has the password.
    pub password: Option<PathBuf>,
    /// How one signs in to Kafka.
    pub sasl: Option<Sasl>,
    /// Batches are RowBinary, for ClickHouse before 20.
    pub rowbinary: bool,
    /// How long ClickHouse knows a batch again; `None`: not quite an hour.
    pub window: Option<Duration>,
    /// How long a run waits in the end for what is not delivered.
    pub end: Duration,
}

impl Default for Shipping {
    fn default() -> Self {
        Shipping {
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

/// The fewest bytes of a spool: some batches.
const LEAST: u64 = 16 << 20;
/// In seconds.
const DAY: f64 = 86_400.0;
/// The most records of a batch: as many as gather at most; of a million ClickHouse would make several blocks.
const MOST_ROWS: u64 = 1 << 17;
const WORDS: &str = "spool=DIR, size=SIZE, full=wait|drop-oldest, rows=N, age=S, lanes=N, sensor=NAME, password=FILE, sasl=WORD, rowbinary, window=S, end=S";

impl Shipping {
    /// As it is written: `spool=DIR,size=SIZE,full=wait|drop-oldest,rows=N,age=S,lanes=N,sensor=NAME,password=FILE,sasl=WORD,rowbinary,window=S,end=S`,
    /// each of them or none.
    ///
    /// # Errors
    /// A word is none of these, or its value cannot be.
    pub fn parse(text: &str) -> Result<Self> {
        let mut shipping = Shipping::default();
        for word in text.split(',') {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let value = value.filter(|value| !value.is_empty());
            let wrong = |what: &str| Error::new(ErrorKind::InvalidInput, format!("{word:?}: {what}"));
            let number = |least: u64, most: u64| {
                let number = value.and_then(|value| value.parse().ok());
                let number = number.filter(|number| (least..=most).contains(number));
                number.ok_or_else(|| wrong(&format!("{name}=N, from {least} to {most}")))
            };
            let span = |least: f64, most: f64| {
                let span = value.and_then(|value| value.parse::<f64>().ok());
                let span = span.filter(|span| (least..=most).contains(span)).map(Duration::from_secs_f64);
                span.ok_or_else(|| wrong(&format!("{name}=S, seconds, from {least} to {most}")))
            };
            match (name, value) {
                ("spool", Some(value)) => shipping.spool = Some(value.into()),
                ("size", Some(value)) => {
                    let size = bytes(value).filter(|size| *size >= LEAST);
                    shipping.most = size.ok_or_else(|| wrong("size=SIZE, of 16MiB or more, as in 500MiB or 50GiB"))?;
                }
                ("full", Some("wait")) => shipping.waits = true,
                ("full", Some("drop-oldest")) => shipping.waits = false,
                ("rows", _) => shipping.rows = Some(number(1, MOST_ROWS)? as usize),
                ("age", _) => shipping.age = Some(span(0.01, DAY)?),
                ("lanes", _) => shipping.lanes = number(1, 256)? as u16,
                ("sensor", Some(value)) if is_name(value) => shipping.sensor = value.to_owned(),
                ("sensor", _) => return Err(wrong("sensor=NAME, of 1 to 64 letters, digits, dots, - and _")),
                ("password", Some(value)) => shipping.password = Some(value.into()),
                ("sasl", Some("plain")) => shipping.sasl = Some(Sasl::Plain),
                ("sasl", Some("scram-sha-256")) => shipping.sasl = Some(Sasl::ScramSha256),
                ("sasl", Some("scram-sha-512")) => shipping.sasl = Some(Sasl::ScramSha512),
                ("sasl", _) => return Err(wrong("sasl=plain, scram-sha-256 or scram-sha-512")),
                ("rowbinary", None) if word == "rowbinary" => shipping.rowbinary = true,
                ("window", _) => shipping.window = Some(span(1.0, 366.0 * DAY)?),
                ("end", _) => shipping.end = span(0.0, DAY)?,
                _ => return Err(wrong(&format!("is none of {WORDS}"))),
            }
        }
        Ok(shipping)
    }
}

fn is_name(name: &str) -> bool {
    let is_of = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_of)
}

/// A size with a unit.
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

/// What this host is called.
fn host() -> String {
    let system = rustix::system::uname();
    let name: String = system.nodename().to_string_lossy().chars().take(64).collect();
    if is_name(&name) { name } else { "sensor".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_wrong_ones_told() {
        let all = "spool=/var/spool/a b,size=50GiB,full=wait,rows=1000,age=0.5,lanes=4,sensor=site-1.a,password=/etc/p,sasl=scram-sha-512,rowbinary,window=90,end=0";
        let shipping = Shipping::parse(all).unwrap();
        let wanted = Shipping {
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
        assert_eq!(Shipping::parse("full=drop-oldest").unwrap(), Shipping::default());
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
            let error = Shipping::parse(wrong).unwrap_err();
            assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains(wrong), "{wrong}: {error}");
        }
    }
}
