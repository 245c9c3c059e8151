//! Sending: packet contents, and packets that cannot be sent.

use linerate_tests::support::program::{Ended, run, start};
use linerate_tests::support::records::{self, assert_same_frames};
use linerate_tests::support::wire::{Wire, settle};
use linerate_tests::support::{Scratch, frames, has_tools, may_make_labs, tool, wait_until};
use std::time::Instant;

#[test]
fn udp_packets_arrive_with_the_requested_fields() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let output = scratch.file("out.pcap");
    for (from, into, size) in [("198.18.0.1", "198.18.0.2", 64), ("2001:db8::1", "2001:db8::2", 1000)] {
        let capture = wire.capture(&output, &["-c", "500", "--duration", "20"]);
        let started = Instant::now();
        let size_text = size.to_string();
        let options = ["--udp", "--src-ip", from, "--dst-ip", into, "--size", &size_text, "-c", "500"];
        let json = wire.send(&[&options[..], &["--rate", "1000pps"]].concat()).json();
        assert!(started.elapsed().as_secs_f64() >= 0.49);
        assert_eq!((json["frames"].as_u64(), json["bytes"].as_u64()), (Some(500), Some(500 * (size - 4))));
        assert_eq!(capture.end().good().json()["frames"], 500);
        let got = records::read(&output);
        assert!(got.len() == 500 && got.iter().all(|record| record.content() == got[0].content()));
        if has_tools(&["tshark"]) {
            let right = format!("udp.checksum.status == 1 && frame.len == {} && !_ws.expert", size - 4);
            let options = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", &right];
            assert_eq!(tool("tshark", &[&["-r", &output], &options[..]].concat()).lines().count(), 500);
        }
    }
}

/// The same packets from ports that build them themselves and ports that do not, captured by AF_XDP.
#[test]
fn stamped_packets_have_numbers_times_and_checksums() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch) = (Wire::new(), Scratch::new());
    let output = scratch.file("out.pcap");
    let receiver = wire.port("b", "eth0", "").replace("packet:", "xdp:");
    for scheme in ["packet:", "xdp:", "xdp-live:"] {
        let capture = start(&["capture", "-i", &receiver, "-w", &output, "-c", "600", "--duration", "20", "--json"]);
        let to = wire.port("a", "eth0", "").replace("packet:", scheme);
        let options = ["--udp", "--stamp", "--src-ports", "7", "--size", "100", "-c", "600", "--rate", "2kpps"];
        let sent = run(&[&["generate", "--json", "--to", &to][..], &options].concat()).good().json();
        assert_eq!(sent["frames"], 600, "{scheme}");
        assert_eq!(capture.end().good().json()["frames"], 600, "{scheme}");
        let got = records::read(&output);
        let mut last = 0;
        for (number, record) in got.iter().enumerate() {
            let word = |at: usize| u64::from_be_bytes(record.bytes[at..at + 8].try_into().unwrap());
            let port = u16::from_be_bytes([record.bytes[34], record.bytes[35]]);
            // The trailer: stream 0 and the packet's number, then the lower 40 bits of the time.
            assert_eq!((word(80), port), (number as u64, 49152 + (number % 7) as u16), "{scheme}");
            let seen = record.time + 1_000;
            let age = seen.wrapping_sub(word(88) >> 24) & ((1 << 40) - 1);
            let made = seen - age;
            assert!(made >= last && age < 1_000_000_000, "{scheme}: made at {made}, seen at {seen}");
            last = made;
        }
        if has_tools(&["tshark"]) {
            let options = ["-o", "udp.check_checksum:TRUE", "-Y", "udp.checksum.status == 1 && !_ws.expert"];
            assert_eq!(tool("tshark", &[&["-r", &output], &options[..]].concat()).lines().count(), 600, "{scheme}");
        }
    }
}

#[test]
fn replay_loops_arrive_completely() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, sample) = (Wire::new(), Scratch::new(), frames::sample());
    let (file, output) = (scratch.file("sample.pcap"), scratch.file("out.pcap"));
    records::write(&file, &sample);
    let capture = wire.capture(&output, &[]);
    wire.replay_with(&["-r", &file, "--rate", "max", "--loops", "3"]);
    let thrice = [&sample[..], &sample, &sample].concat();
    settle(&output, &thrice);
    capture.interrupt().good();
    assert_same_frames("--loops 3", &records::read(&output), &thrice);
}

#[test]
fn packets_above_the_mtu_are_counted_and_not_sent() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0,mtu=1000"]);
    let udp = ["--udp", "-c", "10", "--rate", "max", "--lossless", "--size"];
    let fits = wire.send(&[&udp[..], &["1018"]].concat()).json();
    assert_eq!((fits["frames"].as_u64(), fits["lost"].as_u64()), (Some(10), Some(0)));
    let ended = Ended::of(wire.sender(&[&udp[..], &["1019"]].concat()).output().unwrap()).with_status(3);
    let json = ended.json();
    assert_eq!((json["frames"].as_u64(), json["lost"].as_u64()), (Some(0), Some(10)));
    assert_eq!((json["drops"]["too_long"].as_u64(), json["balanced"].as_bool()), (Some(10), Some(true)));
}

#[test]
fn interface_down_or_removed_is_an_error() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::new();
    wire.ip("a", &["link", "set", "eth0", "down"]);
    Ended::of(wire.sender(&["--udp"]).output().unwrap()).with_status(1).says("down");
    wire.ip("a", &["link", "set", "eth0", "up"]);
    let mut sender = wire.sender(&["--udp", "-c", "0", "--rate", "1000pps"]);
    let sending = std::thread::spawn(move || Ended::of(sender.output().unwrap()));
    wait_until("packets are sent", || {
        let text = tool("ip", &["-n", &wire.namespace("a"), "-s", "-j", "link", "show", "eth0"]);
        let links: serde_json::Value = serde_json::from_str(&text).unwrap();
        links[0]["stats64"]["tx"]["packets"].as_u64() > Some(0)
    });
    wire.ip("a", &["link", "del", "eth0"]);
    let ended = sending.join().unwrap().with_status(1).says("packet:eth0");
    let json = ended.json();
    assert!(json["frames"].as_u64() > Some(0) && json["balanced"] == true, "{json}");
    wire_is_gone(&wire);
}

fn wire_is_gone(wire: &Wire) {
    Ended::of(wire.sender(&["--udp"]).output().unwrap()).with_status(1).says("no such interface");
}

#[test]
fn sending_to_the_default_route_needs_yes() {
    if !may_make_labs() {
        return;
    }
    for (link, default) in [
        ("a:eth0=10.77.0.1/24,b:eth0=10.77.0.2/24", ["default", "10.77.0.2"]),
        ("a:eth0=fd77::1/64,b:eth0=fd77::2/64", ["default", "fd77::2"]),
    ] {
        let wire = Wire::of(&[link]);
        let udp = ["generate", "--to", "eth0", "--udp", "-c", "5", "--rate", "max"];
        wire.inside("a", &udp).good();
        wire.ip("a", &["route", "add", default[0], "via", default[1]]);
        wire.inside("a", &udp).with_status(2).says("default route").says("--yes");
        wire.inside("a", &[&udp[..], &["--yes"]].concat()).good();
    }
}
