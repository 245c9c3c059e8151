//! Records of other exporters, read back as the same flows.

use super::exporter::{free_port, waiting};
use super::{directions, flows_of, lines_of, mix, sum};
use linerate_tests::support::program::{Running, run, start};
use linerate_tests::support::{Scratch, files, has_tools, wait_until};
use serde_json::Value;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Command;

/// Removes null, zero and empty values, which IPFIX does not distinguish from absent ones.
fn normal(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.iter().map(|(name, value)| (name.clone(), normal(value)));
            let is_none = |value: &Value| {
                value.is_null()
                    || *value == 0
                    || *value == 0.0
                    || value == ""
                    || value == "00:00:00:00:00:00"
                    || *value == serde_json::json!({})
                    || *value == false
            };
            // Only collected records have an exporter.
            Value::Object(kept.filter(|(name, value)| !is_none(value) && name != "exporter").collect())
        }
        value => value.clone(),
    }
}

#[test]
fn full_profile_file_is_read_back_unchanged() {
    let Some(capture) = mix() else { return };
    let scratch = Scratch::new();
    let [file, back] = ["flows.ipfix.zst", "back.jsonl"].map(|name| scratch.file(name));
    for (profile, level) in [("biflow,full", "tcp"), ("biflow,full", "counters")] {
        let flows = flows_of(&capture, &["-w", &file, "--ipfix", profile, "--level", level, "--macs"]);
        run(&["collect", &file, "-q", "-w", &back]).good();
        let returned = lines_of(&back);
        assert_eq!(returned.len(), flows.len());
        for (one, other) in flows.iter().zip(&returned) {
            assert_eq!(normal(other), normal(one), "{profile} {level}");
        }
    }
    // Without biflow each direction becomes a one-way flow, reversed for packets of the responder.
    let flows = flows_of(&capture, &["-w", &file, "--ipfix", "full", "--level", "tcp"]);
    run(&["collect", &file, "-q", "-w", &back]).good();
    let returned = lines_of(&back);
    assert_eq!(returned.len() as u64, directions(&flows));
    for name in ["packets", "packet_bytes", "frame_bytes", "payload_bytes"] {
        let side =
            |flows: &[Value], side: &str| flows.iter().map(|flow| flow[side][name].as_u64().unwrap()).sum::<u64>();
        for of in ["orig", "resp"] {
            assert_eq!(side(&returned, of), side(&flows, of), "{of}.{name}");
        }
    }
    let ids =
        |flows: &[Value]| flows.iter().map(|flow| flow["id"].to_string()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(ids(&returned), ids(&flows));
}

/// Starts `linerate collect` and returns it with its port.
fn collector(write: &str) -> (Running, u16) {
    let port = free_port();
    let running = start(&["collect", &format!("ipfix://127.0.0.1:{port}"), "-w", write, "--json"]);
    (running, port)
}

/// Stops the collector after it has read all datagrams, and returns its summary.
fn end(running: Running, port: u16) -> Value {
    wait_until("all datagrams are read", || waiting(port) == Some(0));
    running.interrupt().good().json()
}

#[test]
fn records_arrive_over_udp_and_tcp() {
    let Some(capture) = mix() else { return };
    let scratch = Scratch::new();
    let back = scratch.file("back.jsonl");
    for (scheme, profile) in [("ipfix+udp", "rate=50000"), ("ipfix+tcp", "biflow"), ("netflow9+udp", "rate=50000")] {
        let (running, port) = collector(&back);
        let flows = flows_of(&capture, &["-w", &format!("{scheme}://127.0.0.1:{port}"), "--ipfix", profile]);
        let summary = end(running, port);
        let returned = lines_of(&back);
        let expected = if profile == "biflow" { flows.len() as u64 } else { directions(&flows) };
        assert_eq!((&summary["records"], returned.len() as u64), (&expected.into(), expected), "{scheme}: {summary}");
        let account =
            summary["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "collect").unwrap();
        let none = ["malformed", "unknown_template", "missing_records", "missing_messages"];
        assert!(none.iter().all(|name| account["notes"][name].as_u64().unwrap_or(0) == 0), "{account}");
        for name in ["packets", "packet_bytes", "tcp_flags"] {
            assert_eq!(sum(&returned, name), sum(&flows, name), "{scheme}: {name}");
        }
        let millis = |flows: &[Value]| -> u64 {
            let of = |flow: &Value, side: &str| flow[side]["last_time_ns"].as_u64().map_or(0, |time| time / 1_000_000);
            flows.iter().map(|flow| of(flow, "orig") + of(flow, "resp")).sum()
        };
        assert_eq!(millis(&returned), millis(&flows), "{scheme}");
    }
}

/// Collects records that `nfreplay` sends from files of `nfpcapd`.
#[test]
fn nfreplay_records_are_collected() {
    let Some(capture) = mix().filter(|_| has_tools(&["nfpcapd", "nfdump", "nfreplay"])) else { return };
    let scratch = Scratch::new();
    let [folder, back] = ["nf", "back.jsonl"].map(|name| scratch.file(name));
    std::fs::create_dir(&folder).unwrap();
    let made = Command::new("nfpcapd").args(["-r", &capture, "-w", &folder]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (running, port) = collector(&back);
    let (mut records, mut packets) = (0, 0);
    for file in files(Path::new(&folder)) {
        let file = file.to_str().unwrap();
        let listed = Command::new("nfdump").args(["-r", file, "-q", "-N", "-o", "fmt:%ipkt,%opkt"]).output().unwrap();
        for line in String::from_utf8(listed.stdout).unwrap().lines().filter(|line| line.contains(',')) {
            // Lines without packets are not flows.
            let own = line.split(',').map(|number| number.trim().parse::<u64>().unwrap()).sum::<u64>();
            (records, packets) = (records + usize::from(own > 0), packets + own);
        }
        let sent = Command::new("nfreplay")
            .args(["-r", file, "-H", "127.0.0.1", "-p", &port.to_string(), "-v", "9", "-d", "2000"])
            .output()
            .unwrap();
        assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    }
    let summary = end(running, port);
    let returned = lines_of(&back);
    assert_eq!((returned.len(), sum(&returned, "packets")), (records, packets), "{summary}");
    assert!(records > 500);
}

#[test]
fn malformed_input_is_counted_without_further_damage() {
    let Some(capture) = mix() else { return };
    let scratch = Scratch::new();
    let [file, back] = ["flows.ipfix", "back.jsonl"].map(|name| scratch.file(name));
    let flows = flows_of(&capture, &["-w", &file, "--ipfix", "full", "--level", "tcp"]);
    let good = std::fs::read(&file).unwrap();
    let (running, port) = collector(&back);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = (Ipv4Addr::LOCALHOST, port);
    for bytes in [&[][..], &[0], &[0, 10], &[0, 10, 0, 16], &[0, 9, 0, 1], &good[..2000], &[0xff; 1400]] {
        socket.send_to(bytes, at).unwrap();
    }
    // A connection with invalid data is closed; a truncated one loses only its last message.
    TcpStream::connect(at).unwrap().write_all(&[7; 100]).unwrap();
    let mut cut = TcpStream::connect(at).unwrap();
    cut.write_all(&good[..good.len() - 5]).unwrap();
    drop(cut);
    TcpStream::connect(at).unwrap().write_all(&good).unwrap();
    wait_until("all connections are read", || lines_written(&back) >= directions(&flows));
    let summary = end(running, port);
    assert!(summary["malformed"].as_u64().unwrap() >= 7, "{summary}");
    assert!(summary["records"].as_u64().unwrap() >= directions(&flows), "{summary}");
    std::fs::write(&file, &good[..good.len() - 5]).unwrap();
    run(&["collect", &file, "-q"]).with_status(1).says("truncated within a message");
    std::fs::write(&file, b"not IPFIX").unwrap();
    run(&["collect", &file, "-q"]).with_status(1).says("not an IPFIX file");
    for (more, error) in [
        (&["--level", "tcp"][..], "--level: no such option"),
        (&["-c", "5"], "-c: use --top N"),
        (&["-r", "frames.pcap"], "-r: no such option"),
        (&["https://x"], "expected ipfix://HOST:PORT"),
        (&["--sleep"], "--sleep: no such option"),
    ] {
        run(&[&["collect", &file][..], more].concat()).with_status(2).says(error);
    }
}

/// Lines written so far to an unfinished file.
fn lines_written(path: &str) -> u64 {
    let text = std::fs::read_to_string(format!("{path}.part")).unwrap_or_default();
    text.lines().count() as u64
}
