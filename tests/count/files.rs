//! Counts of capture files.

use super::{assert_row, expected, lines};
use linerate::engine::{CountConsumer, Receive, Selection};
use linerate::port::{RxOptions, Spec, open_rx};
use linerate_tests::support::filters::{FILTERS, select};
use linerate_tests::support::program::run;
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::numbered;
use linerate_tests::support::{Scratch, corpus, frames, has_tools, tool};
use serde_json::Value;
use std::collections::BTreeMap;

/// Frames of all sizes at the limits of the buckets, some cut in the file, over a few seconds of different load.
fn sizes() -> Vec<Record> {
    let wires = [0, 1, 59, 60, 61, 123, 124, 251, 252, 507, 508, 1019, 1020, 1514, 1515, 1518, 9000, 65_549];
    let times = (0..wires.len() as u64 * 3).map(|at| 1_700_000_000_000_000_000 + at * at * 2_000_000);
    let record = |(time, wire): (u64, &u32)| Record { time, wire: *wire, bytes: vec![0x5a; *wire.min(&1000) as usize] };
    times.zip(wires.iter().cycle()).map(record).collect()
}

#[test]
fn file_is_counted_exactly_with_rates_of_its_timestamps() {
    let scratch = Scratch::new();
    for (name, all) in
        [("sizes", sizes()), ("sample", frames::sample()), ("numbered", numbered(3000)), ("none", vec![])]
    {
        let file = scratch.file("frames.pcap");
        records::write(&file, &all);
        let (_, summary) = lines(&run(&["count", "-r", &file, "--json", "--lossless"]).good());
        for row in [&summary, &summary["by_port"][0], &summary["by_queue"][0]] {
            assert_row(name, row, &expected(&all));
            assert_eq!((&row["time_base"], &row["received"]), (&Value::from("frames"), &Value::from(all.len())));
            assert_rates(name, row, &all);
        }
        assert_eq!((&summary["balanced"], &summary["quiesced"]), (&Value::from(true), &Value::from(true)));
    }
}

/// Windows cover all files together, sorted by time, after the filter.
#[test]
fn busiest_windows_cover_all_files() {
    let scratch = Scratch::new();
    let record = |time: u64, wire: u32| Record { time, wire, bytes: vec![0x5a; 64.min(wire as usize)] };
    // Bursts of different lengths, which overlap between the files.
    let start = 1_700_000_000_000_000_000;
    let one: Vec<Record> = (0..900u64).map(|at| record(start + at / 30 * 777_777 + at % 30 * 400, 60)).collect();
    let other: Vec<Record> = (0..500u64).map(|at| record(start + at / 50 * 1_555_554 + at % 50 * 350, 1514)).collect();
    let files = [scratch.file("one.pcap"), scratch.file("other.pcap")];
    records::write(&files[0], &one);
    records::write(&files[1], &other);
    for least in [0u32, 1000] {
        let filter = format!("len >= {least}");
        let count = ["count", "-r", &files[0], "-r", &files[1], "--bursts", "-f", &filter];
        let (_, summary) = lines(&run(&[&count[..], &["--json"]].concat()).good());
        let all: Vec<&Record> = one.iter().chain(&other).filter(|record| record.wire >= least).collect();
        for (window, span) in summary["bursts"]["windows"].as_array().unwrap().iter().zip([10_000, 100_000, 1_000_000])
        {
            let mut busy: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for record in &all {
                let frames = busy.entry(record.time / span).or_default();
                *frames = (frames.0 + 1, frames.1 + u64::from(record.wire) + 24);
            }
            assert_eq!((&window["window_ns"], &summary["bursts"]["late"]), (&Value::from(span), &Value::from(0)));
            assert_eq!(window["frames"].as_u64(), busy.values().map(|one| one.0).max(), "{filter} {span}");
            assert_eq!(window["l1_bytes"].as_u64(), busy.values().map(|one| one.1).max(), "{filter} {span}");
            let at = window["frames_at_ns"].as_u64().unwrap();
            assert_eq!(busy[&(at / span)].0, window["frames"].as_u64().unwrap(), "{filter} {span}");
        }
        run(&count).good().shows("busiest windows").shows("22:13:20.");
    }
}

/// Checks rates over the time span of the frames, if any; the peak is the busiest clock second, at least the mean.
fn assert_rates(name: &str, row: &Value, all: &[Record]) {
    let span = all.last().map_or(0, |last| last.time - all[0].time);
    let seconds = span as f64 / 1e9;
    let bytes: u64 = all.iter().map(|record| u64::from(record.wire)).sum();
    let mut busy: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for record in all {
        let second = busy.entry(record.time / 1_000_000_000).or_default();
        *second = (second.0 + 1, second.1 + u64::from(record.wire) + 24);
    }
    let rate = |amount: f64| (seconds > 0.0).then(|| amount / seconds);
    let mpps = rate(all.len() as f64 / 1e6);
    let gbps_l1 = rate((bytes + 24 * all.len() as u64) as f64 * 8e-9);
    let peak_mpps = busy.values().map(|second| second.0).max().unwrap_or(0) as f64 / 1e6;
    let peak_gbps_l1 = busy.values().map(|second| second.1).max().unwrap_or(0) as f64 * 8e-9;
    for (field, value) in [
        ("seconds", Some(seconds)),
        ("mpps", mpps),
        ("gbps_l1", gbps_l1),
        ("gbps_l2", rate((bytes + 4 * all.len() as u64) as f64 * 8e-9)),
        ("peak_mpps", Some(peak_mpps.max(mpps.unwrap_or(0.0)))),
        ("peak_gbps_l1", Some(peak_gbps_l1.max(gbps_l1.unwrap_or(0.0)))),
    ] {
        let Some(value) = value else {
            assert!(row[field].is_null(), "{name}: {field} without a time span: {row}");
            continue;
        };
        let found = row[field].as_f64().unwrap();
        assert!((found - value).abs() <= value * 1e-9, "{name}: {field} is {found}, not {value}");
    }
}

#[test]
fn filter_counts_match_tcpdump() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, sample) = (scratch.file("sample.pcap"), frames::sample());
    records::write(&file, &sample);
    for filter in FILTERS.iter().step_by(3) {
        let (_, summary) = lines(&run(&["count", &format!("pcap:{file}"), "--json", filter]).good());
        let selected = select(&file, filter);
        assert_row(filter, &summary, &serde_json::json!({"frames": selected.len(), "balanced": true, "lost": 0}));
        assert_row(filter, &summary["by_queue"][0]["sizes"], &expected(&selected)["sizes"]);
        assert_eq!(summary["drops"]["filtered"], sample.len() - selected.len());
    }
}

#[test]
fn limit_is_exact_and_the_rest_is_accounted_for() {
    let scratch = Scratch::new();
    let (file, all) = (scratch.file("numbered.pcap"), numbered(700));
    records::write(&file, &all);
    let (_, summary) = lines(&run(&["count", "-c", "77", "-r", &file, "--json"]).good());
    assert_row("-c", &summary["by_port"][0], &expected(&all[..77]));
    assert_eq!((&summary["frames"], &summary["balanced"]), (&Value::from(77), &Value::from(true)));
    let past = summary["drops"]["past_limit"].as_u64().unwrap_or(0);
    assert_eq!(summary["received"].as_u64(), Some(77 + past));
}

#[test]
fn several_files_are_counted_separately_and_together() {
    let scratch = Scratch::new();
    let (one, other) = (sizes(), numbered(1500));
    let paths = [("one.pcap", &one), ("other.pcap", &other)].map(|(name, all)| {
        let path = scratch.file(name);
        records::write(&path, all);
        path
    });
    let [first, second] = [0, 1].map(|at| format!("pcap:{}", paths[at]));
    for arguments in [&[&first[..], &second][..], &[&format!("{first},{second}")], &["-r", &paths[0], "-r", &paths[1]]]
    {
        let (_, summary) = lines(&run(&[&["count", "--json"], arguments].concat()).good());
        assert_row("both", &summary, &expected(&[&one[..], &other].concat()));
        assert_row("one", &summary["by_port"][0], &expected(&one));
        assert_row("other", &summary["by_queue"][1], &expected(&other));
        assert_eq!(summary["by_port"][1]["port"], second);
    }
}

#[test]
fn protocols_match_tshark() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    // Without MPLS, whose payload `count` and tshark treat differently.
    let mut sample = frames::sample();
    sample.retain(|record| !record.bytes.windows(2).any(|at| at == [0x88, 0x47]));
    let file = scratch.file("sample.pcap");
    records::write(&file, &sample);
    let (_, summary) = lines(&run(&["count", "-r", &file, "--protocols", "--json"]).good());
    let listed = tool("tshark", &["-r", &file, "-T", "fields", "-e", "frame.protocols"]);
    for (ours, theirs) in [
        ("ipv4", "ip"),
        ("ipv6", "ipv6"),
        ("arp", "arp"),
        ("tcp", "tcp"),
        ("udp", "udp"),
        ("icmp", "icmp"),
        ("icmpv6", "icmpv6"),
    ] {
        let frames = listed.lines().filter(|line| line.split(':').any(|name| name == theirs)).count();
        assert!(frames > 0, "{theirs}");
        for row in [&summary, &summary["by_queue"][0]] {
            assert_eq!(row["protocols"][ours], frames, "{ours}");
        }
    }
    assert_eq!(summary["protocols"]["ethernet"], sample.len());
}

#[test]
fn totals_of_real_captures_match_capinfos() {
    let Some(folder) = corpus("ndpi") else { return };
    if !has_tools(&["capinfos"]) {
        return;
    }
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().to_str().unwrap().to_owned()).collect();
    names.retain(|name| name.ends_with(".pcap") || name.ends_with(".pcapng"));
    names.sort();
    // One line per file: name, packets, bytes. capinfos skips files that it cannot read.
    let output =
        std::process::Command::new("capinfos").args(["-T", "-M", "-r", "-c", "-d"]).args(&names).output().unwrap();
    let mut compared = 0;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, .., frames, bytes] = fields[..] else { panic!("{line}") };
        let mut counting = CountConsumer::new(Selection::default(), true);
        let port = open_rx(&Spec::file(name), &RxOptions::default()).unwrap();
        let report = Receive::all(vec![port]).run(&mut [&mut counting]);
        let traffic = counting.done().all.traffic;
        assert_eq!((traffic.frames.to_string(), traffic.bytes.to_string()), (frames.into(), bytes.into()), "{name}");
        assert_eq!((report.ledger.imbalances(), report.ledger.lost(), report.quiesced), (vec![], 0, true), "{name}");
        assert_eq!(traffic.sizes.buckets().map(|bucket| bucket.2).sum::<u64>(), traffic.frames, "{name}");
        compared += 1;
    }
    assert!(compared > 200, "only {compared} files compared");
}
