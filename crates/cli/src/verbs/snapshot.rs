//! What a run shows to `linerate top` and to others who look on: a document, `linerate/top/1` (docs/json.md), and the question that
//! it answers.
//!
//! Counters and totals are of the run so far: whoever looks twice has rates. Flows are of the interval since somebody looked last.

mod gather;
mod question;

pub use self::gather::Gatherer;
#[cfg(feature = "tui")]
pub use self::question::check;

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The form of the document.
pub const SCHEMA: &str = "linerate/top/1";
/// Rows of flows or groups at the most.
pub const MOST_ROWS: usize = 1000;
/// Bytes of a question at the most.
const MOST_TEXT: usize = 4096;

/// What is asked about flows.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// By which fields they are put together, as `--by` has it; single flows without.
    pub by: Option<String>,
    /// What they stand in order by.
    pub sort: Sort,
    /// Which of them: the filter language of stored records.
    pub filter: String,
    /// How many are told.
    pub top: usize,
}

/// What rows stand in order by, the greatest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Bits a second
    Bits,
    /// Packets a second
    Packets,
    /// Flows; of single flows the newest first
    Flows,
    /// Segments of TCP sent again; of single flows alone
    Again,
    /// Bytes since the record began; of single flows alone
    Total,
}

impl Sort {
    /// All, in the order of the key.
    pub const ALL: [Sort; 5] = [Sort::Bits, Sort::Packets, Sort::Flows, Sort::Again, Sort::Total];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Bits => "bits",
            Sort::Packets => "packets",
            Sort::Flows => "flows",
            Sort::Again => "again",
            Sort::Total => "total",
        }
    }
}

impl Default for Ask {
    fn default() -> Self {
        Ask { by: None, sort: Sort::Bits, filter: String::new(), top: 50 }
    }
}

impl Ask {
    /// As it stands behind a question mark (RFC 3986, 3.4).
    pub fn query(&self) -> String {
        let mut text = format!("sort={}&top={}", self.sort.name(), self.top);
        for (name, value) in [("by", self.by.as_deref()), ("filter", Some(&*self.filter))] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = write!(text, "&{name}={}", encoded(value));
            }
        }
        text
    }

    /// Reads one.
    ///
    /// # Errors
    /// A word is not known, or means nothing.
    pub fn parse(query: &str) -> Result<Ask, String> {
        let mut ask = Ask::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decoded(value).ok_or_else(|| format!("{name}: %XX is a byte, and all are UTF-8\n"))?;
            match name {
                "by" => ask.by = Some(value),
                "filter" => ask.filter = value,
                "sort" => {
                    let known = Sort::ALL.into_iter().find(|sort| sort.name() == value);
                    ask.sort = known.ok_or("sort: bits, packets, flows, again or total\n")?;
                }
                "top" => {
                    let rows = value.parse().ok().filter(|rows| (1..=MOST_ROWS).contains(rows));
                    ask.top = rows.ok_or_else(|| format!("top: 1 to {MOST_ROWS}\n"))?;
                }
                _ => return Err("by, filter, sort and top are known\n".to_owned()),
            }
        }
        if ask.filter.len() + ask.by.as_ref().map_or(0, String::len) > MOST_TEXT {
            return Err(format!("by and filter: at most {MOST_TEXT} bytes\n"));
        }
        Ok(ask)
    }
}

fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                // A sign is no digit, though numbers may have one.
                let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// What a run shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// Which verb runs, and which version.
    pub verb: String,
    /// As above.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// Seconds since the run began.
    pub seconds: f64,
    /// What was done so far.
    pub done: Vec<Done>,
    /// The ports.
    pub ports: Vec<Port>,
    /// What frames, or records, were dropped by.
    pub drops: Vec<Dropped>,
    /// Who reads a shared ring.
    pub readers: Vec<Reader>,
    /// Where flows are metered, and told.
    pub flows: Option<Flows>,
    /// Why they are not.
    pub without_flows: String,
}

/// What was done to frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// `captured`, `sent`, ...
    pub what: String,
    /// How many.
    pub frames: u64,
    /// Their bytes on the wire, without FCS.
    pub wire_bytes: u64,
}

/// A port, all of its queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// As the user named it.
    pub name: String,
    /// Frames that reached it, lost ones included.
    pub frames: u64,
    /// Frames lost there.
    pub lost: u64,
    /// Bytes of them on the wire without FCS, where somebody counts them.
    pub wire_bytes: Option<u64>,
}

/// A cause of drops, and what it has cost so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dropped {
    /// As the ledger has it.
    pub stage: String,
    /// As above.
    pub cause: String,
    /// As above.
    pub subject: String,
    /// Whether they should have been delivered; else the user asked for it.
    pub is_lost: bool,
    /// How many.
    pub frames: u64,
}

/// A reader of a shared ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reader {
    /// Its name and process.
    pub name: String,
    /// Frames committed since it came.
    pub frames: u64,
    /// Frames in blocks that it has not given back: how far it is behind.
    pub behind: u64,
    /// Frames that it was not shown, because it was too slow.
    pub skipped: u64,
    /// For how long everybody waited for it, in microseconds.
    pub waited_us: u64,
}

/// Flows of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// How long the interval was, in seconds; 0 before there is one.
    pub seconds: f64,
    /// Flows that go on.
    pub open: u64,
    /// Flows begun since the run began.
    pub begun: u64,
    /// Flows of the interval that had a packet, and how many were left out of it for want of room.
    pub active: u64,
    /// As above.
    pub left_out: u64,
    /// What all flows of the interval had together: packets, bytes on the wire without FCS, segments sent again.
    pub packets: u64,
    /// As above.
    pub bytes: u64,
    /// As above.
    pub again: u64,
    /// What the keys of a row are.
    pub heads: Vec<String>,
    /// Flows or groups of which there was most.
    pub rows: Vec<Row>,
}

/// A flow or a group, in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// By what it is known.
    pub keys: Vec<String>,
    /// What it said of itself: a site, say.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// In the interval.
    pub packets: u64,
    /// As above, on the wire without FCS.
    pub bytes: u64,
    /// Flows that had a packet.
    pub flows: u64,
    /// Of a single flow: segments sent again in the interval, bytes since its record began, and for how many seconds that goes on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<OneFlow>,
}

/// What is told of a single flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OneFlow {
    /// Segments sent again in the interval.
    pub again: u64,
    /// Bytes since the record began.
    pub total_bytes: u64,
    /// How long ago that was, in seconds.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_as_it_was_written() {
        for (by, filter) in
            [(None, ""), (Some("orig_address/24,protocol"), "host 10.0.0.1 and bytes > 1M"), (Some("é&=%+ "), "a%2")]
        {
            for sort in Sort::ALL {
                let ask = Ask { by: by.map(str::to_owned), sort, filter: filter.to_owned(), top: 7 };
                assert_eq!(Ask::parse(&ask.query()), Ok(ask));
            }
        }
        assert_eq!(Ask::parse(""), Ok(Ask::default()));
        assert_eq!(Ask::parse("filter=a+b").map(|ask| ask.filter), Ok("a b".to_owned()));
        let long = format!("filter={}", "x".repeat(5000));
        for wrong in ["top=0", "top=1001", "sort=x", "by=%+1", "by=%f", "by=%ff", "x=1", &long] {
            assert!(Ask::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_document_of_another_version_is_read_as_far_as_it_is_known() {
        let read: Snapshot =
            serde_json::from_str(r#"{"verb":"capture","ports":[{"name":"a","more":1}],"later":[]}"#).unwrap();
        assert_eq!((read.verb.as_str(), read.ports[0].name.as_str(), read.flows), ("capture", "a", None));
    }
}
