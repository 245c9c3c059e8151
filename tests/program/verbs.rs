//! `generate` and `replay` to a file, `ports`, `demo`.

use linerate_tests::support::program::{Ended, linerate, run};
use linerate_tests::support::records::{self, assert_same_frames};
use linerate_tests::support::{Scratch, frames, has_tools, tool};
use serde_json::Value;
use std::time::Instant;

#[test]
fn udp_packets_have_the_requested_fields() {
    let scratch = Scratch::new();
    let file = scratch.file("udp.pcap");
    let to = format!("pcap:{file}");
    let families = [("198.18.5.1", "198.18.5.2", "ip"), ("2001:db8::5", "2001:db8::6", "ipv6")];
    for ((from, into, family), size) in families.into_iter().flat_map(|one| [(one, 66), (one, 500), (one, 1518)]) {
        let ports = ["--src-port", "4000", "--dst-port", "4001"];
        let size_text = size.to_string();
        let options = ["--src-ip", from, "--dst-ip", into, "--size", &size_text, "-c", "25", "--rate", "max"];
        let arguments = [&["generate", "--json", "--to", &to, "--udp"], &ports[..], &options[..]].concat();
        let json = run(&arguments).good().json();
        assert_eq!((&json["schema"], &json["frames"]), (&Value::from("linerate/generate/1"), &Value::from(25)));
        assert_eq!((&json["lost"], &json["balanced"]), (&Value::from(0), &Value::from(true)));
        if !has_tools(&["tshark"]) {
            continue;
        }
        let right =
            format!("{family}.src == {from} && {family}.dst == {into} && udp.srcport == 4000 && udp.dstport == 4001");
        let right = format!("{right} && udp.checksum.status == 1 && frame.len == {} && !_ws.expert", size - 4);
        let checks = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
        let listed = tool("tshark", &[&["-r", &file, "-Y", &right], &checks[..]].concat());
        assert_eq!(listed.lines().count(), 25, "{from} {size}");
    }
}

#[test]
fn replays_repeat_and_split() {
    let scratch = Scratch::new();
    let (file, out) = (scratch.file("sample.pcap"), scratch.file("out.pcap"));
    let sample = frames::sample();
    records::write(&file, &sample);
    let to = format!("pcap:{out}");
    run(&["replay", "--to", &to, "-r", &file, "--rate", "max", "--loops", "3"]).good();
    assert_same_frames("--loops 3", &records::read(&out), &[&sample[..], &sample, &sample].concat());

    let real = linerate_tests::support::corpus("real-mix.pcap");
    for file in [Some(file), real.map(|path| path.to_str().unwrap().to_owned())].into_iter().flatten() {
        let mut parts = Vec::new();
        for part in ["0/2", "1/2"] {
            run(&["replay", "--to", &to, "-r", &file, "--rate", "max", "--split", part]).good();
            parts.extend(records::read(&out).into_iter().map(|record| (record.wire, record.bytes)));
        }
        let mut whole: Vec<_> = records::read(&file).into_iter().map(|record| (record.wire, record.bytes)).collect();
        parts.sort();
        whole.sort();
        assert!(parts == whole, "{file}: the parts do not add up to the whole");
    }
}

#[test]
fn endless_replay_at_max_rate_ends_after_duration() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let started = Instant::now();
    let endless =
        ["replay", "--to", "pcap:/dev/null", "-r", &file, "--rate", "max", "--loops", "0", "--duration", "0.3"];
    run(&endless).good();
    assert!(started.elapsed().as_secs_f64() >= 0.3);
}

#[test]
fn ports_lists_backends_with_reasons() {
    let json = run(&["ports", "--json"]).good().json();
    assert_eq!(json["schema"], "linerate/ports/1");
    let loopback = json["interfaces"].as_array().unwrap().iter().find(|one| one["port"] == "lo").expect("loopback");
    for backend in loopback["backends"].as_array().unwrap() {
        assert!(backend["works"].as_bool().unwrap() || !backend["reason"].as_str().unwrap().is_empty(), "{backend}");
    }
    let text = run(&["ports"]).good().output;
    assert!(text.contains("packet:lo") && text.contains("pcap:FILE"), "{text}");
}

#[test]
fn demo_in_memory_loses_nothing() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let ended = run(&["demo", "--memory", "--replay", &file]).good();
    let last = ended.output.lines().last().unwrap();
    assert!(last.starts_with("sent = captured, 0 lost"), "{}", ended.output);
    let json = run(&["demo", "--memory", "--replay", &file, "--json"]).good().json();
    assert_eq!((&json["schema"], &json["ok"]), (&Value::from("linerate/demo/1"), &Value::from(true)));
}

#[test]
fn demo_generates_a_recording_if_none_exists() {
    let mut command = linerate(&["demo", "--memory"]);
    let ended = Ended::of(command.env_remove("LINERATE_CORPUS").output().unwrap()).good();
    assert!(ended.output.lines().last().unwrap().starts_with("sent = captured, 0 lost"), "{}", ended.output);
}
