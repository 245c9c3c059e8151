//! Tests of `linerate count`: files, live ports, output, exit statuses.

mod files;
mod live;
mod names;

use linerate_tests::support::program::Ended;
use linerate_tests::support::records::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The JSON lines of a run: its intervals and its summary.
fn lines(ended: &Ended) -> (Vec<Value>, Value) {
    let parse = |line| serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let mut lines: Vec<Value> = ended.output.lines().map(parse).collect();
    let summary = lines.pop().expect("a summary");
    assert_eq!(summary["record"], "summary", "{summary}");
    assert!(lines.iter().all(|line| line["record"] == "interval"));
    assert!(lines.iter().chain([&summary]).all(|line| line["schema"] == "linerate/count/1"));
    (lines, summary)
}

/// Expected counts of these frames, without rates.
fn expected(records: &[Record]) -> Value {
    let sizes = || records.iter().map(|record| u64::from(record.wire) + 4);
    let mut buckets: BTreeMap<&str, u64> =
        ["0-63", "64", "65-127", "128-255", "256-511", "512-1023", "1024-1518", "1519-"].map(|name| (name, 0)).into();
    for size in sizes() {
        let name = match size {
            0..64 => "0-63",
            64 => "64",
            65..128 => "65-127",
            128..256 => "128-255",
            256..512 => "256-511",
            512..1024 => "512-1023",
            1024..1519 => "1024-1518",
            _ => "1519-",
        };
        *buckets.get_mut(name).unwrap() += 1;
    }
    json!({
        "frames": records.len(),
        "bytes": sizes().map(|size| size - 4).sum::<u64>(),
        "size_min_bytes": sizes().min(),
        "size_max_bytes": sizes().max(),
        "sizes": buckets,
        "lost": 0,
        "drops": {},
    })
}

/// Asserts that a row of a summary has these values.
fn assert_row(what: &str, row: &Value, expected: &Value) {
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&row[name], value, "{what}: {name} of {row}");
    }
}

/// Sum of a field over rows.
fn sum(rows: &Value, name: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[name].as_u64().unwrap()).sum()
}
