//! Counting between hosts of a network; needs root.

use super::{assert_row, expected, lines, sum};
use linerate_tests::support::program::{Ended, Running, launch, program, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::{ROOMY, Wire, numbered};
use linerate_tests::support::{Scratch, frames, has_tools, may_make_labs, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Waits until the last packets are in the ring and counted.
fn settle() {
    std::thread::sleep(Duration::from_millis(100));
}

/// Starts to count on these ports.
fn count(ports: &[String], arguments: &[&str]) -> Running {
    let ports = ports.join(",");
    start(&[&["count", "-i", &ports, "--json", "--interval", "0.1"], arguments].concat())
}

fn sent(wire: &Wire, arguments: &[&str]) -> u64 {
    wire.send(&[arguments, &["--rate", "max"]].concat()).json()["frames"].as_u64().unwrap()
}

#[test]
fn every_frame_sent_is_counted_with_its_size() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let all = [frames::sample(), numbered(2900)].concat();
    // The kernel drops tagged frames with less than two bytes after the EtherType (skb_vlan_untag).
    let seen: Vec<Record> = all.iter().filter(|record| record.bytes.len() >= 20).cloned().collect();
    let file = scratch.file("frames.pcap");
    records::write(&file, &seen);
    for arguments in [&[][..], &["--protocols"]] {
        let counting = count(&[wire.port("b", "eth0", ROOMY)], &[&["--lossless"], arguments].concat());
        wire.replay(&file);
        settle();
        let (intervals, summary) = lines(&counting.interrupt().good());
        assert_row("all", &summary, &expected(&seen));
        assert_row("queue", &summary["by_queue"][0], &expected(&seen));
        assert_eq!((&summary["balanced"], &summary["quiesced"]), (&Value::from(true), &Value::from(true)));
        assert_eq!((&summary["time_base"], &summary["seconds"]), (&json!("run"), &summary["elapsed_seconds"]));
        assert!(!intervals.is_empty());
        assert!(intervals.iter().map(|line| line["frames"].as_u64().unwrap()).sum::<u64>() <= seen.len() as u64);
        assert_eq!(summary["protocols"]["arp"], if arguments.is_empty() { Value::Null } else { arps(&seen) });
    }
}

/// Frames with an ARP message, tagged or not.
fn arps(records: &[Record]) -> Value {
    records.iter().filter(|record| record.bytes.windows(8).any(|at| at == [8, 6, 0, 1, 8, 0, 6, 4])).count().into()
}

#[test]
fn ports_and_queues_are_counted_separately() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0,mtu=9000", "a:eth1,b:eth1"]);
    let ports = ["eth0", "eth1"].map(|name| wire.port("b", name, "&lanes=2"));
    let counting = count(&ports, &["--lossless"]);
    let mut frames = 0;
    for (size, bucket) in [("64", "64"), ("65", "65-127"), ("1518", "1024-1518"), ("9018", "1519-")] {
        let sent = sent(&wire, &["--udp", "-c", "500", "--size", size]);
        assert_eq!(sent, 500, "{bucket}");
        frames += sent;
    }
    settle();
    let (_, summary) = lines(&counting.interrupt().good());
    let of_one = json!({"frames": frames, "bytes": 500 * (60 + 61 + 1514 + 9014), "lost": 0,
        "sizes": {"0-63": 0, "64": 500, "65-127": 500, "128-255": 0, "256-511": 0, "512-1023": 0, "1024-1518": 500, "1519-": 500}});
    assert_row("busy port", &summary["by_port"][0], &of_one);
    assert_row("all", &summary, &of_one);
    assert_row("silent port", &summary["by_port"][1], &json!({"port": ports[1], "frames": 0, "size_min_bytes": null}));
    let places: Vec<_> = summary["by_queue"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["port"].as_str(), row["queue"].as_u64()))
        .collect();
    let wanted = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(port, queue)| (Some(&ports[port][..]), Some(queue)));
    assert_eq!(places, wanted);
    assert_eq!((sum(&summary["by_queue"], "frames"), sum(&summary["by_queue"], "received")), (frames, frames));
}

#[test]
fn intervals_add_up_to_the_summary() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", ROOMY);
    let mut child = linerate_tests::support::program::linerate(&["count", &port, "udp", "--json", "--interval", "0.1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    assert_eq!(next()["record"], "interval");
    wire.send(&["--udp", "-c", "300", "--rate", "1000pps"]);
    let (mut frames, mut bytes) = (0, 0);
    while frames < 300 {
        let line = next();
        assert_eq!(line["by_queue"][0]["frames"], line["frames"]);
        let seconds = line["seconds"].as_f64().unwrap();
        assert!((0.0..0.6).contains(&seconds), "{line}");
        assert!((line["mpps"].as_f64().unwrap() * 1e6 * seconds - line["frames"].as_f64().unwrap()).abs() < 1e-6);
        frames += line["frames"].as_u64().unwrap();
        bytes += line["bytes"].as_u64().unwrap();
    }
    assert_eq!((frames, bytes), (300, 300 * 60));
    // The pipe is closed: the run ends by itself.
    drop(output);
    wait_until("the run ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn stopped_run_reports_lost_packets_with_their_cause() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    // Without --protocols the ring holds only a few bytes per packet: more packets are needed to fill it.
    let port = wire.port("b", "eth0", "&lanes=1&ring=128KiB&block=64KiB");
    for (arguments, status) in [(&["--lossless"][..], 3), (&[], 0), (&["--lossless", "--protocols"], 3)] {
        let counting = count(std::slice::from_ref(&port), arguments);
        counting.signal(Signal::STOP);
        assert_eq!(sent(&wire, &["--udp", "--size", "1000", "-c", "8000"]), 8000);
        settle();
        counting.signal(Signal::CONT);
        settle();
        let (_, summary) = lines(&counting.interrupt().with_status(status));
        let (frames, lost) = (summary["frames"].as_u64().unwrap(), summary["lost"].as_u64().unwrap());
        assert!(frames > 0 && lost > 0, "{summary}");
        assert_eq!((frames + lost, &summary["balanced"]), (8000, &Value::from(true)), "{summary}");
        assert_eq!(summary["by_queue"][0]["drops"], json!({"ring_full": lost}));
        assert_eq!((&summary["by_port"][0]["lost"], &summary["received"]), (&json!(lost), &json!(8000)));
    }
}

#[test]
fn duration_and_count_end_a_run() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let ports = [wire.port("b", "eth0", ROOMY)];
    let (_, summary) = lines(&count(&ports, &["-T", "0.3"]).end().good());
    assert!(summary["elapsed_seconds"].as_f64() >= Some(0.3) && summary["frames"] == 0, "{summary}");
    let counting = count(&ports, &["-c", "100", "--duration", "20"]);
    sent(&wire, &["--udp", "-c", "1000"]);
    let (_, summary) = lines(&counting.end().good());
    assert_eq!((&summary["frames"], &summary["balanced"]), (&Value::from(100), &Value::from(true)), "{summary}");
}

#[test]
fn removed_port_ends_the_run_with_its_counts() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let counting = count(&[wire.port("b", "eth0", ROOMY)], &[]);
    sent(&wire, &["--udp", "-c", "250"]);
    settle();
    wire.ip("b", &["link", "set", "eth0", "down"]);
    settle();
    wire.ip("b", &["link", "set", "eth0", "up"]);
    wait_until("the link is up", || wire.inside("a", &["ports", "--json"]).json()["interfaces"][1]["link"] == "up");
    sent(&wire, &["--udp", "-c", "250"]);
    settle();
    wire.ip("b", &["link", "del", "eth0"]);
    let (_, summary) = lines(&counting.end().with_status(1));
    assert_eq!((&summary["frames"], &summary["balanced"]), (&Value::from(500), &Value::from(true)), "{summary}");
    let events = summary["events"].to_string();
    assert!(events.contains("is down") && events.contains("again") && events.contains("removed"), "{events}");
}

#[test]
fn text_output_has_lines_then_tables() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", "&lanes=2");
    let counting = launch(&["count", "--interval", "0.1", &port, "ip"]);
    counting.wait_until_open();
    sent(&wire, &["--udp", "-c", "1234"]);
    std::thread::sleep(Duration::from_millis(300));
    let ended = counting.interrupt().good().says("counting packet:").says("1,234 counted").says("0 lost");
    for text in [
        "1,234",
        "65-127",
        "RFC 2819",
        "of the run",
        "1,234 packets captured, 0 lost (filtered in the kernel, not counted)",
    ] {
        assert!(ended.output.contains(text), "{text}: {}", ended.output);
    }
    let quiet = start(&["count", "-q", &port]);
    settle();
    let ended = quiet.interrupt().good();
    assert!(ended.errors.is_empty() && ended.output.contains("RFC 2819"), "{ended:?}");
}

#[test]
fn terminal_redraws_the_table() {
    if !may_make_labs() || !has_tools(&["script"]) {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", "&lanes=1");
    let command = format!("{} count '{port}' --interval 0.1 -T 0.55", program().display());
    let output = Command::new("script").args(["-qec", &command, "/dev/null"]).stdin(Stdio::null()).output().unwrap();
    let ended = Ended::of(output).good();
    let tables = ended.output.matches("mean size").count();
    assert!((2..=6).contains(&tables), "{tables}: {}", ended.output);
    assert_eq!(ended.output.matches("\x1b[2A\x1b[J").count(), tables - 1, "{:?}", ended.output);
    assert!(ended.output.contains("packets captured, 0 lost"));
}
