//! `linerate` at both ends, run as users run it.

use super::peer::name;
use linerate_tests::support::program::{launch, run, start};
use linerate_tests::support::records::{assert_same_frames, read};
use linerate_tests::support::{Scratch, wait_until};
use serde_json::Value;
use std::time::Duration;

/// Packet expression of all runs.
const PACKET: [&str; 2] = ["-k", "ip(dst=10.0.0.1..10.0.0.9)/udp(dport=53)"];

/// Returns a port at a path where any user may create a socket.
fn socket(scratch: &Scratch) -> String {
    format!("memif:{}", scratch.file("m.sock"))
}

#[test]
fn capture_is_complete_in_both_roles() {
    let scratch = Scratch::new();
    let (port, sent) = (socket(&scratch), scratch.file("sent.pcap"));
    let options = ["-c", "20000", "--size", "imix", "--rate", "max", "-q"];
    run(&[&["generate", "--to", &format!("pcap:{sent}")], &PACKET[..], &options].concat()).good();
    for (own, other) in [("server", "client"), ("client", "server")] {
        let got = scratch.file("got.pcap");
        let (from, to) = (format!("{port}?role={own}"), format!("{port}?role={other}"));
        let capture = start(&["capture", &from, "-c", "20000", "-q", "-w", &got, "-Z", "root"]);
        run(&[&["generate", "--to", &to, "-Z", "root"], &PACKET[..], &options].concat()).good();
        capture.end().good();
        assert_same_frames(own, &read(&got), &read(&sent));
        assert_eq!(scratch.names(), ["got.pcap", "sent.pcap"], "the socket was not removed");
    }
}

#[test]
fn one_process_checks_its_packets_over_four_rings() {
    let name = name();
    let (to, from) = (format!("memif:{name}?rings-out=4"), format!("memif:{name}?role=server&rings-in=4"));
    let options = ["--threads", "4", "--json", "-q", "-c", "20000", "--rate", "max", "--size", "64..9000"];
    let json = run(&[&["generate", "--to", &to, "--check", &from], &PACKET[..], &options].concat()).good();
    let json = json.json();
    // Four rings have no common order: a packet overtaken by thousands is counted as lost before it arrives.
    assert_eq!(json["streams"][0]["check"]["received"], 20_000, "{json}");
    assert_eq!(json["streams"][0]["check"]["duplicated"], 0, "{json}");
}

#[test]
fn bridge_connects_two_memif_ports() {
    let names = [name(), name()];
    let ports = names.each_ref().map(|name| format!("memif:{name}?role=server"));
    let bridge = start(&["bridge", &ports[0], &ports[1], "--json"]);
    let others = names.map(|name| format!("memif:{name}"));
    let options = ["--json", "-q", "-c", "5000", "--rate", "50kpps"];
    let checked =
        run(&[&["generate", "--to", &others[0], "--check", &others[1]], &PACKET[..], &options].concat()).good();
    let json = checked.json();
    assert_eq!(
        (&json["streams"][0]["check"]["lost"], &json["streams"][0]["check"]["received"]),
        (&Value::from(0), &Value::from(5_000)),
        "{json}"
    );
    let bridged = bridge.interrupt().good();
    assert!(bridged.output.contains("5000"), "{}", bridged.output);
}

/// A client that runs with dropped privileges reconnects to the next server.
#[test]
fn client_waits_for_its_server_and_reconnects() {
    let name = name();
    let count = launch(&["count", &format!("memif:{name}"), "-c", "30", "--json", "--interval", "0", "-Z", "root"]);
    count.wait_until_open();
    for _ in 0..3 {
        let to = format!("memif:{name}?role=server");
        run(&[&["generate", "--to", &to, "-c", "10", "--rate", "1kpps", "-q"], &PACKET[..]].concat()).good();
    }
    let summary = count.end().good();
    let line = summary.output.lines().last().unwrap();
    assert!(line.contains("\"frames\":30"), "{line}");
}

#[test]
fn wrong_secret_ends_the_run_with_the_reason() {
    let name = name();
    let server = start(&["count", &format!("memif:{name}?role=server&secret=hush"), "--json", "--interval", "0"]);
    let ended =
        run(&[&["generate", "--to", &format!("memif:{name}?secret=hum"), "-c", "1", "-q"], &PACKET[..]].concat());
    assert_ne!(ended.status, 0);
    ended.says("refused by the server: incorrect secret").says("secret=...");
    let counted = server.interrupt();
    assert!(counted.output.contains("peers_refused"), "{}", counted.output);
}

/// A waiting client reports once that no server listens, and each connect and disconnect; no line has the secret.
#[test]
fn client_reports_waiting_and_connecting() {
    let name = name();
    let port = format!("memif:{name}?secret=hush");
    let mut count = launch(&["count", &port, "-c", "20", "--interval", "0", "-Z", "root"]);
    let log = count.collect_errors();
    let count_of = |text: &str| log.lock().unwrap().matches(text).count();
    wait_until("the client reports that no server listens", || count_of("no server is listening") == 1);
    // The client retries during this time.
    std::thread::sleep(Duration::from_millis(800));
    assert_eq!(count_of("no server is listening"), 1);
    for round in 1..=2 {
        let to = format!("memif:{name}?role=server&secret=hush");
        run(&[&["generate", "--to", &to, "-c", "10", "--rate", "1kpps", "-q"], &PACKET[..]].concat()).good();
        wait_until("the client reports the connection", || count_of("connected with linerate") == round);
        assert!(round == 2 || count_of("peer disconnected") <= 1);
    }
    count.end().good();
    let log = log.lock().unwrap().clone();
    assert!(log.contains("secret=...") && !log.contains("hush"), "{log}");
}
