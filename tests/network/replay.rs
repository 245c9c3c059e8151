//! Real traffic from one host to another and into a file, complete and in order.

use linerate_tests::support::program::{run, start};
use linerate_tests::support::records::{self, Record, assert_same_frames, assert_times_never_go_back};
use linerate_tests::support::wire::{ROOMY, Wire, numbered, settle};
use linerate_tests::support::{Scratch, corpus, frames, has_tools, may_make_labs, tool};
use std::time::Instant;

#[test]
fn real_capture_arrives_completely_at_max_rate() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    if !may_make_labs() {
        return;
    }
    let file = file.to_str().unwrap();
    let (wire, scratch, sent) = (Wire::new(), Scratch::new(), records::read(file));
    let output = scratch.file("out.pcap");
    // Default lanes and rings.
    let capture = start(&["capture", "-i", &wire.port("b", "eth0", ""), "-w", &output, "--lag", "10", "--json"]);
    let generated = run(&["replay", "--to", &wire.port("a", "eth0", ""), "-r", file, "--rate", "max", "--json"]);
    settle(&output, &sent);
    let (captured, generated) = (capture.interrupt().good().json(), generated.good().json());
    let got = records::read(&output);
    assert_same_frames("real-mix", &got, &sent);
    assert_times_never_go_back(&got);
    let bytes: usize = sent.iter().map(|record| record.bytes.len()).sum();
    for (name, json) in [("captured", captured), ("generated", generated)] {
        assert_eq!(
            (json["frames"].as_u64(), json["bytes"].as_u64()),
            (Some(sent.len() as u64), Some(bytes as u64)),
            "{name}"
        );
        assert_eq!((json["lost"].as_u64(), json["balanced"].as_bool()), (Some(0), Some(true)), "{name}: {json}");
        assert!(json["late"].is_null() || json["late"] == 0, "{json}");
    }
    if has_tools(&["capinfos", "tshark"]) {
        let facts = tool("capinfos", &["-TmMQrcdo", &output]);
        assert!(facts.trim_end().ends_with(&format!("\"{}\",\"{bytes}\",\"True\"", sent.len())), "{facts}");
        let lengths = tool("tshark", &["-r", &output, "-T", "fields", "-e", "frame.len"]);
        assert_eq!(lengths.lines().map(|line| line.parse::<usize>().unwrap()).sum::<usize>(), bytes);
    }
}

#[test]
fn timed_replay_keeps_the_gaps() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, sample) = (Wire::new(), Scratch::new(), frames::sample());
    let (file, output) = (scratch.file("sample.pcap"), scratch.file("out.pcap"));
    records::write(&file, &sample);
    let capture = wire.capture(&output, &[]);
    let started = Instant::now();
    wire.replay_with(&["-r", &file, "--speed", "0.5"]);
    let took = started.elapsed().as_secs_f64();
    settle(&output, &sample);
    capture.interrupt().good();
    let got = records::read(&output);
    assert_same_frames("timed", &got, &sample);
    let span = |records: &[Record]| (records.last().unwrap().time - records[0].time) as f64 / 1e9;
    assert!(took >= 2.0 * span(&sample), "{took}");
    // The first packet may be late, but no later packet is early.
    assert!(span(&got) > 1.8 * span(&sample) && span(&got) <= took, "{} {took}", span(&got));
}

#[test]
fn several_ports_are_merged_by_time() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]);
    let (scratch, all) = (Scratch::new(), numbered(3000));
    let (file, output) = (scratch.file("numbered.pcap"), scratch.file("out.pcapng"));
    records::write(&file, &all);
    let ports = ["eth0", "eth1"].map(|interface| wire.port("b", interface, ROOMY));
    let listed = ports.join(",");
    for arguments in [&["-i", &ports[0], "-i", &ports[1]][..], &[&listed]] {
        let fixed = ["capture", "-w", &output, "--json", "--lag", "10", "-c", "6000", "--duration", "20"];
        let capture = start(&[&fixed, arguments].concat());
        std::thread::scope(|scope| {
            for interface in ["eth0", "eth1"] {
                let (to, file) = (wire.port("a", interface, ""), &file);
                scope.spawn(move || {
                    run(&["replay", "-q", "--to", &to, "-r", file, "--rate", "20kpps"]).good();
                });
            }
        });
        let json = capture.end().good().json();
        assert_eq!(
            (json["frames"].as_u64(), json["lost"].as_u64(), json["late"].as_u64()),
            (Some(6000), Some(0), Some(0))
        );
        let plain = scratch.file("plain.pcap");
        run(&["capture", "-q", "-r", &output, "-w", &plain]).good();
        let got = records::read(&plain);
        assert_times_never_go_back(&got);
        let mut contents: Vec<_> = got.iter().map(Record::content).collect();
        contents.sort();
        let mut wanted: Vec<_> = all.iter().chain(&all).map(Record::content).collect();
        wanted.sort();
        assert!(contents == wanted);
        if has_tools(&["tshark"]) {
            let names = tool("tshark", &["-r", &output, "-T", "fields", "-e", "frame.interface_name"]);
            for name in ["eth0", "eth1"] {
                assert_eq!(names.lines().filter(|line| *line == name).count(), all.len(), "{name}");
            }
        }
    }
}

#[test]
fn count_duration_and_snap_apply_to_a_live_capture() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, sample) = (Wire::new(), Scratch::new(), frames::sample());
    let (file, counted, cut) = (scratch.file("sample.pcap"), scratch.file("counted.pcap"), scratch.file("cut.pcap"));
    records::write(&file, &sample);
    // The kernel strips VLAN tags: they are part of the 60 bytes all the same.
    let counting = wire.capture(&counted, &["-c", "50", "--duration", "20"]);
    let cutting = wire.capture(&cut, &["-s", "60"]);
    let cutting_vlan = wire.capture(&scratch.file("vlan.pcap"), &["-s", "60", "vlan"]);
    wire.replay(&file);
    assert_eq!(counting.end().good().json()["frames"], 50);
    assert_same_frames("-c 50", &records::read(&counted), &sample[..50]);
    let snapped =
        |record: &Record| Record { bytes: record.bytes[..record.bytes.len().min(60)].to_vec(), ..record.clone() };
    let wanted: Vec<Record> = sample.iter().map(snapped).collect();
    let is_tagged =
        |record: &&Record| [[0x81, 0], [0x88, 0xa8], [0x91, 0]].iter().any(|tag| record.bytes[12..14] == *tag);
    let tagged: Vec<Record> = wanted.iter().filter(is_tagged).cloned().collect();
    for (capture, output, wanted) in [(cutting, cut, wanted), (cutting_vlan, scratch.file("vlan.pcap"), tagged)] {
        settle(&output, &wanted);
        capture.interrupt().good();
        assert_same_frames("-s 60", &records::read(&output), &wanted);
    }

    let started = Instant::now();
    let timed = wire.capture(&counted, &["--duration", "0.3"]).end().good().json();
    assert!(started.elapsed().as_secs_f64() >= 0.3);
    assert_eq!((timed["frames"].as_u64(), timed["quiesced"].as_bool()), (Some(0), Some(true)));
}
