//! Live state of a run for `linerate top` and other clients: the document `linerate/top/1` (docs/json.md), and the query for it.
//!
//! Counters and totals are those of the run so far; clients compute rates from two snapshots. Flows are those of the interval since
//! the previous query of any client.

mod flow_query;
mod gather;

#[cfg(feature = "tui")]
pub use self::flow_query::check;
pub use self::gather::Gatherer;

use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// Schema of the document.
pub const SCHEMA: &str = "linerate/top/1";
/// Maximum number of rows of flows or groups.
pub const MOST_ROWS: usize = 1000;
/// Maximum bytes of a query.
const MOST_TEXT: usize = 4096;

/// Query about flows.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowQuery {
    /// Fields to group by, as in `--by`; `None` for single flows.
    pub by: Option<String>,
    /// Sort order.
    pub sort: Sort,
    /// Filter, in the language of stored records.
    pub filter: String,
    /// Maximum number of rows.
    pub top: usize,
}

/// Sort order of rows, largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// Bits per second
    #[value(alias = "bytes")]
    Bits,
    /// Packets per second
    Packets,
    /// Number of flows; single flows: newest first
    Flows,
    /// TCP retransmissions (single flows only)
    Retransmissions,
    /// Bytes since the start of the flow (single flows only)
    Total,
}

impl Sort {
    /// All, in the order of the key `s`.
    pub const ALL: [Sort; 5] = [Sort::Bits, Sort::Packets, Sort::Flows, Sort::Retransmissions, Sort::Total];

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Bits => "bits",
            Sort::Packets => "packets",
            Sort::Flows => "flows",
            Sort::Retransmissions => "retransmissions",
            Sort::Total => "total",
        }
    }
}

impl Default for FlowQuery {
    fn default() -> Self {
        FlowQuery { by: None, sort: Sort::Bits, filter: String::new(), top: 50 }
    }
}

impl FlowQuery {
    /// Returns the query component of a URL (RFC 3986, 3.4).
    pub fn query(&self) -> String {
        let mut text = format!("sort={}&top={}", self.sort.name(), self.top);
        for (name, value) in [("by", self.by.as_deref()), ("filter", Some(&*self.filter))] {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                let _ = write!(text, "&{name}={}", encoded(value));
            }
        }
        text
    }

    /// Parses a query component.
    ///
    /// # Errors
    /// A name is unknown, or a value is invalid.
    pub fn parse(query: &str) -> Result<FlowQuery, String> {
        let mut ask = FlowQuery::default();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value =
                decoded(value).ok_or_else(|| format!("{name}: invalid encoding; expected UTF-8 with %XX escapes\n"))?;
            match name {
                "by" => ask.by = Some(value),
                "filter" => ask.filter = value,
                "sort" => {
                    let known = Sort::ALL.into_iter().find(|sort| sort.name() == value);
                    let names = Sort::ALL.map(Sort::name).join(", ");
                    ask.sort = known.ok_or_else(|| format!("sort: invalid value; expected one of {names}\n"))?;
                }
                "top" => {
                    let rows = value.parse().ok().filter(|rows| (1..=MOST_ROWS).contains(rows));
                    ask.top = rows.ok_or_else(|| format!("top: invalid value; expected 1 to {MOST_ROWS}\n"))?;
                }
                _ => return Err(format!("{name}: unknown parameter; expected by, filter, sort or top\n")),
            }
        }
        if ask.filter.len() + ask.by.as_ref().map_or(0, String::len) > MOST_TEXT {
            return Err(format!("by and filter: too long; at most {MOST_TEXT} bytes\n"));
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
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        bytes.push(match first {
            b'+' => b' ',
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                // The number parser would accept a sign.
                let digits = std::str::from_utf8(digits).ok().filter(|digits| !digits.contains('+'))?;
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Live state of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// [`SCHEMA`].
    pub schema: String,
    /// Verb of the run.
    pub verb: String,
    /// Version of the program.
    pub version: String,
    /// Process ID.
    pub pid: u32,
    /// Seconds since the start of the run.
    pub seconds: f64,
    /// Totals so far.
    pub done: Vec<ActionTotal>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Causes of dropped packets or records.
    pub drops: Vec<DropCount>,
    /// Readers of shared rings.
    pub readers: Vec<Reader>,
    /// Flows, if metered and available here.
    pub flows: Option<Flows>,
    /// Reason for missing flows.
    pub without_flows: String,
}

/// Total of an action on packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionTotal {
    /// `captured`, `sent`, ...
    pub what: String,
    /// Number of packets.
    pub frames: u64,
    /// Their bytes on the wire, without FCS.
    pub wire_bytes: u64,
}

/// A port, all of its queues.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Name as given by the user.
    pub name: String,
    /// Packets received, including lost ones.
    pub frames: u64,
    /// Packets lost at the port.
    pub lost: u64,
    /// Their bytes on the wire without FCS, if counted.
    pub wire_bytes: Option<u64>,
}

/// A cause of drops, with its count so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DropCount {
    /// Stage, as in the accounting.
    pub stage: String,
    /// Name of the counter.
    pub cause: String,
    /// Port, queue or output.
    pub subject: String,
    /// True for losses; false for drops requested by the user.
    pub is_lost: bool,
    /// Number of packets or records.
    pub frames: u64,
}

/// A reader of a shared ring.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reader {
    /// Name and process ID.
    pub name: String,
    /// Packets committed since it attached.
    pub frames: u64,
    /// Lag: packets in blocks that it holds.
    pub lag: u64,
    /// Packets skipped because it was too slow.
    pub skipped: u64,
    /// Time for which it blocked the writer, in microseconds.
    pub waited_us: u64,
}

/// Flows of an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flows {
    /// Length of the interval in seconds; 0 at the first query.
    pub seconds: f64,
    /// Open flows.
    pub open: u64,
    /// Flows started since the start of the run.
    pub started: u64,
    /// Flows with a packet in the interval.
    pub active: u64,
    /// Flows not reported for lack of memory.
    pub unreported: u64,
    /// Packets of all flows in the interval.
    pub packets: u64,
    /// Their bytes on the wire without FCS.
    pub bytes: u64,
    /// Their TCP retransmissions.
    pub retransmissions: u64,
    /// Names of the keys of a row.
    pub heads: Vec<String>,
    /// Top flows or groups.
    pub rows: Vec<Row>,
}

/// A flow or a group, in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// Values of the keys.
    pub keys: Vec<String>,
    /// Host name found in its packets.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Packets in the interval.
    pub packets: u64,
    /// Bytes in the interval, on the wire without FCS.
    pub bytes: u64,
    /// Flows with a packet in the interval.
    pub flows: u64,
    /// Details of a single flow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<OneFlow>,
}

/// Details of a single flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OneFlow {
    /// TCP retransmissions in the interval.
    pub retransmissions: u64,
    /// Bytes since the start of the flow.
    pub total_bytes: u64,
    /// Age of the flow in seconds.
    pub seconds: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_round_trip() {
        for (by, filter) in
            [(None, ""), (Some("orig_address/24,protocol"), "host 10.0.0.1 and bytes > 1M"), (Some("é&=%+ "), "a%2")]
        {
            for sort in Sort::ALL {
                let ask = FlowQuery { by: by.map(str::to_owned), sort, filter: filter.to_owned(), top: 7 };
                assert_eq!(FlowQuery::parse(&ask.query()), Ok(ask));
            }
        }
        assert_eq!(FlowQuery::parse(""), Ok(FlowQuery::default()));
        assert_eq!(FlowQuery::parse("filter=a+b").map(|ask| ask.filter), Ok("a b".to_owned()));
        let long = format!("filter={}", "x".repeat(5000));
        for wrong in ["top=0", "top=1001", "sort=x", "by=%+1", "by=%f", "by=%ff", "x=1", &long] {
            assert!(FlowQuery::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn unknown_fields_of_a_document_are_ignored() {
        let read: Snapshot =
            serde_json::from_str(r#"{"verb":"capture","ports":[{"name":"a","more":1}],"later":[]}"#).unwrap();
        assert_eq!((read.verb.as_str(), read.ports[0].name.as_str(), read.flows), ("capture", "a", None));
    }
}
