//! Replays over links, with exact timing.

use linerate_tests::support::program::{Ended, program, start};
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::wire::{ROOMY, Wire, numbered};
use linerate_tests::support::{Scratch, may_make_labs};
use serde_json::Value;
use std::process::Command;

/// Runs `generate` on one processor, so that the kernel has no reason to change the order.
fn replay(arguments: &[&str]) -> Value {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program()).args(["replay", "--json"]).args(arguments);
    Ended::of(command.output().expect("taskset")).good().json()
}

/// Both sides share one schedule: merged by receive timestamps they equal the recording.
#[test]
fn two_sides_keep_the_order_of_the_recording() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]);
    let (scratch, mut all) = (Scratch::new(), numbered(2000));
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcapng"));
    for record in all.iter_mut() {
        record.time *= 200;
        // Two hosts in irregular alternation.
        record.bytes[11] = if record.time % 7 < 3 { 1 } else { 2 };
    }
    records::write(&file, &all);
    for scheme in ["packet:", "xdp:"] {
        let ports = ["eth0", "eth1"].map(|interface| wire.port("b", interface, ROOMY));
        let capture = start(&[
            "capture",
            "-i",
            &ports[0],
            "-i",
            &ports[1],
            "-w",
            &output,
            "--json",
            "--lag",
            "40",
            "-c",
            "2000",
            "--duration",
            "20",
        ]);
        let [client, server] =
            ["eth0", "eth1"].map(|interface| wire.port("a", interface, "").replace("packet:", scheme));
        let sides = ["--to", &client, "--to-server", &server, "--split-by", "mac=02:00:00:00:00:01"];
        let json = replay(&[&["-r", &file][..], &sides].concat());
        assert_eq!((json["frames"].as_u64(), json["lost"].as_u64()), (Some(2000), Some(0)), "{json}");
        assert!(json["ports"][0]["frames"].as_u64() > Some(500) && json["ports"][1]["frames"].as_u64() > Some(500));
        assert_eq!(capture.end().good().json()["lost"], 0);
        let plain = scratch.file("plain.pcap");
        linerate_tests::support::program::run(&["capture", "-q", "-r", &output, "-w", &plain]).good();
        assert_same_frames(scheme, &records::read(&plain), &all);
    }
}

#[test]
fn loops_keep_their_delay_and_gap_errors_are_reported() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, mut all) = (Wire::new(), Scratch::new(), numbered(200));
    all.iter_mut().for_each(|record| record.time *= 500);
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &all);
    let capture = wire.capture(&output, &["-c", "600", "--duration", "20"]);
    let json = wire.replay_with(&["-r", &file, "--loops", "3", "--loop-delay", "300ms", "--speed", "2"]).json();
    capture.end().good();
    let got = records::read(&output);
    let thrice = [&all[..], &all, &all].concat();
    assert_same_frames("loops", &got, &thrice);
    let gap = |records: &[Record], at: usize| (records[at].time - records[at - 1].time) as f64 / 1e6;
    for pass in [200, 400] {
        assert!((250.0..400.0).contains(&gap(&got, pass)), "{} ms", gap(&got, pass));
    }
    for name in ["lateness_p50_us", "lateness_p99_us", "lateness_max_us", "gap_error_p50_us", "gap_error_p99_us"] {
        assert!(json[name].as_f64() >= Some(0.0), "{name}: {json}");
    }
    assert!(json["lateness_p50_us"].as_f64() <= json["lateness_p99_us"].as_f64());
    assert_eq!(json["loops"], 3);
}

/// Every frame is sent in the nominal time at any rate.
#[test]
fn rates_send_every_frame_in_time() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, all) = (Wire::new(), Scratch::new(), numbered(10_000));
    let (file, few) = (scratch.file("in.pcap"), scratch.file("few.pcap"));
    records::write(&file, &all);
    records::write(&few, &all[..10]);
    for scheme in ["packet:", "xdp:"] {
        let to = wire.port("a", "eth0", "").replace("packet:", scheme);
        for (file, rate, frames, least) in [
            (&few, "10pps", 10, 0.9),
            (&file, "20kpps", 10_000, 0.499),
            (&file, "50kpps", 10_000, 0.199),
            (&file, "max", 10_000, 0.0),
        ] {
            let json = replay(&["--to", &to, "-r", file, "--rate", rate]);
            assert_eq!(
                (json["frames"].as_u64(), json["lost"].as_u64()),
                (Some(frames), Some(0)),
                "{scheme} {rate}: {json}"
            );
            let seconds = json["seconds"].as_f64().unwrap();
            assert!(seconds >= least && seconds < least + 5.0, "{scheme} {rate}: {seconds} s");
        }
    }
}
