//! The receiver reports every fault that packets meet on their path.

use crate::generate::testbed::{SCHEMES, Stage, counted, generate, number};
use linerate_tests::support::Scratch;
use linerate_tests::support::program::run;
use serde_json::Value;
use std::time::Instant;

const FRAMES: u64 = 10_000;

/// Sends from `to` to `check` and returns the report, which is consistent and has no foreign or stale packet.
fn checked(to: &str, check: &str, arguments: &[&str]) -> Value {
    let json = generate(&[&["--to", to, "--check", check], arguments].concat()).good().json();
    let check = &json["check"];
    assert_eq!(
        (number(check, "foreign"), number(check, "stale"), number(&check["ledger"], "lost")),
        (0, 0, 0),
        "{json}"
    );
    assert!(json["balanced"] == true && check["ledger"]["balanced"] == true, "{json}");
    json
}

/// Counts of lost, duplicated, reordered, corrupted and damaged frames.
fn by_fault(json: &Value) -> [u64; 5] {
    ["lost", "duplicated", "reordered", "corrupted", "damaged"].map(|name| number(&json["check"], name))
}

#[test]
fn every_fault_is_reported_exactly_on_either_side() {
    let Some(stage) = Stage::up() else { return };
    let what = ["-k", "udp/payload(random)", "--size", "100", "-c", "10000", "--rate", "100kpps"];
    for (faults, count, fault) in [
        ("drop=2%", "fault_dropped", Some(0)),
        ("burst=0.1%x40", "fault_dropped", Some(0)),
        ("repeat=3%", "fault_repeated", Some(1)),
        ("reorder=2%x5&hold=200ms", "fault_reordered", Some(2)),
        ("corrupt=2%x1@14-79", "fault_corrupted", Some(3)),
        ("truncate=2%x60", "fault_truncated", Some(4)),
        ("pad=2%x9", "fault_padded", None),
    ] {
        let (sender, receiver) = (stage.port("packet", "a"), stage.checking("b"));
        for (side, to, check) in [
            ("sender", format!("faulty:{sender}&{faults}&seed=3"), receiver.clone()),
            ("receiver", sender.clone(), format!("faulty:{receiver}&{faults}&seed=4")),
        ] {
            let json = checked(&to, &check, &what);
            let planned = counted(if side == "sender" { &json } else { &json["check"]["ledger"] }, count);
            assert!(planned > 100, "{faults}: only {planned} frames");
            let mut expected = [0; 5];
            fault.into_iter().for_each(|fault| expected[fault] = planned);
            // A frame without its trailer is also lost to its stream.
            expected[0] += expected[4];
            assert_eq!(by_fault(&json), expected, "{faults} at the {side}: {json}");
            let received = FRAMES - expected[0] + expected[1];
            assert_eq!((number(&json["check"], "received"), number(&json["check"], "sent")), (received, FRAMES));
        }
    }
}

#[test]
fn faults_of_several_streams_add_up_on_every_path() {
    let Some(stage) = Stage::up() else { return };
    let streams = ["-k", "udp", "-k", "ip6/tcp", "-k", "vlan(id=5)/ip/icmp", "--size", "[100:2, 200:1]", "-c", "3000"];
    for scheme in SCHEMES {
        let to = format!("faulty:{}&drop=1%&repeat=1%&pad=1%&seed=9", stage.port(scheme, "a"));
        let json = checked(&to, &stage.checking("b"), &[&streams[..], &["--rate", "60kpps"]].concat());
        let (dropped, repeated) = (counted(&json, "fault_dropped"), counted(&json, "fault_repeated"));
        assert!(dropped > 50 && repeated > 50, "{json}");
        assert_eq!(by_fault(&json), [dropped, repeated, 0, 0, 0], "{scheme}: {json}");
        let rows = json["streams"].as_array().unwrap();
        let lost: u64 = rows.iter().map(|row| number(&row["check"], "lost")).sum();
        assert_eq!((rows.len(), lost), (3, dropped));
        assert!(rows.iter().all(|row| number(row, "sent") == 3000 && number(&row["check"], "sent") == 3000), "{json}");
    }
}

#[test]
fn frames_without_room_are_counted_by_their_constant_bytes() {
    let Some(stage) = Stage::up() else { return };
    let scratch = Scratch::new();
    let file = scratch.file("streams.toml");
    let text = "
        [[stream]]
        packet = \"ip(src=10.0.0.1..10.0.0.9)/tcp(sport=7, dport=random, flags=syn)\"
        check = \"count\"
        rate = \"20kpps\"
        count = 2000
        [[stream]]
        packet = \"udp(sport=1..9)\"
        rate = \"20kpps\"
        count = 1000";
    std::fs::write(&file, text).unwrap();
    let to = format!("faulty:{}&drop=5%&seed=5", stage.port("packet", "a"));
    let json = checked(&to, &stage.checking("b"), &["--streams", &file]);
    let dropped = counted(&json, "fault_dropped");
    let mark = |stream: usize| json["streams"][stream]["check"]["mark"].as_str();
    assert_eq!((mark(0), mark(1)), (Some("count"), Some("trailer")), "{json}");
    assert_eq!(by_fault(&json)[0], dropped, "{json}");
    assert!(dropped > 100 && number(&json["check"], "received") == 3000 - dropped, "{json}");
}

#[test]
fn delay_shows_in_latency() {
    let Some(stage) = Stage::up() else { return };
    let check = format!("faulty:{}&delay=30ms", stage.checking("b"));
    let json = checked(&stage.port("packet", "a"), &check, &["-k", "udp", "-c", "500", "--rate", "5kpps"]);
    let least = number(&json["check"], "latency_min_ns");
    assert!((30_000_000..35_000_000).contains(&least), "{json}");
    assert_eq!(by_fault(&json), [0; 5]);
}

/// TTL, MAC addresses and checksums change on the path, in the same pages that later frames are built in.
#[test]
fn router_in_the_path_causes_no_fault() {
    let Some(stage) = Stage::routed() else { return };
    let mac = stage.mac("r", "p0");
    stage.0.ip("r", &["neigh", "add", "10.9.1.77", "lladdr", "02:00:00:00:00:77", "dev", "p1"]);
    let packet =
        format!("eth(dst={mac})/ip(src=10.9.0.7..10.9.0.99, dst=10.9.1.77)/udp(sport=1024..65535)/payload(noise)");
    for scheme in SCHEMES {
        let what = ["-k", &packet, "--size", "[64:7, 300:3]", "-c", "8000", "--rate", "40kpps", "--lossless"];
        let json = checked(&stage.port(scheme, "a"), &stage.checking("h"), &what);
        assert_eq!(json["generated_by"], if scheme == "xdp-live" { "port" } else { "process" });
        assert_eq!((by_fault(&json), number(&json["check"], "received")), ([0; 5], 8000), "{scheme}: {json}");
        assert_eq!(json["check"]["ledger"]["accounts"][1]["received"], 8000, "{scheme}: {json}");
    }
}

#[test]
fn lossless_only_changes_the_exit_status() {
    let Some(stage) = Stage::up() else { return };
    let whole = stage.port("packet", "a");
    let check = stage.checking("b");
    for (to, lossless, status) in [
        (format!("faulty:{whole}&drop=10%"), true, 3),
        (format!("faulty:{whole}&drop=10%"), false, 0),
        (format!("faulty:{whole}&corrupt=10%x1@14-33"), true, 3),
        (whole.clone(), true, 0),
    ] {
        let what = ["--to", &to, "--check", &check, "-k", "udp", "-c", "200", "--rate", "20kpps"];
        let lossless: &[&str] = if lossless { &["--lossless"] } else { &[] };
        let json = generate(&[&what[..], lossless].concat()).with_status(status).json();
        assert_eq!(by_fault(&json) != [0; 5], to != whole, "{json}");
    }
}

#[test]
fn silent_receiver_ends_in_time_and_reports_the_loss() {
    let Some(stage) = Stage::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]) else { return };
    let silent = stage.0.port("b", "eth1", "");
    let started = Instant::now();
    for (scheme, lossless) in [("packet", 3), ("xdp", 0)] {
        let (to, silent) = (stage.port(scheme, "a"), silent.replace("packet", scheme));
        let what = ["--to", &to, "--check", &silent, "-k", "udp", "-c", "100", "--rate", "1kpps"];
        let lossless_asked: &[&str] = if lossless == 3 { &["--lossless"] } else { &[] };
        let json = generate(&[&what[..], lossless_asked].concat()).with_status(lossless).json();
        assert_eq!((by_fault(&json), number(&json["check"], "received")), ([100, 0, 0, 0, 0], 0), "{json}");
        let text = [&["generate", "--interval", "0"], &what[..], lossless_asked].concat();
        run(&text).with_status(lossless).shows("0 of 100 packets received, 100 lost");
    }
    assert!(started.elapsed().as_secs_f64() < 30.0, "{:?}", started.elapsed());
}

/// Packets merged by GRO look like loss; the report names the real cause.
#[test]
fn frames_merged_by_the_receiving_host_are_reported() {
    let Some(stage) = Stage::up() else { return };
    let packet = "ip/tcp(flags=ack, seq=0..4000000000/46)/payload(random)";
    let what = ["-k", packet, "--size", "104", "-c", "2000", "--rate", "max", "--interval", "0"];
    let to = stage.port("xdp-live", "a");
    let checked = |check: &str| run(&[&["generate", "--to", &to, "--check", check], &what[..]].concat()).good();
    checked(&stage.checking("b")).shows("merged by GRO on the receiving host").shows("use xdp:");
    let ended = checked(&stage.port("xdp", "b")).shows("2,000 of 2,000 packets received, 0 lost");
    assert!(!ended.output.contains("merged by GRO"), "{}", ended.output);
}
