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
            "--stats",
        ];
        let json = read_beside(&[&what[..], &reader].concat(), &name, &shared);
        run(&["capture", "-q", "-r", &file, "-s", "60", "-w", &alone]).good();
        let metered = run(&["flows", "--json", "-r", &file, "--id-seed", "x", "-w", &flows_alone]).good().json();
        let counted = run(&["count", "--json", "--interval", "0", "-r", &file]).good().json();

        assert_eq!((&json["balanced"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{file}");
        assert!(records::read(&whole) == records::read(&alone), "{file}: other frames");
        assert!(records::read(&whole) == records::read(&shared), "{file}: readers see other frames");
        assert_eq!(lines(&flows), lines(&flows_alone), "{file}");
        for field in ["frames", "bytes", "flows", "records", "not_ip", "malformed", "records_written"] {
            assert_eq!(json["flows"][field], metered[field], "{file}: {field}");
        }
        for field in ["frames", "bytes", "sizes", "received", "first_time_ns", "last_time_ns"] {
            assert_eq!(json["stats"][field], counted[field], "{file}: {field}");
        }
        let stages: Vec<(String, String)> = json["accounts"].as_array().unwrap().iter().map(stage).collect();
        for (stage, consumer) in [("write", "capture"), ("share", "capture"), ("meter", "flows"), ("select", "count")] {
            assert!(stages.contains(&(stage.into(), consumer.into())), "{stages:?}");
        }
    }
}

/// Runs a capture with a lossless reader that writes what it gets; what it says at the end.
fn read_beside(capture: &[&str], ring: &str, shared: &str) -> Value {
    let pass = start(capture);
    let begun = Instant::now();
    while run(&["capture", "-q", "-i", &format!("shm:{ring}?mode=lossless"), "-w", shared]).status != 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody shares");
        sleep(Duration::from_millis(20));
    }
    pass.end().good().json()
}

fn lines(path: &str) -> Vec<String> {
    let text = String::from_utf8(read(path).unwrap()).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Each part of a capture with a filter, a slice and a shard of its own gets what a run for it alone does.
#[test]
fn each_part_of_a_capture_has_a_selection_of_its_own() {
    let scratch = Scratch::new();
    let sample = scratch.file("sample.pcap");
    records::write(&sample, &frames::sample());
    let real = corpus("real-mix.pcap").map(|path| path.to_str().unwrap().to_owned());
    for (file, [own, other]) in [(Some(sample), ["udp", "vlan"]), (real, ["tcp", "udp port 53"])] {
        let Some(file) = file else { continue };
        let name = |name: &str| scratch.file(name);
        let [written, alone, flows, flows_alone] =
            ["write.pcap", "write-alone.pcap", "flows.jsonl", "flows-alone.jsonl"].map(name);
        let [shared, shared_alone] = ["shared.pcap", "shared-alone.pcap"].map(name);
        let ring = format!("parts-{}", std::process::id());
        let of = |part: &str, text: &str| format!("{part}={text}");
        let filters = [of("write", own), of("flows", other), of("share", own), of("stats", other)];
        let mut pass = vec!["capture", "--json", "-r", &file, "-w", &written, "--flows", &flows, "--id-seed", "x"];
        pass.extend(["--stats", "--share", &ring, "--share-wait", "1", "--lossless-readers", "--share-patience", "30"]);
        pass.extend(["--slice-for", "share=l3", "--slice-for", "write=70", "--shard-for", "write=1/2"]);
        pass.extend(["--shard-for", "stats=2/2", "-f", "ip or vlan"]);
        filters.iter().for_each(|filter| pass.extend(["--filter-for", filter]));
        let json = read_beside(&pass, &ring, &shared);

        let both = |text: &str| format!("(ip or vlan) and ({text})");
        let only = ["capture", "-q", "-r", &file];
        run(&[&only[..], &["-w", &alone, "--slice", "70", "--shard", "1/2", "-f", &both(own)]].concat()).good();
        run(&[&only[..], &["-w", &shared_alone, "--slice", "l3", "-f", &both(own)]].concat()).good();
        run(&["flows", "-q", "-r", &file, "--id-seed", "x", "-w", &flows_alone, "-f", &both(other)]).good();
        let part = scratch.file("part.pcap");
        run(&[&only[..], &["-w", &part, "--shard", "2/2", "-f", &both(other)]].concat()).good();
        let counted = run(&["count", "--json", "--interval", "0", "-r", &part]).good().json();

        assert_eq!((&json["balanced"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{file}");
        assert!(records::read(&written) == records::read(&alone), "{file}: other frames");
        assert!(records::read(&shared) == records::read(&shared_alone), "{file}: readers see other frames");
        assert_eq!(lines(&flows), lines(&flows_alone), "{file}");
        for field in ["frames", "bytes", "sizes"] {
            assert_eq!(json["stats"][field], counted[field], "{file}: {field}");
        }
        assert_eq!(json["share"]["frames"], records::read(&shared).len(), "{file}");
        assert_eq!(json["parts"][0]["part"], "write", "{file}");
        let stages: Vec<(String, String)> = json["accounts"].as_array().unwrap().iter().map(stage).collect();
        for (stage, consumer) in [("write", "capture"), ("share", "share"), ("select", "share"), ("meter", "flows")] {
            assert!(stages.contains(&(stage.into(), consumer.into())), "{stages:?}");
        }
    }
}

#[test]
fn what_is_said_of_a_part_that_is_not_there_is_refused() {
    let capture = ["capture", "-r", "x.pcap", "-w", "y.pcap"];
    for (options, reason) in [
        (&["--filter-for", "flows=tcp"][..], "--filter-for flows needs --flows"),
        (&["--slice-for", "stats=l3", "--stats"], "use whole packets"),
        (&["--shard-for", "ring=1/2"], "no such output"),
        (&["--filter-for", "write=tcp", "--filter-for", "write=udp"], "given twice"),
        (&["--filter-for", "write=no such text"], "filter"),
        (&["--slice-for", "write=l4", "--slice", "l3"], "cannot be used with"),
        (&["--shard-inner"], "--shard-inner needs --shard"),
    ] {
        run(&[&capture[..], options].concat()).with_status(2).says(reason);
    }
}

fn stage(account: &Value) -> (String, String) {
    let text = |name: &str| account[name].as_str().unwrap_or_default().to_owned();
    (text("stage"), text("consumer"))
}

#[test]
fn options_of_flows_need_flows() {
    for option in [&["--level", "tcp"][..], &["--workers", "2"], &["--macs"], &["--idle", "3"], &["--tunnels", "outer"]]
    {
        let capture = ["capture", "-r", "x.pcap", "-w", "y.pcap"];
        run(&[&capture[..], option].concat()).with_status(2).says("needs --flows");
    }
}
