//! Output of `linerate flows`.

use crate::flows::testbed::SERVER;
use linerate_tests::support::judge;
use serde_json::Value;

/// Records and summary of a run that lost no frame between the hosts.
pub(super) struct Metered {
    pub summary: Value,
    /// Frames lost by the port that receives the flood.
    pub lost_of_flood: u64,
    pub records: Vec<Record>,
}

/// Record, as far as it can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub orig: (String, u64),
    pub resp: (String, u64),
    pub protocol: u64,
    /// From the originator, and from the responder.
    pub sides: [Side; 2],
    pub flows: u64,
    pub end: String,
    pub quality: Vec<String>,
    /// Complete record.
    pub json: Value,
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Side {
    pub packets: u64,
    pub frame_bytes: u64,
    pub packet_bytes: u64,
    pub payload_bytes: u64,
}

pub(super) const TCP: u64 = 6;
pub(super) const UDP: u64 = 17;

impl Metered {
    /// Reads the records of a run, if it and the process that shared its frames lost nothing else. Returns `None` if a
    /// busy machine lost frames, because there is nothing to compare then.
    pub(super) fn new(summary: Value, shared: Option<Value>, file: &str) -> Option<Self> {
        let mut lost_of_flood = 0;
        for summary in [Some(&summary), shared.as_ref()].into_iter().flatten() {
            let accounts = summary["accounts"].as_array().expect("accounts");
            let of_flood = accounts.iter().filter(|account| {
                account["stage"] == "receive" && account["subject"].as_str().is_some_and(|name| name.contains("beside"))
            });
            let drops = of_flood.flat_map(|account| account["drops"].as_object().expect("drops").values());
            lost_of_flood += drops.map(|count| count.as_u64().expect("a count")).sum::<u64>();
            let proven = (&summary["balanced"], &summary["failure"]);
            assert_eq!(proven, (&true.into(), &Value::Null), "{:#}", summary["accounts"]);
            let lost = summary["lost"].as_u64().expect("a count");
            if !judge(lost == lost_of_flood, &format!("{lost} frames lost, {lost_of_flood} of the flood")) {
                return None;
            }
        }
        let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"));
        let records = text.lines().map(|line| Record::new(&serde_json::from_str(line).expect("a line of JSON")));
        Some(Metered { summary, lost_of_flood, records: records.collect() })
    }

    /// Returns a number of the summary.
    pub(super) fn number(&self, name: &str) -> u64 {
        self.summary[name].as_u64().unwrap_or_else(|| panic!("no {name}: {:#}", self.summary))
    }

    /// Returns the only record from a port to a port of the server.
    pub(super) fn only(&self, protocol: u64, from: u64, to: u64) -> &Record {
        let found: Vec<&Record> = self.to(protocol, to).filter(|record| record.orig.1 == from).collect();
        assert_eq!(found.len(), 1, "records of protocol {protocol}, {from} to {to}: {found:#?}");
        found[0]
    }

    /// Returns the records of a protocol to a port of the server.
    pub(super) fn to(&self, protocol: u64, port: u64) -> impl Iterator<Item = &Record> {
        let is_it =
            move |record: &&Record| (record.protocol, record.resp.1, &*record.resp.0) == (protocol, port, SERVER);
        self.records.iter().filter(is_it)
    }
}

impl Record {
    fn new(json: &Value) -> Self {
        let end = |name: &str| {
            let (address, port) = (&json[format!("{name}_address")], &json[format!("{name}_port")]);
            (address.as_str().expect("an address").to_owned(), port.as_u64().expect("a port"))
        };
        let names = json["quality"].as_array().expect("qualities").iter();
        Record {
            orig: end("orig"),
            resp: end("resp"),
            protocol: json["protocol"].as_u64().expect("a protocol"),
            sides: ["orig", "resp"].map(|name| Side::new(&json[name])),
            flows: json["flows"].as_u64().expect("flows"),
            end: json["end_reason"].as_str().expect("a reason").to_owned(),
            quality: names.map(|name| name.as_str().expect("a name").to_owned()).collect(),
            json: json.clone(),
        }
    }
}

impl Side {
    fn new(json: &Value) -> Self {
        let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("no {name}: {json}"));
        Side {
            packets: count("packets"),
            frame_bytes: count("frame_bytes"),
            packet_bytes: count("packet_bytes"),
            payload_bytes: count("payload_bytes"),
        }
    }
}

/// Sums records by direction.
pub(super) fn sums<'a>(records: impl IntoIterator<Item = &'a Record>) -> [Side; 2] {
    let mut sums = [Side::default(); 2];
    for record in records {
        for (sum, side) in sums.iter_mut().zip(record.sides) {
            sum.packets += side.packets;
            sum.frame_bytes += side.frame_bytes;
            sum.packet_bytes += side.packet_bytes;
            sum.payload_bytes += side.payload_bytes;
        }
    }
    sums
}
