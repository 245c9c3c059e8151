//! One pass that writes a file and flow records, counts, and shares a ring.

use linerate_tests::support::program::{run, start};
use linerate_tests::support::{Scratch, corpus, frames, records};
use serde_json::Value;
use std::fs::read;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Outputs of one pass equal those of separate runs of each verb over the same frames.
#[test]
fn capture_writes_meters_counts_and_shares_in_one_pass() {
    let scratch = Scratch::new();
    let sample = scratch.file("sample.pcap");
    records::write(&sample, &frames::sample());
    let real = corpus("real-mix.pcap").map(|path| path.to_str().unwrap().to_owned());
    for file in [Some(sample), real].into_iter().flatten() {
        let [whole, single, flows, flows_single, shared] =
            ["whole.pcap", "single.pcap", "flows.jsonl", "single.jsonl", "shared.pcap"].map(|name| scratch.file(name));
        let name = format!("several-{}", std::process::id());
        let reader = ["--share", &name, "--share-wait", "1", "--lossless-readers", "--share-timeout", "30"];
        let options = [
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
        let json = capture_with_reader(&[&options[..], &reader].concat(), &name, &shared);
        run(&["capture", "-q", "-r", &file, "-s", "60", "-w", &single]).good();
        let metered = run(&["flows", "--json", "-r", &file, "--id-seed", "x", "-w", &flows_single]).good().json();
        let counted = run(&["count", "--json", "--interval", "0", "-r", &file]).good().json();

        assert_eq!((&json["balanced"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{file}");
        assert!(records::read(&whole) == records::read(&single), "{file}: other frames");
        assert!(records::read(&whole) == records::read(&shared), "{file}: readers see other frames");
        assert_eq!(lines(&flows), lines(&flows_single), "{file}");
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

/// Runs a capture with a lossless reader that writes its packets to `shared`; returns the capture's JSON.
fn capture_with_reader(capture: &[&str], ring: &str, shared: &str) -> Value {
    let pass = start(capture);
    let started = Instant::now();
    while run(&["capture", "-q", "-i", &format!("shm:{ring}?mode=lossless"), "-w", shared]).status != 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "no reader could attach to the ring");
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

/// Each output with a filter, slice and shard of its own equals a separate run with these options.
#[test]
fn each_output_of_a_capture_has_its_own_selection() {
    let scratch = Scratch::new();
    let sample = scratch.file("sample.pcap");
    records::write(&sample, &frames::sample());
    let real = corpus("real-mix.pcap").map(|path| path.to_str().unwrap().to_owned());
    for (file, [own, other]) in [(Some(sample), ["udp", "vlan"]), (real, ["tcp", "udp port 53"])] {
        let Some(file) = file else { continue };
        let name = |name: &str| scratch.file(name);
        let [written, single, flows, flows_single] =
            ["write.pcap", "write-single.pcap", "flows.jsonl", "flows-single.jsonl"].map(name);
        let [shared, shared_single] = ["shared.pcap", "shared-single.pcap"].map(name);
        let ring = format!("parts-{}", std::process::id());
        let of = |part: &str, text: &str| format!("{part}={text}");
        let filters = [of("write", own), of("flows", other), of("share", own), of("stats", other)];
        let mut pass = vec!["capture", "--json", "-r", &file, "-w", &written, "--flows", &flows, "--id-seed", "x"];
        pass.extend(["--stats", "--share", &ring, "--share-wait", "1", "--lossless-readers", "--share-timeout", "30"]);
        pass.extend(["--slice-for", "share=l3", "--slice-for", "write=70", "--shard-for", "write=1/2"]);
        pass.extend(["--shard-for", "stats=2/2", "-f", "ip or vlan"]);
        filters.iter().for_each(|filter| pass.extend(["--filter-for", filter]));
        let json = capture_with_reader(&pass, &ring, &shared);

        let both = |text: &str| format!("(ip or vlan) and ({text})");
        let only = ["capture", "-q", "-r", &file];
        run(&[&only[..], &["-w", &single, "--slice", "70", "--shard", "1/2", "-f", &both(own)]].concat()).good();
        run(&[&only[..], &["-w", &shared_single, "--slice", "l3", "-f", &both(own)]].concat()).good();
        run(&["flows", "-q", "-r", &file, "--id-seed", "x", "-w", &flows_single, "-f", &both(other)]).good();
        let part = scratch.file("part.pcap");
        run(&[&only[..], &["-w", &part, "--shard", "2/2", "-f", &both(other)]].concat()).good();
        let counted = run(&["count", "--json", "--interval", "0", "-r", &part]).good().json();

        assert_eq!((&json["balanced"], &json["lost"]), (&Value::from(true), &Value::from(0)), "{file}");
        assert!(records::read(&written) == records::read(&single), "{file}: other frames");
        assert!(records::read(&shared) == records::read(&shared_single), "{file}: readers see other frames");
        assert_eq!(lines(&flows), lines(&flows_single), "{file}");
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
fn options_for_missing_outputs_are_rejected() {
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
