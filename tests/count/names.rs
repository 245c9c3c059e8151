//! The interface for scripts: JSON keys, exit statuses.

use super::lines;
use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, frames, records};
use serde_json::Value;

fn names(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

const COUNTED: [&str; 16] = [
    "bytes",
    "first_time_ns",
    "frames",
    "gbps_l1",
    "gbps_l2",
    "last_time_ns",
    "mpps",
    "peak_gbps_l1",
    "peak_mpps",
    "received",
    "seconds",
    "size_max_bytes",
    "size_mean_bytes",
    "size_min_bytes",
    "sizes",
    "time_base",
];

const SUMMARY: [&str; 17] = [
    "accounts",
    "balanced",
    "by_port",
    "by_queue",
    "delivered",
    "driver",
    "drops",
    "elapsed_seconds",
    "events",
    "failure",
    "filter",
    "imbalances",
    "lost",
    "ports",
    "quiesced",
    "record",
    "run",
];

const INTERVAL: [&str; 7] = ["bytes", "drops", "frames", "gbps_l1", "gbps_l2", "lost", "mpps"];

fn sorted(parts: &[&[&'static str]]) -> Vec<&'static str> {
    let mut names = parts.concat();
    names.sort_unstable();
    names
}

#[test]
fn json_has_exactly_the_documented_keys() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let (_, summary) = lines(&run(&["count", "-r", &file, "--json", "udp"]).good());
    assert_eq!(names(&summary), sorted(&[&COUNTED, &SUMMARY, &["schema"]]));
    assert_eq!(names(&summary["by_port"][0]), sorted(&[&COUNTED, &["port", "lost", "drops"]]));
    assert_eq!(names(&summary["by_queue"][0]), sorted(&[&COUNTED, &["port", "queue", "lost", "drops"]]));
    assert_eq!((&summary["filter"], &summary["failure"]), (&Value::from("udp"), &Value::Null));

    // The pipe stays open for a while.
    let fed = format!("(cat {file}; sleep 0.4) | {} count -r - --json --interval 0.1", program());
    let output = std::process::Command::new("sh").args(["-c", &fed]).output().unwrap();
    let (intervals, summary) = lines(&linerate_tests::support::program::Ended::of(output).good());
    assert_eq!(summary["frames"], frames::sample().len());
    let common = sorted(&[&INTERVAL, &["seconds"]]);
    assert_eq!(
        names(&intervals[0]),
        sorted(&[&common, &["schema", "record", "elapsed_seconds", "by_port", "by_queue"]])
    );
    assert_eq!(names(&intervals[0]["by_queue"][0]), sorted(&[&common, &["port", "queue"]]));
}

fn program() -> String {
    linerate_tests::support::program::program().to_str().unwrap().to_owned()
}

#[test]
fn usage_errors_exit_with_2_and_failures_with_1() {
    let scratch = Scratch::new();
    let (missing, garbage, cut) = (scratch.file("missing.pcap"), scratch.file("garbage"), scratch.file("cut.pcap"));
    std::fs::write(&garbage, "not a capture file, but long enough to have a header").unwrap();
    records::write(&cut, &frames::sample());
    let whole = std::fs::read(&cut).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 5]).unwrap();
    for (arguments, status, text) in [
        (&["count"][..], 2, "no port given"),
        (&["count", "x0", "--interval=-1"], 2, "invalid duration"),
        (&["count", "x0", "-T", "nan"], 2, "invalid duration"),
        (&["count", "x0", "tcp", "or"], 2, "syntax error"),
        (&["count", "-f", "tcp", "x0", "udp"], 2, "given twice"),
        (&["count", "--spin", "--sleep", "x0"], 2, "--sleep"),
        (&["count", "nosuch:x0"], 2, "unknown backend"),
        (&["count", "packet:nosuch0"], 1, "nosuch0"),
        (&["count", "-r", &missing], 1, &missing),
        (&["count", "-r", &garbage], 1, &garbage),
        (&["count", "-r", &cut], 1, "cut.pcap"),
    ] {
        run(arguments).with_status(status).says(text);
    }
    // Packets read before the failure are counted.
    let (_, summary) = lines(&run(&["count", "-r", &cut, "--json"]).with_status(1));
    assert_eq!(summary["frames"], frames::sample().len() - 1);
    assert!(summary["failure"].as_str().unwrap().contains("cut.pcap"));
}

#[test]
fn help_explains_sizes_and_rates() {
    let help = run(&["count", "--help"]).good().output;
    for text in ["Usage: linerate count", "RFC 2819", "FCS", "--interval"] {
        assert!(help.contains(text), "{help}");
    }
}
