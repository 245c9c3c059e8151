//! Captures are complete and accounted for, however they end.

use linerate_tests::support::program::{Running, launch, run, start};
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::wire::{ROOMY, Wire, assert_consecutive, numbered, settle};
use linerate_tests::support::{Scratch, has_tools, may_make_labs, tool, wait_until};
use rustix::process::Signal;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A network, files, and numbered frames as a file.
fn scene(count: u32) -> (Wire, Scratch, String, Vec<Record>) {
    let (scratch, all) = (Scratch::new(), numbered(count));
    let file = scratch.file("numbered.pcap");
    records::write(&file, &all);
    (Wire::new(), scratch, file, all)
}

#[test]
fn signals_end_a_capture_with_all_packets() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, file, all) = scene(3000);
    let output = scratch.file("out.pcap");
    for signal in [Signal::INT, Signal::TERM] {
        let capture = wire.capture(&output, &[]);
        wire.replay(&file);
        settle(&output, &all);
        capture.signal(signal);
        let json = capture.end().good().json();
        assert_eq!((json["quiesced"].as_bool(), json["lost"].as_u64()), (Some(true), Some(0)));
        assert_same_frames("signal", &records::read(&output), &all);
    }
}

#[test]
fn signal_under_load_ends_capture_and_sender_in_order() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, file, all) = scene(3000);
    let output = scratch.file("out.pcap");
    let capture = wire.capture(&output, &[]);
    let sender = endless(&wire, &file, "20kpps");
    wait_until("frames are written", || std::fs::metadata(&output).is_ok_and(|data| data.len() > 1 << 20));
    let captured = capture.interrupt().good().json();
    let sent = sender.interrupt().good().json();
    let got = records::read(&output);
    assert_consecutive("full flight", &got, &all);
    assert_eq!(captured["frames"], got.len());
    assert_eq!((captured["balanced"].as_bool(), captured["lost"].as_u64()), (Some(true), Some(0)), "{captured}");
    assert!(sent["frames"].as_u64() >= captured["frames"].as_u64() && sent["balanced"] == true);
}

#[test]
fn killed_capture_leaves_only_a_readable_file() {
    if !may_make_labs() || !has_tools(&["tcpdump"]) {
        return;
    }
    let (wire, scratch, file, all) = scene(3000);
    let sender = endless(&wire, &file, "20kpps");
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut most = 0;
    for round in 0..20 {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let name = if round % 2 == 0 { "out.pcap" } else { "out.pcapng" };
        let output = scratch.file(name);
        let capture = wire.capture(&output, &[]);
        wait_until("the file is created", || std::fs::metadata(&output).is_ok());
        std::thread::sleep(Duration::from_micros(random % 80_000));
        capture.signal(Signal::KILL);
        assert_eq!(capture.end().status, -1);
        let got = rescue(&scratch, &output);
        assert_consecutive(&format!("round {round}"), &got, &all);
        most = most.max(got.len());
        std::fs::remove_file(&output).unwrap();
    }
    assert!(most > 200, "no capture ran long enough");
    sender.interrupt().good();
    assert_eq!(scratch.names(), ["numbered.pcap", "rescued.pcap"]);
}

/// Complete frames of a possibly truncated file, as read by tcpdump.
fn rescue(scratch: &Scratch, output: &str) -> Vec<Record> {
    if output.ends_with(".pcap") {
        // A pcap file is empty until the first frame, which determines the link type.
        let whole = std::fs::read(output).unwrap();
        return if whole.is_empty() { Vec::new() } else { records::parse(&whole) };
    }
    let rescued = scratch.file("rescued.pcap");
    let arguments = ["-r", output, "--time-stamp-precision=nano", "-Z", "root", "-w", &rescued];
    let ended = Command::new("tcpdump").args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    // The interface block is written with the first frame.
    if errors.contains("no Interface Description Blocks") {
        assert!(std::fs::metadata(output).unwrap().len() < 512, "a file of over 512 bytes without an interface");
        return Vec::new();
    }
    assert!(ended.status.success() || errors.contains("truncated") || errors.contains("EOF"), "{errors}");
    records::read(&rescued)
}

/// Starts an endless replay.
fn endless(wire: &Wire, file: &str, rate: &str) -> Running {
    let to = wire.port("a", "eth0", "");
    start(&["replay", "--json", "--to", &to, "-r", file, "--loops", "0", "--rate", rate])
}

#[test]
fn packets_dropped_by_a_full_ring_are_counted() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let output = scratch.file("out.pcapng");
    let port = wire.port("b", "eth0", "&lanes=1&ring=128KiB&block=64KiB");
    for (lossless, status) in [(true, 3), (false, 0)] {
        let arguments = ["capture", "-i", &port, "-w", &output, "--json", "--lossless"];
        let capture = start(&arguments[..arguments.len() - usize::from(!lossless)]);
        capture.signal(Signal::STOP);
        wire.send(&["--udp", "--size", "1000", "-c", "5000", "--rate", "max"]);
        std::thread::sleep(Duration::from_millis(50));
        capture.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(100));
        let json = capture.interrupt().with_status(status).json();
        let (frames, full) = (json["frames"].as_u64().unwrap(), json["drops"]["ring_full"].as_u64().unwrap());
        assert!(frames > 0 && full > 0, "{json}");
        assert_eq!((frames + full, json["lost"].as_u64()), (5000, Some(full)), "{json}");
        assert_eq!(json["balanced"], true, "{json}");
        if has_tools(&["tshark"]) {
            assert_eq!(tool("tshark", &["-r", &output]).lines().count() as u64, frames);
        }
    }
}

#[test]
fn counters_of_a_moved_file_cover_its_own_time() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, file, all) = scene(1000);
    let [output, moved] = ["out.pcapng", "moved.pcapng"].map(|name| scratch.file(name));
    let capture = wire.capture(&output, &[]);
    let replay = || {
        wire.replay(&file);
        let bytes: usize = all.iter().map(|record| record.bytes.len()).sum();
        let is_there = || std::fs::metadata(&output).is_ok_and(|data| data.len() > bytes as u64);
        wait_until("all packets are written", is_there);
    };
    replay();
    std::fs::rename(&output, &moved).unwrap();
    capture.signal(Signal::HUP);
    wait_until("a new file exists", || std::path::Path::new(&output).exists());
    replay();
    assert_eq!(capture.interrupt().good().json()["frames"], 2000);
    for path in [&moved, &output] {
        let json = run(&["capture", "-r", path, "--json"]).good().json();
        assert_eq!(json["frames"], 1000, "{path}");
        let notes = |account: &serde_json::Value| account["notes"]["file_seen"].as_u64();
        let seen: u64 = json["accounts"].as_array().unwrap().iter().filter_map(notes).sum();
        // Includes packets of the kernels, such as neighbour discovery.
        assert!((1000..1200).contains(&seen), "{path}: {seen} of 1000 frames");
    }
}

#[test]
fn capture_continues_after_link_down_and_up() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, file, all) = scene(500);
    let output = scratch.file("out.pcap");
    let capture = wire.capture(&output, &[]);
    wire.replay(&file);
    settle(&output, &all);
    wire.ip("b", &["link", "set", "eth0", "down"]);
    std::thread::sleep(Duration::from_millis(100));
    wire.ip("b", &["link", "set", "eth0", "up"]);
    wait_until("the link is up", || wire.inside("a", &["ports", "--json"]).json()["interfaces"][1]["link"] == "up");
    wire.replay(&file);
    let twice = [&all[..], &all].concat();
    settle(&output, &twice);
    let json = capture.interrupt().good().json();
    assert_same_frames("down and up", &records::read(&output), &twice);
    let events = json["events"].to_string();
    assert!(events.contains("is down") && events.contains("again"), "{events}");
    assert_eq!(json["balanced"], true);
}

#[test]
fn removed_port_ends_the_capture_with_a_complete_file() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, file, all) = scene(500);
    let output = scratch.file("out.pcap");
    let capture = wire.capture(&output, &[]);
    wire.replay(&file);
    settle(&output, &all);
    wire.ip("b", &["link", "del", "eth0"]);
    let json = capture.end().with_status(1).says("the interface was removed").json();
    assert!(json["failure"].as_str().unwrap().contains("removed"), "{json}");
    assert_same_frames("removed", &records::read(&output), &all);
    assert_eq!(json["balanced"], true);
}

#[test]
fn removed_port_is_reported_once() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    let counting = launch(&["count", &wire.port("b", "eth0", "&lanes=2")]);
    counting.wait_until_open();
    wire.ip("b", &["link", "del", "eth0"]);
    let ended = counting.end().with_status(1);
    let text = format!("{}{}", ended.output, ended.errors);
    assert_eq!(text.matches("the interface was removed").count(), 1, "{text}");
}

/// A supervisor distinguishes requested from unexpected ends by the exit status.
#[test]
fn removed_or_moved_port_fails_every_verb() {
    if !may_make_labs() {
        return;
    }
    for verb in ["capture", "count", "flows", "bridge"] {
        for (scheme, is_moved) in [("packet:", false), ("packet:", true), ("xdp:", false), ("xdp:", true)] {
            let wire = Wire::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]);
            let [port, other] = ["eth0", "eth1"].map(|name| wire.port("b", name, ""));
            let port = port.replace("packet:", scheme);
            let running =
                if verb == "bridge" { start(&[verb, &port, &other]) } else { start(&[verb, "-q", "-i", &port]) };
            match is_moved {
                true => wire.ip("b", &["link", "set", "eth0", "netns", &wire.namespace("a"), "name", "moved"]),
                false => wire.ip("b", &["link", "del", "eth0"]),
            }
            running.end().with_status(1).says(&format!("linerate: {scheme}eth0")).says("the interface was removed");
        }
    }
}

#[test]
fn other_ports_continue_after_one_is_removed() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]), Scratch::new());
    let output = scratch.file("out.pcap");
    let [first, second] = ["eth0", "eth1"].map(|name| wire.port("b", name, ROOMY));
    let to = wire.port("a", "eth1", "");
    let send = || drop(run(&["generate", "-q", "--to", &to, "--udp", "-c", "100", "--rate", "max"]).good());
    let capture = start(&["capture", "-i", &first, "-i", &second, "-w", &output, "--json"]);
    send();
    wire.ip("b", &["link", "del", "eth0"]);
    std::thread::sleep(Duration::from_millis(200));
    send();
    std::thread::sleep(Duration::from_millis(200));
    let ended = capture.interrupt().with_status(1).says("packet:eth0").says("the interface was removed");
    let json = ended.json();
    assert_eq!((json["frames"].as_u64(), records::read(&output).len()), (Some(200), 200), "{json}");
    assert_eq!(json["balanced"], true, "{json}");
}

#[test]
fn live_capture_flushes_packets_to_a_pipe() {
    if !may_make_labs() || !has_tools(&["tshark"]) {
        return;
    }
    let wire = Wire::new();
    let port = wire.port("b", "eth0", ROOMY);
    let mut command = linerate_tests::support::program::linerate(&["capture", "-q", "-i", &port, "-w", "-"]);
    let mut capture = command.stdout(Stdio::piped()).spawn().unwrap();
    let reader = Command::new("tshark")
        .args(["-l", "-r", "-", "-c", "10", "-T", "fields", "-e", "udp.dstport"])
        .stdin(capture.stdout.take().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(200));
    wire.send(&["--udp", "-c", "20", "--rate", "max", "--dst-port", "7777"]);
    // tshark reads 10 packets while the capture runs, and exits.
    let printed = reader.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&printed.stdout).lines().filter(|line| *line == "7777").count(), 10);
    assert!(capture.try_wait().unwrap().is_none());
    wire.send(&["--udp", "-c", "20", "--rate", "max"]);
    // The next packets find the pipe closed, which is not an error.
    assert_eq!(capture.wait().unwrap().code(), Some(0));
    drop(launch(&["--version"]).end().good());
}
