//! One pass for a file, flow records, counts and readers of a ring.

use linerate_tests::support::program::{run, start};
use linerate_tests::support::{Scratch, corpus, frames, records};
use serde_json::Value;
use std::fs::read;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What each verb does alone, of the same frames.
#[test]
fn a_capture_records_meters_counts_and_shares_in_one_pass() {
    let scratch = Scratch::new();
    let sample = scratch.file("sample.pcap");
    records::write(&sample, &frames::sample());
    let real = corpus("real-mix.pcap").map(|path| path.to_str().unwrap().to_owned());
    for file in [Some(sample), real].into_iter().flatten() {
        let [whole, alone, flows, flows_alone, shared] =
            ["whole.pcap", "alone.pcap", "flows.jsonl", "alone.jsonl", "shared.pcap"].map(|name| scratch.file(name));
        let name = format!("several-{}", std::process::id());
        let reader = ["--share", &name, "--share-wait", "1", "--lossless-readers", "--share-patience", "30"];
        let what = [
            "capture",
            "--json",
            "-r",
            &file,
            "-s",
            "60",
            "-w",
            &whole,
            "--flows",
            &flows,
            "--id-seed",
            "x",
            "--count",
        ];
        let pass = start(&[&what[..], &reader].concat());
        let begun = Instant::now();
        while run(&["capture", "-q", "-i", &format!("shm:{name}?mode=lossless"), "-w", &shared]).status != 0 {
            assert!(begun.elapsed() < Duration::from_secs(20), "nobody shares");
            sleep(Duration::from_millis(20));
        }
        let json = pass.end().good().json();
        run(&["capture", "-q", "-r", &file, "-s", "60", "-w", &alone]).good();
        let metered = run(&["flows", "--json", "-r", &file, "--id-seed", "x", "-w", &flows_alone]).good().json();
        let counted = run(&["count", "--json", "--interval", "0", "-r", &file]).good().json();

        assert_eq!((&json["balanced"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{file}");
        assert!(records::read(&whole) == records::read(&alone), "{file}: other frames");
        assert!(records::read(&whole) == records::read(&shared), "{file}: readers see other frames");
        let lines = |path: &str| {
            let text = String::from_utf8(read(path).unwrap()).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&flows), lines(&flows_alone), "{file}");
        for field in ["frames", "bytes", "flows", "records", "not_ip", "malformed", "records_written"] {
            assert_eq!(json["flows"][field], metered[field], "{file}: {field}");
        }
        for field in ["frames", "bytes", "sizes", "received", "first_time_ns", "last_time_ns"] {
            assert_eq!(json["count"][field], counted[field], "{file}: {field}");
        }
        let stages: Vec<(String, String)> = json["accounts"].as_array().unwrap().iter().map(stage).collect();
        for (stage, consumer) in [("write", "capture"), ("share", "capture"), ("meter", "flows"), ("select", "count")] {
            assert!(stages.contains(&(stage.into(), consumer.into())), "{stages:?}");
        }
    }
}

fn stage(account: &Value) -> (String, String) {
    let text = |name: &str| account[name].as_str().unwrap_or_default().to_owned();
    (text("stage"), text("consumer"))
}

#[test]
fn options_of_flows_mean_nothing_without_flows() {
    for option in [&["--level", "tcp"][..], &["--workers", "2"], &["--macs"], &["--idle", "3"], &["--tunnels", "outer"]]
    {
        let capture = ["capture", "-r", "x.pcap", "-w", "y.pcap"];
        run(&[&capture[..], option].concat()).with_status(2).says("without --flows");
    }
}
