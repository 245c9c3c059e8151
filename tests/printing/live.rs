//! `capture --print` of interfaces; each test has its own namespaces.

use linerate_backends::netns::within;
use linerate_tests::support::program::{linerate, spawn, start};
use linerate_tests::support::records;
use linerate_tests::support::wire::{ROOMY, Wire};
use linerate_tests::support::{Scratch, judge, may_make_labs};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::Stdio;
use std::time::{Duration, Instant};

const PACKET: &str = "ip(src=10.0.0.1,dst=10.0.0.2)/udp(sport=7,dport=9)/payload(\"hello\")";

#[test]
fn packet_is_printed_when_it_arrives() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0"]);
    let port = wire.port("b", "eth0", "");
    let mut running = start(&["capture", "-i", &port, "--print", "--filter", "ip", "-T", "20"]);
    let mut lines = BufReader::new(running.take_output().unwrap()).lines();
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        wire.send(&["-k", PACKET, "-c", "1"]);
        let sent = Instant::now();
        let line = lines.next().unwrap().unwrap();
        longest = longest.max(sent.elapsed());
        assert!(line.ends_with(" IP 10.0.0.1.7 > 10.0.0.2.9: UDP, length 5"), "{line}");
    }
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    judge(longest < Duration::from_millis(100), &format!("a line was printed {longest:?} after its packet"));
    // Several packets without pauses.
    wire.send(&["-k", PACKET, "-c", "400", "--rate", "2kpps"]);
    assert!(lines.by_ref().take(400).all(|line| line.unwrap().contains("UDP, length 5")));
    running.interrupt().good().says("403 packets printed").says("0 lost");
}

#[test]
fn lines_contain_the_interface_with_several_ports() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0", "a:eth1,b:eth1"]);
    let (one, other) = (wire.port("b", "eth0", ""), wire.port("b", "eth1", ""));
    let mut running = start(&["capture", "-i", &one, "-i", &other, "--print", "--filter", "ip", "-c", "2"]);
    let output = running.take_output().unwrap();
    wire.send(&["-k", PACKET, "-c", "1"]);
    let to = wire.port("a", "eth1", "");
    spawn(linerate(&["generate", "-q", "--to", &to, "-k", PACKET, "-c", "1"]).stdout(Stdio::null())).end().good();
    let lines: Vec<String> = BufReader::new(output).lines().map(Result::unwrap).collect();
    running.end().good();
    for (line, name) in lines.iter().zip(["eth0", "eth1"]) {
        let (_, rest) = line.split_once(' ').unwrap();
        assert_eq!(rest, format!("{name} IP 10.0.0.1.7 > 10.0.0.2.9: UDP, length 5"));
    }
    assert_eq!(lines.len(), 2);
    // `any` opens the interfaces that are up, and lists them.
    wire.ip("b", &["link", "set", "eth1", "down"]);
    let ended = wire.inside("b", &["capture", "any", "--print", "-T", "0.1"]).good();
    assert!(ended.errors.contains("packet:eth0") && !ended.errors.contains("packet:eth1"), "{}", ended.errors);
}

/// Sends datagrams from host `a` over the link and over loopback, with answers.
fn converse(wire: &Wire, times: usize) {
    let socket = |host: &str, at: &str| {
        let socket = within(Some(&wire.namespace(host)), || UdpSocket::bind(at)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket
    };
    let mut buffer = [0; 16];
    for (host, server) in [("b", "10.98.1.2:7007"), ("a", "127.0.0.1:7007")] {
        let (server, client) = (socket(host, server), socket("a", "0.0.0.0:0"));
        for _ in 0..times {
            client.send_to(b"question", server.local_addr().unwrap()).unwrap();
            let (_, from) = server.recv_from(&mut buffer).unwrap();
            server.send_to(b"answer", from).unwrap();
            client.recv_from(&mut buffer).unwrap();
        }
    }
}

/// As tcpdump does: packets sent and received, loopback packets once; or one direction.
#[test]
fn both_directions_of_the_host_are_captured() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0=10.98.1.1/24,b:eth0=10.98.1.2/24"]);
    let netns = wire.namespace("a");
    wire.ip("a", &["link", "set", "lo", "up"]);
    let (port, any) = (|more: &str| format!("packet:eth0?netns={netns}{more}"), format!("any?netns={netns}"));
    for (port, more, sent, received, on_loopback) in [
        (port(""), &[][..], 4, 4, 0),
        (port("&lanes=1"), &[], 4, 4, 0),
        (port("&direction=inout"), &[], 4, 4, 0),
        (port("&direction=in"), &[], 0, 4, 0),
        (port("&direction=out"), &[], 4, 0, 0),
        (port(""), &["-Q", "out"], 4, 0, 0),
        (any.clone(), &[], 4, 4, 8),
        (format!("{any}&direction=out"), &[], 4, 0, 8),
        (any, &["-Q", "in"], 0, 4, 8),
    ] {
        let count = (sent + received + on_loopback).to_string();
        let base = ["capture", "-i", &port, "--print", "-f", "udp port 7007", "-T", "20", "-c", &count];
        let mut running = start(&[&base[..], more].concat());
        let output = running.take_output().unwrap();
        converse(&wire, 4);
        let lines: Vec<String> = BufReader::new(output).lines().map(Result::unwrap).collect();
        let ended = running.end().good();
        let count = |part: &str| lines.iter().filter(|line| line.contains(part)).count();
        let seen = (count("> 10.98.1.2.7007"), count("IP 10.98.1.2.7007 >"), count("127.0.0.1.7007"));
        assert_eq!(seen, (sent, received, on_loopback), "{port} {more:?}: {lines:?}");
        let is_reported = ended.errors.contains("packets that this host sends");
        assert_eq!(is_reported, sent == 0 || received == 0, "{port} {more:?}: {}", ended.errors);
    }
    let ended = wire.inside("a", &["capture", "-i", "lo", "-T", "0.1"]).good();
    assert!(!ended.errors.contains("packets that this host sends"), "{}", ended.errors);
    // Flow records contain both directions.
    let running = start(&["flows", "-i", &port(""), "-f", "udp port 7007", "-c", "8", "-w", "-"]);
    converse(&wire, 4);
    let record: serde_json::Value = serde_json::from_str(running.end().good().output.lines().next().unwrap()).unwrap();
    assert_eq!((&record["orig"]["packets"], &record["resp"]["packets"]), (&4.into(), &4.into()), "{record}");
}

/// A slow reader of lines does not affect the file; packets that were not printed are counted.
#[test]
fn slow_reader_of_lines_does_not_affect_the_file() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, frames) = (Wire::of(&["a:eth0,b:eth0"]), Scratch::new(), 40_000);
    let file = scratch.file("all.pcap");
    let port = wire.port("b", "eth0", ROOMY);
    let mut running = start(&["capture", "-i", &port, "--filter", "ip", "-w", &file, "--print", "-v"]);
    let mut output = running.take_output().unwrap();
    wire.send(&["-k", PACKET, "--size", "1400", "-c", &frames.to_string(), "--rate", "20kpps"]);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    let mut text = String::new();
    output.read_to_string(&mut text).unwrap();
    let ended = running.end().good();
    assert_eq!(records::read(&file).len(), frames, "{}", ended.errors);
    let printed = text.lines().count();
    assert!(printed < frames, "all {printed} lines fit the buffers");
    let digits: String = ended.errors.chars().filter(|c| *c != ',').collect();
    assert!(digits.contains(&format!("{printed} packets printed")), "{}", ended.errors);
    assert!(digits.contains("reader_too_slow") && digits.contains(&(frames - printed).to_string()), "{}", ended.errors);
}
